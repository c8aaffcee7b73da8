"""Corrections by a full body: what is compared, which problems are solved again, and which steps are tried."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.test_full_model import Measured, parameters, solution
from vid2phys.errors import SimulationError
from vid2phys.solvers import full_model
from vid2phys.solvers.full_model import _defect, _is_final, corrected, full_states
from vid2phys.types import Array

UNUSED: Any = None


@dataclass(frozen=True)
class Seen:
    configuration: Any
    times_s: Any = None


@dataclass(frozen=True)
class Problem:
    observation: Any
    parameters: Any = None


def problem(offset: float) -> Any:
    return Problem(Seen(Measured(offset + np.arange(3.0)[:, None], np.array([True, True, False])), "times"))


def test_a_defect_is_the_full_bodys_shape_less_the_reduced_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(solution(parameters()), states=np.array([[1.0, 2.0], [3.0, 5.0]]), start=np.array([0.7, 0.9]))

    class Body:
        def configurations(self, states: Array) -> Array:
            return states[:, :1] + 100.0

        def nearest_states(self, states: Array, begin: Array) -> Array:
            np.testing.assert_array_equal(begin, [[101.0], [103.0]])
            return 10.0 * states

    def full(body: Any, start: Array, values: Any, times_s: Any) -> Array:
        assert start is found.start
        assert values is found.parameters
        assert times_s == "times"
        return np.array([[0.2, 0.3], [0.5, 0.7]])

    monkeypatch.setattr(full_model, "full_states", full)
    body: Any = Body()
    np.testing.assert_allclose(_defect(problem(0.0), body, found), [[1.0, 1.0], [2.0, 2.0]])


def test_problems_without_the_defect_are_solved_from_the_last_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each clip with its own defect and its own start, all with the parameters of the first; three rounds here."""
    asked, numbers = list[Any](), list[int]()

    def defect(one: Any, body: Any, found: Any) -> Array:
        offset = one.observation.configuration.configuration[0, 0]
        return np.full((3, 2), 0.01 * (1.0 + offset) * (len(asked) + 1))

    def solve(problems: Any, body: Any, starts: list[Array], *, shares: Any) -> Any:
        asked.append((problems, starts, shares))
        stiffness = 2.0 * np.exp(0.2 / len(asked) ** 3)
        values = parameters(stiffness)
        return [replace(solution(values, 0.1 * len(asked)), start=np.array([n, len(asked)])) for n in (0.0, 1.0)]

    monkeypatch.setattr(full_model, "_defect", defect)
    monkeypatch.setattr(full_model, "solve_clips", solve)
    first = [replace(solution(parameters()), start=np.array([n, 0.0])) for n in (0.0, 1.0)]
    found = corrected([problem(0.0), problem(5.0)], UNUSED, first, numbers.append)
    assert numbers == [1, 2, 3, 4][: len(asked)]
    assert len(asked) == 4
    for n, (problems, starts, shares) in enumerate(asked):
        assert shares == (1.0,)
        np.testing.assert_array_equal(starts, [[0.0, n], [1.0, n]])
        for k, offset in enumerate((0.0, 5.0)):
            got = problems[k].observation.configuration.configuration[:, 0]
            taken = 0.01 * (1.0 + offset) * (n + 1)
            np.testing.assert_allclose(got, [offset - taken, offset + 1.0 - taken, offset + 2.0])
            before = parameters() if n == 0 else parameters(2.0 * np.exp(0.2 / n**3))
            assert problems[k].parameters.free_vector() == pytest.approx(before.free_vector())
    last = [one.states[0, 0] for one in found.solutions]
    np.testing.assert_allclose(last, [0.4 + 0.01 * 4, 0.4 + 0.06 * 4])
    assert found.moved == pytest.approx({"stiffness": np.exp(0.2 / 64.0) - 1.0, "offset": 0.0})


def test_a_covariance_below_zero_counts_as_none() -> None:
    before, after = solution(parameters()), solution(parameters(2.0 * np.exp(0.0009)))
    assert _is_final(before, replace(after, theta_covariance=np.diag([-1.0, -1.0])))
    far = solution(parameters(2.0 * np.exp(0.0011)))
    assert not _is_final(before, replace(far, theta_covariance=np.diag([-1.0, -1.0])))


def test_a_thousandth_of_a_small_value_or_of_a_logarithm_never_matters() -> None:
    sure = (0.0, 0.0)
    before = solution(parameters(0.002, 1e-3))
    assert _is_final(before, solution(parameters(0.002 * np.exp(0.0009), 1e-3 + 0.9e-6), std=sure))
    assert not _is_final(before, solution(parameters(0.002, 1e-3 + 1.1e-6), std=sure))
    assert not _is_final(before, solution(parameters(0.002, 1e-3 - 1.1e-6), std=sure))
    assert not _is_final(before, solution(parameters(0.002 * np.exp(0.0011), 1e-3), std=sure))


@pytest.mark.parametrize(("longest_s", "tried"), [
    (0.0099, [2, 4, 8, 16]), (0.0101, [4, 8, 16]), (0.0199, [4, 8, 16]), (0.0201, [8, 16]), (0.0401, [16]), (9.0, [16])
])  # fmt: skip
def test_shorter_steps_are_tried_until_none_is_left(
    longest_s: float, tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the longest interval, which is here the last; the error of the shortest steps is passed on."""
    calls, steps = list[int](), list[Array]()

    def simulate(system: Any, start: Array, controls: Array, values: Any, dt_s: Array, **options: Any) -> Array:
        if options.get("integrator") == "implicit_euler":
            assert controls.shape == (1, 4, 2)
            return np.asarray(start[:, None] + np.arange(5.0)[None, :, None])
        assert controls.shape == (1, 2, 2)
        np.testing.assert_array_equal(start, [[4.5]])
        calls.append(options["substeps"])
        steps.append(dt_s)
        raise SimulationError(f"torn by {options['substeps']}", "shorter steps")

    monkeypatch.setattr(full_model, "simulate", simulate)
    full = SimpleNamespace(state=lambda places, rates: np.array([0.5]), control_names=("x", "y"))
    system = SimpleNamespace(full=full, full_parameters=lambda vector: "full", full_motion=lambda start: start)
    body: Any = SimpleNamespace(system=system)
    with pytest.raises(SimulationError, match="torn by 16"):
        full_states(body, np.zeros(2), parameters(), np.array([1.0, 1.004, 1.004 + longest_s]))
    assert calls == tried
    np.testing.assert_allclose(steps, [[0.0035, longest_s]] * len(tried))

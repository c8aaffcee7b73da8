"""A reduced fit that a full body corrects: rounds, when they end, and how the full body is rolled out."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.errors import SimulationError
from vid2phys.solvers import full_model
from vid2phys.solvers.configuration_shooting import ConfigurationSolution
from vid2phys.solvers.full_model import _change, _is_final, _without, corrected, full_states
from vid2phys.types import Array, Parameter, Parameters

UNUSED: Any = None


def parameters(stiffness: float = 2.0, offset: float = 0.5, mass: float = 3.0) -> Parameters:
    return Parameters((
        Parameter("stiffness", "N/m", stiffness, 1e-3, 1e3, "log", free=True),
        Parameter("mass", "kg", mass, 1e-3, 1e3, "log"),
        Parameter("offset", "m", offset, -10.0, 10.0, "identity", free=True),
    ))  # fmt: skip


def solution(values: Parameters, states: float = 0.0, std: tuple[float, float] = (0.1, 0.2)) -> ConfigurationSolution:
    return ConfigurationSolution(
        np.full((3, 2), states), np.array([states, 0.0]), np.zeros((2, 0)), values, np.diag(np.square(std)),
        np.zeros((0, 2)), None, 1, True, 0.0, 1.0,
    )  # fmt: skip


@pytest.mark.parametrize(("stiffness", "offset", "final"), [
    (2.0 * np.exp(0.009), 0.5, True),  # a tenth of the standard deviation
    (2.0 * np.exp(-0.011), 0.5, False),
    (2.0, 0.519, True),
    (2.0, 0.521, False),
])  # fmt: skip
def test_a_fit_is_final_where_parameters_move_less_than_they_are_uncertain(
    stiffness: float, offset: float, final: bool
) -> None:
    before = solution(parameters())
    assert _is_final(before, solution(parameters(stiffness, offset))) is final
    sure = (0.0, 0.0)  # then by a thousandth
    assert _is_final(before, solution(parameters(2.0 * np.exp(0.0009), 0.5 + 0.0004), std=sure))
    assert not _is_final(before, solution(parameters(2.0 * np.exp(0.0011), 0.5), std=sure))
    assert not _is_final(before, solution(parameters(2.0, 0.5 + 0.0006), std=sure))


def test_the_change_is_a_share_of_the_first_value() -> None:
    found = _change(parameters(2.0, 0.0), parameters(3.0, 4.0, 7.0))
    assert found == {"stiffness": pytest.approx(0.5)}, "of what is fitted and was not zero"
    assert _change(parameters(2.0, 0.5), parameters(2.0, 0.4)) == pytest.approx({"stiffness": 0.0, "offset": -0.2})


@dataclass(frozen=True)
class Measured:
    configuration: Array
    measured: Array


@dataclass(frozen=True)
class Seen:
    configuration: Any


@dataclass(frozen=True)
class Fitted:
    observation: Any


def test_a_defect_is_taken_from_what_was_measured() -> None:
    problem: Any = Fitted(Seen(Measured(np.arange(6.0).reshape(3, 2), np.array([True, False, True]))))
    defect = np.array([[0.1, 0.2, 9.0, 9.0], [0.3, 0.4, 9.0, 9.0], [0.5, 0.6, 9.0, 9.0]])
    found: Any = _without(problem, defect)
    np.testing.assert_allclose(found.observation.configuration.configuration, [[-0.1, 0.8], [2.0, 3.0], [3.5, 4.4]])
    np.testing.assert_array_equal(problem.observation.configuration.configuration, np.arange(6.0).reshape(3, 2))


def rounds(patch: pytest.MonkeyPatch, steps: list[float], fails_at: int = 99) -> tuple[Any, list[Any]]:
    """Correct two clips; steps: by how much the logarithm of the stiffness moves in each round."""
    log, values = list[Any](), [parameters()]

    def defect(problem: Any, body: Any, one: ConfigurationSolution) -> Array:
        number = sum(each == "solved" for each in log)
        if number == fails_at:
            raise SimulationError("it fell apart", "shorter steps", "try a coarser mesh")
        return np.full((3, 2), 0.1 * (number + 1))

    def solve(problems: Any, body: Any, starts: list[Array], shares: Any) -> list[ConfigurationSolution]:
        assert problems == [("one", 0.1 * (sum(each == "solved" for each in log) + 1))] * 2
        np.testing.assert_array_equal(starts[0], [sum(steps[: sum(each == "solved" for each in log)]), 0.0])
        step = steps[sum(each == "solved" for each in log)]
        log.append("solved")
        values.append(parameters(values[-1]["stiffness"].value * np.exp(step)))
        at = sum(steps[: len(values) - 1])
        return [solution(values[-1], at), solution(values[-1], at)]

    @dataclass(frozen=True)
    class Problem:
        name: str
        parameters: Any = None

    patch.setattr(full_model, "_defect", defect)
    patch.setattr(full_model, "solve_clips", solve)
    patch.setattr(full_model, "_without", lambda problem, each: (problem.name, pytest.approx(each[0, 0])))
    patch.setattr(
        full_model, "replace", lambda each, **new: each if isinstance(each, tuple) else _replaced(each, **new)
    )
    problems: Any = [Problem("one"), Problem("one")]
    first = solution(parameters())
    found = corrected(problems, UNUSED, [first, first], log.append)
    return found, log


def _replaced(one: ConfigurationSolution, states: Array) -> ConfigurationSolution:
    return solution(one.parameters, float(states[0, 0]))


def test_rounds_go_on_until_parameters_hardly_move(monkeypatch: pytest.MonkeyPatch) -> None:
    found, log = rounds(monkeypatch, [0.5, 0.1, 0.005])
    assert log == [1, "solved", 2, "solved", 3, "solved"]
    assert found.moved == pytest.approx({"stiffness": np.exp(0.605) - 1.0, "offset": 0.0})
    assert [one.states[0, 0] for one in found.solutions] == pytest.approx([0.605 + 0.3] * 2), "those of the full body"
    assert found.notes == ()
    _, log = rounds(monkeypatch, [0.5, -0.5, 0.5, -0.5, 0.5])
    assert log[-2:] == [4, "solved"], "four at most"


def test_a_full_body_that_falls_apart_leaves_the_fit_before(monkeypatch: pytest.MonkeyPatch) -> None:
    found, log = rounds(monkeypatch, [0.5, 0.1, 0.005], fails_at=1)
    assert log == [1, "solved", 2]
    assert [one.states[0, 0] for one in found.solutions] == pytest.approx([0.5 + 0.1] * 2)
    assert found.moved["stiffness"] == pytest.approx(np.exp(0.5) - 1.0)
    (note,) = found.notes
    assert "could not be simulated" in note
    at_once, log = rounds(monkeypatch, [0.5], fails_at=0)
    assert [one.states[0, 0] for one in at_once.solutions] == [0.0, 0.0]
    assert at_once.moved == {"stiffness": 0.0, "offset": 0.0}
    assert log == [1]


@pytest.mark.parametrize(("frame_s", "fails_below", "tried"), [
    (0.002, 0, [2]),
    (0.018, 0, [4]),  # at least one in 5 ms
    (0.018, 8, [4, 8]),
    (0.2, 0, [16]),
])  # fmt: skip
def test_the_full_body_is_rolled_out_in_steps_as_short_as_it_needs(
    frame_s: float, fails_below: int, tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state is the time: each step adds its length."""
    calls = list[int]()

    def simulate(system: Any, start: Array, controls: Array, values: Any, steps: Array, **options: Any) -> Array:
        assert values == "full values"
        assert controls.shape == (1, len(steps), 3)
        if options.get("integrator") == "implicit_euler":
            np.testing.assert_allclose(steps, frame_s / 32.0)
            assert len(steps) == 4
        else:
            calls.append(options["substeps"])
            if calls[-1] < fails_below:
                raise SimulationError("it fell apart", "shorter steps", "try a coarser mesh")
        return np.asarray(start[:, None] + np.concatenate([[0.0], np.cumsum(steps)])[None, :, None])

    monkeypatch.setattr(full_model, "simulate", simulate)
    full = SimpleNamespace(state=lambda places, rates: np.array([places + rates]), control_names=("x", "y", "z"))
    system = SimpleNamespace(full=full, full_parameters=lambda vector: "full values", full_motion=lambda start: start)
    body: Any = SimpleNamespace(system=system)
    times = 3.0 + frame_s * np.array([0.0, 1.0, 2.0, 2.5])
    found = full_states(body, np.array([0.3, 0.4]), parameters(), times)
    np.testing.assert_allclose(found[:, 0], 0.7 + times - 3.0)
    assert calls == tried
    if frame_s == 0.2:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(full_model, "_SUBSTEPS", (2, 4))
            assert full_states(body, np.array([0.3, 0.4]), parameters(), times).shape == (4, 1)
            assert calls[-1] == 4

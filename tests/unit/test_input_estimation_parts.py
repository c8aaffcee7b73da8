"""Parts of input estimation: units by closed forms, and the rounds of a fit with their starts and priors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.test_reproduce_table3 import STEP_S, filmed, rising
from vid2phys.solvers import input_estimation, losses, rollout_fit
from vid2phys.solvers.input_estimation import InputProblem
from vid2phys.solvers.rollout_fit import Prior, RolloutFit
from vid2phys.types import Array

POINTS = 0.1 * np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0.5]])


def test_a_unit_of_each_action_moves_the_points_by_their_size() -> None:
    """A thrust of 2 N on 1 kg in one of six intervals; root mean square over the seven frames."""
    sought = rising()
    size = np.sqrt(np.mean(np.sum((POINTS - POINTS.mean(axis=0)) ** 2, axis=1)))
    frames = np.arange(7)
    for units in (1.0, 0.2):
        numbers = replace(sought.numbers, units=np.full(6, units))
        found = input_estimation.balanced_units(replace(sought, numbers=numbers), POINTS)
        for k in range(6):
            way = np.where(frames > k, 2.0 * STEP_S**2 * (0.5 + frames - k - 1), 0.0)
            assert found[k] == pytest.approx(size / np.sqrt(np.mean(way**2)), rel=0.12 if k == 5 else 0.05)
    assert found[5] > 10.0 * found[0], "one at the end moves the body least"


def test_actions_beyond_the_limits_are_clipped_by_the_papers_optimiser() -> None:
    sought = filmed(rising(), np.full(6, 5.5))
    near = replace(sought, numbers=replace(sought.numbers, upper=np.full(6, 4.95)))
    found = input_estimation.descend(near, losses.get("keypoint", near.problem), iterations=6)
    assert found == pytest.approx(4.95)


class Solved:
    """A stand-in of the solver: every round ends at its first start plus a tenth, and notes what it was given."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.given = list[tuple[Any, Array, Prior | None]]()
        patch.setattr(rollout_fit, "solve", self.solve)

    def solve(
        self, roll: Any, judge: Any, starts: Array, units: Array, *, prior: Prior | None, limits: tuple[Array, Array]
    ) -> RolloutFit:
        self.given.append((judge, starts.copy(), prior))
        assert (limits[0] <= limits[1]).all()
        values = starts[0] + 0.1
        information = np.eye(len(values)) if prior is None else 4.0 * np.eye(len(values)) + prior.root.T @ prior.root
        return RolloutFit(values, np.full((2, 13), float(len(self.given))), information, 0.0, 1, True)


def named(states: Array) -> Any:
    """The loss of a round, named by the states that it is linear about."""
    return f"about {states[0, 0]:.0f}"


@pytest.mark.parametrize(("again", "judges"), [(None, ["loss"] * 3), (named, ["loss", "about 1", "about 2"])])
def test_actions_are_fitted_again_with_the_prior_that_the_fit_makes_likely(
    again: Callable[[Array], Any] | None, judges: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sought, solved, loss = rising(), Solved(monkeypatch), "loss"
    starts = np.stack([sought.numbers.start, sought.numbers.start + 1.0])
    found = input_estimation.fit(sought, loss, starts, 1, again)  # type: ignore[arg-type]
    assert [judge for judge, _, _ in solved.given] == judges
    np.testing.assert_array_equal(solved.given[0][1], starts)
    np.testing.assert_allclose(solved.given[1][1], [starts[0] + 0.1])
    np.testing.assert_allclose(solved.given[2][1], [starts[0] + 0.2])
    np.testing.assert_allclose(found.values, starts[0] + 0.3)
    priors = [prior for _, _, prior in solved.given if prior is not None]
    stds = [np.sqrt(np.linalg.inv(prior.root.T @ prior.root)[0, 0]) for prior in priors]
    assert stds[0] == pytest.approx(3.0, rel=1e-3), "the widest at first"
    likely = input_estimation.most_likely_prior(
        sought, 1, priors[0], solved.solve(None, "", starts, starts[0], prior=priors[0], limits=(starts[0], starts[1]))
    )
    np.testing.assert_allclose(priors[1].root, likely.root)


def test_numbers_without_a_prior_are_fitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sought, solved = rising(), Solved(monkeypatch)
    input_estimation.fit(sought, "loss", sought.numbers.start[None], None, named)  # type: ignore[arg-type]
    assert [(judge, prior) for judge, _, prior in solved.given] == [("loss", None)]


def test_a_profile_is_known_by_the_variance_of_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    sought, solved = rising(), Solved(monkeypatch)
    starts = np.stack([sought.numbers.start, sought.numbers.start + 1.0])
    lower, upper = np.arange(6.0), np.arange(6.0) * 3.0 + 2.0
    sought = replace(sought, numbers=replace(sought.numbers, lower=lower, upper=upper))
    input_estimation.fit_profile(sought, "loss", starts, named)  # type: ignore[arg-type]
    assert [judge for judge, _, _ in solved.given] == ["loss", "about 1", "about 2"]
    np.testing.assert_array_equal(solved.given[0][1], starts)
    np.testing.assert_allclose(solved.given[1][1], [starts[0] + 0.1, *starts])
    np.testing.assert_allclose(solved.given[2][1], [starts[0] + 0.2])
    assert solved.given[0][2] is None
    for _, _, prior in solved.given[1:]:
        assert prior is not None
        np.testing.assert_array_equal(prior.mean, sought.numbers.middle)
        even = lower + (upper - lower) * (np.arange(1000)[:, None] + 0.5) / 1000.0
        np.testing.assert_allclose(np.diag(np.linalg.inv(prior.root.T @ prior.root)), even.var(axis=0), rtol=1e-5)


def test_actions_of_few_channels_leave_the_disturbances_at_zero() -> None:
    """A quadrotor that hovers stays where it is: 9.81 N on 1 kg, and nothing else."""
    sought: InputProblem = rising()
    hover = np.full((2, 6), 9.81 / 2.0)
    states = sought.roll(hover)
    np.testing.assert_allclose(states, np.broadcast_to(sought.state, states.shape), atol=1e-9)
    np.testing.assert_allclose(sought.states(torch.from_numpy(hover[0])).numpy(), states[0], atol=1e-12)

"""Levenberg and Marquardt's descent within limits, on residuals whose minima are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from vid2phys.errors import SimulationError
from vid2phys.solvers import rollout_fit
from vid2phys.types import Array


@dataclass(frozen=True)
class Judge(rollout_fit.MotionLoss):
    """Residuals of the unknowns, which are taken for the one state of a motion."""

    of: Callable[[Tensor], Tensor]

    def residuals(self, states: Tensor) -> Tensor:
        return self.of(states[0])

    def value(self, states: Tensor) -> Tensor:
        return 0.5 * self.residuals(states).square().sum()


def solved(
    of: Callable[[Tensor], Tensor], start: list[float], limits: tuple[list[float], list[float]], *others: list[float]
) -> rollout_fit.RolloutFit:
    low, high = (np.array(end) for end in limits)

    def roll(values: Array) -> Array:
        return np.clip(values, low, high)[:, None]  # as parameters are: beyond their ends nothing changes

    return rollout_fit.solve(roll, Judge(of), np.array([start, *others]), np.ones(len(start)), limits=(low, high))


def test_an_unknown_comes_back_from_its_end() -> None:
    found = solved(lambda x: 10.0 * torch.atan(x - 3.0), [10.0], ([0.0], [20.0]))  # its first step is far too long
    assert found.values == pytest.approx([3.0], abs=1e-4)


def test_what_is_pulled_beyond_its_end_stays_there_and_the_others_make_the_best_of_it() -> None:
    found = solved(
        lambda x: torch.stack([x[0] + x[1] - 1.0, 2.0 * (x[0] - x[1] + 5.0)]), [4.0, 0.0], ([0.0, -9.0], [9.0, 9.0])
    )
    assert found.values == pytest.approx([0.0, 4.2], abs=1e-6)
    assert found.converged
    np.testing.assert_allclose(found.information, [[5.0, -3.0], [-3.0, 5.0]], atol=1e-6)  # its slope is one-sided there


def test_starts_beyond_the_ends_are_put_there() -> None:
    found = solved(lambda x: x - 1.5, [7.0], ([1.0], [2.0]))
    assert found.values == pytest.approx([1.5])


def test_where_descents_disagree_more_starts_are_refined() -> None:
    def valleys(x: Tensor) -> Tensor:  # minima at about -1.9 and at 2
        return torch.stack([x[0] ** 2 - 4.0, 0.5 * (x[0] - 2.0)])

    ends = ([-9.0], [9.0])
    near = [[-1.2], [-1.3], [-1.4], [-1.5]]
    beyond = [6.0]  # costs most of all starts
    assert solved(valleys, near[0], ends).values[0] < -1.0
    assert solved(valleys, near[0], ends, [-1.25], beyond).values == pytest.approx([2.0], abs=1e-4)
    assert solved(valleys, near[0], ends, *near[1:], beyond).values[0] < -1.0  # three came to the same


def test_a_look_along_each_unknown_finds_the_valley_that_a_descent_misses() -> None:
    """Two unknowns, each with a minimum at 0.1 and a deeper one at 1; what exceeds 1.5 cannot be rolled out."""
    low, high = np.zeros(2), np.full(2, 2.0)

    def roll(values: Array) -> Array:
        if (values > 1.5).any():
            raise SimulationError("too stiff", "less")
        return values[:, None]

    judge = Judge(lambda x: (1.0 - x) * torch.clamp((x - 0.1).abs(), min=0.02) + 0.1 * (x < 0.5))
    start, steps = np.array([0.12, 0.08]), np.linspace(-1.0, 1.0, 21)[:, None]
    caught = rollout_fit.solve(roll, judge, start[None], np.ones(2), limits=(low, high))
    assert (caught.values < 0.3).all()
    begun = rollout_fit.scan_unknowns(roll, judge, start, steps, (low, high))
    found = rollout_fit.solve(roll, judge, begun[None], np.ones(2), limits=(low, high))
    assert found.values == pytest.approx([1.0, 1.0], abs=1e-4)

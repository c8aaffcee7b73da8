"""The least-squares core: minima that are known, bounds, damping, and each way to end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from vid2phys.solvers import least_squares
from vid2phys.solvers.least_squares import (
    Minimum,
    NormalEquations,
    Settings,
    Status,
    minimize,
    movable,
    student_cost,
    student_weights,
)
from vid2phys.types import Array


@dataclass
class Quadratic(least_squares.Model[Array]):
    point: Array
    cost: float
    normal: NormalEquations

    def step(self, damping: float) -> tuple[Array, float]:
        step = self.normal.step(damping)
        return self.point + step, self.normal.gain(step)


@dataclass
class Rosenbrock(least_squares.Problem[Array]):
    """Two residuals, 10 (y - x^2) and 1 - x, with their minimum at (1, 1). wall: the cost is infinite beyond it."""

    wall: float = np.inf
    lie: float = 1.0  # factor of the slopes
    costs: int = 0

    def residuals(self, at: Array) -> Array:
        return np.array([10.0 * (at[1] - at[0] ** 2), 1.0 - at[0]])

    def cost(self, point: Array) -> float:
        self.costs += 1
        return 0.5 * float((self.residuals(point) ** 2).sum()) if np.abs(point).max() < self.wall else np.inf

    def linearize(self, point: Array) -> Quadratic:
        slope = self.lie * np.array([[-20.0 * point[0], 10.0], [-1.0, 0.0]])
        off = self.residuals(point)
        return Quadratic(point, self.cost(point), NormalEquations(slope.T @ off, slope.T @ slope))


def found(problem: Rosenbrock, iterations: int = 100) -> Minimum[Array]:
    return minimize(problem, np.array([-1.2, 1.0]), Settings(iterations))


def test_a_curved_valley_is_followed_to_its_end() -> None:
    end = found(Rosenbrock())
    assert end.point == pytest.approx([1.0, 1.0], abs=1e-3)
    assert end.status is Status.CONVERGED
    assert end.converged


def test_steps_to_what_cannot_be_computed_are_made_shorter() -> None:
    assert found(Rosenbrock(wall=1.5)).point == pytest.approx([1.0, 1.0], abs=1e-3)


def test_each_end_has_its_status() -> None:
    assert found(Rosenbrock(), 2).status is Status.ITERATIONS
    stopped = minimize(Rosenbrock(), np.array([-1.2, 1.0]), stop=lambda: True)
    assert stopped.status is Status.STOPPED
    assert not stopped.converged
    uphill = found(Rosenbrock(lie=-1.0))  # derivatives of the wrong sign: every step raises the cost
    assert uphill.status is Status.STALLED
    assert uphill.point == pytest.approx([-1.2, 1.0])
    assert found(Rosenbrock(wall=1.0)).status is Status.NOT_FINITE


def test_a_failed_step_that_promised_little_ends_the_descent() -> None:
    problem = Rosenbrock(lie=-1.0)
    end = minimize(problem, np.array([1.0 + 1e-4, 1.0]), Settings(tolerance=1e-3))
    assert end.status is Status.CONVERGED
    assert problem.costs == 2


def test_an_unknown_that_nothing_depends_on_stays() -> None:
    normal = NormalEquations(np.array([2.0, 0.0]), np.diag([4.0, 0.0]))
    assert normal.step(1e-9) == pytest.approx([-0.5, 0.0])
    assert normal.gain(np.array([-0.5, 0.0])) == pytest.approx(0.5)
    assert normal.step(1.0, by_information=False) == pytest.approx([-0.4, 0.0])


def test_unknowns_that_are_pushed_against_a_bound_do_not_move() -> None:
    values, lower, upper = np.array([0.0, 0.0, 1.0, 1.0, 0.5]), np.zeros(5), np.ones(5)
    moves = movable(values, np.array([1.0, -1.0, 1.0, -1.0, 1.0]), lower, upper)
    assert moves.tolist() == [False, True, True, False, True]


def test_the_weights_of_students_t_are_the_slope_of_its_cost() -> None:
    mean, count, step = np.array([0.1, 1.0, 30.0]), np.array([2.0, 8.0, 4.0]), 1e-6
    for k in range(3):
        move = step * np.eye(3)[k]
        slope = (student_cost(mean + move, count) - student_cost(mean - move, count)) / (2.0 * step)
        assert slope == pytest.approx(0.5 * count[k] * student_weights(mean)[k], rel=1e-5)


@pytest.mark.parametrize(
    ("ends", "refined", "lowest"),
    [
        ([2.0, 1.0, 1.02, 0.5], 3, 1.0),  # two of three agree
        ([1.0, 1.02, 0.5, 0.9, 0.52, 0.1], 5, 0.5),  # after two, a third is tried; later the lowest counts
        ([2.0, 0.01, 1.0], 2, 0.01),  # as good as no cost at all
        ([float(20 - n) for n in range(14)], 12, 9.0),  # twelve at most
    ],
)
def test_starts_are_refined_until_two_agree(
    monkeypatch: pytest.MonkeyPatch, ends: list[float], refined: int, lowest: float
) -> None:
    tried: list[int] = []

    def ended(problem: object, start: int, settings: Settings) -> Minimum[int]:
        tried.append(start)
        return Minimum(start, ends[start], 1, Status.CONVERGED)

    monkeypatch.setattr(least_squares, "minimize", ended)
    order = np.random.default_rng(0).permutation(len(ends) + 1)  # starts in this order; the last cannot be computed
    costs = np.append(np.arange(len(ends)), np.inf)[order]
    starts = [int(cost) if np.isfinite(cost) else -1 for cost in costs]
    assert least_squares.multistart(Rosenbrock(), starts, costs).cost == lowest  # type: ignore[type-var]
    assert tried == list(range(refined))

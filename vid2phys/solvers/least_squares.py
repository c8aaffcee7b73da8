"""One damped Gauss-Newton descent for every least-squares fit of the solvers.

Purpose: solvers differ in their unknowns, residuals and linear algebra. The descent, its damping, its end and its
status are the same for all of them, and are here.

Method: Levenberg-Marquardt (Levenberg 1944; Marquardt, "An algorithm for least-squares estimation of nonlinear
parameters", 1963). A `Problem` states the cost of a point and its linear model there; the model solves for the damped
step with the structure that it has (dense, or blocks with an arrow) and moves the point within its bounds. The damping
grows tenfold with each step that raises the cost and falls to a tenth with each that does not. Robust errors follow
Student's t by iteratively reweighted least squares (Lange, Little and Taylor, "Robust statistical modeling using the t
distribution", 1989).

Limits: the descent finds the nearest minimum. `multistart` compares several.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from vid2phys.types import Array

STUDENT_DOF = 5.0  # degrees of freedom of Student's t, the distribution of all image and sensor errors
_FACTOR = 10.0  # by which the damping changes
_LEAST_DAMPING, _MOST_DAMPING = 1e-9, 1e8
_PREDICTED = 0.1  # share of the least gain: a step that promises less and fails ends the descent
_LEAST_SCALE = 1e-12  # of an unknown: one that no residual depends on stays where it is

_REFINED = (3, 12)  # least and most starts that are refined
_SAME = 0.05  # two descents that end in one minimum differ in cost by less: a third of a standard deviation

Point = TypeVar("Point")


class Status(Enum):
    """Why a descent ended; the value states the reason and what to do about it."""

    CONVERGED = "a further step would gain next to nothing"
    STALLED = "no step, however short, lowers the cost"
    ITERATIONS = "the iterations ran out: allow more, or begin nearer"
    STOPPED = "the time ran out: allow more, or begin nearer"
    NOT_FINITE = "the linear model cannot be computed at the end: begin nearer"


@dataclass(frozen=True)
class Minimum(Generic[Point]):
    """The end of a descent: the point, its cost, the iterations used and the status.

    promised: the gain that the last linear model promised for its first step. Far above the least gain, it says that
    the descent is stuck, not at a minimum.
    """

    point: Point
    cost: float
    iterations: int
    status: Status
    promised: float = 0.0

    @property
    def converged(self) -> bool:
        """Return whether the descent ended by itself, so that more iterations would change nothing."""
        return self.status in (Status.CONVERGED, Status.STALLED)


@dataclass(frozen=True)
class Settings:
    """How long a descent goes on.

    tolerance: least gain of a step, as a share of the cost, which counts as at least and at most `cost_range`.
    damping: of the first step. raised: least damping after a step that raised the cost.
    """

    iterations: int = 30
    tolerance: float = 1e-5
    cost_range: tuple[float, float] = (1.0, np.inf)
    damping: float = 1e-3
    raised: float = 0.0

    def least_gain(self, cost: float) -> float:
        """Return the gain of a step below which a descent ends at this cost."""
        return self.tolerance * float(np.clip(cost, *self.cost_range))


class Model(ABC, Generic[Point]):
    """A problem made linear about a point. cost: of that point, not finite where the model cannot be computed."""

    cost: float

    @abstractmethod
    def step(self, damping: float) -> tuple[Point, float]:
        """Return the point after a damped step, within its bounds, and the gain that the linear model promises."""


class Problem(ABC, Generic[Point]):
    """What a descent lowers: half the sum of squared residuals, robust or not, over points of any type."""

    @abstractmethod
    def cost(self, point: Point) -> float:
        """Return the cost of a point; infinite where it cannot be computed."""

    @abstractmethod
    def linearize(self, point: Point) -> Model[Point]:
        """Return the linear model about a point. Raises SimulationError where it cannot be computed."""


def minimize(
    problem: Problem[Point],
    start: Point,
    settings: Settings = Settings(),
    *,
    stop: Callable[[], bool] = lambda: False,
) -> Minimum[Point]:
    """Descend from a point to the nearest minimum of a problem.

    stop: asked before each linear model and after each failed step, whether to end with what has been found. Raises
    what `Problem.linearize` raises.
    """
    point, cost, damping = start, np.inf, settings.damping
    for iteration in range(settings.iterations):
        if stop():
            return Minimum(point, cost, iteration, Status.STOPPED)
        model = problem.linearize(point)
        if not np.isfinite(model.cost):
            return Minimum(point, cost, iteration, Status.NOT_FINITE)
        cost, least, status = model.cost, settings.least_gain(model.cost), Status.CONVERGED
        promised = -np.inf
        while True:
            candidate, predicted = model.step(damping)
            promised = max(promised, predicted)
            new_cost = problem.cost(candidate)
            if new_cost <= cost:
                break
            damping = max(_FACTOR * damping, settings.raised)
            if predicted < _PREDICTED * least:
                return Minimum(point, cost, iteration + 1, status, promised)
            status = Status.STALLED
            if damping > _MOST_DAMPING:
                return Minimum(point, cost, iteration + 1, status, promised)
            if stop():
                return Minimum(point, cost, iteration + 1, Status.STOPPED)
        gain, point, cost = cost - new_cost, candidate, new_cost
        damping = max(damping / _FACTOR, _LEAST_DAMPING)
        if gain <= settings.least_gain(cost):
            return Minimum(point, cost, iteration + 1, Status.CONVERGED)
    return Minimum(point, cost, settings.iterations, Status.ITERATIONS)


def multistart(
    problem: Problem[Point],
    starts: Sequence[Point],
    costs: Array,
    settings: Settings = Settings(),
) -> Minimum[Point]:
    """Return the lowest minimum of descents from the best of several starts.

    costs: [B] of the starts, at least one of them finite. Starts are refined in the order of their costs, until two
    descents of three or more have come to the lowest minimum, or one to a cost of nothing.
    """
    finite = int(np.isfinite(costs).sum())
    ends: list[Minimum[Point]] = []
    for i in np.argsort(costs, kind="stable")[: min(finite, _REFINED[1])]:
        ends.append(minimize(problem, starts[i], settings))
        least = min(end.cost for end in ends)
        again = len(ends) >= _REFINED[0] and sum(end.cost - least <= _SAME for end in ends) > 1
        if again or least <= _SAME:
            break
    return min(ends, key=lambda end: end.cost)


@dataclass(frozen=True)
class NormalEquations:
    """Dense normal equations of U unknowns: gradient [U] and information [U, U] of the cost."""

    gradient: Array
    information: Array

    def step(self, damping: float, free: NDArray[np.bool_] | None = None, *, by_information: bool = True) -> Array:
        """Return the damped Gauss-Newton step [U].

        free: [U], the unknowns that move (None: all). by_information: the damping multiplies the information of each
        unknown alone (Marquardt), else it is added to it (Levenberg), for unknowns in units of their own.
        """
        free = np.ones(len(self.gradient), dtype=bool) if free is None else free
        matrix, gradient = self.information[np.ix_(free, free)], self.gradient[free]
        scale = np.ones(len(gradient))
        if by_information:
            scale = np.sqrt(np.maximum(np.diagonal(matrix), _LEAST_SCALE))
        damped = matrix / np.outer(scale, scale) + damping * np.eye(len(scale))
        step = np.zeros(len(self.gradient))
        step[free] = -_solved(damped, gradient / scale) / scale
        return step

    def gain(self, step: Array) -> float:
        """Return by how much a step [U] lowers the cost of the linear model."""
        return -float(self.gradient @ step + 0.5 * step @ self.information @ step)


def _solved(matrix: Array, values: Array) -> Array:
    """Return the solution of a symmetric system, the shortest one where the matrix is not positive definite."""
    try:
        return np.asarray(cho_solve(cho_factor(matrix, check_finite=False), values, check_finite=False))
    except LinAlgError:
        return np.asarray(np.linalg.lstsq(matrix, values, rcond=None)[0])


@dataclass(frozen=True)
class DenseModel(Model[Point]):
    """A problem made linear in unknowns of one block, all of which move freely.

    cost: of the point. normal: the equations about the point. moved: returns the point after a step [U].
    """

    cost: float
    normal: NormalEquations
    moved: Callable[[Array], Point]

    def step(self, damping: float) -> tuple[Point, float]:
        """See `Model.step`."""
        step = self.normal.step(damping)
        return self.moved(step), self.normal.gain(step)


def movable(values: Array, gradient: Array, lower: Array, upper: Array) -> NDArray[np.bool_]:
    """Return which unknowns move: all but those at a bound that the descent pushes against.

    All [U]. Source: Bertsekas, "Projected Newton methods for optimization problems with simple constraints", 1982.
    """
    return ~((values <= lower) & (gradient > 0.0) | (values >= upper) & (gradient < 0.0))


def student_weights(mean_square: Array) -> Array:
    """Return the weights of groups of residuals of unit variance by their mean squares, all [...]."""
    return np.asarray((STUDENT_DOF + 1.0) / (STUDENT_DOF + mean_square), dtype=float)


def student_cost(mean_square: Array, count: Array) -> float:
    """Return the cost of groups of residuals, from their mean squares and their numbers of residuals, both [...]."""
    return 0.5 * (STUDENT_DOF + 1.0) * float((count * np.log1p(mean_square / STUDENT_DOF)).sum())

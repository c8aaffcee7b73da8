"""Least squares on a rollout from a known first state: by any loss with residuals, from several starts.

Method: few unknowns decide a whole motion, so that all derivatives are differences whose rollouts run in one batch. The
starts are rolled out first, in one batch too. The best few are refined (`least_squares`), more where they disagree: far
from the truth a swinging or a bouncing body is out of step, and costs have many minima.

Limits: two rollouts for each unknown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vid2phys.engine.rollout import simulate
from vid2phys.errors import SimulationError, UsageError
from vid2phys.solvers import least_squares
from vid2phys.solvers.least_squares import NormalEquations, Settings, movable, multistart
from vid2phys.solvers.problem import Knots, Problem, rollout_controls, stable_substeps
from vid2phys.solvers.shooting import FINE_STEP_S
from vid2phys.types import Array

_STEP = 1e-3  # of differences, in units of the unknowns
_SETTINGS = Settings(tolerance=1e-5, cost_range=(1.0, 1e3))  # the noise of many pixels is no reason to end
_SCANS = 2

Motions = Callable[[Array], Array]
"""Unknowns [B, U] to states at the frames [B, F, N]; raises SimulationError where it cannot."""


class MotionLoss(ABC):
    """The distance of states [F, N] from the measurements: any `losses.Loss` with residuals."""

    @abstractmethod
    def value(self, states: Tensor) -> Tensor:
        """Return what is minimised, about half the sum of squares of the residuals."""

    @abstractmethod
    def residuals(self, states: Tensor) -> Tensor:
        """Return residuals of unit variance, [R]."""

    def values(self, motions: Tensor) -> Tensor:
        """Return the values [B] of several motions [B, F, N]."""
        return torch.stack([self.value(states) for states in motions])

    def batched_residuals(self, motions: Tensor) -> Tensor:
        """Return the residuals [B, R] of several motions [B, F, N]."""
        first = self.residuals(motions[0])
        found = first.new_empty((len(motions), len(first)))  # allocated once, because of many unknowns and pixels
        found[0] = first
        for b in range(1, len(motions)):
            found[b] = self.residuals(motions[b])
        return found


class BatchedMotionLoss(MotionLoss):
    """A loss of several motions at once, half the sum of squares of residuals."""

    @abstractmethod
    def batched_residuals(self, motions: Tensor) -> Tensor:
        """See `MotionLoss.batched_residuals`."""

    def residuals(self, states: Tensor) -> Tensor:
        """See `MotionLoss.residuals`."""
        return self.batched_residuals(states[None])[0]

    def values(self, motions: Tensor) -> Tensor:
        """See `MotionLoss.values`."""
        return 0.5 * self.batched_residuals(motions).square().sum(-1)

    def value(self, states: Tensor) -> Tensor:
        """See `MotionLoss.value`."""
        return self.values(states[None])[0]


@dataclass(frozen=True)
class RolloutFit:
    """The optimum. values: [U]. states: [F, N]. information: [U, U], of residuals of unit variance, with the prior.
    loss: half their sum of squares."""

    values: Array
    states: Array
    information: Array
    loss: float
    iterations: int
    converged: bool


@dataclass(frozen=True)
class Prior:
    """A Gaussian prior of unknowns [U]: their mean [U], and a root [R, U] of their precision."""

    mean: Array
    root: Array

    @staticmethod
    def none(size: int) -> Prior:
        """Return the prior of so many unknowns of which nothing is known."""
        return Prior(np.zeros(size), np.zeros((0, size)))

    def residuals(self, values: Array) -> Array:
        """Return residuals of unit variance, [R]."""
        return np.asarray(self.root @ (values - self.mean))


def motions(problem: Problem, state: Array) -> Motions:
    """Return rollouts of a problem from its first state [N], by the free parameters in solver coordinates, within
    bounds."""
    knots = Knots.of(problem.observation.times_s, min(problem.max_step_s, FINE_STEP_S))
    controls, substeps = rollout_controls(problem, knots), stable_substeps(problem, knots)

    def roll(values: Array) -> Array:
        rows = np.stack([problem.parameters.fitted_at(row).vector for row in values])
        starts, repeated = (np.broadcast_to(a, (len(rows), *a.shape)) for a in (state, controls))
        states = simulate(problem.system, starts, repeated, rows, knots.step_s, substeps=substeps)
        return states[:, knots.frame_knot]

    return roll


def solve(
    roll: Motions,
    loss: MotionLoss,
    starts: Array,
    units: Array,
    *,
    prior: Prior | None = None,
    limits: tuple[Array, Array] | None = None,
    iterations: int = 30,
) -> RolloutFit:
    """Return the best minimum from starts [B, U].

    units: [U], changes of the unknowns that make about equal differences. limits: lower and upper [U] bounds. Raises
    SimulationError when no start can be rolled out.
    """
    size = len(units)
    lower, upper = limits if limits is not None else (np.full(size, -np.inf), np.full(size, np.inf))
    problem = _Rollouts(roll, loss, units, prior or Prior.none(size), lower, upper)
    starts = np.clip(np.asarray(starts, dtype=float), lower, upper)
    costs = problem.costs(starts)
    _require_finite(costs)
    best = multistart(problem, list(starts), costs, replace(_SETTINGS, iterations=iterations))
    model = problem.linearize(best.point)
    information = model.normal.information / np.outer(units, units)
    return RolloutFit(best.point, model.states, information, best.cost, best.iterations, best.converged)


def best_start(roll: Motions, loss: MotionLoss, starts: Array, limits: tuple[Array, Array]) -> Array:
    """Return the start [U] of starts [B, U], within limits, at which the loss is least.

    Raises SimulationError when no start can be rolled out.
    """
    size = starts.shape[-1]
    problem = _Rollouts(roll, loss, np.ones(size), Prior.none(size), *limits)
    within = np.clip(np.asarray(starts, dtype=float), *limits)
    costs = problem.costs(within)
    _require_finite(costs)
    return np.asarray(within[costs.argmin()])


def _require_finite(costs: Array) -> None:
    """Raise SimulationError when none of the costs [B] of starts is finite."""
    if not np.isfinite(costs).any():
        raise SimulationError(f"none of {len(costs)} starts could be simulated", "a motion that stays finite")


def scan_unknowns(roll: Motions, loss: MotionLoss, start: Array, steps: Array, limits: tuple[Array, Array]) -> Array:
    """Return a start [U] that is better than the given one: the best of each unknown in turn, twice.

    steps: [N, U], tried changes of each unknown. limits: lower and upper [U] bounds.
    """
    problem = _Rollouts(roll, loss, np.ones(len(start)), Prior.none(len(start)), *limits)
    best = np.array(start, dtype=float)
    seen = np.clip(best + steps, *limits)
    for unknown in [*range(len(best))] * _SCANS:
        rows = np.repeat(best[None], 1 + len(seen), axis=0)
        rows[1:, unknown] = seen[:, unknown]
        best = rows[np.argmin(problem.costs(rows))]
    return best


@dataclass(frozen=True)
class _Rollouts(least_squares.Problem[Array]):
    """The loss of rollouts and the prior, of unknowns [U] within lower, upper: [U]."""

    roll: Motions
    loss: MotionLoss
    units: Array
    prior: Prior
    lower: Array
    upper: Array

    def cost(self, point: Array) -> float:
        """See `least_squares.Problem.cost`."""
        return float(self.costs(point[None])[0])

    def costs(self, values: Array) -> Array:
        """Return the costs [B] of unknowns [B, U], infinite where the engine cannot compute the motion."""
        try:
            rolled = self.roll(values)
        except (SimulationError, UsageError):
            if len(values) == 1:
                return np.array([np.inf])
            return np.concatenate([self.costs(row[None]) for row in values])
        return self._costs_of(rolled, values)

    def _costs_of(self, states: Array, values: Array) -> Array:
        with torch.no_grad():
            costs = self.loss.values(torch.from_numpy(np.ascontiguousarray(states))).double().numpy()
        before = np.array([0.5 * float((self.prior.residuals(row) ** 2).sum()) for row in values])
        return np.where(np.isfinite(costs), costs + before, np.inf)

    def linearize(self, point: Array) -> _Linear:
        """See `least_squares.Problem.linearize`: central differences, all rollouts in one batch."""
        steps = _STEP * np.diag(self.units)
        above, below = np.minimum(point + steps, self.upper), np.maximum(point - steps, self.lower)
        widths = np.maximum(np.diagonal(above - below) / self.units, 1e-300)  # of one that cannot change
        states = self.roll(np.concatenate([point[None], above, below]))
        with torch.no_grad():
            off = self.loss.batched_residuals(torch.from_numpy(np.ascontiguousarray(states))).numpy()
        size = len(point)
        slopes = (off[1 : 1 + size] - off[1 + size :]) / widths[:, None]
        residuals = np.concatenate([off[0], self.prior.residuals(point)])
        jacobian = np.vstack([slopes.T, self.prior.root * self.units])
        normal = NormalEquations(jacobian.T @ residuals, jacobian.T @ jacobian)
        return _Linear(self, point, states[0], normal, float(self._costs_of(states[:1], point[None])[0]))


@dataclass
class _Linear(least_squares.Model[Array]):
    """Rollouts made linear about unknowns [U] in their units. states: [F, N]."""

    problem: _Rollouts
    point: Array
    states: Array
    normal: NormalEquations
    cost: float

    def step(self, damping: float) -> tuple[Array, float]:
        """See `least_squares.Model.step`; an unknown that is pulled beyond its end stays there."""
        problem, point = self.problem, self.point
        free = movable(point, self.normal.gradient, problem.lower, problem.upper)
        candidate = np.clip(point + problem.units * self.normal.step(damping, free), problem.lower, problem.upper)
        return candidate, self.normal.gain((candidate - point) / problem.units)

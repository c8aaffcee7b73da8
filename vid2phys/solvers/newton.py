"""Levenberg and Marquardt's descent when the first state is known: by any loss with residuals, from several starts.

Few unknowns decide a whole motion, so all derivatives are differences whose rollouts run in one batch. The starts are
rolled out first, in one batch too, and the best few are refined, more where they disagree: far from the truth a
swinging or a bouncing body is out of step, and costs have many minima.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vid2phys.engine.rollout import simulate
from vid2phys.errors import SimulationError, UsageError
from vid2phys.solvers.problem import Knots, Problem, held_controls, stable_substeps
from vid2phys.solvers.shooting import FINE_STEP_S
from vid2phys.types import Array

_STEP = 1e-3  # of differences, in units of the unknowns
_GAIN = 1e-5  # share of the cost below which a step ends the descent
_COUNTED = (1.0, 1e3)  # least and most cost that a gain is held against: the noise of many pixels is no reason to end
_MOST_DAMPING = 1e8

_REFINED = (3, 12)  # least and most of several starts; between them until the best optimum was come to twice
_LOOKS = 2
_SAME = 0.05  # by which the costs of two descents to one optimum differ at most: a third of a deviation

Motions = Callable[[Array], Array]
"""Unknowns [B, U] to states at the frames [B, F, N]; raises SimulationError where it cannot."""


class Judge(ABC):
    """How far states [F, N] are from what was seen: any `losses.Loss` with residuals."""

    @abstractmethod
    def value(self, states: Tensor) -> Tensor:
        """What is minimised, about half the sum of squares of the residuals."""

    @abstractmethod
    def residuals(self, states: Tensor) -> Tensor:
        """[R], of unit variance."""

    def values(self, motions: Tensor) -> Tensor:
        """Of several motions [B, F, N], [B]."""
        return torch.stack([self.value(states) for states in motions])

    def residuals_of_all(self, motions: Tensor) -> Tensor:
        """Of several motions [B, F, N], [B, R]."""
        first = self.residuals(motions[0])
        found = first.new_empty((len(motions), len(first)))  # once in memory: many unknowns, many pixels
        found[0] = first
        for b in range(1, len(motions)):
            found[b] = self.residuals(motions[b])
        return found


class JudgeOfAll(Judge):
    """What judges several motions at once, by half the sum of squares of residuals."""

    @abstractmethod
    def residuals_of_all(self, motions: Tensor) -> Tensor:
        """See `Judge.residuals_of_all`."""

    def residuals(self, states: Tensor) -> Tensor:
        """See `Judge.residuals`."""
        return self.residuals_of_all(states[None])[0]

    def values(self, motions: Tensor) -> Tensor:
        """See `Judge.values`."""
        return 0.5 * self.residuals_of_all(motions).square().sum(-1)

    def value(self, states: Tensor) -> Tensor:
        """See `Judge.value`."""
        return self.values(states[None])[0]


@dataclass(frozen=True)
class Found:
    """The optimum. values: [U]. states: [F, N]. information: [U, U], of residuals of unit variance, the prior's too.
    loss: half their sum of squares."""

    values: Array
    states: Array
    information: Array
    loss: float
    iterations: int
    converged: bool


@dataclass(frozen=True)
class Prior:
    """Unknowns [U] before anything is seen: their mean [U], and a root [R, U] of their precision."""

    mean: Array
    root: Array

    @staticmethod
    def none(size: int) -> Prior:
        """Nothing is known of so many unknowns."""
        return Prior(np.zeros(size), np.zeros((0, size)))

    def residuals(self, values: Array) -> Array:
        """Of unit variance, [R]."""
        return np.asarray(self.root @ (values - self.mean))


@dataclass(frozen=True)
class _Search:
    """What does not change in a descent. lower, upper: [U], where unknowns are put back."""

    roll: Motions
    loss: Judge
    units: Array
    prior: Prior
    lower: Array
    upper: Array


def motions(problem: Problem, state: Array) -> Motions:
    """Rollouts of a problem from its first state [N], by the free parameters in solver coordinates, within bounds."""
    knots = Knots.of(problem.observation.times_s, min(problem.max_step_s, FINE_STEP_S))
    controls, substeps = held_controls(problem, knots), stable_substeps(problem, knots)

    def roll(values: Array) -> Array:
        rows = np.stack([problem.parameters.fitted_at(row).vector for row in values])
        starts, held = (np.broadcast_to(a, (len(rows), *a.shape)) for a in (state, controls))
        states = simulate(problem.system, starts, held, rows, knots.step_s, substeps=substeps)
        return states[:, knots.frame_knot]

    return roll


def solve(
    roll: Motions,
    loss: Judge,
    starts: Array,
    units: Array,
    *,
    prior: Prior | None = None,
    limits: tuple[Array, Array] | None = None,
    iterations: int = 30,
) -> Found:
    """The best of starts [B, U], refined. units: [U], what an unknown is changed by to make about as much difference.

    limits: lower and upper [U] ends of the unknowns. Raises SimulationError when no start can be rolled out.
    """
    size = len(units)
    lower, upper = limits if limits is not None else (np.full(size, -np.inf), np.full(size, np.inf))
    search = _Search(roll, loss, units, prior or Prior.none(size), lower, upper)
    starts = np.clip(starts, lower, upper)
    costs = _costs(search, starts)
    finite = int(np.isfinite(costs).sum())
    if not finite:
        raise SimulationError(f"none of {len(starts)} starts could be simulated", "a motion that stays finite")
    ends: list[Found] = []
    for i in np.argsort(costs, kind="stable")[: min(finite, _REFINED[1])]:
        ends.append(_descend(search, starts[i], float(costs[i]), iterations))
        least = min(end.loss for end in ends)
        twice = len(ends) >= _REFINED[0] and sum(end.loss - least <= _SAME for end in ends) > 1
        if twice or least <= _SAME:
            break
    return min(ends, key=lambda end: end.loss)


def look(roll: Motions, loss: Judge, start: Array, steps: Array, limits: tuple[Array, Array]) -> Array:
    """A start [U] that is better than the given one [U]: unknown after unknown, the best of what is looked at, twice.

    steps: [N, U], what is looked at of each unknown, from where it is. limits: lower and upper [U] ends.
    """
    search = _Search(roll, loss, np.ones(len(start)), Prior.none(len(start)), *limits)
    best = np.array(start, dtype=float)
    seen = np.clip(best + steps, *limits)
    for unknown in [*range(len(best))] * _LOOKS:
        rows = np.repeat(best[None], 1 + len(seen), axis=0)
        rows[1:, unknown] = seen[:, unknown]
        best = rows[np.argmin(_costs(search, rows))]
    return best


def _descend(search: _Search, start: Array, cost: float, iterations: int) -> Found:
    values, units = np.array(start, dtype=float), search.units
    damping, converged, used = 1e-3, False, 0
    while used < iterations and not converged:
        used += 1
        residuals, jacobian, _ = _linearized(search, values)
        gradient, information = jacobian.T @ residuals, jacobian.T @ jacobian
        held = (values <= search.lower) & (gradient > 0.0) | (values >= search.upper) & (gradient < 0.0)
        free = ~held  # an unknown that is pulled beyond its end stays there
        while damping <= _MOST_DAMPING:
            scale = np.diag(np.maximum(np.diagonal(information), 1e-12))
            step = np.zeros_like(values)
            step[free] = np.linalg.solve((information + damping * scale)[np.ix_(free, free)], gradient[free])
            candidate = np.clip(values - units * step, search.lower, search.upper)
            new_cost = float(_costs(search, candidate[None])[0])
            if new_cost <= cost:
                break
            damping *= 10.0
        else:  # no step, however short, is better
            converged = True
            continue
        gain, values, cost, damping = cost - new_cost, candidate, new_cost, max(0.1 * damping, 1e-9)
        converged = gain <= _GAIN * float(np.clip(cost, *_COUNTED))
    _, jacobian, states = _linearized(search, values)
    information = (jacobian.T @ jacobian) / np.outer(units, units)
    return Found(values, states, information, cost, used, converged)


def _costs(search: _Search, values: Array) -> Array:
    """Costs [B] of unknowns [B, U], infinite where they are beyond what the engine can compute."""
    try:
        rolled = search.roll(values)
    except (SimulationError, UsageError):
        if len(values) == 1:
            return np.array([np.inf])
        return np.concatenate([_costs(search, row[None]) for row in values])
    with torch.no_grad():
        costs = search.loss.values(torch.from_numpy(np.ascontiguousarray(rolled))).double().numpy()
    before = np.array([0.5 * float((search.prior.residuals(row) ** 2).sum()) for row in values])
    return np.where(np.isfinite(costs), costs + before, np.inf)


def _linearized(search: _Search, values: Array) -> tuple[Array, Array, Array]:
    """Residuals [R], their derivatives by the unknowns in units [R, U], and the states [F, N]."""
    steps = _STEP * np.diag(search.units)
    above, below = np.minimum(values + steps, search.upper), np.maximum(values - steps, search.lower)
    widths = np.maximum(np.diagonal(above - below) / search.units, 1e-300)  # of one that cannot change
    states = search.roll(np.concatenate([values[None], above, below]))
    with torch.no_grad():
        off = search.loss.residuals_of_all(torch.from_numpy(np.ascontiguousarray(states))).numpy()
    size = len(values)
    slopes = (off[1 : 1 + size] - off[1 + size :]) / widths[:, None]
    residuals = np.concatenate([off[0], search.prior.residuals(values)])
    return residuals, np.vstack([slopes.T, search.prior.root * search.units]), states[0]

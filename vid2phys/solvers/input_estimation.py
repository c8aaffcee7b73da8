"""Actions as the unknowns: of a body whose parameters and first state are known, by any loss.

Numbers [U] stand for the actions: one for each action of each interval, or the few of a profile. The papers' optimiser
moves them along the gradient through the rollout (`descend`). Ours is least squares (`newton`): actions of intervals
get a Gauss-Markov prior of second order, whose level and bandwidth are those of the largest evidence (`fit`), since
actions that are fitted to noisy readings one by one are noise themselves; numbers of a profile one that is as wide as
their limits (`fit_profile`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import solve_triangular
from torch import Tensor

from vid2phys.engine.rollout import rollout, simulate
from vid2phys.errors import SimulationError
from vid2phys.solvers import gradient, newton
from vid2phys.solvers.losses import Loss
from vid2phys.solvers.problem import Knots, Problem, effective_actions, stable_substeps
from vid2phys.solvers.shooting import FINE_STEP_S
from vid2phys.types import Actions, Array

_LEVELS = np.geomspace(1e-3, 3.0, 14)  # of priors: deviations, in units of the unknowns
_BANDWIDTHS = np.geomspace(2.0, 100.0, 7)  # rad/s
_SMALL = 1e-8  # of the units: steps of differences
_ROUNDS = 2  # of further fits, each with the levels that the one before it makes likely


@dataclass(frozen=True)
class Numbers:
    """What stands for the actions.

    start: [U]. middle: [U], what priors are about: actions that hold the body at rest. units: [U], what a number is
    changed by to make about as much difference. lower, upper: [U], where numbers are put back. actions: [..., U] to
    actions [..., S, A] in SI, in PyTorch, differentiable.
    """

    start: Array
    middle: Array
    units: Array
    lower: Array
    upper: Array
    actions: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class InputProblem:
    """A motion by unknown actions, held over intervals of `step_s`. problem: its parameters are known, its own actions
    are not looked at. state: [N], the first one."""

    problem: Problem
    state: Array
    step_s: float
    numbers: Numbers

    def states(self, numbers: Tensor) -> Tensor:
        """At the frames, [U] -> [F, N]; differentiable. Raises as `simulate`."""
        problem, knots = self.problem, self._knots
        held = torch.from_numpy(self._held(self._steps(numbers)))
        known = torch.zeros((len(knots.step_s), len(problem.system.control_names)), dtype=torch.float64)
        actions = held @ self.numbers.actions(numbers)
        controls = torch.cat([actions, known[:, actions.shape[1] :]], dim=1)
        start, parameters = torch.from_numpy(self.state[None].copy()), torch.from_numpy(problem.parameters.vector)
        substeps = stable_substeps(problem, knots)
        states = rollout(problem.system, start, controls[None], parameters, knots.step_s, substeps=substeps)
        return states[0, torch.from_numpy(knots.frame_knot)]

    def roll(self, numbers: Array) -> Array:
        """At the frames, [B, U] -> [B, F, N] (a `newton.Motions`). Raises as `simulate`."""
        problem, knots = self.problem, self._knots
        within = np.clip(numbers, self.numbers.lower, self.numbers.upper)
        actions = self.numbers.actions(torch.from_numpy(within)).numpy()
        controls = np.zeros((len(numbers), len(knots.step_s), len(problem.system.control_names)))
        controls[..., : actions.shape[-1]] = self._held(actions.shape[-2]) @ actions
        starts = np.broadcast_to(self.state, (len(numbers), *self.state.shape))
        substeps = stable_substeps(problem, knots)
        states = simulate(problem.system, starts, controls, problem.parameters.vector, knots.step_s, substeps=substeps)
        return states[:, knots.frame_knot]

    @property
    def _knots(self) -> Knots:
        return Knots.of(self.problem.observation.times_s, min(self.problem.max_step_s, FINE_STEP_S))

    def _steps(self, numbers: Tensor) -> int:
        return int(self.numbers.actions(numbers.detach()).shape[-2])

    def _held(self, steps: int) -> Array:
        """Share of each action in each of the knots' intervals, [T - 1, S]."""
        times: Array = np.asarray(np.arange(steps) * self.step_s, dtype=float)
        each = Actions(times, np.eye(steps), "other", ("",) * steps, ("",) * steps)
        return effective_actions(each, self._knots, 0.0, 0.0)


def even_units(driven: InputProblem, points: Array) -> Array:
    """By what each number alone [U] moves points [K, 3] of the body by their own size, in the mean over the frames.

    Linear about the start; the units of `driven.numbers` say how small a step is. What is held for an instant long
    before the end moves a body that flies free by far more than what is held at the end. Raises as `simulate`.
    """
    numbers, system = driven.numbers, driven.problem.system
    steps = _SMALL * numbers.units
    states = driven.roll(np.concatenate([numbers.start[None], numbers.start + np.diag(steps)]))
    placed = system.keypoints(states, points)
    size = float(np.sqrt(np.square(points - points.mean(axis=0)).sum(axis=-1).mean()))
    moves = np.sqrt(np.square(placed[1:] - placed[:1]).sum(axis=-1).mean(axis=(1, 2)))
    return np.asarray(steps * size / np.maximum(moves, 1e-12 * size))


def descend(driven: InputProblem, loss: Loss, *, iterations: int, optimizer: str = "rmsprop") -> Array:
    """The numbers [U] of the least loss that the papers' optimiser meets from the start.

    Raises InputError when the start gives the loss nothing to go by, SimulationError when it cannot be simulated.
    """
    numbers = driven.numbers
    loss.check(torch.from_numpy(driven.roll(numbers.start[None])[0]))

    def slope(values: Array) -> tuple[float, Array]:
        at = torch.from_numpy(values.copy()).requires_grad_()
        value = loss.value(driven.states(at))
        (by_number,) = torch.autograd.grad(value, at)
        return float(value.detach()), numbers.units * by_number.numpy()

    def moved(values: Array, step: Array) -> Array:
        return np.clip(values + numbers.units * step, numbers.lower, numbers.upper)

    step = gradient.stepper(optimizer, len(numbers.start), gradient.RATES[optimizer])
    end, losses, failure = gradient.follow(slope, moved, numbers.start, step, iterations)
    if not len(losses):
        raise SimulationError(f"the start could not be simulated ({failure})", "a motion that stays finite")
    return end


def fit(
    driven: InputProblem,
    loss: newton.Judge,
    starts: Array,
    channels: int | None,
    again: Callable[[Array], newton.Judge] | None = None,
) -> newton.Found:
    """Our fit, from the best of starts [B, U].

    channels: how many actions an interval has, if numbers are those of intervals; None for numbers without a prior,
    which are fitted once. again: the loss of the further rounds, by the states that the one before found. Raises
    SimulationError when no start can be simulated.
    """
    if channels is None:
        return _solve(driven, loss, starts)
    prior = _prior(driven, channels, float(_LEVELS[-1]), float(_BANDWIDTHS[-1]))
    found = _solve(driven, loss, starts, prior)
    for _ in range(_ROUNDS):
        prior = likeliest(driven, channels, prior, found)
        judge = loss if again is None else again(found.states)
        found = _solve(driven, judge, found.values[None], prior)
    return found


def fit_profile(
    driven: InputProblem, loss: newton.Judge, starts: Array, again: Callable[[Array], newton.Judge]
) -> newton.Found:
    """As `fit`, of the few numbers of a profile: all that is known of them beforehand is their limits.

    A first fit, by `loss`, says what errors of the clip as a whole are about, but may end in another minimum than these
    have: all starts are tried once more.
    """
    numbers = driven.numbers
    even = newton.Prior(numbers.middle, np.diag(np.sqrt(12.0) / (numbers.upper - numbers.lower)))  # by its moments
    found = _solve(driven, loss, starts)
    found = _solve(driven, again(found.states), np.concatenate([found.values[None], starts]), even)
    return _solve(driven, again(found.states), found.values[None], even)


def _solve(driven: InputProblem, judge: newton.Judge, starts: Array, prior: newton.Prior | None = None) -> newton.Found:
    numbers = driven.numbers
    limits = numbers.lower, numbers.upper
    return newton.solve(driven.roll, judge, starts, numbers.units, prior=prior, limits=limits)


def likeliest(driven: InputProblem, channels: int, prior: newton.Prior, found: newton.Found) -> newton.Prior:
    """The prior whose level and bandwidth have the largest evidence, by what the fit with `prior` found.

    Of the model linear about there (MacKay, "Bayesian interpolation", 1992). With H the readings' information and K
    a prior's covariance, residuals at its mean have the gradient g = -(H + 1 / K0) (u - mean), u being the optimum
    under K0, and the evidence is g' (1 / K + H)^-1 g / 2 - log |1 + K H| / 2 but for a constant.
    """
    slope = -found.information @ (found.values - prior.mean)
    readings = found.information - prior.root.T @ prior.root

    def evidence(candidate: newton.Prior) -> float:
        deviations = solve_triangular(candidate.root, np.eye(len(slope)), lower=True)
        sizes, turn = np.linalg.eigh(deviations.T @ readings @ deviations)
        sizes = 1.0 + np.maximum(sizes, 0.0)
        along = turn.T @ (deviations.T @ slope)
        return 0.5 * float((along**2 / sizes).sum() - np.log(sizes).sum())

    candidates = [_prior(driven, channels, float(s), float(b)) for s in _LEVELS for b in _BANDWIDTHS]
    return max(candidates, key=evidence)


def _prior(driven: InputProblem, channels: int, level: float, bandwidth_rad_s: float) -> newton.Prior:
    """About the middle: the channels apart, each a Gauss-Markov process of second order of `level` units.

    Its covariance over a time t is that of `process.second_order`, (1 + b t) exp(-b t).
    """
    numbers = driven.numbers
    steps = len(numbers.start) // channels
    x = bandwidth_rad_s * driven.step_s * np.abs(np.subtract.outer(np.arange(steps), np.arange(steps)))
    root = np.linalg.cholesky((1.0 + x) * np.exp(-x) + 1e-9 * np.eye(steps))
    precision_root = solve_triangular(root, np.eye(steps), lower=True)
    return newton.Prior(numbers.middle, np.kron(precision_root, np.eye(channels)) / (level * numbers.units))

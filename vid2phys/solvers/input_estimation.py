"""Input estimation: actions as the unknowns, of a body whose parameters and first state are known, by any loss.

Method: numbers [U] stand for the actions, one for each action of each interval, or the few of a profile. The papers'
optimiser moves them along the gradient through the rollout (`descend`). Ours is least squares (`rollout_fit`). Actions
of intervals have a Gauss-Markov prior of second order, whose standard deviation and bandwidth maximise the evidence
(`fit`): actions fitted one by one to noisy measurements are noise themselves. Numbers of a profile have a prior as wide
as their limits (`fit_profile`).

Limits: parameters and first state are taken as exact.
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
from vid2phys.solvers import gradient, rollout_fit
from vid2phys.solvers.losses import Loss
from vid2phys.solvers.problem import Knots, Problem, effective_actions, stable_substeps
from vid2phys.solvers.shooting import FINE_STEP_S
from vid2phys.types import Actions, Array

_DEVIATIONS = np.geomspace(1e-3, 3.0, 14)  # standard deviations of priors, in units of the unknowns
_BANDWIDTHS = np.geomspace(2.0, 100.0, 7)  # rad/s
_SMALL = 1e-8  # steps of differences, in units of the unknowns
_ROUNDS = 2  # of further fits, each with the prior that the fit before it makes most likely


@dataclass(frozen=True)
class Numbers:
    """The numbers that stand for the actions (control parametrisation).

    start: [U]. middle: [U], mean of priors: actions that hold the body at rest. units: [U], changes of the numbers that
    make about equal differences. lower, upper: [U] bounds. actions: [..., U] to actions [..., S, A] in SI, in PyTorch,
    differentiable.
    """

    start: Array
    middle: Array
    units: Array
    lower: Array
    upper: Array
    actions: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class InputProblem:
    """A motion by unknown actions, held over intervals of `step_s`. problem: with known parameters, whose own
    actions are ignored. state: [N], the first one."""

    problem: Problem
    state: Array
    step_s: float
    numbers: Numbers

    def states(self, numbers: Tensor) -> Tensor:
        """Return the states at the frames, [U] -> [F, N]; differentiable. Raises as `simulate`."""
        problem, knots = self.problem, self._knots
        effective = torch.from_numpy(self._shares(self._steps(numbers)))
        known = torch.zeros((len(knots.step_s), len(problem.system.control_names)), dtype=torch.float64)
        actions = effective @ self.numbers.actions(numbers)
        controls = torch.cat([actions, known[:, actions.shape[1] :]], dim=1)
        start, parameters = torch.from_numpy(self.state[None].copy()), torch.from_numpy(problem.parameters.vector)
        substeps = stable_substeps(problem, knots)
        states = rollout(problem.system, start, controls[None], parameters, knots.step_s, substeps=substeps)
        return states[0, torch.from_numpy(knots.frame_knot)]

    def roll(self, numbers: Array) -> Array:
        """Return the states at the frames, [B, U] -> [B, F, N] (a `rollout_fit.Motions`). Raises as `simulate`."""
        problem, knots = self.problem, self._knots
        within = np.clip(numbers, self.numbers.lower, self.numbers.upper)
        actions = self.numbers.actions(torch.from_numpy(within)).numpy()
        controls = np.zeros((len(numbers), len(knots.step_s), len(problem.system.control_names)))
        controls[..., : actions.shape[-1]] = self._shares(actions.shape[-2]) @ actions
        starts = np.broadcast_to(self.state, (len(numbers), *self.state.shape))
        substeps = stable_substeps(problem, knots)
        states = simulate(problem.system, starts, controls, problem.parameters.vector, knots.step_s, substeps=substeps)
        return states[:, knots.frame_knot]

    @property
    def _knots(self) -> Knots:
        return Knots.of(self.problem.observation.times_s, min(self.problem.max_step_s, FINE_STEP_S))

    def _steps(self, numbers: Tensor) -> int:
        return int(self.numbers.actions(numbers.detach()).shape[-2])

    def _shares(self, steps: int) -> Array:
        """Return the share of each action in each of the knots' intervals, [T - 1, S]."""
        times: Array = np.asarray(np.arange(steps) * self.step_s, dtype=float)
        each = Actions(times, np.eye(steps), "other", ("",) * steps, ("",) * steps)
        return effective_actions(each, self._knots, 0.0, 0.0)


def balanced_units(inputs: InputProblem, points: Array) -> Array:
    """Return how much of each number alone [U] moves points [K, 3] of the body by their own size, in the mean over
    frames.

    Linear about the start; the units of `inputs.numbers` set the step. An action long before the end moves a body that
    flies free by far more than one at the end. Raises as `simulate`.
    """
    numbers, system = inputs.numbers, inputs.problem.system
    steps = _SMALL * numbers.units
    states = inputs.roll(np.concatenate([numbers.start[None], numbers.start + np.diag(steps)]))
    placed = system.keypoints(states, points)
    size = float(np.sqrt(np.square(points - points.mean(axis=0)).sum(axis=-1).mean()))
    moves = np.sqrt(np.square(placed[1:] - placed[:1]).sum(axis=-1).mean(axis=(1, 2)))
    return np.asarray(steps * size / np.maximum(moves, 1e-12 * size))


def descend(
    inputs: InputProblem, loss: Loss, starts: Array | None = None, *, iterations: int, optimizer: str = "rmsprop"
) -> Array:
    """Return the numbers [U] of the least loss that the papers' optimiser meets from the best of starts [B, U].

    starts: those of `inputs` alone, if not given. Raises InputError when the start leaves the loss without evidence,
    SimulationError when it cannot be simulated.
    """
    numbers = inputs.numbers
    start = numbers.start
    if starts is not None:
        start = rollout_fit.best_start(inputs.roll, loss, starts, (numbers.lower, numbers.upper))
    loss.check(torch.from_numpy(inputs.roll(start[None])[0]))

    def slope(values: Array) -> tuple[float, Array]:
        at = torch.from_numpy(values.copy()).requires_grad_()
        value = loss.value(inputs.states(at))
        (by_number,) = torch.autograd.grad(value, at)
        return float(value.detach()), numbers.units * by_number.numpy()

    def moved(values: Array, step: Array) -> Array:
        return np.clip(values + numbers.units * step, numbers.lower, numbers.upper)

    step = gradient.stepper(optimizer, len(start), gradient.RATES[optimizer])
    end, losses, failure = gradient.follow(slope, moved, start, step, iterations)
    if not len(losses):
        raise SimulationError(f"the start could not be simulated ({failure})", "a motion that stays finite")
    return end


def fit(
    inputs: InputProblem,
    loss: rollout_fit.MotionLoss,
    starts: Array,
    channels: int | None,
    again: Callable[[Array], rollout_fit.MotionLoss] | None = None,
) -> rollout_fit.RolloutFit:
    """Return the least-squares fit from the best of starts [B, U].

    channels: actions of an interval, for numbers of intervals; None for numbers without a prior, which are fitted once.
    again: from the states of a round to the loss of the next. Raises SimulationError when no start can be simulated.
    """
    if channels is None:
        return _solve(inputs, loss, starts)
    prior = _prior(inputs, channels, float(_DEVIATIONS[-1]), float(_BANDWIDTHS[-1]))
    found = _solve(inputs, loss, starts, prior)
    for _ in range(_ROUNDS):
        prior = most_likely_prior(inputs, channels, prior, found)
        judge = loss if again is None else again(found.states)
        found = _solve(inputs, judge, found.values[None], prior)
    return found


def fit_profile(
    inputs: InputProblem, loss: rollout_fit.MotionLoss, starts: Array, again: Callable[[Array], rollout_fit.MotionLoss]
) -> rollout_fit.RolloutFit:
    """Return the least-squares fit of the few numbers of a profile, known beforehand by their limits alone.

    A first fit, by `loss`, gives the states about which errors of the clip as a whole are linear. Their minimum may be
    another one, so that all starts are tried once more.
    """
    numbers = inputs.numbers
    even = rollout_fit.Prior(numbers.middle, np.diag(np.sqrt(12.0) / (numbers.upper - numbers.lower)))  # by its moments
    found = _solve(inputs, loss, starts)
    found = _solve(inputs, again(found.states), np.concatenate([found.values[None], starts]), even)
    return _solve(inputs, again(found.states), found.values[None], even)


def _solve(
    inputs: InputProblem, judge: rollout_fit.MotionLoss, starts: Array, prior: rollout_fit.Prior | None = None
) -> rollout_fit.RolloutFit:
    numbers = inputs.numbers
    limits = numbers.lower, numbers.upper
    return rollout_fit.solve(inputs.roll, judge, starts, numbers.units, prior=prior, limits=limits)


def most_likely_prior(
    inputs: InputProblem, channels: int, prior: rollout_fit.Prior, found: rollout_fit.RolloutFit
) -> rollout_fit.Prior:
    """Return the prior whose standard deviation and bandwidth have the largest evidence, from the fit with `prior`.

    The model is linear about the fit (MacKay, "Bayesian interpolation", 1992). With H the information of the
    measurements and K a prior's covariance, residuals at its mean have the gradient g = -(H + 1 / K0) (u - mean), u
    being the optimum under K0. The evidence is g' (1 / K + H)^-1 g / 2 - log |1 + K H| / 2 but for a constant.
    """
    slope = -found.information @ (found.values - prior.mean)
    measured = found.information - prior.root.T @ prior.root

    def evidence(candidate: rollout_fit.Prior) -> float:
        deviations = solve_triangular(candidate.root, np.eye(len(slope)), lower=True)
        sizes, rotation = np.linalg.eigh(deviations.T @ measured @ deviations)
        sizes = 1.0 + np.maximum(sizes, 0.0)
        along = rotation.T @ (deviations.T @ slope)
        return 0.5 * float((along**2 / sizes).sum() - np.log(sizes).sum())

    candidates = [_prior(inputs, channels, float(s), float(b)) for s in _DEVIATIONS for b in _BANDWIDTHS]
    return max(candidates, key=evidence)


def _prior(inputs: InputProblem, channels: int, deviation: float, bandwidth_rad_s: float) -> rollout_fit.Prior:
    """Return a prior about the middle: independent channels, each a Gauss-Markov process of `deviation` units.

    Its covariance over a time t is that of `gauss_markov.second_order`, (1 + b t) exp(-b t).
    """
    numbers = inputs.numbers
    steps = len(numbers.start) // channels
    x = bandwidth_rad_s * inputs.step_s * np.abs(np.subtract.outer(np.arange(steps), np.arange(steps)))
    root = np.linalg.cholesky((1.0 + x) * np.exp(-x) + 1e-9 * np.eye(steps))
    precision_root = solve_triangular(root, np.eye(steps), lower=True)
    return rollout_fit.Prior(numbers.middle, np.kron(precision_root, np.eye(channels)) / (deviation * numbers.units))

"""Shooting: one deterministic rollout from the first state; for simulated clips, whose actions are exact.

Method: least squares (`least_squares`) with exact forward sensitivities: the Jacobians of single intervals
(`engine.linearize`) in a linear recursion. The horizon grows from a tenth of the clip to all of it, so that a poor
start does not diverge.

Limits: no disturbances: with a filmed flight, smoothing is the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from vid2phys.engine.rollout import linearize, simulate
from vid2phys.errors import SimulationError, UsageError
from vid2phys.solvers import arrow, camera_parameters, least_squares
from vid2phys.solvers.least_squares import (
    DenseModel,
    Settings,
    minimize,
    student_cost,
    student_weights,
)
from vid2phys.solvers.measurements import Errors, linear_residuals
from vid2phys.solvers.multi_clip import Dense
from vid2phys.solvers.problem import Knots, Problem, rollout_controls, stable_substeps
from vid2phys.solvers.solution import Solution, innovations
from vid2phys.types import Array, Parameters

SUBSTEPS = 2
FINE_STEP_S = 0.01
TOLERANCE = 1e-6  # least gain of a step, as a share of the cost
SHARES = 0.1, 0.2, 0.4, 0.7, 1.0  # of a clip: how the horizon grows
_MOST_ALIKE = 1.0 - 1e-9  # correlation of adjacent frames, whose errors may not change at all


@dataclass(frozen=True)
class _Setup:
    problem: Problem
    knots: Knots
    controls: Array  # [T - 1, M]
    roots: Array  # [F, N, N], whitening of a frame's measurements
    count: Array  # [F] numbers that were measured, at least 1
    substeps: int


@dataclass(frozen=True)
class _Point:
    initial: tuple[Array, ...]  # [N] of each clip
    parameters: Parameters


@dataclass(frozen=True)
class _Evaluated:
    """A clip's part: cost, gradient and information of start and free parameters, states [T, N], weights [F]."""

    cost: float
    gradient: Array
    information: Array
    states: Array
    weights: Array


def solve(problem: Problem, states: Array, **how: Any) -> Solution:
    """Fit one clip: see `solve_clips`. states: [T, N] at the knots, of which only the first is used."""
    return solve_clips([problem], [states], **how)[0]


def solve_clips(
    problems: Sequence[Problem],
    states: Sequence[Array],
    *,
    iterations: int = 40,
    tolerance: float = TOLERANCE,
    shares: Sequence[float] = SHARES,
) -> list[Solution]:
    """Fit the first state of each clip and the free parameters, which all clips of a body share.

    states: [T, N] of each clip, where the first row begins. iterations: of one horizon, at most. tolerance: least gain
    of a step, as a share of the cost. shares: of each clip, one horizon after the other; all of it at once where the
    start explains the clips already. Priors are those of the first problem.

    Raises UsageError for a system whose actions are not recorded: a deterministic rollout needs them; SimulationError
    when the motion cannot be computed where the fit begins.
    """
    setups = [_setup(problem) for problem in problems]
    point, used, converged = _Point(tuple(each[0] for each in states), problems[0].parameters), 0, True
    for share in shares:
        found = minimize(_Clips(setups, share), point, Settings(iterations, tolerance))
        point, used, converged = found.point, used + found.iterations, found.converged
    return _solutions(setups, point, used, converged)


def _setup(problem: Problem) -> _Setup:
    knots = Knots.of(problem.observation.times_s, min(problem.max_step_s, FINE_STEP_S))
    substeps = stable_substeps(problem, knots, SUBSTEPS)
    count = np.maximum(Errors.of(problem.observation).used.sum(axis=1), 1.0)
    return _Setup(problem, knots, rollout_controls(problem, knots), whitening(problem), count, substeps)


def whitening(problem: Problem) -> Array:
    """Return roots W of the inverse covariance of each frame's measurements (`measurements`), [F, N, N].

    Shared errors count by their correlation in time: as one error of the whole clip at most.
    """
    errors = Errors.of(problem.observation)
    step = np.gradient(errors.clock_s)[:, None]
    rho = np.minimum(np.exp(-step / np.maximum(errors.times_s, 1e-9)), _MOST_ALIKE)
    alike = np.minimum((1.0 + rho) / (1.0 - rho), len(rho))  # frames that count as one
    basis = errors.basis * np.sqrt(alike)[:, None]
    total, hidden = errors.covariance + basis @ np.swapaxes(basis, 1, 2), ~errors.used
    total[hidden] = 0.0
    np.swapaxes(total, 1, 2)[hidden] = 0.0
    total[np.where(hidden)[0], np.where(hidden)[1], np.where(hidden)[1]] = 1.0
    roots = np.linalg.inv(np.linalg.cholesky(total))
    return roots * ~hidden[:, None, :] * ~hidden[:, :, None]


def _evaluate(setup: _Setup, initial: Array, parameters: Parameters, frames: int, derivatives: bool) -> _Evaluated:
    """Return the rollout over the first `frames` frames of a clip."""
    problem, last = setup.problem, setup.knots.frame_knot[frames - 1]
    step_s, controls = setup.knots.step_s[:last], setup.controls[:last]
    vector = camera_parameters.system_vector(parameters)
    states = simulate(problem.system, initial[None], controls[None], vector, step_s, substeps=setup.substeps)[0]
    at_frames = states[setup.knots.frame_knot[:frames]]
    residual, by_state, by_camera = linear_residuals(problem, parameters, at_frames)
    white, count = np.einsum("fij,fj->fi", setup.roots[:frames], residual), setup.count[:frames]
    share = (white**2).sum(1) / count
    weights, cost = student_weights(share), student_cost(share, count)
    size = len(problem.system.tangent_names) + len(parameters.free_indices)
    if not derivatives or not np.isfinite(states).all():
        cost = cost if np.isfinite(cost) else np.inf
        return _Evaluated(cost, np.zeros(size), np.zeros((size, size)), states, weights)
    sensitivity = _sensitivities(setup, parameters, states[:last], controls, step_s)
    flat = by_state @ sensitivity[setup.knots.frame_knot[:frames]]
    flat[..., size - by_camera.shape[-1] :] += by_camera  # the last of the parameters, which do not move the body
    whitened = setup.roots[:frames] @ flat
    gradient = np.einsum("fip,fi,f->p", whitened, white, weights)
    information = np.einsum("fip,f,fiq->pq", whitened, weights, whitened, optimize=True)
    return _Evaluated(cost, gradient, information, states, weights)


def _sensitivities(setup: _Setup, parameters: Parameters, states: Array, controls: Array, step_s: Array) -> Array:
    """Return derivatives [T, D, D + P] of each state's tangent by the first state's, and by the free parameters."""
    system, vector = setup.problem.system, camera_parameters.system_vector(parameters)
    steps = linearize(system, states, controls, vector, step_s, substeps=setup.substeps)
    free = [i for i in parameters.free_indices if i < len(vector)]
    size, scale = len(system.tangent_names), parameters.slopes[free]
    moving = slice(size, size + len(free))
    out = np.zeros((len(states) + 1, size, size + len(parameters.free_indices)))
    out[0, :, :size] = np.eye(size)
    for k in range(len(states)):
        out[k + 1] = steps.A[k] @ out[k]
        out[k + 1, :, moving] += steps.C[k][:, free] * scale
    return out


def _evaluate_all(
    setups: Sequence[_Setup], point: _Point, share: float, derivatives: bool
) -> tuple[float, Dense, list[_Evaluated]]:
    """Return cost and normal equations of all clips, each to a share of its frames, with the priors."""
    found = []
    for setup, initial in zip(setups, point.initial, strict=True):
        frames = len(setup.problem.observation.times_s)
        frames = min(frames, max(6, int(np.ceil(share * frames))))
        found.append(_evaluate(setup, initial, point.parameters, frames, derivatives))
    free = point.parameters.free_indices
    dense = Dense.of([each.gradient for each in found], [each.information for each in found], len(free))
    off, precision = setups[0].problem.prior(point.parameters.free_names, point.parameters.free_vector())
    dense.gradient[dense.starts :] += off * np.sqrt(precision)
    dense.information[dense.starts :, dense.starts :] += np.diag(precision)
    return sum(each.cost for each in found) + 0.5 * float(off @ off), dense, found


@dataclass(frozen=True)
class _Clips(least_squares.Problem[_Point]):
    """All clips, each to a share of its frames."""

    setups: Sequence[_Setup]
    share: float

    def cost(self, point: _Point) -> float:
        """See `least_squares.Problem.cost`."""
        try:
            return _evaluate_all(self.setups, point, self.share, False)[0]
        except (SimulationError, UsageError):  # beyond what the engine can compute: a shorter step
            return np.inf

    def linearize(self, point: _Point) -> DenseModel[_Point]:
        """See `least_squares.Problem.linearize`."""
        cost, dense, _ = _evaluate_all(self.setups, point, self.share, True)
        return DenseModel(cost, dense.normal, partial(_moved, self.setups[0].problem, point))


def _moved(problem: Problem, point: _Point, step: Array) -> _Point:
    size = len(problem.system.tangent_names)
    starts, shared = step[: size * len(point.initial)].reshape(-1, size), step[size * len(point.initial) :]
    initial = tuple(problem.system.retract(state, row) for state, row in zip(point.initial, starts, strict=True))
    return _Point(initial, point.parameters.fitted_at(point.parameters.free_vector() + shared))


def _solutions(setups: Sequence[_Setup], point: _Point, iterations: int, converged: bool) -> list[Solution]:
    cost, dense, found = _evaluate_all(setups, point, 1.0, True)
    if not np.isfinite(dense.information).all():
        got = "derivatives of the motion are not finite where the fit ends"
        raise SimulationError(got, "a start nearer to the truth", "give parameters that are known by --set")
    null, covariance = solved(dense, setups[0].problem.prior_precision(point.parameters.free_names))
    size = len(setups[0].problem.system.tangent_names)
    solutions = []
    for clip, (setup, part) in enumerate(zip(setups, found, strict=True)):
        problem, knots, states = replace(setup.problem, parameters=point.parameters), setup.knots, part.states
        sensitivity = _sensitivities(setup, point.parameters, states[:-1], setup.controls, knots.step_s)
        sensitivity = sensitivity[knots.frame_knot]
        own = dense.block(clip, size, covariance)
        solutions.append(
            Solution(
                states=states[knots.frame_knot],
                covariance=sensitivity @ own @ np.swapaxes(sensitivity, 1, 2),
                controls=knots.frame_means(setup.controls),
                action_std=None,
                parameters=point.parameters,
                theta_names=point.parameters.free_names,
                theta_covariance=null.covariance,
                null_directions=null.directions,
                iterations=iterations,
                converged=converged and bool(np.isfinite(cost)),
                loss=part.cost,
                extra={},
                weights=np.repeat(part.weights[:, None], problem.observation.visible.shape[1], axis=1),
                residuals=innovations(problem, states[knots.frame_knot]),
                knot_states=states,
            )
        )
    return solutions


def solved(dense: Dense, prior: Array) -> tuple[arrow.Null, Array]:
    """Return the covariance of what clips share [P, P], their starts eliminated, and of all unknowns [U, U].

    prior: [P] the part of the shared unknowns' information that is from priors.
    """
    information, size = dense.information, dense.starts
    if not size:
        null = arrow.parameter_covariance(information, reference=np.diagonal(information), prior=prior)
        return null, null.covariance
    start = information[:size, :size]
    start = start + 1e-12 * max(np.trace(start) / size, 1e-30) * np.eye(size)
    across = information[:size, size:]
    schur = information[size:, size:] - across.T @ np.linalg.solve(start, across)
    null = arrow.parameter_covariance(schur, reference=np.diagonal(information)[size:], prior=prior)
    return null, _full_covariance(information, size, null.covariance)


def _full_covariance(information: Array, size: int, parameters: Array) -> Array:
    """Return the covariance of (first state, parameters), null directions of the parameters left out."""
    start = np.linalg.inv(information[:size, :size] + 1e-9 * np.eye(size))
    gain = -start @ information[:size, size:]
    full = np.zeros_like(information)
    full[:size, :size] = start + gain @ parameters @ gain.T
    full[:size, size:] = gain @ parameters
    full[size:, :size] = full[:size, size:].T
    full[size:, size:] = parameters
    return full

"""Shooting: one deterministic rollout from the first state; for simulated clips, whose actions are exact.

Levenberg-Marquardt with exact forward sensitivities: the Jacobians of single intervals (`engine.linearize`) in a linear
recursion. The horizon grows from a tenth of the clip to all of it, so that a poor start does not diverge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vid2phys.engine.observe import observe
from vid2phys.engine.rollout import linearize, simulate
from vid2phys.errors import SimulationError, UsageError
from vid2phys.solvers import arrow
from vid2phys.solvers.problem import Knots, Problem, held_controls, stable_substeps
from vid2phys.solvers.solution import Solution, innovations
from vid2phys.types import Array, Parameters

SUBSTEPS = 2
STUDENT_DOF = 5.0
FINE_STEP_S = 0.01


@dataclass(frozen=True)
class _Setup:
    problem: Problem
    knots: Knots
    controls: Array  # [T - 1, M]
    roots: Array  # [F, 2 K, 2 K], whitening of a frame's bearings
    substeps: int


@dataclass(frozen=True)
class _Point:
    initial: Array  # [N]
    parameters: Parameters


def solve(problem: Problem, states: Array, *, iterations: int = 40) -> Solution:
    """Fit the first state and the free parameters, starting from states at the knots [T, N] (only the first is used).

    Raises UsageError for a driven system without recorded actions: a deterministic rollout needs them.
    """
    setup = _setup(problem)
    point, used, converged = _Point(states[0], problem.parameters), 0, True
    for share in (0.1, 0.2, 0.4, 0.7, 1.0):
        frames = max(6, int(np.ceil(share * len(problem.observation.times_s))))
        point, count, converged = _descend(setup, point, frames, iterations)
        used += count
    return _solution(setup, point, used, converged)


def _setup(problem: Problem) -> _Setup:
    knots = Knots.of(problem.observation.times_s, min(problem.max_step_s, FINE_STEP_S))
    substeps = stable_substeps(problem, knots, SUBSTEPS)
    return _Setup(problem, knots, held_controls(problem, knots), whitening(problem), substeps)


def whitening(problem: Problem) -> Array:
    """Roots W of the inverse covariance of each frame's bearings; shared errors count by their correlation in time."""
    seen = problem.observation
    frames, points = seen.visible.shape
    step = np.gradient(seen.error_clock_s)[:, None]
    rho = np.exp(-step / np.maximum(seen.correlation_time_s, 1e-9))
    basis = seen.shared_basis.reshape(frames, 2 * points, -1) * np.sqrt((1.0 + rho) / (1.0 - rho))[:, None]
    total = basis @ np.swapaxes(basis, 1, 2)
    for k in range(points):
        total[:, 2 * k : 2 * k + 2, 2 * k : 2 * k + 2] += seen.covariance[:, k]
    hidden = np.repeat(~seen.visible, 2, axis=1)
    total[hidden] = 0.0
    np.swapaxes(total, 1, 2)[hidden] = 0.0
    total[np.where(hidden)[0], np.where(hidden)[1], np.where(hidden)[1]] = 1.0
    roots = np.linalg.inv(np.linalg.cholesky(total))
    return roots * ~hidden[:, None, :] * ~hidden[:, :, None]


def _evaluate(setup: _Setup, point: _Point, frames: int, derivatives: bool) -> tuple[float, Array, Array, Array, Array]:
    """Cost, gradient, information, states [T, N] and frame weights of a rollout over the first `frames` frames."""
    problem, last = setup.problem, setup.knots.frame_knot[frames - 1]
    free = list(problem.parameters.free_indices)
    step_s, controls = setup.knots.step_s[:last], setup.controls[:last]
    vector = point.parameters.vector
    states = simulate(problem.system, point.initial[None], controls[None], vector, step_s, substeps=setup.substeps)[0]
    at_frames = states[setup.knots.frame_knot[:frames]]
    seen = problem.observation
    predicted, jacobian, _ = observe(problem.system, at_frames, seen.points_body, problem.camera_to_world)
    residual = ((predicted - seen.bearings[:frames]) * seen.visible[:frames, :, None]).reshape(frames, -1)
    white = np.einsum("fij,fj->fi", setup.roots[:frames], residual)
    count = np.maximum(2.0 * seen.visible[:frames].sum(1), 1.0)
    share = (white**2).sum(1) / count
    weights = (STUDENT_DOF + 1.0) / (STUDENT_DOF + share)
    cost = 0.5 * (STUDENT_DOF + 1.0) * float((count * np.log1p(share / STUDENT_DOF)).sum())
    size = len(problem.system.tangent_names) + len(free)
    if not derivatives or not np.isfinite(states).all():
        return (cost if np.isfinite(cost) else np.inf), np.zeros(size), np.zeros((size, size)), states, weights
    sensitivity = _sensitivities(setup, point, states[:last], controls, step_s, free)
    flat = jacobian.reshape(frames, -1, jacobian.shape[-1]) @ sensitivity[setup.knots.frame_knot[:frames]]
    whitened = setup.roots[:frames] @ flat
    gradient = np.einsum("fip,fi,f->p", whitened, white, weights)
    information = np.einsum("fip,f,fiq->pq", whitened, weights, whitened, optimize=True)
    return cost, gradient, information, states, weights


def _sensitivities(
    setup: _Setup, point: _Point, states: Array, controls: Array, step_s: Array, free: list[int]
) -> Array:
    """d tangent of state k / d (tangent of the first state, free parameters in solver coordinates), [T, D, D + P]."""
    system, vector = setup.problem.system, point.parameters.vector
    steps = linearize(system, states, controls, vector, step_s, substeps=setup.substeps)
    scale = np.array([vector[i] if point.parameters.items[i].transform == "log" else 1.0 for i in free])
    size = len(system.tangent_names)
    out = np.zeros((len(states) + 1, size, size + len(free)))
    out[0, :, :size] = np.eye(size)
    for k in range(len(states)):
        out[k + 1] = steps.A[k] @ out[k]
        out[k + 1, :, size:] += steps.C[k][:, free] * scale
    return out


def _descend(setup: _Setup, point: _Point, frames: int, iterations: int) -> tuple[_Point, int, bool]:
    damping = 1e-3
    for iteration in range(iterations):
        cost, gradient, information, _, _ = _evaluate(setup, point, frames, True)
        if not np.isfinite(cost):
            return point, iteration, False
        while True:
            step = _damped_step(information, gradient, damping)
            candidate = _moved(setup.problem, point, step)
            try:
                new_cost = _evaluate(setup, candidate, frames, False)[0]
            except (SimulationError, UsageError):  # beyond what the engine can compute: a shorter step
                new_cost = np.inf
            if new_cost <= cost or damping > 1e8:
                break
            damping *= 10.0
        if damping > 1e8:
            return point, iteration + 1, True
        point, damping = candidate, max(damping / 10.0, 1e-9)
        if cost - new_cost < 1e-6 * max(1.0, cost):
            return point, iteration + 1, True
    return point, iterations, False


def _damped_step(information: Array, gradient: Array, damping: float) -> Array:
    scale = np.sqrt(np.maximum(np.diagonal(information), 1e-12))
    scaled = information / np.outer(scale, scale)
    return -np.linalg.lstsq(scaled + damping * np.eye(len(scale)), gradient / scale, rcond=None)[0] / scale


def _moved(problem: Problem, point: _Point, step: Array) -> _Point:
    size = len(problem.system.tangent_names)
    free = point.parameters.free_vector() + step[size:]
    moved = point.parameters.with_free_vector(np.clip(free, -50.0, 50.0))
    within = {p.name: float(np.clip(p.value, p.lower, p.upper)) for p in moved if p.free}
    return _Point(problem.system.retract(point.initial, step[:size]), moved.with_values(within, source="fitted"))


def _solution(setup: _Setup, point: _Point, iterations: int, converged: bool) -> Solution:
    problem, frames = setup.problem, len(setup.problem.observation.times_s)
    cost, _, information, states, weights = _evaluate(setup, point, frames, True)
    size, knots = len(problem.system.tangent_names), setup.knots
    start = information[:size, :size] + 1e-12 * np.trace(information[:size, :size]) / size * np.eye(size)
    schur = information[size:, size:] - information[size:, :size] @ np.linalg.solve(start, information[:size, size:])
    null = arrow.parameter_covariance(schur, reference=np.diagonal(information)[size:])
    covariance = full_covariance(information, size, null.covariance)
    free = list(problem.parameters.free_indices)
    sensitivity = _sensitivities(setup, point, states[:-1], setup.controls, knots.step_s, free)[knots.frame_knot]
    return Solution(
        states=states[knots.frame_knot],
        covariance=sensitivity @ covariance @ np.swapaxes(sensitivity, 1, 2),
        controls=knots.frame_means(setup.controls),
        action_std=None,
        parameters=point.parameters,
        theta_names=tuple(p.name for p in problem.parameters if p.free),
        theta_covariance=null.covariance,
        null_directions=null.directions,
        iterations=iterations,
        converged=converged and bool(np.isfinite(cost)),
        loss=cost,
        extra={},
        weights=np.repeat(weights[:, None], problem.observation.visible.shape[1], axis=1),
        residuals=innovations(problem, states[knots.frame_knot]),
        knot_states=states,
    )


def full_covariance(information: Array, size: int, parameters: Array) -> Array:
    """Covariance of (first state, parameters), null directions of the parameters left out."""
    start = np.linalg.inv(information[:size, :size] + 1e-9 * np.eye(size))
    gain = -start @ information[:size, size:]
    full = np.zeros_like(information)
    full[:size, :size] = start + gain @ parameters @ gain.T
    full[:size, size:] = gain @ parameters
    full[size:, :size] = full[:size, size:].T
    full[size:, size:] = parameters
    return full

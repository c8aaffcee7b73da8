"""Shooting for bodies on a known base: one deterministic rollout from a posture and its rates.

Unknown are the posture at the first frame, how fast it changes, and the parameters asked for: as many numbers as the
posture has coordinates, twice, however many vertices the body has. All derivatives are differences, their rollouts in
one batch. Levenberg-Marquardt on robust whitened bearings; the horizon grows from a tenth of the clip to all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vid2phys.engine.observe import to_bearings
from vid2phys.engine.rollout import simulate
from vid2phys.engine.system import check_scheme
from vid2phys.errors import SimulationError, UsageError
from vid2phys.risp.posed.body import PosedBody
from vid2phys.rotations import invert_transform
from vid2phys.solvers import arrow
from vid2phys.solvers.problem import Knots, Problem, effective_actions
from vid2phys.solvers.shooting import FINE_STEP_S, STUDENT_DOF, whitening
from vid2phys.types import Array, Parameters

_RATE = 15.0  # 1/s: prior of the first rates, in spreads of the posture
_STEP = 1e-3  # of differences: in spreads of the posture, and of the parameters' solver coordinates
_SHARES = (0.1, 0.25, 0.5, 1.0)
_STABLE = 0.8  # of the longest stable step
_TOLERANCE = 1e-5


@dataclass(frozen=True)
class PosedSolution:
    """A fit at the frames of the clip.

    states [F, N]; controls [F - 1, M]; parameters: all, with fitted values; theta_covariance [P, P] and null_directions
    [*, P] in solver coordinates; state_covariance [F, D, D] in the tangent space, None for bodies of many vertices.
    misfit: root mean square of whitened residuals, 1 where the model explains what was seen.
    """

    states: Array
    controls: Array
    parameters: Parameters
    theta_covariance: Array
    null_directions: Array
    state_covariance: Array | None
    iterations: int
    converged: bool
    loss: float
    misfit: float


_MOST_STATES = 200  # of which the covariance is given


@dataclass(frozen=True)
class _Setup:
    problem: Problem
    body: PosedBody
    knots: Knots
    controls: Array  # [T - 1, M]
    roots: Array  # [F, 2 K, 2 K], whitening of a frame's bearings
    substeps: int
    scale: Array  # [U] of a unit of the unknowns: posture, rates, parameters in solver coordinates


def solve(problem: Problem, body: PosedBody, posture: Array, rates: Array, *, iterations: int = 25) -> PosedSolution:
    """Fit from a posture [D] at the first frame and its rates [D] per second.

    problem.actions: what drives the body. Raises UsageError without any.
    """
    setup = _setup(problem, body)
    unknowns = np.concatenate([posture, rates, problem.parameters.free_vector()])
    used, converged, count = 0, True, len(problem.observation.times_s)
    for share in _SHARES:
        frames = min(count, max(5, int(np.ceil(share * count))))
        unknowns, steps, converged = _descend(setup, unknowns, frames, iterations)
        used += steps
    return _solution(setup, unknowns, used, converged)


def _setup(problem: Problem, body: PosedBody) -> _Setup:
    if problem.actions is None:
        raise UsageError("no actions", "what drives the body", "give --actions")
    knots = Knots.of(problem.observation.times_s, min(problem.max_step_s, FINE_STEP_S))
    controls = np.zeros((len(knots.step_s), len(problem.system.control_names)))
    recorded = effective_actions(problem.actions, knots, 0.0, 0.0)
    controls[:, : recorded.shape[1]] = recorded
    substeps = 1
    if check_scheme(problem.system, None, 1) != "implicit_euler":
        longest = _STABLE * problem.system.longest_step_s(problem.parameters.vector)
        substeps = max(2, int(np.ceil(knots.step_s.max() / longest)))
    free = len(problem.parameters.free_indices)
    scale = np.concatenate([body.spread, _RATE * body.spread, np.ones(free)])
    return _Setup(problem, body, knots, controls, whitening(problem), substeps, scale)


def _rollouts(setup: _Setup, unknowns: Array, frames: int) -> Array:
    """States [B, T, N] up to the given frame, from unknowns [B, U]."""
    problem, size = setup.problem, len(setup.body.rest)
    last = int(setup.knots.frame_knot[frames - 1])
    starts = setup.body.states(unknowns[:, :size], unknowns[:, size : 2 * size])
    parameters = np.stack([_bounded(problem.parameters, row[2 * size :]).vector for row in unknowns])
    controls = np.broadcast_to(setup.controls[:last], (len(unknowns), last, setup.controls.shape[1]))
    return simulate(problem.system, starts, controls, parameters, setup.knots.step_s[:last], substeps=setup.substeps)


def _white(setup: _Setup, states: Array, frames: int) -> Array:
    """Whitened predicted minus read, [B, F, 2 K], of states at the knots [B, T, N]."""
    problem = setup.problem
    world_to_camera = invert_transform(problem.camera_to_world)
    seen = problem.observation
    points = problem.system.keypoints(states[:, setup.knots.frame_knot[:frames]], seen.points_body)
    bearings = to_bearings(points @ world_to_camera[:3, :3].T + world_to_camera[:3, 3])
    residual = (bearings - seen.bearings[:frames]) * seen.visible[:frames, :, None]
    flat = np.nan_to_num(residual.reshape(len(states), frames, -1), nan=1.0)
    return np.einsum("fij,bfj->bfi", setup.roots[:frames], flat)


def _weights(setup: _Setup, white: Array, frames: int) -> tuple[Array, float]:
    """Student-t weight of each frame [F], and the cost without priors."""
    count = np.maximum(2.0 * setup.problem.observation.visible[:frames].sum(axis=1), 1.0)
    share = (white**2).sum(axis=-1) / count
    cost = 0.5 * (STUDENT_DOF + 1.0) * float((count * np.log1p(share / STUDENT_DOF)).sum())
    return (STUDENT_DOF + 1.0) / (STUDENT_DOF + share), cost


def _prior(setup: _Setup, unknowns: Array) -> Array:
    """Distance of posture and rates from what is usual, in standard deviations [U]; zero for parameters."""
    size = len(setup.body.rest)
    usual = np.concatenate([setup.body.middle, np.zeros(size)])
    return np.concatenate(
        [(unknowns[: 2 * size] - usual) / setup.scale[: 2 * size], np.zeros(len(unknowns) - 2 * size)]
    )


def _cost(setup: _Setup, unknowns: Array, frames: int) -> float:
    white = _white(setup, _rollouts(setup, unknowns[None], frames), frames)[0]
    return _weights(setup, white, frames)[1] + 0.5 * float((_prior(setup, unknowns) ** 2).sum())


def _linearized(setup: _Setup, unknowns: Array, frames: int) -> tuple[Array, Array, Array, Array, float]:
    """Gradient [U], information [U, U], states [T, N], their differences [U, T, N], and the misfit; in units of
    `scale`."""
    moved = np.concatenate([unknowns[None], unknowns + _STEP * np.diag(setup.scale)])
    states = _rollouts(setup, moved, frames)
    white = _white(setup, states, frames)
    slope = (white[1:] - white[:1]) / _STEP
    weights, _ = _weights(setup, white[0], frames)
    prior = np.zeros(len(unknowns))
    prior[: 2 * len(setup.body.rest)] = 1.0
    gradient = np.einsum("ufi,fi,f->u", slope, white[0], weights) + _prior(setup, unknowns)
    information = np.einsum("ufi,f,vfi->uv", slope, weights, slope, optimize=True) + np.diag(prior)
    count = max(1.0, 2.0 * float(setup.problem.observation.visible[:frames].sum()) - len(unknowns))
    misfit = float(np.sqrt((weights[:, None] * white[0] ** 2).sum() / count))
    return gradient, information, states[0], (states[1:] - states[:1]) / _STEP, misfit


def _descend(setup: _Setup, unknowns: Array, frames: int, iterations: int) -> tuple[Array, int, bool]:
    damping, cost = 1e-3, _cost(setup, unknowns, frames)
    for iteration in range(iterations):
        gradient, information, *_ = _linearized(setup, unknowns, frames)
        while True:
            candidate = _moved(setup, unknowns, _damped_step(information, gradient, damping))
            new_cost = _safely(lambda moved=candidate: _cost(setup, moved, frames))  # type: ignore[misc]
            if new_cost <= cost:
                break
            damping *= 10.0
            if damping > 1e6:
                return unknowns, iteration + 1, True
        gain, unknowns, cost, damping = cost - new_cost, candidate, new_cost, max(damping / 10.0, 1e-9)
        if gain < _TOLERANCE * max(1.0, cost):
            return unknowns, iteration + 1, True
    return unknowns, iterations, False


def _safely(cost: Callable[[], float]) -> float:
    try:
        return cost()
    except (SimulationError, UsageError):  # beyond what the engine can compute: a shorter step
        return np.inf


def _damped_step(information: Array, gradient: Array, damping: float) -> Array:
    diagonal = np.maximum(np.diagonal(information), 1e-9)
    return np.asarray(-np.linalg.solve(information + damping * np.diag(diagonal), gradient), dtype=float)


def _moved(setup: _Setup, unknowns: Array, step: Array) -> Array:
    """Unknowns after a step in units of `scale`; postures and parameters stay within their limits."""
    size, moved = len(setup.body.rest), unknowns + setup.scale * step
    moved[:size] = np.clip(moved[:size], setup.body.lower, setup.body.upper)
    moved[2 * size :] = _bounded(setup.problem.parameters, moved[2 * size :]).free_vector()
    return moved


def _bounded(parameters: Parameters, free: Array) -> Parameters:
    """The parameters with these free ones in solver coordinates, moved into their limits."""
    there = parameters.with_free_vector(np.clip(free, -50.0, 50.0))
    within = {p.name: float(np.clip(p.value, max(p.lower, 1e-300 if p.transform == "log" else p.lower), p.upper))
              for p in there if p.free}  # fmt: skip
    return there.with_values(within, source="fitted")


def _solution(setup: _Setup, unknowns: Array, iterations: int, converged: bool) -> PosedSolution:
    problem, knots, frames = setup.problem, setup.knots, len(setup.problem.observation.times_s)
    _, information, states, slopes, misfit = _linearized(setup, unknowns, frames)
    size = 2 * len(setup.body.rest)
    start = information[:size, :size]
    schur = information[size:, size:] - information[size:, :size] @ np.linalg.solve(start, information[:size, size:])
    null = arrow.parameter_covariance(schur, reference=np.diagonal(information)[size:])
    spread = max(1.0, misfit) ** 2  # what the model does not explain is no less uncertain for that
    states, slopes = states[knots.frame_knot], slopes[:, knots.frame_knot]
    covariance = None
    if states.shape[1] <= _MOST_STATES:
        full = np.linalg.pinv(information, hermitian=True)
        covariance = spread * np.einsum("ufi,uv,vfj->fij", slopes, full, slopes, optimize=True)
    return PosedSolution(
        states,
        knots.frame_means(setup.controls),
        _bounded(problem.parameters, unknowns[size:]),
        spread * null.covariance,
        null.directions,
        covariance,
        iterations,
        converged,
        _cost(setup, unknowns, frames),
        misfit,
    )

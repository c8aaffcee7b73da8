"""Shooting for bodies on a known base: one deterministic rollout from a configuration and its rates.

Purpose: the unknowns are the configuration at the first frame, its rates, and the parameters. These are twice as many
numbers as the configuration has coordinates, however many vertices the body has.

Method: least squares (`least_squares`) on robust whitened measurements, over a horizon that grows from a tenth of the
clip to all of it. Derivatives are differences, whose rollouts are one batch. The last descents take the clip as a whole
(`clip_residuals`): lasting errors count once, and faster motion is told apart from them. Single frames alone leave
several optima alike.

Limits: deterministic, with known actions; for clips of a body whose base and camera do not move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.rollout import simulate
from vid2phys.errors import SimulationError, UsageError
from vid2phys.solvers import camera_parameters, interval_parts, least_squares
from vid2phys.solvers.clip_residuals import ClipResiduals
from vid2phys.solvers.least_squares import (
    DenseModel,
    Settings,
    minimize,
    student_cost,
    student_weights,
)
from vid2phys.solvers.measurements import Errors, residuals
from vid2phys.solvers.multi_clip import Dense
from vid2phys.solvers.problem import Knots, Problem, rollout_controls, stable_substeps
from vid2phys.solvers.shooting import FINE_STEP_S, solved, whitening
from vid2phys.types import Array, Parameters

_RATE = 15.0  # 1/s: prior of the first rates, in spreads of the configuration
_STEP = 1e-3  # of differences: in spreads of the configuration, of a parameter's logarithm, or of its value
_LEAST_STEP = 1e-6  # of differences by a parameter that is fitted as it is, in SI
SHARES = (0.1, 0.25, 0.5, 1.0)
_TOLERANCE = 1e-5
_ROUNDS = 3  # of descents to the clip as a whole; each weights points by the motion of the one before
_MOST_HALVINGS = 4  # of integration steps, where a motion cannot be computed
_MOST_NUMBERS = 5000  # of a clip as a whole; of longer clips every second frame counts, or every third


@dataclass(frozen=True)
class ConfigurationSolution:
    """A fit at the frames of the clip.

    states [F, N]; start [2 D], configuration and rates at the first frame; controls [F - 1, M]; parameters: all, with
    fitted values; theta_covariance [P, P] and null_directions [*, P] in solver coordinates; state_covariance [F, D, D]
    in the tangent space, None for bodies of many vertices. misfit: root mean square of whitened residuals, 1 where the
    model explains what was seen. theta_parts: what the diagonal of theta_covariance is made of, [P] each
    (`interval_parts`).
    """

    states: Array
    start: Array
    controls: Array
    parameters: Parameters
    theta_covariance: Array
    null_directions: Array
    state_covariance: Array | None
    iterations: int
    converged: bool
    loss: float
    misfit: float
    theta_parts: dict[str, Array] = field(default_factory=dict)


_MOST_STATES = 200  # for which a solution has the covariance


@dataclass(frozen=True)
class _Setup:
    problem: Problem
    body: ArticulatedBody
    knots: Knots
    controls: Array  # [T - 1, M]
    roots: Array  # [F, N, N], whitening of a frame's measurements
    count: Array  # [F] numbers that were measured, at least 1
    substeps: int
    scale: Array  # [U] of a unit of the unknowns: configuration, rates, parameters in solver coordinates
    step: Array  # [U] of differences, in units of `scale`; smaller than the prior of a parameter
    whole: ClipResiduals | None = None  # residuals of the clip as a whole, None for single frames


@dataclass(frozen=True)
class _Point:
    """starts: [G, 2 D] configuration and rates of each clip. theta: [P] parameters in solver coordinates."""

    starts: Array
    theta: Array

    def of(self, clip: int) -> Array:
        """Return the unknowns [U] of one clip."""
        return np.concatenate([self.starts[clip], self.theta])


def solve(
    problem: Problem, body: ArticulatedBody, configuration: Array, rates: Array, *, iterations: int = 25
) -> ConfigurationSolution:
    """Fit one clip from a configuration [D] at the first frame and its rates [D] per second: see `solve_clips`."""
    return solve_clips([problem], body, [np.concatenate([configuration, rates])], iterations=iterations)[0]


def solve_clips(
    problems: Sequence[Problem],
    body: ArticulatedBody,
    starts: Sequence[Array],
    *,
    iterations: int = 25,
    shares: Sequence[float] = SHARES,
) -> list[ConfigurationSolution]:
    """Fit configurations, rates and the parameters that all clips of a body share.

    starts: configuration and rates [2 D] at the first frame of each clip. shares: of the clip that are fitted one after
    another, fewer where the motion is nearly right from the first to the last frame. problem.actions: what drives the
    body. Priors are those of the first problem. Raises UsageError without any actions; SimulationError when the motion
    cannot be computed where the fit begins.
    """
    setups = [_setup(problem, body) for problem in problems]
    point = _Point(np.array(starts), problems[0].parameters.free_vector())
    setups, point, used, converged = _grown(setups, point, shares, iterations)
    for _ in range(_ROUNDS):
        setups = [_as_a_whole(setup, point.of(clip)) for clip, setup in enumerate(_stable(setups, point))]
        clips = _Clips(setups, 1.0)
        found = minimize(clips, point, Settings(iterations, _TOLERANCE))
        setups, point, used, converged = clips.setups, found.point, used + found.iterations, found.converged
    return _solutions(setups, point, used, converged)


def _grown(
    setups: list[_Setup], begin: _Point, shares: Sequence[float], iterations: int
) -> tuple[list[_Setup], _Point, int, bool]:
    """Descend to growing shares of the clip. Return the setups, the point, the iterations and whether they converged.

    Where the shortest share leads to a motion that cannot be computed, it is left out: a few frames of a body that
    hardly moves agree with any stiffness.
    """
    point, used, converged = begin, 0, True
    try:
        for share in shares:
            clips = _Clips(setups, share)
            found = minimize(clips, point, Settings(iterations, _TOLERANCE))
            setups, point, used, converged = clips.setups, found.point, used + found.iterations, found.converged
    except SimulationError:
        if len(shares) == 1:
            raise
        return _grown(setups, begin, shares[1:], iterations)
    return setups, point, used, converged


def with_error_models(
    problems: Sequence[Problem], body: ArticulatedBody, fitted: Sequence[ConfigurationSolution]
) -> list[ConfigurationSolution]:
    """Return fits of all clips with the intervals that other error models of the same frames imply."""
    point = _Point(np.stack([each.start for each in fitted]), fitted[0].parameters.free_vector())
    setups = _stable([_setup(problem, body) for problem in problems], point)
    setups = [_as_a_whole(setup, point.of(clip)) for clip, setup in enumerate(setups)]
    return _solutions(setups, point, fitted[0].iterations, fitted[0].converged)


def states_at_frames(problem: Problem, body: ArticulatedBody, unknowns: Array) -> Array:
    """Return states [B, F, N] at the frames of motions, NaN for motions that cannot be computed.

    unknowns: [B, 2 D + P], configurations, their rates, and parameters in solver coordinates.
    """
    setup, frames = _setup(problem, body), len(problem.observation.times_s)
    each = []
    for row in unknowns:
        point = _Point(row[None, : 2 * len(body.rest)], row[2 * len(body.rest) :])
        try:
            each.append(_rollouts(_stable([setup], point)[0], row[None], frames)[0][setup.knots.frame_knot])
        except (SimulationError, UsageError, np.linalg.LinAlgError):
            each.append(np.full((frames, len(problem.system.state_names)), np.nan))
    return np.array(each)


def _setup(problem: Problem, body: ArticulatedBody) -> _Setup:
    if problem.actions is None:
        raise UsageError("no actions", "what drives the body", "give --actions")
    problem = replace(problem, body=body)
    knots = Knots.of(problem.observation.times_s, min(problem.max_step_s, FINE_STEP_S))
    priors, names = problem.priors, problem.parameters.free_names
    scale = np.concatenate([body.prior_std, _RATE * body.prior_std, np.ones(len(names))])
    spread = [min(1.0, priors[name][1]) if name in priors else 1.0 for name in names]
    step = _STEP * np.concatenate([np.ones(2 * len(body.rest)), spread])
    controls, substeps = rollout_controls(problem, knots), stable_substeps(problem, knots)
    count = np.maximum(Errors.of(problem.observation).used.sum(axis=1), 1.0)
    return _Setup(problem, body, knots, controls, whitening(problem), count, substeps, scale, step)


def _as_a_whole(setup: _Setup, unknowns: Array) -> _Setup:
    """Return the setup with residuals of the clip as a whole, weighted by the motion of the unknowns [U]."""
    problem, seen = setup.problem, setup.problem.observation
    every = int(np.ceil(Errors.of(seen).used.sum() / _MOST_NUMBERS))
    counted = np.arange(len(seen.times_s)) % max(1, every) == 0
    parameters = problem.parameters.fitted_at(unknowns[2 * len(setup.body.rest) :])
    thinned = seen.without(~counted)
    states = _rollouts(setup, unknowns[None], len(seen.times_s))[0][setup.knots.frame_knot]
    whole = ClipResiduals.about(replace(problem, parameters=parameters, observation=thinned), states)
    return replace(setup, whole=whole)


def _stable(setups: Sequence[_Setup], point: _Point) -> list[_Setup]:
    """Return setups with steps as short as the parameters need, which may be far from those of the start."""
    parameters = setups[0].problem.parameters.fitted_at(point.theta)
    wanted = [stable_substeps(replace(s.problem, parameters=parameters), s.knots) for s in setups]
    return [replace(s, substeps=n) if n > s.substeps else s for s, n in zip(setups, wanted, strict=True)]


def _frames(setup: _Setup, share: float) -> int:
    count = len(setup.problem.observation.times_s)
    return min(count, max(5, int(np.ceil(share * count))))


def _rollouts(setup: _Setup, unknowns: Array, frames: int) -> Array:
    """Return states [B, T, N] up to the given frame, from unknowns [B, U]."""
    problem, size = setup.problem, len(setup.body.rest)
    last = int(setup.knots.frame_knot[frames - 1])
    starts = setup.body.states(unknowns[:, :size], unknowns[:, size : 2 * size])
    fitted = [problem.parameters.fitted_at(row[2 * size :]) for row in unknowns]
    parameters = np.stack([camera_parameters.system_vector(each) for each in fitted])
    controls = np.broadcast_to(setup.controls[:last], (len(unknowns), last, setup.controls.shape[1]))
    return simulate(problem.system, starts, controls, parameters, setup.knots.step_s[:last], substeps=setup.substeps)


def _white(setup: _Setup, unknowns: Array, states: Array, frames: int) -> Array:
    """Return whitened predicted minus measured numbers [B, F, N], or [B, 1, R] of a clip as a whole.

    unknowns: [B, U]. states: [B, T, N], theirs at the knots.
    """
    problem, size = setup.problem, 2 * len(setup.body.rest)
    at_frames = states[:, setup.knots.frame_knot[:frames]]
    fitted = [problem.parameters.fitted_at(row[size:]) for row in unknowns]
    off = np.stack([residuals(problem, p, each) for p, each in zip(fitted, at_frames, strict=True)])
    if setup.whole is not None:
        return setup.whole.whitened(off)[:, None]
    return np.einsum("fij,bfj->bfi", setup.roots[:frames], np.nan_to_num(off, nan=1.0))


def _weights(setup: _Setup, white: Array, frames: int) -> tuple[Array, float]:
    """Return the Student-t weight of each frame [F], and the cost without priors.

    Residuals of a clip as a whole are weighted already.
    """
    if setup.whole is not None:
        return np.ones(1), 0.5 * float((white**2).sum())
    count = setup.count[:frames]
    share = (white**2).sum(axis=-1) / count
    return student_weights(share), student_cost(share, count)


def _prior(setup: _Setup, unknowns: Array) -> Array:
    """Return how far configuration and rates are from their prior, in standard deviations [U]; zero for parameters."""
    size = len(setup.body.rest)
    usual = np.concatenate([setup.body.prior_mean, np.zeros(size)])
    return np.concatenate(
        [(unknowns[: 2 * size] - usual) / setup.scale[: 2 * size], np.zeros(len(unknowns) - 2 * size)]
    )


def _prior_of_parameters(setups: Sequence[_Setup], point: _Point) -> tuple[Array, Array]:
    """See `Problem.prior`; that of the first clip counts."""
    problem = setups[0].problem
    return problem.prior(problem.parameters.free_names, point.theta)


def _cost(setups: Sequence[_Setup], point: _Point, share: float) -> float:
    off, _ = _prior_of_parameters(setups, point)
    total = 0.5 * float(off @ off)
    for clip, setup in enumerate(setups):
        unknowns, frames = point.of(clip), _frames(setup, share)
        white = _white(setup, unknowns[None], _rollouts(setup, unknowns[None], frames), frames)[0]
        total += _weights(setup, white, frames)[1] + 0.5 * float((_prior(setup, unknowns) ** 2).sum())
    return total


@dataclass(frozen=True)
class _Part:
    """A clip's cost, gradient [U] and information [U, U] in units of `scale`, states [T, N], their differences
    [U, T, N], the sum of weighted squared residuals with their number, and derivatives [U, R] of the whitened ones."""

    cost: float
    gradient: Array
    information: Array
    states: Array
    slopes: Array
    squares: float
    count: float
    white: Array


def _linearized(setup: _Setup, unknowns: Array, share: float) -> _Part:
    frames, count = _frames(setup, share), len(unknowns)
    ahead, behind = _moved_by_steps(setup, unknowns)
    moved = np.concatenate([unknowns[None], ahead, behind])
    states = _rollouts(setup, moved, frames)
    white = _white(setup, moved, states, frames)
    per_scale = (setup.scale / np.diagonal(ahead - behind))[:, None, None]
    slope = per_scale * (white[1 : 1 + count] - white[1 + count :])
    weights, cost = _weights(setup, white[0], frames)
    prior = np.zeros(len(unknowns))
    prior[: 2 * len(setup.body.rest)] = 1.0
    off = _prior(setup, unknowns)
    gradient = np.einsum("ufi,fi,f->u", slope, white[0], weights) + off
    information = np.einsum("ufi,f,vfi->uv", slope, weights, slope, optimize=True) + np.diag(prior)
    squares = float((weights[:, None] * white[0] ** 2).sum())
    seen = float(setup.count[:frames].sum() if setup.whole is None else white.shape[-1])
    cost += 0.5 * float((off**2).sum())
    slopes = per_scale * (states[1 : 1 + count] - states[1 + count :])
    return _Part(cost, gradient, information, states[0], slopes, squares, seen, slope.reshape(count, -1))


def _moved_by_steps(setup: _Setup, unknowns: Array) -> tuple[Array, Array]:
    """Return the unknowns [U, U] with one of them moved ahead in each row, and behind; parameters within their bounds.

    Differences to both sides are exact enough to show parameters that the motion does not tell apart.
    """
    size, parameters = 2 * len(setup.body.rest), setup.problem.parameters
    steps = setup.step * setup.scale
    relative = np.clip(_STEP * np.abs(unknowns[size:]), _LEAST_STEP, _STEP)
    is_log = np.array([p.transform == "log" for p in parameters if p.free], dtype=bool)
    steps[size:] = np.minimum(steps[size:], np.where(is_log, _STEP, relative))
    low, high = np.full(len(unknowns), -np.inf), np.full(len(unknowns), np.inf)
    low[size:], high[size:] = parameters.free_bounds
    ahead, behind = np.minimum(unknowns + steps, high), np.maximum(unknowns - steps, low)
    return unknowns + np.diag(ahead - unknowns), unknowns + np.diag(behind - unknowns)


def _joined(setups: Sequence[_Setup], point: _Point, parts: Sequence[_Part]) -> Dense:
    """Return the normal equations of all clips, with the priors of the parameters."""
    dense = Dense.of([part.gradient for part in parts], [part.information for part in parts], len(point.theta))
    off, precision = _prior_of_parameters(setups, point)
    dense.gradient[dense.starts :] += off * np.sqrt(precision)
    dense.information[dense.starts :, dense.starts :] += np.diag(precision)
    return dense


def _computed(setups: Sequence[_Setup], point: _Point, share: float) -> tuple[list[_Setup], list[_Part]]:
    """Return linear models of clips, with steps as short as they need.

    A stiff body whose measurements err a little swings faster than it ever did. Raises SimulationError where even much
    shorter steps do not help.
    """
    finer, parts = list(setups), []
    for clip in range(len(finer)):
        for halved in range(_MOST_HALVINGS + 1):
            try:
                parts.append(_linearized(finer[clip], point.of(clip), share))
                break
            except SimulationError:
                if halved == _MOST_HALVINGS:
                    raise
                finer[clip] = replace(finer[clip], substeps=2 * finer[clip].substeps)
    return finer, parts


@dataclass
class _Clips(least_squares.Problem[_Point]):
    """All clips, each to a share of its frames. setups: with steps as short as the latest linear model takes."""

    setups: list[_Setup]
    share: float

    def cost(self, point: _Point) -> float:
        """See `least_squares.Problem.cost`."""
        try:
            return _cost(self.setups, point, self.share)
        except (SimulationError, UsageError):  # beyond what the engine can compute: a shorter step
            return np.inf

    def linearize(self, point: _Point) -> DenseModel[_Point]:
        """See `least_squares.Problem.linearize`."""
        self.setups, parts = _computed(_stable(self.setups, point), point, self.share)
        off, _ = _prior_of_parameters(self.setups, point)
        cost = sum(part.cost for part in parts) + 0.5 * float(off @ off)
        normal = _joined(self.setups, point, parts).normal
        return DenseModel(cost, normal, partial(_moved, self.setups[0], point))


def _moved(setup: _Setup, point: _Point, step: Array) -> _Point:
    """Return the point after a step in units of `scale`, configurations and parameters within their limits."""
    size, shared = len(setup.body.rest), step[point.starts.size :]
    starts = point.starts + setup.scale[: 2 * size] * step[: point.starts.size].reshape(point.starts.shape)
    starts[:, :size] = np.clip(starts[:, :size], setup.body.lower, setup.body.upper)
    return _Point(starts, setup.problem.parameters.fitted_at(point.theta + shared).free_vector())


def _solutions(
    setups: Sequence[_Setup], point: _Point, iterations: int, converged: bool
) -> list[ConfigurationSolution]:
    setups, parts = _computed(_stable(setups, point), point, 1.0)
    dense, parameters = _joined(setups, point, parts), setups[0].problem.parameters
    null, full = solved(dense, setups[0].problem.prior_precision(parameters.free_names))
    loss, size = _cost(setups, point, 1.0), point.starts.shape[1]
    unknown = sum(each.count for each in parts) - len(dense.gradient)
    # unexplained residuals widen the covariance, and so do errors that last for the whole clip
    lasting = max(float(setup.problem.observation.swing_scale) for setup in setups)
    spread = lasting**2 * max(1.0, sum(each.squares for each in parts) / max(1.0, unknown))
    of_theta = _theta_parts(setups, dense, parts, full)
    if of_theta:
        of_theta[interval_parts.MISFIT] = (spread - 1.0) * np.diagonal(null.covariance)
    solutions = []
    for clip, (setup, part) in enumerate(zip(setups, parts, strict=True)):
        knots, covariance = setup.knots, None
        slopes = part.slopes[:, knots.frame_knot]
        if slopes.shape[2] <= _MOST_STATES:
            own = dense.block(clip, size, full)
            covariance = spread * np.einsum("ufi,uv,vfj->fij", slopes, own, slopes, optimize=True)
        solutions.append(
            ConfigurationSolution(
                part.states[knots.frame_knot],
                point.starts[clip],
                knots.frame_means(setup.controls),
                parameters.fitted_at(point.theta),
                spread * null.covariance,
                null.directions,
                covariance,
                iterations,
                converged,
                loss,
                float(np.sqrt(part.squares / max(1.0, part.count - size - len(point.theta)))),
                of_theta,
            )
        )
    return solutions


def _theta_parts(setups: Sequence[_Setup], dense: Dense, parts: Sequence[_Part], full: Array) -> dict[str, Array]:
    """Return what the variances of the parameters are made of, [P] each; nothing for fits to single frames.

    full: [U, U] covariance of all unknowns.
    """
    of_theta, size = full[dense.starts :], dense.starts // len(setups)
    known = setups[0].problem.prior_precision(setups[0].problem.parameters.free_names)
    # the start of a clip has a prior of unit precision
    of_priors = of_theta[:, dense.starts :] ** 2 @ known + (of_theta[:, : dense.starts] ** 2).sum(axis=1)
    total = {interval_parts.PRIOR: of_priors}
    for clip, (setup, part) in enumerate(zip(setups, parts, strict=True)):
        if setup.whole is None:
            return {}
        mine = np.concatenate([of_theta[:, clip * size : (clip + 1) * size], of_theta[:, dense.starts :]], axis=1)
        for name, variances in setup.whole.variances(mine @ part.white).items():
            total[name] = total.get(name, 0.0) + variances
    return total

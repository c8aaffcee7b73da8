"""The model of a fit to recordings: rollouts of all of them in one batch, residuals, and the normal equations.

Method: recordings share the parameters and the sensors' zeros; each has its own first state. The blocks of an arrow are
eliminated recording by recording. Derivatives are central differences.

Limits: two rollouts of all recordings for each unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.rollout import simulate
from vid2phys.engine.system import System, check_scheme, is_implicit
from vid2phys.errors import InputError, UsageError, unknown_name
from vid2phys.solvers.least_squares import student_cost, student_weights
from vid2phys.types import Array, Parameter, Parameters

Indices = NDArray[np.int64]
LEAST_ROWS = 5
_STABLE = 0.5  # of the longest stable step of explicit integrators
_STEP = 1e-4  # of differences by parameters, in solver coordinates over their size
_SHARE = 0.1  # of differences by starts and offsets, of their scale
_PADDING_S = 1e-6  # of the intervals that follow a recording shorter than the longest


@dataclass(frozen=True)
class Recording:
    """The recording of one motion.

    times_s: [T]. seen: states [T, N] in the system's layout, or with `points_body` [K, 3] m the positions of markers
    there, [T, K, 3] m in the world; NaN where nothing was measured. std: one standard deviation of the independent
    errors, [D] in the tangent space of a state, or one number [m] for markers; its scale is fitted. start: a first
    state [N] near the true one (None: the first state measured). start_std: [D] how far that may be off in the tangent
    space, 0 where it is known and inf where nothing is (None: inf). controls: [T - 1, M], None for those that hold the
    system at rest.
    """

    times_s: Array
    seen: Array
    std: Array
    start: Array | None = None
    start_std: Array | None = None
    controls: Array | None = None
    points_body: Array | None = None


@dataclass(frozen=True)
class Setup:
    """Recordings prepared for a fit: the unknowns, and one row a recording of what a rollout needs, G in all.

    parameters: with those to fit free. starts: [G, N]. offsets: the O tangent coordinates whose sensors' zeros are
    unknown, offset_scale [O] their units. unknown: the L tangent coordinates of first states that are unknown in any
    recording, start_scale [G, L] their units, start_inverse [G, L] one over their standard deviations beforehand, fixed
    [G, L] those known after all. dt_s: [G, S]. controls: [G, S, M].
    """

    system: System
    parameters: Parameters
    recordings: tuple[Recording, ...]
    starts: Array
    offsets: Indices
    offset_scale: Array
    unknown: Indices
    start_scale: Array
    start_inverse: Array
    fixed: NDArray[np.bool_]
    dt_s: Array
    controls: Array
    max_step_s: float

    @property
    def fitted(self) -> int:
        """Return how many parameters are fitted."""
        return len(self.parameters.free_indices)

    @property
    def longest(self) -> int:
        """Return the frames of the longest recording."""
        return max(len(r.times_s) for r in self.recordings)

    @property
    def first_point(self) -> Point:
        """Return the start of the descent."""
        zeros = np.zeros(len(self.offsets))
        return Point(np.concatenate([self.parameters.free_vector(), zeros]), np.zeros(self.start_scale.shape))

    def values(self, theta: Array) -> Parameters:
        """Return all parameters, the fitted ones moved into their domain."""
        return self.parameters.fitted_at(np.nan_to_num(theta[: self.fitted], posinf=1e12, neginf=-1e12))


@dataclass(frozen=True)
class Point:
    """theta: [P] parameters in solver coordinates, then offsets. starts: [G, L], in units of `Setup.start_scale`."""

    theta: Array
    starts: Array


def set_up(
    system: System,
    parameters: Parameters,
    recordings: tuple[Recording, ...],
    names: tuple[str, ...],
    offsets: tuple[str, ...],
    max_step_s: float,
) -> Setup:
    """Check and lay out. Raises UsageError for unknown names, InputError for what does not belong together."""
    if not recordings:
        raise UsageError("no recordings", "one or more", "give them")
    for known, asked, kind in ((parameters.names, names, "parameter"), (system.tangent_names, offsets, "coordinate")):
        for name in asked:
            if name not in known:
                raise unknown_name(kind, name, known)
    for number, recording in enumerate(recordings):
        _check(system, recording, number)
    size, hold = len(system.tangent_names), system.hover_controls(parameters.vector)
    steps = max(len(r.times_s) for r in recordings) - 1
    dt_s = np.full((len(recordings), steps), _PADDING_S)
    controls = np.broadcast_to(hold, (len(recordings), steps, len(hold))).copy()
    for g, r in enumerate(recordings):
        dt_s[g, : len(r.times_s) - 1] = np.diff(r.times_s)
        if r.controls is not None:
            controls[g, : len(r.controls)] = r.controls
    before = [np.inf if r.start_std is None else r.start_std for r in recordings]
    unsure = np.array([np.broadcast_to(np.asarray(b, dtype=float), size) for b in before])
    errors = [r.std if r.points_body is None else 1.0 for r in recordings]
    scale = np.minimum(np.array([np.broadcast_to(np.asarray(e, dtype=float), size) for e in errors]), unsure)
    unknown = np.flatnonzero((unsure > 0.0).any(axis=0))
    fixed = unsure[:, unknown] == 0.0
    index = np.array([system.tangent_names.index(name) for name in offsets], dtype=np.int64)
    return Setup(
        system=system,
        parameters=parameters.with_free(tuple(dict.fromkeys(names))),
        recordings=recordings,
        starts=np.array([_first_state(system, r) for r in recordings]),
        offsets=index,
        offset_scale=np.broadcast_to(np.asarray(errors[0], dtype=float), size)[index],
        unknown=unknown,
        start_scale=np.where(fixed, 1.0, scale[:, unknown]),
        start_inverse=1.0 / np.where(fixed, np.inf, unsure[:, unknown]),
        fixed=fixed,
        dt_s=dt_s,
        controls=controls,
        max_step_s=max_step_s,
    )


def _check(system: System, recording: Recording, number: int) -> None:
    """Raises InputError for shapes that do not belong together."""
    frames, states = len(recording.times_s), len(system.state_names)
    shape = (frames, states) if recording.points_body is None else (frames, *np.shape(recording.points_body))
    if np.shape(recording.seen) != shape:
        known = f"see `vid2phys systems {system.name}` for the states"
        raise InputError(f"recording {number} holds an array of shape {np.shape(recording.seen)}", str(shape), known)
    if frames < LEAST_ROWS or not (np.diff(recording.times_s) > 0.0).all():
        raise InputError(f"recording {number} has {frames} frames", f"at least {LEAST_ROWS}, at increasing times")
    if recording.controls is not None and len(recording.controls) != frames - 1:
        raise InputError(f"recording {number} has {len(recording.controls)} controls", f"{frames - 1}, one an interval")


def _first_state(system: System, recording: Recording) -> Array:
    if recording.start is not None:
        return np.asarray(recording.start, dtype=float)
    if recording.points_body is None and np.isfinite(recording.seen[0]).all():
        return np.asarray(recording.seen[0], dtype=float)
    raise InputError("a recording whose first state was not seen", "a first state", "give Recording(start=...)")


def substeps_of(setup: Setup, points: Sequence[Point], frames: int) -> int:
    """Return the steps of each interval in rollouts of `frames`: as short as the stiffest parameters want them."""
    rows = np.unique([setup.values(point.theta).vector for point in points], axis=0)
    longest = setup.max_step_s
    if not is_implicit(check_scheme(setup.system, None, 1)):
        longest = min(longest, *(_STABLE * setup.system.longest_step_s(row) for row in rows))
    return max(1, int(np.ceil(setup.dt_s[:, : frames - 1].max() / longest - 1e-6)))


def rollouts(setup: Setup, points: Sequence[Point], frames: int) -> Array:
    """Return states [points, G, frames, N]; all in one batch."""
    many, count = len(points), len(setup.recordings)
    rows = np.array([setup.values(point.theta).vector for point in points])
    tangents = np.zeros((many, count, len(setup.system.tangent_names)))
    tangents[..., setup.unknown] = np.array([point.starts for point in points]) * setup.start_scale
    starts = setup.system.retract(setup.starts, tangents).reshape(many * count, -1)
    dt_s = np.tile(setup.dt_s[:, : frames - 1], (many, 1))
    controls = np.tile(setup.controls[:, : frames - 1], (many, 1, 1))
    substeps = substeps_of(setup, points, frames)
    states = simulate(setup.system, starts, controls, np.repeat(rows, count, axis=0), dt_s, substeps=substeps)
    return states.reshape(many, count, frames, -1)


def residuals_of(setup: Setup, points: Sequence[Point], frames: int) -> tuple[Array, list[Array]]:
    """Return states [points, G, frames, N] and the residuals of each recording [points, T, Q].

    Residuals are predicted minus measured over the standard deviation, NaN where nothing was measured.
    """
    states = rollouts(setup, points, frames)
    shifts = np.array([point.theta[setup.fitted :] for point in points])
    return states, [_residual(setup, g, states[:, g], shifts) for g in range(len(setup.recordings))]


def _residual(setup: Setup, g: int, states: Array, shifts: Array) -> Array:
    recording, system = setup.recordings[g], setup.system
    seen = recording.seen[: states.shape[1]]
    states = states[:, : len(seen)]
    if recording.points_body is not None:
        off = (system.keypoints(states, recording.points_body) - seen) / recording.std
        return np.asarray(off.reshape(*states.shape[:2], -1), dtype=float)
    if len(setup.offsets):
        tangents = np.zeros((len(states), 1, len(system.tangent_names)))
        tangents[:, 0, setup.offsets] = shifts
        states = system.retract(states, tangents)
    return np.asarray(system.local(seen, states) / recording.std, dtype=float)


def mean_squares(residual: Array) -> tuple[Array, Array]:
    """Return the mean square [..., T] of each frame's residuals, and their number."""
    seen = np.isfinite(residual)
    count = seen.sum(axis=-1)
    return (np.where(seen, residual, 0.0) ** 2).sum(axis=-1) / np.maximum(count, 1), count


def scale_of(residuals: list[Array]) -> float:
    """Return the robust size of the first point's residuals."""
    shares = [mean_squares(r[0]) for r in residuals]
    mean, count = (np.concatenate([s[i] for s in shares]) for i in (0, 1))
    return float(max(np.sqrt(np.median(mean[count > 0])), 1e-12))


def cost_of(setup: Setup, point: Point, residuals: list[Array], scale: float) -> float:
    """Return what the descent lowers: Student's t of frames, and the priors of the starts."""
    total = 0.5 * float(((point.starts * setup.start_scale * setup.start_inverse) ** 2).sum())
    for residual in residuals:
        mean, count = mean_squares(residual[0])
        total += student_cost(mean / scale**2, count)
    return total


@dataclass(frozen=True)
class Normal:
    """Blocks of the normal equations of the P shared unknowns and of starts in units of `Setup.start_scale`.

    cost: of the point. gradient [P], information [P, P], start_gradient [G, L], start_information [G, L, L], mixed
    [G, L, P]. scores: the frames' parts of the gradient, [T, P + L] of each recording.
    """

    cost: float
    gradient: Array
    information: Array
    start_gradient: Array
    start_information: Array
    mixed: Array
    scores: tuple[Array, ...]


def linearized(setup: Setup, point: Point, frames: int, scale: float) -> Normal:
    """Return the normal equations at a point."""
    shared, size = len(point.theta), point.starts.shape[1]
    points, widths = _difference_points(setup, point)
    _, residuals = residuals_of(setup, [point, *points], frames)
    units = setup.start_scale * setup.start_inverse
    gradient, information, scores = np.zeros(shared), np.zeros((shared, shared)), []
    start_gradient, start_information = units**2 * point.starts, np.zeros((len(residuals), size, size))
    mixed = np.zeros((len(residuals), size, shared))
    for g, residual in enumerate(residuals):
        weights = student_weights(mean_squares(residual[0])[0] / scale**2) / scale**2
        ahead, behind = np.split(residual[1:], 2)
        slopes = np.nan_to_num((ahead - behind) / widths[:, None, None])
        slopes[shared:][setup.fixed[g]] = 0.0
        score = np.einsum("utq,tq,t->tu", slopes, np.nan_to_num(residual[0]), weights, optimize=True)
        full = np.einsum("utq,vtq,t->uv", slopes, slopes, weights, optimize=True)
        gradient += score[:, :shared].sum(axis=0)
        information += full[:shared, :shared]
        start_gradient[g] += score[:, shared:].sum(axis=0)
        start_information[g] = full[shared:, shared:] + np.diag(units[g] ** 2 + setup.fixed[g])
        mixed[g] = full[shared:, :shared]
        scores.append(score)
    cost = cost_of(setup, point, residuals, scale)
    return Normal(cost, gradient, information, start_gradient, start_information, mixed, tuple(scores))


def _difference_points(setup: Setup, point: Point) -> tuple[list[Point], Array]:
    """Return each unknown moved ahead, then each moved behind, and the distances between the two, [P + L]."""
    shared, size = len(point.theta), point.starts.shape[1]
    free = [p for p in setup.parameters if p.free]
    steps = [_STEP * _size(p, float(t)) for p, t in zip(free, point.theta, strict=False)]
    steps += list(_SHARE * setup.offset_scale)
    points, ends = [], []
    for sign in (1.0, -1.0):
        moved = [replace(point, theta=point.theta + sign * step * np.eye(shared)[j]) for j, step in enumerate(steps)]
        points += moved + [replace(point, starts=point.starts + sign * _SHARE * row) for row in np.eye(size)]
        ends.append([_reached(setup, free, there.theta, j) for j, there in enumerate(moved)])
    widths = np.concatenate([np.array(ends[0]) - np.array(ends[1]), np.full(size, 2.0 * _SHARE)])
    return points, np.maximum(widths, 1e-300)


def _reached(setup: Setup, free: list[Parameter], theta: Array, j: int) -> float:
    """Return where unknown j is, in solver coordinates, after a step that a bound may have cut."""
    return free[j].to_free(setup.values(theta)[free[j].name].value) if j < len(free) else float(theta[j])


def _size(parameter: Parameter, there: float) -> float:
    """Return the size of a parameter in solver coordinates: 1 of logarithms, else its value.

    At zero it is a share of the first value.
    """
    if parameter.transform == "log":
        return 1.0
    return max(abs(there), 0.1 * abs(parameter.value), 1e-6)


def reduced(normal: Normal) -> tuple[Array, Array, Array]:
    """Return Schur complement and gradient of the shared unknowns, and the starts' gains [G, L, P]."""
    gains = np.asarray(np.linalg.solve(regular(normal.start_information), normal.mixed), dtype=float)
    schur = normal.information - np.einsum("glp,glq->pq", normal.mixed, gains)
    gradient = normal.gradient - np.einsum("glp,gl->p", gains, normal.start_gradient)
    return np.asarray(0.5 * (schur + schur.T), dtype=float), gradient, gains


def regular(blocks: Array) -> Array:
    """Return blocks with a little on the diagonal: what a recording does not tell of its start stays."""
    diagonal = np.einsum("gll->gl", blocks)
    return np.asarray(blocks + np.eye(blocks.shape[1]) * (1e-9 * np.maximum(diagonal, 1e-6))[:, None, :], dtype=float)

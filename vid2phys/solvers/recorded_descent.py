"""The descent of a fit to recordings: its starts, its growing horizon, and when it is given up.

Method: least squares (`least_squares`) over a horizon that grows from a tenth of the recordings to all. A fit that
leaves much of the motion unexplained begins again. The recordings are cut into short pieces, each with a first state of
its own, and the parameters of the pieces are the new start (multiple shooting: Bock, "Recent advances in parameter
identification techniques for O.D.E.", 1983). Pieces are tried from several first values of the parameters.

Limits: a limit on time, kept to within one batch of rollouts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from vid2phys.errors import SimulationError, UsageError
from vid2phys.solvers import least_squares
from vid2phys.solvers.least_squares import Minimum, Settings, minimize
from vid2phys.solvers.recorded_model import (
    LEAST_ROWS,
    Normal,
    Point,
    Recording,
    Setup,
    cost_of,
    linearized,
    reduced,
    regular,
    residuals_of,
    scale_of,
    set_up,
    substeps_of,
)
from vid2phys.solvers.recorded_start import first_state, reference_state
from vid2phys.types import Array, Parameters

_SHARES = (0.1, 0.25, 0.5, 1.0)
_PIECE_SHARES = (0.1, 0.25)
_LEAST_PIECE = 12  # frames: a parabola at the start, and as many again
_ROUGH, _FINE = 1e-3, 1e-6  # gain, as a share of the cost, at which a descent ends, and at which the last one does
_PATIENT = 5  # times as many iterations for the last descent: valleys are long where little is determined
_MOST_STEPS = 30_000  # of integration in a rollout: half a second
_STIFFER = 4  # factor of the first parameters' steps that is tried in any case
_POOR, _FAILED = (
    0.02,
    0.05,
)  # shares of the motion unexplained, above which other starts are tried, and a fit has failed
_NOISY = 3.0  # largest misfit of noise
_MOST_GUESSES = 2  # starts from pieces that are refined
_FACTORS = (1.0, 0.25, 4.0, 1.0 / 16.0, 16.0)  # factors of logarithmic parameters from which pieces are tried


class Limits:
    """Limits of a fit: seconds in all, and steps of integration an interval.

    Parameters that are too stiff are not tried: a rollout would take too long.
    """

    def __init__(self, setup: Setup, most_seconds: float) -> None:
        self._end = time.monotonic() + most_seconds
        first = substeps_of(setup, [setup.first_point], setup.longest)
        self.substeps = max(_STIFFER * first, _MOST_STEPS // setup.longest)

    @property
    def over(self) -> bool:
        """Return whether the time has run out."""
        return time.monotonic() >= self._end


@dataclass(frozen=True)
class Descent:
    """The end of a descent. misfit: robust size of all residuals. unexplained: their share of the motion.

    iterations: those used so far. converged: whether the last descent ended by itself.
    """

    point: Point
    misfit: float
    unexplained: float
    iterations: int
    converged: bool

    @property
    def failed(self) -> bool:
        """Return whether much of the motion is not explained."""
        return self._noisy and self.unexplained > _FAILED

    @property
    def poor(self) -> bool:
        """Return whether another descent may explain more."""
        return self._noisy and (self.unexplained > _POOR or not self.converged)

    @property
    def _noisy(self) -> bool:
        """Return whether what is left is more than noise."""
        return self.misfit > _NOISY


def search(setup: Setup, iterations: int, limits: Limits) -> Descent:
    """Return the best of the descents from the first point and, as long as none explains the motion, from pieces."""
    best = _growing(setup, setup.first_point, iterations, limits)
    for first in _guesses(setup, iterations, limits) if best.poor else ():
        found = _growing(setup, first, iterations, limits)
        used = best.iterations + found.iterations
        best = replace(min(best, found, key=lambda each: each.misfit), iterations=used)
        if limits.over or not best.poor:
            break
    return best


def _growing(setup: Setup, point: Point, iterations: int, limits: Limits) -> Descent:
    """Descend over a growing part of the recordings, over all at once where the point explains the motion already."""
    used, converged = 0, False
    shares = _SHARES if _left(setup, point)[1] > _POOR else ()
    stages = (*((share, _ROUGH, iterations) for share in shares), (1.0, _FINE, _PATIENT * iterations))
    for share, tolerance, most in stages:
        frames = min(setup.longest, max(LEAST_ROWS, int(np.ceil(share * setup.longest))))
        try:
            found = _descend(setup, point, frames, tolerance, most, limits)
        except SimulationError:  # the longer horizon is beyond what the engine can compute from there
            converged = False
            break
        point, used, converged = found.point, used + found.iterations, found.converged
    misfit, unexplained = _left(setup, point)
    return Descent(point, misfit, unexplained, used, converged)


def _guesses(setup: Setup, iterations: int, limits: Limits) -> list[Point]:
    """Return first points whose parameters explain short pieces of the recordings, the best one first."""
    if any(recording.points_body is not None for recording in setup.recordings):
        return []
    found = [_of_pieces(setup, _scaled(setup.parameters, factor), iterations, limits) for factor in _FACTORS]
    zeros = np.zeros(len(setup.offsets))
    return [
        replace(setup.first_point, theta=np.concatenate([parameters.free_vector(), zeros]))
        for _, parameters in sorted(found, key=lambda each: each[0])[:_MOST_GUESSES]
    ]


def _of_pieces(setup: Setup, parameters: Parameters, iterations: int, limits: Limits) -> tuple[float, Parameters]:
    """Return the misfit of ever longer pieces, and the parameters fitted to them from those given."""
    misfit = np.inf
    for share in _PIECE_SHARES:
        pieces = _pieces(setup, share, parameters)
        try:
            point = _descend(pieces, pieces.first_point, pieces.longest, _ROUGH, iterations, limits).point
        except SimulationError:
            return np.inf, parameters
        misfit, parameters = _left(pieces, point)[0], pieces.values(point.theta)
    return misfit, parameters


def _scaled(parameters: Parameters, factor: float) -> Parameters:
    """Return the parameters with the free ones on a logarithmic scale multiplied, within their domain."""
    scaled = [p for p in parameters if p.free and p.transform == "log"]
    return parameters.with_values({p.name: float(np.clip(factor * p.value, p.lower, p.upper)) for p in scaled})


def _pieces(setup: Setup, share: float, parameters: Parameters) -> Setup:
    """Return the recordings cut into pieces of this share of the longest one."""
    frames = max(_LEAST_PIECE, int(np.ceil(share * setup.longest)))
    pieces = [
        _piece(setup, recording, start, begin, min(begin + frames, len(recording.times_s)))
        for recording, start in zip(setup.recordings, setup.starts, strict=True)
        for begin in range(0, max(1, len(recording.times_s) - frames // 2), frames)
    ]
    names = tuple(p.name for p in parameters if p.free)
    return set_up(setup.system, parameters, tuple(pieces), names, (), setup.max_step_s)


def _piece(setup: Setup, recording: Recording, known: Array, begin: int, end: int) -> Recording:
    part = slice(begin, end)
    controls = None if recording.controls is None else recording.controls[begin : end - 1]
    times, seen = recording.times_s[part], recording.seen[part]
    std = np.broadcast_to(recording.std, len(setup.system.tangent_names))
    start = first_state(setup.system, times, seen, std, known)
    return replace(recording, times_s=times, seen=seen, start=start, controls=controls)


def _left(setup: Setup, point: Point) -> tuple[float, float]:
    """Return the robust size of the residuals, and their share of the motion; infinite where there is no rollout."""
    try:
        residuals = residuals_of(setup, [point], setup.longest)[1]
    except (SimulationError, UsageError):
        return np.inf, np.inf
    misfit = scale_of(residuals)
    return misfit, misfit / scale_of([_moved(setup, recording)[None] for recording in setup.recordings])


def _moved(setup: Setup, recording: Recording) -> Array:
    """Return what was seen [T, Q], less its straight line over time, in standard deviations."""
    seen = recording.seen.reshape(len(recording.seen), -1)
    if recording.points_body is None:
        reference = reference_state(recording.seen, setup.system.rest_state())
        seen = setup.system.local(reference, recording.seen)
    moved = np.full(seen.shape, np.nan)
    for column in range(seen.shape[1]):
        finite = np.isfinite(seen[:, column])
        if finite.sum() > 2:
            line = np.polynomial.Polynomial.fit(recording.times_s[finite], seen[finite, column], 1)
            moved[finite, column] = seen[finite, column] - line(recording.times_s[finite])
    return np.asarray(moved / recording.std, dtype=float)


def _descend(
    setup: Setup, point: Point, frames: int, tolerance: float, iterations: int, limits: Limits
) -> Minimum[Point]:
    """Descend over the first `frames`, with errors of the size that they have at the first point."""
    scale = scale_of(residuals_of(setup, [point], frames)[1])
    settings = Settings(iterations, tolerance)
    return minimize(_Recordings(setup, frames, scale, limits.substeps), point, settings, stop=lambda: limits.over)


@dataclass(frozen=True)
class _Recordings(least_squares.Problem[Point]):
    """The first frames of all recordings. scale: robust size of errors. substeps: most steps of an interval."""

    setup: Setup
    frames: int
    scale: float
    substeps: int

    def cost(self, point: Point) -> float:
        """See `least_squares.Problem.cost`; infinite for what is too stiff, too."""
        if substeps_of(self.setup, [point], self.frames) > self.substeps:
            return np.inf
        try:
            found = cost_of(self.setup, point, residuals_of(self.setup, [point], self.frames)[1], self.scale)
        except (SimulationError, UsageError):  # beyond what the engine can compute: a shorter step
            return np.inf
        return found if np.isfinite(found) else np.inf

    def linearize(self, point: Point) -> _Linear:
        """See `least_squares.Problem.linearize`."""
        normal = linearized(self.setup, point, self.frames, self.scale)
        return _Linear(self.setup, point, normal, normal.cost)


@dataclass
class _Linear(least_squares.Model[Point]):
    """Recordings made linear; their first states are eliminated one by one (`recorded_model.reduced`)."""

    setup: Setup
    point: Point
    normal: Normal
    cost: float

    def step(self, damping: float) -> tuple[Point, float]:
        """See `least_squares.Model.step`."""
        normal, point = self.normal, self.point
        starts = np.maximum(np.einsum("gll->gl", normal.start_information), 1e-12)
        damped = replace(
            normal,
            information=normal.information + damping * np.diag(np.maximum(np.diagonal(normal.information), 1e-12)),
            start_information=normal.start_information + damping * np.eye(starts.shape[1]) * starts[:, None, :],
        )
        schur, gradient, gains = reduced(damped)
        step = -np.linalg.lstsq(schur, gradient, rcond=None)[0] if len(schur) else np.zeros(0)
        separate = -np.linalg.solve(regular(damped.start_information), normal.start_gradient[..., None])[..., 0]
        moved = separate - np.einsum("glp,p->gl", gains, step)
        theta = point.theta + step
        theta[: self.setup.fitted] = self.setup.values(theta).free_vector()
        predicted = -0.5 * float(normal.gradient @ (theta - point.theta) + (normal.start_gradient * moved).sum())
        return Point(theta, point.starts + moved), predicted

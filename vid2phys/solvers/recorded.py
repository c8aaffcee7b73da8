"""Parameters from recorded motion: states or markers that sensors saw, without a camera.

Shooting (design, section 6): every recording is one deterministic rollout from an unknown first state. Levenberg and
Marquardt's descent on robust residuals over a horizon that grows from a tenth of the recordings to all.

Intervals do not take the model for true. What a model leaves unexplained lasts, so that frames do not count as
independent: recordings, or equal parts of them, do. The spread of their scores widens the intervals where those of
independent frames are narrower (Liang and Zeger, "Longitudinal data analysis using generalized linear models", 1986).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t as student_t

from vid2phys.engine.system import System
from vid2phys.errors import SimulationError, UsageError
from vid2phys.solvers import arrow, intervals
from vid2phys.solvers.recorded_model import (
    LEAST_FRAMES,
    Normal,
    Point,
    Setup,
    cost_of,
    linearized,
    mean_squares,
    reduced,
    regular,
    residuals_of,
    rollouts,
    scale_of,
    set_up,
    student_weights,
)
from vid2phys.solvers.recorded_model import Recording as Recording
from vid2phys.solvers.whiteness import MOST_LAGS, Whiteness, whiteness
from vid2phys.types import Array, Estimate, Parameter, Parameters

_SHARES = (0.1, 0.25, 0.5, 1.0)
_ROUGH, _FINE = 1e-3, 1e-6  # gain, as a share of the cost, that a descent ends at, and that the last one ends at
_MOST_DAMPING = 1e8
_PIECES = 8  # that intervals are judged by, at least, and three for each unknown
_MOST_COORDINATES = 200  # of a start whose covariance is given
_LEAST_RECORDINGS = 3  # from which on they are judged by whole recordings too


@dataclass(frozen=True)
class RecordedFit:
    """A fit to recordings.

    parameters: all, with fitted values. estimates: with 95 % intervals. offsets: of the sensors, by tangent coordinate.
    states: [T, N] of each recording, without the sensors' offsets. start_covariance: [G, D, D] of the first states, in
    their tangent spaces, were the parameters known. residuals: predicted minus seen over the standard
    deviation given, [T, Q] of each. misfit: their robust size, 1 where the model explains what was seen.
    """

    parameters: Parameters
    estimates: tuple[Estimate, ...]
    offsets: dict[str, Estimate]
    states: tuple[Array, ...]
    start_covariance: Array
    residuals: tuple[Array, ...]
    misfit: float
    whiteness: Whiteness | None
    notes: tuple[str, ...]
    iterations: int
    converged: bool

    def __getitem__(self, name: str) -> Estimate:
        return {e.name: e for e in self.estimates}[name]


def fit(
    system: System,
    parameters: Parameters,
    recordings: Sequence[Recording],
    names: tuple[str, ...],
    *,
    offsets: tuple[str, ...] = (),
    max_step_s: float = 0.01,
    iterations: int = 40,
) -> RecordedFit:
    """Fit `names` (none: the starts alone), the zeros of the sensors of `offsets` (tangent coordinates), and what
    starts leave open.

    parameters: all of the system, where to begin. max_step_s: the longest step, shorter where stability wants it.
    Raises UsageError for unknown names, InputError for recordings that do not fit the system or are too short.
    """
    setup = set_up(system, parameters, tuple(recordings), names, offsets, max_step_s)
    longest = max(len(r.times_s) for r in recordings)
    point, used, converged = setup.first_point, 0, True
    for share, gain in (*((share, _ROUGH) for share in _SHARES), (1.0, _FINE)):
        frames = min(longest, max(LEAST_FRAMES, int(np.ceil(share * longest))))
        scale = scale_of(residuals_of(setup, [point], frames)[1])
        point, steps, converged = _descend(setup, point, frames, scale, gain, iterations)
        used += steps
    return _solution(setup, point, longest, used, converged)


def predict(
    system: System,
    parameters: Parameters,
    recordings: Sequence[Recording],
    *,
    offsets: dict[str, float] | None = None,
    max_step_s: float = 0.01,
) -> tuple[Array, ...]:
    """States [T, N] of each recording rolled out from its first state, in one batch.

    offsets: of the sensors, by tangent coordinate: taken from the first state, and added to all states given back.
    """
    offsets = offsets or {}
    setup = set_up(system, parameters, tuple(recordings), (), (), max_step_s)
    shift = np.array([offsets.get(name, 0.0) for name in system.tangent_names])
    setup = replace(setup, starts=system.retract(setup.starts, -shift))
    states = rollouts(setup, [setup.first_point], max(len(r.times_s) for r in recordings))[0]
    return tuple(system.retract(s[: len(r.times_s)], shift) for s, r in zip(states, recordings, strict=True))


def _descend(
    setup: Setup, point: Point, frames: int, scale: float, least_gain: float, iterations: int
) -> tuple[Point, int, bool]:
    damping, cost = 1e-3, cost_of(setup, point, residuals_of(setup, [point], frames)[1], scale)
    for iteration in range(iterations):
        normal = linearized(setup, point, frames, scale)
        while True:
            candidate, hoped = _step(setup, point, normal, damping)
            if hoped < 0.1 * least_gain * max(1.0, cost):
                return point, iteration + 1, True
            new_cost = _safe_cost(setup, candidate, frames, scale)
            if new_cost <= cost:
                break
            damping *= 10.0
            if damping > _MOST_DAMPING:
                return point, iteration + 1, True
        gain, point, cost, damping = cost - new_cost, candidate, new_cost, max(damping / 10.0, 1e-9)
        if gain < least_gain * max(1.0, cost):
            return point, iteration + 1, True
    return point, iterations, False


def _step(setup: Setup, point: Point, normal: Normal, damping: float) -> tuple[Point, float]:
    """The damped Newton step, parameters within their limits, and by how much it should lower the cost."""
    starts = np.maximum(np.einsum("gll->gl", normal.start_information), 1e-12)
    damped = replace(
        normal,
        information=normal.information + damping * np.diag(np.maximum(np.diagonal(normal.information), 1e-12)),
        start_information=normal.start_information + damping * np.eye(starts.shape[1]) * starts[:, None, :],
    )
    schur, gradient, gains = reduced(damped)
    step = -np.linalg.lstsq(schur, gradient, rcond=None)[0] if len(schur) else np.zeros(0)
    alone = -np.linalg.solve(regular(damped.start_information), normal.start_gradient[..., None])[..., 0]
    moved = alone - np.einsum("glp,p->gl", gains, step)
    theta = point.theta + step
    theta[: setup.fitted] = setup.values(theta).free_vector()
    hoped = -0.5 * float(normal.gradient @ (theta - point.theta) + (normal.start_gradient * moved).sum())
    return Point(theta, point.starts + moved), hoped


def _safe_cost(setup: Setup, point: Point, frames: int, scale: float) -> float:
    try:
        found = cost_of(setup, point, residuals_of(setup, [point], frames)[1], scale)
    except (SimulationError, UsageError):  # beyond what the engine can compute: a shorter step
        return np.inf
    return found if np.isfinite(found) else np.inf


def _solution(setup: Setup, point: Point, frames: int, iterations: int, converged: bool) -> RecordedFit:
    states, residuals = residuals_of(setup, [point], frames)
    scale = scale_of(residuals)
    normal = linearized(setup, point, frames, scale)
    schur, _, gains = reduced(normal)
    null = arrow.parameter_covariance(schur, reference=np.diagonal(normal.information))
    unknown = len(point.theta) + int((~setup.still).sum())
    spread = _spread(residuals, scale, unknown)
    covariance, freedom = _widened(null.covariance, normal, gains, spread)
    fitted = setup.values(point.theta)
    zeros = [
        Parameter(setup.system.tangent_names[i], _unit(setup.system.tangent_names[i]), float(value), free=True)
        for i, value in zip(setup.offsets, point.theta[setup.fitted :], strict=True)
    ]
    both = Parameters((*fitted, *zeros))
    free = tuple(p.name for p in both if p.free)
    found = [_within(e, p) for e, p in zip(intervals.estimates(both, free, covariance, null.directions, freedom), both,
                                           strict=True)]  # fmt: skip
    estimates = tuple(found[: len(fitted.items)])
    judged = whiteness(_stacked(residuals, scale))
    warning = None if judged is None else judged.warning()
    notes = [*intervals.identifiability(free, null.directions, estimates), *([warning] if warning else [])]
    lengths = [len(r.times_s) for r in setup.recordings]
    return RecordedFit(
        parameters=fitted,
        estimates=estimates,
        offsets={e.name: e for e in found[len(estimates) :]},
        states=tuple(s[:length] for s, length in zip(states[0], lengths, strict=True)),
        start_covariance=_start_covariance(setup, normal, spread),
        residuals=tuple(r[0] for r in residuals),
        misfit=scale,
        whiteness=judged,
        notes=tuple(notes),
        iterations=iterations,
        converged=converged,
    )


def _start_covariance(setup: Setup, normal: Normal, spread: float) -> Array:
    """[G, D, D], zero for what was known."""
    size = len(setup.system.tangent_names)
    if size > _MOST_COORDINATES:
        return np.zeros((len(normal.scores), 0, 0))
    inverse = np.linalg.inv(regular(normal.start_information)) * ~(setup.still[:, None, :] | setup.still[:, :, None])
    found = np.zeros((len(inverse), size, size))
    scale = setup.start_scale[:, :, None] * setup.start_scale[:, None, :]
    found[:, setup.loose[:, None], setup.loose] = spread * inverse * scale
    return found


def _unit(tangent_name: str) -> str:
    """The unit of a coordinate by its name's end."""
    return next((unit for unit in ("rad_s", "m_s", "rad", "m") if tangent_name.endswith(f"_{unit}")), "1")


def _within(estimate: Estimate, parameter: Parameter) -> Estimate:
    """The estimate, its interval cut to the parameter's domain."""
    low, high = np.clip(estimate.ci95, parameter.lower, parameter.upper)
    return replace(estimate, ci95=(float(low), float(high)))


def _spread(residuals: list[Array], scale: float, unknown: int) -> float:
    """Variance of weighted residuals over the square of their robust size."""
    shares = [mean_squares(r[0]) for r in residuals]
    mean, count = (np.concatenate([s[i] for s in shares]) for i in (0, 1))
    total = float((student_weights(mean, scale) * mean * count).sum()) / scale**2
    return total / max(1.0, float(count.sum()) - unknown)


def _stacked(residuals: list[Array], scale: float) -> Array:
    """Weighted residuals of all recordings one after another, rows of NaN between them, [*, Q]."""
    width, rows = max(r.shape[2] for r in residuals), []
    for residual in residuals:
        weights = np.sqrt(student_weights(mean_squares(residual[0])[0], scale)) / scale
        padded = np.full((residual.shape[1] + MOST_LAGS, width), np.nan)
        padded[: residual.shape[1], : residual.shape[2]] = residual[0] * weights[:, None]
        rows.append(padded)
    return np.concatenate(rows)


def _widened(covariance: Array, normal: Normal, gains: Array, spread: float) -> tuple[Array, float]:
    """Covariance [P, P] of the shared unknowns as wide as the pieces' scores want it, and its degrees of freedom.

    Pieces are equal parts of the recordings, enough of them to tell all unknowns; where there are several recordings,
    these too: what differs between them is no noise within.
    """
    shared, count = len(covariance), len(normal.scores)
    parts = int(np.ceil(max(_PIECES, 3 * shared) / count))
    profiles = [score[:, :shared] - score[:, shared:] @ gain for score, gain in zip(normal.scores, gains, strict=True)]
    wide = spread * covariance
    freedom = float(parts * count - shared)
    usual = student_t.ppf(0.975, freedom)
    factor = np.ones(shared)
    for pieces, degrees in ((parts, freedom), (1, float(count - 1))):
        if pieces == 1 and count < _LEAST_RECORDINGS:
            continue
        sums = np.array([part.sum(axis=0) for profile in profiles for part in np.array_split(profile, pieces)])
        variance = np.diagonal(covariance @ (sums.T @ sums) @ covariance) * len(sums) / degrees
        ratio = variance / np.where(np.diagonal(wide) > 0.0, np.diagonal(wide), np.inf)
        factor = np.maximum(factor, np.sqrt(ratio) * student_t.ppf(0.975, degrees) / usual)
    return wide * np.outer(factor, factor), freedom

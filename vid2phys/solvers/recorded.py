"""Parameters from recorded motion: states or markers of sensors, without a camera.

Method: shooting. Every recording is one deterministic rollout from an unknown first state, and `recorded_descent`
lowers robust residuals. Intervals do not take the model for true. What a model leaves unexplained is correlated in
time, so that recordings, or equal parts of them, count as independent, and frames do not. The spread of their scores
widens the intervals where those of independent frames are narrower (Liang and Zeger, "Longitudinal data analysis using
generalized linear models", 1986).

Limits: actions are known; motions through many impacts have costs too rugged for derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t as student_t

from vid2phys.engine.system import System
from vid2phys.errors import SimulationError
from vid2phys.notes import Note, doubt, warning
from vid2phys.solvers import arrow, intervals
from vid2phys.solvers.least_squares import student_weights
from vid2phys.solvers.recorded_descent import Descent, Limits, search
from vid2phys.solvers.recorded_model import (
    Normal,
    Point,
    Setup,
    linearized,
    mean_squares,
    reduced,
    regular,
    residuals_of,
    rollouts,
    scale_of,
    set_up,
    substeps_of,
)
from vid2phys.solvers.recorded_model import Recording as Recording
from vid2phys.solvers.whiteness import MOST_LAGS, Whiteness, whiteness
from vid2phys.types import Array, Estimate, Parameter, Parameters

_PIECES = 8  # least number for the judgement of intervals, and three for each unknown
_MOST_COORDINATES = 200  # most coordinates of a start for which a fit has the covariance
_SURE = 3.0  # values over their errors with all else known, above which they are not zero
_COARSE = 0.2  # largest change of the motion by half the step, over the noise or the unexplained part
_EXACT = 1e-4  # share of the motion that rounding and integration leave unexplained
_LEAST_RECORDINGS = 3  # from which on whole recordings judge intervals, too


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
    most_seconds: float = np.inf,
) -> RecordedFit:
    """Fit `names` (none: the starts alone), the zeros of the sensors of `offsets` (tangent coordinates), and what
    starts leave open.

    parameters: all of the system, where to begin. max_step_s: the longest step, shorter where stability wants it.
    most_seconds: after which the best fit so far is given back, as not converged.
    Raises UsageError for unknown names, InputError for recordings that do not fit the system or are too short.
    """
    setup = set_up(system, parameters, tuple(recordings), names, offsets, max_step_s)
    limits = Limits(setup, most_seconds)
    found = search(setup, iterations, limits)
    notes = []
    if found.failed:
        notes.append(
            doubt(f"{min(1.0, found.unexplained):.0%} of the motion is left unexplained: the values are probably wrong")
        )
    if limits.over and (found.failed or not found.converged):
        notes.append(warning(f"the fit was stopped after {most_seconds:.3g} s: the values are the best so far"))
    return _solution(setup, found, notes)


def steps_of(system: System, parameters: Parameters, recordings: Sequence[Recording], max_step_s: float) -> int:
    """Return the steps of integration of a rollout, one after the other, over the longest of the recordings."""
    setup = set_up(system, parameters, tuple(recordings), (), (), max_step_s)
    return substeps_of(setup, [setup.first_point], setup.longest) * (setup.longest - 1)


def finer_step_s(
    system: System, found: RecordedFit, recordings: Sequence[Recording], max_step_s: float
) -> float | None:
    """Return half of the step [s] that a fit was integrated with, where that changes the motion, else None.

    A change that is small beside the noise, or what the fit leaves unexplained, does not count. max_step_s: as given
    to `fit`.
    """
    begun = tuple(replace(each, start=states[0]) for each, states in zip(recordings, found.states, strict=True))
    setup = set_up(system, found.parameters, begun, (), (), max_step_s)
    point = setup.first_point
    half_s = 0.5 * float(setup.dt_s.max()) / substeps_of(setup, [point], setup.longest)
    try:
        coarse, fine = (
            residuals_of(each, [point], setup.longest)[1] for each in (setup, replace(setup, max_step_s=half_s))
        )
    except SimulationError:
        return half_s
    change = np.concatenate([(a - b)[np.isfinite(a - b)] for a, b in zip(coarse, fine, strict=True)])
    return half_s if np.sqrt(np.mean(change**2)) > _COARSE * max(1.0, found.misfit) else None


def predict(
    system: System,
    parameters: Parameters,
    recordings: Sequence[Recording],
    *,
    offsets: dict[str, float] | None = None,
    max_step_s: float = 0.01,
) -> tuple[Array, ...]:
    """Return states [T, N] of each recording rolled out from its first state, in one batch.

    offsets: of the sensors, by tangent coordinate. They are taken from the first state, and added to all states
    returned.
    """
    offsets = offsets or {}
    setup = set_up(system, parameters, tuple(recordings), (), (), max_step_s)
    shift = np.array([offsets.get(name, 0.0) for name in system.tangent_names])
    setup = replace(setup, starts=system.retract(setup.starts, -shift))
    states = rollouts(setup, [setup.first_point], max(len(r.times_s) for r in recordings))[0]
    return tuple(system.retract(s[: len(r.times_s)], shift) for s, r in zip(states, recordings, strict=True))


def _solution(setup: Setup, descent: Descent, notes: list[Note]) -> RecordedFit:
    point = descent.point
    states, residuals = residuals_of(setup, [point], setup.longest)
    scale = scale_of(residuals)
    normal = linearized(setup, point, setup.longest, scale)
    schur, _, gains = reduced(normal)
    units = _units(setup, point, normal)
    both_ways = np.outer(units, units)
    null = arrow.parameter_covariance(schur * both_ways, reference=np.diagonal(normal.information) * units**2)
    unknown = len(point.theta) + int((~setup.fixed).sum())
    spread = _spread(residuals, scale, unknown)
    covariance, freedom = _widened(null.covariance * both_ways, normal, gains, spread)
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
    misfit = None if judged is None or descent.unexplained < _EXACT else judged.warning()
    source = "this recording" if len(setup.recordings) == 1 else "these recordings"
    remedies = setup.system.capabilities.remedies(free)
    lines = intervals.identifiability(free, null.directions * units, estimates, both, remedies=remedies, source=source)
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
        notes=(*notes, *lines, *([warning(misfit)] if misfit else [])),
        iterations=descent.iterations,
        converged=descent.converged,
    )


def _units(setup: Setup, point: Point, normal: Normal) -> Array:
    """Return the size of each shared unknown [P] in solver coordinates: its value, or 1 of logarithms and of zero.

    What is determined is judged by shares of these: a damping may be a thousandth in SI.
    """
    logarithmic = [p.transform == "log" for p in setup.parameters if p.free] + [False] * len(setup.offsets)
    size, std = np.abs(point.theta), 1.0 / np.sqrt(np.maximum(np.diagonal(normal.information), 1e-300))
    return np.where(np.array(logarithmic, dtype=bool) | (size < _SURE * std), 1.0, size)


def _start_covariance(setup: Setup, normal: Normal, spread: float) -> Array:
    """Return covariances of the first states [G, D, D], zero for what was known."""
    size = len(setup.system.tangent_names)
    if size > _MOST_COORDINATES:
        return np.zeros((len(normal.scores), 0, 0))
    inverse = np.linalg.inv(regular(normal.start_information)) * ~(setup.fixed[:, None, :] | setup.fixed[:, :, None])
    found = np.zeros((len(inverse), size, size))
    scale = setup.start_scale[:, :, None] * setup.start_scale[:, None, :]
    found[:, setup.unknown[:, None], setup.unknown] = spread * inverse * scale
    return found


def _unit(tangent_name: str) -> str:
    """Return the unit of a coordinate by its name's end."""
    return next((unit for unit in ("rad_s", "m_s", "rad", "m") if tangent_name.endswith(f"_{unit}")), "1")


def _within(estimate: Estimate, parameter: Parameter) -> Estimate:
    """Return the estimate with its interval cut to the parameter's domain."""
    low, high = np.clip(estimate.ci95, parameter.lower, parameter.upper)
    return replace(estimate, ci95=(float(low), float(high)))


def _spread(residuals: list[Array], scale: float, unknown: int) -> float:
    """Return the variance of weighted residuals over the square of their robust size."""
    shares = [mean_squares(r[0]) for r in residuals]
    mean, count = (np.concatenate([s[i] for s in shares]) for i in (0, 1))
    total = float((student_weights(mean / scale**2) * mean * count).sum()) / scale**2
    return total / max(1.0, float(count.sum()) - unknown)


def _stacked(residuals: list[Array], scale: float) -> Array:
    """Return weighted residuals of all recordings one after another, rows of NaN between them, [*, Q]."""
    width, rows = max(r.shape[2] for r in residuals), []
    for residual in residuals:
        weights = np.sqrt(student_weights(mean_squares(residual[0])[0] / scale**2)) / scale
        padded = np.full((residual.shape[1] + MOST_LAGS, width), np.nan)
        padded[: residual.shape[1], : residual.shape[2]] = residual[0] * weights[:, None]
        rows.append(padded)
    return np.concatenate(rows)


def _widened(covariance: Array, normal: Normal, gains: Array, spread: float) -> tuple[Array, float]:
    """Return the covariance [P, P] of the shared unknowns, widened by the pieces' scores, and its degrees of freedom.

    Pieces are equal parts of the recordings, enough of them to determine all unknowns. Several recordings are judged as
    wholes too: what differs between them is no noise within.
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

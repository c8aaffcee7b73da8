"""Fit the error model to residuals of known poses.

Each frame's residuals r [2K] are A c + e. The coefficients c [6] of a wrong pose are first-order Gauss-Markov processes
in time; e are independent errors of the points. The variances of e come from what no pose explains (restricted maximum
likelihood, Patterson and Thompson 1971). The variances of c come from their weighted least-squares estimates along each
sequence.

Limits: outliers are trimmed, as in tracking, and are not part of the error model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.error_model import MODE_NAMES, REFERENCE_PX, REFERENCE_QUALITY, Calibration
from vid2phys.tracking.uncertainty.config import DEFAULTS, UncertaintyConfig
from vid2phys.types import Array

_CHI2_MEDIAN = 0.455  # of one degree of freedom
_OF_A_MODE = ("mode_std", "mode_exponent", "mode_doubt", "correlation_time_s")
_UNSEEN = 1e12  # variance of a missing observation


@dataclass(frozen=True)
class Residuals:
    """N frames of known pose, in view pixels.

    Attributes:
        error: [N, K, 2] detected minus true.
        raw: [N, K, 2, 2] the network's own covariance.
        used: [N, K], whether a point counts.
        modes: [N, K, 2, 6] derivative by rotations [rad], sideways shifts [fraction of the radius] and log depth; or
            [N, K, 2, R] by R other shared errors.
        diameter_px: [N] diameter of the body in the frame.
        quality: [N] of the detections.
        sequence: [N] index of the sequence, increasing.
        time_s: [N] time by the clock of errors (`error_clock`), increasing within a sequence, s.
    """

    error: Array
    raw: Array
    used: NDArray[np.bool_]
    modes: Array
    diameter_px: Array
    quality: Array
    sequence: NDArray[np.int64]
    time_s: Array

    def __getitem__(self, index: object) -> Residuals:
        return Residuals(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def of_sequences(self, chosen: NDArray[np.int64]) -> Residuals:
        """Return the frames of some sequences."""
        return self[np.isin(self.sequence, chosen)]


@dataclass(frozen=True)
class Split:
    """Residuals of N frames, split into a pose error and the rest.

    Attributes:
        coefficients: [N, 6] of the best pose.
        covariance: [N, 6, 6] of the coefficients, due to the points' own errors.
        rest: [N] sum of squared normalised residuals that remain.
        freedom: [N] degrees of freedom of the rest.
        log_det: [N] log determinants of the restricted likelihood.
    """

    coefficients: Array
    covariance: Array
    rest: Array
    freedom: Array
    log_det: Array


def split(data: Residuals, calibration: Calibration) -> Split:
    """Split residuals by weighted least squares under the points' own covariances."""
    covariance = calibration.point_covariance(data.raw, data.diameter_px)
    factor = np.linalg.inv(np.linalg.cholesky(covariance)) * data.used[..., None, None]
    count = len(data.error)
    white = (factor @ data.error[..., None]).reshape(count, -1)
    size = data.modes.shape[-1]
    modes = (factor @ data.modes).reshape(count, -1, size)
    normal = np.swapaxes(modes, -1, -2) @ modes
    normal = normal + np.eye(size) * (1e-9 * np.trace(normal, axis1=-2, axis2=-1) + 1e-12)[:, None, None]
    inverse = np.linalg.inv(normal)
    coefficients = (inverse @ (np.swapaxes(modes, -1, -2) @ white[..., None]))[..., 0]
    rest = white - (modes @ coefficients[..., None])[..., 0]
    log_det = (np.linalg.slogdet(covariance)[1] * data.used).sum(axis=-1) + np.linalg.slogdet(normal)[1]
    freedom = 2.0 * data.used.sum(axis=-1) - size
    return Split(coefficients, inverse, (rest**2).sum(axis=-1), freedom, log_det)


def fit(data: Residuals, start: Calibration, config: UncertaintyConfig = DEFAULTS) -> Calibration:
    """Fit an error model to residuals without outliers, from the error model `start`."""
    calibration = start
    for _ in range(config.rounds):
        kept = trim(data, calibration, config)
        calibration = _fit_points(kept, calibration)
        calibration = _fit_modes(kept, calibration, config)
    return calibration


def trim(data: Residuals, calibration: Calibration, config: UncertaintyConfig = DEFAULTS) -> Residuals:
    """Remove points that the fitted pose does not explain, and frames with fewer than six points left."""
    pieces = split(data, calibration)
    error = data.error - (data.modes @ pieces.coefficients[:, None, :, None])[..., 0]
    covariance = calibration.point_covariance(data.raw, data.diameter_px)
    squared = np.einsum("nki,nkij,nkj->nk", error, np.linalg.inv(covariance), error)
    used = data.used & (squared < config.trim_sigma**2)
    return replace(data, used=used)[used.sum(axis=1) >= 6]


def _fit_points(data: Residuals, calibration: Calibration) -> Calibration:
    """Fit scale, floor and exponent of the points' own errors by restricted maximum likelihood."""

    def with_vector(vector: Array) -> Calibration:
        scale, floor = np.exp(np.clip(vector[:2], -7.0, 4.0))
        return replace(
            calibration, point_scale=float(scale), point_floor_px=float(floor), point_exponent=float(vector[2])
        )

    def cost(vector: Array) -> float:
        candidate = with_vector(vector)
        pieces = split(data, candidate)
        return float((0.5 * (pieces.rest + pieces.log_det)).mean() + 0.01 * vector[2] ** 2)

    start = np.array([np.log(calibration.point_scale), np.log(calibration.point_floor_px), calibration.point_exponent])
    return with_vector(_minimize(cost, start))


def _fit_modes(data: Residuals, calibration: Calibration, config: UncertaintyConfig) -> Calibration:
    """Fit the Gauss-Markov process of each shared error."""
    pieces = split(data, calibration)
    growth = np.log(REFERENCE_PX / np.clip(data.diameter_px, 8.0, 400.0))
    doubt = REFERENCE_QUALITY - data.quality
    found = []
    for mode in range(data.modes.shape[-1]):
        values, variance = pieces.coefficients[:, mode], pieces.covariance[:, mode, mode]
        prior = calibration.mode_scale(data.diameter_px, data.quality)[:, mode] ** 2
        informative = variance < config.informative_sigma**2 * prior
        if informative.sum() < config.min_informative_frames:
            found.append(tuple(getattr(calibration, name)[mode] for name in _OF_A_MODE))
            continue
        expected = prior + variance
        scale = np.median((values**2 / expected)[informative]) / _CHI2_MEDIAN
        kept = informative & (values**2 < config.core_sigma**2 * scale * expected)
        columns = (values[kept], variance[kept], growth[kept], doubt[kept], data.time_s[kept])
        found.append(_fit_process(data.sequence[kept], *columns, config.correlation_range_s))
    std, exponent, doubts, tau = (tuple(float(x) for x in column) for column in zip(*found, strict=True))
    return replace(calibration, mode_std=std, mode_exponent=exponent, mode_doubt=doubts, correlation_time_s=tau)


def _fit_process(
    sequence: NDArray[np.int64],
    values: Array,
    variance: Array,
    growth: Array,
    doubt: Array,
    time_s: Array,
    range_s: tuple[float, float],
) -> tuple[float, float, float, float]:
    """Fit a Gauss-Markov process to measured values [N] with variances [N] by maximum likelihood.

    Returns its standard deviation, the exponents of its growth with smallness and with doubt, and its correlation time.
    """
    columns = ((0.0, values), (10.0 * _UNSEEN, variance), (0.0, growth), (0.0, doubt), (0.0, time_s))
    values, variance, growth, doubt, times = _by_sequence(sequence, *columns)
    lag = np.abs(times[:, :, None] - times[:, None, :])
    seen = variance < _UNSEEN
    spread = float(np.sqrt(np.median(values[seen] ** 2) / _CHI2_MEDIAN))

    def parts(vector: Array) -> tuple[float, float, float, float]:
        std = spread * np.exp(np.clip(vector[0], -6.0, 6.0))
        tau = np.clip(np.exp(vector[3]), *range_s)
        return float(std), float(np.clip(vector[1], -2.0, 3.0)), float(np.clip(vector[2], -2.0, 20.0)), float(tau)

    def cost(vector: Array) -> float:
        std, exponent, slope, tau = parts(vector)
        scale = std * np.exp(np.minimum(exponent * growth + slope * doubt, 6.0))
        covariance = scale[:, :, None] * scale[:, None, :] * np.exp(-lag / tau)
        covariance += variance[..., None] * np.eye(lag.shape[-1])
        factor = np.linalg.cholesky(covariance)
        white = np.linalg.solve(factor, values[..., None])
        total = 0.5 * (white**2).sum() + np.log(np.einsum("sii->si", factor)).sum()
        return float(total / len(values) + 0.02 * (vector[1] - 0.5) ** 2 + 2e-4 * (vector[2] - 4.0) ** 2)

    return parts(_minimize(cost, np.array([-0.7, 0.5, 4.0, np.log(0.15)])))


def _by_sequence(sequence: NDArray[np.int64], *columns: tuple[float, Array]) -> list[Array]:
    """Return a table [S, L] with one row per sequence for each (value of missing entries, column [N])."""
    names, row, counts = np.unique(sequence, return_inverse=True, return_counts=True)
    place = np.arange(len(row)) - np.concatenate([[0], np.cumsum(counts)[:-1]])[row]
    tables = []
    for missing, column in columns:
        table = np.full((len(names), int(counts.max())), missing)
        table[row, place] = column
        tables.append(table)
    return tables


def _minimize(cost: Callable[[Array], float], start: Array) -> Array:
    """Return the minimum that the simplex method (Nelder and Mead 1965) finds from `start`."""
    from scipy.optimize import minimize

    simplex = np.vstack([start, start + 0.5 * np.eye(len(start))])
    options = {"initial_simplex": simplex, "xatol": 5e-3, "fatol": 1e-4, "maxiter": 240}
    return np.asarray(minimize(cost, start, method="Nelder-Mead", options=options).x)


def normalised(
    data: Residuals,
    calibration: Calibration,
    names: tuple[str, ...] = MODE_NAMES,
    config: UncertaintyConfig = DEFAULTS,
) -> dict[str, float]:
    """Return root mean squares of normalised residuals: 1 is honest, below is underconfident, above overconfident.

    Returns:
        Numbers by name. `points`: what no pose explains. `names` (`rotation_x` ...): the coefficient of each mode.
        `frame`: a frame's residuals under its whole covariance. `clip`: a sequence's residuals, with the correlation in
        time. Outliers are left out, and reported as `outlier_share` of the points and `gross_share` of the frames.
    """
    kept = trim(data, calibration, config)
    squared = _mode_ratios(kept, calibration)
    sound = (squared < config.trim_sigma**2).all(axis=1)
    sane = kept[sound]
    pieces = split(sane, calibration)
    numbers = {"points": float(np.sqrt(pieces.rest.sum() / pieces.freedom.sum()))}
    numbers |= {n: float(v) for n, v in zip(names, np.sqrt(squared[sound].mean(axis=0)), strict=True)}
    numbers["frame"] = _whitened(sane, calibration, np.arange(len(sane.time_s)))
    numbers["clip"] = _whitened(sane, calibration, sane.sequence)
    numbers["outlier_share"] = float(1.0 - kept.used.sum() / data.used.sum())
    numbers["gross_share"] = float(1.0 - sound.mean())
    return {name: round(value, 4) for name, value in numbers.items()}


def _mode_ratios(data: Residuals, calibration: Calibration) -> Array:
    """Return squared coefficients over their expected squares, [N, 6]."""
    pieces = split(data, calibration)
    std = calibration.mode_scale(data.diameter_px, data.quality)
    return np.asarray(pieces.coefficients**2 / (np.einsum("nii->ni", pieces.covariance) + std**2))


def _whitened(data: Residuals, calibration: Calibration, group: NDArray[np.int64]) -> float:
    """Return the root mean square of residuals that are whitened by the covariance of each group of frames."""
    covariance = calibration.point_covariance(data.raw, data.diameter_px)
    std = calibration.mode_scale(data.diameter_px, data.quality)
    tau = np.array(calibration.correlation_time_s)
    total, count = 0.0, 0
    for g in np.unique(group):
        rows = np.flatnonzero(group == g)
        frame, point = np.nonzero(data.used[rows])
        scaled = (data.modes[rows] * std[rows, None, None])[frame, point].reshape(-1, len(tau))
        which = np.repeat(frame, 2)
        lag = np.abs(data.time_s[rows][which, None] - data.time_s[rows][which])
        matrix = np.einsum("ia,ja,ija->ij", scaled, scaled, np.exp(-lag[..., None] / tau))
        blocks = covariance[rows][frame, point]
        for i, block in enumerate(blocks):
            matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] += block
        white = np.linalg.solve(np.linalg.cholesky(matrix), data.error[rows][frame, point].ravel())
        total, count = total + float(white @ white), count + len(white)
    return float(np.sqrt(total / max(count, 1)))

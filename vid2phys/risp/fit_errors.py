"""Fitting the error model to residuals of known poses.

Each frame's residuals r [2K] are A c + e: c six coefficients of a wrong pose, first-order Gauss-Markov in time, and e
independent errors of the points. The variances of e come from what no pose explains (restricted maximum likelihood,
Patterson and Thompson 1971), those of c from their weighted least-squares estimates along each sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.error_model import MODE_NAMES, REFERENCE_PX, Calibration
from vid2phys.types import Array

_TRIM_SIGMA = 5.0  # what the tracker throws out as well
_ROUNDS = 3
_TAU_S = (0.01, 5.0)
_UNSEEN = 1e12  # variance of what was not observed


@dataclass(frozen=True)
class Residuals:
    """N frames of known pose, in view pixels.

    error: [N, K, 2] read minus true. raw: [N, K, 2, 2] the network's own covariance. used: [N, K]. modes: [N, K, 2, 6]
    derivative wrt (rotations [rad], sideways [fraction of the radius], log depth). diameter_px: [N]. sequence: [N]
    index of the sequence, increasing. time_s: [N], increasing within a sequence.
    """

    error: Array
    raw: Array
    used: NDArray[np.bool_]
    modes: Array
    diameter_px: Array
    sequence: NDArray[np.int64]
    time_s: Array

    def __getitem__(self, index: object) -> Residuals:
        return Residuals(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def of_sequences(self, chosen: NDArray[np.int64]) -> Residuals:
        """The frames of some sequences."""
        return self[np.isin(self.sequence, chosen)]


@dataclass(frozen=True)
class Split:
    """Residuals taken apart: coefficients [N, 6] of the best pose, their covariance [N, 6, 6] due to the points' own
    errors, squared normalised rest [N] with its degrees of freedom [N], log determinants [N] of the likelihood."""

    coefficients: Array
    covariance: Array
    rest: Array
    freedom: Array
    log_det: Array


def split(data: Residuals, calibration: Calibration) -> Split:
    """Weighted least squares of each frame's pose error under the points' own covariances."""
    covariance = calibration.point_covariance(data.raw, data.diameter_px)
    factor = np.linalg.inv(np.linalg.cholesky(covariance)) * data.used[..., None, None]
    count = len(data.error)
    white = (factor @ data.error[..., None]).reshape(count, -1)
    modes = (factor @ data.modes).reshape(count, -1, 6)
    normal = np.swapaxes(modes, -1, -2) @ modes
    normal = normal + np.eye(6) * (1e-9 * np.trace(normal, axis1=-2, axis2=-1) + 1e-12)[:, None, None]
    inverse = np.linalg.inv(normal)
    coefficients = (inverse @ (np.swapaxes(modes, -1, -2) @ white[..., None]))[..., 0]
    rest = white - (modes @ coefficients[..., None])[..., 0]
    log_det = (np.linalg.slogdet(covariance)[1] * data.used).sum(axis=-1) + np.linalg.slogdet(normal)[1]
    freedom = 2.0 * data.used.sum(axis=-1) - 6.0
    return Split(coefficients, inverse, (rest**2).sum(axis=-1), freedom, log_det)


def fit(data: Residuals, start: Calibration) -> Calibration:
    """Error model of the frames in `data`; whatever is further than 5 sigma is left out, as in tracking."""
    calibration = start
    for _ in range(_ROUNDS):
        kept = trim(data, calibration)
        calibration = _fit_points(kept, calibration)
        calibration = _fit_modes(kept, calibration)
    return calibration


def trim(data: Residuals, calibration: Calibration) -> Residuals:
    """Without points that the fitted pose does not explain, and without frames in which too few are left."""
    pieces = split(data, calibration)
    error = data.error - (data.modes @ pieces.coefficients[:, None, :, None])[..., 0]
    covariance = calibration.point_covariance(data.raw, data.diameter_px)
    squared = np.einsum("nki,nkij,nkj->nk", error, np.linalg.inv(covariance), error)
    used = data.used & (squared < _TRIM_SIGMA**2)
    return replace(data, used=used)[used.sum(axis=1) >= 6]


def _fit_points(data: Residuals, calibration: Calibration) -> Calibration:
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


def _fit_modes(data: Residuals, calibration: Calibration) -> Calibration:
    pieces = split(data, calibration)
    growth = np.log(REFERENCE_PX / np.clip(data.diameter_px, 8.0, 400.0))
    std, exponent, tau = [], [], []
    for mode in range(6):
        values, variance = pieces.coefficients[:, mode], pieces.covariance[:, mode, mode]
        spread = np.sqrt(np.median(values**2) / 0.455 + np.median(variance))
        kept = np.abs(values) < _TRIM_SIGMA * np.sqrt(spread**2 + variance)
        found = _fit_process(values[kept], variance[kept], growth[kept], data.sequence[kept], data.time_s[kept])
        std.append(found[0])
        exponent.append(found[1])
        tau.append(found[2])
    return replace(calibration, mode_std=tuple(std), mode_exponent=tuple(exponent), correlation_time_s=tuple(tau))


def _fit_process(
    values: Array, variance: Array, growth: Array, sequence: NDArray[np.int64], time_s: Array
) -> tuple[float, float, float]:
    """Standard deviation, its growth with smallness, and correlation time of a Gauss-Markov process seen with noise."""
    values, variance, growth, lag = _by_sequence(values, variance, growth, sequence, time_s)
    seen = variance < _UNSEEN
    scale = float(np.sqrt(max(np.median(values[seen] ** 2) / 0.455 - np.median(variance[seen]), 1e-12)))
    scale = max(scale, 0.01 * float(np.sqrt(np.median(variance[seen]))))

    def cost(vector: Array) -> float:
        std = scale * np.exp(np.clip(vector[0], -6.0, 6.0) + np.clip(vector[1], -2.0, 3.0) * growth)
        tau = float(np.clip(np.exp(vector[2]), *_TAU_S))
        covariance = std[:, :, None] * std[:, None, :] * np.exp(-lag / tau) + variance[..., None] * np.eye(
            lag.shape[-1]
        )
        factor = np.linalg.cholesky(covariance)
        white = np.linalg.solve(factor, values[..., None])
        total = 0.5 * (white**2).sum() + np.log(np.einsum("sii->si", factor)).sum()
        return float(total / len(values) + 0.02 * (vector[1] - 0.5) ** 2)

    vector = _minimize(cost, np.array([0.0, 0.5, np.log(0.15)]))
    std = scale * float(np.exp(np.clip(vector[0], -6.0, 6.0)))
    return std, float(np.clip(vector[1], -2.0, 3.0)), float(np.clip(np.exp(vector[2]), *_TAU_S))


def _by_sequence(
    values: Array, variance: Array, growth: Array, sequence: NDArray[np.int64], time_s: Array
) -> tuple[Array, Array, Array, Array]:
    """One row a sequence: values, variances, growths [S, L] and time lags [S, L, L]; what is missing has no weight."""
    names, row, counts = np.unique(sequence, return_inverse=True, return_counts=True)
    column = np.arange(len(row)) - np.concatenate([[0], np.cumsum(counts)[:-1]])[row]
    shape = (len(names), int(counts.max()))
    table = [np.zeros(shape), np.full(shape, 10.0 * _UNSEEN), np.zeros(shape), np.zeros(shape)]
    for grid, data in zip(table, (values, variance, growth, time_s), strict=True):
        grid[row, column] = data
    times = table[3]
    return table[0], table[1], table[2], np.abs(times[:, :, None] - times[:, None, :])


def _minimize(cost: Callable[[Array], float], start: Array) -> Array:
    from scipy.optimize import minimize

    simplex = np.vstack([start, start + 0.5 * np.eye(len(start))])
    options = {"initial_simplex": simplex, "xatol": 5e-3, "fatol": 1e-4, "maxiter": 160}
    return np.asarray(minimize(cost, start, method="Nelder-Mead", options=options).x)


def normalised(data: Residuals, calibration: Calibration) -> dict[str, float]:
    """Root mean square of residuals over what the model expects; 1 is honest, below is timid, above is bold.

    `points`: what no pose explains. `rotation_x` ...: the coefficient of each mode. `frame`: all of a frame's residuals
    under its whole covariance. `clip`: all of a sequence's, with the correlation in time.
    """
    kept = trim(data, calibration)
    pieces = split(kept, calibration)
    std = calibration.mode_scale(np.ones(len(kept.diameter_px)), kept.diameter_px)
    variance = np.einsum("nii->ni", pieces.covariance) + std**2
    ratio = np.sqrt(np.median(pieces.coefficients**2 / variance, axis=0) / 0.455)
    numbers = {"points": float(np.sqrt(pieces.rest.sum() / pieces.freedom.sum()))}
    numbers |= {name: float(value) for name, value in zip(MODE_NAMES, ratio, strict=True)}
    numbers["frame"] = _whitened(kept, calibration, np.arange(len(kept.time_s)))
    numbers["clip"] = _whitened(kept, calibration, kept.sequence)
    numbers["outlier_share"] = float(1.0 - kept.used.sum() / data.used.sum())
    return {name: round(value, 4) for name, value in numbers.items()}


def _whitened(data: Residuals, calibration: Calibration, group: NDArray[np.int64]) -> float:
    """Root mean square of the residuals whitened by the whole covariance of each group of frames."""
    covariance = calibration.point_covariance(data.raw, data.diameter_px)
    std = calibration.mode_scale(np.ones(len(data.diameter_px)), data.diameter_px)
    tau = np.array(calibration.correlation_time_s)
    total, count = 0.0, 0
    for g in np.unique(group):
        rows = np.flatnonzero(group == g)
        frame, point = np.nonzero(data.used[rows])
        scaled = (data.modes[rows] * std[rows, None, None])[frame, point].reshape(-1, 6)
        which = np.repeat(frame, 2)
        lag = np.abs(data.time_s[rows][which, None] - data.time_s[rows][which])
        matrix = np.einsum("ia,ja,ija->ij", scaled, scaled, np.exp(-lag[..., None] / tau))
        blocks = covariance[rows][frame, point]
        for i, block in enumerate(blocks):
            matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] += block
        white = np.linalg.solve(np.linalg.cholesky(matrix), data.error[rows][frame, point].ravel())
        total, count = total + float(white @ white), count + len(white)
    return float(np.sqrt(total / max(count, 1)))

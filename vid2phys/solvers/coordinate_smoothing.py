"""Smooth measured coordinates in time, where nothing is assumed about forces: the motion of a driven robot.

The acceleration of each coordinate is white noise, whose density has the largest likelihood of what was measured. A
Kalman filter and the smoother of Rauch, Tung and Striebel (AIAA Journal, 1965) give coordinates and rates. Errors have
a Student-t distribution (reweighting), so that a few wrong frames do not count.

Limits: rates at impacts are smoothed away. Errors that last longer than a frame stay; the caller states them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.solvers.gauss_markov import white_acceleration_precision
from vid2phys.types import Array

_NU = 4.0  # degrees of freedom of the errors
_ROUNDS = 8  # of reweighting
_LOG_DENSITY = (-9.0, 9.0)  # range of the density's logarithm, in coordinates s^-2 sqrt(s)
_FAST = 1e3  # standard deviation of an unknown rate, coordinates per s


def smooth_coordinates(times_s: Array, measured: Array, covariance: Array) -> tuple[Array, Array]:
    """Return coordinates and rates [T, 2 D], and their covariances [T, 2 D, 2 D].

    Args:
        times_s: [T], s.
        measured: [T, D] coordinates; NaN in frames without a measurement.
        covariance: [T, D, D] of errors that are independent between frames.
    """
    size, shown = measured.shape[1], np.asarray(np.isfinite(measured).all(axis=1))
    density = np.array([_density(times_s, measured[:, d], covariance[:, d, d]) for d in range(size)])
    steps = np.diff(times_s)
    noise = np.asarray(np.linalg.inv(white_acceleration_precision(steps, density=density)), dtype=float)
    weight = np.ones(len(times_s))
    states, errors = np.zeros((len(times_s), 2 * size)), np.zeros((len(times_s), 2 * size, 2 * size))
    for _ in range(_ROUNDS):
        states, errors = _smoothed(steps, noise, measured, covariance / weight[:, None, None], shown)
        off = np.where(shown[:, None], measured - states[:, :size], 0.0)
        square = np.einsum("ti,ti->t", off, np.linalg.solve(covariance, off[..., None])[..., 0])
        weight = (_NU + size) / (_NU + square)
    return states, errors


def _density(times_s: Array, measured: Array, variance: Array) -> float:
    """Return the density of one coordinate's acceleration with the largest likelihood."""
    from scipy.optimize import minimize_scalar

    shown = np.isfinite(measured)
    times, values, variances = times_s[shown], measured[shown], variance[shown]

    def cost(log_density: float) -> float:
        """Return the negative logarithm of the likelihood of all innovations."""
        total, at, known = 0.0, np.array([values[0], 0.0]), np.diag([variances[0], _FAST**2])
        for t, step in enumerate(np.diff(times), start=1):
            ahead = np.array([[1.0, step], [0.0, 1.0]])
            spread = np.exp(2.0 * log_density) * np.array([[step**3 / 3.0, step**2 / 2.0], [step**2 / 2.0, step]])
            at, known = ahead @ at, ahead @ known @ ahead.T + spread
            innovation, expected = values[t] - at[0], known[0, 0] + variances[t]
            square = innovation**2 / expected
            total += 0.5 * np.log(expected) + 0.5 * (_NU + 1.0) * np.log1p(square / _NU)
            gain = known[:, 0] / (known[0, 0] + variances[t] * (_NU + square) / (_NU + 1.0))
            at, known = at + gain * innovation, known - np.outer(gain, known[0])
        return float(total)

    if len(times) < 3:
        return 1.0
    return float(np.exp(minimize_scalar(cost, bounds=_LOG_DENSITY, method="bounded").x))


def _smoothed(
    steps: Array, noise: Array, measured: Array, covariance: Array, shown: NDArray[np.bool_]
) -> tuple[Array, Array]:
    """Return the smoothed states [T, 2 D] and covariances [T, 2 D, 2 D] for noise [T - 1, 2 D, 2 D] of the steps."""
    count, size = measured.shape
    first = int(np.argmax(shown))
    at = np.append(measured[first], np.zeros(size))
    known = np.diag(np.append(np.full(size, _FAST**2), np.full(size, _FAST**2)))
    ahead = np.tile(np.eye(2 * size), (count - 1, 1, 1))
    ahead[:, :size, size:] = steps[:, None, None] * np.eye(size)
    states, errors = np.empty((count, 2 * size)), np.empty((count, 2 * size, 2 * size))
    predicted, spread = states.copy(), errors.copy()
    for t in range(count):
        if t:
            at, known = ahead[t - 1] @ at, ahead[t - 1] @ known @ ahead[t - 1].T + noise[t - 1]
        predicted[t], spread[t] = at, known
        if shown[t]:
            gain = np.linalg.solve(known[:size, :size] + covariance[t], known[:size]).T
            at = at + gain @ (measured[t] - at[:size])
            kept = np.eye(2 * size) - gain @ np.eye(size, 2 * size)
            known = kept @ known @ kept.T + gain @ covariance[t] @ gain.T
        states[t], errors[t] = at, known
    for t in range(count - 2, -1, -1):
        back = np.linalg.solve(spread[t + 1], ahead[t] @ errors[t]).T
        states[t] = states[t] + back @ (states[t + 1] - predicted[t + 1])
        errors[t] = errors[t] + back @ (errors[t + 1] - spread[t + 1]) @ back.T
    return states, errors

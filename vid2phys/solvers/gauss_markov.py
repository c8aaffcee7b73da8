"""Gauss-Markov processes on an irregular time grid: the priors of unknown actions, disturbances and shared errors.

Method: a process of first order (Ornstein-Uhlenbeck) has one state. One of second order (critically damped, Matern-3/2)
has two: the value and its rate over the bandwidth, of equal stationary variance. The spectrum of the second order falls
with the fourth power of frequency above the bandwidth. Source: Hartikainen and Sarkka, "Kalman filtering and smoothing
solutions to temporal Gaussian process regression models", 2010.

Limits: scalar processes with constant parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vid2phys.types import Array


@dataclass(frozen=True)
class Chain:
    """Prior of a scalar process over T knots.

    transition: [T - 1, S, S]; precision: inverse of each step's noise, [T - 1, S, S]; initial: inverse of the
    stationary covariance, [S, S]; logdet: log determinant of the whole prior's precision.
    """

    transition: Array
    precision: Array
    initial: Array
    logdet: float


def first_order(step_s: Array, *, std: float, time_constant_s: float) -> Chain:
    """Return an Ornstein-Uhlenbeck process: step_s [T - 1] s, standard deviation, correlation time (0: white)."""
    decay = np.exp(-step_s / max(time_constant_s, 1e-9))
    noise = std**2 * np.maximum(1.0 - decay**2, 1e-9)
    logdet = -float(np.log(noise).sum()) - 2.0 * np.log(std)
    return Chain(decay[:, None, None], (1.0 / noise)[:, None, None], np.array([[std**-2.0]]), logdet)


def second_order(step_s: Array, *, std: float, bandwidth_rad_s: float) -> Chain:
    """Return a critically damped process: step_s [T - 1] s, standard deviation of the value, bandwidth."""
    x = bandwidth_rad_s * step_s
    decay = np.exp(-x)
    transition = np.empty((len(step_s), 2, 2))
    transition[:, 0, 0], transition[:, 0, 1] = decay * (1.0 + x), decay * x
    transition[:, 1, 0], transition[:, 1, 1] = -decay * x, decay * (1.0 - x)
    noise = np.eye(2) - transition @ np.swapaxes(transition, 1, 2) + 1e-10 * np.eye(2)
    logdet = -float(np.linalg.slogdet(std**2 * noise)[1].sum()) - 4.0 * np.log(std)
    precision: Array = np.asarray(np.linalg.inv(noise) / std**2, dtype=float)
    return Chain(transition, precision, np.eye(2) / std**2, logdet)


def draw_first_order(rng: np.random.Generator, times_s: Array, time_constant_s: Array) -> Array:
    """Draw Ornstein-Uhlenbeck processes [T, D] of unit variance at times [T] s, with correlation times [D] s."""
    out = np.empty((len(times_s), len(time_constant_s)))
    out[0] = rng.normal(size=len(time_constant_s))
    for t in range(1, len(times_s)):
        keep = np.exp(-(times_s[t] - times_s[t - 1]) / np.maximum(time_constant_s, 1e-9))
        out[t] = keep * out[t - 1] + np.sqrt(1.0 - keep**2) * rng.normal(size=len(time_constant_s))
    return out


def white_acceleration_precision(step_s: Array, *, density: Array) -> Array:
    """Return the inverse covariances [T, 2 D, 2 D] of (position, velocity) steps under white acceleration noise.

    step_s: [T] s. density: [D] of the acceleration of each axis, unit s^-2 sqrt(s) times that of the position. Rows are
    positions, then velocities.
    """
    dt = step_s[:, None]
    power = np.asarray(density)[None, :] ** 2
    axes = power.shape[1]
    covariance = np.zeros((len(step_s), 2 * axes, 2 * axes))
    i = np.arange(axes)
    covariance[:, i, i] = power * dt**3 / 3.0
    covariance[:, i, i + axes] = covariance[:, i + axes, i] = power * dt**2 / 2.0
    covariance[:, i + axes, i + axes] = power * dt
    return np.linalg.inv(covariance)

"""The measurements of a clip as numbers with errors: N = 2 K + D a frame, bearings of keypoints, then a configuration.

Purpose: fits of single frames, of a clip as a whole, and the Cramer-Rao bound compare the same residuals. Each kind of
measurement is predicted in its own terms (`prediction`, `configurations`); here both stand beside each other.

Method: the error of a frame is a part of its own, and the part that the clip's error processes move (`types`).

Limits: dense in the numbers of a frame. Smoothing takes each kind by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.solvers import configurations, prediction
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array, Observation, Parameters


@dataclass(frozen=True)
class Errors:
    """The errors of the measurements of F frames.

    Attributes:
        used: [F, N] whether a number was measured and counts.
        covariance: [F, N, N] of errors that are independent between frames.
        basis: [F, N, R] effect of the error processes, of unit variance.
        times_s: [R] correlation times of the processes.
        clock_s: [F] the time in which they forget.
    """

    used: NDArray[np.bool_]
    covariance: Array
    basis: Array
    times_s: Array
    clock_s: Array

    @staticmethod
    def of(seen: Observation) -> Errors:
        """Return the errors of an observation."""
        frames, points = seen.visible.shape
        measured = seen.configuration
        size = 0 if measured is None else measured.covariance.shape[-1]
        count = 2 * points + size
        covariance = np.zeros((frames, count, count))
        for k in range(points):
            block = slice(2 * k, 2 * k + 2)
            covariance[:, block, block] = seen.covariance[:, k]
        basis = seen.shared_basis.reshape(frames, 2 * points, -1)
        used = np.repeat(seen.used, 2, axis=1)
        if measured is not None:
            covariance[:, 2 * points :, 2 * points :] = measured.covariance
            basis = np.concatenate([basis, measured.shared_basis], axis=1)
            used = np.concatenate([used, np.repeat(measured.measured[:, None], size, axis=1)], axis=1)
        return Errors(used, covariance, basis, seen.process_time_s, seen.error_clock_s)

    def of_clip(self) -> Array:
        """Return the covariance of the numbers of all frames, [F N, F N]."""
        apart = np.abs(self.clock_s[:, None] - self.clock_s[None, :])
        together = np.exp(-apart[..., None] / np.maximum(self.times_s, 1e-9))  # [F, F, R]
        total = np.einsum("fir,fgr,gjr->figj", self.basis, together, self.basis, optimize=True)
        rows = np.arange(len(self.basis))
        total[rows, :, rows, :] += self.covariance
        return np.asarray(total.reshape(self.used.size, self.used.size))


def residuals(problem: Problem, parameters: Parameters, states: Array) -> Array:
    """Return predicted minus measured numbers [..., F, N] of states [..., F, n], those of the first frames.

    Zero where nothing was measured; NaN where a keypoint that counts is behind the camera.
    """
    seen, count = problem.observation, states.shape[-2]
    off = prediction.bearings(problem, parameters, states) - seen.bearings[:count]
    return _joined(seen, off, configurations.residual(problem, parameters, states))


def linear_residuals(problem: Problem, parameters: Parameters, states: Array) -> tuple[Array, Array, Array]:
    """Return `residuals` [F, N] of states [F, n], and their derivatives.

    These are by the tangent of the state [F, N, d], and by the free camera parameters [F, N, V].
    """
    seen, count = problem.observation, len(states)
    at, by_state, by_camera = prediction.linear_bearings(problem, parameters, states)
    step, *steps = configurations.linear(problem, parameters, states)
    of_state, of_camera = (
        np.concatenate([slope.reshape(count, at.shape[1] * 2, slope.shape[-1]), more], axis=1)
        for slope, more in zip((by_state, by_camera), steps, strict=True)
    )
    return _joined(seen, at - seen.bearings[:count], step), of_state, of_camera


def _joined(seen: Observation, of_keypoints: Array, of_configurations: Array) -> Array:
    frames = of_keypoints.shape[-3]
    off = np.where(seen.used[:frames, :, None], of_keypoints, 0.0)
    return np.concatenate([off.reshape(*off.shape[:-2], -1), of_configurations], axis=-1)

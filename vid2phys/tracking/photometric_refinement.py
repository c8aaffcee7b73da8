"""Refining what the network read by the clip's own pixels, frame by frame, before the last fit.

A network's errors are biases of a look: they do not average out over time. Aligning the mesh to the pixels
(`risp/align`) errs in other ways and much less, so both are joined by their covariances: what a reading is off as a
whole, as coefficients of the six pose modes, is replaced by the weighted mean of both, and so is the error shared by a
frame's points.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.pose_geometry import pose_modes, project_points
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose
from vid2phys.indices import evenly
from vid2phys.tracking.cues.photometric import MODES, Stage, align
from vid2phys.types import Array, Clip, Observation

_MOST_FRAMES = 600  # that are aligned; the others lie between two of them
_LEAST_FRAMES = 4
_WORST_LEVEL = 4.0  # frames that fit this many times worse than the median are not aligned
_READING_STD_FLOOR = 1e-4
_RIDGE_SIGMA = 20.0


def refined(clip: Clip, stage: Stage, calibration: Calibration, seen: Observation, pose: Pose) -> Observation | None:
    """The observation refined by the clip's pixels near fitted poses camera_from_body [T].

    None when too few frames show the body against a background known from other frames.
    """
    tracked = np.flatnonzero(seen.visible.any(axis=1))
    chosen = tracked[evenly(len(tracked), _MOST_FRAMES)]
    looks, used = [], []
    for frame, i in zip(clip.frames.at(chosen), chosen, strict=True):
        look = stage.frame_at(frame, pose[i])
        if look is not None:
            looks.append(look)
            used.append(i)
    if len(looks) < _LEAST_FRAMES:
        return None
    found = align(looks)
    sound = found.usable & (found.level < _WORST_LEVEL * np.median(found.level))
    at = np.array(used)[sound]
    if len(at) < _LEAST_FRAMES:
        return None
    scale = np.array(calibration.align_scale)
    covariance = scale[:, None] * found.covariance[sound] * scale
    shift, std = _joined(seen, at, pose[at], found.steps[sound], covariance)
    return _moved(seen, at, pose, shift, std, calibration)


def _joined(
    seen: Observation, at: NDArray[np.int64], pose: Pose, steps: Array, covariance: Array
) -> tuple[Array, Array]:
    """By how much readings are to be moved, and the standard deviations of what remains, [N, 6] each, in modes."""
    modes = pose_modes(pose, seen.points_body)  # [N, K, 2, 6]
    residual = seen.bearings[at] - project_points(pose, seen.points_body)
    root = np.linalg.inv(np.linalg.cholesky(seen.covariance[at])) * seen.visible[at][..., None, None]
    white = (root @ residual[..., None])[..., 0]
    weight = np.where(seen.visible[at], 6.0 / (5.0 + (white**2).sum(axis=-1)), 0.0)[..., None]
    basis = (root @ modes).reshape(len(at), -1, MODES)
    weighted = np.swapaxes(basis * np.repeat(weight, 2, axis=-1).reshape(len(at), -1, 1), 1, 2)
    point_information = weighted @ basis
    shared = _mode_std(seen, at, modes)
    # a ridge far beyond what readings err by: only modes that the points do not show stay put
    solve = np.linalg.inv(point_information + np.eye(MODES) * (_RIDGE_SIGMA * shared[:, None, :]) ** -2.0)
    reading = (solve @ (weighted @ white.reshape(len(at), -1, 1)))[..., 0]
    of_reading = np.linalg.inv(np.eye(MODES) * shared[:, None, :] ** 2.0 + solve)
    of_pixels = np.linalg.inv(covariance)
    joint = np.linalg.inv(of_reading + of_pixels)
    mean = (joint @ (of_reading @ reading[..., None] + of_pixels @ steps[..., None]))[..., 0]
    return mean - reading, np.sqrt(np.diagonal(joint, axis1=1, axis2=2))


def _mode_std(seen: Observation, at: NDArray[np.int64], modes: Array) -> Array:
    """Standard deviations [N, 6] of the shared error: its basis is the modes times these."""
    basis = seen.shared_basis[at]
    return np.maximum(np.abs((basis * modes).sum(axis=(1, 2))) / (modes**2).sum(axis=(1, 2)), _READING_STD_FLOOR)


def _moved(
    seen: Observation, at: NDArray[np.int64], pose: Pose, shift: Array, std: Array,
    calibration: Calibration,
) -> Observation:  # fmt: skip
    """Bearings moved by the shifts, bridged in time; the shared error that is left.

    A shift is what the network erred by: between aligned frames that is known as far as it is correlated with theirs.
    """
    known = np.flatnonzero(seen.visible.any(axis=1))
    modes = pose_modes(pose[known], seen.points_body)
    times, given = seen.error_clock_s[known], seen.error_clock_s[at]
    first = np.clip(np.searchsorted(given, times, side="right") - 1, 0, len(given) - 2)

    def correlation(lag_s: Array) -> Array:
        return np.asarray(np.exp(-np.abs(lag_s)[:, None] / np.maximum(seen.correlation_time_s, 1e-9)))

    across = correlation(given[first + 1] - given[first])
    left, right = correlation(times - given[first]), correlation(given[first + 1] - times)
    weights = (left - right * across) / (1.0 - across**2), (right - left * across) / (1.0 - across**2)
    shifts = weights[0] * shift[first] + weights[1] * shift[first + 1]
    unknown = np.maximum(1.0 - weights[0] * left - weights[1] * right, 0.0)
    stds = np.sqrt(
        unknown * _mode_std(seen, known, modes) ** 2 + (weights[0] * std[first] + weights[1] * std[first + 1]) ** 2
    )
    bearings, basis = seen.bearings.copy(), seen.shared_basis.copy()
    bearings[known] += np.einsum("nkim,nm->nki", modes, shifts)
    basis[known] = modes * stds[:, None, None, :]
    return replace(
        seen, bearings=bearings, shared_basis=basis, correlation_time_s=np.array(calibration.align_correlation_s)
    )

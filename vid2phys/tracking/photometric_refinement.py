"""Refine the poses of a clip by its own pixels, frame by frame, before the last fit.

The errors of a network are biases of an appearance: they do not average out over time. Aligning the mesh to the pixels
(`cues.photometric`) errs in other ways and much less. So the poses of both are joined by their covariances, and what
they share with the frames between aligned ones moves these too.

Limits: frames in which the body hides a background that other frames show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.pose_geometry import pose_modes, project_points
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose
from vid2phys.indices import evenly
from vid2phys.tracking.cues.photometric import MODES, Stage, align
from vid2phys.tracking.measured import shared_std, with_poses
from vid2phys.types import Array, Clip, Mesh, Observation

_MOST_FRAMES = 600  # that are aligned; the others lie between two of them
_LEAST_FRAMES = 4
_WORST_LEVEL = 4.0  # frames that fit this many times worse than the median are not aligned
_STD_FLOOR = 1e-4
_RIDGE_SIGMA = 20.0


def refined(
    clip: Clip,
    stage: Stage,
    calibration: Calibration,
    seen: Observation,
    pose: Pose,
    mesh_of: Callable[[int], Mesh] | None = None,
) -> Observation | None:
    """Return the observation with poses measured by the clip's pixels near fitted poses camera_from_body [T].

    mesh_of: gives the mesh as a frame shows it (default: that of the stage). None when too few frames show the body
    against a background known from other frames.
    """
    tracked = np.flatnonzero(seen.seen)
    chosen = tracked[evenly(len(tracked), _MOST_FRAMES)]
    images, used = [], []
    for frame, i in zip(clip.frames.at(chosen), chosen, strict=True):
        in_frame = stage if mesh_of is None else replace(stage, mesh=mesh_of(int(i)))
        image = in_frame.frame_at(frame, pose[i])
        if image is not None:
            images.append(image)
            used.append(i)
    if len(images) < _LEAST_FRAMES:
        return None
    found = align(images)
    sound = found.usable & (found.level < _WORST_LEVEL * np.median(found.level))
    at = np.array(used)[sound]
    if len(at) < _LEAST_FRAMES:
        return None
    scale = np.array(calibration.align_scale)
    covariance = scale[:, None] * found.covariance[sound] * scale
    step, own, shared = _tracked(seen, tracked, pose[tracked])
    rows = np.searchsorted(tracked, at)
    shift, std = _joined(step[rows], own[rows], shared[rows], found.steps[sound], covariance)
    shifts, stds = _between(seen, (tracked, at), shared, shift, std)
    correlation_s = np.array(calibration.align_correlation_s)
    measured = pose[tracked].retract(step + shifts)
    return with_poses(seen, tracked, measured, stds[..., None] * np.eye(MODES), correlation_s, "pixels", own)


def _tracked(seen: Observation, frames: NDArray[np.int64], pose: Pose) -> tuple[Array, Array, Array]:
    """Return what the tracker says of poses [N]: steps [N, 6] to them, own covariances and stds of the processes.

    Keypoints say it by one robust linear fit; a configuration that was measured says it directly.
    """
    shared = np.maximum(shared_std(seen, frames, pose), _STD_FLOOR)
    modes, visible = pose_modes(pose, seen.points_body), seen.visible[frames]  # [N, K, 2, 6]
    residual = seen.bearings[frames] - project_points(pose, seen.points_body)
    root = np.linalg.inv(np.linalg.cholesky(seen.covariance[frames])) * visible[..., None, None]
    white = (root @ residual[..., None])[..., 0]
    weight = np.where(visible, 6.0 / (5.0 + (white**2).sum(axis=-1)), 0.0)[..., None]
    basis = (root @ modes).reshape(len(frames), -1, MODES)
    weighted = np.swapaxes(basis * np.repeat(weight, 2, axis=-1).reshape(len(frames), -1, 1), 1, 2)
    # a ridge far beyond what keypoints err by: only modes that the points do not show stay put
    own = np.linalg.inv(weighted @ basis + np.eye(MODES) * (_RIDGE_SIGMA * shared[:, None, :]) ** -2.0)
    step = (own @ (weighted @ white.reshape(len(frames), -1, 1)))[..., 0]
    if seen.configuration is not None:
        part = seen.configuration[frames]
        at = part.measured
        step[at], own[at] = pose[at].step_to(part.pose[at]), part.covariance[at]
    return step, own, shared


def _joined(step: Array, own: Array, shared: Array, aligned: Array, covariance: Array) -> tuple[Array, Array]:
    """Return by how much poses are to be moved, and the standard deviations of what remains, [N, 6] each.

    step, own, shared: see `_tracked`. aligned: [N, 6] steps to the poses of the pixels, of covariance [N, 6, 6].
    """
    of_tracker = np.linalg.inv(np.eye(MODES) * shared[:, None, :] ** 2.0 + own)
    of_pixels = np.linalg.inv(covariance)
    both = np.linalg.inv(of_tracker + of_pixels)
    mean = (both @ (of_tracker @ step[..., None] + of_pixels @ aligned[..., None]))[..., 0]
    return mean - step, np.sqrt(np.diagonal(both, axis1=1, axis2=2))


def _between(
    seen: Observation, frames: tuple[NDArray[np.int64], NDArray[np.int64]], shared: Array, shift: Array, std: Array
) -> tuple[Array, Array]:
    """Return shifts and standard deviations [N, 6] of the tracked frames, from those [M, 6] of the aligned ones.

    A shift is what the tracker erred by: between aligned frames that is known as far as it is correlated with theirs.
    """
    times, given = (seen.error_clock_s[some] for some in frames)
    first = np.clip(np.searchsorted(given, times, side="right") - 1, 0, len(given) - 2)

    def correlation(lag_s: Array) -> Array:
        return np.asarray(np.exp(-np.abs(lag_s)[:, None] / np.maximum(seen.process_time_s, 1e-9)))

    across = correlation(given[first + 1] - given[first])
    left, right = correlation(times - given[first]), correlation(given[first + 1] - times)
    weights = (left - right * across) / (1.0 - across**2), (right - left * across) / (1.0 - across**2)
    shifts = weights[0] * shift[first] + weights[1] * shift[first + 1]
    unknown = np.maximum(1.0 - weights[0] * left - weights[1] * right, 0.0)
    variance = unknown * shared**2 + (weights[0] * std[first] + weights[1] * std[first + 1]) ** 2
    return shifts, np.sqrt(variance)

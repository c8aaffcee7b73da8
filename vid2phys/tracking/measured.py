"""Make measurements of configurations: what a refiner found, beside what the keypoints of the frame say of it.

Purpose: a refined configuration errs in two ways. What a cue mistakes, it mistakes for many frames: this is an error
process. The keypoints with which the configuration was found err independently from frame to frame.

Method: the covariance of the independent part is that of a least-squares fit of the configuration to the keypoints,
inv(J' W J), with J the derivative of bearings by the configuration.

Limits: to first order in the errors. Coordinates that the keypoints do not show have the covariance of a weak prior.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.pose_geometry import pose_modes
from vid2phys.geometry import Pose
from vid2phys.types import Array, ConfigurationMeasurement, Observation

_WEAK_STD = np.array([3.0, 3.0, 3.0, 1.0, 1.0, 1.0])  # of a pose, in the local coordinates of `Pose.retract`


def keypoint_information(modes: Array, covariance: Array, visible: NDArray[np.bool_]) -> Array:
    """Return the information [N, D, D] of keypoints with independent errors about what moves them.

    Args:
        modes: [N, K, 2, D] derivatives of the bearings.
        covariance: [N, K, 2, 2] of the bearings.
        visible: [N, K], whether to count a keypoint.
    """
    weight = np.where(visible[..., None, None], np.linalg.inv(covariance), 0.0)
    return np.asarray(np.einsum("nkia,nkij,nkjb->nab", modes, weight, modes, optimize=True))


def with_poses(
    seen: Observation,
    frames: NDArray[np.int64],
    pose: Pose,
    std: Array,
    correlation_time_s: Array,
    source: str,
    covariance: Array | None = None,
) -> Observation:
    """Return the observation with measured poses in some frames.

    Args:
        seen: what was seen in T frames.
        frames: [n] indices of the measured frames.
        pose: [n] camera_from_body.
        std: [n, 6] of the error processes, in the local coordinates of the pose.
        correlation_time_s: [6] of the processes, s.
        source: what measured the poses.
        covariance: [n, 6, 6] of independent errors; None for those of the frames' keypoints, or of the poses measured
            there before.
    """
    if not len(frames):
        return seen
    if covariance is None:
        covariance = _own_covariance(seen, frames, pose)
    found = ConfigurationMeasurement(
        pose, covariance, std[..., None] * np.eye(6), correlation_time_s, np.ones(len(frames), dtype=bool), source
    )
    return seen.with_configurations(frames, found)


def _own_covariance(seen: Observation, frames: NDArray[np.int64], pose: Pose) -> Array:
    """Return the covariance [n, 6, 6] of the independent errors of poses that were refined in some frames."""
    modes = pose_modes(pose, seen.points_body)
    information = keypoint_information(modes, seen.covariance[frames], seen.visible[frames])
    covariance = np.asarray(np.linalg.inv(information + np.diag(_WEAK_STD**-2.0)), dtype=float)
    if seen.configuration is not None:
        before = seen.configuration.measured[frames]
        covariance[before] = seen.configuration.covariance[frames][before]
    return covariance


def std_along(basis: Array, modes: Array) -> Array:
    """Return the standard deviations [n, D] of errors with basis [n, K, 2, D], which is the modes times these."""
    return np.asarray(np.abs((basis * modes).sum(axis=(1, 2))) / (modes**2).sum(axis=(1, 2)))


def shared_std(seen: Observation, frames: NDArray[np.int64], pose: Pose) -> Array:
    """Return the standard deviations [n, 6] of the error processes of some frames, in the local coordinates of poses.

    Keypoints have the basis `pose_modes` times these.
    """
    std = std_along(seen.shared_basis[frames], pose_modes(pose, seen.points_body))
    if seen.configuration is not None:
        at = seen.configuration.measured[frames]
        std[at] = np.sqrt((seen.configuration.shared_basis[frames][at] ** 2).sum(axis=-1))
    return std

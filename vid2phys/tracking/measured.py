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

_LEAST_EIGENVALUE = 1e-6  # of the correlations
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
    basis: Array,
    correlation_time_s: Array,
    source: str,
    covariance: Array | None = None,
) -> Observation:
    """Return the observation with measured poses in some frames.

    Args:
        seen: what was seen in T frames.
        frames: [n] indices of the measured frames.
        pose: [n] camera_from_body.
        basis: [n, 6, 6] of the error processes, in the local coordinates of the pose (`error_basis`).
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
        pose, covariance, basis, correlation_time_s, np.ones(len(frames), dtype=bool), source
    )
    return seen.with_configurations(frames, found)


def error_basis(covariance: Array, std: Array | None = None) -> Array:
    """Return the basis [..., D, D] of error processes that have a covariance [..., D, D] together.

    It is the standard deviations times the square root of the correlations. Errors that adjacent frames share stay so
    in the same mode, since the square root changes little where the covariance does.

    std: [..., D], standard deviations in place of those of the covariance.
    """
    stated = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    values, vectors = np.linalg.eigh(covariance / (stated[..., :, None] * stated[..., None, :]))
    root = (vectors * np.sqrt(np.maximum(values, _LEAST_EIGENVALUE))[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return np.asarray((stated if std is None else std)[..., None] * root)


def shared_std(seen: Observation, frames: NDArray[np.int64], pose: Pose) -> Array:
    """Return the standard deviations [n, 6] of `shared_covariance`."""
    return np.asarray(np.sqrt(np.diagonal(shared_covariance(seen, frames, pose), axis1=1, axis2=2)))


def shared_covariance(seen: Observation, frames: NDArray[np.int64], pose: Pose) -> Array:
    """Return the covariances [n, 6, 6] of the error processes of some frames, in the local coordinates of poses.

    Keypoints have the basis `pose_modes` times standard deviations.
    """
    std = std_along(seen.shared_basis[frames], pose_modes(pose, seen.points_body))
    covariance = std[..., None] ** 2 * np.eye(6)
    if seen.configuration is not None:
        at = seen.configuration.measured[frames]
        basis = seen.configuration.shared_basis[frames][at]
        covariance[at] = basis @ np.swapaxes(basis, -1, -2)
    return covariance


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

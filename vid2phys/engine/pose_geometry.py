"""Projection of a body at a pose, its derivatives, and sets of rotations, as tracking and calibration share them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import Pose, matrix_from_quat, skew
from vid2phys.types import Array, Observation


@lru_cache(maxsize=4)
def rotation_grid(count: int) -> Array:
    """Return `count` rotations spread evenly over all, [count, 3, 3] (Alexa, Super-Fibonacci spirals, CVPR 2022)."""
    s = np.arange(count) + 0.5
    r, big_r = np.sqrt(s / count), np.sqrt(1.0 - s / count)
    alpha, beta = 2.0 * np.pi * s / np.sqrt(2.0), 2.0 * np.pi * s / 1.533751168755204288118041
    quat = np.stack([r * np.sin(alpha), r * np.cos(alpha), big_r * np.sin(beta), big_r * np.cos(beta)], axis=-1)
    return matrix_from_quat(quat)


def project_points(pose: Pose, points_body: Array) -> Array:
    """Return the bearings [..., K, 2] of body points [K, 3] m at poses camera_from_body [...]."""
    x = pose.apply(points_body)
    return x[..., :2] / x[..., 2:]


def image_points(seen: Observation) -> tuple[Array, NDArray[np.bool_]]:
    """Return the bearings [T, K, 2] of a rigid body's keypoints, and which of them are known [T, K].

    They are those of the measured poses, in other frames those that were detected.
    """
    measured = seen.configuration
    if measured is None or not isinstance(measured.configuration, Pose):
        return seen.bearings, seen.visible
    here = measured.measured[:, None]
    return np.where(
        here[..., None], project_points(measured.pose, seen.points_body), seen.bearings
    ), seen.visible | here


def diameter_px(focal_px: float, radius_m: float, places: Array) -> float:
    """Return the diameter in the frames of a body of `radius_m` at places [T, 3] from the camera, by their median."""
    return 2.0 * focal_px * radius_m / float(np.median(np.linalg.norm(places, axis=-1)))


def pose_modes(pose: Pose, points_body: Array) -> Array:
    """Return the derivative of bearings by the local coordinates of a pose (`Pose.retract`), [..., K, 2, 6].

    The columns are the modes of a frame's shared error: rotation about the camera's x, y and z axes through the body's
    origin [rad]; sideways motion along the camera's x and y axes as a fraction of the range; logarithm of the distance.
    """
    return modes_of_points(pose.apply(points_body), pose.translation[..., None, :])


def modes_of_points(points_camera: Array, translation: Array) -> Array:
    """Return the modes of `pose_modes` at points [..., 3] in camera axes, [..., 2, 6]; translation: [..., 3] m."""
    d_point = np.zeros((*points_camera.shape[:-1], 2, 3))
    d_point[..., 0, 0] = d_point[..., 1, 1] = 1.0
    d_point[..., 2] = -points_camera[..., :2] / points_camera[..., 2:]
    d_point /= points_camera[..., 2, None, None]
    translation = np.broadcast_to(translation, points_camera.shape)
    distance = np.linalg.norm(translation, axis=-1)[..., None, None]
    radial = d_point @ translation[..., None]
    return np.concatenate([-d_point @ skew(points_camera - translation), d_point[..., :2] * distance, radial], axis=-1)


def covariance_in_modes(covariance: Array, translation: Array) -> Array:
    """Return the covariance of (rotation [rad], translation [m]) in the modes of `pose_modes`, [..., 6, 6]."""
    distance = np.linalg.norm(translation, axis=-1)
    to_modes = np.zeros(covariance.shape)
    to_modes[..., range(5), range(5)] = 1.0
    to_modes[..., 3, 3] = to_modes[..., 4, 4] = 1.0 / distance
    to_modes[..., 3:5, 5] = -translation[..., :2] / (translation[..., 2] * distance)[..., None]
    to_modes[..., 5, 5] = 1.0 / translation[..., 2]
    return np.asarray(to_modes @ covariance @ np.swapaxes(to_modes, -1, -2))


def distinct_rotations(
    rotation: Array, cost: Array, count: int, apart_rad: float
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return indices [N, count] of the cheapest rotations `apart_rad` apart, and which of them repeat the first.

    rotation: [N, M, 3, 3]. cost: [N, M].
    """
    rows = np.arange(cost.shape[0])
    left = np.where(np.isfinite(cost), cost, 1e30)
    index, duplicate = np.zeros((len(rows), count), dtype=np.int64), np.zeros((len(rows), count), dtype=bool)
    for h in range(count):
        chosen = np.argmin(left, axis=1)
        duplicate[:, h] = left[rows, chosen] >= 1e29
        index[:, h] = np.where(duplicate[:, h], index[:, 0], chosen)
        relative = np.einsum("nij,nmij->nm", rotation[rows, chosen], rotation)
        near = np.arccos(np.clip(0.5 * (relative - 1.0), -1.0, 1.0)) < apart_rad
        left = np.where(near, 1e30, left)
    return index, duplicate

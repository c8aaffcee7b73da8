"""From states to keypoints, to bearings in the camera, to pixels, and back.

A bearing is (x/z, y/z) in camera axes (OpenCV: x right, y down, z forward), distortion removed. Pixel centres are at
integers. What the camera cannot see is NaN: points behind it, and directions beyond the field in which its distortion
model is one-to-one (there the formulas would fold points back into the image).
"""

from __future__ import annotations

import numpy as np

from vid2phys.engine.distortion import distort, distortion_jacobian, undistort
from vid2phys.engine.system import System
from vid2phys.geometry import invert_transform, transform_points
from vid2phys.types import Array, Camera


def project(camera: Camera, points_camera: Array) -> Array:
    """Return the pixels [..., 2] of points [..., 3] in camera axes [m]; NaN where the camera cannot see."""
    return bearings_to_pixels(camera, to_bearings(points_camera))


def to_bearings(points_camera: Array) -> Array:
    """Return the bearings [..., 2] of points [..., 3] in camera axes [m]; NaN behind the camera."""
    points = np.asarray(points_camera, dtype=float)
    depth = np.where(points[..., 2:] > 0.0, points[..., 2:], np.nan)
    return points[..., :2] / depth


def bearings_to_pixels(camera: Camera, bearings: Array) -> Array:
    """Return the pixels of bearings through the camera's whole distortion model, [..., 2] -> [..., 2]."""
    return distort(camera, bearings) @ camera.K[:2, :2].T + camera.K[:2, 2]


def pixels_to_bearings(camera: Camera, pixels: Array) -> Array:
    """Return the bearings of pixels, the inverse of `bearings_to_pixels` to rounding, [..., 2] -> [..., 2]."""
    centred = np.asarray(pixels, dtype=float) - camera.K[:2, 2]
    return undistort(camera, centred @ np.linalg.inv(camera.K[:2, :2]).T)


def bearing_jacobian_to_pixels(camera: Camera, bearings: Array) -> Array:
    """Return d pixel / d bearing, [..., 2] -> [..., 2, 2]."""
    return camera.K[:2, :2] @ distortion_jacobian(camera, bearings)


def observe(system: System, states: Array, points_body: Array, camera_to_world: Array) -> tuple[Array, Array, Array]:
    """Return the bearings of a body's keypoints and their derivatives.

    states: [..., N]. points_body: [K, 3] m. camera_to_world: [4, 4], or [..., 4, 4] of each state. Returns bearings
    [..., K, 2], their Jacobian with respect to the tangent of the state [..., K, 2, D], and depths [..., K] in m (not
    positive: behind the camera, and the bearing is that of the line through the point).
    """
    world_to_camera = invert_transform(camera_to_world)
    points = transform_points(world_to_camera, system.keypoints(states, points_body))
    depth = points[..., 2]
    safe = np.where(np.abs(depth) < 1e-9, 1e-9, depth)[..., None]
    bearings = points[..., :2] / safe
    by_point = np.zeros((*depth.shape, 2, 3))
    by_point[..., 0, 0] = by_point[..., 1, 1] = 1.0 / safe[..., 0]
    by_point[..., 2] = -bearings / safe
    jacobian = by_point @ world_to_camera[..., None, :3, :3] @ system.keypoints_jacobian(states, points_body)
    return bearings, jacobian, depth

"""The virtual camera: the calibrated camera turned to look at the object and zoomed until the object fills the view.

A view pixel's ray is turned into camera axes, sent through the camera's full distortion model and read from the
frame: one resampling, rotation and intrinsics only, nothing approximated. Pixel centres are at integers everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.types import Array, Camera

FILL = 2.0 / 3.0  # share of the view that the diameter of the object's bounding sphere takes
_MAX_SUPERSAMPLE = 8
_MIN_DOWN = 0.05  # sine of the angle between the line of sight and gravity below which "down" is not defined


@dataclass(frozen=True)
class View:
    """A pinhole camera at the centre of the calibrated one.

    rotation_view_from_camera: [3, 3], x_view = rotation @ x_camera. K: [3, 3] px. size: width and height, px.
    """

    rotation_view_from_camera: Array
    K: Array
    size: int


def make_view(
    camera: Camera,
    center_bearing: Array,
    angular_radius: float,
    size: int,
    *,
    fill: float = FILL,
    roll_rad: float = 0.0,
) -> View:
    """Return the view that looks along `center_bearing` with gravity pointing down in the image.

    center_bearing: [2] direction x/z, y/z in camera axes. angular_radius: of the object's bounding sphere, rad
    (arcsin of radius over distance). fill: share of the view its diameter takes. roll_rad: turn of the image
    about its centre, for averaging over several views. Where the line of sight is vertical, or the camera has no pose
    or one for each frame (`Camera.at`), the camera's own y axis is down.
    """
    forward = np.array([center_bearing[0], center_bearing[1], 1.0])
    forward /= np.linalg.norm(forward)
    down = _orthogonal(_gravity_in_camera(camera), forward)
    if np.linalg.norm(down) < _MIN_DOWN:
        down = _orthogonal(np.array([0.0, 1.0, 0.0]), forward)
    down /= np.linalg.norm(down)
    right = np.cross(down, forward)
    cos, sin = np.cos(roll_rad), np.sin(roll_rad)
    rotation = np.stack([cos * right + sin * down, cos * down - sin * right, forward])
    focal = 0.5 * fill * size / np.tan(angular_radius)
    middle = 0.5 * (size - 1)
    return View(rotation, np.array([[focal, 0.0, middle], [0.0, focal, middle], [0.0, 0.0, 1.0]]), size)


def _gravity_in_camera(camera: Camera) -> Array:
    if camera.camera_to_world is None or camera.moves:
        return np.array([0.0, 1.0, 0.0])
    return -np.asarray(camera.camera_to_world, dtype=float)[2, :3]


def _orthogonal(vector: Array, unit: Array) -> Array:
    return vector - unit * (unit @ vector)


def resample(frame: NDArray[np.uint8], camera: Camera, view: View) -> NDArray[np.uint8]:
    """Return what the view sees of a frame, [H, W, 3] -> [size, size, 3] uint8.

    Bilinear; where the frame has more than one pixel per view pixel, n x n rays per view pixel are averaged (an area
    filter). Outside the frame the edge is repeated; `in_frame` says which points that concerns.
    """
    import cv2

    factor = _supersample(camera, view)
    at_u, at_v = (np.clip(at, -2.0, 32000.0).astype(np.float32) for at in _source_grid(camera, view, factor))
    image = cv2.remap(frame, at_u, at_v, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    if factor > 1:
        image = cv2.resize(image, (view.size, view.size), interpolation=cv2.INTER_AREA)
    return image.astype(np.uint8, copy=False)


def _source_grid(camera: Camera, view: View, factor: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the frame pixels under factor x factor rays of each view pixel, u and v [size * factor, size * factor].

    Without supersampling each ray goes through the distortion model; with it the corners of the view pixels do, and the
    rays inside a pixel are interpolated between them (to about a thousandth of a frame pixel).
    """
    at = np.arange(view.size) if factor == 1 else np.arange(view.size + 1) - 0.5
    u, v = np.meshgrid(at, at)
    source = _source_pixels(camera, view, np.stack([u, v], axis=-1))
    if factor == 1:
        return source[..., 0], source[..., 1]
    place = (np.arange(view.size * factor) + 0.5) / factor
    corner = np.arange(view.size + 1)
    weights = np.maximum(0.0, 1.0 - np.abs(place[:, None] - corner)).astype(np.float32)
    u, v = np.moveaxis(source, -1, 0).astype(np.float32)
    return weights @ u @ weights.T, weights @ v @ weights.T


def _source_pixels(camera: Camera, view: View, pixels: Array) -> Array:
    """Return the frame pixels under view pixels, [..., 2] -> [..., 2].

    Beyond the field of the distortion model the pinhole's direction is taken: outside the frame on the right side.
    """
    view_from_pixels = view.rotation_view_from_camera.T @ np.linalg.inv(view.K)
    rays = pixels @ view_from_pixels[:, :2].T + view_from_pixels[:, 2]
    rays[..., 2] = np.maximum(rays[..., 2], 1e-3)
    bearings = rays[..., :2] / rays[..., 2:]
    source = bearings_to_pixels(camera, bearings)
    return np.where(np.isfinite(source), source, bearings @ camera.K[:2, :2].T + camera.K[:2, 2])


def _supersample(camera: Camera, view: View) -> int:
    """Return the rays per view pixel and axis so that neighbouring rays are at most one frame pixel apart at the
    centre.
    """
    middle = np.full(2, 0.5 * (view.size - 1))
    step = _source_pixels(camera, view, middle + np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    scale = float(np.linalg.norm(step[1:] - step[0], axis=-1).max())
    return int(np.clip(np.ceil(scale - 0.05), 1, _MAX_SUPERSAMPLE))


def view_to_bearings(view: View, pixels: Array) -> tuple[Array, Array]:
    """Return the bearings in camera axes of view pixels, and their derivative.

    pixels: [..., 2] px. Returns bearings [..., 2] and d bearing / d pixel [..., 2, 2].
    """
    view_from_pixels = view.rotation_view_from_camera.T @ np.linalg.inv(view.K)
    rays = np.asarray(pixels, dtype=float) @ view_from_pixels[:, :2].T + view_from_pixels[:, 2]
    bearings = rays[..., :2] / rays[..., 2:]
    jacobian = (view_from_pixels[:2, :2] - bearings[..., :, None] * view_from_pixels[2, :2]) / rays[..., 2, None, None]
    return bearings, jacobian


def bearings_to_view(view: View, bearings: Array) -> Array:
    """View pixels of bearings in camera axes, [..., 2] -> [..., 2] px."""
    view_from_pixels = view.K @ view.rotation_view_from_camera
    bearings = np.asarray(bearings, dtype=float)
    rays = bearings @ view_from_pixels[:, :2].T + view_from_pixels[:, 2]
    return rays[..., :2] / rays[..., 2:]


def map_covariance(jacobian: Array, covariance: Array) -> Array:
    """Return the covariance after a linear map, J C J^T, both [..., 2, 2]."""
    return jacobian @ covariance @ np.swapaxes(jacobian, -1, -2)


def in_frame(camera: Camera, bearings: Array) -> NDArray[np.bool_]:
    """Return whether bearings fall on the frame, [..., 2] -> [...]; the image spans [-0.5, width - 0.5]."""
    pixels = bearings_to_pixels(camera, np.asarray(bearings, dtype=float))
    limits = np.array([camera.width, camera.height]) - 0.5
    return np.all((pixels >= -0.5) & (pixels <= limits), axis=-1)

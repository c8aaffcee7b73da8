"""Images of a calibration target through a known camera, by this project's own projection; no drawing of OpenCV.

Each pixel's ray (two by two of them) is met with the target's plane, and the target painted there from its rectangles.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates

from vid2phys.camera_calibration.target import Target, black_areas
from vid2phys.engine.observe import pixels_to_bearings
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.types import Array, Camera

_CELLS = 600.0  # of the painted target's longer side
_MARGIN = 0.15  # white paper around it, in shares of that side


@lru_cache(maxsize=8)
def painted(target: Target) -> tuple[Array, float]:
    """The target as paper: black 0, white 1, row 0 at the bottom of the page; cells a metre."""
    wide, high = target.size_m
    scale, border = _CELLS / max(wide, high), _MARGIN * max(wide, high)
    rows, columns = (int(np.ceil((side + 2 * border) * scale)) for side in (high, wide))
    paper = np.ones((rows, columns))
    for x, y, w, h in black_areas(target):
        across, along = (
            np.clip(np.arange(1, n + 1), a * scale, b * scale) - np.clip(np.arange(n), a * scale, b * scale)
            for n, a, b in ((columns, x + border, x + w + border), (rows, y + border, y + h + border))
        )
        paper -= np.outer(along, across)  # the share of each cell that is black
    return paper, scale


@lru_cache(maxsize=4)
def _rays(key: tuple, width: int, height: int, model: str) -> Array:
    """Bearings of the four quarters of each pixel, [2 H, 2 W, 2], to first order about its centre."""
    camera = Camera(np.array(key[0]).reshape(3, 3), width, height, np.array(key[1]), model)
    middle = pixels_to_bearings(camera, np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1))
    down, right = np.gradient(middle, axis=(0, 1))
    out = np.empty((2 * height, 2 * width, 2))
    for i, along in enumerate((-0.25, 0.25)):
        for j, across in enumerate((-0.25, 0.25)):
            out[i::2, j::2] = middle + along * down + across * right
    return out


def photograph(
    camera: Camera, target: Target, page_to_camera: Array, *, noise: float = 2.0, seed: int = 0, blur: float = 0.5
) -> NDArray[np.uint8]:
    """A grey image, [H, W]; page_to_camera [4, 4] puts the target's page axes before the camera."""
    key = (tuple(camera.K.ravel()), tuple(camera.distortion))
    bearings = _rays(key, camera.width, camera.height, camera.model)
    rays = np.concatenate([bearings, np.ones((*bearings.shape[:2], 1))], axis=-1)
    rotation, shift = page_to_camera[:3, :3], page_to_camera[:3, 3]
    normal = rotation[:, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        depth = (normal @ shift) / (rays @ normal)
        place = (rays * depth[..., None] - shift) @ rotation
    paper, scale = painted(target)
    border = _MARGIN * max(target.size_m)
    cells = [(place[..., i] + border) * scale - 0.5 for i in (1, 0)]
    seen = (depth > 0.0) & np.isfinite(place).all(axis=-1)
    inside = seen & (cells[0] > 0) & (cells[1] > 0) & (cells[0] < paper.shape[0] - 1) & (cells[1] < paper.shape[1] - 1)
    light = np.full(bearings.shape[:2], 0.35)
    light[inside] = 0.06 + 0.8 * map_coordinates(paper, [cell[inside] for cell in cells], order=1)
    light = light.reshape(camera.height, 2, camera.width, 2).mean(axis=(1, 3))
    shade = 1.0 + 0.15 * np.linspace(-1, 1, camera.width)[None]
    image = 255.0 * gaussian_filter(light, blur) * shade + noise * np.random.default_rng(seed).normal(size=light.shape)
    return image.round().clip(0, 255).astype(np.uint8)


def facing(target: Target, distance_m: float, turn: Array, shift: Array) -> Array:
    """page_to_camera of a target: its middle at a distance and `shift` [2] m aside, turned by `turn` from facing."""
    faces = np.diag([1.0, -1.0, -1.0])  # page up is up in the image, and the page looks at the camera
    rotation = matrix_from_rotvec(np.asarray(turn, dtype=float)) @ faces
    middle = np.array([0.5 * target.size_m[0], 0.5 * target.size_m[1], 0.0])
    pose = np.eye(4)
    pose[:3, :3] = rotation
    pose[:3, 3] = np.array([*shift, distance_m]) - rotation @ middle
    return pose


def round_about(target: Target, camera: Camera, count: int, seed: int = 0, tilt_deg: float = 35.0) -> list[Array]:
    """Poses that fill the image in turn: near and far, in its corners, tilted to all sides."""
    rng = np.random.default_rng(seed)
    poses = []
    for i in range(count):
        share = 0.55 + 0.25 * rng.uniform()
        distance = camera.K[0, 0] * target.size_m[0] / (share * camera.width)
        angle = 2.0 * np.pi * i / count
        turn = np.deg2rad(tilt_deg * rng.uniform(0.5, 1.0)) * np.array([np.cos(3 * angle), np.sin(3 * angle), 0.0])
        turn[2] = np.deg2rad(rng.uniform(-20, 20))
        room = distance / camera.K[0, 0] * np.array([camera.width, camera.height]) * 0.5
        poses.append(facing(target, distance, turn, 0.42 * room * np.array([np.cos(angle), np.sin(angle)])))
    return poses

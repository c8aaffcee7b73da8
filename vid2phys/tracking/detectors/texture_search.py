"""Search the pose of a textured body in one frame at a known place: all orientations, compared by colours.

The search serves images in which the network is wrong about the shape and no other frame helps. A cube seen face-on is
a square, whichever way it is tilted.

Limits: the best orientation of a grid is about 20 degrees off; a fit has to follow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.engine.pose_geometry import rotation_grid
from vid2phys.geometry import Pose
from vid2phys.tracking.cues.texture import Light, SurfaceTexture
from vid2phys.types import Array, Camera


@dataclass(frozen=True, kw_only=True)
class TextureSearchConfig:
    """Settings of `search`."""

    rotations: int = 576
    """Number of rotations in the grid; every rotation is within about 20 degrees of one of them."""
    best: int = 6
    """Number of poses that are returned."""
    stride: int = 4
    """Every so manyth point of the surface is compared."""
    grazing: float = 0.2
    """Least cosine between normal and line of sight at which a point is seen."""
    min_points: int = 24
    """Least number of points that are seen."""
    min_size_px: float = 4.0
    """Least size of the body in the frame, px."""
    min_blur_px: float = 0.8
    """Least blur of the frame, px."""
    placings: int = 3
    """Rounds in which the place of each orientation is found."""
    start_sizes: float = 20.0
    """Distance at which these rounds begin, sizes of the body."""


DEFAULTS = TextureSearchConfig()


def search(
    frame: NDArray[np.uint8],
    camera: Camera,
    texture: SurfaceTexture,
    bearings: Array,
    config: TextureSearchConfig = DEFAULTS,
) -> list[Pose]:
    """Return the most likely poses camera_from_body of a body with keypoints at bearings [K, 2], best first.

    The labels of the keypoints do not matter: their extent gives place and distance.
    """
    import cv2

    low, high = np.nanmin(bearings, axis=0), np.nanmax(bearings, axis=0)
    corners = bearings_to_pixels(camera, np.stack([low, high]))
    size_px = float(np.ptp(corners, axis=0).max())
    if not np.isfinite(size_px) or size_px < config.min_size_px:
        return []
    image = cv2.GaussianBlur(frame, (0, 0), max(config.min_blur_px, texture.blur_shares[0] * size_px))
    points, normals = texture.fine_points[:: config.stride], texture.fine_normals[:: config.stride]
    colors, rotations = texture.fine_colors[0][:: config.stride], rotation_grid(config.rotations)
    rotated, facing = points @ np.swapaxes(rotations, 1, 2), normals @ np.swapaxes(rotations, 1, 2)
    translation = _placed(rotated, low, high, config)
    placed = rotated + translation[:, None]
    cosine = -(facing * placed).sum(axis=-1) / np.linalg.norm(placed, axis=-1)
    pixels = bearings_to_pixels(camera, placed[..., :2] / placed[..., 2:])
    extent = np.array(frame.shape[1::-1]) - 1.0
    seen = (cosine > config.grazing) & ((pixels > 0.0) & (pixels < extent)).all(axis=-1)
    score = np.full(len(rotations), -np.inf)
    for r in np.flatnonzero(seen.sum(axis=1) >= config.min_points):
        x, y = (np.ascontiguousarray(pixels[r, seen[r], i], dtype=np.float32)[:, None] for i in range(2))
        found = cv2.remap(image, x, y, cv2.INTER_LINEAR)[:, 0].astype(float) / 255.0
        light = Light.fit(found, colors[seen[r]], facing[r, seen[r]], config=texture.config)
        score[r] = light.explained(found, facing[r, seen[r]])
    order = np.argsort(-score, kind="stable")[: config.best]
    return [Pose(rotations[r], translation[r]) for r in order if np.isfinite(score[r])]


def _placed(rotated: Array, low: Array, high: Array, config: TextureSearchConfig) -> Array:
    """Return translations [R, 3] that put rotated points [R, N, 3] between bearings low [2] and high [2]."""
    size = float(np.ptp(rotated, axis=(0, 1)).max())
    translation = np.tile(config.start_sizes * size * np.array([*(0.5 * (low + high)), 1.0]), (len(rotated), 1))
    for _ in range(config.placings):
        placed = rotated + translation[:, None]
        bearings = placed[..., :2] / placed[..., 2:]
        lowest, highest = bearings.min(axis=1), bearings.max(axis=1)
        ratio = np.linalg.norm(highest - lowest, axis=1) / np.linalg.norm(high - low)
        depth = np.maximum(translation[:, 2] * ratio, size)
        place = translation[:, :2] / translation[:, 2:] + 0.5 * (low + high) - 0.5 * (lowest + highest)
        translation = np.concatenate([place * depth[:, None], depth[:, None]], axis=1)
    return translation

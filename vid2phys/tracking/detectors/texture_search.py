"""A painted body's poses in one frame when only its place is known: all orientations, compared by colours.

For when a network misread the shape (a cube seen face-on is a square, whichever way it is tilted) and no other frame
says more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.engine.pose_geometry import rotation_grid
from vid2phys.geometry import Pose
from vid2phys.tracking.cues.texture import Light, Paint
from vid2phys.types import Array, Camera

_GRID = 576  # rotations: none is further than about 20 degrees from one of them
_BEST = 6
_EVERY = 4  # th point of the surface
_GRAZING = 0.2  # cosine between normal and sight from which on a point is seen
_LEAST = 24  # points
_PLACINGS = 3
_FAR = 20.0  # body sizes, where placing begins


def search(frame: NDArray[np.uint8], camera: Camera, paint: Paint, bearings: Array) -> list[Pose]:
    """The likeliest poses camera_from_body, best first, of a body whose points were read at bearings [K, 2].

    The labels of the points do not matter: their extent says where the body is, and how far.
    """
    import cv2

    low, high = np.nanmin(bearings, axis=0), np.nanmax(bearings, axis=0)
    corners = bearings_to_pixels(camera, np.stack([low, high]))
    size_px = float(np.ptp(corners, axis=0).max())
    if not np.isfinite(size_px) or size_px < 4.0:
        return []
    image = cv2.GaussianBlur(frame, (0, 0), max(0.8, paint.blur_shares[0] * size_px))
    points, normals = paint.fine_points[::_EVERY], paint.fine_normals[::_EVERY]
    colors, rotations = paint.fine_colors[0][::_EVERY], rotation_grid(_GRID)
    turned, facing = points @ np.swapaxes(rotations, 1, 2), normals @ np.swapaxes(rotations, 1, 2)
    translation = _placed(turned, low, high)
    posed = turned + translation[:, None]
    cosine = -(facing * posed).sum(axis=-1) / np.linalg.norm(posed, axis=-1)
    pixels = bearings_to_pixels(camera, posed[..., :2] / posed[..., 2:])
    extent = np.array(frame.shape[1::-1]) - 1.0
    seen = (cosine > _GRAZING) & ((pixels > 0.0) & (pixels < extent)).all(axis=-1)
    score = np.full(len(rotations), -np.inf)
    for r in np.flatnonzero(seen.sum(axis=1) >= _LEAST):
        x, y = (np.ascontiguousarray(pixels[r, seen[r], i], dtype=np.float32)[:, None] for i in range(2))
        found = cv2.remap(image, x, y, cv2.INTER_LINEAR)[:, 0].astype(float) / 255.0
        score[r] = Light.fit(found, colors[seen[r]], facing[r, seen[r]]).explained(found, facing[r, seen[r]])
    order = np.argsort(-score, kind="stable")[:_BEST]
    return [Pose(rotations[r], translation[r]) for r in order if np.isfinite(score[r])]


def _placed(turned: Array, low: Array, high: Array) -> Array:
    """Translations [R, 3] that put turned points [R, N, 3] between bearings low [2] and high [2]."""
    size = float(np.ptp(turned, axis=(0, 1)).max())
    translation = np.tile(_FAR * size * np.array([*(0.5 * (low + high)), 1.0]), (len(turned), 1))
    for _ in range(_PLACINGS):
        posed = turned + translation[:, None]
        bearings = posed[..., :2] / posed[..., 2:]
        lowest, highest = bearings.min(axis=1), bearings.max(axis=1)
        ratio = np.linalg.norm(highest - lowest, axis=1) / np.linalg.norm(high - low)
        depth = np.maximum(translation[:, 2] * ratio, size)
        place = translation[:, :2] / translation[:, 2:] + 0.5 * (low + high) - 0.5 * (lowest + highest)
        translation = np.concatenate([place * depth[:, None], depth[:, None]], axis=1)
    return translation

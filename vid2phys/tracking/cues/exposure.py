"""What a body that moves in one exposure leaves in a frame: averages along its path, and extremes.

Limits: one straight path for the whole body.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from vid2phys.types import Array

Image = TypeVar("Image", NDArray[np.float32], NDArray[np.uint8])

STILL = 0.0, 0.0
"""Path of a body that does not move, px."""

_SHORT_PX = 1.0  # path that moves nothing to the next pixel
_SHARE = 0.3  # of the largest weight, from which on a pixel lies on the path


def averaged(image: NDArray[np.float32], path: Array) -> NDArray[np.float32]:
    """Return an image [h, w] averaged along a path [2] (x, y) px about each pixel."""
    import cv2

    if _is_short(path):
        return image
    return np.asarray(cv2.filter2D(image, -1, _weights(path), borderType=cv2.BORDER_REPLICATE), dtype=np.float32)


def longer(image: Image, path: Array, share: float) -> Image:
    """Return an image [h, w] with everything bright longer by a share of a path [2] (x, y) px, shorter for share < 0.

    The largest or least value along that part of the path, about each pixel, counts.
    """
    import cv2

    moved = share * path
    if _is_short(moved):
        return image
    pixels = (weights := _weights(moved)) > _SHARE * weights.max()
    along = cv2.dilate if share > 0.0 else cv2.erode
    return np.asarray(along(image, pixels.astype(np.uint8)), dtype=image.dtype)


def _is_short(path: Array) -> bool:
    return not np.hypot(*path) > _SHORT_PX


def _weights(path: Array) -> NDArray[np.float32]:
    """Return the share of a path in each pixel [K, K] about the middle one; a point is shared by four pixels."""
    half = int(np.ceil(0.5 * np.abs(path).max())) + 1
    count = 8 * int(np.ceil(np.hypot(*path))) + 1
    places = half + ((np.arange(count) + 0.5) / count - 0.5)[:, None] * path
    corner = np.floor(places).astype(np.int64)
    u, v = (places - corner).T
    weights = np.zeros((2 * half + 1, 2 * half + 1), np.float32)
    for x, y, share in ((0, 0, (1 - u) * (1 - v)), (1, 0, u * (1 - v)), (0, 1, (1 - u) * v), (1, 1, u * v)):
        np.add.at(weights, (corner[:, 1] + y, corner[:, 0] + x), share)
    return weights / weights.sum()

"""Estimate the scene without the object, from frames of a static camera: medians outside of masks.

Limits: where the object covers a pixel in every frame, the background is filled in from around.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_ROWS = 64  # at a time


@dataclass(frozen=True)
class Backdrop:
    """The background of a clip.

    Attributes:
        image: [H, W, 3].
        known: [H, W], False where the object was in every frame and the background is filled in.
    """

    image: NDArray[np.uint8]
    known: NDArray[np.bool_]


def backdrop(frames: Sequence[NDArray[np.uint8]], masks: Sequence[NDArray[np.bool_]]) -> Backdrop:
    """Return the medians over N frames [H, W, 3] outside of masks [H, W]."""
    import cv2

    image, hole = np.empty_like(frames[0]), np.zeros(frames[0].shape[:2], np.uint8)
    for start in range(0, len(image), _ROWS):
        rows = slice(start, start + _ROWS)
        pieces, hidden = np.stack([frame[rows] for frame in frames]), np.stack([mask[rows] for mask in masks])
        image[rows], hole[rows] = _median(pieces, hidden)
    if hole.any():
        image = np.asarray(cv2.inpaint(image, hole, 5, cv2.INPAINT_TELEA), np.uint8)
    return Backdrop(image, hole == 0)


def _median(frames: NDArray[np.uint8], masks: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the medians [h, W, 3] over frames outside of masks, and where there is no such frame [h, W]."""
    sorted_values = np.sort(np.where(masks[..., None], np.uint8(255), frames), axis=0)  # masked pixels come last
    count = len(frames) - masks.sum(axis=0)
    low, high = (np.maximum(count - 1, 0) // 2)[None, ..., None], (count // 2)[None, ..., None]
    high = np.minimum(high, len(frames) - 1)
    middle = [np.take_along_axis(sorted_values, index, axis=0)[0].astype(np.uint16) for index in (low, high)]
    return ((middle[0] + middle[1]) // 2).astype(np.uint8), count == 0


def grown(mask: NDArray[np.bool_], pixels: int = 3) -> NDArray[np.bool_]:
    """Return the mask [H, W] with a margin."""
    import cv2

    size = 2 * pixels + 1
    return cv2.dilate(mask.astype(np.uint8), np.ones((size, size), np.uint8)).astype(bool)

"""The scene without the object, from frames of a camera that stands still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_ROWS = 64  # at a time


@dataclass(frozen=True)
class Backdrop:
    """image: uint8 [H, W, 3]. known: [H, W] bool, False where the object was in every frame and what is behind it had
    to be filled in from around."""

    image: NDArray[np.uint8]
    known: NDArray[np.bool_]


def backdrop(frames: Sequence[NDArray[np.uint8]], masks: Sequence[NDArray[np.bool_]]) -> Backdrop:
    """Medians over N frames [H, W, 3] outside masks [H, W]."""
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
    """Medians over frames outside masks, and where no frame is: [h, W, 3], [h, W]."""
    sorted_values = np.sort(np.where(masks[..., None], np.uint8(255), frames), axis=0)  # what is masked comes last
    count = len(frames) - masks.sum(axis=0)
    low, high = (np.maximum(count - 1, 0) // 2)[None, ..., None], (count // 2)[None, ..., None]
    high = np.minimum(high, len(frames) - 1)
    middle = [np.take_along_axis(sorted_values, index, axis=0)[0].astype(np.uint16) for index in (low, high)]
    return ((middle[0] + middle[1]) // 2).astype(np.uint8), count == 0


def grown(mask: NDArray[np.bool_], pixels: int = 3) -> NDArray[np.bool_]:
    """The mask [H, W] with a margin."""
    import cv2

    size = 2 * pixels + 1
    return cv2.dilate(mask.astype(np.uint8), np.ones((size, size), np.uint8)).astype(bool)

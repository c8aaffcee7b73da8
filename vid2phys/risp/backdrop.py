"""The scene without the object, from frames of a camera that stands still."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_FRAMES = 15


@dataclass(frozen=True)
class Backdrop:
    """picture: uint8 [H, W, 3]. known: [H, W] bool, False where the object was in every frame and what is behind it had
    to be filled in from around."""

    picture: NDArray[np.uint8]
    known: NDArray[np.bool_]


def backdrop(frames: NDArray[np.uint8], masks: NDArray[np.bool_]) -> Backdrop:
    """Medians over frames [N, H, W, 3] outside masks [N, H, W]."""
    import cv2

    picture = np.median(frames[:: max(1, len(frames) // _FRAMES)], axis=0).astype(np.uint8)
    touched = np.flatnonzero(masks.any(axis=0).ravel())
    pixels = frames.reshape(len(frames), -1, 3)[:, touched].astype(np.float32)
    pixels[masks.reshape(len(frames), -1)[:, touched]] = np.nan
    never = np.isnan(pixels[..., 0]).all(axis=0)
    picture.reshape(-1, 3)[touched[~never]] = np.nanmedian(pixels[:, ~never], axis=0).astype(np.uint8)
    hole = np.zeros(picture.shape[:2], np.uint8)
    hole.ravel()[touched[never]] = 1
    if hole.any():
        picture = np.asarray(cv2.inpaint(picture, hole, 5, cv2.INPAINT_TELEA), np.uint8)
    return Backdrop(picture, hole == 0)


def grown(mask: NDArray[np.bool_], pixels: int = 3) -> NDArray[np.bool_]:
    """The mask [H, W] with a margin."""
    import cv2

    size = 2 * pixels + 1
    return cv2.dilate(mask.astype(np.uint8), np.ones((size, size), np.uint8)).astype(bool)

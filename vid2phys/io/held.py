"""Images in memory as a clip, and a single image as one: the same frame, as often as it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vid2phys.errors import InputError
from vid2phys.io.files import require_file
from vid2phys.types import Array, Clip

_A_IMAGE = "an image (PNG, JPEG, TIFF ...)"


@dataclass(frozen=True)
class HeldFrames:
    """`Frames` of an array, RGB uint8 [T, H, W, 3]."""

    images: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.images)

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return iter(self.images)

    def at(self, indices: ArrayLike) -> Iterator[NDArray[np.uint8]]:
        """See `Frames.at`."""
        return iter(self.images[np.asarray(indices)])


def read_still(path: str | Path, frames: int, fps: float) -> Clip:
    """An image as a clip of so many frames. Raises InputError for what is missing or not an image."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    path = require_file(path, _A_IMAGE)
    try:
        with Image.open(path) as opened:
            image = np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"'{path}' is not an image ({type(error).__name__})", _A_IMAGE, "export it again") from None
    return still_clip(image, frames, fps, path.stem)


def still_clip(image: NDArray[np.uint8], frames: int, fps: float, name: str = "still") -> Clip:
    """An image as a clip of so many frames."""
    return held_clip(np.broadcast_to(image, (frames, *image.shape)), np.arange(frames) / fps, name)


def held_clip(images: NDArray[np.uint8], times_s: Array, name: str) -> Clip:
    """Images [T, H, W, 3] as a clip with frames at times_s [T]."""
    _, height, width, _ = images.shape
    return Clip(HeldFrames(images), times_s, width, height, name)

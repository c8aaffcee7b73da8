"""Make clips of images in memory, and of one image: the same frame, as often as it is asked for."""

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
class ArrayFrames:
    """`Frames` of an array, RGB uint8 [T, H, W, 3]."""

    images: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.images)

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return iter(self.images)

    def at(self, indices: ArrayLike) -> Iterator[NDArray[np.uint8]]:
        """Return an iterator over the frames at `indices`, see `Frames.at`."""
        return iter(self.images[np.asarray(indices)])


def load_image_clip(path: str | Path, frames: int, fps: float) -> Clip:
    """Return an image file as a clip of so many frames. Raises InputError for what is missing or not an image."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    path = require_file(path, _A_IMAGE)
    try:
        with Image.open(path) as opened:
            image = np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"'{path}' is not an image ({type(error).__name__})", _A_IMAGE, "export it again") from None
    return image_clip(image, frames, fps, path.stem)


def image_clip(image: NDArray[np.uint8], frames: int, fps: float, name: str = "still") -> Clip:
    """Return an image [H, W, 3] as a clip of so many frames."""
    return array_clip(np.broadcast_to(image, (frames, *image.shape)), np.arange(frames) / fps, name)


def array_clip(images: NDArray[np.uint8], times_s: Array, name: str) -> Clip:
    """Return images [T, H, W, 3] as a clip with frames at times_s [T]."""
    _, height, width, _ = images.shape
    return Clip(ArrayFrames(images), times_s, width, height, name)

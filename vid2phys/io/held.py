"""Pictures in memory as a clip, and a single picture as one: the same frame, as often as it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vid2phys.errors import InputError
from vid2phys.io.files import require_file
from vid2phys.types import Array, Clip

_A_PICTURE = "a picture (PNG, JPEG, TIFF ...)"


@dataclass(frozen=True)
class HeldFrames:
    """`Frames` of an array, RGB uint8 [T, H, W, 3]."""

    pictures: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.pictures)

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return iter(self.pictures)

    def at(self, indices: ArrayLike) -> Iterator[NDArray[np.uint8]]:
        """See `Frames.at`."""
        return iter(self.pictures[np.asarray(indices)])


def read_still(path: str | Path, frames: int, fps: float) -> Clip:
    """A picture as a clip of so many frames. Raises InputError for what is missing or not a picture."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    path = require_file(path, _A_PICTURE)
    try:
        with Image.open(path) as opened:
            picture = np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"'{path}' is not a picture ({type(error).__name__})", _A_PICTURE, "export it again") from None
    return still_clip(picture, frames, fps, path.stem)


def still_clip(picture: NDArray[np.uint8], frames: int, fps: float, name: str = "still") -> Clip:
    """A picture as a clip of so many frames."""
    return held_clip(np.broadcast_to(picture, (frames, *picture.shape)), np.arange(frames) / fps, name)


def held_clip(pictures: NDArray[np.uint8], times_s: Array, name: str) -> Clip:
    """Pictures [T, H, W, 3] as a clip with frames at times_s [T]."""
    _, height, width, _ = pictures.shape
    return Clip(HeldFrames(pictures), times_s, width, height, name)

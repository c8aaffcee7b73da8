"""A single picture as a clip: the same frame, as often as it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.io.files import require_file
from vid2phys.types import Clip

_A_PICTURE = "a picture (PNG, JPEG, TIFF ...)"


@dataclass(frozen=True)
class Still:
    """Frames that all show one picture, RGB uint8 [H, W, 3]."""

    picture: NDArray[np.uint8]
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return iter([self.picture] * self.count)

    def sample(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """See `Frames.sample`."""
        return np.broadcast_to(self.picture, (len(indices), *self.picture.shape))


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
    height, width = picture.shape[:2]
    return Clip(Still(picture, frames), np.arange(frames) / fps, width, height, name)

"""Open the images to calibrate from: a video, a folder of images, or one image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.indices import evenly
from vid2phys.io.files import require_file
from vid2phys.io.image_files import IMAGE_SUFFIXES, images_in, read_image
from vid2phys.types import Clip

_IMAGES = "a video, a folder of images, or an image"


@dataclass(frozen=True)
class Images:
    """Images of one size, decoded one after the other. size: width and height [px]."""

    path: Path
    size: tuple[int, int]
    names: tuple[str, ...]
    _files: tuple[Path, ...] = ()
    _frames: tuple[int, ...] = ()
    _clip: Clip | None = None

    def only(self, names: tuple[str, ...]) -> Images:
        """Return the images that have one of these names."""
        kept = [i for i, name in enumerate(self.names) if name in names]
        files = tuple(self._files[i] for i in kept) if self._files else ()
        frames = tuple(self._frames[i] for i in kept) if self._frames else ()
        return replace(self, names=tuple(self.names[i] for i in kept), _files=files, _frames=frames)

    def __iter__(self) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        """Yield names and grey images [H, W]. Raises InputError for an image that is no longer readable."""
        from vid2phys.camera_calibration.detect import grey

        if self._files:
            for name, file in zip(self.names, self._files, strict=True):
                yield name, read_image(file, self.size, grey=True)
            return
        assert self._clip is not None
        named = dict(zip(self._frames, self.names, strict=True))
        for index, frame in enumerate(self._clip.frames):  # in order: seeking decodes far more
            if index in named:
                yield named[index], grey(frame)
            if index == self._frames[-1]:
                return


def open_images(path: str | Path, most: int) -> Images:
    """Return at most `most` images, evenly spread over the video or folder.

    Args:
        path: a video, a folder of images, or one image.
        most: how many images to keep.

    Raises:
        InputError: the path holds no image.
    """
    path = Path(path)
    if path.is_dir():
        files = images_in(path)
        return _of_files(path, [files[i] for i in evenly(len(files), most)])
    require_file(path, _IMAGES)
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return _of_files(path, [path])
    from vid2phys.io.video import read_clip

    clip = read_clip(path)
    chosen = tuple(evenly(len(clip.times_s), most).tolist())
    return Images(path, (clip.width, clip.height), tuple(f"frame {i}" for i in chosen), (), chosen, clip)


def _of_files(path: Path, files: list[Path]) -> Images:
    height, width = read_image(files[0], grey=True).shape
    return Images(path, (width, height), tuple(file.name for file in files), tuple(files))

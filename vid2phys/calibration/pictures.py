"""The pictures to calibrate from: a video, a folder of images, or one image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.indices import evenly
from vid2phys.io.files import require_file

_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
_PICTURES = "a video, a folder of images, or an image"
_LARGEST_BYTES = 1 << 28


@dataclass(frozen=True)
class Pictures:
    """Pictures of one size, decoded one after the other. size: width and height [px]."""

    path: Path
    size: tuple[int, int]
    names: tuple[str, ...]
    _files: tuple[Path, ...] = ()
    _frames: tuple[int, ...] = ()

    def only(self, names: tuple[str, ...]) -> Pictures:
        """Those of these names."""
        kept = [i for i, name in enumerate(self.names) if name in names]
        files = tuple(self._files[i] for i in kept) if self._files else ()
        frames = tuple(self._frames[i] for i in kept) if self._frames else ()
        return replace(self, names=tuple(self.names[i] for i in kept), _files=files, _frames=frames)

    def __iter__(self) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        """Names and grey pictures [H, W]; an image that cannot be read any more raises InputError."""
        from vid2phys.calibration.detect import grey

        if self._files:
            for name, file in zip(self.names, self._files, strict=True):
                yield name, _image(file, self.size)
            return
        from vid2phys.io.video import read_clip

        named = dict(zip(self._frames, self.names, strict=True))
        for index, frame in enumerate(read_clip(self.path).frames):  # in order: seeking decodes far more
            if index in named:
                yield named[index], grey(frame)
            if index == self._frames[-1]:
                return


def open_pictures(path: str | Path, most: int) -> Pictures:
    """At most `most` pictures, evenly over the video or folder. Raises InputError for what holds none."""
    path = Path(path)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in _IMAGES and file.is_file())
        if not files:
            raise InputError(
                f"'{path}' has no image", f"files of {', '.join(_IMAGES)}", "give the folder of the pictures"
            )
        return _of_files(path, [files[i] for i in evenly(len(files), most)])
    require_file(path, _PICTURES)
    if path.suffix.lower() in _IMAGES:
        return _of_files(path, [path])
    from vid2phys.io.video import read_clip

    clip = read_clip(path)
    chosen = tuple(evenly(len(clip.times_s), most).tolist())
    return Pictures(path, (clip.width, clip.height), tuple(f"frame {i}" for i in chosen), (), chosen)


def _of_files(path: Path, files: list[Path]) -> Pictures:
    height, width = _image(files[0]).shape
    return Pictures(path, (width, height), tuple(file.name for file in files), tuple(files))


def _image(file: Path, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """An image as grey, turned as its EXIF says. Raises InputError when it cannot be read or is of another size."""
    import cv2

    require_file(file, "an image")
    if file.stat().st_size > _LARGEST_BYTES:
        raise InputError(
            f"'{file}' is {file.stat().st_size >> 20} MB large", "a photograph", "take it out of the folder"
        )
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # what is wrong with a picture is said below
    try:
        picture = cv2.imdecode(np.fromfile(file, dtype=np.uint8), cv2.IMREAD_GRAYSCALE)
    except cv2.error:
        picture = None
    if picture is None:
        raise InputError(
            f"'{file}' cannot be read as an image", _PICTURES, "take it out of the folder, or copy it again"
        )
    found = (int(picture.shape[1]), int(picture.shape[0]))
    if size is not None and found != size:
        expected = f"{size[0]}x{size[1]} as the first"
        remedy = "calibrate with pictures of one camera, one resolution and one orientation"
        raise InputError(f"'{file}' is {found[0]}x{found[1]}", expected, remedy)
    return np.asarray(picture, dtype=np.uint8)

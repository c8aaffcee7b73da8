"""Read a clip as images: a folder of them, or a pattern such as `frames/%06d.png` or `frames/left_*.png`.

The number in a name gives the image's time: numbers that are missing are frames that are missing. Images are decoded
when asked for. Limits: one number may vary from name to name, and time stamps are no numbers of frames.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vid2phys.errors import InputError, UsageError
from vid2phys.io.files import is_pattern, matching, require_file
from vid2phys.io.image_files import IMAGE_SUFFIXES, images_in, read_image
from vid2phys.types import Clip

_MOST_MISSING = 2.0  # numbers a file: beyond it they are no numbers of frames


@dataclass(frozen=True)
class ImageFrames:
    """`Frames` of image files of one size (width, height), RGB uint8 [H, W, 3] each."""

    files: tuple[Path, ...]
    size: tuple[int, int]

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return self.at(range(len(self.files)))

    def at(self, indices: ArrayLike) -> Iterator[NDArray[np.uint8]]:
        """Yield the frames at `indices`. Raises InputError for an image that is not readable or is of another size."""
        for index in np.asarray(indices, dtype=np.int64):
            yield read_image(self.files[index], self.size)


def is_sequence(path: str | Path) -> bool:
    """Return whether `path` is a folder, an image, or a pattern of names, and not a video."""
    path = Path(path)
    return path.is_dir() or path.suffix.lower() in IMAGE_SUFFIXES or is_pattern(path)


def read_sequence(path: str | Path, fps: float | None) -> Clip:
    """Open images as a clip, in the order of their numbers; a number is 1 / fps seconds after the one before.

    Raises UsageError without `fps`, InputError for a single image, for no image, and for names without one number.
    """
    path = Path(path)
    if not path.is_dir() and not is_pattern(path):
        require_file(path, "a video")
        remedy = "give the folder of the images, or quote the pattern, so that the shell leaves it"
        raise InputError(f"'{path}' is one image", "a video, a folder of images or a pattern (%06d.png)", remedy)
    files = images_in(path) if path.is_dir() else [f for f in matching(path) if f.suffix.lower() in IMAGE_SUFFIXES]
    if not files:
        raise InputError(f"no image is named like '{path}'", "a pattern such as %06d.png", "check folder and name")
    if fps is None:
        raise UsageError(f"'{path}' is a sequence of images without --fps", "--fps RATE", "give the frames a second")
    ordered, numbers, notes = _numbered(path, files)
    height, width = read_image(ordered[0]).shape[:2]
    times = (numbers - numbers[0]) / fps
    name = path.name if path.is_dir() else path.absolute().parent.name
    return Clip(ImageFrames(tuple(ordered), (width, height)), times, width, height, name, notes)


def _numbered(path: Path, files: list[Path]) -> tuple[list[Path], NDArray[np.int64], tuple[str, ...]]:
    """Return the files in the order of the number that varies in their names, these numbers [N], and notes.

    Raises InputError where no single number varies, or where it does not count frames.
    """
    kinds = sorted({re.sub(r"\d+", "#", file.name.lower()) for file in files})
    if len(kinds) > 1:
        got = f"'{path}' holds images of several kinds, named {', '.join(kinds[:4])}"
        raise InputError(got, "one series of numbered images", "give a pattern such as left_%06d.png")
    groups = np.array([[int(digits) for digits in re.findall(r"\d+", file.name)] for file in files], dtype=object)
    varying = [column for column in groups.T if len(set(column)) > 1] if len(files) > 1 else [np.zeros(1, dtype=object)]
    if len(varying) != 1 or len(set(varying[0])) < len(files):
        problem = "a number twice" if len(varying) == 1 else f"{len(varying)} numbers that vary"
        got = f"'{path}' has {problem} in its names"
        raise InputError(got, "one number that counts the frames", "give a pattern such as left_%06d.png")
    order = np.argsort(varying[0], kind="stable")
    counted = [int(number) - int(varying[0].min()) for number in varying[0][order]]
    step = gcd(*counted) or 1
    missing = counted[-1] // step + 1 - len(counted)
    if missing > _MOST_MISSING * len(counted):
        got = f"the numbers of the {len(counted)} images of '{path}' leave out {missing}"
        raise InputError(got, "numbers that count the frames", "rename the images 000000.png, 000001.png ...")
    notes = []
    if step > 1:
        notes.append(f"the images are numbered in steps of {step}: each step is read as one frame of --fps")
    if missing:
        notes.append(f"{missing} numbers are missing between the images: the others keep their times")
    return [files[i] for i in order], np.array(counted, dtype=np.int64) // step, tuple(notes)

"""Small clips with something that moves, written as recorders write them: interlaced, repeated, mirrored, in parts."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
HEIGHT, WIDTH = 120, 160
_RNG = np.random.default_rng(3)
_ROOM = np.kron(_RNG.integers(70, 180, (15, 20, 3)), np.ones((8, 8, 1))).astype(np.float64)
_BODY = np.kron(_RNG.integers(0, 255, (5, 5, 3)), np.ones((8, 8, 1))).astype(np.float64)


def moved(x: float, y: float, *, noise: float = 1.0, seed: int = 0) -> Image:
    """A painted body at whole pixels in a room, [120, 160, 3], with noise."""
    image = _ROOM.copy()
    top, left = round(y), round(x)
    image[top : top + 40, left : left + 40] = _BODY
    noisy = image + np.random.default_rng(seed).normal(0.0, noise, image.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def crossing(count: int, *, noise: float = 1.0) -> list[Image]:
    """A body that crosses the room, fast enough to move between all frames."""
    return [moved(2 + 110 * i / count, 10 + 60 * i / count, noise=noise, seed=i) for i in range(count)]


def woven(frames: Sequence[Image], *, top_first: bool = True) -> list[Image]:
    """Each two frames as the fields of one."""
    found = []
    for first, second in zip(frames[::2], frames[1::2], strict=True):
        frame = first.copy()
        later = 1 if top_first else 0
        frame[later::2] = second[later::2]
        found.append(frame)
    return found


def write_video(
    path: Path,
    frames: Sequence[Image],
    *,
    fps: float = 30,
    options: dict[str, str] | None = None,
    matrix: Sequence[int] | None = None,
    codec: str = "libx264",
) -> Path:
    """An H.264 clip. matrix: a display matrix of the container, nine integers as FFmpeg has them."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=Fraction(fps).limit_denominator(1001))
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "16", "preset": "veryfast", **(options or {})}
        if matrix is not None:
            stream.set_display_matrix(list(matrix))
        _encode(container, [(stream, frames)])
    return path


def write_streams(path: Path, parts: Sequence[tuple[Sequence[Image], float]]) -> Path:
    """A file with one H.264 stream for each of the frames with their rates."""
    with av.open(str(path), "w") as container:
        streams = []
        for frames, fps in parts:
            stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001))
            stream.height, stream.width, stream.pix_fmt = *frames[0].shape[:2], "yuv420p"
            streams.append((stream, frames))
        _encode(container, streams)
    return path


def _encode(container: Any, streams: Sequence[tuple[Any, Sequence[Image]]]) -> None:
    for stream, frames in streams:
        for image in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def difference(one: Image, other: Image) -> float:
    """The mean difference of two images in grey levels."""
    return float(np.abs(one.astype(np.float64) - other).mean())

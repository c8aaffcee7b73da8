"""Read clips, as frames with true times, and write H.264 through PyAV.

A clip is a video or a sequence of images. The part that was asked for is searched once, for fields and for repeated
frames; the clip's notes state what was changed.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import UsageError
from vid2phys.io.fields import Combing, deinterlaced
from vid2phys.io.image_sequence import is_sequence, read_sequence
from vid2phys.io.repeats import Changes, without_repeats
from vid2phys.io.selection import between, until
from vid2phys.io.video_frames import stored_clip
from vid2phys.types import Array, Clip

Image = NDArray[np.uint8]
_WRITER_TIME_BASE = Fraction(1, 90_000)
_SAME_RATE = 1e-3


def read_clip(
    path: str | Path,
    *,
    fps: float | None = None,
    stream: int | None = None,
    from_s: float | None = None,
    to_s: float | None = None,
) -> Clip:
    """Open a video, a folder of images, or images by a pattern (`%06d.png`, `*.png`).

    Frames are decoded only when asked for, RGB as players show them. Times are the container's, relative to the first
    frame. fps: frames a second, of images, or in place of what a video says. stream: which video stream, from 0.
    from_s, to_s: ends of the part to use; its frames keep their times. Fields of an interlaced clip become frames, and
    frames that repeat the one before are left out; the clip's notes say so.

    Raises InputError for what is missing, empty, truncated, not a video, or has no frames, and UsageError for options
    that do not fit.
    """
    if fps is not None and not 0.0 < fps < np.inf:
        raise UsageError(f"--fps {fps:g}", "frames a second, more than 0", "give the rate at which it was filmed")
    if is_sequence(path):
        if stream is not None:
            raise UsageError(f"--stream {stream} for the images '{path}'", "a video", "leave --stream out")
        clip = read_sequence(path, fps)
    else:
        clip = stored_clip(path, stream)
        clip = clip if fps is None else _at_rate(clip, fps)
    return until(_as_filmed(between(clip, from_s, to_s)), to_s)  # the last frame's second field may be later


def _at_rate(clip: Clip, fps: float) -> Clip:
    """Return the clip at another rate than that of its file, with a note."""
    steps = np.diff(clip.times_s)
    if not len(steps):
        return clip
    tagged = 1.0 / float(steps[np.abs(steps / np.median(steps) - 1.0) < 0.5].mean())
    if abs(tagged / fps - 1.0) < _SAME_RATE:
        return clip
    note = f"'{clip.name}' has frames at {tagged:.4g} fps; they are read at {fps:.4g} fps, as --fps says"
    times: Array = clip.times_s * (tagged / fps)
    return replace(clip, times_s=times, notes=(*clip.notes, note))


def _as_filmed(clip: Clip) -> Clip:
    """Return the clip with fields as frames, or without repeated frames."""
    import cv2

    changes, combing = Changes(), Combing()
    before: list[Image] = []
    for frame in clip.frames:
        grey = np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), dtype=np.uint8)
        changes.add(grey)
        before.append(grey)
        if len(before) == 3:
            combing.add(*before)
            before.pop(0)
    if combing.top_first is not None:
        return deinterlaced(clip, combing.top_first)
    return without_repeats(clip, changes)


class VideoWriter:
    """Write H.264 (yuv420p, plays in browsers) under a temporary name that is renamed when the block ends well.

        with VideoWriter(path, width, height, fps) as video:
            video.write(rgb)                  # [H, W, 3] uint8; or write(rgb, time_s=...) for a variable rate

    An odd width or height is padded by repeating the last column or row, because yuv420p needs even sizes. Raises
    InputError when the disk is full; nothing is left behind then.
    """

    def __init__(self, path: str | Path, width: int, height: int, fps: float, *, crf: int = 20) -> None:
        self._path, self._size, self._fps, self._crf = Path(path), (height, width), fps, crf
        self._count = 0
        self._last_pts = -1

    def __enter__(self) -> VideoWriter:
        from contextlib import ExitStack

        import av

        from vid2phys.io.files import atomic_path

        with ExitStack() as stack:
            temporary = stack.enter_context(atomic_path(self._path))
            self._container = stack.enter_context(av.open(str(temporary), "w", options={"movflags": "+faststart"}))
            self._stream: Any = self._container.add_stream("libx264", rate=Fraction(self._fps).limit_denominator(1001))
            self._stream.width, self._stream.height = (size + size % 2 for size in self._size[::-1])
            self._stream.pix_fmt = "yuv420p"
            self._stream.codec_context.time_base = _WRITER_TIME_BASE
            self._stream.options = {"crf": str(self._crf), "preset": "fast"}
            self._stack = stack.pop_all()
        return self

    def write(self, rgb: Image, time_s: float | None = None) -> None:
        """Add a frame, RGB uint8 [H, W, 3], shown at `time_s` since the start (default: the nominal rate)."""
        import av

        if rgb.shape != (*self._size, 3) or rgb.dtype != np.uint8:
            raise ValueError(f"expected uint8 {(*self._size, 3)}, got {rgb.dtype} {rgb.shape}")
        padded = np.pad(rgb, [(0, self._size[0] % 2), (0, self._size[1] % 2), (0, 0)], mode="edge")
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(padded), format="rgb24")
        seconds = self._count / self._fps if time_s is None else time_s
        frame.pts = max(round(seconds / _WRITER_TIME_BASE), self._last_pts + 1)
        frame.time_base = _WRITER_TIME_BASE
        self._count, self._last_pts = self._count + 1, frame.pts
        self._container.mux(self._stream.encode(frame))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        try:
            if kind is None:
                if not self._count:
                    raise ValueError(f"no frame was written to '{self._path}'")
                self._container.mux(self._stream.encode())
        except BaseException as flush_error:
            self._stack.__exit__(type(flush_error), flush_error, flush_error.__traceback__)
            raise
        self._stack.__exit__(kind, error, trace)

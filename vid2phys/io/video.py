"""Video in and out through PyAV: container time stamps, variable rates, rotation flags; H.264 out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vid2phys.errors import InputError
from vid2phys.io.files import require_file
from vid2phys.io.unsupported import refuse_known
from vid2phys.types import Clip

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

Image = NDArray[np.uint8]
_Decoder = Iterator[tuple[int, "VideoFrame"]]
_WRITER_TIME_BASE = Fraction(1, 90_000)
_LOCAL = {"protocol_whitelist": "file"}  # a playlist may name addresses; and a colon in a name is no protocol
_A_VIDEO = "a video (mp4, mov, mkv, avi, webm ...)"
_REENCODE = "repair it with `ffmpeg -i IN -c:v libx264 OUT.mp4`, or copy it again"


def read_clip(path: str | Path) -> Clip:
    """Opens a video. Frames are decoded only when asked for; times are the container's, relative to the first frame.

    The rotation flag is applied, as players and OpenCV do, so width and height are those of the upright picture.
    Raises InputError for what is missing, empty, truncated, not a video, or has no frames.
    """
    path = require_file(path, _A_VIDEO)
    with _open(path) as (container, stream):
        index = _index_packets(path, container, stream)
    if not len(index.pts):
        raise InputError(f"'{path}' has no frames", "at least one video frame", "record or export it again")
    same = np.flatnonzero(np.diff(index.pts) <= 0)
    if len(same):
        raise InputError(f"frames {same[0]} and {same[0] + 1} of '{path}' have the same time", "increasing", _REENCODE)
    height, width, turns, first_pts = _first_picture(path)
    if not index.by_order and first_pts is not None:  # a cut stream may begin with frames that lack their references
        index = _from(index, int(np.searchsorted(index.pts, first_pts)))
    times_s = (index.pts - index.pts[0]) * float(index.time_base)
    return Clip(VideoFrames(path, index, (height, width), turns), times_s, width, height, path.stem)


@dataclass(frozen=True)
class _Index:
    """pts: [T] of the frames in display order. keyframes: increasing display indices that decoding can start at.

    by_order: frames are known by their place in the decoder's output, because their pts cannot be trusted.
    """

    pts: NDArray[np.int64]
    keyframes: NDArray[np.int64]
    time_base: Fraction
    by_order: bool


class VideoFrames:
    """The frames of a video file: RGB, uint8, [H, W, 3]. Nothing but the frame at hand is kept in memory.

    The decoder that `at` used stays open where it stopped, so that a clip read in chunks is decoded once.
    """

    def __init__(self, path: Path, index: _Index, shape: tuple[int, int], quarter_turns: int) -> None:
        self._path, self._index, self._shape, self._quarter_turns = path, index, shape, quarter_turns
        self._open_at: tuple[int, _Decoder] | None = None  # the index of the frame that comes next

    def __len__(self) -> int:
        return len(self._index.pts)

    def __iter__(self) -> Iterator[Image]:
        for _, frame in self._decode(0):
            yield self._upright(frame)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open_at": None}

    def at(self, indices: ArrayLike) -> Iterator[Image]:
        """The frames at non-decreasing `indices`, one after the other; seeks over what is not needed."""
        wanted = np.asarray(indices, dtype=np.int64)
        if wanted.ndim != 1 or np.any(np.diff(wanted) < 0):
            raise ValueError(f"indices must be a non-decreasing vector, got {wanted}")
        if len(wanted) and not (wanted[0] >= 0 and wanted[-1] < len(self)):
            raise IndexError(f"frames {wanted[0]} to {wanted[-1]} of a clip of {len(self)}")
        return self._pictures(wanted.tolist())

    def _pictures(self, wanted: list[int]) -> Iterator[Image]:
        (at, decoder), self._open_at = self._open_at or (len(self), iter(())), None  # other threads open their own
        picture: Image | None = None
        sound = True
        try:
            for index in wanted:
                if picture is None or index != at - 1:
                    sound = False
                    if not self._keyframe_before(index) <= at <= index:
                        decoder = self._decode(index)
                    picture = self._upright(next(frame for found, frame in decoder if found == index))
                    at, sound = index + 1, True
                yield picture
        finally:
            if sound and at < len(self):
                self._open_at = at, decoder

    def _keyframe_before(self, index: int) -> int:
        at = int(np.searchsorted(self._index.keyframes, index, side="right")) - 1
        return int(self._index.keyframes[at]) if at >= 0 else 0

    def _decode(self, start: int, *, keyframe: int | None = None) -> _Decoder:
        """Frames from `start` on with their indices. Raises InputError where the file does not give one."""
        import av

        expected, pts = start, self._index.pts
        keyframe = self._keyframe_before(start) if keyframe is None else keyframe
        with _open(self._path) as (container, stream):
            stream.thread_type = "AUTO"
            if keyframe > 0:
                container.seek(int(pts[keyframe]), stream=stream, backward=True)
            try:
                for position, frame in enumerate(container.decode(stream)):
                    found = pts[position] if self._index.by_order else frame.pts
                    if found is None or found < pts[expected]:
                        continue
                    if found > pts[expected]:
                        break
                    yield expected, frame
                    expected += 1
                    if expected == len(pts):
                        return
            except av.FFmpegError:
                pass  # told below, with the number of frames
        if keyframe > 0 and expected == start:  # some keyframes cannot be started at (open groups of pictures)
            yield from self._decode(start, keyframe=0)
            return
        raise _truncated(self._path, expected, len(pts))

    def _upright(self, frame: VideoFrame) -> Image:
        picture = np.rot90(frame.to_ndarray(format="rgb24"), self._quarter_turns)
        if picture.shape[:2] != self._shape:
            got, first = (f"{w}x{h}" for h, w in (picture.shape[:2], self._shape))
            raise InputError(f"'{self._path}' changes its frame size", f"{first} throughout, got {got}", _REENCODE)
        return np.ascontiguousarray(picture)


@contextmanager
def _open(path: Path) -> Iterator[tuple[InputContainer, VideoStream]]:
    import av

    logging.getLogger("libav").setLevel(logging.CRITICAL)  # its complaints come back as our one line
    try:
        container = av.open(f"file:{path}", metadata_errors="replace", container_options=_LOCAL)
    except (av.FFmpegError, OSError):
        refuse_known("video", path, _A_VIDEO)
        remedy = f"check the file; when a recording or copy was cut short, {_REENCODE}"
        raise InputError(f"'{path}' is not a video that can be read, or is cut short", _A_VIDEO, remedy) from None
    with container:
        if not container.streams.video:
            raise InputError(f"'{path}' has no video stream", _A_VIDEO, "give the file that holds the pictures")
        yield container, container.streams.video[0]


def _truncated(path: Path, decoded: int, expected: int) -> InputError:
    return InputError(f"'{path}' is truncated or damaged: {decoded} of its {expected} frames decode", "", _REENCODE)


def _index_packets(path: Path, container: InputContainer, stream: VideoStream) -> _Index:
    """Times from packet headers, without decoding.

    AVI and a few older containers have no presentation times, only an order of storage: their decoding times, sorted,
    are the presentation times up to a constant, and the decoder's output order tells which frame is which.
    """
    import av

    packets: list[tuple[int | None, int | None, bool]] = []
    damaged = False
    try:
        for packet in container.demux(stream):
            if packet.size == 0 or packet.is_discard:  # the flush packet; what an edit list cuts off
                continue
            damaged |= packet.is_corrupt
            packets.append((packet.pts, packet.dts, packet.is_keyframe))
    except av.FFmpegError:
        damaged = True
    if damaged:
        raise _truncated(path, _count_decodable(path), max(stream.frames, len(packets)))
    by_order = container.format.name == "avi" or any(pts is None for pts, _, _ in packets)
    times = [dts if by_order else pts for pts, dts, _ in packets]
    if any(time is None for time in times) or stream.time_base is None:
        remedy = "give it its frame rate with `ffmpeg -r FPS -i IN -c copy OUT.mp4`"
        raise InputError(f"'{path}' has no time stamps", "a container that has them (mp4, mkv ...)", remedy)
    pts = np.array(times, dtype=np.int64)
    order = np.argsort(pts, kind="stable")
    keys = np.flatnonzero(np.array([key for _, _, key in packets], dtype=bool)[order])
    return _Index(pts[order], keys[:0] if by_order else keys, stream.time_base, by_order)


def _count_decodable(path: Path) -> int:
    import av

    count = 0
    with _open(path) as (container, stream):
        try:
            for _ in container.decode(stream):
                count += 1
        except av.FFmpegError:
            pass
    return count


def _from(index: _Index, start: int) -> _Index:
    """The index without its first `start` frames."""
    keyframes = index.keyframes[index.keyframes >= start] - start
    return replace(index, pts=index.pts[start:], keyframes=keyframes) if start else index


def _first_picture(path: Path) -> tuple[int, int, int, int | None]:
    """Upright height and width, the counter-clockwise quarter turns that make a picture upright, and the first pts."""
    import av

    with _open(path) as (container, stream):
        try:
            frame = next(iter(container.decode(stream)))
        except (av.FFmpegError, StopIteration):
            raise _truncated(path, 0, max(stream.frames, 1)) from None
        if frame.rotation % 90:
            raise InputError(f"'{path}' is to be shown turned by {frame.rotation} deg", "a multiple of 90", _REENCODE)
        turns = frame.rotation // 90 % 4
        size = (frame.height, frame.width) if turns % 2 == 0 else (frame.width, frame.height)
        return *size, turns, frame.pts


class VideoWriter:
    """Writes H.264 (yuv420p, plays in browsers) under a temporary name that is renamed when the block ends well.

    with VideoWriter(path, width, height, fps) as video:
        video.write(rgb)                  # [H, W, 3] uint8; or write(rgb, time_s=...) for a variable rate

    An odd width or height is padded by repeating the last column or row, because yuv420p needs even sizes.
    Raises InputError when the disk is full; nothing is left behind then.
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
        """Adds a frame, RGB uint8 [H, W, 3], shown at `time_s` since the start (default: the nominal rate)."""
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

"""Decode the frames of a video file through PyAV: times of the container, display matrix applied.

The index comes from packet headers, so that no frame is decoded before it is needed. Limits: a video whose frames
change their size is refused, and one of several streams is decoded.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vid2phys.errors import InputError
from vid2phys.io.display import Display
from vid2phys.io.files import require_file
from vid2phys.io.unsupported import refuse_known
from vid2phys.types import Clip

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

Image = NDArray[np.uint8]
A_VIDEO = "a video (mp4, mov, mkv, avi, webm ...)"
_Decoder = Iterator[tuple[int, "VideoFrame"]]
_OF_OTHERS: list[_Opened] = []  # decoders of a process of which this one is a copy: their threads cannot be closed here
_LOCAL = {"protocol_whitelist": "file"}  # a playlist may name addresses; and a colon in a name is no protocol
_SQUARE = 0.01  # by which the sides of a square pixel may differ, as encoders round
_REENCODE = "repair it with `ffmpeg -i IN -c:v libx264 OUT.mp4`, or copy it again"


@dataclass(frozen=True)
class _Opened:
    """A decoder that waits, the index of the frame that it returns next, and the process that opened it."""

    at: int
    decoder: _Decoder
    process: int


@dataclass(frozen=True)
class Index:
    """The frames of a video file.

    pts: [T] of the frames in display order. keyframes: increasing display indices that decoding can start at. by_order:
    whether frames are identified by their place in the decoder's output, because their pts are unreliable.
    """

    pts: NDArray[np.int64]
    keyframes: NDArray[np.int64]
    time_base: Fraction
    by_order: bool


def stored_clip(path: str | Path, number: int | None = None) -> Clip:
    """Open a video stream; frames are decoded only when asked for, times are relative to the first frame.

    number: of the stream among those of the file, from 0; None for the first. The display matrix is applied, as
    players and OpenCV do, so width and height are those of the frames as shown. Raises InputError for what is missing,
    empty, truncated, not a video, or has no frames or no such stream.
    """
    path = require_file(path, A_VIDEO)
    with _open(path, number) as (container, stream):
        notes = (*_stream_notes(path, container, stream, number), *_pixel_notes(path, stream))
        index = _index_packets(path, container, stream, number)
    if not len(index.pts):
        raise InputError(f"'{path}' has no frames", "at least one video frame", "record or export it again")
    same = np.flatnonzero(np.diff(index.pts) <= 0)
    if len(same):
        raise InputError(f"frames {same[0]} and {same[0] + 1} of '{path}' have the same time", "increasing", _REENCODE)
    stored, display, first_pts = _first_frame(path, number)
    if not index.by_order and first_pts is not None:  # a cut stream may begin with frames that lack their references
        index = _from(index, int(np.searchsorted(index.pts, first_pts)))
    times_s = (index.pts - index.pts[0]) * float(index.time_base)
    frames = VideoFrames(path, index, stored, display, number)
    height, width = display.size(*stored)
    return Clip(frames, times_s, width, height, path.stem, (*notes, *display.notes))


class VideoFrames:
    """The frames of a video file: RGB, uint8, [H, W, 3]. Only the current frame is in memory.

    The decoder of `at` stays open where it stopped, so that a clip in chunks is decoded once.
    """

    def __init__(self, path: Path, index: Index, stored: tuple[int, int], display: Display, number: int | None) -> None:
        """Keep the index.

        stored: height and width before the display matrix. number: of the stream; None for the first.
        """
        self._path, self._index, self._stored, self._display, self._number = path, index, stored, display, number
        self._open_at: _Opened | None = None

    def __len__(self) -> int:
        return len(self._index.pts)

    def __iter__(self) -> Iterator[Image]:
        for _, frame in self._decode(0):
            yield self._upright(frame)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open_at": None}

    def at(self, indices: ArrayLike) -> Iterator[Image]:
        """Yield the frames at non-decreasing `indices`; seek over frames that are not needed."""
        wanted = np.asarray(indices, dtype=np.int64)
        if wanted.ndim != 1 or np.any(np.diff(wanted) < 0):
            raise ValueError(f"indices must be a non-decreasing vector, got {wanted}")
        if len(wanted) and not (wanted[0] >= 0 and wanted[-1] < len(self)):
            raise IndexError(f"frames {wanted[0]} to {wanted[-1]} of a clip of {len(self)}")
        return self._images(wanted.tolist())

    def _images(self, wanted: list[int]) -> Iterator[Image]:
        (at, decoder), self._open_at = self._taken(), None  # other threads open their own
        image: Image | None = None
        sound = True
        try:
            for index in wanted:
                if image is None or index != at - 1:
                    sound = False
                    if not self._keyframe_before(index) <= at <= index:
                        decoder = self._decode(index)
                    image = self._upright(next(frame for found, frame in decoder if found == index))
                    at, sound = index + 1, True
                yield image
        finally:
            if sound and at < len(self):
                self._open_at = _Opened(at, decoder, os.getpid())

    def _taken(self) -> tuple[int, _Decoder]:
        """Return the open decoder with the index of the frame that comes next; an empty one where none can go on."""
        opened = self._open_at
        if opened is not None and opened.process == os.getpid():
            return opened.at, opened.decoder
        if opened is not None:
            _OF_OTHERS.append(opened)
        return len(self), iter(())

    def _keyframe_before(self, index: int) -> int:
        at = int(np.searchsorted(self._index.keyframes, index, side="right")) - 1
        return int(self._index.keyframes[at]) if at >= 0 else 0

    def _decode(self, start: int, *, keyframe: int | None = None) -> _Decoder:
        """Yield the frames from `start` on with their indices. Raises InputError where a frame does not decode."""
        import av

        expected, pts = start, self._index.pts
        keyframe = self._keyframe_before(start) if keyframe is None else keyframe
        with _open(self._path, self._number) as (container, stream):
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
                pass  # the error below gives the number of frames
        if keyframe > 0 and expected == start:  # some keyframes cannot be started at (open groups of images)
            yield from self._decode(start, keyframe=0)
            return
        raise _truncated(self._path, expected, len(pts))

    def _upright(self, frame: VideoFrame) -> Image:
        image = np.asarray(frame.to_ndarray(format="rgb24"), dtype=np.uint8)
        if image.shape[:2] != self._stored:
            got, first = (f"{w}x{h}" for h, w in (image.shape[:2], self._stored))
            raise InputError(f"'{self._path}' changes its frame size", f"{first} throughout, got {got}", _REENCODE)
        return self._display.shown(image)


@contextmanager
def _open(path: Path, number: int | None) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open a container and one of its video streams: `number` from 0, None for the first. Raises InputError."""
    import av

    logging.getLogger("libav").setLevel(logging.CRITICAL)  # its errors become our one line
    try:
        container = av.open(f"file:{path}", metadata_errors="replace", container_options=_LOCAL)
    except (av.FFmpegError, OSError):
        refuse_known("video", path, A_VIDEO)
        remedy = f"check the file; when a recording or copy was cut short, {_REENCODE}"
        raise InputError(f"'{path}' is not a video that can be read, or is cut short", A_VIDEO, remedy) from None
    with container:
        streams = _video_streams(container)
        if not streams:
            raise InputError(f"'{path}' has no video stream", A_VIDEO, "give the file that holds the images")
        if not 0 <= (number or 0) < len(streams):
            got = f"'{path}' has no video stream {number}"
            raise InputError(got, f"one of {_listed(streams)}", "give its number to --stream")
        yield container, streams[number or 0]


def _video_streams(container: InputContainer) -> list[VideoStream]:
    """Return the video streams without cover images and thumbnails, which are no recordings."""
    from av.stream import Disposition

    still = Disposition.attached_pic | Disposition.timed_thumbnails
    return [stream for stream in container.streams.video if not stream.disposition & still]


def _listed(streams: list[VideoStream]) -> str:
    """Return the streams with their numbers, sizes and rates, for a message."""
    rates = [float(stream.guessed_rate or stream.average_rate or 0.0) for stream in streams]
    sizes = [f"{stream.width}x{stream.height}" for stream in streams]
    return ", ".join(f"{i} ({size}, {fps:.4g} fps)" for i, (size, fps) in enumerate(zip(sizes, rates, strict=True)))


def _stream_notes(path: Path, container: InputContainer, stream: VideoStream, number: int | None) -> tuple[str, ...]:
    """Return a note of the stream that is used, if the user chose none of several."""
    streams = _video_streams(container)
    if len(streams) == 1 or number is not None:
        return ()
    used = streams.index(stream)
    return (
        f"'{path.name}' has {len(streams)} video streams: {_listed(streams)}; stream {used} is used, "
        "--stream chooses another",
    )


def _pixel_notes(path: Path, stream: VideoStream) -> tuple[str, ...]:
    """Return a note of pixels that are not square, as in recordings on tape."""
    ratio = float(stream.sample_aspect_ratio or 1.0)
    if abs(ratio - 1.0) < _SQUARE:
        return ()
    return (
        f"'{path.name}' has pixels that are {ratio:.4g} times as wide as high: its frames are read as stored, "
        "not stretched as players show them; the camera has to be calibrated with frames as stored",
    )


def _truncated(path: Path, decoded: int, expected: int) -> InputError:
    return InputError(f"'{path}' is truncated or damaged: {decoded} of its {expected} frames decode", "", _REENCODE)


def _index_packets(path: Path, container: InputContainer, stream: VideoStream, number: int | None) -> Index:
    """Read the times from packet headers, without decoding.

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
        raise _truncated(path, _count_decodable(path, number), max(stream.frames, len(packets)))
    by_order = container.format.name == "avi" or any(pts is None for pts, _, _ in packets)
    times = [dts if by_order else pts for pts, dts, _ in packets]
    if any(time is None for time in times) or stream.time_base is None:
        remedy = "give it its frame rate with `ffmpeg -r FPS -i IN -c copy OUT.mp4`"
        raise InputError(f"'{path}' has no time stamps", "a container that has them (mp4, mkv ...)", remedy)
    pts = np.array(times, dtype=np.int64)
    order = np.argsort(pts, kind="stable")
    keys = np.flatnonzero(np.array([key for _, _, key in packets], dtype=bool)[order])
    return Index(pts[order], keys[:0] if by_order else keys, stream.time_base, by_order)


def _count_decodable(path: Path, number: int | None) -> int:
    import av

    count = 0
    with _open(path, number) as (container, stream):
        try:
            for _ in container.decode(stream):
                count += 1
        except av.FFmpegError:
            pass
    return count


def _from(index: Index, start: int) -> Index:
    """Return the index without its first `start` frames."""
    keyframes = index.keyframes[index.keyframes >= start] - start
    return replace(index, pts=index.pts[start:], keyframes=keyframes) if start else index


def _first_frame(path: Path, number: int | None) -> tuple[tuple[int, int], Display, int | None]:
    """Return height and width of the stored frames, how players show them, and the first pts."""
    import av

    with _open(path, number) as (container, stream):
        try:
            frame = next(iter(container.decode(stream)))
        except (av.FFmpegError, StopIteration):
            raise _truncated(path, 0, max(stream.frames, 1)) from None
        return (frame.height, frame.width), Display.of(frame, path), frame.pts

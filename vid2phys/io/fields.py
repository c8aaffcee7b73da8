"""Detect interlaced clips, and make frames of their fields.

A frame of an interlaced clip holds two fields, even and odd lines, half a frame interval apart. Flags are often missing
or wrong, so the pixels decide. Where something moves, the lines of a whole frame fit each other better than they fit
lines of the frame before or after. Lines of a woven frame fit the other field of an adjacent frame as well. Where the
top field is first, even lines fit those of the next frame and odd lines those of the last one. FFmpeg's bwdif makes
frames of the fields. Limits: a clip that was scaled after recording shows no fields. A clip in which nothing moves
stays as it is, which changes nothing. Repeated frames of interlaced clips are not searched for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vid2phys.types import Array, Clip, Frames

if TYPE_CHECKING:
    from av.filter import Graph
    from av.video.frame import VideoFrame

Image = NDArray[np.uint8]
_MOVING_LEVELS = 12  # grey levels between frames: more than noise and the codec make
_LEAST_MOVING = 500  # moving pixels that suffice for a decision
_WOVEN = 0.75  # misfit in a frame over that to adjacent frames: whole frames have below 1/2, woven ones about 1
_ORDER = 1.1  # that ratio in the right order of the fields over that in the wrong one
_NEAR = 8  # fields that are decoded rather than jumped over


@dataclass
class Combing:
    """How well the lines of successive grey frames fit each other where something moves, in grey levels.

    inside: misfit of lines to the lines above and below. across: the same with the lines of an adjacent frame, as they
    fit where the top field is first, and where the bottom field is. count: moving pixels.
    """

    inside: float = 0.0
    across: Array = field(default_factory=lambda: np.zeros(2))
    count: int = 0

    def add(self, before: Image, at: Image, after: Image) -> None:
        """Count three successive frames, grey [H, W]."""
        import cv2

        moving = np.maximum(cv2.absdiff(at, before), cv2.absdiff(after, at)) > _MOVING_LEVELS
        moving[[0, -1]] = False
        rows, columns = np.nonzero(moving)
        around = 0.5 * (at[rows - 1, columns].astype(np.float64) + at[rows + 1, columns])
        misfit = lambda image: np.abs(image[rows, columns] - around)  # noqa: E731
        earlier, later, even = misfit(before), misfit(after), rows % 2 == 0
        self.inside += float(misfit(at).sum())
        self.across += np.where(even, later, earlier).sum(), np.where(even, earlier, later).sum()
        self.count += len(rows)

    @property
    def top_first(self) -> bool | None:
        """Return whether even lines are the earlier field; None for whole frames and where too little moves."""
        if self.count < _LEAST_MOVING:
            return None
        top, bottom = self.inside / self.across
        sure = max(top, bottom) > _WOVEN and max(top, bottom) > _ORDER * min(top, bottom)
        return bool(top > bottom) if sure else None


class FieldFrames:
    """`Frames` with one frame for each field of interlaced `frames`; missing lines are interpolated in space and time.

    The decoder of `at` stays open where it stopped, so that a clip in chunks is decoded once.
    """

    def __init__(self, frames: Frames, top_first: bool) -> None:
        """Keep the frames. top_first: whether even lines are the earlier field."""
        self._frames, self._top_first = frames, top_first
        self._open_at: tuple[int, Iterator[Image]] | None = None  # the index of the field that comes next

    def __len__(self) -> int:
        return 2 * len(self._frames)

    def __iter__(self) -> Iterator[Image]:
        return self._fields(0)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open_at": None}

    def at(self, indices: ArrayLike) -> Iterator[Image]:
        """Yield the frames at `indices`, see `Frames.at`."""
        (at, fields), self._open_at = self._open_at or (len(self), iter(())), None  # other threads open their own
        shown: Image | None = None
        for index in np.asarray(indices, dtype=np.int64).tolist():
            if shown is None or index != at - 1:
                if not at <= index <= at + _NEAR:
                    fields, at = self._fields(index), index
                shown = next(islice(fields, index - at, None))
                at = index + 1
            yield shown
        self._open_at = at, fields

    def _fields(self, start: int) -> Iterator[Image]:
        """Yield the fields from `start` on. The filter needs the frames on either side."""
        first = max(0, start // 2 - 1)
        graph = None
        skip = start - 2 * first
        for number, frame in enumerate(self._frames.at(np.arange(first, len(self._frames)))):
            graph = graph or _deinterlacer(frame.shape[0], frame.shape[1], self._top_first)
            graph.push(_packed(frame, number))
            for image in _ready(graph):
                if skip <= 0:
                    yield image
                skip -= 1
        if graph is not None:
            graph.push(None)
            yield from list(_ready(graph))[max(skip, 0) :]


def deinterlaced(clip: Clip, top_first: bool) -> Clip:
    """Return a clip with a frame for each field, at the time of the field, and a note that says so."""
    starts = clip.times_s
    steps = np.diff(starts)
    middles = starts + 0.5 * np.append(steps, np.median(steps))
    times = np.stack([starts, middles], axis=1).ravel()
    rate = 1.0 / float(np.median(np.diff(times)))
    order = "top" if top_first else "bottom"
    note = (
        f"the clip is interlaced, {order} field first: its {len(starts)} frames are read as {len(times)} fields at "
        f"{rate:.4g} fps, each at its own time; fields have half the lines, so poses are less exact"
    )
    whole = clip.whole
    if whole is not None:
        of_frame, fields = 2 * whole[1][:, None], np.arange(2)
        whole = deinterlaced(whole[0], top_first), (of_frame + fields).ravel()
    frames = FieldFrames(clip.frames, top_first)
    return replace(clip, frames=frames, times_s=times, notes=(*clip.notes, note), whole=whole)


def _deinterlacer(height: int, width: int, top_first: bool) -> Graph:
    from av.filter import Graph

    graph = Graph()
    source = graph.add("buffer", f"video_size={width}x{height}:pix_fmt=gbrp:time_base=1/2:pixel_aspect=1/1")
    bwdif = graph.add("bwdif", f"mode=send_field:parity={'tff' if top_first else 'bff'}:deint=all")
    sink = graph.add("buffersink")
    source.link_to(bwdif)
    bwdif.link_to(sink)
    graph.configure()
    return graph


def _packed(image: Image, number: int) -> VideoFrame:
    from av import VideoFrame

    frame = VideoFrame.from_ndarray(image, format="rgb24").reformat(format="gbrp")
    frame.pts, frame.time_base = 2 * number, Fraction(1, 2)
    return frame


def _ready(graph: Graph) -> Iterator[Image]:
    """Yield the fields that the filter has ready."""
    from av import BlockingIOError, EOFError, VideoFrame

    while True:
        try:
            pulled = graph.pull()
        except (BlockingIOError, EOFError):
            return
        assert isinstance(pulled, VideoFrame)
        yield np.asarray(pulled.to_ndarray(format="rgb24"), dtype=np.uint8)

"""Hold the frames of a clip for all stages of tracking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np
from numpy.typing import ArrayLike

from vid2phys.tracking.background import Background, Indexed
from vid2phys.tracking.cues.light import shrunk
from vid2phys.tracking.detectors.network import Image
from vid2phys.types import Camera, Clip, Frames

_IN_MEMORY_BYTES = 400e6  # of a whole clip, and half of it of a piece of one
_CHUNK = 24  # frames


@dataclass(frozen=True)
class _Reduced:
    """Frames with blocks of `by` x `by` pixels as their pixels."""

    frames: Indexed
    by: int

    def __len__(self) -> int:
        return len(self.frames)

    def __iter__(self) -> Iterator[Image]:
        return self.at(range(len(self)))

    def at(self, indices: ArrayLike) -> Iterator[Image]:
        """Yield the frames at increasing `indices`."""
        for i in np.asarray(indices, dtype=np.int64).tolist():
            yield shrunk(self.frames[i], self.by)


class FrameStore:
    """Hold the frames of a clip by index, in any order: all in memory where they fit, else a chunk at a time.

    Attributes:
        at_once: number of frames that a caller may hold together, a quarter of that memory.
        is_whole: whether all frames fit, so that any order is fast.
    """

    def __init__(self, frames: Frames, width: int, height: int) -> None:
        self._frames, self._start = frames, 0
        fitting = int(_IN_MEMORY_BYTES // (3 * width * height))
        self._span = len(frames) if len(frames) <= fitting else max(1, min(_CHUNK, fitting // 2))
        self.at_once = max(1, fitting // 4)
        self.is_whole = self._span == len(frames)
        self._in_memory: list[Image] = []
        self._lock = Lock()

    @staticmethod
    def of(clip: Clip) -> FrameStore:
        """Return the frames of a clip."""
        return FrameStore(clip.frames, clip.width, clip.height)

    @staticmethod
    def reduced(frames: Indexed, camera: Camera, by: int) -> FrameStore:
        """Return frames with blocks of `by` x `by` pixels as their pixels; camera: of these (`light.smaller`)."""
        return FrameStore(_Reduced(frames, by), camera.width, camera.height)

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, index: int) -> Image:
        with self._lock:
            if not self._start <= index < self._start + len(self._in_memory):
                self._start, self._in_memory = index // self._span * self._span, []  # never two chunks
                stop = min(self._start + self._span, len(self))
                self._in_memory = list(self._frames.at(range(self._start, stop)))
            return self._in_memory[index - self._start]

    @cached_property
    def background(self) -> Background:
        """Return the background of the clip, which is computed once."""
        return Background.of(self)

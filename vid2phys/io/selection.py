"""Select a part of a clip: chosen frames with times of their own, or the seconds between two times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vid2phys.errors import InputError, UsageError
from vid2phys.types import Array, Clip, Frames

_ROUNDING_S = 1e-6  # of a time that a user copies from a message or a file


@dataclass(frozen=True)
class SelectedFrames:
    """`Frames` of a clip at increasing `indices` [T]; decoded when asked for, as those of the clip are."""

    frames: Frames
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return self.frames.at(self.indices)

    def at(self, indices: ArrayLike) -> Iterator[NDArray[np.uint8]]:
        """Return the frames at `indices` of the selection, see `Frames.at`."""
        return self.frames.at(self.indices[np.asarray(indices, dtype=np.int64)])


def chosen(clip: Clip, indices: NDArray[np.int64], times_s: Array | None = None) -> Clip:
    """Return the clip's frames at increasing `indices` [T], at their own times or at `times_s` [T]."""
    whole, before = clip.whole or (clip, np.arange(len(clip.times_s)))
    times = clip.times_s[indices] if times_s is None else times_s
    frames = SelectedFrames(clip.frames, indices)
    return replace(clip, frames=frames, times_s=times, whole=(whole, before[indices]))


def between(clip: Clip, from_s: float | None, to_s: float | None) -> Clip:
    """Return the part of a clip from one time to another, both included; the frames keep their times.

    Raises UsageError for times in the wrong order, InputError for a part that holds no frame of the clip.
    """
    start, end = -np.inf if from_s is None else from_s, np.inf if to_s is None else to_s
    if not start < end:
        raise UsageError(f"--from {start:g} --to {end:g}", "--from before --to", "give seconds of the clip's clock")
    if from_s is None and to_s is None:
        return clip
    inside = np.flatnonzero((clip.times_s >= start - _ROUNDING_S) & (clip.times_s <= end + _ROUNDING_S))
    first, last = clip.times_s[0], clip.times_s[-1]
    shown = last + (float(np.median(np.diff(clip.times_s))) if len(clip.times_s) > 1 else 0.0)  # with the last frame
    ends = {flag: value for flag, value in (("--from", from_s), ("--to", to_s)) if value is not None}
    outside = [value for value in ends.values() if not first - _ROUNDING_S <= value <= shown + _ROUNDING_S]
    if outside or not len(inside):
        given = " ".join(f"{flag} {value:g}" for flag, value in ends.items())
        problem = "leaves" if outside else "has no frame of"
        lasts = f"times within the clip, {first:.3f} to {last:.3f} s"
        raise InputError(f"{given} {problem} the clip '{clip.name}'", lasts, "give seconds of the clip's clock")
    return clip if len(inside) == len(clip.times_s) else chosen(clip, inside)


def until(clip: Clip, to_s: float | None) -> Clip:
    """Return the clip without the frames after `to_s`."""
    count = len(clip.times_s) if to_s is None else int(np.sum(clip.times_s <= to_s + _ROUNDING_S))
    return clip if count == len(clip.times_s) else chosen(clip, np.arange(count))

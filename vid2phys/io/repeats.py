"""Find repeated frames: pull-up, doubled frames, and what a recorder writes again in place of a frame that it lost.

A frame repeats the one before if nothing moves between the two while something moves just before and just after. A
static body does not repeat: the frames around are alike, too. Nor does a body that reverses: the frames before and
after are then alike. A run of more than two equal frames counts only as a part of a regular cadence (24 fps stored at
30), because bodies do stop and go on. Limits: repeats while nothing moves are found by the cadence only; those of a
motion below the noise are not found.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

import numpy as np
from numpy.typing import NDArray

from vid2phys.io.selection import chosen
from vid2phys.types import Array, Clip, Frames

_LEVELS = 256
_LEAST_MOTION = 8  # grey levels, of frames smoothed over 3 pixels: more than noise and the codec make
_NOISES = 6.0  # standard deviations of the noise that a motion must exceed
_QUARTER = 0.3186  # standard deviations of a normal variable within which a quarter of its values lie
_LEAST_TOTAL = 200.0  # grey levels in all: the motion of a small body by a pixel
_SURELY = 1000.0  # on either side of a repeat outside of a cadence
_STILL = 0.1  # of the motion on either side, in a cadence
_SURELY_STILL = 0.03  # outside of a cadence
_APART = 0.5  # of the motion on either side, that frames around a repeat differ by
_ISOLATED = 2  # successive repeats that count outside of a cadence
_LONGEST = 12  # successive repeats that may be one frame's
_PERIOD = 60  # frames, the longest of a cadence
_PERIODS = 3  # a cadence shows that often
_SHARE = 0.01  # by which the share of new frames may miss that of the cadence
_BROKEN = 0.2  # of the repeats: frames that may contradict a cadence
_FEWEST = 4  # frames in which a repeat can be found
_EVEN = 0.2  # of the median interval, for a constant rate

Flags = NDArray[np.bool_]


class Changes:
    """How much moves between successive frames, from their grey levels. Frames are added in order."""

    def __init__(self) -> None:
        self._last: NDArray[np.uint8] | None = None
        self._histograms: list[NDArray[np.int64]] = []

    def add(self, grey: NDArray[np.uint8]) -> None:
        """Count the next frame, [H, W]."""
        smooth = _smooth(grey)
        if self._last is not None:
            self._histograms.append(_difference(self._last, smooth))
        self._last = smooth

    @property
    def threshold(self) -> float:
        """Return the grey levels above which a difference is motion and not noise."""
        counts = np.sum(self._histograms, axis=0)
        share = np.cumsum(counts) / counts.sum()
        quarter = float(np.interp(0.25, share, np.arange(_LEVELS) + 0.5)) if share[0] < 0.25 else 0.0
        return max(_LEAST_MOTION, _NOISES * quarter / _QUARTER)

    @property
    def motion(self) -> Array:
        """Return the differences beyond the threshold of each frame to the last, summed over the frame, [T - 1]."""
        return _beyond(np.array(self._histograms).reshape(-1, _LEVELS), self.threshold)


def without_repeats(clip: Clip, changes: Changes) -> Clip:
    """Return a clip without its repeated frames, with a note of them; a clip that has none as it is.

    changes: of its frames. Frames of a cadence were taken at a constant rate and get those times. The others keep
    theirs: a repeated frame shows the moment of the frame that it repeats.
    """
    if len(clip.times_s) < _FEWEST:
        return clip
    motion = changes.motion
    runs = _confirmed(clip.frames, motion, _runs(motion), changes.threshold)
    cadence = _cadence(motion, runs) if _is_even(clip.times_s) else None
    if cadence is not None:
        return _at_constant_rate(clip, *cadence)
    kept = np.ones(len(clip.times_s), dtype=bool)
    for start, end in runs:
        sure = _flank(motion, start, end) > _SURELY and _depth(motion, start, end) <= _SURELY_STILL
        if sure and end - start <= _ISOLATED:
            kept[start + 1 : end + 1] = False
    if kept.all():
        return clip
    return _noted(clip, np.flatnonzero(kept), clip.times_s[kept], "the others keep their times")


def _smooth(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    import cv2

    return np.asarray(cv2.blur(grey, (3, 3)), dtype=np.uint8)


def _difference(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return how many pixels differ by each number of grey levels, [256]."""
    import cv2

    counts = cv2.calcHist([cv2.absdiff(one, other)], [0], None, [_LEVELS], [0, _LEVELS])
    return np.asarray(counts[:, 0], dtype=np.int64)


def _beyond(histograms: NDArray[np.int64], threshold: float) -> Array:
    return np.asarray(histograms @ np.maximum(np.arange(_LEVELS) - threshold, 0.0))


def _runs(motion: Array) -> list[tuple[int, int]]:
    """Return pairs: a frame that others repeat, and the last frame that repeats it. Frames around them move."""
    from scipy.ndimage import maximum_filter1d

    around = maximum_filter1d(motion, 2 * _LONGEST + 1, mode="nearest")
    edges = np.flatnonzero(np.diff(np.concatenate([[0], motion <= _STILL * around, [0]]).astype(int)))
    found = []
    for start, end in edges.reshape(-1, 2).tolist():
        if start == 0 or end == len(motion) or end - start > _LONGEST:
            continue
        if _flank(motion, start, end) > _LEAST_TOTAL and _depth(motion, start, end) <= _STILL:
            found.append((start, end))
    return found


def _flank(motion: Array, start: int, end: int) -> float:
    """Return the smaller of the motions just before and just after a still run."""
    return float(min(motion[start - 1], motion[end]))


def _depth(motion: Array, start: int, end: int) -> float:
    """Return the largest motion within a still run as a share of the motion around the run (`_flank`)."""
    return float(motion[start:end].max() / _flank(motion, start, end))


def _confirmed(frames: Frames, motion: Array, runs: list[tuple[int, int]], threshold: float) -> list[tuple[int, int]]:
    """Return the runs whose frames before and after differ: a body that turns back passes the same places again."""
    import cv2

    wanted = sorted({frame for start, end in runs for frame in (start - 1, end + 1)})
    reader = zip(wanted, frames.at(wanted), strict=True)
    found: list[tuple[int, int]] = []
    smoothed: dict[int, NDArray[np.uint8]] = {}
    for start, end in runs:
        while end + 1 not in smoothed:
            number, frame = next(reader)
            smoothed[number] = _smooth(np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), dtype=np.uint8))
        smoothed = {number: image for number, image in smoothed.items() if number >= start - 1}
        apart = _beyond(_difference(smoothed[start - 1], smoothed[end + 1]), threshold)
        if apart > _APART * _flank(motion, start, end):
            found.append((start, end))
    return found


def _is_even(times_s: Array) -> bool:
    steps = np.diff(times_s)
    return bool(np.abs(steps - np.median(steps)).max() < _EVEN * np.median(steps))


def _cadence(motion: Array, runs: list[tuple[int, int]]) -> tuple[Flags, float] | None:
    """Return the shortest regular pattern that explains the known frames; None if there is no such pattern.

    The pattern says which frames are new, [T], and how many frames of the file each new frame lasts.
    """
    repeat = np.zeros(len(motion) + 1, dtype=bool)
    for start, end in runs:
        repeat[start + 1 : end + 1] = True
    new = np.concatenate([[False], motion > _LEAST_TOTAL]) & ~repeat
    known, repeats = int((new | repeat).sum()), int(repeat.sum())
    if len(runs) < _PERIODS:
        return None
    frames, share = np.arange(len(repeat)), 1.0 - repeats / known
    for period in range(2, min(_PERIOD, known // _PERIODS) + 1):
        for count in range(1, period):
            if gcd(count, period) > 1 or abs(count / period - share) > max(_SHARE, _PERIODS / known):
                continue
            for phase in range(period):
                at = (frames + phase) * count // period
                first = at != (frames + phase - 1) * count // period
                if (first & repeat | ~first & new).sum() <= _BROKEN * repeats:
                    return np.asarray(first), period / count
    return None


def _at_constant_rate(clip: Clip, first: Flags, step: float) -> Clip:
    """Return the new frames at a constant rate. step: between new frames, in frames of the file."""
    kept = np.flatnonzero(first)
    if kept[0] > 0:  # the clip may begin with a whole frame or with the last repeat of one
        with_begin = np.concatenate([[0], kept])
        if np.abs(with_begin - step * np.arange(len(with_begin))).max() < 1.0:
            kept = with_begin
    interval = float(np.mean(np.diff(clip.times_s))) * step
    times = clip.times_s[kept[0]] + interval * np.arange(len(kept))
    how = f"the others were taken at a constant rate and are read at {1.0 / interval:.4g} fps"
    return _noted(clip, kept, times, how)


def _noted(clip: Clip, kept: NDArray[np.int64], times_s: Array, how: str) -> Clip:
    total = len(clip.times_s)
    note = f"{total - len(kept)} of {total} frames repeat the one before and are left out; {how}"
    return replace(chosen(clip, kept, times_s), notes=(*clip.notes, note))

"""The first pass over a clip: find the object, follow it from frame to frame, find it again when it was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vid2phys.indices import evenly
from vid2phys.tracking.background import Background
from vid2phys.tracking.detectors.network import Image, direction_and_size
from vid2phys.tracking.detectors.search import Found, LastSeen, Watch
from vid2phys.types import Array, Frames

_IN_MEMORY_BYTES = 400e6  # of a whole clip, and half of it of a piece of one
_CHUNK = 24
_SEEDS = 3  # frames that are searched before the best of them is followed
_MORE_SEEDS = 16  # and further ones while nothing was found
_RECENTER = 0.10  # a reading this far from the middle of its view (share of the view) is repeated
_RESIZE = 0.20  # or with a size this far from what the view was made for
_REPEATS = 3  # at most
_AHEAD = 3  # frames that are read at once while the motion is steady
_COAST_FRAMES = 3  # a lost object is looked for where it would be for this many frames, then searched only
_EAGER_FRAMES = 12  # searched in every frame at first, later in every fourth


class FrameStore:
    """Hold the frames of a clip by index, in any order: all in memory where they fit, else a chunk at a time.

    at_once: how many frames a caller may hold together, a quarter of that memory.
    """

    def __init__(self, frames: Frames, width: int, height: int) -> None:
        self._frames, self._start = frames, 0
        fitting = int(_IN_MEMORY_BYTES // (3 * width * height))
        self._span = len(frames) if len(frames) <= fitting else max(1, min(_CHUNK, fitting // 2))
        self.at_once = max(1, fitting // 4)
        self._held: list[Image] = []

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, index: int) -> Image:
        if not self._start <= index < self._start + len(self._held):
            self._start, self._held = index // self._span * self._span, []  # never two chunks
            stop = min(self._start + self._span, len(self))
            self._held = list(self._frames.at(range(self._start, stop)))
        return self._held[index - self._start]

    @cached_property
    def background(self) -> Background:
        """Return the background of the clip, which is computed once."""
        return Background.of(self)


@dataclass(frozen=True)
class FirstPass:
    """translation: [T, 3] m in camera axes, NaN where the object was not found. quality: [T], 0 there."""

    translation: Array
    quality: Array

    @property
    def found(self) -> NDArray[np.bool_]:
        """Frames in which the object was found, [T]."""
        return self.quality > 0.0


class Follower:
    """Follows one object through a clip."""

    def __init__(
        self, frames: FrameStore, times_s: Array, watch: Watch, progress: Callable[[float], None] | None = None
    ) -> None:
        self.frames, self.times_s, self.watch, self.progress = frames, times_s, watch, progress
        self.translation = np.full((len(frames), 3), np.nan)
        self.quality = np.zeros(len(frames))

    def run(self) -> FirstPass:
        """Seed, then forwards to the end and backwards to the start."""
        seed = self._seed()
        if seed is not None:
            count = len(self.frames)
            self._follow(range(seed + 1, count), seed, gaps=True)
            self._follow(range(seed - 1, -1, -1), seed, gaps=True)
        return FirstPass(self.translation, self.quality)

    def _seed(self) -> int | None:
        """The frame in which the object is found most surely, of a few; None if it is found in none."""
        count = len(self.frames)
        first = evenly(int(0.67 * (count - 1)) + 1, _SEEDS)
        more = evenly(count, _MORE_SEEDS)
        scores = np.zeros(count)
        for index in (*first, *np.setdiff1d(more, first)):
            if index not in first and scores.any():
                break
            found = self.watch.search(self.frames[int(index)])
            if found is not None:
                self._store(int(index), found)
                scores[index] = found.score
        best = int(np.argmax(scores))
        others = np.arange(count) != best
        self.translation[others], self.quality[others] = np.nan, 0.0
        return best if scores.any() else None

    def _store(self, index: int, found: Found | None) -> bool:
        if found is not None:
            self.translation[index], self.quality[index] = found.translation, found.quality
        return found is not None

    def _follow(self, indices: Sequence[int], start: int, *, gaps: bool) -> None:
        """Frame by frame in the order of `indices`; with `gaps`, search where the object is lost and then fill in."""
        known, lost, at = [start], 0, 0
        last = self._last_seen(start)
        while at < len(indices) and self.quality[indices[at]] == 0.0:
            ahead = self._read_ahead(indices[at : at + _AHEAD], known) if not lost and len(known) > 1 else []
            if ahead:
                for found in ahead:
                    self._store(indices[at], found)
                    known, at = [*known[-3:], indices[at]], at + 1
                last = self._last_seen(known[-1])
                self._tell()
                continue
            index, at = indices[at], at + 1
            single = self._read_predicted(index, known) if lost < _COAST_FRAMES else None
            if single is None and gaps and (lost < _EAGER_FRAMES or lost % 4 == 0):
                single = self.watch.search(self.frames[index], last)
            if not self._store(index, single):
                lost += 1
                if not gaps and lost >= _COAST_FRAMES:
                    break
                continue
            if gaps and lost:
                step = 1 if index < start else -1
                self._follow(range(index + step, known[-1], step), index, gaps=False)
                known = []
            known, lost = [*known[-3:], index], 0
            last = self._last_seen(index)
            self._tell()

    def _last_seen(self, index: int) -> LastSeen:
        return LastSeen(self.watch.background.at(self.frames[index]), self.translation[index])

    def _tell(self) -> None:
        if self.progress is not None:
            self.progress(float((self.quality > 0.0).mean()))

    def _read_ahead(self, indices: Sequence[int], known: list[int]) -> list[Found]:
        """The next few frames at once, where steady motion puts the object: those, in order, in which it is there."""
        guesses = np.stack([self._predict(index, known) for index in indices])
        if (guesses[:, 2] <= self.watch.radius_m).any() or (self.quality[list(indices)] > 0.0).any():
            return []
        return self._read(indices, guesses)[0]

    def _read(self, indices: Sequence[int], guesses: Array) -> tuple[list[Found], Array | None]:
        """Frames read at guesses [N, 3]: the leading ones that show the object in the middle of the view, and where it
        is in the next one if it is there but not in the middle."""
        frames = [self.frames[index] for index in indices]
        seen = self.watch.look(frames, guesses)
        credible, score = self.watch.judge(frames, seen)
        found: list[Found] = []
        for i, place in enumerate(seen.poses.translation[:, 0]):
            if not credible[i]:
                return found, None
            if not self._centered(place, guesses[i]):
                return found, place
            found.append(Found(place, float(seen.quality[i, 0]), float(score[i])))
        return found, None

    def _centered(self, place: Array, guess: Array) -> bool:
        """Whether a reading lies where its view looked, and is as large as the view was made for."""
        (center, radius), (moved, size) = (direction_and_size(x, self.watch.radius_m) for x in (guess, place))
        off_center = float(np.linalg.norm(moved - center) / np.tan(radius)) / 3.0
        return bool(off_center < _RECENTER and abs(np.log(size / radius)) < _RESIZE)

    def _predict(self, index: int, known: list[int]) -> Array:
        """Constant velocity of the direction, and the mean of the last distances."""
        last = self.translation[known[-1]]
        distance = np.exp(np.log(np.linalg.norm(self.translation[known], axis=-1)).mean())
        direction = last / np.linalg.norm(last)
        if len(known) > 1:
            before = self.translation[known[-2]] / np.linalg.norm(self.translation[known[-2]])
            ratio = (self.times_s[index] - self.times_s[known[-1]]) / (
                self.times_s[known[-1]] - self.times_s[known[-2]]
            )
            direction = direction + (direction - before) * min(float(ratio), 3.0)
        return np.asarray(direction / np.linalg.norm(direction) * distance)

    def _read_predicted(self, index: int, known: list[int]) -> Found | None:
        """A frame read where the object should be, and again where it turned out to be."""
        for guess in (self._predict(index, known), self.translation[known[-1]]):
            place: Array | None = guess
            for _ in range(_REPEATS):
                if place is None or place[2] <= self.watch.radius_m:
                    break
                found, place = self._read([index], place[None])
                if found:
                    return found[0]
        return None


def smooth_path(times_s: Array, translation: Array, *, reach_s: float = 0.25) -> Array:
    """Smoothed, gap-filled path for placing views, [T, 3] -> [T, 3]; NaN further than `reach_s` from any frame found.

    Local straight lines through directions and log distances, Gaussian weights of about two frames, outliers of the
    distance down-weighted once.
    """
    known = np.isfinite(translation).all(axis=-1)
    out = np.full_like(translation, np.nan)
    if not known.any():
        return out
    times, path = times_s[known], translation[known]
    values = np.concatenate([path[:, :2] / path[:, 2:], np.log(np.linalg.norm(path, axis=-1))[:, None]], axis=1)
    frame_s = float(np.median(np.diff(times_s))) if len(times_s) > 1 else 1.0
    local = np.array([np.median(values[max(0, i - 4) : i + 5, 2]) for i in range(len(values))])
    trust = 1.0 / (1.0 + ((values[:, 2] - local) / 0.05) ** 2)
    for i, t in enumerate(times_s):
        gap = float(np.abs(times - t).min())
        if gap > reach_s:
            continue
        width = np.array([1.0, 1.0, 3.0]) * max(frame_s, gap)
        for axis in range(3):
            weight = np.exp(-0.5 * ((times - t) / width[axis]) ** 2) * (trust if axis == 2 else 1.0)
            out[i, axis] = _local_line(times - t, values[:, axis], weight)
    ray = np.concatenate([out[:, :2], np.ones_like(out[:, :1])], axis=1)
    return np.asarray(ray / np.linalg.norm(ray, axis=1, keepdims=True) * np.exp(out[:, 2:]))


def _local_line(x: Array, y: Array, weight: Array) -> float:
    """Value at 0 of the weighted straight line, or the mean where there is no line."""
    total, mean = weight.sum(), (weight * x).sum() / weight.sum()
    spread = (weight * (x - mean) ** 2).sum()
    average = (weight * y).sum() / total
    if spread < 1e-12 * total:
        return float(average)
    slope = (weight * (x - mean) * y).sum() / spread
    return float(average - slope * mean)

"""The first pass over a clip: find the object, follow it from frame to frame, find it again when it was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.error_model import Calibration
from vid2phys.risp.search import Background, Found, plausible, search
from vid2phys.risp.sight import Image, direction_and_size, look
from vid2phys.types import Array, Camera, Clip, Frames

if TYPE_CHECKING:
    from vid2phys.risp.model import Model

_IN_MEMORY_BYTES = 400e6
_CHUNK = 24
_SEEDS = 3  # frames that are searched before the best of them is followed
_MORE_SEEDS = 16  # and further ones while nothing was found
_RECENTER = 0.10  # a reading this far from the middle of its view (share of the view) is repeated
_RESIZE = 0.20  # or with a size this far from what the view was made for
_AHEAD = 3  # frames that are read at once while the motion is steady
_COAST_FRAMES = 3  # a lost object is looked for where it would be for this many frames, then searched only
_EAGER_FRAMES = 12  # searched in every frame at first, later in every fourth


class FrameStore:
    """Frames by index, in any order: all in memory where they fit, else a chunk at a time."""

    def __init__(self, frames: Frames, width: int, height: int) -> None:
        self._frames, self._start = frames, 0
        fits = len(frames) * width * height * 3 <= _IN_MEMORY_BYTES
        self._span = len(frames) if fits else _CHUNK
        self._held: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, index: int) -> Image:
        if self._held is None or not self._start <= index < self._start + len(self._held):
            self._start = index // self._span * self._span
            stop = min(self._start + self._span, len(self))
            self._held = self._frames.sample(np.arange(self._start, stop))
        return np.asarray(self._held[index - self._start])


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
    """Follows one object through a clip; holds what all frames share."""

    def __init__(
        self,
        clip: Clip,
        camera: Camera,
        model: Model,
        radius_m: float,
        calibration: Calibration,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        self.frames = FrameStore(clip.frames, clip.width, clip.height)
        self.times_s, self.camera, self.model = clip.times_s, camera, model
        self.radius_m, self.calibration, self.progress = radius_m, calibration, progress
        self.background = Background.of(self.frames)
        self.translation = np.full((len(self.frames), 3), np.nan)
        self.quality = np.zeros(len(self.frames))

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
        first = np.unique(np.linspace(0, 0.67 * (count - 1), _SEEDS).astype(int))
        more = np.unique(np.linspace(0, count - 1, _MORE_SEEDS).astype(int))
        for index in (*first, *np.setdiff1d(more, first)):
            if index not in first and self.quality.any():
                break
            self._store(int(index), self._search(int(index)))
        if not self.quality.any():
            return None
        best = int(np.argmax(self.quality))
        others = np.arange(count) != best
        self.translation[others], self.quality[others] = np.nan, 0.0
        return best

    def _search(self, index: int) -> Found | None:
        return search(self.model, self.camera, self.background, self.frames[index], self.radius_m, self.calibration)

    def _store(self, index: int, found: Found | None) -> bool:
        if found is not None:
            self.translation[index], self.quality[index] = found.translation, found.quality
        return found is not None

    def _follow(self, indices: Sequence[int], start: int, *, gaps: bool) -> None:
        """Frame by frame in the order of `indices`; with `gaps`, search where the object is lost and then fill in."""
        known, lost, at = [start], 0, 0
        while at < len(indices) and self.quality[indices[at]] == 0.0:
            ahead = self._read_ahead(indices[at : at + _AHEAD], known) if not lost and len(known) > 1 else []
            if ahead:
                for found in ahead:
                    self._store(indices[at], found)
                    known, at = [*known[-3:], indices[at]], at + 1
                self._tell()
                continue
            index, at = indices[at], at + 1
            single = self._read_predicted(index, known) if lost < _COAST_FRAMES else None
            if single is None and gaps and (lost < _EAGER_FRAMES or lost % 4 == 0):
                single = self._search(index)
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
            self._tell()

    def _tell(self) -> None:
        if self.progress is not None:
            self.progress(float((self.quality > 0.0).mean()))

    def _read_ahead(self, indices: Sequence[int], known: list[int]) -> list[Found]:
        """The next few frames at once, where steady motion puts the object: those, in order, in which it is there."""
        guesses = np.stack([self._predict(index, known) for index in indices])
        if (guesses[:, 2] <= self.radius_m).any() or (self.quality[list(indices)] > 0.0).any():
            return []
        center, radius = direction_and_size(guesses, self.radius_m)
        frames = [self.frames[index] for index in indices]
        seen = look(self.model, self.camera, frames, center, radius, self.calibration)
        sound = (seen.quality[:, 0] >= self.calibration.min_quality) & plausible(seen, self.radius_m)
        translation = seen.poses.translation[:, 0]
        sound &= [self._centered(t, c, r) for t, c, r in zip(translation, center, radius, strict=True)]
        count = len(sound) if sound.all() else int(np.argmin(sound))
        return [Found(translation[i], float(seen.quality[i, 0])) for i in range(count)]

    def _centered(self, translation: Array, center: Array, radius: float) -> bool:
        """Whether a reading lies where its view looked, and is as large as the view was made for."""
        if translation[2] <= self.radius_m:
            return False
        moved, size = direction_and_size(translation, self.radius_m)
        off_center = float(np.linalg.norm(moved - center)) / np.tan(radius) / 3.0
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
        for guess in (self._predict(index, known), self.translation[known[-1]]):
            found = self._read(index, guess)
            if found is not None:
                return found
        return None

    def _read(self, index: int, guess: Array) -> Found | None:
        """Read a frame where the object should be; once more if it turns out not to be in the middle of the view."""
        if guess[2] <= self.radius_m:
            return None
        for _ in range(2):
            center, radius = direction_and_size(guess, self.radius_m)
            seen = look(self.model, self.camera, [self.frames[index]], center[None], radius[None], self.calibration)
            quality = float(seen.quality[0, 0])
            if quality < self.calibration.min_quality or not plausible(seen, self.radius_m)[0]:
                return None
            translation = seen.poses.translation[0, 0]
            if self._centered(translation, center, float(radius)):
                break
            guess = translation
        return Found(translation, quality)


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

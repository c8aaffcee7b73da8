"""The first pass over a clip: detect the object, follow it from frame to frame, search for it when it is lost.

Limits: the path of an object that is hidden for more than a quarter of a second has a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.indices import evenly
from vid2phys.tracking.detectors.network import direction_and_size
from vid2phys.tracking.detectors.search import LastSeen, ObjectDetection, ObjectDetector
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.types import Array


@dataclass(frozen=True, kw_only=True)
class FirstPassConfig:
    """Settings of `Follower` and `smooth_path`."""

    seeds: int = 3
    """Number of frames that are searched before the best of them is followed."""
    seed_share: float = 0.67
    """Share of the clip in which these frames lie."""
    more_seeds: int = 16
    """Number of further frames while the object is not found."""
    recenter_share: float = 0.10
    """Distance from the middle of the virtual image with which a detection is repeated, as a share of the image."""
    resize_log: float = 0.20
    """Error of the logarithm of the size with which a detection is repeated."""
    repeats: int = 3
    """Largest number of repetitions."""
    ahead: int = 3
    """Number of frames that are detected at once while the motion is steady."""
    coast_frames: int = 3
    """Number of frames for which a lost object is expected on its path."""
    eager_frames: int = 12
    """Number of frames that are all searched after a loss; later every fourth."""
    max_rate_ratio: float = 3.0
    """Largest step of a prediction, as a multiple of the step before."""
    reach_s: float = 0.25
    """Largest distance from a detection at which the smoothed path is known, s."""
    depth_trust: float = 0.05
    """Error of the logarithm of the distance from which on a frame counts less in the smoothed path."""
    widths: tuple[float, float, float] = (1.0, 1.0, 3.0)
    """Widths of the smoothing in direction x, y and in log distance, frames."""


DEFAULTS = FirstPassConfig()


@dataclass(frozen=True)
class FirstPass:
    """The detections of the first pass in T frames.

    Attributes:
        translation: [T, 3] in camera axes, m; NaN where the object was not found.
        quality: [T], 0 there.
    """

    translation: Array
    quality: Array

    @property
    def found(self) -> NDArray[np.bool_]:
        """The frames [T] in which the object was found."""
        return self.quality > 0.0


class Follower:
    """Follow one object through a clip."""

    def __init__(
        self,
        frames: FrameStore,
        times_s: Array,
        detector: ObjectDetector,
        progress: Callable[[float], None] | None = None,
        config: FirstPassConfig = DEFAULTS,
    ) -> None:
        self.frames, self.times_s, self.detector, self.progress = frames, times_s, detector, progress
        self.config = config
        self.translation = np.full((len(frames), 3), np.nan)
        self.quality = np.zeros(len(frames))

    def run(self) -> FirstPass:
        """Find a seed, then follow the object to the end and back to the start."""
        seed = self._seed()
        if seed is not None:
            count = len(self.frames)
            self._follow(range(seed + 1, count), seed, gaps=True)
            self._follow(range(seed - 1, -1, -1), seed, gaps=True)
        return FirstPass(self.translation, self.quality)

    def _seed(self) -> int | None:
        """Return the frame with the best detection, of a few; None if the object is found in none."""
        count = len(self.frames)
        first = evenly(int(self.config.seed_share * (count - 1)) + 1, self.config.seeds)
        more = evenly(count, self.config.more_seeds)
        scores = np.zeros(count)
        for index in (*first, *np.setdiff1d(more, first)):
            if index not in first and scores.any():
                break
            found = self.detector.at(int(index)).search(self.frames[int(index)])
            if found is not None:
                self._store(int(index), found)
                scores[index] = found.score
        best = int(np.argmax(scores))
        others = np.arange(count) != best
        self.translation[others], self.quality[others] = np.nan, 0.0
        return best if scores.any() else None

    def _store(self, index: int, found: ObjectDetection | None) -> bool:
        """Store a detection, and return whether there is one."""
        if found is not None:
            self.translation[index], self.quality[index] = found.translation, found.quality
        return found is not None

    def _follow(self, indices: Sequence[int], start: int, *, gaps: bool) -> None:
        """Follow the object frame by frame in the order of `indices`; with `gaps`, search for it and fill."""
        known, lost, at = [start], 0, 0
        last = self._last_seen(start)
        while at < len(indices) and self.quality[indices[at]] == 0.0:
            ahead = (
                self._detect_ahead(indices[at : at + self.config.ahead], known) if not lost and len(known) > 1 else []
            )
            if ahead:
                for found in ahead:
                    self._store(indices[at], found)
                    known, at = [*known[-3:], indices[at]], at + 1
                last = self._last_seen(known[-1])
                self._report()
                continue
            index, at = indices[at], at + 1
            single = self._detect_predicted(index, known) if lost < self.config.coast_frames else None
            if single is None and gaps and (lost < self.config.eager_frames or lost % 4 == 0):
                single = self.detector.at(index).search(self.frames[index], last)
            if not self._store(index, single):
                lost += 1
                if not gaps and lost >= self.config.coast_frames:
                    break
                continue
            if gaps and lost:
                step = 1 if index < start else -1
                self._follow(range(index + step, known[-1], step), index, gaps=False)
                known = []
            known, lost = [*known[-3:], index], 0
            last = self._last_seen(index)
            self._report()

    def _last_seen(self, index: int) -> LastSeen | None:
        background = self.detector.background
        return None if background is None else LastSeen(background.at(self.frames[index]), self.translation[index])

    def _report(self) -> None:
        if self.progress is not None:
            self.progress(float((self.quality > 0.0).mean()))

    def _detect_ahead(self, indices: Sequence[int], known: list[int]) -> list[ObjectDetection]:
        """Detect in the next few frames at once along a steady motion; return the leading frames with the object."""
        guesses = np.stack([self._predict(index, known) for index in indices])
        if (guesses[:, 2] <= self.detector.radius_m).any() or (self.quality[list(indices)] > 0.0).any():
            return []
        return self._detect(indices, guesses)[0]

    def _detect(self, indices: Sequence[int], guesses: Array) -> tuple[list[ObjectDetection], Array | None]:
        """Detect in frames at guesses [N, 3].

        Return the leading frames with the object in the middle of the virtual image, and the place of the object in the
        next one if it is there but not in the middle.
        """
        frames = [self.frames[index] for index in indices]
        detector = self.detector.at(np.array(indices))
        seen = detector.detect(frames, guesses)
        credible, score = detector.judge(frames, seen)
        found: list[ObjectDetection] = []
        for i, place in enumerate(seen.poses.translation[:, 0]):
            if not credible[i]:
                return found, None
            if not self._centered(place, guesses[i]):
                return found, place
            found.append(ObjectDetection(place, float(seen.quality[i, 0]), float(score[i])))
        return found, None

    def _centered(self, place: Array, guess: Array) -> bool:
        """Return whether a detection lies in the middle of its virtual image, at the expected size."""
        (center, radius), (moved, size) = (direction_and_size(x, self.detector.radius_m) for x in (guess, place))
        off_center = float(np.linalg.norm(moved - center) / np.tan(radius)) / 3.0
        return bool(off_center < self.config.recenter_share and abs(np.log(size / radius)) < self.config.resize_log)

    def _predict(self, index: int, known: list[int]) -> Array:
        """Predict a place: constant velocity of the direction, and the mean of the last distances."""
        last = self.translation[known[-1]]
        distance = np.exp(np.log(np.linalg.norm(self.translation[known], axis=-1)).mean())
        direction = last / np.linalg.norm(last)
        if len(known) > 1:
            before = self.translation[known[-2]] / np.linalg.norm(self.translation[known[-2]])
            ratio = (self.times_s[index] - self.times_s[known[-1]]) / (
                self.times_s[known[-1]] - self.times_s[known[-2]]
            )
            direction = direction + (direction - before) * min(float(ratio), self.config.max_rate_ratio)
        return np.asarray(direction / np.linalg.norm(direction) * distance)

    def _detect_predicted(self, index: int, known: list[int]) -> ObjectDetection | None:
        """Detect at the predicted place, and repeat where the object turns out to be."""
        for guess in (self._predict(index, known), self.translation[known[-1]]):
            place: Array | None = guess
            for _ in range(self.config.repeats):
                if place is None or place[2] <= self.detector.radius_m:
                    break
                found, place = self._detect([index], place[None])
                if found:
                    return found[0]
        return None


def smooth_path(times_s: Array, translation: Array, config: FirstPassConfig = DEFAULTS) -> Array:
    """Return the smoothed path [T, 3] on which virtual cameras are placed, with short gaps filled.

    The path consists of local straight lines through directions and log distances, with Gaussian weights of about two
    frames. Outliers of the distance count less. The path is NaN far from any detection.
    """
    known = np.isfinite(translation).all(axis=-1)
    out = np.full_like(translation, np.nan)
    if not known.any():
        return out
    times, path = times_s[known], translation[known]
    values = np.concatenate([path[:, :2] / path[:, 2:], np.log(np.linalg.norm(path, axis=-1))[:, None]], axis=1)
    frame_s = float(np.median(np.diff(times_s))) if len(times_s) > 1 else 1.0
    local = np.array([np.median(values[max(0, i - 4) : i + 5, 2]) for i in range(len(values))])
    trust = 1.0 / (1.0 + ((values[:, 2] - local) / config.depth_trust) ** 2)
    for i, t in enumerate(times_s):
        gap = float(np.abs(times - t).min())
        if gap > config.reach_s:
            continue
        width = np.array(config.widths) * max(frame_s, gap)
        for axis in range(3):
            weight = np.exp(-0.5 * ((times - t) / width[axis]) ** 2) * (trust if axis == 2 else 1.0)
            out[i, axis] = _local_line(times - t, values[:, axis], weight)
    ray = np.concatenate([out[:, :2], np.ones_like(out[:, :1])], axis=1)
    return np.asarray(ray / np.linalg.norm(ray, axis=1, keepdims=True) * np.exp(out[:, 2:]))


def _local_line(x: Array, y: Array, weight: Array) -> float:
    """Return the value at 0 of the weighted straight line, or the mean where there is no line."""
    total, mean = weight.sum(), (weight * x).sum() / weight.sum()
    spread = (weight * (x - mean) ** 2).sum()
    average = (weight * y).sum() / total
    if spread < 1e-12 * total:
        return float(average)
    slope = (weight * (x - mean) * y).sum() / spread
    return float(average - slope * mean)

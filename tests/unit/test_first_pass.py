"""The first pass: how the next place is predicted, which detections count, and how frames are held."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.tracking import frame_store
from vid2phys.tracking.detectors.search import ObjectDetection
from vid2phys.tracking.first_pass import Follower, smooth_path
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.types import Array

RADIUS_M = 0.1


def bearing_of(angle: float, distance: float = 2.0) -> Array:
    return distance * np.array([np.sin(angle), 0.0, np.cos(angle)])


class Detector:
    """Detects the object at `truth` [T, 3] from a guess within 0.3 rad; it is not there where that is NaN.

    Scores are 0.5 unless given. A search fails in `unsearchable` frames.
    """

    radius_m = RADIUS_M
    background = None
    unsearchable = ()

    def __init__(self, truth: Array, scores: dict[int, float] | None = None) -> None:
        self.truth, self.scores, self.index = truth, scores or {}, np.zeros(0, dtype=np.int64)
        self.searched, self.detected = list[int](), list[list[int]]()

    def at(self, index: Any) -> Detector:
        self.index = np.atleast_1d(index)
        return self

    def search(self, frame: Any, last: Any = None) -> ObjectDetection | None:
        (i,) = self.index.tolist()
        self.searched.append(i)
        place = self.truth[i]
        return (
            None
            if np.isnan(place[0]) or i in self.unsearchable
            else ObjectDetection(place, 0.8, self.scores.get(i, 0.5))
        )

    def detect(self, frames: list[Any], guesses: Array) -> Any:
        rows = self.index.tolist()
        self.detected.append(rows)
        ways = np.sum(guesses * self.truth[rows], axis=1)
        self.near = ways > np.cos(0.3) * np.linalg.norm(guesses, axis=1) * np.linalg.norm(self.truth[rows], axis=1)
        return SimpleNamespace(
            poses=SimpleNamespace(translation=self.truth[rows][:, None]), quality=np.full((len(rows), 1), 0.8)
        )

    def judge(self, frames: list[Any], seen: Any) -> tuple[Array, Array]:
        places = seen.poses.translation[:, 0]
        return self.near, np.full(len(places), 0.5)


def follower(truth: Array, scores: dict[int, float] | None = None) -> Follower:
    frames: Any = type("Numbered", (), {"__len__": lambda _: len(truth), "__getitem__": lambda _, i: i})()
    detector: Any = Detector(truth, scores)
    return Follower(frames, np.arange(len(truth)) / 30.0, detector)


def test_a_place_is_predicted_by_a_steady_direction_and_the_usual_distance() -> None:
    one = follower(np.zeros((9, 3)))
    one.translation[0], one.translation[1] = bearing_of(0.10, 2.0), bearing_of(0.14, 8.0)
    for index, angle in ((2, 0.18), (3, 0.22), (4, 0.26), (8, 0.26)):  # at most three steps ahead
        found = one._predict(index, [0, 1])
        assert np.linalg.norm(found) == pytest.approx(4.0), "geometric mean"
        assert np.arctan2(found[0], found[2]) == pytest.approx(angle, abs=2e-3)
    alone = one._predict(5, [1])
    np.testing.assert_allclose(alone, bearing_of(0.14, 8.0))


def test_a_detection_counts_in_the_middle_of_its_image_and_at_its_size() -> None:
    one, guess = follower(np.zeros((1, 3))), bearing_of(0.0)
    width = 3.0 * np.tan(np.arcsin(RADIUS_M / 2.0))  # of the image, as bearings
    for share, counts in ((0.095, True), (0.105, False), (-0.105, False)):
        assert one._centered(guess + 2.0 * share * width * np.eye(3)[0], guess) is counts
    for factor, counts in ((1.21, True), (1.23, False), (0.83, True), (0.81, False)):
        assert one._centered(factor * guess, guess) is counts


def test_leading_frames_with_the_object_count() -> None:
    truth = np.stack([bearing_of(0.0)] * 4)
    truth[2] = np.nan
    one = follower(truth)
    found, place = one._detect([0, 1, 2, 3], truth.copy())
    assert len(found) == 2
    assert place is None
    aside = np.stack([bearing_of(0.0), bearing_of(0.1)])
    found, place = follower(aside)._detect([0, 1], np.stack([bearing_of(0.0)] * 2))
    assert len(found) == 1
    np.testing.assert_array_equal(place, aside[1])  # type: ignore[arg-type]
    assert (found[0].quality, found[0].score) == (0.8, 0.5)


def test_a_detection_beside_the_middle_is_repeated_there() -> None:
    one = follower(np.stack([bearing_of(0.0), bearing_of(0.06)]))
    one.translation[0] = bearing_of(0.0)
    found = one._detect_predicted(1, [0])
    assert found is not None
    np.testing.assert_array_equal(found.translation, bearing_of(0.06))
    assert one.detector.detected == [[1], [1]]  # type: ignore[attr-defined]
    gone = follower(np.full((2, 3), np.nan))
    gone.translation[0] = bearing_of(0.0)
    assert gone._detect_predicted(1, [0]) is None
    assert gone.detector.detected == [[1], [1]], "from the prediction, and from where it was"  # type: ignore[attr-defined]


def test_the_best_of_a_few_frames_is_the_seed() -> None:
    truth = np.stack([bearing_of(0.0)] * 40)
    one = follower(truth, {13: 0.9})
    assert one._seed() == 13
    assert one.detector.searched == [0, 13, 26], "three frames in two thirds of the clip"  # type: ignore[attr-defined]
    assert np.flatnonzero(one.quality).tolist() == [13]
    assert np.isnan(one.translation[[0, 26]]).all()
    late = truth.copy()
    late[:35] = np.nan
    one = follower(late)
    assert one._seed() == 36
    assert one.detector.searched[:3] == [0, 13, 26]  # type: ignore[attr-defined]
    assert one.detector.searched[-1] == 36  # type: ignore[attr-defined]
    assert follower(np.full((40, 3), np.nan))._seed() is None


def test_an_object_is_followed_both_ways_and_several_frames_at_once() -> None:
    truth = np.stack([bearing_of(0.01 * k) for k in range(12)])
    one, shares = follower(truth, {7: 0.9}), list[float]()
    one.progress = shares.append
    found = one.run()
    np.testing.assert_array_equal(found.translation, truth)
    assert found.found.all()
    assert (found.quality == 0.8).all()
    assert one.detector.searched == [0, 3, 7]  # type: ignore[attr-defined]
    batches = one.detector.detected  # type: ignore[attr-defined]
    assert max(map(len, batches)) == 3
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(2.0 / 12.0), "the seed and the frame after it"


def test_a_lost_object_is_expected_searched_and_filled() -> None:
    """It hides in frames 4 to 8, and comes out elsewhere, where a search finds it."""
    truth = np.stack([bearing_of(0.0)] * 14)
    truth[9:] = bearing_of(0.7)
    truth[4:9] = np.nan
    one = follower(truth, {0: 0.9})
    found = one.run()
    np.testing.assert_array_equal(found.found, np.isfinite(truth[:, 0]))
    assert {4, 5, 6, 7, 8, 9} <= set(one.detector.searched)  # type: ignore[attr-defined]
    never = np.stack([bearing_of(0.0)] * 40)
    never[2:] = np.nan
    one = follower(never, {0: 0.9})
    one.run()
    after = [i for i in one.detector.searched if i > 26] if one.detector.searched else []  # type: ignore[attr-defined]
    assert len(after) < 8, "every fourth frame after the first twelve"
    assert set(range(2, 14)) <= set(one.detector.searched)  # type: ignore[attr-defined]


def test_frames_before_an_object_was_found_again_are_followed_back() -> None:
    """It jumps at frame 5, and a search finds it in frame 8 only."""
    truth = np.stack([bearing_of(0.0)] * 5 + [bearing_of(0.8 + 0.01 * k) for k in range(7)])
    one = follower(truth, {0: 0.9})
    one.detector.unsearchable = (5, 6, 7)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(one.run().translation, truth)
    assert set(one.detector.searched) == {0, 3, 7, 5, 6, 8}, "frames 6 and 7 are detected from frame 8"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("bytes_of_frames", "span", "at_once", "whole"), [(10, 10, 2, True), (9, 4, 2, False), (1, 1, 1, False)]
)
def test_frames_are_held_in_memory_as_far_as_they_fit(
    bytes_of_frames: int, span: int, at_once: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten frames of 8 x 6; memory for some of them."""
    monkeypatch.setattr(frame_store, "_IN_MEMORY_BYTES", 3 * 8 * 6 * (bytes_of_frames + 0.5))
    asked = list[list[int]]()

    class Frames:
        def __len__(self) -> int:
            return 10

        def at(self, indices: Any) -> list[str]:
            asked.append(list(indices))
            return [f"frame {i}" for i in indices]

    frames: Any = Frames()
    store = FrameStore(frames, 8, 6)
    assert [store[i] for i in (0, 3, 9, 8, 1)] == [f"frame {i}" for i in (0, 3, 9, 8, 1)]
    assert (store.at_once, store.is_whole, len(store)) == (at_once, whole, 10)
    assert asked[0] == list(range(span))
    if whole:
        assert len(asked) == 1
    if span == 4:
        assert asked == [[0, 1, 2, 3], [8, 9], [0, 1, 2, 3]]


def test_a_smoothed_path_is_straight_and_ends_a_quarter_of_a_second_from_detections() -> None:
    times = np.arange(40) / 30.0
    way = np.stack([0.2 * times, -0.1 * times, np.ones(40)], axis=1)
    path = way / np.linalg.norm(way, axis=1, keepdims=True) * np.exp(0.7 + 0.1 * times)[:, None]
    seen = path.copy()
    seen[15:33] = np.nan
    found = smooth_path(times, seen)
    near = np.array([min(abs(times[i] - times[k]) for k in range(40) if not 15 <= k < 33) <= 0.25 for i in range(40)])
    np.testing.assert_array_equal(np.isfinite(found[:, 0]), near)
    np.testing.assert_allclose(found[near], path[near], rtol=2e-3, atol=1e-6)
    wrong = path.copy()
    wrong[6] *= 1.5  # an outlier of the distance
    off = np.log(np.linalg.norm(smooth_path(times, wrong)[6]) / np.linalg.norm(path[6]))
    assert abs(off) < 0.02
    assert np.isnan(smooth_path(times, np.full((40, 3), np.nan))).all()
    np.testing.assert_allclose(smooth_path(times[:1], path[:1]), path[:1])

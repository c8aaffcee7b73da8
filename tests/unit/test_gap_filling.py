"""Gaps of a track: where a steady motion expects the body in lost frames, and which detections there count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vid2phys.engine.pnp import PoseEstimate, known_pose
from vid2phys.engine.virtual_camera import make_view
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.detectors.network import Detections
from vid2phys.tracking.gap_filling import GapConfig, _between, filled
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera

POINTS = np.random.default_rng(0).normal(0.0, 0.05, (8, 3))
CAMERA = Camera(np.array([[300.0, 0.0, 160.0], [0.0, 300.0, 120.0], [0.0, 0.0, 1.0]]), 320, 240)
RATE = np.array([1.0, -2.0, 2.0])  # rad/s
PARTS = ("rotation", "translation")
TIMES_S = np.array([0.0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.95, 1.0])
LOST = np.array([0, 2, 3, 6, 9, 10])


def poses_at(times_s: Array, rate: Array = RATE) -> Pose:
    """A body that moves and rotates steadily."""
    way = np.array([0.1, -0.05, 1.0]) + times_s[:, None] * np.array([0.3, 0.2, -0.1])
    return Pose(matrix_from_rotvec(times_s[:, None] * rate), way)


def track(rate: Array = RATE) -> Track:
    """The motion, lost at the start, in two frames, in one frame, and at the end."""
    return track_of(TIMES_S, poses_at(TIMES_S, rate), LOST)


def track_of(times_s: Array, poses: Pose, lost: Sequence[int] | NDArray[np.int64]) -> Track:
    """A track with known poses [T], lost in some frames."""
    tracked = ~np.isin(np.arange(len(times_s)), lost)
    nothing = Track.of_nothing(times_s, POINTS, Calibration(), np.zeros(1))
    rows = np.flatnonzero(tracked)
    found = known_pose(poses[rows])
    found = replace(found, inliers=np.ones((len(rows), len(POINTS)), dtype=bool))
    return replace(nothing, tracked=tracked, poses=nothing.poses.with_rows(rows, found))


def test_between_tracked_frames_a_body_moves_and_rotates_steadily() -> None:
    lost, expected = _between(track(), GapConfig(reach_s=0.2 + 1e-9))
    np.testing.assert_array_equal(lost, [2, 3, 6])
    truth = poses_at(TIMES_S[lost])
    np.testing.assert_allclose(expected.rotation, truth.rotation, atol=1e-9)
    np.testing.assert_allclose(expected.translation, truth.translation, atol=1e-12)


@pytest.mark.parametrize(("config", "frames"), [
    (GapConfig(), [2, 3, 6]),
    (GapConfig(reach_s=0.19), []),  # frames 1 and 4, and 5 and 7, are 0.2 s apart
    (GapConfig(max_rotation_rad=0.61), [2, 3, 6]),  # 0.2 s at 3 rad/s
    (GapConfig(max_rotation_rad=0.59), []),
])  # fmt: skip
def test_only_short_gaps_without_much_rotation_are_filled(config: GapConfig, frames: list[int]) -> None:
    lost, expected = _between(track(), config)
    assert lost.tolist() == frames
    assert len(expected.translation) == len(frames)


def test_times_of_the_frames_say_how_far_the_motion_went() -> None:
    """Frame 3 is half way in time between frames 1 and 5, and frame 2 a third, if frame 4 is lost, too."""
    longer = track()
    longer.tracked[4] = False
    lost, expected = _between(longer, GapConfig(reach_s=0.35))
    np.testing.assert_array_equal(lost, [2, 3, 4, 6])
    a, b = poses_at(TIMES_S[[1, 5]]).translation
    np.testing.assert_allclose(expected.translation[1], 0.5 * (a + b), atol=1e-12)
    np.testing.assert_allclose(expected.translation[0], a + (b - a) / 3.0, atol=1e-12)


class Detector:
    """Detects the body in given poses with a given number of points; `doubtful` frames are not credible."""

    calibration = Calibration()

    def __init__(self, poses: Pose, points: dict[int, int], doubtful: tuple[int, ...] = ()) -> None:
        self.poses, self.points, self.doubtful, self.batches = poses, points, doubtful, list[list[int]]()

    def at(self, indices: NDArray[np.int64]) -> Detector:
        self.batches.append(indices.tolist())
        return self

    def reinitialise(self, images: list[Any], expected: PoseEstimate) -> Detections:
        rows = self.batches[-1]
        assert images == [f"frame {i}" for i in rows]
        assert len(expected.translation) == len(rows)
        count, points = len(rows), len(POINTS)
        inliers = np.arange(points) < np.array([self.points.get(i, points) for i in rows])[:, None]
        poses = self.poses[np.array(rows)]
        other = Pose(np.swapaxes(poses.rotation, 1, 2), 2.0 * poses.translation)  # a second hypothesis of each frame
        both = Pose(*(np.stack([getattr(each, name) for each in (poses, other)], axis=1) for name in PARTS))
        estimate = PoseEstimate(
            both, np.zeros((count, 2, 6, 6)), np.ones((count, 2)), np.ones((count, 2)),
            np.stack([inliers, np.zeros_like(inliers)], axis=1),
        )  # fmt: skip
        place = np.arange(count * points * 2.0).reshape(count, points, 2) + 100.0 * rows[0]
        return Detections(
            [make_view(CAMERA, np.zeros(2), 0.1, 64)] * count, np.full(count, 0.1), np.full(count, 60.0), place,
            np.tile(np.eye(2), (count, points, 1, 1)), np.tile(np.eye(2), (count, points, 1, 1)),
            np.ones((count, points)), np.ones((count, points), dtype=bool), np.zeros((count, 4, 4)), estimate,
            np.tile([0.8, 0.1], (count, 1)),
        )  # fmt: skip

    def judge(self, images: list[Any], seen: Detections) -> tuple[NDArray[np.bool_], Array]:
        return ~np.isin(self.batches[-1], self.doubtful), seen.quality[:, 0]


class Named:
    """Frames that are their names."""

    def __getitem__(self, index: int) -> str:
        return f"frame {index}"


def filled_by(detector: Detector, **config: Any) -> Track:
    frames: Any = Named()
    detects: Any = detector
    return filled(track(), detects, frames, GapConfig(**config))


def test_detections_that_agree_with_the_motion_fill_the_gap() -> None:
    detector = Detector(poses_at(TIMES_S), {})
    found = filled_by(detector, batch=2)
    assert detector.batches == [[2, 3], [6]]
    assert np.flatnonzero(~found.tracked).tolist() == [0, 9, 10]
    np.testing.assert_allclose(found.poses.translation[[2, 3, 6]], poses_at(TIMES_S[[2, 3, 6]]).translation)
    np.testing.assert_array_equal(found.observation.bearings[3], 16.0 + 200.0 + np.arange(16.0).reshape(8, 2))
    np.testing.assert_array_equal(found.element[[2, 3, 6]], 0)
    np.testing.assert_array_equal(found.quality[[2, 3, 6]], 0.8)


@pytest.mark.parametrize(("points", "doubtful", "frames"), [
    ({2: 6, 3: 5}, (), [2, 6]),  # six points are enough
    ({}, (6,), [2, 3]),
    ({2: 1, 3: 1, 6: 1}, (), []),
])  # fmt: skip
def test_detections_of_few_points_or_of_something_else_do_not_count(
    points: dict[int, int], doubtful: tuple[int, ...], frames: list[int]
) -> None:
    found = filled_by(Detector(poses_at(TIMES_S), points, doubtful))
    assert np.flatnonzero(found.tracked & ~track().tracked).tolist() == frames


def test_a_rotation_far_from_the_expected_one_is_another_label() -> None:
    poses = poses_at(TIMES_S)
    tilt = matrix_from_rotvec(np.array([[0.0, 0.43, 0.0], [0.44, 0.0, 0.0]]))  # 25 degrees are 0.436 rad
    poses.rotation[2], poses.rotation[3] = poses.rotation[2] @ tilt[0], poses.rotation[3] @ tilt[1]
    found = filled_by(Detector(poses, {}))
    assert np.flatnonzero(found.tracked & ~track().tracked).tolist() == [2, 6]

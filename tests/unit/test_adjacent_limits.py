"""Limits of what adjacent frames say: gaps of a track that are too long, and frames that have no neighbours."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit import test_gap_filling
from tests.unit.test_gap_filling import Detector, Named
from tests.unit.test_temporal_outlier_parts import RATE, TIMES_S, X, clip, on_line
from vid2phys.engine.pnp import known_pose
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking import temporal_outliers
from vid2phys.tracking.gap_filling import GapConfig, _between, filled
from vid2phys.tracking.temporal_outliers import Candidate, Doubt, OutlierConfig, TemporalOutliers
from vid2phys.tracking.track import Track
from vid2phys.types import Array

NO_FRAMES: Any = None


def steady(times_s: Array, rate_rad_s: float) -> Pose:
    """A body that moves along x and rotates about y."""
    turn = times_s[:, None] * rate_rad_s * np.eye(3)[1]
    return Pose(matrix_from_rotvec(turn), np.array([0.0, 0.0, 2.0]) + times_s[:, None] * np.eye(3)[0])


def track_of(times_s: Array, lost: list[int], rate_rad_s: float) -> Track:
    return test_gap_filling.track_of(times_s, steady(times_s, rate_rad_s), lost)


@pytest.mark.parametrize("lost", [[0, 1], [4, 5], [0, 5]])
def test_frames_before_the_first_and_after_the_last_tracked_one_are_in_no_gap(lost: list[int]) -> None:
    """Even if the body hardly moves from the first to the last of them."""
    found, expected = _between(track_of(0.01 * np.arange(6.0), lost, 0.1), GapConfig())
    assert found.tolist() == []
    assert expected.translation.shape == (0, 3)


@pytest.mark.parametrize(("length_s", "turn_deg", "is_filled"), [
    (0.249, 99.8, True), (0.251, 99.8, False), (0.249, 100.2, False), (0.01, 99.8, True), (0.249, -99.8, True),
    (0.249, -100.2, False),
])  # fmt: skip
def test_a_gap_lasts_a_quarter_of_a_second_and_turns_by_a_hundred_degrees_at_most(
    length_s: float, turn_deg: float, is_filled: bool
) -> None:
    times = np.array([1.0, 1.0 + 0.25 * length_s, 1.0 + length_s, 1.1 + length_s])
    rate = float(np.radians(turn_deg)) / length_s
    found, expected = _between(track_of(times, [1], rate), GapConfig())
    assert found.tolist() == ([1] if is_filled else [])
    if is_filled:
        truth = steady(times[1:2], rate)
        np.testing.assert_allclose(expected.rotation, truth.rotation, atol=1e-9)
        np.testing.assert_allclose(expected.translation, truth.translation, atol=1e-12)


def test_sixteen_frames_are_detected_at_once() -> None:
    times = 0.05 * np.arange(37.0)
    lost = list(range(1, 36, 2))
    detector = Detector(steady(times, 0.5), {})
    frames: Any = Named()
    detects: Any = detector
    found = filled(track_of(times, lost, 0.5), detects, frames)
    assert detector.batches == [lost[:16], lost[16:]]
    assert found.tracked.all()
    np.testing.assert_allclose(found.poses.translation, steady(times, 0.5).translation)


@pytest.mark.parametrize(("off_deg", "agrees"), [(24.8, True), (25.2, False), (-25.2, False)])
def test_a_detection_is_rotated_by_25_degrees_from_the_expected_pose_at_most(off_deg: float, agrees: bool) -> None:
    times = 0.05 * np.arange(4.0)
    poses = steady(times, 0.5)
    poses.rotation[2] = poses.rotation[2] @ matrix_from_rotvec(np.radians(off_deg) * np.array([0.6, 0.0, 0.8]))
    frames: Any = Named()
    detects: Any = Detector(poses, {})
    found = filled(track_of(times, [1, 2], 0.5), detects, frames)
    assert found.tracked.tolist() == [True, True, agrees, True]


ALONE = Pose(np.eye(3)[None], np.array([[0.0, 0.0, 2.0]]))


def alone(also: Pose | None, given: list[Any], **config: Any) -> tuple[TemporalOutliers, list[Pose]]:
    """A clip of one frame; fits from starts and then those of ambiguous poses are given."""
    fits, starts = iter(given), list[Pose]()

    def fitted_from(pose: Pose) -> Any:
        starts.append(pose)
        return next(fits)

    def fitted_about(pose: Pose) -> Any:
        starts.append(pose)
        yield from fits

    scorer: Any = SimpleNamespace(nats=lambda pose: 50.0, fitted_from=fitted_from, fitted_about=fitted_about)
    estimate = None if also is None else known_pose(also)
    frame = TemporalOutliers(
        NO_FRAMES, np.zeros(1), lambda i, image: scorer, np.ones(1, dtype=bool), ALONE.copy(), np.array([50.0]),
        estimate, OutlierConfig(**config),
    )  # fmt: skip
    return frame, starts


def fit(nats: float, z: float) -> Any:
    return nats, SimpleNamespace(pose=Pose(np.eye(3), np.array([0.0, 0.0, z])))


def test_a_frame_without_neighbours_is_fitted_from_its_further_and_its_ambiguous_poses() -> None:
    """Its own pose was fitted already; fits that show no contour or explain ten nats less are left out."""
    image: Any = None
    further = Pose(np.eye(3)[None], np.array([[0.0, 0.0, 3.0]]))
    frame, starts = alone(further, [fit(60.0, 3.1), None, fit(40.0, 4.0), fit(40.1, 5.0)])
    doubt = frame._with_candidates(0, image, None)
    assert [start.translation[2] for start in starts] == [3.0, 2.0]
    assert [start.translation[2] for start in doubt.tried] == [2.0, 3.0]
    assert [(each.explained, each.pose.translation[2]) for each in doubt.found] == [
        (50.0, 2.0),
        (60.0, 3.1),
        (40.1, 5.0),
    ]
    assert doubt.found[0].contour is None
    assert all(each.contour is not None for each in doubt.found[1:])
    assert doubt.taken == 0


def test_a_frame_without_neighbours_and_further_poses_has_ambiguous_ones_alone() -> None:
    image: Any = None
    frame, starts = alone(None, [fit(70.0, 6.0)])
    doubt = frame._with_candidates(0, image, None)
    assert [start.translation[2] for start in starts] == [2.0]
    assert [each.pose.translation[2] for each in doubt.found] == [2.0, 6.0]
    assert frame._is_in_doubt(0)
    stricter, _ = alone(None, [fit(45.1, 6.0), fit(44.9, 7.0)], better_nats=5.0)
    assert len(stricter._with_candidates(0, image, None).found) == 2


def test_a_further_pose_of_a_lost_frame_is_no_start() -> None:
    lost = Pose(np.eye(3)[None], np.full((1, 3), np.nan))
    frame, _ = alone(lost, [])
    assert len(frame._expected(0)) == 1
    known, _ = alone(ALONE, [])
    assert len(known._expected(0)) == 2


def test_starts_are_the_same_within_stated_distances() -> None:
    """0.05 rad, 0.005 of the distance sideways, and 0.01 of it along the line of sight."""
    np.testing.assert_array_equal(OutlierConfig().same, [0.05, 0.05, 0.05, 0.005, 0.005, 0.01])
    image: Any = None
    for k in range(6):
        for share, is_new in ((0.97, False), (1.03, True), (-1.03, True)):
            further = ALONE.retract(share * OutlierConfig().same[k] * np.eye(6)[[k]])
            frame, starts = alone(further, [None] * 2)
            frame._with_candidates(0, image, None)
            assert len(starts) == 1 + is_new


def test_the_nearest_frames_on_both_sides_give_their_rotations() -> None:
    """Frame 1 has one frame before it and two after it; frames 0 and 6 have frames on one side alone."""
    for i, nearest in ((1, [0, 2]), (3, [2, 4]), (0, [1]), (6, [5])):
        found = clip()._expected(i)
        rotations = matrix_from_rotvec(TIMES_S[nearest][:, None] * RATE)
        np.testing.assert_allclose(found.rotation[len(found) - len(nearest) :], rotations, atol=1e-9)
        np.testing.assert_array_equal(found.translation[len(found) - len(nearest) :, 0], X[i])


def test_of_three_frames_on_each_side_the_nearest_ones_predict_a_pose() -> None:
    found = clip(config=OutlierConfig(beside=3))
    assert found._beside(3) == [0, 1, 2, 4, 5, 6]
    expected = [on_line(3, *pair) for pair in ((2, 4), (1, 2), (5, 4))]
    np.testing.assert_allclose(found._moving(3).translation[:, 0], expected)
    assert len(found._expected(3)) == 6
    nats = np.array([100.0, 10.0, 10.0, 50.0, 10.0, 10.0, 10.0])
    assert clip(nats=nats, config=OutlierConfig(beside=3))._explains_little(3)
    assert not clip(nats=nats)._explains_little(3)
    nats[3] = 70.0
    assert not clip(nats=nats, config=OutlierConfig(beside=3))._explains_little(3), "a loss of exactly 30 %"


@pytest.mark.parametrize(("given", "rounds"), [({}, 4), ({"rounds": 2}, 2), ({"rounds": 6}, 6)])
def test_frames_that_move_in_each_round_are_looked_at_in_four(
    given: dict[str, Any], rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()

    def take_best(outliers: TemporalOutliers, doubts: dict[int, Doubt]) -> list[int]:
        asked.append(len(doubts))
        return [2]

    monkeypatch.setattr(TemporalOutliers, "_take_best", take_best)
    monkeypatch.setattr(TemporalOutliers, "_is_in_doubt", lambda outliers, i: False)
    assert clip(config=OutlierConfig(**given)).correct() == {}
    assert asked == [0] * rounds


def test_a_state_that_a_frame_does_not_have_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frame 2 has two candidates, frame 4 three; the path names the third one in all frames."""
    found = [Candidate(Pose(np.eye(3), np.array([0.0, 0.0, 5.0 + k])), 10.0, None) for k in range(3)]
    scorer: Any = SimpleNamespace(edge_nats=lambda pose: 7.0)
    monkeypatch.setattr(temporal_outliers, "viterbi_path", lambda *_: np.full(7, 2))
    outliers = clip(scorer=lambda i, image: scorer)
    outliers.frames = [None] * 7  # type: ignore[list-item]
    doubts = {2: Doubt(found[:2]), 4: Doubt(found)}
    assert list(outliers._take_best(doubts)) == [4]
    assert (doubts[2].taken, doubts[4].taken) == (0, 2)
    assert outliers.nats.tolist() == [50.0, 50.0, 50.0, 50.0, 7.0, 50.0, 50.0]
    assert outliers.pose.translation[4, 2] == 7.0
    assert not list(outliers._take_best(doubts)), "it is there"


@pytest.mark.parametrize(("best", "own", "little"), [
    (20.0, 9.9, True), (20.0, 10.1, False), (-20.0, -30.1, True), (-20.0, -29.9, False),
    (100.0, 69.9, True), (100.0, 70.1, False), (-100.0, -130.1, True), (-100.0, -129.9, False),
])  # fmt: skip
def test_ten_nats_or_thirty_percent_less_are_little(best: float, own: float, little: bool) -> None:
    nats = np.full(7, -500.0)
    nats[2], nats[3] = best, own
    assert clip(nats=nats)._explains_little(3) is little

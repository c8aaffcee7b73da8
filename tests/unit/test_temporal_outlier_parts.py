"""Which frames are in doubt, what adjacent frames predict for them, and what a Viterbi path is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vid2phys.engine.pnp import known_pose
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking import temporal_outliers as module
from vid2phys.tracking.temporal_outliers import Candidate, Doubt, OutlierConfig, TemporalOutliers, _is_new
from vid2phys.types import Array

TIMES_S = np.array([0.0, 0.1, 0.15, 0.3, 0.35, 0.5, 0.6])
RATE = np.array([0.5, -0.3, 0.8])
X = np.array([0.0, 1.0, 3.0, 2.0, 7.0, 5.0, 11.0])
NO_FRAMES: Any = None


def clip(
    x: Array = X,
    known: NDArray[np.bool_] | None = None,
    angles: Array | None = None,
    nats: Array | None = None,
    **given: Any,
) -> TemporalOutliers:
    """Seven frames of a body at x, which rotates steadily or is at given angles [7] about z."""
    rotvec = TIMES_S[:, None] * RATE if angles is None else angles[:, None] * np.eye(3)[2]
    poses = Pose(matrix_from_rotvec(rotvec), np.stack([x, 0.0 * x, 0.0 * x + 20.0], axis=1))
    scorer = given.pop("scorer", None)
    shown = np.ones(7, dtype=bool) if known is None else known
    evidence = np.full(7, 50.0) if nats is None else nats
    return TemporalOutliers(NO_FRAMES, TIMES_S, scorer, shown, poses, evidence, **given)


def without(*lost: int) -> Any:
    return ~np.isin(np.arange(7), lost)


def on_line(i: int, first: int, second: int) -> float:
    """The place at frame i of a body that moves steadily from frame first to frame second."""
    slope = (X[second] - X[first]) / (TIMES_S[second] - TIMES_S[first])
    return float(X[first] + slope * (TIMES_S[i] - TIMES_S[first]))


@pytest.mark.parametrize(("i", "lost", "pairs"), [
    (3, (), [(2, 4), (1, 2), (5, 4)]),  # between the nearest ones, and beyond two on each side
    (3, (2,), [(1, 4), (5, 4)]),
    (3, (1, 4), [(2, 5)]),
    (3, (2, 4, 5), []),
    (0, (), [(2, 1)]),
    (1, (), [(0, 2), (3, 2)]),
    (6, (), [(4, 5)]),
    (5, (4,), [(3, 6)]),
])  # fmt: skip
def test_steady_motions_of_adjacent_frames_predict_a_pose(
    i: int, lost: tuple[int, ...], pairs: list[tuple[int, int]]
) -> None:
    found = clip(known=without(*lost))._moving(i)
    assert len(found) == len(pairs)
    np.testing.assert_allclose(found.translation[:, 0], [on_line(i, *pair) for pair in pairs], atol=1e-12)
    truth = matrix_from_rotvec(TIMES_S[i] * RATE)
    np.testing.assert_allclose(found.rotation, np.tile(truth, (len(pairs), 1, 1)), atol=1e-9)


def test_a_frame_has_its_own_pose_predicted_ones_and_rotations_of_the_nearest_frames() -> None:
    also = known_pose(Pose(np.tile(np.eye(3), (7, 1, 1)), np.full((7, 3), 99.0)))
    also.pose.translation[2] = np.nan
    found = clip(known=without(4), also=also)._expected(3)
    assert len(found) == 6
    expected_x = [X[3], on_line(3, 2, 5), on_line(3, 1, 2), X[3], X[3], 99.0]
    np.testing.assert_allclose(found.translation[:, 0], expected_x)
    rotvec = [TIMES_S[3], TIMES_S[3], TIMES_S[3], TIMES_S[2], TIMES_S[5]]
    expected = np.stack([*(matrix_from_rotvec(time_s * RATE) for time_s in rotvec), np.eye(3)])
    np.testing.assert_allclose(found.rotation, expected, atol=1e-9)
    assert len(clip(also=also)._expected(2)) == 6  # its own, three motions and two rotations, none beside


@pytest.mark.parametrize(("i", "lost", "beside"), [
    (3, (), [1, 2, 4, 5]),
    (0, (), [1, 2]),
    (1, (), [0, 2, 3]),
    (5, (4,), [3, 6]),
    (6, (), [4, 5]),
])  # fmt: skip
def test_two_frames_on_each_side_are_adjacent(i: int, lost: tuple[int, ...], beside: list[int]) -> None:
    assert clip(known=without(*lost))._beside(i) == beside


@pytest.mark.parametrize(("rad", "doubted"), [(0.19, False), (0.21, True), (-0.21, True)])
def test_a_frame_that_is_not_rotated_as_predicted_is_in_doubt(rad: float, doubted: bool) -> None:
    angles = 0.4 * TIMES_S
    angles[3] += rad
    assert clip(angles=angles)._is_in_doubt(3) == doubted
    single = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, rad])
    assert clip(angles=single, known=without(4))._is_in_doubt(6) == doubted, "beside one frame its pose counts"


def test_most_predictions_have_to_disagree() -> None:
    """Frame 3 is as the frames around it have it; frames 1 and 2, or 4 and 5 too, predict another rotation."""
    before = np.array([0.0, -0.3, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert not clip(angles=before)._is_in_doubt(3), "one of three"
    assert not clip(angles=before, known=without(5))._is_in_doubt(3), "one of two"
    both = np.array([0.0, -0.3, 0.0, 0.0, 0.0, 0.9, 0.0])
    assert clip(angles=both)._is_in_doubt(3), "two of three"


def test_a_frame_without_adjacent_ones_is_in_doubt() -> None:
    assert clip(known=without(1, 2, 4, 5))._is_in_doubt(3)


@pytest.mark.parametrize(("best", "own", "little"), [
    (100.0, 69.0, True),  # 30 % of 100 nats are missing
    (100.0, 71.0, False),
    (20.0, 9.0, True),  # 10 nats at least
    (20.0, 11.0, False),
    (-100.0, -131.0, True),
    (-100.0, -129.0, False),
])  # fmt: skip
@pytest.mark.parametrize("at", [1, 2, 4, 5])
def test_a_frame_with_much_less_evidence_than_the_best_adjacent_one_is_in_doubt(
    best: float, own: float, little: bool, at: int
) -> None:
    nats = np.full(7, -500.0)
    nats[at], nats[3] = best, own
    assert clip(nats=nats)._explains_little(3) == little
    nats[[0, 6]] = 1e4
    assert clip(nats=nats)._explains_little(3) == little, "frames further away do not count"


def test_a_start_is_new_where_one_coordinate_differs() -> None:
    start, same = Pose(np.eye(3), np.array([0.0, 0.0, 2.0])), np.array([0.05, 0.05, 0.05, 0.005, 0.005, 0.01])
    tried = [start]
    assert not _is_new(start.retract(0.99 * same), tried, same)
    assert len(tried) == 1
    for k in range(6):
        assert _is_new(start.retract(1.5 * (k + 1) * same[k] * np.eye(6)[k]), tried, same)
    assert len(tried) == 7
    assert not _is_new(tried[4], tried, same)


def test_evidence_is_the_cost_of_a_pose_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frame 0 is lost; 2 and 5 are in doubt. A pose that stays needs less evidence, and others have one state."""
    config = OutlierConfig(temperature=4.0, better_nats=10.0)
    poses = [Pose(matrix_from_rotvec(0.1 * k * np.eye(3)[0]), np.array([0.0, 0.0, 1.0 + k])) for k in range(3)]
    doubts = {
        2: Doubt(
            [Candidate(poses[0], 40.0, None), Candidate(poses[1], 60.0, None), Candidate(poses[2], -np.inf, None)]
        ),
        5: Doubt([Candidate(poses[0], 8.0, None), Candidate(poses[2], 12.0, None)], taken=1),
    }
    asked = list[Any]()

    def path(cost: Array, rotation: Array, times_s: Array) -> Any:
        asked.append((cost, rotation, times_s))
        return np.array([0, 1, 0, 0, 1, 0])

    monkeypatch.setattr(module, "viterbi_path", path)
    frames: Any = [f"frame {i}" for i in range(7)]
    scorer: Any = lambda i, frame: SimpleNamespace(edge_nats=lambda pose: 1000.0 * i + pose.translation[2])  # noqa: E731
    outliers = clip(known=without(0), scorer=scorer, config=config)
    outliers.frames = frames
    before = outliers.pose.copy()
    assert list(outliers._take_best(doubts)) == [2]  # frame 5 is there
    ((cost, rotation, times_s),) = asked
    inf = np.inf
    expected = np.tile([0.0, inf, inf], (6, 1))
    expected[1], expected[4] = [-10.0 - 2.5, -15.0, 1e6], [-2.0 - 2.5, -3.0, inf]
    np.testing.assert_allclose(cost, expected)
    np.testing.assert_array_equal(times_s, TIMES_S[1:])
    np.testing.assert_array_equal(rotation[1], [pose.rotation for pose in poses])
    np.testing.assert_array_equal(rotation[4, :2], [poses[0].rotation, poses[2].rotation])
    np.testing.assert_array_equal(rotation[0], np.tile(before.rotation[1], (3, 1, 1)))
    assert doubts[2].taken == 1
    np.testing.assert_array_equal(outliers.pose.translation[2], poses[1].translation)
    np.testing.assert_array_equal(outliers.pose.translation[5], before.translation[5])
    assert outliers.nats[2] == 2002.0
    assert outliers.nats[5] == 50.0


def test_a_path_is_asked_only_of_frames_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "viterbi_path", None)
    assert not list(clip()._take_best({}))


def test_fits_that_explain_much_less_are_no_candidates() -> None:
    """Less by ten nats is too little; a frame with adjacent ones has no ambiguous poses."""
    nats, starts = iter([39.9, 40.1, 70.0, 20.0, 55.0]), list[Pose]()

    def fitted_from(pose: Pose) -> Any:
        starts.append(pose)
        value = next(nats)
        return value, SimpleNamespace(pose=pose)

    scorer: Any = SimpleNamespace(nats=lambda pose: 50.0, fitted_from=fitted_from, fitted_about=None)
    outliers = clip(scorer=lambda i, image: scorer)
    image: Any = None
    doubt = outliers._with_candidates(3, image, None)
    assert [each.explained for each in doubt.found] == [50.0, 40.1, 70.0, 55.0]
    assert len(starts) == len(doubt.tried) == 5  # its own, three motions, one rotation: that of frame 4 is its own
    again = outliers._with_candidates(3, image, doubt)
    assert again is doubt
    assert len(starts) == 5


def test_the_first_frames_have_fewer_adjacent_ones() -> None:
    nats = np.array([50.0, 10.0, 50.0, 10.0, 10.0, 10.0, 10.0])
    assert not clip(nats=nats)._explains_little(0)
    assert clip(nats=nats)._explains_little(1)
    assert not clip(nats=nats)._explains_little(6)
    first = np.array([50.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0])
    assert clip(nats=first)._explains_little(2)
    assert not clip(nats=first)._explains_little(3)


@pytest.mark.parametrize(("rounds", "moves", "asked"), [
    (4, [[2], [2], []], [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]),  # until no frame moves
    (2, [[2], [2], []], [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4]]),
    (4, [[]], [[0, 1, 2, 3, 4, 5]]),
])  # fmt: skip
def test_frames_near_moved_ones_are_asked_again(
    rounds: int, moves: list[list[int]], asked: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frame 6 is lost; 2 and 5 are in doubt, and only 2 has another pose in the end."""
    found = list[list[int]]()
    given = iter(moves)
    contour: Any = "contour"
    pose = Pose(np.eye(3), np.ones(3))

    def take_best(outliers: TemporalOutliers, doubts: dict[int, Doubt]) -> list[int]:
        assert sorted(doubts) == [2, 5]
        moved = next(given)
        for i in moved:
            doubts[i].taken = 1
        return moved

    def with_candidates(outliers: TemporalOutliers, i: int, image: Any, doubt: Doubt | None) -> Doubt:
        assert image == f"frame {i}"
        return doubt or Doubt([Candidate(pose, 1.0, None), Candidate(pose, 2.0, contour)])

    def is_in_doubt(outliers: TemporalOutliers, i: int) -> bool:
        if i == 0:
            found.append([])
        found[-1].append(i)
        return i in (2, 5)

    for name, stand_in in (
        ("_take_best", take_best),
        ("_with_candidates", with_candidates),
        ("_is_in_doubt", is_in_doubt),
    ):
        monkeypatch.setattr(TemporalOutliers, name, stand_in)
    outliers = clip(known=without(6), config=OutlierConfig(rounds=rounds))
    frames: Any = [f"frame {i}" for i in range(7)]
    outliers.frames = frames
    assert outliers.correct() == ({2: contour} if moves[0] else {})
    assert found == asked

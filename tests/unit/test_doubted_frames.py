"""Which frames of a clip are in doubt, what the frames beside predict of them, and which starts are new."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.cues.contour import Contour
from vid2phys.tracking.temporal_outliers import DEFAULTS, Candidate, Doubt, TemporalOutliers, _is_new
from vid2phys.types import Array

TIMES_S = np.array([0.0, 0.1, 0.2, 0.4, 0.5, 0.6, 0.7])
UNUSED: Any = None


def motion(times_s: Array) -> Pose:
    """A body that moves and rotates steadily."""
    way = np.array([0.1, 0.0, 2.0]) + times_s[:, None] * np.array([0.5, -0.2, 0.1])
    return Pose(matrix_from_rotvec(times_s[:, None] * np.array([0.0, 3.0, 0.0])), way)


def clip(nats: Array | None = None, known: Array | None = None) -> TemporalOutliers:
    count = len(TIMES_S)
    seen = np.ones(count, dtype=bool) if known is None else known
    return TemporalOutliers(
        UNUSED, TIMES_S, UNUSED, seen, motion(TIMES_S), np.full(count, 50.0) if nats is None else nats
    )


def test_two_frames_to_each_side_are_beside_a_frame() -> None:
    assert clip()._beside(3) == [1, 2, 4, 5]
    assert clip()._beside(0) == [1, 2]
    assert clip()._beside(6) == [4, 5]
    assert clip(known=np.array([1, 1, 0, 1, 1, 0, 1], dtype=bool))._beside(3) == [1, 4]
    assert clip()._on_both_sides(3) == ([1, 2], [4, 5])


@pytest.mark.parametrize(("i", "predictions"), [(3, 3), (1, 2), (0, 1), (6, 1)])
def test_a_steady_motion_is_predicted_between_frames_and_beyond_them(i: int, predictions: int) -> None:
    one = clip()
    true = motion(TIMES_S)[i]
    one.pose.translation[i] += 9.0
    found = one._moving(i)
    assert len(found.translation) == predictions
    np.testing.assert_allclose(found.translation, np.tile(true.translation, (predictions, 1)), atol=1e-9)
    np.testing.assert_allclose(found.rotation, np.tile(true.rotation, (predictions, 1, 1)), atol=1e-6)
    expected = one._expected(i)
    np.testing.assert_array_equal(expected.translation[0], one.pose.translation[i])
    beside = [k for k in (i - 1, i + 1) if 0 <= k < len(TIMES_S)]
    rest = expected[np.arange(1 + predictions, 1 + predictions + len(beside))]
    np.testing.assert_array_equal(rest.rotation, one.pose.rotation[beside])
    np.testing.assert_array_equal(rest.translation, np.tile(one.pose.translation[i], (len(beside), 1)))


def test_a_frame_is_in_doubt_where_most_predictions_have_another_rotation() -> None:
    assert not any(clip()._is_in_doubt(i) for i in range(7))
    for angle, doubted in ((0.19, False), (0.21, True)):
        one = clip()
        one.pose.rotation[3] = matrix_from_rotvec(np.array([[angle, 0.0, 0.0]]))[0] @ one.pose.rotation[3]
        assert one._is_in_doubt(3) is doubted
    alone = clip(known=np.arange(7) == 3)
    assert alone._is_in_doubt(3), "no frame is beside it"
    pair = clip(known=np.isin(np.arange(7), (2, 3)))
    pair.pose.rotation[2] = pair.pose.rotation[3]
    assert not pair._is_in_doubt(3), "the single adjacent frame is the prediction"


def test_a_frame_is_in_doubt_with_clearly_less_evidence_than_the_others() -> None:
    """By three tenths of the best one beside it, and by ten nats at least."""
    for best, own, little in ((100.0, 69.0, True), (100.0, 71.0, False), (20.0, 9.0, True), (20.0, 11.0, False)):
        nats = np.full(7, 5.0)
        nats[5], nats[3] = best, own
        assert clip(nats)._explains_little(3) is little
        assert clip(nats)._is_in_doubt(3) is little
    against = np.full(7, -50.0)
    against[3] = -64.0
    assert not clip(against)._explains_little(3)
    against[3] = -66.0
    assert clip(against)._explains_little(3)
    far = np.full(7, 5.0)
    far[6] = 100.0
    assert not clip(far)._explains_little(3), "three frames away"


def test_starts_that_lead_to_the_same_fit_are_tried_once() -> None:
    same, first = np.array(DEFAULTS.same), motion(np.array([0.3]))[0]
    tried = [first]
    assert not _is_new(first.retract(0.9 * same), tried, same)
    assert len(tried) == 1
    for k in range(6):
        assert _is_new(first.retract((1.1 + 2.0 * k) * same * np.eye(6)[k]), tried, same)
        assert len(tried) == 2 + k
    assert not _is_new(first, tried, same)


@dataclass
class Scorer:
    """Every pose has `own` nats; fits [nats, offset in x] come one by one, from each start or about the pose."""

    own: float
    fits: list[tuple[float, float] | None]
    asked: list[str] = field(default_factory=list)

    def nats(self, pose: Pose) -> float:
        return self.own

    def edge_nats(self, pose: Pose) -> float:
        return 7.0

    def fitted_from(self, start: Pose) -> tuple[float, Contour] | None:
        self.asked.append("from a start")
        fit = self.fits[(len(self.asked) - 1) % len(self.fits)]
        if fit is None:
            return None
        return fit[0], Contour(Pose(start.rotation, start.translation + fit[1] * np.eye(3)[0]), np.eye(6), np.eye(6))

    def fitted_about(self, pose: Pose) -> list[tuple[float, Contour] | None]:
        self.asked.append("about the pose")
        return [(nats, Contour(pose, np.eye(6), np.eye(6))) for nats in (90.0, -90.0)]


def test_candidates_explain_a_frame_about_as_well_as_the_pose_before() -> None:
    """Ten nats less are too few; a start that leads to no fit is left out."""
    one = clip()
    one.pose.rotation[3] = matrix_from_rotvec(np.array([[0.3, 0.0, 0.0]]))[0] @ one.pose.rotation[3]
    scorer = Scorer(50.0, [(39.9, 0.1), (40.1, 0.2), None, (70.0, 0.4)])
    one.scorer = lambda i, image: scorer  # type: ignore[assignment, return-value]
    found = one._with_candidates(3, UNUSED, None)
    starts = len(scorer.asked)
    assert set(scorer.asked) == {"from a start"}
    assert starts == 4, "its own pose, the predicted one, and the rotations of those beside it"
    assert [each.explained for each in found.found] == [50.0, 40.1, 70.0]
    assert found.found[0].contour is None
    assert found.taken == 0
    np.testing.assert_allclose(found.found[2].pose.translation[0] - one.pose.translation[3, 0], 0.4)
    again = one._with_candidates(3, UNUSED, found)
    assert again is found
    assert len(scorer.asked) == starts, "no start is new"


def test_a_frame_without_adjacent_ones_is_fitted_about_its_pose() -> None:
    one = clip(known=np.arange(7) == 3)
    scorer = Scorer(50.0, [None])
    one.scorer = lambda i, image: scorer  # type: ignore[assignment, return-value]
    found = one._with_candidates(3, UNUSED, None)
    assert scorer.asked == ["about the pose"]
    assert [each.explained for each in found.found] == [50.0, 90.0]


@pytest.mark.parametrize(("explained", "moved"), [(59.9, []), (60.1, [3])])
def test_without_adjacent_frames_another_pose_needs_ten_nats_more(explained: float, moved: list[int]) -> None:
    one = clip(known=np.arange(7) == 3)
    one.frames, one.scorer = [None] * 7, lambda i, image: Scorer(0.0, [])  # type: ignore[assignment, list-item, return-value]
    other = one.pose[3].retract(np.array([0.5, 0.0, 0.0, 0.0, 0.0, 0.0]))
    doubts = {3: Doubt([Candidate(one.pose[3], 50.0, None), Candidate(other, explained, None)])}
    assert list(one._take_best(doubts)) == moved
    assert doubts[3].taken == len(moved)
    assert one.nats[3] == (7.0 if moved else 50.0)
    assert (one.pose.rotation[3] == other.rotation).all() == bool(moved)
    assert list(one._take_best(doubts)) == [], "it is there already"


def test_a_pose_that_cannot_be_drawn_is_left_for_any_other() -> None:
    one = clip()
    one.frames, one.scorer = [None] * 7, lambda i, image: Scorer(0.0, [])  # type: ignore[assignment, list-item, return-value]
    off = one.pose[2].retract(np.array([0.5, 0.0, 0.0, 0.0, 0.0, 0.0]))
    doubts = {
        2: Doubt([Candidate(one.pose[2], -np.inf, None), Candidate(off, -200.0, None)]),
        4: Doubt([Candidate(one.pose[4], -np.inf, None)]),
    }
    assert list(one._take_best(doubts)) == [2]
    assert list(one._take_best({})) == []


def test_rounds_end_when_nothing_moves_and_after_four(monkeypatch: pytest.MonkeyPatch) -> None:
    one, asked = clip(known=np.array([1, 1, 1, 1, 1, 0, 1], dtype=bool)), list[int]()
    one.frames = [None] * 7  # type: ignore[list-item]
    contour = Contour(one.pose[0], np.eye(6), np.eye(6))
    doubted, moved = {0: [0], 1: [0, 3]}, {0: [1], 1: [3]}
    rounds = list[int]()

    def take(self: TemporalOutliers, doubts: dict[int, Doubt]) -> list[int]:
        rounds.append(len(doubts))
        return moved.get(len(rounds) - 1, [])

    def suspect(self: TemporalOutliers, i: int) -> bool:
        asked.append(i)
        return i in doubted.get(len(rounds), [])

    def extend(self: TemporalOutliers, i: int, image: Any, doubt: Doubt | None) -> Doubt:
        return doubt or Doubt([Candidate(one.pose[i], 0.0, None), Candidate(one.pose[i], 0.0, contour)], taken=i // 3)

    monkeypatch.setattr(TemporalOutliers, "_is_in_doubt", suspect)
    monkeypatch.setattr(TemporalOutliers, "_with_candidates", extend)
    monkeypatch.setattr(TemporalOutliers, "_take_best", take)
    assert one.correct() == {3: contour}, "the other one kept its pose"
    assert rounds == [1, 2, 2], "the third round moves nothing"
    assert asked == [0, 1, 2, 3, 4, 6, *[0, 1, 2, 3], *[1, 2, 3, 4]], "those moved, and those beside them"
    rounds.clear()
    moved.update({k: [0] for k in range(9)})
    one.correct()
    assert len(rounds) == 4

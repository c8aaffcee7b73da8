"""Which frames of a clip are in doubt, what the frames beside predict of them, and which starts are new."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.temporal_outliers import DEFAULTS, TemporalOutliers, _is_new
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

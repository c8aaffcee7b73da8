"""Frames that were misread are put right by those beside them, and only they."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest

from tests.unit.test_ambiguous_poses import CAMERA, PRIOR, SOLID, TRUTH, photograph
from vid2phys.engine.pnp import known_pose
from vid2phys.geometry import Pose, matrix_from_rotvec, quat_from_matrix, rotvec_from_quat
from vid2phys.tracking.ambiguous_poses import PoseScorer
from vid2phys.tracking.cues.contour import Contour
from vid2phys.tracking.temporal_outliers import TemporalOutliers
from vid2phys.types import Array

COUNT, STEP = 7, np.array([0.04, 0.06, -0.02])
ROTATION = np.stack([matrix_from_rotvec(k * STEP) @ TRUTH[0] for k in range(COUNT)])
TRANSLATION = TRUTH[1] + np.arange(COUNT)[:, None] * np.array([0.01, -0.005, 0.01])
NOTHING = np.zeros((2, 2, 3), np.uint8)
WRONG = matrix_from_rotvec(np.array([0.3, -0.25, 0.0]))


def degrees_off(rotation: Array) -> Array:
    turn = rotvec_from_quat(quat_from_matrix(np.swapaxes(ROTATION, -1, -2) @ rotation))
    return np.degrees(np.linalg.norm(turn, axis=-1))


def neighbours(
    misread: list[int], images: list[np.ndarray], reading: Callable[[int, np.ndarray], PoseScorer], step_s: float
) -> TemporalOutliers:
    rotation, times = ROTATION.copy(), step_s * np.arange(COUNT)
    rotation[misread] = WRONG @ rotation[misread]
    nats: Array = np.array([reading(i, images[i]).edge_nats(Pose(rotation[i], TRANSLATION[i])) for i in range(COUNT)])
    return TemporalOutliers(images, times, reading, np.ones(COUNT, bool), Pose(rotation, TRANSLATION.copy()), nats)


def settled(misread: list[int], images: list[np.ndarray]) -> tuple[TemporalOutliers, list[int]]:
    read = ROTATION.copy()
    read[misread] = WRONG @ read[misread]

    def reading(i: int, image: np.ndarray) -> PoseScorer:
        return PoseScorer(image, CAMERA, SOLID, Pose(read[i], TRANSLATION[i]), PRIOR)

    beside = neighbours(misread, images, reading, 0.1)
    return beside, sorted(beside.correct())


def test_misread_frames_are_put_right() -> None:
    images = [photograph(*pose) for pose in zip(ROTATION, TRANSLATION, strict=True)]
    beside, changed = settled([2, 3, 6], images)
    assert changed == [2, 3, 6]
    assert degrees_off(WRONG @ ROTATION).min() > 20.0
    assert degrees_off(beside.pose.rotation).max() < 1.0
    np.testing.assert_allclose(beside.pose.translation, TRANSLATION, rtol=0.01, atol=1e-3)


def test_right_frames_and_such_as_show_nothing_stay() -> None:
    images = [photograph(*pose) for pose in zip(ROTATION, TRANSLATION, strict=True)]
    images[4] = np.full_like(images[4], 90)
    beside, changed = settled([], images)
    assert not changed
    np.testing.assert_array_equal(beside.pose.rotation, ROTATION)


def test_frames_of_a_body_that_turns_fast_and_evenly_are_not_in_doubt() -> None:
    rotation = np.stack([matrix_from_rotvec(k * np.array([0.3, 0.2, 0.0])) @ TRUTH[0] for k in range(COUNT)])

    def reading(_: int, image: np.ndarray) -> PoseScorer:
        raise AssertionError("no frame is to be looked at again")

    known, times, nats = np.ones(COUNT, bool), np.arange(COUNT) / 30.0, np.full(COUNT, 50.0)
    beside = TemporalOutliers([NOTHING] * COUNT, times, reading, known, Pose(rotation.copy(), TRANSLATION.copy()), nats)
    assert not beside.correct()
    np.testing.assert_array_equal(beside.pose.rotation, rotation)


def test_a_frame_alone_is_told_from_its_twins_whatever_else_it_may_have() -> None:
    wrong, place, image = WRONG @ ROTATION[:1], TRANSLATION[:1], photograph(ROTATION[0], TRANSLATION[0])

    def reading(_: int, image: np.ndarray) -> PoseScorer:
        return PoseScorer(image, CAMERA, SOLID, Pose(wrong[0], place[0]), PRIOR)

    nats = np.array([reading(0, image).edge_nats(Pose(wrong[0], place[0]))])
    for also in (None, known_pose(Pose(wrong, place))):
        alone = TemporalOutliers(
            [image], np.zeros(1), reading, np.ones(1, bool), Pose(wrong.copy(), place.copy()), nats.copy(), also
        )
        assert list(alone.correct()) == [0]
        turn = rotvec_from_quat(quat_from_matrix(ROTATION[0].T @ alone.pose.rotation[0]))
        assert np.degrees(np.linalg.norm(turn)) < 1.0


@dataclass(frozen=True)
class Torn:
    """A reading of a frame whose pose and its twin explain it about as well, the twin a little better."""

    truth: Array
    twin: Array
    place: Array

    def nats(self, pose: Pose) -> float:
        return self.edge_nats(pose)

    def edge_nats(self, pose: Pose) -> float:
        near = [np.einsum("ij,ij->", pose.rotation, each) for each in (self.truth, self.twin)]
        return 50.0 if near[0] > near[1] else 53.0

    def fitted_from(self, pose: Pose) -> tuple[float, Contour]:
        nats = self.nats(pose)
        return nats, Contour(Pose(self.truth if nats == 50.0 else self.twin, self.place), np.eye(6), PRIOR)


@pytest.mark.parametrize("misread", [[2], [2, 3], [1, 5]])
def test_a_twin_that_explains_as_much_is_told_by_the_frames_about_it(misread: list[int]) -> None:
    def reading(i: int, _: np.ndarray) -> PoseScorer:
        return cast(PoseScorer, Torn(ROTATION[i], WRONG @ ROTATION[i], TRANSLATION[i]))

    beside = neighbours(misread, [NOTHING] * COUNT, reading, 1.0 / 30.0)
    assert sorted(beside.correct()) == misread
    np.testing.assert_array_equal(beside.pose.rotation, ROTATION)

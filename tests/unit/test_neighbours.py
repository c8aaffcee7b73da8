"""Frames that were misread are put right by those beside them, and only they."""

from __future__ import annotations

import numpy as np

from tests.unit.test_twins import CAMERA, PRIOR, SOLID, TRUTH, photograph
from vid2phys.risp.pixels.neighbours import Neighbours
from vid2phys.risp.pixels.twins import Reading
from vid2phys.risp.tracking.pose import known_pose
from vid2phys.rotations import matrix_from_rotvec, quat_from_matrix, rotvec_from_quat
from vid2phys.types import Array

COUNT, STEP = 7, np.array([0.04, 0.06, -0.02])
ROTATION = np.stack([matrix_from_rotvec(k * STEP) @ TRUTH[0] for k in range(COUNT)])
TRANSLATION = TRUTH[1] + np.arange(COUNT)[:, None] * np.array([0.01, -0.005, 0.01])
WRONG = matrix_from_rotvec(np.array([0.3, -0.25, 0.0]))


def degrees_off(rotation: Array) -> Array:
    turn = rotvec_from_quat(quat_from_matrix(np.swapaxes(ROTATION, -1, -2) @ rotation))
    return np.degrees(np.linalg.norm(turn, axis=-1))


def settled(misread: list[int], pictures: list[np.ndarray]) -> tuple[Neighbours, list[int]]:
    rotation = ROTATION.copy()
    rotation[misread] = WRONG @ rotation[misread]
    read = known_pose(rotation.copy(), TRANSLATION)

    def reading(i: int, picture: np.ndarray) -> Reading:
        return Reading(picture, CAMERA, SOLID, read.rotation[i], read.translation[i], PRIOR)

    nats: Array = np.array([reading(i, pictures[i]).edge_nats(rotation[i], TRANSLATION[i]) for i in range(COUNT)])
    times: Array = np.linspace(0.0, 0.6, COUNT)
    known = np.ones(COUNT, bool)
    beside = Neighbours(pictures, times, reading, known, rotation, TRANSLATION.copy(), nats)
    return beside, sorted(beside.settle())


def test_misread_frames_are_put_right() -> None:
    pictures = [photograph(*pose) for pose in zip(ROTATION, TRANSLATION, strict=True)]
    beside, changed = settled([2, 3, 6], pictures)
    assert changed == [2, 3, 6]
    assert degrees_off(WRONG @ ROTATION).min() > 20.0
    assert degrees_off(beside.rotation).max() < 1.0
    np.testing.assert_allclose(beside.translation, TRANSLATION, rtol=0.01, atol=1e-3)


def test_right_frames_and_such_as_show_nothing_stay() -> None:
    pictures = [photograph(*pose) for pose in zip(ROTATION, TRANSLATION, strict=True)]
    pictures[4] = np.full_like(pictures[4], 90)
    beside, changed = settled([], pictures)
    assert not changed
    np.testing.assert_array_equal(beside.rotation, ROTATION)

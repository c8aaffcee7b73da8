"""A pose as a rigid transform: composition, inverse, points, local coordinates, batches."""

from __future__ import annotations

import numpy as np

from vid2phys.geometry import Pose, make_transform, matrix_from_rotvec

RNG = np.random.default_rng(0)
POSES = Pose(matrix_from_rotvec(RNG.normal(size=(5, 3))), RNG.uniform(1.0, 4.0, (5, 3)))
OTHER = Pose(matrix_from_rotvec(RNG.normal(size=(5, 3))), RNG.normal(size=(5, 3)))


def _matrices(pose: Pose) -> np.ndarray:
    return make_transform(pose.rotation, pose.translation)


def test_composition_and_inverse_are_those_of_matrices() -> None:
    np.testing.assert_allclose(_matrices(POSES.compose(OTHER)), _matrices(POSES) @ _matrices(OTHER), atol=1e-12)
    np.testing.assert_allclose(_matrices(POSES.inverse()), np.linalg.inv(_matrices(POSES)), atol=1e-12)
    np.testing.assert_allclose(_matrices(POSES[2].compose(POSES[2].inverse())), np.eye(4), atol=1e-12)


def test_points_are_moved_by_each_pose() -> None:
    points = RNG.normal(size=(7, 3))
    moved = POSES.apply(points)
    assert moved.shape == (5, 7, 3)
    np.testing.assert_allclose(moved[3], POSES[3].apply(points), atol=1e-12)
    np.testing.assert_allclose(moved[3, 4], POSES.rotation[3] @ points[4] + POSES.translation[3], atol=1e-12)
    np.testing.assert_allclose(POSES.inverse().apply(moved), np.broadcast_to(points, moved.shape), atol=1e-12)


def test_steps_lead_there_and_back() -> None:
    step = 1e-4 * RNG.normal(size=(5, 6))
    np.testing.assert_allclose(POSES.step_to(POSES.retract(step)), step, atol=1e-7)
    np.testing.assert_array_equal(POSES.retract(step).translation[1], POSES[1].retract(step[1]).translation)
    away = POSES[0].retract(np.array([0.0, 0.0, 0.0, 0.0, 0.0, np.log(2.0)]))
    np.testing.assert_allclose(away.translation, 2.0 * POSES.translation[0])


def test_batches_are_indexed_joined_and_written() -> None:
    joined, stacked = Pose.join([POSES[:2], POSES[2:]]), Pose.stack([POSES[k] for k in range(5)])
    for again in (joined, stacked):
        np.testing.assert_array_equal(_matrices(again), _matrices(POSES))
    assert len(joined) == 5
    joined[1] = OTHER[1]
    np.testing.assert_array_equal(joined.rotation[1], OTHER.rotation[1])
    joined.translation[0] = np.nan
    np.testing.assert_array_equal(joined.is_finite, [False, True, True, True, True])
    assert np.isfinite(POSES.translation).all(), "a joined batch has arrays of its own"

"""Readings corrected by outlines: bearings move to the truth and are said to be surer; small bodies stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.test_contour import CAMERA, MESH, ROTATION, TRANSLATION, photograph
from vid2phys.engine.pnp import PoseEstimate, known_pose
from vid2phys.engine.pose_geometry import covariance_in_modes, pose_modes, project_points
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.contour_refinement import refine_contours
from vid2phys.tracking.track import Track
from vid2phys.types import Observation

POINTS = MESH.vertices[::3]
STD = np.array([0.04, 0.04, 0.04, 2e-3, 2e-3, 0.03])
STEP = np.array([0.03, -0.04, 0.02, 2e-3, -1e-3, 0.03])


def reading(pose: Pose) -> Observation:
    """One frame whose keypoints all agree with a pose."""
    count = len(POINTS)
    return Observation(
        np.zeros(1),
        project_points(pose, POINTS)[None],
        np.broadcast_to(np.eye(2) * 1e-7, (1, count, 2, 2)).copy(),
        (pose_modes(pose, POINTS) * STD)[None],
        np.full(6, 0.2),
        np.ones((1, count), bool),
        POINTS,
    )


def track_of(seen: Observation, poses: PoseEstimate) -> Track:
    known = np.ones(1)
    return Track(seen, poses, known.astype(bool), known, np.zeros(1, np.int64), np.zeros(1))


@pytest.mark.parametrize(("depth", "changes"), [(1.0, True), (6.5, False)])
def test_readings_follow_the_outline(depth: float, changes: bool) -> None:
    truth = TRANSLATION * depth / TRANSLATION[2]
    image = photograph(ROTATION, truth, noise=3.0)
    pose = Pose(ROTATION, truth).retract(STEP)
    seen, poses = reading(pose), known_pose(pose[None])
    poses = replace(poses, covariance=np.eye(6)[None] * 1e-10)
    refined, nats = refine_contours([image], CAMERA, MESH, track_of(seen, poses), Calibration())
    better, fitted = refined.observation, refined.poses
    exact = project_points(Pose(ROTATION, truth), POINTS)
    assert bool(nats[0] > 0.0) == changes
    np.testing.assert_array_equal(better.bearings, seen.bearings, "keypoints stay as detected")
    if not changes:
        assert not better.measured.any()
        np.testing.assert_array_equal(fitted.translation, poses.translation)
        return
    assert better.configuration is not None
    after = np.abs(project_points(better.configuration.pose[0], POINTS) - exact).max()
    assert after < 0.1 * np.abs(seen.bearings[0] - exact).max()
    assert np.diag(better.configuration.shared_basis[0] / STD).max() < 0.5, "and are surer"
    assert not better.used.any()
    assert better.seen.all()
    assert abs(fitted.translation[0, 2] / truth[2] - 1.0) < 0.005


def test_what_outlines_state_is_scaled_by_the_calibration() -> None:
    pose = Pose(ROTATION, TRANSLATION).retract(STEP)
    seen, poses = reading(pose), known_pose(pose[None])
    poses = replace(poses, covariance=np.eye(6)[None] * 1e-10)
    image, twice = photograph(ROTATION, TRANSLATION, noise=3.0), (2.0,) * 6
    once = Calibration(contour_scale=(1.0,) * 6, contour_correlation_s=(0.3, 0.1, 0.3, 0.1, 0.3, 0.1))
    single, double = (
        refine_contours([image], CAMERA, MESH, track_of(seen, poses), each)[0].observation.configuration
        for each in (once, replace(once, contour_scale=twice))
    )
    assert single is not None
    assert double is not None
    np.testing.assert_allclose(double.shared_basis, 2.0 * single.shared_basis)
    np.testing.assert_array_equal(double.pose.translation, single.pose.translation)
    np.testing.assert_allclose(single.correlation_time_s, [0.3, 0.2, 0.3, 0.2, 0.3, 0.2], err_msg="the longer of both")


def test_covariance_in_modes() -> None:
    rng = np.random.default_rng(0)
    steps = rng.multivariate_normal(np.zeros(6), np.diag((1e-4 * np.arange(1, 7)) ** 2), 4000)
    mixed = steps @ rng.normal(size=(6, 6)).T  # rotation, then translation
    t = np.array([0.3, -0.2, 1.5])
    growth = mixed[:, 5] / t[2]
    sideways = (mixed[:, 3:5] - growth[:, None] * t[:2]) / np.linalg.norm(t)
    expected = np.cov(np.concatenate([mixed[:, :3], sideways, growth[:, None]], axis=1).T)
    np.testing.assert_allclose(covariance_in_modes(np.cov(mixed.T), t), expected, rtol=1e-6, atol=1e-12)
    moved = Pose(matrix_from_rotvec(np.zeros(3)), t).retract(np.array([0, 0, 0, 1e-6, 2e-6, 3e-6]))
    np.testing.assert_allclose(moved.rotation, np.eye(3))
    np.testing.assert_allclose((moved.translation - t)[2], 3e-6 * t[2], rtol=1e-5)

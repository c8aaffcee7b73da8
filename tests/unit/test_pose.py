"""PnP with outliers, flips and covariances."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.engine import pnp
from vid2phys.engine.pnp import PoseEstimate, solve_poses
from vid2phys.engine.pose_geometry import pose_modes, project_points
from vid2phys.geometry import Pose, matrix_from_quat, matrix_from_rotvec, quat_normalize
from vid2phys.types import Array

POINTS = np.random.default_rng(5).normal(size=(12, 3)) * np.array([0.04, 0.04, 0.012])  # flat, as a quadrotor is
SIGMA = 5e-4


def _scene(rng: np.random.Generator, n: int, sigma: float = SIGMA) -> tuple[Array, Array, Array, Array]:
    rotation = matrix_from_quat(quat_normalize(rng.normal(size=(n, 4))))
    translation = np.stack([rng.uniform(-0.5, 0.5, n), rng.uniform(-0.3, 0.3, n), rng.uniform(0.8, 3.0, n)], axis=-1)
    bearings = project_points(Pose(rotation, translation), POINTS)
    scale = sigma / translation[:, 2]  # an error of the same size in view pixels at every distance
    bearings = bearings + rng.normal(size=bearings.shape) * scale[:, None, None]
    covariance = np.broadcast_to(np.eye(2) * scale[:, None, None, None] ** 2, (n, len(POINTS), 2, 2))
    return rotation, translation, bearings, covariance


def _angle(a: Array, b: Array) -> Array:
    trace = np.einsum("...ij,...ij->...", a, b)
    return np.degrees(np.arccos(np.clip(0.5 * (trace - 1.0), -1.0, 1.0)))


def test_every_orientation_is_found() -> None:
    rng = np.random.default_rng(0)
    rotation, translation, bearings, covariance = _scene(rng, 200)
    poses = solve_poses(bearings, covariance, POINTS)[:, 0]
    assert (_angle(poses.rotation, rotation) < 15.0).mean() > 0.98
    depth = np.abs(poses.translation[:, 2] / translation[:, 2] - 1.0)
    assert np.median(depth) < 0.02


def test_noise_free_points_give_the_exact_pose() -> None:
    rotation, translation, bearings, covariance = _scene(np.random.default_rng(1), 50, 1e-4)
    bearings = project_points(Pose(rotation, translation), POINTS)
    poses = solve_poses(bearings, covariance, POINTS)[:, 0]
    np.testing.assert_allclose(poses.rotation, rotation, atol=1e-6)
    np.testing.assert_allclose(poses.translation, translation, atol=1e-6)


def test_covariance_is_that_of_the_errors() -> None:
    rng = np.random.default_rng(2)
    rotation, translation, _, covariance = _scene(rng, 1)
    repeat = 400
    clean = np.repeat(project_points(Pose(rotation, translation), POINTS), repeat, axis=0)
    noisy = clean + rng.normal(size=clean.shape) * np.sqrt(covariance[0, 0, 0, 0])
    covariance = np.repeat(covariance, repeat, axis=0)
    start = PoseEstimate(
        Pose(rotation, translation), np.eye(6)[None], np.zeros(1), np.zeros(1), np.ones((1, 12), dtype=bool)
    )
    start = start[np.zeros(repeat, dtype=int)]
    poses = solve_poses(noisy, covariance, POINTS, initial=start)[:, 0]
    delta = poses.rotation @ rotation[0].T
    rotvec = 0.5 * np.stack(
        [delta[:, 2, 1] - delta[:, 1, 2], delta[:, 0, 2] - delta[:, 2, 0], delta[:, 1, 0] - delta[:, 0, 1]], -1
    )
    error = np.concatenate([rotvec, poses.translation - translation[0]], axis=-1)
    squared = np.einsum("ni,nij,nj->n", error, np.linalg.inv(poses.covariance), error)
    assert 5.0 < np.median(squared) < 6.0  # the median of chi2 with 6 degrees of freedom is 5.35
    assert 0.9 < (poses.chi2 / (2.0 * poses.inliers.sum(axis=-1) - 6.0)).mean() < 1.1


def test_outliers_are_dropped() -> None:
    rng = np.random.default_rng(3)
    rotation, _, bearings, covariance = _scene(rng, 60)
    clean = bearings.copy()
    bearings[:, [2, 7, 9]] += rng.normal(size=(60, 3, 2)) * 0.02
    poses = solve_poses(bearings, covariance, POINTS)[:, 0]
    reference = solve_poses(clean, covariance, POINTS)[:, 0]
    assert (_angle(poses.rotation, rotation) < 15.0).mean() > 0.95
    assert np.median(_angle(poses.rotation, reference.rotation)) < 5.0
    far = np.linalg.norm(bearings - clean, axis=-1) > 8.0 * np.sqrt(covariance[..., 0, 0])
    good = _angle(poses.rotation, rotation) < 15.0
    assert (~poses.inliers & far)[good].sum() / far[good].sum() > 0.98
    assert poses.inliers[good][:, [0, 1, 3, 4, 5, 6, 8, 10, 11]].mean() > 0.97


def test_flat_body_gives_both_flips() -> None:
    flat = POINTS * np.array([1.0, 1.0, 0.0])
    rotation = matrix_from_rotvec(np.array([0.6, 0.2, 0.1]))
    translation = np.array([0.1, 0.05, 2.5])
    bearings = project_points(Pose(rotation, translation), flat)
    covariance = np.broadcast_to(np.eye(2) * 2e-4**2, (12, 2, 2))
    poses = solve_poses(bearings[None], covariance[None], flat, hypotheses=2)[0]
    assert np.isfinite(poses.cost).all()
    assert np.min(_angle(poses.rotation, rotation)) < 0.1
    assert _angle(poses.rotation[0], poses.rotation[1]) > 20.0


def test_too_few_points_is_no_pose() -> None:
    _, _, bearings, covariance = _scene(np.random.default_rng(4), 1)
    visible = np.zeros(12, dtype=bool)
    visible[:3] = True
    assert np.isinf(solve_poses(bearings, covariance, POINTS, visible=visible[None])[0, 0].cost)


def test_unseen_points_do_not_count() -> None:
    rotation, _, bearings, covariance = _scene(np.random.default_rng(6), 1)
    visible = np.ones(12, dtype=bool)
    visible[[1, 4]] = False
    bearings[0, [1, 4]] = np.nan
    pose = solve_poses(bearings, covariance, POINTS, visible=visible[None])[0, 0]
    assert _angle(pose.rotation, rotation[0]) < 15.0
    assert not pose.inliers[[1, 4]].any()


@pytest.mark.parametrize("mode", range(6))
def test_modes_are_derivatives(mode: int) -> None:
    rotation, translation, _, _ = _scene(np.random.default_rng(7), 1)
    step = 1e-6
    moved = []
    for sign in (1.0, -1.0):
        turn, shift = np.zeros(3), translation[0].copy()
        if mode < 3:
            turn[mode] = sign * step
        elif mode < 5:
            shift[mode - 3] += sign * step * np.linalg.norm(translation[0])
        else:
            shift *= np.exp(sign * step)
        moved.append(project_points(Pose(matrix_from_rotvec(turn) @ rotation[0], shift), POINTS))
    numeric = (moved[0] - moved[1]) / (2.0 * step)
    np.testing.assert_allclose(pose_modes(Pose(rotation[0], translation[0]), POINTS)[..., mode], numeric, atol=1e-6)


def test_frames_are_fitted_some_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which frames are fitted together changes nothing: memory does not grow with the length of a clip."""
    _, _, bearings, covariance = _scene(np.random.default_rng(6), 11)
    whole = solve_poses(bearings, covariance, POINTS, hypotheses=2)
    monkeypatch.setattr(pnp, "_AT_ONCE", 4)
    parts = solve_poses(bearings, covariance, POINTS, hypotheses=2)
    assert parts.inliers.shape == whole.inliers.shape == (11, 2, len(POINTS))
    np.testing.assert_allclose(parts.rotation, whole.rotation, atol=1e-9)
    np.testing.assert_allclose(parts.cost, whole.cost, atol=1e-9)

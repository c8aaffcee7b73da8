"""How alignment to pixels joins what a tracker says: robust fits, products of densities, frames between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vid2phys.engine.pose_geometry import pose_modes, project_points
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.measured import error_basis, shared_covariance, shared_std, with_poses
from vid2phys.tracking.photometric_refinement import _between, _joined, _tracked
from vid2phys.types import Observation

POINTS = np.random.default_rng(0).normal(0.0, 0.06, (9, 3))
STD = np.array([0.02, 0.02, 0.02, 1e-3, 1e-3, 0.03])


def poses(count: int) -> Pose:
    way = np.array([0.1, -0.05, 1.2]) + 0.01 * np.arange(count)[:, None]
    return Pose(matrix_from_rotvec(0.1 * np.arange(count)[:, None] * np.array([1.0, -0.5, 0.3])), way)


def seen_at(pose: Pose, noise: float, step_s: float = 1.0 / 30.0) -> Observation:
    """Keypoints of poses with errors; one is hidden and one is gross."""
    rng, count = np.random.default_rng(1), len(pose)
    bearings = project_points(pose, POINTS) + noise * rng.normal(size=(count, 9, 2))
    bearings[0, 3] += 40.0 * noise
    root = noise * (np.eye(2) + 0.3 * np.tril(rng.normal(size=(count, 9, 2, 2))))
    visible = np.ones((count, 9), bool)
    visible[1, 2] = False
    bearings[1, 2] = 5.0
    basis = pose_modes(pose, POINTS) * STD
    covariance = root @ np.swapaxes(root, -1, -2)
    return Observation(np.arange(count) * step_s, bearings, covariance, basis, np.full(6, 0.2), visible, POINTS)


def test_keypoints_state_a_step_by_one_robust_fit_with_a_far_prior() -> None:
    pose, frames = poses(4), np.arange(4)
    start = pose.retract(np.array([0.01, -0.01, 0.02, 1e-3, -1e-3, 0.01]))
    seen = seen_at(pose, 1e-4)
    step, own, shared = _tracked(seen, frames, start)
    np.testing.assert_allclose(shared, np.maximum(shared_std(seen, frames, start), 1e-4))
    modes = pose_modes(start, POINTS)
    for n in range(4):
        rows, right = [], []
        for k in np.flatnonzero(seen.visible[n]):
            factor = np.linalg.inv(np.linalg.cholesky(seen.covariance[n, k]))
            off = factor @ (seen.bearings[n, k] - project_points(start, POINTS)[n, k])
            root = np.sqrt(6.0 / (5.0 + off @ off))
            rows.append(root * factor @ modes[n, k])
            right.append(root * off)
        rows.append(np.diag(1.0 / (20.0 * shared[n])))
        right.append(np.zeros(6))
        design = np.concatenate(rows)
        np.testing.assert_allclose(step[n], np.linalg.lstsq(design, np.concatenate(right), rcond=None)[0], rtol=1e-6)
        np.testing.assert_allclose(own[n], np.linalg.inv(design.T @ design), rtol=1e-5)
    measured = with_poses(seen, np.array([2]), pose[[2]], 0.01 * np.eye(6)[None], np.ones(6), "texture")
    part = measured.configuration
    assert part is not None
    step, own, _ = _tracked(measured, frames, start)
    np.testing.assert_allclose(step[2], start[2].step_to(pose[2]))
    np.testing.assert_array_equal(own[2], part.covariance[2])


def test_tracker_and_pixels_are_joined_as_normal_distributions() -> None:
    rng = np.random.default_rng(2)
    step, aligned, shared = rng.normal(size=(3, 6)), rng.normal(size=(3, 6)), rng.uniform(0.5, 2.0, (3, 6))
    own, covariance = (np.einsum("nij,nkj->nik", root, root) + np.eye(6) for root in rng.normal(size=(2, 3, 6, 6)))
    shift, std = _joined(step, own, shared, aligned, covariance)
    for n in range(3):
        first, second = np.linalg.inv(own[n] + np.diag(shared[n] ** 2)), np.linalg.inv(covariance[n])
        both = np.linalg.inv(first + second)
        np.testing.assert_allclose(shift[n], both @ (first @ step[n] + second @ aligned[n]) - step[n])
        np.testing.assert_allclose(std[n], np.sqrt(np.diag(both)))


@pytest.mark.parametrize("tau", [0.05, 0.3])
def test_frames_between_aligned_ones_have_the_mean_of_a_markov_process(tau: float) -> None:
    """Its mean and variance at a time, with its values at two others known, by the normal distribution of all three."""
    seen: Any = seen_at(poses(9), 1e-4)
    seen.process_time_s[:] = tau
    frames, at = np.arange(9), np.array([1, 4, 7])
    rng = np.random.default_rng(3)
    shift, std, shared = rng.normal(size=(3, 6)), rng.uniform(0.1, 0.3, (3, 6)), np.full((9, 6), 0.7)
    found, spread = _between(seen, (frames, at), shared, shift, std)
    np.testing.assert_allclose(found[at], shift, atol=1e-9)
    np.testing.assert_allclose(spread[at], std, atol=1e-9)
    for i, pair in ((0, (0, 1)), (2, (0, 1)), (3, (0, 1)), (5, (1, 2)), (8, (1, 2))):
        times = np.array([i, *at[list(pair)]]) / 30.0
        whole = np.exp(-np.abs(times[:, None] - times) / tau)
        weights = np.linalg.solve(whole[1:, 1:], whole[1:, 0])
        np.testing.assert_allclose(found[i], weights @ shift[list(pair)], rtol=1e-6)
        left = 1.0 - weights @ whole[1:, 0]
        expected = left * 0.7**2 + (weights @ std[list(pair)]) ** 2
        np.testing.assert_allclose(spread[i], np.sqrt(expected), rtol=1e-6)


def test_errors_that_move_together_keep_their_covariance() -> None:
    """A pose that pivots about its front errs in rotation and place at once; the root of it changes smoothly."""
    covariance = np.diag(STD**2)
    covariance[0, 3] = covariance[3, 0] = 0.99 * STD[0] * STD[3]
    basis = error_basis(covariance)
    np.testing.assert_allclose(basis @ basis.T, covariance, rtol=1e-9)
    assert (np.diag(basis) > 0.7 * STD).all()
    nudged = covariance.copy()
    nudged[0, 3] = nudged[3, 0] = 0.98 * STD[0] * STD[3]
    assert np.abs((error_basis(nudged) - basis) / STD[:, None]).max() < 0.05
    larger = error_basis(covariance, 2.0 * STD)
    np.testing.assert_allclose(larger @ larger.T, 4.0 * covariance, rtol=1e-9)


def test_measured_poses_state_the_covariance_of_their_basis() -> None:
    pose, frames = poses(4), np.arange(4)
    seen, root = seen_at(pose, 1e-4), np.random.default_rng(5).normal(size=(1, 6, 6))
    measured = with_poses(seen, np.array([1]), pose[[1]], root, np.ones(6), "texture")
    shared = shared_covariance(measured, frames, pose)
    np.testing.assert_allclose(shared[1], root[0] @ root[0].T)
    np.testing.assert_allclose(shared[2], np.diag(STD**2), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(shared_std(measured, frames, pose)[1], np.sqrt(np.diag(root[0] @ root[0].T)))

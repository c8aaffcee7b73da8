"""Poses of single frames beside least squares of their keypoints, and the covariance of a clip entry by entry."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.test_smoothing_parts import problem_of
from vid2phys.solvers import measurements
from vid2phys.solvers.frame_poses import FramePoses
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array


@pytest.fixture(scope="module")
def given() -> tuple[Problem, Array]:
    return problem_of(True)


def test_a_pose_is_the_least_squares_of_the_keypoints_of_its_frame(given: tuple[Problem, Array]) -> None:
    problem, states = given
    aside = np.zeros((len(states), 12))
    aside[:, :6] = [0.02, -0.01, 0.03, 0.05, -0.04, 0.02]
    found = FramePoses.of(problem, problem.system.retract(states, aside))
    errors = measurements.Errors.of(problem.observation)
    off, by_state, _ = measurements.linear_residuals(problem, problem.parameters, found.states)
    for i in range(len(states)):
        used = errors.used[i]
        root = np.linalg.inv(np.linalg.cholesky(errors.covariance[i][np.ix_(used, used)]))
        design, right = root @ by_state[i, used, :6], root @ off[i, used]
        step = np.linalg.lstsq(design, right, rcond=None)[0]
        spread = np.linalg.inv(design.T @ design + np.diag([1e-6] * 3 + [np.pi**-2] * 3))
        assert np.abs(step / np.sqrt(np.diag(spread))).max() < 0.02, "nothing is left to gain"
        np.testing.assert_allclose(found.covariance[i], spread, rtol=1e-3, atol=1e-3 * np.abs(spread).max())
        basis = spread @ design.T @ (root @ errors.basis[i, used])
        np.testing.assert_allclose(found.basis[i], basis, atol=2e-3 * np.abs(basis).max())
    np.testing.assert_array_equal(found.rows, np.arange(len(states)))
    both = found.covariance + found.basis @ np.swapaxes(found.basis, 1, 2)
    np.testing.assert_allclose(found.precision @ both, np.tile(np.eye(6), (len(states), 1, 1)), atol=1e-6)


def test_a_rotation_that_does_not_show_is_known_to_half_a_rotation(given: tuple[Problem, Array]) -> None:
    problem, states = given
    axis = np.array([[0.6, 0.0, 0.8]])
    shown, hidden = FramePoses.of(problem, states), FramePoses.of(problem, states, axis)
    added = np.zeros((6, 6))
    added[3:, 3:] = np.pi**2 * np.outer(axis[0], axis[0])
    np.testing.assert_allclose(hidden.covariance - shown.covariance, np.tile(added, (len(states), 1, 1)), atol=1e-9)
    np.testing.assert_array_equal(hidden.basis, shown.basis)


def poses() -> FramePoses:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 6, 6))
    states = np.zeros((4, 13))
    states[:, :3] = np.array([0.0, 0.1, 0.2, 0.35])[:, None] * [1.0, 2.0, -1.0]
    states[:, 3] = 1.0
    clock = np.array([0.0, 0.2, 0.3, 0.7])
    covariance, times_s = root @ np.swapaxes(root, 1, 2), np.array([0.5, 0.0])
    return FramePoses(np.array([0, 2, 3, 7]), states, covariance, rng.normal(size=(4, 6, 2)), times_s, clock)


def test_errors_of_a_clip_last_for_the_time_of_their_process() -> None:
    given, weights = poses(), np.array([1.0, 0.5, 2.0, 1.0])
    found = given.covariance_of_clip(weights)
    for f in range(4):
        for g in range(4):
            apart = abs(given.clock_s[f] - given.clock_s[g])
            decay = np.array([np.exp(-apart / 0.5), 1.0 if f == g else 0.0])
            block = (given.basis[f] * decay) @ given.basis[g].T
            if f == g:
                block = block + given.covariance[f] / weights[f]
            np.testing.assert_allclose(found[6 * f : 6 * f + 6, 6 * g : 6 * g + 6], block, atol=1e-12)


def test_velocities_are_differences_of_the_poses_on_both_sides(given: tuple[Problem, Array]) -> None:
    """Frames without a pose get the state of the frame before."""
    found = poses().moving(given[0].system, 0.1 * np.arange(8))
    rates = np.array([0.2 / 0.3, 0.2 / 0.3, 0.25 / 0.5, 0.25 / 0.5])
    np.testing.assert_allclose(found[[0, 2, 3, 7], 7:10], rates[:, None] * [1.0, 2.0, -1.0])
    np.testing.assert_allclose(found[[1, 4, 6]], found[[0, 3, 3]])
    np.testing.assert_allclose(found[[0, 2, 3, 7], :3], poses().states[:, :3])

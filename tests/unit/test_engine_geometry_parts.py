"""Sets of rotations, poses in images, names of coordinates and lines across contours, beside closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vid2phys.engine import layout
from vid2phys.engine.contour_lines import ContourLines
from vid2phys.engine.points import manifold_gradient, world_points
from vid2phys.engine.pose_geometry import (
    covariance_in_modes,
    diameter_px,
    distinct_rotations,
    pose_modes,
    project_points,
    rotation_grid,
)
from vid2phys.engine.systems import get
from vid2phys.engine.systems._planar import turned_about_y, turning_velocity
from vid2phys.engine.systems._rigid import state_names, suffixes, tangent_names
from vid2phys.geometry import Pose, look_at, matrix_from_rotvec

POINTS = 0.1 * np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0.5, 0.3]])


def pose() -> Pose:
    return Pose(matrix_from_rotvec(np.array([[0.4, -0.3, 0.2]])), np.array([[0.2, -0.1, 1.5]]))


def test_rotations_of_a_grid_are_spread_evenly() -> None:
    """Their mean outer product is that of all rotations, and none is far from its nearest one."""
    grid = rotation_grid(500)
    assert grid.shape == (500, 3, 3)
    np.testing.assert_allclose(grid @ np.swapaxes(grid, 1, 2), np.tile(np.eye(3), (500, 1, 1)), atol=1e-9)
    np.testing.assert_allclose(grid.mean(axis=0), 0.0, atol=0.02)
    moments = np.einsum("nij,nkl->ijkl", grid, grid) / 500.0
    np.testing.assert_allclose(moments, np.einsum("ik,jl->ijkl", np.eye(3), np.eye(3)) / 3.0, atol=0.02)
    traces = np.einsum("nij,mij->nm", grid, grid) - 4.0 * np.eye(500)
    nearest = np.degrees(np.arccos(np.clip(0.5 * (traces.max(axis=1) - 1.0), -1.0, 1.0)))
    assert nearest.min() > 10.0
    assert nearest.max() < 40.0


def test_modes_of_a_pose_are_derivatives_of_bearings() -> None:
    one, size = pose(), 1e-6
    modes = pose_modes(one, POINTS)
    for column, step in enumerate(size * np.eye(6)):
        ahead, back = (project_points(one.retract(sign * step[None]), POINTS) for sign in (1.0, -1.0))
        np.testing.assert_allclose(modes[..., column], (ahead - back) / (2.0 * size), atol=1e-6)


def test_covariances_are_carried_to_the_modes() -> None:
    """A small change of a rotation and a translation is the same step in modes."""
    one, rng = pose(), np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    found = covariance_in_modes((root @ root.T)[None], one.translation)
    columns = []
    for step in 1e-6 * np.eye(6):
        moved = Pose(matrix_from_rotvec(step[:3]) @ one.rotation, one.translation + step[3:])
        columns.append(one.step_to(moved)[0] / 1e-6)
    to_modes = np.stack(columns, axis=1)
    np.testing.assert_allclose(found[0], to_modes @ root @ root.T @ to_modes.T, atol=1e-4)


def test_a_body_is_as_wide_as_at_its_usual_distance() -> None:
    places = np.array([[0.0, 0.0, 2.0], [3.0, 0.0, 4.0], [0.0, 0.0, 50.0]])
    assert diameter_px(500.0, 0.1, places) == pytest.approx(2.0 * 500.0 * 0.1 / 5.0)


def test_the_cheapest_rotations_that_are_apart_are_chosen() -> None:
    angles = np.array([[0.0, 0.1, 1.0, 1.05, 2.0], [0.0, 0.1, 0.2, 0.3, 0.4]])
    rotations = matrix_from_rotvec(angles[..., None] * np.array([0.0, 0.0, 1.0]))
    cost = np.array([[5.0, 4.0, 2.0, 1.0, np.nan], [1.0, 2.0, 3.0, 4.0, 5.0]])
    index, repeats = distinct_rotations(rotations, cost, 3, 0.5)
    np.testing.assert_array_equal(index, [[3, 1, 3], [0, 0, 0]])
    np.testing.assert_array_equal(repeats, [[False, False, True], [False, True, True]])


def test_names_tell_rates_and_angles() -> None:
    names = ("position_x_m", "rotation_x_rad", "velocity_x_m_s", "angular_velocity_x_rad_s", "elbow_rad", "elbow_rad_s")
    np.testing.assert_array_equal(layout.rates(names), [2, 3, -1, -1, 5, -1])
    of_vertices = ("position_x_m of vertex 0", "position_x_m of vertex 1", "velocity_x_m_s of vertex 1", "density")
    np.testing.assert_array_equal(layout.rates(of_vertices), [-1, 2, -1, -1])
    np.testing.assert_array_equal(layout.rates(get("pendulum").tangent_names), [1, -1])
    np.testing.assert_array_equal(layout.angles(names), [1, 4])
    np.testing.assert_array_equal(layout.turning(names), [1, 3, 4, 5])
    assert layout.quaternions(state_names(1)) == [[3, 4, 5, 6]]
    assert layout.quaternions(state_names(2)) == [[3, 4, 5, 6], [16, 17, 18, 19]]


def test_several_bodies_are_numbered_before_their_units() -> None:
    assert state_names(1)[:4] == ("position_x_m", "position_y_m", "position_z_m", "orientation_quat_w")
    assert len(state_names(2)) == 26
    assert len(tangent_names(2)) == 24
    assert state_names(2)[13] == "position_x_1_m"
    assert state_names(2)[3] == "orientation_quat_w_0"
    assert tangent_names(2)[3] == "rotation_x_0_rad"
    assert suffixes(1) == ("",)
    assert suffixes(2) == ("_0", "_1")


def test_links_turn_about_y() -> None:
    rng = np.random.default_rng(1)
    angles, points = rng.normal(size=4), rng.normal(size=(3, 3))
    found = turned_about_y(angles, points)
    expected = np.stack([points @ matrix_from_rotvec(np.array([0.0, angle, 0.0])).T for angle in angles])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(turning_velocity(points), np.cross([0.0, 1.0, 0.0], points), atol=1e-12)


@pytest.mark.parametrize("name", ["pendulum", "quadrotor"])
def test_gradients_of_points_are_along_the_manifold(name: str) -> None:
    """Of a system with and without operations of PyTorch."""
    system, rng = get(name), np.random.default_rng(2)
    states = system.sample_state(rng, 3)
    weights = torch.from_numpy(rng.normal(size=(3, len(POINTS), 3)))
    tensor = torch.from_numpy(states).requires_grad_()
    (gradient,) = torch.autograd.grad((weights * world_points(system, tensor, POINTS)).sum(), tensor)
    along = rng.normal(size=(3, len(system.tangent_names)))
    ends = [
        (weights.numpy() * system.keypoints(system.retract(states, s * 1e-6 * along), POINTS)).sum() for s in (1, -1)
    ]
    found = (manifold_gradient(system, states, gradient.numpy()) * along).sum()
    assert found == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5)


def test_lines_measure_how_far_a_contour_is_outside_of_its_edge() -> None:
    """One point in the middle of a triangle, in the second of two frames, 2 px outside of an edge known to 0.5 px."""
    camera = look_at(np.array([0.0, -2.0, 0.0]), np.zeros(3))
    to_camera = np.linalg.inv(camera)
    positions = np.zeros((1, 2, 3, 3))
    positions[0, 1] = np.array([[0.1, 0.0, 0.0], [0.2, 0.1, 0.1], [0.0, 0.2, 0.3]])
    weights = np.array([[0.2, 0.3, 0.5]])
    point = np.append(weights[0] @ positions[0, 1], 1.0)
    at = (to_camera @ point)[:3]
    bearing, normal = at[:2] / at[2], np.array([0.6, 0.8])
    along = (500.0 * normal)[None]
    lines = ContourLines(
        np.array([1]),
        np.array([[0, 1, 2]]),
        weights,
        along,
        along @ bearing - 2.0,
        np.array([0.5]),
        normal[None],
        to_camera,
    )
    np.testing.assert_allclose(lines.residuals(positions), [[4.0]], atol=1e-9)
    both = np.concatenate([positions, positions])
    assert lines.residuals(both).shape == (2, 1)

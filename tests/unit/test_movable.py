"""Rigid, articulated and modal bodies satisfy one contract: vertices, Jacobian, retraction, limits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.test_articulated_contour import body_and_camera
from vid2phys.engine.movable.movable import Movable
from vid2phys.engine.movable.rigid import RigidBody
from vid2phys.geometry import Pose, make_transform, matrix_from_rotvec
from vid2phys.types import Array


def movable(name: str) -> tuple[Movable, Array]:
    """A body and a configuration of it."""
    body, _ = body_and_camera("hand" if name == "rigid" else name)
    if name == "rigid":
        turn = matrix_from_rotvec(np.array([0.3, -0.5, 0.8]))
        return RigidBody(body.mesh), make_transform(turn, np.array([0.1, -0.05, 0.9]))
    return body, body.sample(np.random.default_rng(1))


@pytest.mark.parametrize("name", ["rigid", "hand", "rod"])
def test_jacobian_is_the_derivative_by_the_step(name: str) -> None:
    body, configuration = movable(name)
    assert isinstance(body, Movable)
    size, vertices = len(body.limits[0]), np.array([0, 5, 17])
    steps = 1e-6 * np.eye(size)
    ahead, behind = (
        np.stack([body.vertices(body.retract(configuration, sign * step))[vertices] for step in steps], axis=-1)
        for sign in (1.0, -1.0)
    )
    np.testing.assert_allclose(body.jacobian(configuration, vertices), (ahead - behind) / 2e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["hand", "rod"])
def test_a_step_ends_at_the_limits(name: str) -> None:
    body, configuration = movable(name)
    lower, upper = body.limits
    np.testing.assert_array_equal(body.retract(configuration, np.full(len(lower), 1e3)), upper)
    np.testing.assert_array_equal(body.retract(configuration, np.full(len(lower), -1e3)), lower)


def test_a_difference_of_poses_is_the_step_between_them() -> None:
    pose = Pose(matrix_from_rotvec(np.array([0.2, 0.1, -0.4])), np.array([0.02, 0.03, 1.1]))
    step = 1e-4 * np.array([3.0, -2.0, 1.0, 2.0, -1.0, 4.0])
    np.testing.assert_allclose(pose.step_to(pose.retract(step)), step, atol=1e-7)

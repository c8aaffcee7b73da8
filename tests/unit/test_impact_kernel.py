"""The compiled state of a body that touches a plane, beside Euler's equations and rotation matrices."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

from vid2phys.engine.kernels.impacts_cpu import _fly, _heights, _load, _unload
from vid2phys.types import Array

INERTIA = np.array([0.5, 1.3, 2.1]) * 1e-3  # of a kilogram
GRAVITY = np.array([0.2, -0.1, -9.81])
POINTS = np.random.default_rng(0).normal(0.0, 0.05, (5, 3))
RADIUS_M = 0.01


def state(seed: int) -> Array:
    """Place, orientation wxyz, velocity in the world and angular velocity in the body's axes."""
    rng = np.random.default_rng(seed)
    quat = rng.normal(size=4)
    return np.concatenate(
        [rng.normal(size=3), quat / np.linalg.norm(quat), rng.normal(size=3), 9.0 * rng.normal(size=3)]
    )


def rotation(of: Array) -> Array:
    return Rotation.from_quat(of[[4, 5, 6, 3]]).as_matrix()


def frame(seed: int) -> Array:
    """Normal and two tangents of a plane, one a row."""
    return np.asarray(Rotation.random(random_state=seed).as_matrix())


def spin(of: Array) -> Array:
    """Euler's equations: the angular acceleration in the body's axes without a torque."""
    return -np.cross(of[10:], INERTIA * of[10:]) / INERTIA


def loaded(of: Array, h: float, plane: Array, touching: Array) -> tuple[Array, Array]:
    """Velocities [6] and rows [C, 3, 6] of the points that touch."""
    velocities, axes, rows = np.zeros(6), np.zeros((3, 3)), np.zeros((len(touching), 3, 6))
    _load(of, h, GRAVITY, INERTIA, plane, touching, len(touching), POINTS, RADIUS_M, (velocities, axes, rows))
    return velocities, rows


@pytest.mark.parametrize("seed", [1, 2])
def test_a_body_that_touches_goes_on_rotating_by_eulers_equations(seed: int) -> None:
    of, plane, h = state(seed), frame(seed), 1e-3
    velocities, _ = loaded(of, h, plane, np.zeros(0, dtype=np.int64))
    np.testing.assert_allclose(velocities[:3], plane @ (of[7:10] + h * GRAVITY))
    np.testing.assert_allclose(velocities[3:], np.sqrt(INERTIA) * (of[10:] + h * spin(of)))
    out = np.zeros(13)
    _unload((velocities,), INERTIA, plane, out)
    np.testing.assert_allclose(out[7:10], of[7:10] + h * GRAVITY)
    np.testing.assert_allclose(out[10:], of[10:] + h * spin(of))


def test_an_impulse_at_a_point_changes_velocities_as_a_force_does() -> None:
    """The point is the lowest one of a ball; an impulse along an axis changes velocity and angular velocity."""
    of, plane, touching = state(3), frame(3), np.array([4, 1])
    velocities, rows = loaded(of, 0.0, plane, touching)
    body = rotation(of)
    for c, k in enumerate(touching):
        arm = body @ POINTS[k] - RADIUS_M * plane[0]
        for a in range(3):
            moved = body.T @ np.cross(arm, plane[a]) / INERTIA
            np.testing.assert_allclose(rows[c, a, :3], np.eye(3)[a])
            np.testing.assert_allclose(rows[c, a, 3:], np.sqrt(INERTIA) * moved, atol=1e-12)
            speed = plane[a] @ (of[7:10] + np.cross(body @ of[10:], arm))
            assert rows[c, a] @ velocities == pytest.approx(speed), "the same row gives the velocity of the point"


def test_heights_are_those_of_balls_above_the_plane() -> None:
    of, plane, heights = state(4), frame(4), np.zeros(len(POINTS))
    least = _heights(of, POINTS, RADIUS_M, plane, 0.3, heights)
    expected = (of[:3] + POINTS @ rotation(of).T) @ plane[0] - 0.3 - RADIUS_M
    np.testing.assert_allclose(heights, expected)
    assert least == pytest.approx(expected.min())


@pytest.mark.parametrize(("h", "within"), [(2e-3, 1e-9), (2e-2, 2e-5)])
def test_a_free_flight_is_that_of_a_rigid_body(h: float, within: float) -> None:
    of, out = state(5), np.zeros(13)
    _fly(of, h, GRAVITY, INERTIA, out)

    def rates(_: float, y: Array) -> Array:
        w = y[4:]
        x, y_, z = w
        turning = np.array([[0.0, -x, -y_, -z], [x, 0.0, z, -y_], [y_, -z, 0.0, x], [z, y_, -x, 0.0]])
        return np.concatenate([0.5 * turning @ y[:4], -np.cross(w, INERTIA * w) / INERTIA])

    found = solve_ivp(rates, (0.0, h), np.concatenate([of[3:7], of[10:]]), rtol=1e-12, atol=1e-13).y[:, -1]
    np.testing.assert_allclose(out[3:7], found[:4], atol=within)
    np.testing.assert_allclose(out[10:], found[4:], atol=20.0 * within)
    np.testing.assert_allclose(out[:3], of[:3] + h * of[7:10] + 0.5 * h**2 * GRAVITY)
    np.testing.assert_allclose(out[7:10], of[7:10] + h * GRAVITY)

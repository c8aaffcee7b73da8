"""The law of the tracking controller beside Lee's equations for single errors, and attitudes that forces ask for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vid2phys.engine import control
from vid2phys.engine.control import _attitude_for, _Reference, _reference, _wrench
from vid2phys.geometry import matrix_from_rotvec, quat_from_rotvec
from vid2phys.types import Array

INERTIA = np.array([4e-3, 5e-3, 7e-3])
VALUES = {"mass": 0.7, "gravity": 9.81, "drag": 0.2}
VALUES |= dict(zip(("inertia_xx", "inertia_yy", "inertia_zz"), INERTIA.tolist(), strict=True))
FAST = 12.0  # rad/s of the attitude loop
SLOW = FAST / 4.0  # of the position loop


def state(rotvec: Array | None = None, **parts: Array) -> Array:
    """A quadrotor at rest at the origin, but for what is given."""
    quat = quat_from_rotvec(np.zeros(3) if rotvec is None else rotvec)
    zero = np.zeros(3)
    place, velocity, rate = (parts.get(name, zero) for name in ("place", "velocity", "rate"))
    return np.concatenate([place, quat, velocity, rate])


def hover(**parts: Array) -> _Reference:
    return replace(_Reference(np.zeros(3), np.eye(3), *np.zeros((4, 3))), **parts)


def test_a_body_that_hovers_is_held_against_gravity() -> None:
    np.testing.assert_allclose(_wrench(state(), hover(), VALUES, FAST), [0.7 * 9.81, 0.0, 0.0, 0.0], atol=1e-12)


def test_errors_of_height_change_the_thrust() -> None:
    """A damped oscillator of the position loop's bandwidth; drag is made up for, and thrust only pushes."""
    low = _wrench(state(place=np.array([0.0, 0.0, -0.1])), hover(), VALUES, FAST)
    assert low[0] == pytest.approx(0.7 * (9.81 + 0.1 * SLOW**2))
    rising = _wrench(state(velocity=np.array([0.0, 0.0, 0.5])), hover(), VALUES, FAST)
    assert rising[0] == pytest.approx(0.7 * (9.81 - 2.0 * 0.9 * SLOW * 0.5) + 0.2 * 0.5)
    lifted = _wrench(state(), hover(acceleration=np.array([0.0, 0.0, 2.0])), VALUES, FAST)
    assert lifted[0] == pytest.approx(0.7 * 11.81)
    above = _wrench(state(place=np.array([0.0, 0.0, 9.0])), hover(), VALUES, FAST)
    assert above[0] == 0.0


def test_an_error_aside_tilts_the_body_towards_its_place() -> None:
    """The wanted force leans; the torque turns the thrust to it, and the thrust is its part along the body."""
    off = np.array([0.05, -0.03, 0.0])
    found = _wrench(state(place=off), hover(), VALUES, FAST)
    force = 0.7 * (np.array([0.0, 0.0, 9.81]) - SLOW**2 * off)
    assert found[0] == pytest.approx(force[2])
    axis = np.cross([0.0, 0.0, 1.0], force / np.linalg.norm(force))
    np.testing.assert_allclose(found[1:], INERTIA * FAST**2 * axis, rtol=1e-6, atol=1e-12)


def test_a_tilt_is_turned_back() -> None:
    for axis in np.eye(3):
        found = _wrench(state(0.2 * axis), hover(), VALUES, FAST)
        np.testing.assert_allclose(found[1:], -INERTIA * FAST**2 * np.sin(0.2) * axis, atol=1e-9)
        assert found[0] == pytest.approx(0.7 * 9.81 * (1.0 if axis[2] else np.cos(0.2)))


def test_rates_are_damped_and_gyroscopic_torques_made_up_for() -> None:
    rate = np.array([0.5, -0.4, 0.3])
    found = _wrench(state(rate=rate), hover(), VALUES, FAST)
    expected = -INERTIA * 2.0 * 0.9 * FAST * rate + np.cross(rate, INERTIA * rate)
    np.testing.assert_allclose(found[1:], expected, rtol=1e-9)


def test_a_reference_that_is_followed_exactly_needs_eulers_torque() -> None:
    """Tilted, turning and speeding up: I w' + w x I w, in the body's axes."""
    rotvec, rate, spin = np.array([0.3, -0.2, 0.1]), np.array([0.6, 0.2, -0.5]), np.array([2.0, -1.0, 3.0])
    rotation = matrix_from_rotvec(rotvec)
    velocity = np.array([0.4, 0.1, -0.3])
    acceleration = rotation[:, 2] * 12.0 - np.array([0.0, 0.0, 9.81]) - 0.2 / 0.7 * velocity
    target = _Reference(np.ones(3), rotation, velocity, rate, acceleration, spin)
    found = _wrench(state(rotvec, place=np.ones(3), velocity=velocity, rate=rate), target, VALUES, FAST)
    assert found[0] == pytest.approx(0.7 * 12.0)
    np.testing.assert_allclose(found[1:], INERTIA * spin + np.cross(rate, INERTIA * rate), atol=1e-9)


def test_rates_of_a_reference_are_taken_to_the_body() -> None:
    """A body that is turned about z by 0.2 rad, beside a reference that turns about x."""
    found = _wrench(
        state(np.array([0.0, 0.0, 0.2])), hover(omega=np.array([1.0, 0.0, 0.0])), VALUES, FAST
    )  # fmt: skip
    in_body = np.array([np.cos(0.2), -np.sin(0.2), 0.0])
    spin = 2.0 * 0.9 * FAST * in_body - FAST**2 * np.array([0.0, 0.0, np.sin(0.2)])
    np.testing.assert_allclose(found[1:], INERTIA * spin, atol=1e-9)


def test_accelerations_of_a_reference_are_differences() -> None:
    first, second = state(velocity=np.ones(3), rate=np.zeros(3)), state(velocity=np.full(3, 1.5), rate=np.full(3, 0.2))
    found = _reference(first, second, 0.1)
    np.testing.assert_allclose(found.acceleration, 5.0)
    np.testing.assert_allclose(found.omega_rate, 2.0)
    np.testing.assert_array_equal(found.velocity, 1.0)
    np.testing.assert_array_equal(found.rotation, np.eye(3))


def test_an_attitude_turns_its_reference_as_little_as_a_force_needs() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        reference, force = matrix_from_rotvec(rng.normal(size=3)), rng.normal(size=3)
        found = _attitude_for(force, reference)
        np.testing.assert_allclose(found[:, 2], force / np.linalg.norm(force), atol=1e-9)
        angle = np.arccos(0.5 * (np.trace(found @ reference.T) - 1.0))
        assert angle == pytest.approx(np.arccos(reference[:, 2] @ force / np.linalg.norm(force)))
        np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-9)
    turned = matrix_from_rotvec(np.array([0.0, 0.0, 0.7]))
    np.testing.assert_array_equal(_attitude_for(np.zeros(3), turned), turned)
    np.testing.assert_array_equal(_attitude_for(np.array([0.0, 0.0, 2.0]), turned), turned)
    np.testing.assert_array_equal(control._vee(np.arange(9.0).reshape(3, 3)), [7.0, 2.0, 3.0])

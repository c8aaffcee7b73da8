"""The tracking controller follows a feasible flight, and its actions replay it."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys import geometry
from vid2phys.engine.control import tracking_actions
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.types import Array

TIMES_S = np.arange(97) / 30.0


def feasible_flight(parameters: Array, times_s: Array) -> Array:
    """A flight that turns while it follows a Lissajous curve, from differential flatness."""

    def position(t: Array) -> Array:
        return np.stack([0.8 * np.sin(1.3 * t), 0.6 * np.cos(1.7 * t), 1.0 + 0.3 * np.sin(2.1 * t)], axis=-1)

    def velocity(t: Array) -> Array:
        return (position(t + 1e-4) - position(t - 1e-4)) / 2e-4

    def quat(t: Array) -> Array:
        acceleration = (velocity(t + 1e-4) - velocity(t - 1e-4)) / 2e-4
        force = parameters[0] * (acceleration + np.array([0, 0, parameters[8]])) + parameters[5] * velocity(t)
        z = force / np.linalg.norm(force, axis=-1, keepdims=True)
        y = np.cross(z, np.stack([np.cos(0.5 * t), np.sin(0.5 * t), 0 * t], axis=-1))
        y /= np.linalg.norm(y, axis=-1, keepdims=True)
        return geometry.quat_from_matrix(np.stack([np.cross(y, z), y, z], axis=-1))

    turn = geometry.quat_multiply(geometry.quat_conjugate(quat(times_s - 1e-3)), quat(times_s + 1e-3))
    omega = geometry.rotvec_from_quat(turn) / 2e-3
    return np.concatenate([position(times_s), quat(times_s), velocity(times_s), omega], axis=-1)


@pytest.mark.parametrize("kind", ["wrench", "rotors"])
def test_actions_replay_the_flight(kind: str) -> None:
    quadrotor = Quadrotor(input=kind)
    parameters = quadrotor.parameters().with_values({"mass": 0.04, "drag": 0.02, "thrust_scale": 1.2}).vector
    reference = feasible_flight(parameters, TIMES_S)
    controls = tracking_actions(quadrotor, parameters, TIMES_S, reference)
    assert controls.shape == (96, 10)
    flown = simulate(quadrotor, reference[:1], controls[None], parameters, np.diff(TIMES_S), substeps=4)[0]
    error = quadrotor.local(reference, flown)
    assert np.linalg.norm(error[:, :3], axis=1).max() < 0.01
    assert np.rad2deg(np.linalg.norm(error[:, 3:6], axis=1)).max() < 0.5


def test_noisy_reference_is_still_followed() -> None:
    quadrotor = Quadrotor()
    parameters = quadrotor.parameters().vector
    reference, rng = feasible_flight(parameters, TIMES_S), np.random.default_rng(0)
    sigma = np.repeat([0.01, 0.03, 0.05, 0.1], 3)
    noisy = quadrotor.retract(reference, sigma * rng.normal(size=(len(reference), 12)))
    controls = tracking_actions(quadrotor, parameters, TIMES_S, noisy)
    flown = simulate(quadrotor, noisy[:1], controls[None], parameters, np.diff(TIMES_S), substeps=4)[0]
    assert np.sqrt((quadrotor.local(reference, flown)[:, :3] ** 2).sum(axis=1).mean()) < 0.04
    assert (controls[:, 0] >= 0.0).all()


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match=r"expected \[T, 13\] and \[T\]"):
        tracking_actions(Quadrotor(), Quadrotor().parameters().vector, TIMES_S[:3], np.zeros((4, 13)))

"""Geometric tracking control of a quadrotor, for first guesses of the actions behind a motion.

Lee, Leok, McClamroch, "Geometric tracking control of a quadrotor UAV on SE(3)" (CDC 2010), equations 10 to 16, run in
closed loop with the controls held over each interval: a rollout of the actions returned is the controlled flight.

Limits: quadrotors only; velocities of the reference have to be smooth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.engine.rollout import simulate
from vid2phys.geometry import matrix_from_quat, matrix_from_rotvec
from vid2phys.types import Array

if TYPE_CHECKING:
    from vid2phys.engine.systems.quadrotor import Quadrotor

_ATTITUDE_BANDWIDTH_RAD_S = 20.0
_BANDWIDTH_PER_INTERVAL = 0.6  # of the attitude loop, rad: held controls are unstable beyond about 1.5
_SEPARATION = 4.0  # attitude bandwidth over position bandwidth
_DAMPING = 0.9


@dataclass(frozen=True)
class _Reference:
    """What to follow over one interval: pose and rates at its start, mean accelerations over it."""

    position: Array
    rotation: Array
    velocity: Array
    omega: Array
    acceleration: Array
    omega_rate: Array


def tracking_actions(
    system: Quadrotor, parameters: Array, times_s: Array, states: Array, *, substeps: int = 4
) -> Array:
    """Return the controls [T - 1, 10] that fly the quadrotor from the first of the states [T, 13] along them, at
    times_s [T].

    parameters: [P] in SI. Velocities of the reference are differenced for the feed-forward, so they have to be smooth.
    Disturbances are zero, thrust is not negative. Bandwidths follow from the length of the intervals. Feasible
    references are followed closely, others as well as the gains allow. Raises ValueError for shapes that do not fit.
    """
    states, times_s = np.asarray(states, dtype=float), np.asarray(times_s, dtype=float)
    if states.ndim != 2 or states.shape[1] != 13 or times_s.shape != states.shape[:1]:
        raise ValueError(f"states {states.shape} at times {times_s.shape}; expected [T, 13] and [T]")
    intervals = np.diff(times_s)
    to_actuators = np.linalg.inv(system.allocation(parameters))
    values = dict(zip(system.parameters().names, np.asarray(parameters, dtype=float), strict=True))
    attitude = min(_ATTITUDE_BANDWIDTH_RAD_S, _BANDWIDTH_PER_INTERVAL / float(np.median(intervals)))
    controls = np.zeros((len(intervals), 10))
    state = states[0]
    for k, dt_s in enumerate(intervals):
        wrench = _wrench(state, _reference(states[k], states[k + 1], dt_s), values, attitude)
        controls[k, :4] = to_actuators @ wrench
        state = simulate(system, state[None], controls[None, k : k + 1], parameters, dt_s, substeps=substeps)[0, 1]
    return controls


def _reference(state: Array, following: Array, dt_s: float) -> _Reference:
    return _Reference(
        state[:3],
        matrix_from_quat(state[3:7]),
        state[7:10],
        state[10:],
        (following[7:10] - state[7:10]) / dt_s,
        (following[10:] - state[10:]) / dt_s,
    )


def _wrench(state: Array, reference: _Reference, values: dict[str, float], attitude_bandwidth: float) -> Array:
    """Return the collective thrust and body torque [4] for one interval (Lee's equations 12, 15 and 16)."""
    position_bandwidth = attitude_bandwidth / _SEPARATION
    rotation, velocity, omega = matrix_from_quat(state[3:7]), state[7:10], state[10:]
    wanted = reference.acceleration + np.array([0.0, 0.0, values["gravity"]])
    wanted = wanted - position_bandwidth**2 * (state[:3] - reference.position)
    wanted = wanted - 2.0 * _DAMPING * position_bandwidth * (velocity - reference.velocity)
    force = values["mass"] * wanted + values["drag"] * velocity
    to_target = rotation.T @ _attitude_for(force, reference.rotation)
    error = 0.5 * _vee(to_target.T - to_target)
    rate_error = omega - to_target @ reference.omega
    feed_forward = to_target @ reference.omega_rate - np.cross(omega, to_target @ reference.omega)
    spin = feed_forward - attitude_bandwidth**2 * error - 2.0 * _DAMPING * attitude_bandwidth * rate_error
    inertia = np.array([values["inertia_xx"], values["inertia_yy"], values["inertia_zz"]])
    torque = inertia * spin + np.cross(omega, inertia * omega)
    return np.array([max(float(force @ rotation[:, 2]), 0.0), *torque])


def _attitude_for(force: Array, reference_rotation: Array) -> Array:
    """Return the attitude nearest to the reference whose z axis is along `force`.

    Lee takes a heading instead; turning the reference as little as possible needs none and has no singular heading.
    """
    size = np.linalg.norm(force)
    if size < 1e-9:
        return reference_rotation
    axis = np.cross(reference_rotation[:, 2], force / size)
    sine, cosine = float(np.linalg.norm(axis)), float(reference_rotation[:, 2] @ force / size)
    if sine < 1e-12:
        return reference_rotation
    return np.asarray(matrix_from_rotvec(np.arctan2(sine, cosine) * axis / sine) @ reference_rotation)


def _vee(matrix: Array) -> Array:
    return np.array([matrix[2, 1], matrix[0, 2], matrix[1, 0]])

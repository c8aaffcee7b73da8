"""The sample's flight: a figure flown by the engine's tracking controller, with known parameters and actions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vid2phys.engine import systems
from vid2phys.engine.control import tracking_actions
from vid2phys.engine.rollout import simulate
from vid2phys.engine.system import System
from vid2phys.geometry import Array, quat_conjugate, quat_from_matrix, quat_multiply, rotvec_from_quat
from vid2phys.types import Parameters

TRUTH = {"mass": 0.72, "inertia_xx": 3.4e-3, "inertia_yy": 3.7e-3, "inertia_zz": 6.1e-3, "drag": 0.15}
RATE = 600  # steps a second: whole steps for frames (30), actions (100) and motion capture (120)
ACTION_RATE, LEAD_S = 100, 0.5  # the flight starts before the video, so that the log does


@dataclass(frozen=True)
class Flight:
    """times_s [S + 1] in the video's clock and states [S + 1, 13] at RATE; actions [A, 4] from action_times_s [A]."""

    system: System
    parameters: Parameters
    times_s: Array
    states: Array
    action_times_s: Array
    actions: Array

    def at(self, times_s: Array) -> Array:
        """States at times of the video's clock that are whole steps, or between two (linear in the tangent space)."""
        place = (np.asarray(times_s) - self.times_s[0]) * RATE
        index = np.clip(np.floor(place + 1e-6).astype(int), 0, len(self.states) - 2)
        step = self.system.local(self.states[index], self.states[index + 1])
        return self.system.retract(self.states[index], (place - index)[:, None] * step)


def figure(times_s: Array) -> tuple[Array, Array]:
    """Where to fly: positions [T, 3] m and yaw [T] rad. A three-dimensional Lissajous figure with tilts to 25 deg."""
    t = times_s
    position = np.stack(
        [0.42 * np.sin(2.85 * t + 0.3), 0.46 * np.sin(2.15 * t - 0.8), 1.12 + 0.20 * np.sin(2.6 * t + 1.1)], axis=1
    )
    return position, 0.55 + 0.7 * np.sin(0.9 * t - 0.5)


def fly(seconds: float) -> Flight:
    """Fly the figure for the video's length and a little more at both ends."""
    system = systems.get("quadrotor")
    parameters = system.parameters().with_values(TRUTH, source="given")
    count = round((seconds + 2.0 * LEAD_S) * ACTION_RATE)
    action_times = np.arange(count + 1) / ACTION_RATE - LEAD_S
    reference = _reference(action_times, parameters)
    controls = tracking_actions(system, parameters.vector, action_times, reference)
    controls[:, :4] = np.round(controls[:, :4], 6)  # what actions.csv says is what was flown
    steps = RATE // ACTION_RATE
    states = simulate(system, reference[:1], np.repeat(controls, steps, axis=0)[None], parameters.vector, 1.0 / RATE)[0]
    times = np.arange(len(states)) / RATE - LEAD_S
    return Flight(system, parameters, times, states, action_times[:-1], controls[:, :4])


def _reference(times_s: Array, parameters: Parameters) -> Array:
    """States [T, 13] of the figure by differential flatness (Mellinger, Kumar 2011): thrust points along body z."""
    step = 1e-3
    offsets = step * np.arange(-4, 5)
    fine = (times_s[:, None] + offsets).ravel()
    positions, yaw = figure(fine)
    positions = positions.reshape(len(times_s), 9, 3)
    velocity = np.gradient(positions, step, axis=1)
    force = np.gradient(velocity, step, axis=1) * parameters["mass"].value + parameters["drag"].value * velocity
    force[..., 2] += parameters["mass"].value * parameters["gravity"].value
    up = force / np.linalg.norm(force, axis=-1, keepdims=True)
    yaw = yaw.reshape(len(times_s), 9)
    left = np.cross(up, np.stack([np.cos(yaw), np.sin(yaw), np.zeros_like(yaw)], axis=-1))
    left /= np.linalg.norm(left, axis=-1, keepdims=True)
    quats = quat_from_matrix(np.stack([np.cross(left, up), left, up], axis=-1))
    turn = rotvec_from_quat(quat_multiply(quat_conjugate(quats[:, 3]), quats[:, 5]))
    return np.concatenate([positions[:, 4], quats[:, 4], velocity[:, 4], turn / (2.0 * step)], axis=1)

"""Random flights of a quadrotor with recorded actions: mass, drag and inertia.

Thrust and torques are random and smooth; attitude is held by them through a feedback, as a controller would. The true
motion is that of the system which is fitted, under an unknown force and torque of random strength.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from benchmarks.coverage import rigid
from benchmarks.coverage.cases import Case, box
from vid2phys.engine import systems
from vid2phys.engine.rollout import simulate
from vid2phys.engine.system import System
from vid2phys.geometry import matrix_from_quat, quat_from_rotvec
from vid2phys.solvers.gauss_markov import draw_first_order
from vid2phys.types import Actions, Array, Parameters

_INERTIA = ("inertia_xx", "inertia_yy", "inertia_zz")
FIT = ("mass", "drag", *_INERTIA)
FPS, FRAMES, ACTIONS_HZ = 30.0, 100, 100.0
_LEVEL, _DAMPED = 60.0, 12.0  # feedback of the attitude, 1/s^2 and 1/s
_YAW = 3.0  # rad/s, about which the wished yaw rate varies
_DISTURBED = {"force": (0.03, 0.3), "torque": (0.3, 3.0)}  # standard deviations, m/s^2 and rad/s^2
_BANDWIDTHS = {"force": 3.0, "torque": 10.0}  # rad/s


@dataclass(frozen=True)
class Flight:
    """A flight: true values by parameter, states [S + 1, 13] at the times of the actions, and the actions."""

    truth: dict[str, float]
    states: Array
    actions: Actions

    def states_of_frames(self) -> tuple[Array, Array]:
        """Return the times [FRAMES] of the frames and the states there, [FRAMES, 13]."""
        indices = np.round(np.arange(FRAMES) / FPS * ACTIONS_HZ).astype(int)
        return indices / ACTIONS_HZ, self.states[indices]


def case(seed: int) -> Case:
    """Return the fit of a random flight."""
    rng = np.random.default_rng([seed, 71])
    mass, size = random_mass(rng), float(rng.uniform(0.08, 0.3))
    inertia = mass * np.array([1.09, 1.09, 2.0]) * size**2 / 12.0
    flight = random_flight(rng, mass, inertia)
    times, exact = flight.states_of_frames()
    camera = rigid.camera_beside(exact, float(rng.uniform(8.0, 20.0)) * size, np.array([0.6, -0.75, 0.28]))
    mesh, system = box(size * np.array([1.0, 1.0, 0.3])), systems.get("quadrotor")
    result = rigid.identified(rng, system, mesh, camera, times, exact, FIT, {}, flight.actions)
    return Case.of(result, flight.truth)


def random_mass(rng: np.random.Generator) -> float:
    """Return a mass from 0.03 to 1.5 kg."""
    return float(np.exp(rng.uniform(np.log(0.03), np.log(1.5))))


def random_flight(rng: np.random.Generator, mass_kg: float, inertia: Array) -> Flight:
    """Return a random flight of a body. inertia: [3] of its mesh, kg m^2, from which the true one differs."""
    system, inertia = systems.get("quadrotor"), inertia * np.exp(rng.normal(0.0, 0.2, 3))
    truth = {"mass": mass_kg, "drag": mass_kg * float(rng.uniform(0.05, 0.4))}
    truth |= dict(zip(_INERTIA, inertia.tolist(), strict=True))
    states, wrench = _flown(rng, system, system.parameters().with_values(truth), mass_kg, inertia)
    times = np.arange(len(wrench)) / ACTIONS_HZ
    return Flight(truth, states, Actions(times, wrench, "wrench", system.action_names, system.action_units))


def _flown(
    rng: np.random.Generator, system: System, parameters: Parameters, mass: float, inertia: Array
) -> tuple[Array, Array]:
    """Return states [S + 1, 13] at the times of the actions, and thrust and torques [S, 4]."""
    count = int(FRAMES / FPS * ACTIONS_HZ) + 2
    state = np.zeros(13)
    state[3:7] = quat_from_rotvec(np.array([0.0, 0.0, rng.uniform(-np.pi, np.pi)]))
    state[7:10] = rng.normal(0.0, 0.4, 3)
    time = np.arange(count) / ACTIONS_HZ
    waves = rng.uniform(0.4, 1.6, (4, 3)), rng.uniform(0.0, 2.0 * np.pi, (4, 3))
    wished = np.sin(2.0 * np.pi * waves[0] * time[:, None, None] + waves[1]).sum(axis=-1) / 3.0  # [S, 4]
    disturbances = _disturbances(rng, time) * np.array([mass, mass, mass, *inertia])
    states, wrench = [state], []
    for k in range(count):
        thrust = mass * 9.81 * (1.0 + 0.15 * wished[k, 0])
        up = matrix_from_quat(state[3:7])[2]  # the world's z in body axes
        tilt = np.array([up[1], -up[0], 0.0])
        wish = np.array([0.35, 0.35, _YAW]) * wished[k, 1:]  # of roll and pitch, rad, and of the yaw rate, rad/s
        torque = inertia * (_LEVEL * (wish - tilt) * [1, 1, 0] + _DAMPED * (wish * [0, 0, 1] - state[10:13]))
        wrench.append(np.array([thrust, *torque]))
        state = simulate(
            *(system, state[None], np.append(wrench[-1], disturbances[k])[None, None]),
            *(parameters.vector, 1.0 / ACTIONS_HZ),
        )[0, -1]
        states.append(state)
    return np.array(states), np.array(wrench)


def _disturbances(rng: np.random.Generator, times_s: Array) -> Array:
    """Return accelerations [S, 6] by an unknown force and torque, at times [S].

    The processes are critically damped, of second order: white noise that passes two filters of one bandwidth.
    """
    before = np.arange(-3.0, times_s[0], 1.0 / ACTIONS_HZ)  # until the filters have settled
    both = np.concatenate([before, times_s])
    parts = []
    for kind, (least, most) in _DISTURBED.items():
        std, step = np.exp(rng.uniform(np.log(least), np.log(most))), _BANDWIDTHS[kind] / ACTIONS_HZ
        first = draw_first_order(rng, both, np.full(3, 1.0 / _BANDWIDTHS[kind]))
        second = lfilter([step], [1.0, step - 1.0], first, axis=0)
        parts.append(std * np.sqrt(2.0) * second[len(before) :])  # the second filter halves the variance
    return np.concatenate(parts, axis=1)

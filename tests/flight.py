"""A flight with known truth, from differential flatness: position over time -> attitude -> thrust and torques."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vid2phys import geometry
from vid2phys.engine.observe import observe
from vid2phys.engine.pose_geometry import pose_modes
from vid2phys.engine.rollout import simulate
from vid2phys.engine.system import System
from vid2phys.engine.systems import get
from vid2phys.geometry import Pose
from vid2phys.types import Actions, Observation, Parameters

RATE = 1000
POINTS = np.array(
    [[x, y, z] for x, y in [(0.1, 0.1), (0.1, -0.1), (-0.1, 0.1), (-0.1, -0.1)] for z in (0.0, 0.03)]
    + [[0.14, 0.0, 0.0], [0.0, 0.0, 0.06], [0.0, 0.0, -0.05], [-0.12, 0.02, 0.01]]
)
TRUTH = {
    "mass": 0.72, "inertia_xx": 4.1e-3, "inertia_yy": 4.6e-3, "inertia_zz": 7.3e-3, "thrust_scale": 1.0, "drag": 0.12,
}  # fmt: skip


@dataclass(frozen=True)
class Flight:
    """Truth of a simulated flight: parameters, 30 Hz states [F, 13], actions at 100 Hz, camera pose."""

    system: System
    parameters: Parameters
    times_s: np.ndarray
    states: np.ndarray
    actions: Actions
    camera_to_world: np.ndarray


def fly(seconds: float = 4.8, *, swing: float = 0.5, overrides: dict[str, float] | None = None) -> Flight:
    """Fly a three-dimensional figure; `swing` [m] is its size."""
    system = get("quadrotor")
    parameters = system.parameters().with_values(TRUTH | (overrides or {}))
    time = np.arange(int((seconds + 0.5) * RATE) + 1) / RATE
    p = swing * np.stack([np.sin(1.9 * time), 0.8 * np.sin(2.6 * time + 0.4), 0.4 * np.sin(1.3 * time + 1.0)], 1)
    velocity, acceleration = (
        np.gradient(p, 1 / RATE, axis=0),
        np.gradient(np.gradient(p, 1 / RATE, axis=0), 1 / RATE, axis=0),
    )
    values = {q.name: q.value for q in parameters}
    force = values["mass"] * (acceleration + np.array([0.0, 0.0, values["gravity"]])) + values["drag"] * velocity
    thrust = np.linalg.norm(force, axis=1)
    up = force / thrust[:, None]
    yaw = 0.3 * np.sin(0.8 * time)
    left = np.cross(up, np.stack([np.cos(yaw), np.sin(yaw), 0 * yaw], 1))
    left /= np.linalg.norm(left, axis=1, keepdims=True)
    quats = geometry.quat_from_matrix(np.stack([np.cross(left, up), left, up], axis=-1))
    turn = geometry.quat_multiply(geometry.quat_conjugate(quats[:-1]), quats[1:])
    omega = geometry.rotvec_from_quat(turn) * RATE
    omega = np.vstack([omega, omega[-1:]])
    inertia = np.array([values[f"inertia_{a}"] for a in ("xx", "yy", "zz")])
    alpha = np.gradient(omega, 1 / RATE, axis=0)
    torque = inertia * alpha + np.cross(omega, inertia * omega)
    wrench = np.column_stack([thrust / values["thrust_scale"], torque])
    wrench = wrench[: len(wrench) // 10 * 10].reshape(-1, 10, 4).mean(axis=1)
    start = np.concatenate([p[5], quats[5], velocity[5], omega[5]])
    reference = np.concatenate([p, quats, velocity, omega], axis=1)
    fine, wrench = _follow(system, parameters, start, reference, wrench)
    settle = 400  # the ends of a numerical derivative, and what the feedback makes of them, are not flown
    index = settle + np.round(np.arange(int((seconds - 0.05) * 30)) / 30.0 * RATE).astype(int)
    times = (index - settle) / RATE
    actions = Actions(
        (np.arange(len(wrench)) * 10 - settle) / RATE, wrench, "wrench", system.action_names, system.action_units
    )
    return Flight(
        system, parameters, times, fine[index], actions,
        geometry.look_at(np.array([-2.2, -1.6, 0.9]), np.zeros(3)),
    )  # fmt: skip


def _follow(
    system: System, parameters: Parameters, start: np.ndarray, reference: np.ndarray, wrench: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Feed-forward plus linear feedback at 100 Hz, so that rounding does not grow. Returns states at 1 kHz, actions."""
    values = {q.name: q.value for q in parameters}
    inertia = np.array([values[f"inertia_{a}"] for a in ("xx", "yy", "zz")])
    fine, applied = [start[None]], wrench.copy()
    for k in range(len(wrench)):
        state = fine[-1][-1]
        error = system.local(state, reference[min(10 * k + 5, len(reference) - 1)])
        push = geometry.rotate(geometry.quat_conjugate(state[3:7]), 9.0 * error[:3] + 4.0 * error[6:9])
        tilt = np.array([-push[1], push[0], 0.0]) / values["gravity"]
        applied[k, 0] += values["mass"] * push[2]
        applied[k, 1:] += inertia * (150.0 * (error[3:6] + tilt) + 18.0 * error[9:])
        controls = np.zeros((1, 10, 10))
        controls[..., :4] = applied[k]
        fine.append(simulate(system, state[None], controls, parameters.vector, 1 / RATE)[0, 1:])
    return np.concatenate(fine), applied


def watch(
    flight: Flight,
    *,
    noise: float = 0.002,
    shared_std: tuple[float, ...] = (0.01, 0.01, 0.01, 2e-4, 2e-4, 0.004),
    correlation_s: float = 0.1,
    seed: int = 0,
) -> Observation:
    """A stand-in for a network: true keypoints, white noise [bearing units], a shared and correlated pose error."""
    rng = np.random.default_rng(seed)
    bearings, _, _ = observe(flight.system, flight.states, POINTS, flight.camera_to_world)
    rotation, translation = camera_poses(flight)
    basis = pose_modes(Pose(rotation, translation), POINTS) * np.array(shared_std)
    decay = np.exp(-np.diff(flight.times_s, prepend=flight.times_s[0] - 1e3) / correlation_s)
    shared = np.zeros((len(bearings), 6))
    for k in range(len(bearings)):
        previous = shared[k - 1] if k else np.zeros(6)
        shared[k] = decay[k] * previous + np.sqrt(1.0 - decay[k] ** 2) * rng.normal(size=6)
    seen = bearings + noise * rng.normal(size=bearings.shape) + np.einsum("fkir,fr->fki", basis, shared)
    return Observation(
        flight.times_s, seen, np.broadcast_to(noise**2 * np.eye(2), (*seen.shape, 2)).copy(), basis,
        np.full(6, correlation_s), np.ones(seen.shape[:2], dtype=bool), POINTS,
    )  # fmt: skip


def camera_poses(flight: Flight) -> tuple[np.ndarray, np.ndarray]:
    """camera_from_body of every frame: rotations [F, 3, 3], translations [F, 3]."""
    to_camera = geometry.invert_transform(flight.camera_to_world)
    body = geometry.make_transform(geometry.matrix_from_quat(flight.states[:, 3:7]), flight.states[:, :3])
    pose = to_camera @ body
    return pose[:, :3, :3], pose[:, :3, 3]

"""Starting values: states at all knots from the poses of frames, and first actions from the tracking controller.

Method: local quadratic fits of positions and rotations, robust and weighted by a tricube (Cleveland, "Robust locally
weighted regression", 1979).

Limits: rigid bodies. Where no frame is near, states are interpolated at steady speed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.control import tracking_actions
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.geometry import (
    of_frames,
    quat_conjugate,
    quat_from_matrix,
    quat_from_rotvec,
    quat_multiply,
    rotvec_from_quat,
    slerp,
    transform_points,
)
from vid2phys.solvers import camera_parameters
from vid2phys.solvers.problem import Problem, effective_actions
from vid2phys.solvers.smoothing_model import Layout
from vid2phys.types import Array, Parameters

WINDOW_S = 0.12  # half width of the local fits
MIN_FRAMES = 6


def rigid_states(problem: Problem, rotation: Array, translation: Array) -> Array:
    """Return states [T, 13] of a rigid body at all knots from poses in camera axes.

    rotation: [F, 3, 3] camera_from_body. translation: [F, 3] m. NaN in frames without a pose. Positions and rotations
    are local quadratic fits, velocities their slopes. Positions are fitted in the axes of a static camera, in which
    sideways and depth noise are separate, or in the world's where the camera moves. Knots with no frame within the
    window are interpolated (`bridged`), where a quadratic would extrapolate.
    """
    layout = Layout.of(problem)
    seen = np.isfinite(translation).all(axis=1)
    times, knots = problem.observation.times_s[seen], layout.knots.times_s
    pose, places = of_frames(problem.camera_to_world, seen), translation[seen]
    to_world = quat_from_matrix(pose[..., :3, :3])
    quats = quat_multiply(to_world, quat_from_matrix(rotation[seen]))
    if pose.ndim == 3:
        pose, places = np.eye(4), transform_points(pose, places[:, None])[:, 0]
    states = np.zeros((len(knots), len(problem.system.state_names)))
    for k, time in enumerate(knots):
        near = window(times, time)
        weight = tricube(times[near], time)
        value, slope = local_fit(times[near] - time, places[near], weight)
        states[k, :3] = pose[:3, :3] @ value + pose[:3, 3]
        states[k, 7:10] = pose[:3, :3] @ slope
        reference = quats[near[np.argmin(np.abs(times[near] - time))]]
        local = rotvec_from_quat(quat_multiply(quat_conjugate(reference), quats[near]))
        angle, rate = local_fit(times[near] - time, local, weight)
        states[k, 3:7] = quat_multiply(reference, quat_from_rotvec(angle))
        states[k, 10:13] = rate
    near_any = np.searchsorted(times, knots - WINDOW_S) < np.searchsorted(times, knots + WINDOW_S, side="right")
    return bridged(states, knots, near_any)


def bridged(states: Array, times: Array, known: NDArray[np.bool_]) -> Array:
    """Return rigid states [T, 13] with unknown ones interpolated at steady speed; at the ends at rest."""
    out, there = states.copy(), np.flatnonzero(known)
    for k in np.flatnonzero(~known):
        after = int(np.searchsorted(there, k))
        if after in (0, len(there)):
            out[k] = states[there[min(after, len(there) - 1)]]
            out[k, 7:13] = 0.0
            continue
        a, b = states[there[after - 1]], states[there[after]]
        span = times[there[after]] - times[there[after - 1]]
        share = (times[k] - times[there[after - 1]]) / span
        rotation = rotvec_from_quat(quat_multiply(quat_conjugate(a[3:7]), b[3:7]))
        out[k, :3] = a[:3] + share * (b[:3] - a[:3])
        out[k, 3:7] = slerp(a[3:7], b[3:7], share)
        out[k, 7:10], out[k, 10:13] = (b[:3] - a[:3]) / span, rotation / span
    return out


def window(times: Array, time: float) -> np.ndarray:
    """Return indices of the frames within the window, or of the nearest few where there are fewer."""
    distance = np.abs(times - time)
    inside = np.flatnonzero(distance <= WINDOW_S)
    if len(inside) >= MIN_FRAMES:
        return inside
    return np.sort(np.argsort(distance, kind="stable")[:MIN_FRAMES])


def tricube(times: Array, time: float) -> Array:
    """Return weights [N] of times [N] s about `time`, which fall to nearly nothing at the farthest."""
    distance = np.abs(times - time)
    return (1.0 - np.minimum(distance / (1.05 * max(distance.max(), 1e-9)), 1.0) ** 3) ** 3


def local_fit(offsets: Array, values: Array, weight: Array) -> tuple[Array, Array]:
    """Return value and slope at offset 0 of a robust weighted quadratic, offsets [N] s, values [N, D]."""
    basis = np.stack([np.ones_like(offsets), offsets, offsets**2], axis=1)
    robust = np.ones_like(weight)
    coefficients = np.zeros((3, values.shape[1]))
    for _ in range(4):
        root = np.sqrt(weight * robust)[:, None]
        ridge = np.diag([0.0, 1e-6, 1e-5])
        normal = (root * basis).T @ (root * basis) + ridge
        coefficients = np.linalg.solve(normal, (root * basis).T @ (root * values))
        residual = np.linalg.norm(values - basis @ coefficients, axis=1)
        scale = 3.0 * max(float(np.median(residual)), 1e-9)
        robust = 1.0 / (1.0 + (residual / scale) ** 2)
    return coefficients[0], coefficients[1]


def with_mass_by_pushes(problem: Problem, states: Array) -> Problem:
    """Return the problem, whose free mass begins where recorded forces explain the positions of states [T, 13] best.

    Linear least squares of place, velocity and one over the mass. Moments of inertia that come from the mesh follow
    the mass. A problem without recorded forces along the world's axes, or without a free mass, stays as it is.
    """
    actions, mass = problem.actions, problem.parameters["mass"]
    if actions is None or actions.kind != "push" or not mass.free:
        return problem
    knots, gravity = Layout.of(problem).knots, problem.parameters["gravity"].value
    force, step = effective_actions(actions, knots, 0.0, 0.0)[:, :3], knots.step_s[:, None]
    impulse = np.vstack([np.zeros(3), np.cumsum(force * step, axis=0)])
    moved = np.vstack([np.zeros(3), np.cumsum(impulse[:-1] * step + 0.5 * force * step**2, axis=0)])
    time = knots.times_s - knots.times_s[0]
    flown = states[:, :3] + 0.5 * gravity * time[:, None] ** 2 * [0.0, 0.0, 1.0]
    without = np.stack([np.ones_like(time), time], axis=1)
    of_pushes, seen = (each - without @ np.linalg.lstsq(without, each, rcond=None)[0] for each in (moved, flown))
    shared = float((of_pushes * seen).sum())
    if shared <= 0.0:
        return problem
    factor = float((of_pushes**2).sum()) / shared / mass.value
    of_mesh = [p.name for p in problem.parameters if p.source == "mesh"]
    items = (replace(p, value=factor * p.value) if p.name in ("mass", *of_mesh) else p for p in problem.parameters)
    priors = {name: (mean + np.log(factor), std) for name, (mean, std) in problem.priors.items() if name in of_mesh}
    return replace(problem, parameters=Parameters(tuple(items)), priors=problem.priors | priors)


def first_inputs(problem: Problem, states: Array) -> Array:
    """Return input accelerations [T, M] at the knots: those of the geometric tracking controller along the states.

    Zeros when the actions are recorded (inputs are then disturbances), and for systems without such a controller.
    """
    layout = Layout.of(problem)
    inputs = np.zeros((len(layout.knots.times_s), len(layout.channels)))
    if problem.actions is not None or not isinstance(problem.system, Quadrotor):
        return inputs
    parameters, names = camera_parameters.system_vector(problem.parameters), problem.parameters.names
    controls = tracking_actions(problem.system, parameters, layout.knots.times_s, states)
    hover = problem.system.hover_controls(parameters)
    for j, channel in enumerate(layout.channels):
        if channel.index < len(problem.system.action_names):
            scale = parameters[names.index(channel.inertia)]
            inputs[:-1, j] = (controls[:, channel.index] - hover[channel.index]) / scale
    inputs[-1] = inputs[-2]
    return inputs

"""A thrown cube that hits the ground: smoothing without known forces finds path, rotation and the free fall."""

from __future__ import annotations

import numpy as np
import trimesh

from vid2phys.commands.fit_parameters import fixed_parameters
from vid2phys.engine.pose_geometry import pose_modes, project_points
from vid2phys.engine.systems.rigid_contact import RigidContact, Sphere
from vid2phys.geometry import (
    Pose,
    angle_between,
    invert_transform,
    make_transform,
    matrix_from_rotvec,
    quat_from_matrix,
)
from vid2phys.io.mesh import mass_properties
from vid2phys.solvers import initialise, smoothing
from vid2phys.solvers.problem import Problem, input_channels
from vid2phys.types import Array, Mesh, Observation

TIMES = np.arange(50) / 148.0
HIT = 32
SPIN, SPIN_AFTER = np.array([4.0, -9.0, 12.0]), np.array([-6.0, 3.0, 5.0])
CAMERA_TO_WORLD = make_transform(np.array([[1.0, 0, 0], [0, 0, 1.0], [0, -1.0, 0]]), np.array([0.2, -1.5, 0.6]))
NOISE = 1.0 / 880.0  # a pixel


def truth() -> tuple[Array, Array]:
    """Orientations [T, 3, 3] and positions [T, 3] m: two parabolas, two steady spins."""
    position = np.stack([0.6 * TIMES, 0.1 * TIMES, 0.5 + 1.0 * TIMES - 4.9 * TIMES**2], axis=1)
    rotation = matrix_from_rotvec(TIMES[:, None] * SPIN)
    after = (TIMES[HIT:] - TIMES[HIT])[:, None]
    speed = np.array([0.4, 0.2, 0.5 * (9.8 * TIMES[HIT] - 1.0)])
    position[HIT:] = position[HIT] + after * speed - 4.9 * after**2 * np.array([0.0, 0.0, 1.0])
    rotation[HIT:] = matrix_from_rotvec(after * SPIN_AFTER) @ rotation[HIT]
    return rotation, position


def test_a_toss_with_a_bounce_is_recovered() -> None:
    solid = trimesh.creation.box((0.1,) * 3)
    mesh = Mesh(np.asarray(solid.vertices), np.asarray(solid.faces), np.zeros(12, dtype=np.int64))
    system = RigidContact((Sphere(0.09),), planes=())
    known = fixed_parameters(system, mass_properties(mesh), {}, (), None)
    rng, (rotation, position) = np.random.default_rng(0), truth()
    to_camera = invert_transform(CAMERA_TO_WORLD)
    turned, moved = to_camera[:3, :3] @ rotation, position @ to_camera[:3, :3].T + to_camera[:3, 3]
    points = mesh.vertices
    bearings = project_points(Pose(turned, moved), points) + rng.normal(0.0, NOISE, (len(TIMES), len(points), 2))
    covariance = np.broadcast_to(NOISE**2 * np.eye(2), (*bearings.shape, 2)).copy()
    shared = pose_modes(Pose(turned, moved), points) * np.array([0.01, 0.01, 0.01, 1e-3, 1e-3, 3e-3])
    seen = Observation(
        TIMES, bearings, covariance, shared, np.full(6, 0.1), np.ones(bearings.shape[:2], dtype=bool), points
    )
    problem = Problem(system, known.parameters, seen, CAMERA_TO_WORLD)
    assert {channel.group for channel in input_channels(problem)} == {"action_force", "action_torque"}
    read = matrix_from_rotvec(rng.normal(0.0, 0.02, (len(TIMES), 3))) @ turned
    states = initialise.rigid_states(problem, read, moved + rng.normal(0.0, 0.003, moved.shape))
    found = smoothing.solve(problem, states, initialise.first_inputs(problem, states), rounds=2)
    assert found.converged
    error = np.linalg.norm(found.states[:, :3] - position, axis=1)
    assert np.sqrt((error**2).mean()) < 0.008
    assert np.degrees(np.median(angle_between(found.states[:, 3:7], quat_from_matrix(rotation)))) < 1.0
    np.testing.assert_allclose(found.states[HIT // 2, 10:13], SPIN, atol=2.0)
    force = found.controls[:, :3]  # per kilogram: gravity is the system's own
    assert abs(force[4 : HIT - 8, 2].mean()) < 3.0
    assert np.abs(force[:, 2]).argmax() in range(HIT - 3, HIT + 3)
    assert np.abs(force[:, 2]).max() > 50.0

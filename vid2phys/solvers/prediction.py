"""What the camera of a problem sees of a state: bearings of the keypoints and their derivatives.

Bearings are those of the problem's camera with its fitted parameters (`camera_parameters`). Derivatives by the state
are exact; those by the few camera parameters are central differences.

Limits: points behind the camera have bearings of NaN.
"""

from __future__ import annotations

import numpy as np

from vid2phys.engine.observe import observe, to_bearings
from vid2phys.geometry import invert_transform
from vid2phys.solvers.camera_parameters import camera_pose, camera_slopes, values_of
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array, Parameters


def bearings(problem: Problem, parameters: Parameters, states: Array) -> Array:
    """Return the bearings [..., K, 2] of the keypoints of states [..., N], without derivatives."""
    points, pose, focal = _camera(problem, parameters)
    to_camera = invert_transform(pose)
    at = problem.system.keypoints(states, points) @ to_camera[:3, :3].T + to_camera[:3, 3]
    return np.asarray(focal * to_bearings(at), dtype=float)


def linear_bearings(problem: Problem, parameters: Parameters, states: Array) -> tuple[Array, Array, Array]:
    """Return the bearings [..., K, 2] of the keypoints of states [..., N], and their derivatives.

    These are by the tangent of the state [..., K, 2, D], and by the free camera parameters in solver coordinates
    [..., K, 2, V].
    """
    seen, by_state = _linear(problem, parameters, states)
    by_camera = camera_slopes(lambda moved: _linear(problem, moved, states)[0], parameters, seen.shape)
    return seen, by_state, by_camera


def _linear(problem: Problem, parameters: Parameters, states: Array) -> tuple[Array, Array]:
    points, pose, focal = _camera(problem, parameters)
    seen, by_state, _ = observe(problem.system, states, points, pose)
    return focal * seen, focal * by_state


def _camera(problem: Problem, parameters: Parameters) -> tuple[Array, Array, float]:
    """Return the body's points [K, 3] m, the camera's pose [4, 4], and its focal length over the calibrated one."""
    points, pose = problem.observation.points_body, problem.camera_to_world
    values = values_of(parameters)
    return (values["scale"] * points, camera_pose(pose, values), values["focal"]) if values else (points, pose, 1.0)

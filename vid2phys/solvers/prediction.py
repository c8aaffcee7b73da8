"""What the camera of a problem sees of a state: bearings of the keypoints and their derivatives.

Bearings are those of the problem's camera with its fitted parameters (`camera_parameters`). Derivatives by the state
are exact; those by the few camera parameters are central differences.

Limits: points behind the camera have bearings of NaN.
"""

from __future__ import annotations

import numpy as np

from vid2phys.engine.observe import observe, to_bearings
from vid2phys.geometry import invert_transform, of_frames, transform_points
from vid2phys.solvers.camera_parameters import camera_slopes, pose_as_fitted, values_of
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array, Parameters


def bearings(problem: Problem, parameters: Parameters, states: Array) -> Array:
    """Return the bearings [..., F, K, 2] of the keypoints of states [..., F, N], without derivatives.

    The states are those of the first F frames.
    """
    points, pose, focal = _camera(problem, parameters, states.shape[-2])
    at = transform_points(invert_transform(pose), problem.system.keypoints(states, points))
    return np.asarray(focal * to_bearings(at), dtype=float)


def linear_bearings(problem: Problem, parameters: Parameters, states: Array) -> tuple[Array, Array, Array]:
    """Return the bearings [F, K, 2] of the keypoints of states [F, N] of the first F frames, and their derivatives.

    These are by the tangent of the state [F, K, 2, D], and by the free camera parameters in solver coordinates
    [F, K, 2, V].
    """
    seen, by_state = _linear(problem, parameters, states)
    by_camera = camera_slopes(lambda moved: _linear(problem, moved, states)[0], parameters, seen.shape)
    return seen, by_state, by_camera


def _linear(problem: Problem, parameters: Parameters, states: Array) -> tuple[Array, Array]:
    points, pose, focal = _camera(problem, parameters, len(states))
    seen, by_state, _ = observe(problem.system, states, points, pose)
    return focal * seen, focal * by_state


def _camera(problem: Problem, parameters: Parameters, frames: int) -> tuple[Array, Array, float]:
    """Return the body's points [K, 3] m, the camera's pose, and its focal length over the calibrated one.

    The pose is [4, 4], or [frames, 4, 4] of a camera that moves.
    """
    points, values = problem.observation.points_body, values_of(parameters)
    pose = of_frames(pose_as_fitted(problem.camera_to_world, parameters), slice(frames))
    return (values["scale"] * points, pose, values["focal"]) if values else (points, pose, 1.0)

"""The factor of measured configurations: what a fit predicts for them, as a step from what was measured.

Purpose: tracking measures poses of rigid bodies, and coordinates of articulated and modal bodies, by contours, textures
and pixels. The residual of a frame is the step from the measured configuration to that of the fitted state, in the
local coordinates in which `types.ConfigurationMeasurement` states its errors.

Method: a pose follows from where a system has four points of the body, so that every rigid system has it. The
derivative by the state is exact up to the derivative of the step, which is a central difference.

Where the focal length or the body's scale is fitted, tracking assumed other values. A measured pose then is the one
that gives nearly the same image under these values: the body at `scale` times the distance is as much larger, and
`focal` times the focal length brings the body nearer by as much. The body is seen from the same side, so that its
rotation against the line of sight stays.

Limits: the image under another focal length is the same to first order in the body's size over its distance, and to
second order in its angle off the optical axis. Coordinates of articulated bodies do not depend on the camera
parameters; a fit of these takes keypoints instead (`Problem`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine import pose_geometry
from vid2phys.engine.observe import to_bearings
from vid2phys.geometry import Pose, invert_transform, matrix_from_rotvec, of_frames, skew, transform_points
from vid2phys.solvers.camera_parameters import camera_slopes, pose_as_fitted, values_of
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array, ConfigurationMeasurement, Parameters

AXES = np.vstack([np.zeros(3), np.eye(3)])  # m, points that tell a rigid body's pose: its origin, and one on each axis
_STEP = 1e-6  # of differences: rad, and shares of the distance
Frames = NDArray[np.int64] | slice


def coordinates(problem: Problem) -> int:
    """Return the number D of local coordinates of a measured configuration; 0 where none was measured."""
    measured = problem.observation.configuration
    return 0 if measured is None else measured.covariance.shape[-1]


def residual(problem: Problem, parameters: Parameters, states: Array) -> Array:
    """Return the step [..., F, D] from the measured configurations to those of states [..., F, N].

    Zero in frames without a measured configuration. Fewer states than frames are those of the first frames.
    """
    measured, count = problem.observation.configuration, states.shape[-2]
    if measured is None:
        return np.zeros((*states.shape[:-1], 0))
    at = np.flatnonzero(measured.measured[:count])
    step = np.zeros((*states.shape[:-1], coordinates(problem)))
    if isinstance(measured.configuration, Pose):
        step[..., at, :] = measured.pose[at].step_to(_apparent_poses(problem, parameters, states[..., at, :], at))
    else:
        assert problem.body is not None
        step[..., at, :] = problem.body.configurations(states[..., at, :]) - measured.configuration[at]
    return step


def linear(problem: Problem, parameters: Parameters, states: Array) -> tuple[Array, Array, Array]:
    """Return `residual` [F, D] of a rigid body's states [F, N], and its derivatives.

    These are by the tangent of the state [F, D, n], and by the free camera parameters in solver coordinates [F, D, V].
    """
    measured = problem.observation.configuration
    step = np.zeros((len(states), coordinates(problem)))
    by_state = np.zeros((*step.shape, len(problem.system.tangent_names)))
    if measured is not None:
        at = np.flatnonzero(measured.measured[: len(states)])
        scale, focal = _scale_and_focal(parameters)
        pose, pose_by_state = _linear_poses(problem, parameters, states[at], at)

        def step_to(moved: Pose) -> Array:
            return measured.pose[at].step_to(apparent(moved, scale, focal))

        step[at], by_state[at] = step_to(pose), _by_pose(step_to, pose) @ pose_by_state
    by_camera = camera_slopes(lambda moved: residual(problem, moved, states), parameters, step.shape)
    return step, by_state, by_camera


def image_points(problem: Problem) -> tuple[Array, NDArray[np.bool_]]:
    """Return the bearings of the keypoints [F, K, 2], and whether these are known [F, K].

    They are those of the measured configurations, in the camera without fitted parameters; elsewhere the detected ones.
    """
    seen, measured = problem.observation, problem.observation.configuration
    if measured is None or isinstance(measured.configuration, Pose):
        return pose_geometry.image_points(seen)
    assert problem.body is not None
    at = transform_points(invert_transform(problem.camera_to_world), problem.body.points(measured.configuration))
    here = measured.measured[:, None]
    return np.where(here[..., None], to_bearings(at), seen.bearings), seen.visible | here


def measured_at(problem: Problem, states: Array, errors: Array) -> ConfigurationMeasurement:
    """Return the configurations of states [F, N], as measured with errors [F, D] in local coordinates."""
    measured = problem.observation.configuration
    assert measured is not None
    if isinstance(measured.configuration, Pose):
        at: Pose | Array = _apparent_poses(problem, problem.parameters, states, slice(None)).retract(errors)
    else:
        assert problem.body is not None
        at = problem.body.configurations(states) + errors
    return replace(measured, configuration=at)


def poses(problem: Problem, parameters: Parameters, states: Array, frames: Frames) -> Pose:
    """Return the poses camera_from_body [..., n] of a rigid body's states [..., n, N] in frames, before `apparent`."""
    to_camera = invert_transform(of_frames(pose_as_fitted(problem.camera_to_world, parameters), frames))
    at = transform_points(to_camera, problem.system.keypoints(states, AXES))
    return Pose(np.swapaxes(at[..., 1:, :] - at[..., :1, :], -1, -2), at[..., 0, :])


def apparent(pose: Pose, scale: float, focal: float) -> Pose:
    """Return the poses [...] that look the same at the mesh's own scale and the calibrated focal length.

    Args:
        pose: camera_from_body [...] of the body that is `scale` times as large as its mesh.
        scale: fitted scale of the body.
        focal: fitted focal length over the calibrated one.
    """
    return pose.moved_along_sight(1.0 / (scale * np.array([1.0, 1.0, focal])))


def _apparent_poses(problem: Problem, parameters: Parameters, states: Array, frames: Frames) -> Pose:
    scale, focal = _scale_and_focal(parameters)
    return apparent(poses(problem, parameters, states, frames), scale, focal)


def _linear_poses(problem: Problem, parameters: Parameters, states: Array, frames: Frames) -> tuple[Pose, Array]:
    """Return the poses [F] of states in frames, and how they move with the tangent of the state, [F, 6, n].

    The first three rows are a rotation about the camera's axes [rad], the others a translation along them [m].
    """
    pose = poses(problem, parameters, states, frames)
    to_camera = invert_transform(of_frames(pose_as_fitted(problem.camera_to_world, parameters), frames))
    points = to_camera[..., None, :3, :3] @ problem.system.keypoints_jacobian(states, AXES)  # [F, 4, 3, n]
    axes = np.swapaxes(pose.rotation, -1, -2)
    rotation = 0.5 * (skew(axes) @ (points[:, 1:] - points[:, :1])).sum(axis=1)
    return pose, np.concatenate([rotation, points[:, 0]], axis=1)


def _by_pose(function: Callable[[Pose], Array], pose: Pose) -> Array:
    """Return the derivative [F, D, 6] of values [F, D] of poses [F] by the rows of `_linear_poses`."""
    columns = []
    distance = np.linalg.norm(pose.translation, axis=-1)[:, None]
    for unit in np.eye(6):
        rotation, moved = matrix_from_rotvec(_STEP * unit[:3]), _STEP * distance * unit[3:]
        ahead = function(Pose(rotation @ pose.rotation, pose.translation + moved))
        behind = function(Pose(rotation.T @ pose.rotation, pose.translation - moved))
        width = 2.0 * _STEP * (distance if unit[3:].any() else 1.0)
        columns.append((ahead - behind) / width)
    return np.stack(columns, axis=-1)


def _scale_and_focal(parameters: Parameters) -> tuple[float, float]:
    values = values_of(parameters)
    return values.get("scale", 1.0), values.get("focal", 1.0)

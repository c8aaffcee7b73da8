"""Camera parameters: the body's scale, the focal length and the camera's pose as unknowns.

Purpose: these parameters stand beside those of the system, at the end of a problem's. They change the image of a state
and nothing of the motion. A body twice as large and twice as far away gives the same image. Only gravity, recorded
forces or a base at a known place, which are in metres, tell the two apart.

Limits: `scale` enlarges the body's points alone, and leaves its inertia. `focal` enlarges undistorted bearings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.types import Array, Camera, Mesh, Observation, Parameter, Parameters

_HALF_TURN = float(np.pi)
_STEP = 1e-6  # of differences, in solver coordinates
SCALE = Parameter("scale", "1", 1.0, 1e-3, 1e3, "log")  # of the body over that of its mesh
CAMERA = (
    Parameter("focal", "1", 1.0, 0.1, 10.0, "log"),  # length over that of the calibration
    *(Parameter(f"camera_turn_{axis}", "rad", 0.0, -_HALF_TURN, _HALF_TURN) for axis in "xyz"),  # about world axes
    *(Parameter(f"camera_move_{axis}", "m", 0.0, -1e3, 1e3) for axis in "xyz"),  # along world axes
)
NAMES = tuple(p.name for p in (SCALE, *CAMERA))
GROUPS = {"camera": tuple(p.name for p in CAMERA)}


def expand_groups(names: tuple[str, ...], groups: Mapping[str, tuple[str, ...]] = GROUPS) -> tuple[str, ...]:
    """Return names of parameters, each once, with the names of groups replaced by their parameters."""
    return tuple(dict.fromkeys(one for name in names for one in groups.get(name, (name,))))


def with_camera_parameters(parameters: Parameters, names: tuple[str, ...]) -> Parameters:
    """Return the parameters, with the camera parameters at the end if `names` has any of them."""
    if SCALE.name in parameters.names or not set(names) & set(NAMES):
        return parameters
    return Parameters((*parameters, SCALE, *CAMERA))


def system_vector(parameters: Parameters) -> Array:
    """Return the values in SI [P] that the engine needs: all but the camera parameters."""
    return np.array([p.value for p in parameters if p.name not in NAMES])


def values_of(parameters: Parameters) -> dict[str, float]:
    """Return the values of the camera parameters by name; none where a problem has no camera parameters."""
    return {p.name: p.value for p in parameters if p.name in NAMES}


def camera_slopes(function: Callable[[Parameters], Array], parameters: Parameters, shape: tuple[int, ...]) -> Array:
    """Return the derivatives [..., V] of a function's values [...] by the V free camera parameters.

    These are central differences in solver coordinates. shape: of the values.
    """
    free = [p for p in parameters if p.free and p.name in NAMES]
    slopes = np.zeros((*shape, len(free)))
    for j, parameter in enumerate(free):
        at = parameter.to_free(parameter.value)
        ahead, behind = (
            function(parameters.with_values({parameter.name: parameter.from_free(at + step)}))
            for step in (_STEP, -_STEP)
        )
        slopes[..., j] = (ahead - behind) / (2.0 * _STEP)
    return slopes


def camera_pose(camera_to_world: Array, values: dict[str, float]) -> Array:
    """Return the pose [4, 4] rotated about its centre and translated, both along the world's axes.

    The poses of a camera that moves [F, 4, 4] rotate together, about the place of the first one.
    """
    rotvec, move = (np.array([values[f"camera_{what}_{axis}"] for axis in "xyz"]) for what in ("turn", "move"))
    pose, rotation = camera_to_world.copy(), matrix_from_rotvec(rotvec)
    pose[..., :3, :3] = rotation @ pose[..., :3, :3]
    if pose.ndim == 3:
        pose[:, :3, 3] = pose[0, :3, 3] + (pose[:, :3, 3] - pose[0, :3, 3]) @ rotation.T
    pose[..., :3, 3] += move
    return pose


def pose_as_fitted(camera_to_world: Array, parameters: Parameters) -> Array:
    """Return `camera_pose` at the camera parameters of a problem; the same pose where the problem has none."""
    values = values_of(parameters)
    return camera_pose(camera_to_world, values) if values else camera_to_world


def observation_as_fitted(observation: Observation, parameters: dict[str, float]) -> Observation:
    """Return the observation for the fitted camera and the fitted scale of the body."""
    if not set(NAMES) <= set(parameters):
        return observation
    focal, scale, part = parameters["focal"], parameters["scale"], observation.configuration
    if part is not None and isinstance(part.configuration, Pose):
        part = replace(part, configuration=part.pose.moved_along_sight(scale * np.array([1.0, 1.0, focal])))
    return replace(
        observation,
        configuration=part,
        bearings=observation.bearings / focal,
        covariance=observation.covariance / focal**2,
        shared_basis=observation.shared_basis / focal,
        points_body=scale * observation.points_body,
    )


def as_fitted(camera: Camera, mesh: Mesh, parameters: dict[str, float]) -> tuple[Camera, Mesh]:
    """Return camera and mesh with the fitted values; the same ones where no camera parameter was fitted."""
    if camera.camera_to_world is None or not set(NAMES) <= set(parameters):
        return camera, mesh
    K = camera.K.copy()
    K[:2, :2] *= parameters["focal"]
    camera = replace(camera, K=K, camera_to_world=camera_pose(camera.camera_to_world, parameters))
    return camera, replace(mesh, vertices=parameters["scale"] * mesh.vertices)

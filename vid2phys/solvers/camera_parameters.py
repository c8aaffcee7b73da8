"""What may be unknown about the image itself: how big the body is, the focal length, and where the camera stands.

These are parameters beside those of the system, at the end of a problem's: they change what is seen of a state, and
nothing of the motion. A body twice as large, twice as far away, gives the same image; only what happens in metres
(gravity, recorded forces, a base at a known place) tells the two apart.

Limits: `scale` enlarges the body's points alone, its inertia stays as it is. `focal` enlarges undistorted bearings.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vid2phys.geometry import matrix_from_rotvec
from vid2phys.types import Array, Camera, Mesh, Observation, Parameter, Parameters

_HALF_TURN = float(np.pi)
SCALE = Parameter("scale", "1", 1.0, 1e-3, 1e3, "log")  # of the body over that of its mesh
CAMERA = (
    Parameter("focal", "1", 1.0, 0.1, 10.0, "log"),  # length over that of the calibration
    *(Parameter(f"camera_turn_{axis}", "rad", 0.0, -_HALF_TURN, _HALF_TURN) for axis in "xyz"),  # about world axes
    *(Parameter(f"camera_move_{axis}", "m", 0.0, -1e3, 1e3) for axis in "xyz"),  # along world axes
)
NAMES = tuple(p.name for p in (SCALE, *CAMERA))
GROUPS = {"camera": tuple(p.name for p in CAMERA)}


def expanded(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of parameters, `camera` being all of those of the camera; each once."""
    return tuple(dict.fromkeys(one for name in names for one in GROUPS.get(name, (name,))))


def with_view(parameters: Parameters, names: tuple[str, ...]) -> Parameters:
    """The parameters, and those of the image if any of `names` is one."""
    return Parameters((*parameters, SCALE, *CAMERA)) if set(names) & set(NAMES) else parameters


def of_system(parameters: Parameters) -> Array:
    """What the engine reads: all values in SI but those of the image, [P]."""
    return np.array([p.value for p in parameters if p.name not in NAMES])


def camera_pose(camera_to_world: Array, values: dict[str, float]) -> Array:
    """The pose [4, 4] turned about its centre and moved, both along the world's axes."""
    turn, move = (np.array([values[f"camera_{what}_{axis}"] for axis in "xyz"]) for what in ("turn", "move"))
    pose = camera_to_world.copy()
    pose[:3, :3] = matrix_from_rotvec(turn) @ pose[:3, :3]
    pose[:3, 3] += move
    return pose


def folded(observation: Observation, parameters: dict[str, float]) -> Observation:
    """The observation as the fitted camera has it, of the body as large as it was fitted."""
    if not set(NAMES) <= set(parameters):
        return observation
    focal = parameters["focal"]
    return replace(
        observation,
        bearings=observation.bearings / focal,
        covariance=observation.covariance / focal**2,
        shared_basis=observation.shared_basis / focal,
        points_body=parameters["scale"] * observation.points_body,
    )


def as_fitted(camera: Camera, mesh: Mesh, parameters: dict[str, float]) -> tuple[Camera, Mesh]:
    """Camera and mesh as the fit has them; the same ones where nothing of the image was fitted."""
    if camera.camera_to_world is None or not set(NAMES) <= set(parameters):
        return camera, mesh
    K = camera.K.copy()
    K[:2, :2] *= parameters["focal"]
    camera = replace(camera, K=K, camera_to_world=camera_pose(camera.camera_to_world, parameters))
    return camera, replace(mesh, vertices=parameters["scale"] * mesh.vertices)

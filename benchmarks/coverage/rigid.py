"""What flights of rigid bodies share: a camera, poses with a tracker's errors, and the fit of `identify`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vid2phys.commands.fit_parameters import fixed_parameters, size_std, with_camera_errors, with_unknown_size
from vid2phys.commands.identify import pipeline
from vid2phys.commands.identify.config import FitOptions
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.engine.pnp import PoseEstimate
from vid2phys.engine.pose_geometry import diameter_px, project_points
from vid2phys.engine.system import System
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, invert_transform, look_at, make_transform, matrix_from_quat
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.io.mesh import mass_properties
from vid2phys.solvers.gauss_markov import draw_first_order
from vid2phys.tracking.measured import with_poses
from vid2phys.tracking.track import Track
from vid2phys.types import Actions, Array, Camera, Clip, Mesh, Result

STD = np.array([0.010, 0.010, 0.010, 4e-4, 4e-4, 6e-3])
"""Standard deviations of poses, as `Pose.retract` has them: rad, shares of the distance, log distance."""
INDEPENDENT_SHARE = 0.5  # of a standard deviation, as `tracking.mesh_tracker` states it
_POINTS = 0.05 * np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0], [0, -1, 0], [1, 1, 1]])


def camera_at(place: Array, towards: Array) -> Camera:
    """Return a camera of 640x480 pixels at a place [3] that looks towards another one."""
    K = np.array([[700.0, 0.0, 319.5], [0.0, 700.0, 239.5], [0.0, 0.0, 1.0]])
    return Camera(K, 640, 480, camera_to_world=look_at(place, towards))


def camera_beside(states: Array, far_m: float, towards: Array) -> Camera:
    """Return a camera that sees the motion of states [T, N] from `far_m` and more.

    towards: [3], from the middle of the motion to the camera, of about unit length.
    """
    middle = states[:, :3].mean(axis=0)
    far_m += np.linalg.norm(states[:, :3] - middle, axis=1).max()
    return camera_at(middle + far_m * towards, middle)


def identified(
    rng: np.random.Generator,
    system: System,
    mesh: Mesh,
    camera: Camera,
    times_s: Array,
    states: Array,
    fit: tuple[str, ...],
    given: dict[str, float],
    actions: Actions | None,
    true_camera: Camera | None = None,
) -> Result:
    """Return what `identify` makes of true states [T, N] whose poses are seen with errors (`seen`).

    camera: that of the camera file. true_camera: the one that films, where the file errs.
    """
    inputs = read(system, mesh, camera, times_s, fit, given, actions)
    filming = camera if true_camera is None else true_camera
    poses = in_camera(replace(inputs, camera_to_world=np.asarray(filming.camera_to_world, float)), states)
    poses = poses.moved_along_sight(np.array([1.0, 1.0, camera.K[0, 0] / filming.K[0, 0]]))
    std = size_std(diameter_px(float(camera.K[0, 0]), mesh.radius_m, poses.translation)) if "gravity" in fit else 0.0
    track = seen(rng, times_s, poses, std)
    return pipeline.solve([inputs], [track], FitOptions(fit=fit, refine=False))


def read(
    system: System,
    mesh: Mesh,
    camera: Camera,
    times_s: Array,
    fit: tuple[str, ...],
    given: dict[str, float],
    actions: Actions | None = None,
) -> Inputs:
    """Return the inputs of a clip without frames.

    fit: names of parameters; with gravity, the size of the body is unknown, too. given: known ones.
    """
    blank = ArrayFrames(np.zeros((len(times_s), camera.height, camera.width, 3), np.uint8))
    clip = Clip(blank, times_s, camera.width, camera.height, "drawn")
    known = fixed_parameters(system, mass_properties(mesh), given, fit, actions)
    known = with_camera_errors(known, camera)
    known = with_unknown_size(known) if "gravity" in fit else known
    return Inputs(clip, mesh, camera, np.asarray(camera.camera_to_world, float), system, actions, None, known, ())


def in_camera(inputs: Inputs, states: Array) -> Pose:
    """Return the poses camera_from_body [T] of states [T, N]."""
    at, quats = inputs.system.body_pose(states)
    poses = invert_transform(inputs.camera_to_world) @ make_transform(matrix_from_quat(quats), at)
    return Pose(poses[:, :3, :3], poses[:, :3, 3])


def seen(rng: np.random.Generator, times_s: Array, true: Pose, size_std: float = 0.0) -> Track:
    """Return the track of true poses camera_from_body [T], with errors as a body without a model has them.

    size_std: of the logarithm of the distance, for the whole clip.
    """
    calibration, count = Calibration(), len(times_s)
    correlation_s = np.array(calibration.contour_correlation_s)
    errors = STD * draw_first_order(rng, times_s, correlation_s)
    errors += INDEPENDENT_SHARE * STD * rng.normal(size=errors.shape)
    if size_std:
        errors[:, 5] += size_std * rng.normal()
    poses = true.retract(errors)
    track = Track.of_nothing(times_s, _POINTS, calibration, np.zeros(1))
    frames, basis = np.arange(count), np.tile(np.diag(STD), (count, 1, 1))
    own = np.tile(np.diag((INDEPENDENT_SHARE * STD) ** 2), (count, 1, 1))
    observation = with_poses(track.observation, frames, poses, basis, correlation_s, "silhouette", own)
    zeros = np.zeros(count)
    estimate = PoseEstimate(
        poses, np.tile(np.diag(STD**2), (count, 1, 1)), zeros, zeros, np.zeros((count, len(_POINTS)), bool)
    )
    return replace(
        track,
        observation=replace(observation, bearings=project_points(poses, _POINTS)),
        poses=estimate,
        tracked=np.ones(count, bool),
        quality=np.ones(count),
        element=np.zeros(count, np.int64),
    )

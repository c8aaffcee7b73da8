"""The inputs of methods: virtual cameras about where a tracker would look, and detections of networks in them.

All methods get the same inputs. A rigid body is seen about its true place, up to a tracker's errors, a body on a known
base in its known workspace. Limits: the first state is known.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.experiments import Experiment
from experiments.footage import Footage
from experiments.rigid import ASIDE, SIZE
from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.virtual_camera import View, in_frame, make_view, view_to_bearings
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.geometry import Pose, invert_transform, matrix_from_quat
from vid2phys.indices import nearest
from vid2phys.risp.networks.model import Model
from vid2phys.solvers.rendering import Scene, Views, fit_light
from vid2phys.tracking.articulated.detector import Window
from vid2phys.tracking.articulated.tracker import ConfigurationTrack, track_configurations
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.texture import SurfaceTexture
from vid2phys.tracking.detectors.network import detect, direction_and_size
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.hypotheses import TEMPERATURES, Evidence, relabelled
from vid2phys.tracking.single_image import TexturedBody, refine_single_images
from vid2phys.tracking.symmetry_evidence import symmetry_evidence
from vid2phys.tracking.track import Track
from vid2phys.tracking.tracker import TrackingInputs, corrected, label
from vid2phys.tracking.uncertainty.articulated import first_calibration
from vid2phys.types import Array, Camera, Observation

_HYPOTHESES = 3
_LEAST_POINTS = 6
_LOOK = 6  # stream of random numbers
_READING_RAD, _MOST_NATS = np.radians(10.0), 50.0  # of a frame's orientation: how far it is read off, most of its cost


def places(experiment: Experiment, seed: int) -> tuple[Array, Array]:
    """Return where a tracker would look for a rigid body in the frames shown: bearings [n, 2] and angular radii [n], a
    few per cent off.
    """
    at, _ = experiment.plan.system.body_pose(experiment.states)
    centers, radii = looked_for(experiment.camera, at, experiment.radius_m, seed)
    return centers[experiment.shown], radii[experiment.shown]


def looked_for(camera: Camera, positions: Array, radius_m: float, seed: int) -> tuple[Array, Array]:
    """Return where a tracker would look for bodies of a radius at [F, 3] m in the world: as `places`, in all frames."""
    pose = invert_transform(np.asarray(camera.camera_to_world))
    centers, radii = direction_and_size(positions @ pose[:3, :3].T + pose[:3, 3], radius_m)
    error = np.random.default_rng([seed, _LOOK]).normal(size=(len(positions), 3)) * [ASIDE, ASIDE, SIZE]
    aside = centers + 3.0 * error[:, :2] * np.tan(radii)[:, None]  # views: 3 radii wide
    return aside, radii * np.exp(error[:, 2])


def views_of(experiment: Experiment, footage: Footage, size: int, seed: int) -> Views:
    """Return the views of the frames shown, `size` px wide, with what is behind the body."""
    camera, count = experiment.camera, len(footage.frames)
    if experiment.articulated is not None:
        views = [Window.of(camera, experiment.articulated, size).view] * count
        return _through(views, camera, experiment.shown, footage)
    return views_about(camera, *places(experiment, seed), experiment.shown, footage, size)


def views_about(
    camera: Camera, centers: Array, radii: Array, frames: NDArray[np.int64], footage: Footage, size: int
) -> Views:
    """Return the views of the footage, frames [n] of a clip, about bearings [n, 2], three angular radii [n] wide and
    `size` px.
    """
    looked = zip(centers, radii, strict=True)
    views = [make_view(camera, center, float(radius), size) for center, radius in looked]
    return _through(views, camera, frames, footage)


def _through(views: list[View], camera: Camera, frames: NDArray[np.int64], footage: Footage) -> Views:
    grid = np.stack(np.meshgrid(*[np.arange(views[0].size)] * 2), axis=-1).astype(float)
    known = np.stack([in_frame(camera, view_to_bearings(view, grid)[0]) for view in views])
    return Views.through(views, camera, frames, footage.frames, footage.backdrop, known)


def scene_of(experiment: Experiment, views: Views) -> Scene:
    """Return body before the video's own backdrop, in colours that explain the first frame, whose state is known."""
    system = experiment.plan.system
    begin = torch.from_numpy(experiment.states[:1].copy())
    known = fit_light(system, experiment.mesh, views.some(slice(1)), begin, texture=False)
    return Scene(system, experiment.mesh, views, known.light)


def observation_of(experiment: Experiment, footage: Footage, model: Model, seed: int) -> Observation:
    """Return the keypoints of all frames with their error model, as `identify` has them after contour refinement.

    Those of frames that are not shown are not visible. Raises InputError when the network reads the body in no frame.
    """
    if experiment.articulated is not None:
        return _spread(experiment, configuration_track(experiment, experiment.articulated, footage, model).observation)
    return _spread(experiment, pose_track(experiment, footage, model.scaled(experiment.scale), seed).observation)


def _spread(experiment: Experiment, seen: Observation) -> Observation:
    """Return what was seen in the frames shown, at its place among all frames; the others are as their nearest
    neighbours, but nothing in them is visible.
    """
    times, shown = experiment.plan.times_s, experiment.shown
    if len(shown) == len(times):
        return seen
    places = nearest(len(times), shown)
    hidden = ~np.isin(np.arange(len(times)), shown)
    clock = np.interp(times, times[shown], seen.error_clock_s)
    return replace(seen[places], times_s=times, error_clock_s=clock).without(hidden)


def configuration_track(
    experiment: Experiment, body: ArticulatedBody, footage: Footage, model: Model
) -> ConfigurationTrack:
    """Return the configurations in the frames shown. Raises InputError when they are read in none."""
    calibration = Calibration.from_dict(model.calibration) if model.calibration else first_calibration(body)
    clip = footage.clip(experiment.plan.times_s[experiment.shown])
    return track_configurations(clip, experiment.camera, model, body, calibration=calibration)


def pose_track(experiment: Experiment, footage: Footage, model: Model, seed: int) -> Track:
    """Return the poses in the frames shown, by a model of the body's size. Raises InputError when they are read in
    none.
    """
    camera, mesh, times = experiment.camera, experiment.mesh, experiment.plan.times_s[experiment.shown]
    calibration, frames = Calibration.from_dict(model.calibration), list(footage.frames)
    seen = detect(model, camera, frames, *places(experiment, seed), calibration, hypotheses=_HYPOTHESES)
    texture = SurfaceTexture.of(mesh, model.rotations, model.center)
    textured = np.zeros((*seen.poses.cost.shape, len(model.rotations)))
    if texture is not None:
        textured = texture.evidence(seen, frames, camera)
    enough = seen.poses.inliers[:, 0].sum(axis=-1) >= _LEAST_POINTS
    good = enough & (seen.quality[:, 0] >= calibration.min_quality)
    if not good.any():
        raise InputError("the network read the body in no frame", "a network that knows it", "train it longer")
    read, indices = seen.select(good), np.flatnonzero(good)
    nats = textured[good]
    if not model.shape.exact and indices[0] == 0:  # the first state is known
        nats[0] += _known_nats(_known_rotation(experiment), read.poses.rotation[0], model.rotations)
    evidence = [Evidence("texture", nats, TEMPERATURES.texture)]
    evidence += symmetry_evidence(frames, indices, read, camera, Solid.of(mesh), model.shape)
    inputs = TrackingInputs(camera=camera, model=model, calibration=calibration, mesh=mesh)
    found = label(times, indices, read, evidence, inputs)
    clip = footage.clip(times)
    store = FrameStore(clip.frames, clip.width, clip.height)
    found = _in_known_branch(experiment, corrected(found, store, inputs), model)
    if texture is None:
        return found
    return refine_single_images(
        store, camera, TexturedBody.of(mesh, texture, model.rotations, model.center), found, calibration
    )


def _known_nats(known: Array, rotation: Array, rotations: Array) -> Array:
    """Return the nats [H, G] of orientations R @ rotations[g]^T, R: [H, 3, 3], of a body whose orientation [3, 3] is
    known.
    """
    turned = rotation[:, None] @ np.swapaxes(rotations, -1, -2)
    trace = np.einsum("ij,hgij->hg", known, turned)
    angle = np.arccos(np.clip(0.5 * (trace - 1.0), -1.0, 1.0))
    return np.asarray(-np.minimum(0.5 * (angle / _READING_RAD) ** 2, _MOST_NATS))


def _known_rotation(experiment: Experiment) -> Array:
    """Return camera_from_body of the body in the first of the frames shown, [3, 3]."""
    pose = invert_transform(np.asarray(experiment.camera.camera_to_world))
    _, quats = experiment.plan.system.body_pose(experiment.states[experiment.shown[0]])
    return np.asarray(pose[:3, :3] @ matrix_from_quat(quats))


def _in_known_branch(experiment: Experiment, found: Track, model: Model) -> Track:
    """Relabel a symmetric body by its first state, which is known: by the symmetry element that is nearest to it.

    Where the first frame is lost, nothing is known of a later one: the motion alone names what is read.
    """
    if not found.tracked[0]:
        return found
    known = _known_rotation(experiment)
    rotations, poses = model.rotations, found.poses
    turned = poses.rotation[0] @ np.swapaxes(rotations, -1, -2)
    nearest = int(np.argmax(np.einsum("ij,gij->g", known, turned)))
    rotation = poses.rotation @ rotations[nearest].T
    translation = poses.translation + (poses.rotation - rotation) @ model.center
    return replace(
        found,
        observation=relabelled(found.observation, model.permutation[nearest], rotations[nearest], model.center),
        poses=replace(poses, pose=Pose(rotation, translation)),
    )

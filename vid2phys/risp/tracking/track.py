"""From a clip to keypoint observations with an error model: find, follow, read again, join, label.

First pass (`follow`): where the object is in every frame. Second pass: all frames again in batches, in views centred
on the smoothed path. Then one pose hypothesis and one symmetry element a frame by continuity, the branch of the whole
clip by appearance (`branch`), and covariances by the model's calibration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.risp.calibration.error_model import Calibration
from vid2phys.risp.pixels.outlined import outlined
from vid2phys.risp.shape.groups import offsets
from vid2phys.risp.tracking.branch import Branches, front_evidence, join
from vid2phys.risp.tracking.follow import Follower, FrameStore, smooth_path
from vid2phys.risp.tracking.geometry import pose_modes
from vid2phys.risp.tracking.motion import Background
from vid2phys.risp.tracking.pose import Pose
from vid2phys.risp.tracking.search import Watch
from vid2phys.risp.tracking.sight import Sightings
from vid2phys.types import Array, Camera, Clip, Mesh, Observation

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model

_BATCH = 16
_HYPOTHESES = 3
_MIN_POINTS = 6
_TILT_CAP_NATS = 8.0


@dataclass(frozen=True)
class Track:
    """What was seen of an object in a clip of T frames.

    observation: keypoints with the true labels of the chosen branch. poses: [T] camera_from_body of each frame by
    itself (NaN where lost). tracked: [T]. quality: [T] in 0..1. element: [T] symmetry element that the network labelled
    the frame with, -1 where lost. branch_log_likelihood: [G] nats of the clip if every orientation R were R @
    rotations[g]^T, the chosen branch (g = 0) first. readings: the observation before outlines corrected it; None: they
    did not.
    """

    observation: Observation
    poses: Pose
    tracked: NDArray[np.bool_]
    quality: Array
    element: NDArray[np.int64]
    branch_log_likelihood: Array
    readings: Observation | None = None

    @property
    def network(self) -> Observation:
        """What the network read by itself, to be joined with other evidence of the same pixels."""
        return self.observation if self.readings is None else self.readings

    @property
    def lost_frames(self) -> NDArray[np.int64]:
        """Indices of the frames in which the object was not found."""
        return np.flatnonzero(~self.tracked)


def track(
    clip: Clip,
    camera: Camera,
    model: Model,
    radius_m: float,
    *,
    calibration: Calibration | None = None,
    tilt_std_rad: float | None = None,
    mesh: Mesh | None = None,
    progress: Callable[[float], None] | None = None,
) -> Track:
    """Track the object that `model` knows through a clip.

    camera: of the clip, its pose decides what is down in the views. radius_m: of the bounding sphere about the body's
    origin. calibration: the model's own unless given. tilt_std_rad: spread of the angle between the body's z axis and
    up in what the system does (`viewpoints.tilt_spread`); None: any orientation is as likely. mesh: of the object, to
    correct readings by its outline (`outlined`); None: keypoints alone. progress: is told the share of frames done.
    Raises InputError if the object is found in no frame.
    """
    if calibration is None:
        calibration = Calibration.from_dict(getattr(model, "calibration", None))
    frames = FrameStore(clip.frames, clip.width, clip.height)
    watch = Watch(model, camera, Background.of(frames), radius_m, calibration)
    first = Follower(frames, clip.times_s, watch, _part(progress, 0.0, 0.6)).run()
    if not first.found.any():
        raise InputError(
            f"the object was found in none of the {len(clip.times_s)} frames of '{clip.name}'",
            "a clip that shows the object of the mesh",
            "check that the model belongs to the object, and that it is at least 20 pixels wide",
        )
    path = smooth_path(clip.times_s, first.translation)
    indices = np.flatnonzero(np.isfinite(path).all(axis=-1))
    sightings, credible = _read_again(watch, frames, path[indices], indices, _part(progress, 0.6, 0.9))
    good = credible & (sightings.poses.inliers[:, 0].sum(axis=-1) >= _MIN_POINTS)
    if not good.any():
        raise InputError(
            f"the object in '{clip.name}' could not be read",
            "a view like those the model was trained on",
            "train longer",
        )
    found = _label(clip.times_s, indices[good], sightings.select(good), camera, model, calibration, tilt_std_rad)
    if mesh is None:
        return found
    seen, poses = outlined(frames, camera, mesh, found.observation, found.poses, calibration, _part(progress, 0.9, 1.0))
    return replace(found, observation=seen, readings=found.observation, poses=poses)


def _part(progress: Callable[[float], None] | None, start: float, stop: float) -> Callable[[float], None] | None:
    return None if progress is None else lambda share: progress(start + (stop - start) * share)


def _read_again(
    watch: Watch,
    frames: FrameStore,
    path: Array,
    indices: NDArray[np.int64],
    progress: Callable[[float], None] | None,
) -> tuple[Sightings, NDArray[np.bool_]]:
    """All frames in batches, where the smoothed path [N, 3] says: several poses each, and whether to believe them."""
    parts, credible = [], []
    for start in range(0, len(indices), _BATCH):
        batch = slice(start, start + _BATCH)
        pictures = [frames[int(i)] for i in indices[batch]]
        parts.append(watch.look(pictures, path[batch], hypotheses=_HYPOTHESES))
        credible.append(watch.judge(pictures, parts[-1])[0])
        if progress is not None:
            progress((start + len(pictures)) / len(indices))
    return Sightings.join(parts), np.concatenate(credible)


def _label(
    times_s: Array,
    indices: NDArray[np.int64],
    seen: Sightings,
    camera: Camera,
    model: Model,
    calibration: Calibration,
    tilt_std_rad: float | None,
) -> Track:
    """Join the frames that were read and write the observation."""
    front_body = None if model.front is None else model.points_body[model.front]
    evidence = front_evidence(seen.front_logprob, seen.views, seen.poses, model.rotations, front_body, model.center)
    tilt = _tilt_nats(seen.poses, model.rotations, camera, tilt_std_rad)
    branches = join(
        seen.poses,
        times_s[indices],
        model.rotations,
        evidence,
        tilt,
        evidence_divisor=calibration.clip_divisor(len(indices)),
    )
    rows = np.arange(len(indices))
    poses = seen.poses[rows, branches.hypothesis]
    order = model.permutation[branches.element]  # reading k of a frame is true point order[k]
    inverse = np.argsort(order, axis=1)
    rotation = poses.rotation @ np.swapaxes(model.rotations[branches.element], -1, -2)
    aside = offsets(model.rotations[branches.element], model.center)  # rotations[g] moves the origin there
    poses = Pose(
        rotation,
        poses.translation - np.einsum("nij,nj->ni", rotation, aside),
        poses.covariance,
        poses.chi2,
        poses.cost,
        np.take_along_axis(poses.inliers, inverse, 1),
    )
    quality = seen.quality[rows, branches.hypothesis]
    observation = _observe(times_s, indices, seen, poses, quality, inverse, model.points_body, calibration)
    return _assemble(len(times_s), indices, observation, poses, quality, branches)


def _tilt_nats(poses: Pose, rotations: Array, camera: Camera, tilt_std_rad: float | None) -> Array:
    shape = (*poses.cost.shape, len(rotations))
    if tilt_std_rad is None or camera.camera_to_world is None:
        return np.zeros(shape)
    up_in_camera = np.asarray(camera.camera_to_world, dtype=float)[2, :3]
    body_z = poses.rotation[:, :, None] @ np.swapaxes(rotations, -1, -2) @ np.array([0.0, 0.0, 1.0])
    tilt = np.arccos(np.clip(body_z @ up_in_camera, -1.0, 1.0))
    return np.minimum(0.5 * (tilt / tilt_std_rad) ** 2, _TILT_CAP_NATS)


def _observe(
    times_s: Array,
    indices: NDArray[np.int64],
    seen: Sightings,
    poses: Pose,
    quality: Array,
    inverse: NDArray[np.int64],
    points_body: Array,
    calibration: Calibration,
) -> Observation:
    """Everything in the order of the true labels; lost frames hold harmless numbers and are not visible."""
    count, points = len(times_s), len(points_body)
    scale = calibration.mode_scale(seen.diameter_px, quality)
    scale[:, 3:5] *= seen.angular_radius[:, None]  # of the radius to of the range
    modes = pose_modes(poses.rotation, poses.translation, points_body) * scale[:, None, None, :]
    bearings = np.zeros((count, points, 2))
    covariance = np.broadcast_to(np.eye(2), (count, points, 2, 2)).copy()
    basis = np.zeros((count, points, 2, modes.shape[-1]))
    visible = np.zeros((count, points), dtype=bool)
    bearings[indices] = np.take_along_axis(seen.bearings, inverse[..., None], axis=1)
    covariance[indices] = np.take_along_axis(seen.covariance, inverse[..., None, None], axis=1)
    basis[indices] = modes
    visible[indices] = poses.inliers & np.take_along_axis(seen.inside, inverse, axis=1)
    return Observation(
        times_s, bearings, covariance, basis, np.array(calibration.correlation_time_s), visible, points_body
    )


def _assemble(
    count: int,
    indices: NDArray[np.int64],
    observation: Observation,
    poses: Pose,
    quality: Array,
    branches: Branches,
) -> Track:
    def spread(values: Any, fill: float) -> Any:
        out = np.full((count, *values.shape[1:]), fill, dtype=values.dtype)
        out[indices] = values
        return out

    everywhere = Pose(
        spread(poses.rotation, np.nan),
        spread(poses.translation, np.nan),
        spread(poses.covariance, np.nan),
        spread(poses.chi2, np.nan),
        spread(poses.cost, np.inf),
        spread(poses.inliers, False),
    )
    return Track(
        observation,
        everywhere,
        spread(np.ones(len(indices), dtype=bool), False),
        spread(quality, 0.0),
        spread(branches.element, -1),
        branches.log_likelihood,
    )

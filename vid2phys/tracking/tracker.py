"""From a clip to keypoint observations with an error model: find, follow, read again, join, label, fill gaps.

First pass (`first_pass`): where the object is in every frame. Second pass: all frames again in batches, in views
centred on the smoothed path. Then one pose hypothesis and one symmetry element a frame by continuity, the branch of the
whole clip by appearance (`hypotheses`), and covariances by the model's calibration. Frames in between that could not be
read by themselves are read where their neighbours say (`gap_filling`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import one_thread, side_by_side
from vid2phys.engine.pnp import PoseEstimate
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.risp.shape.rotation_groups import offsets
from vid2phys.tracking.contour_refinement import refine_contours
from vid2phys.tracking.cues import ALL_CUES, ActiveCues
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.texture import Paint
from vid2phys.tracking.detectors.network import Detections, Image
from vid2phys.tracking.detectors.search import Watch
from vid2phys.tracking.detectors.texture import painted_detection
from vid2phys.tracking.first_pass import Follower, FrameStore, smooth_path
from vid2phys.tracking.gap_filling import filled
from vid2phys.tracking.hypotheses import front_evidence, join
from vid2phys.tracking.single_image import Lone, settled_alone
from vid2phys.tracking.support import supported
from vid2phys.tracking.symmetry_evidence import turn_evidence
from vid2phys.tracking.texture_refinement import painted
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera, Clip, Mesh

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model

_BATCH = 16
_HYPOTHESES = 3
_MIN_POINTS = 6
_TILT_CAP_NATS = 8.0
_EDGES_SHARE = 0.25  # of what the edges of explained frames tell, that others have to tell


def track(
    clip: Clip,
    camera: Camera,
    model: Model,
    radius_m: float,
    *,
    mesh: Mesh | None = None,
    without: tuple[str, ...] = (),
    **options: Any,
) -> Track:
    """Track the object that `model` knows through a clip; frames whose image does not support the pose are lost.

    Further arguments and errors are those of `candidates`. Without a mesh nothing can be drawn: all candidates count.

    Args:
        clip: frames and times.
        camera: of the clip.
        model: the trained network.
        radius_m: radius of the bounding sphere about the body's origin.
        mesh: of the object.
        without: names of cues to switch off, of `cues.available()`.
        **options: of `candidates`.

    Raises:
        UsageError: for an unknown cue.
        InputError: when the object is found in no frame.
    """
    frames = FrameStore(clip.frames, clip.width, clip.height)
    found = candidates(clip, camera, model, radius_m, mesh=mesh, frames=frames, without=without, **options)
    return found if mesh is None or "support" in without else supported(found, frames, camera, mesh)


@one_thread()
def candidates(
    clip: Clip,
    camera: Camera,
    model: Model,
    radius_m: float,
    *,
    calibration: Calibration | None = None,
    tilt_std_rad: float | None = None,
    mesh: Mesh | None = None,
    paint: Paint | None = None,
    frames: FrameStore | None = None,
    progress: Callable[[float], None] | None = None,
    without: tuple[str, ...] = (),
) -> Track:
    """Find the likeliest pose of an object in each frame of a clip, whether or not the object is there.

    camera: of the clip, its pose decides what is down in the views. radius_m: of the bounding sphere about the body's
    origin. calibration: the model's own unless given. tilt_std_rad: spread of the angle between the body's z axis and
    up in what the system does (`viewpoints.tilt_spread`); None: any orientation is as likely. mesh: of the object, to
    correct detections by its contour (`contour_refinement`) and texture (`texture_refinement`); None: keypoints alone.
    paint: what is on the object, to tell its turns. frames: of the clip, where the caller holds them. progress:
    receives the share of frames done. without: names of cues to switch off. Raises InputError if the object is found
    in no frame, UsageError for an unknown cue.
    """
    cues = ActiveCues.without(without)
    paint = paint if "texture" in cues else None
    if calibration is None:
        calibration = Calibration.from_dict(getattr(model, "calibration", None))
    frames = FrameStore(clip.frames, clip.width, clip.height) if frames is None else frames
    watch = Watch(model, camera, frames.background, radius_m, calibration)
    lone = None if paint is None or mesh is None else Lone.of(mesh, paint, model.rotations, model.center)
    if lone is not None and len(frames) == 1:
        imaged = _imaged(watch, frames, clip.times_s, lone, tilt_std_rad)
        if imaged is not None:
            return imaged
    first = Follower(frames, clip.times_s, watch, _part(progress, 0.0, 0.6)).run()
    if not first.found.any():
        raise InputError(
            f"the object was found in none of the {len(clip.times_s)} frames of '{clip.name}'",
            "a clip that shows the object of the mesh",
            "check that the model belongs to the object, and that it is at least 20 pixels wide",
        )
    path = smooth_path(clip.times_s, first.translation)
    indices = np.flatnonzero(np.isfinite(path).all(axis=-1))
    detections, credible, turns = _read_again(watch, frames, path[indices], indices, paint, _part(progress, 0.6, 0.9))
    good = credible & (detections.poses.inliers[:, 0].sum(axis=-1) >= _MIN_POINTS)
    if not good.any():
        raise InputError(
            f"the object in '{clip.name}' could not be read",
            "a view like those the model was trained on",
            "train longer",
        )
    indices, detections, turns = indices[good], detections.select(good), turns[good]
    if mesh is not None and "symmetry" in cues:
        solid = Solid.of(mesh) if "creases" in cues else Solid.of(mesh).without_creases()
        turns = turns + turn_evidence(frames, indices, detections, camera, solid, model.shape, cues)
    found = label(clip.times_s, indices, detections, turns, camera, model, calibration, tilt_std_rad)
    found = filled(found, watch, frames)
    if mesh is None:
        return found.clocked()
    found = corrected(found, frames, camera, mesh, paint, calibration, _part(progress, 0.9, 1.0), cues)
    return found if lone is None else settled_alone(frames, camera, lone, found, calibration)


def _imaged(watch: Watch, frames: FrameStore, times_s: Array, lone: Lone, tilt_std_rad: float | None) -> Track | None:
    """A painted object in a clip of one frame; None where its paint is not seen."""
    seen = painted_detection(watch, frames[0], lone)
    if seen is None:
        return None
    model, camera, calibration = watch.model, watch.camera, watch.calibration
    turns = lone.paint.evidence(seen, [frames[0]], camera)
    found = label(times_s, np.zeros(1, dtype=np.int64), seen, turns, camera, model, calibration, tilt_std_rad)
    return settled_alone(frames, camera, lone, found.clocked(), calibration)


def corrected(
    found: Track,
    frames: FrameStore,
    camera: Camera,
    mesh: Mesh,
    paint: Paint | None,
    calibration: Calibration,
    progress: Callable[[float], None] | None = None,
    cues: ActiveCues = ALL_CUES,
) -> Track:
    """Return a labelled track, corrected by what is painted on the object, if anything, and by its outline.

    A frame that the paint does not explain is lost, whatever was read there, unless its edges are seen as they are in
    frames that it does explain.
    """
    also = explained = None
    nats = np.full(len(found.tracked), -np.inf)
    if paint is not None:
        also = found.poses
        found, explained = painted(frames, camera, mesh, paint, found, calibration, progress)
    if "contour" in cues:
        found, nats = refine_contours(frames, camera, mesh, found, calibration, cues=cues, also=also, progress=progress)
    if explained is not None:
        least = _EDGES_SHARE * float(np.median(nats[explained])) if explained.any() else np.inf
        found = found.without(found.tracked & ~explained & ~(nats > max(least, 0.0)))
    return found.clocked()


def _part(progress: Callable[[float], None] | None, start: float, stop: float) -> Callable[[float], None] | None:
    return None if progress is None else lambda share: progress(start + (stop - start) * share)


def _read_again(
    watch: Watch,
    frames: FrameStore,
    path: Array,
    indices: NDArray[np.int64],
    paint: Paint | None,
    progress: Callable[[float], None] | None,
) -> tuple[Detections, NDArray[np.bool_], Array]:
    """All frames in batches, where the smoothed path [N, 3] says: several poses each, whether to believe them, and
    what is painted on the body says of its turns, [N, H, G] nats."""
    size = min(_BATCH, frames.at_once)
    starts = range(0, len(indices), size)
    batches = ((slice(k, k + size), [frames[int(i)] for i in indices[k : k + size]]) for k in starts)

    def read(batch: tuple[slice, list[Image]]) -> tuple[Detections, NDArray[np.bool_], Array]:
        rows, images = batch
        seen = watch.look(images, path[rows], hypotheses=_HYPOTHESES)
        shape = (*seen.poses.cost.shape, len(watch.model.rotations))
        turns = np.zeros(shape) if paint is None else paint.evidence(seen, images, watch.camera)
        return seen, watch.judge(images, seen)[0], turns

    parts, credible, painted = [], [], []
    for seen, believed, turns in side_by_side(read, batches):
        parts.append(seen)
        credible.append(believed)
        painted.append(turns)
        if progress is not None:
            progress(len(parts) / len(starts))
    return Detections.join(parts), np.concatenate(credible), np.concatenate(painted)


def label(
    times_s: Array,
    indices: NDArray[np.int64],
    seen: Detections,
    painted: Array,
    camera: Camera,
    model: Model,
    calibration: Calibration,
    tilt_std_rad: float | None,
) -> Track:
    """Join the frames that were read and write the observation."""
    front_body = None if model.front is None else model.points_body[model.front]
    evidence = front_evidence(seen.front_logprob, seen.views, seen.poses, model.rotations, front_body, model.center)
    tilt = _tilt_nats(seen.poses, model.rotations, camera, tilt_std_rad)
    support = (evidence - tilt) / calibration.clip_divisor(len(indices)) + painted
    branches = join(seen.poses, times_s[indices], model.rotations, support)
    rows = np.arange(len(indices))
    poses = seen.poses[rows, branches.hypothesis]
    order = model.permutation[branches.element]  # reading k of a frame is true point order[k]
    inverse = np.argsort(order, axis=1)
    rotation = poses.rotation @ np.swapaxes(model.rotations[branches.element], -1, -2)
    aside = offsets(model.rotations[branches.element], model.center)  # rotations[g] moves the origin there
    poses = PoseEstimate(
        Pose(rotation, poses.translation - np.einsum("nij,nj->ni", rotation, aside)),
        poses.covariance,
        poses.chi2,
        poses.cost,
        np.take_along_axis(poses.inliers, inverse, 1),
    )
    quality = seen.quality[rows, branches.hypothesis]
    lost = Track.of_nothing(times_s, model.points_body, calibration, branches.log_likelihood)
    return lost.seeing(indices, seen, poses, quality, branches.element, inverse, calibration)


def _tilt_nats(poses: PoseEstimate, rotations: Array, camera: Camera, tilt_std_rad: float | None) -> Array:
    shape = (*poses.cost.shape, len(rotations))
    if tilt_std_rad is None or camera.camera_to_world is None:
        return np.zeros(shape)
    up_in_camera = np.asarray(camera.camera_to_world, dtype=float)[2, :3]
    body_z = poses.rotation[:, :, None] @ np.swapaxes(rotations, -1, -2) @ np.array([0.0, 0.0, 1.0])
    tilt = np.arccos(np.clip(body_z @ up_in_camera, -1.0, 1.0))
    return np.minimum(0.5 * (tilt / tilt_std_rad) ** 2, _TILT_CAP_NATS)

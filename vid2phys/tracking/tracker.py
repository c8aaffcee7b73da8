"""From a clip to keypoint measurements with an error model: detect, follow, detect again, choose hypotheses, fill gaps.

The first pass (`first_pass`) finds the place of the object in every frame. The second pass detects all frames again in
batches, in virtual cameras that are centred on the smoothed path. Then one pose hypothesis and one symmetry element per
frame are chosen by the evidence of all cues (`hypotheses`). Frames in which the network is undecided are filled from
the adjacent ones (`gap_filling`). Contour and texture correct the poses. The image decides which frames count
(`support`).

Limits: one object of a known shape; a camera that moves has no motion cue, and motions are continued in its axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
from vid2phys.tracking.cues.texture import SurfaceTexture
from vid2phys.tracking.detectors import Places
from vid2phys.tracking.detectors.network import Detections, Image
from vid2phys.tracking.detectors.search import ObjectDetector
from vid2phys.tracking.detectors.texture import textured_detection
from vid2phys.tracking.first_pass import Follower, smooth_path
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.gap_filling import filled
from vid2phys.tracking.hypotheses import (
    TEMPERATURES,
    Evidence,
    choose_hypotheses,
    cue_evidence,
    front_evidence,
    scored,
    tilt_evidence,
)
from vid2phys.tracking.single_image import SOURCE as SINGLE_IMAGE
from vid2phys.tracking.single_image import TexturedBody, refine_single_images, with_fits
from vid2phys.tracking.support import supported
from vid2phys.tracking.symmetry_evidence import symmetry_evidence
from vid2phys.tracking.texture_refinement import refine_texture
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera, Clip, Mesh

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model

Report = Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class TrackerConfig:
    """Settings of `track` and `candidates`."""

    batch: int = 16
    """Number of frames that the network sees at once."""
    hypotheses: int = 3
    """Number of pose hypotheses of a frame."""
    min_points: int = 6
    """Least number of inlier keypoints of a tracked frame."""
    edge_share: float = 0.25
    """Least evidence of the edges of a frame that the texture does not explain, as a share of that of the others."""


DEFAULTS = TrackerConfig()


@dataclass(frozen=True, kw_only=True)
class TrackingInputs:
    """All that is known of the object and its clip beside the frames.

    Attributes:
        camera: of the clip; its pose says which way is down.
        model: the trained network.
        calibration: error model; None takes the model's own.
        tilt_std_rad: standard deviation of the angle between the body's z axis and up in the motions of the system
            (`viewpoints.tilt_spread`); None: all orientations are equally probable.
        mesh: of the object, for contour and texture; None: keypoints alone.
        texture: of the mesh, if it has one.
        cues: cues in use.
        shown: where the user shows the object, in a clip of a single image.
        config: settings.
    """

    camera: Camera
    model: Model
    calibration: Calibration
    tilt_std_rad: float | None = None
    mesh: Mesh | None = None
    texture: SurfaceTexture | None = None
    cues: ActiveCues = ALL_CUES
    shown: Places | None = None
    config: TrackerConfig = DEFAULTS

    @staticmethod
    def of(
        camera: Camera,
        model: Model,
        *,
        calibration: Calibration | None = None,
        without: tuple[str, ...] = (),
        texture: SurfaceTexture | None = None,
        **given: Any,
    ) -> TrackingInputs:
        """Return the inputs with the model's error model and without some cues; texture: that of the mesh.

        Raises:
            UsageError: for an unknown cue.
        """
        if calibration is None:
            calibration = Calibration.from_dict(getattr(model, "calibration", None))
        cues = ActiveCues.without(without)
        texture = texture if "texture" in cues else None
        return TrackingInputs(camera=camera, model=model, calibration=calibration, texture=texture, cues=cues, **given)


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
    """Track the object of `model` through a clip; frames whose image does not support the pose are lost.

    Args:
        clip: frames and times.
        camera: of the clip.
        model: the trained network.
        radius_m: radius of the bounding sphere about the body's origin, m.
        mesh: of the object. Without a mesh nothing can be drawn, and all candidates count.
        without: names of cues to switch off, of `cues.available()`.
        **options: of `candidates`.

    Raises:
        UsageError: for an unknown cue.
        InputError: when the object is found in no frame.
    """
    frames = FrameStore.of(clip)
    found = candidates(clip, camera, model, radius_m, mesh=mesh, frames=frames, without=without, **options)
    if mesh is None or "support" in without or (options.get("shown") is not None and _is_explained(found)):
        return found
    return supported(found, frames, camera, mesh)


def _is_explained(found: Track) -> bool:
    """Return whether the object's texture explains its pose in a single image, whatever the network makes of it."""
    measured = found.observation.configuration
    return len(found.tracked) == 1 and measured is not None and measured.source == SINGLE_IMAGE


@one_thread()
def candidates(
    clip: Clip,
    camera: Camera,
    model: Model,
    radius_m: float,
    *,
    frames: FrameStore | None = None,
    progress: Report | None = None,
    **options: Any,
) -> Track:
    """Find the most likely pose of an object in each frame of a clip, whether or not the object is there.

    Args:
        clip: frames and times.
        camera: of the clip.
        model: the trained network.
        radius_m: radius of the bounding sphere about the body's origin, m.
        frames: of the clip, where the caller has them.
        progress: receives the share of frames done.
        **options: of `TrackingInputs.of`: calibration, tilt_std_rad, mesh, texture, without, shown, config.

    Raises:
        UsageError: for an unknown cue.
        InputError: when the object is found in no frame.
    """
    inputs = TrackingInputs.of(camera, model, **options)
    mesh, texture, times_s = inputs.mesh, inputs.texture, clip.times_s
    frames = FrameStore.of(clip) if frames is None else frames
    background = None if camera.moves else frames.background
    detector = ObjectDetector(model, camera, background, radius_m, inputs.calibration, inputs.shown)
    body = None if texture is None or mesh is None else TexturedBody.of(mesh, texture, model.rotations, model.center)
    if body is not None and len(frames) == 1:
        single = _track_single_image(detector, frames, times_s, body, inputs)
        if single is not None:
            return single
    first = Follower(frames, times_s, detector, _part(progress, 0.0, 0.6)).run()
    if not first.found.any():
        raise InputError(
            f"the object was found in none of the {len(times_s)} frames of '{clip.name}'",
            "a clip that shows the object of the mesh",
            "check that the model belongs to the object, and that it is at least 20 pixels wide",
        )
    path = smooth_path(times_s, first.translation)
    found = _second_pass(clip, frames, detector, path, inputs, _part(progress, 0.6, 0.9))
    found = filled(found, detector, frames)
    if mesh is None:
        return found.clocked()
    found = corrected(found, frames, inputs, _part(progress, 0.9, 1.0))
    return found if body is None else refine_single_images(frames, camera, body, found, inputs.calibration)


def _second_pass(
    clip: Clip,
    frames: FrameStore,
    detector: ObjectDetector,
    path: Array,
    inputs: TrackingInputs,
    progress: Report | None,
) -> Track:
    """Detect all frames again along the smoothed path [T, 3], and choose the hypotheses by all cues."""
    camera, model, mesh = inputs.camera, inputs.model, inputs.mesh
    indices = np.flatnonzero(np.isfinite(path).all(axis=-1))
    detections, credible, texture_nats = _detect_all(detector, frames, path[indices], indices, inputs, progress)
    good = credible & (detections.poses.inliers[:, 0].sum(axis=-1) >= inputs.config.min_points)
    if not good.any():
        raise InputError(
            f"the keypoints of the object in '{clip.name}' could not be detected",
            "a view like those the model was trained on",
            "train longer",
        )
    indices, detections = indices[good], detections.select(good)
    evidence = [Evidence("texture", texture_nats[good], TEMPERATURES.texture)]
    if mesh is not None and "symmetry" in inputs.cues:
        solid = Solid.of(mesh) if "creases" in inputs.cues else Solid.of(mesh).without_creases()
        evidence += symmetry_evidence(frames, indices, detections, camera, solid, model.shape, inputs.cues)
    if mesh is not None:
        symmetry = model.rotations, model.center
        evidence += cue_evidence(frames, indices, detections.poses, (camera, mesh), symmetry, inputs.cues)
    return label(clip.times_s, indices, detections, evidence, inputs)


def _track_single_image(
    detector: ObjectDetector, frames: FrameStore, times_s: Array, body: TexturedBody, inputs: TrackingInputs
) -> Track | None:
    """Track a textured object in a clip of one frame; return None where its texture is not seen."""
    detected = textured_detection(detector, frames[0], body)
    if detected is None or inputs.texture is None:
        return None
    seen, best = detected
    nats = inputs.texture.evidence(seen, [frames[0]], inputs.camera)
    evidence = [Evidence("texture", nats, TEMPERATURES.texture)]
    found = label(times_s, np.zeros(1, dtype=np.int64), seen, evidence, inputs)
    fits = {} if best.fit is None else {0: best.fit}
    found = with_fits(found.clocked(), fits, inputs.calibration)
    by_texture = body.element_nats(frames[0], inputs.camera, found.poses.pose[0])
    return replace(found, branch_log_likelihood=by_texture)


def corrected(found: Track, frames: FrameStore, inputs: TrackingInputs, progress: Report | None = None) -> Track:
    """Return a labelled track, corrected by the texture of the object, if there is one, and by its contour.

    A frame that the texture does not explain is lost, unless its edges have as much evidence as those of the frames
    that the texture does explain. `inputs` has a mesh.
    """
    assert inputs.mesh is not None
    camera, mesh, calibration, cues = inputs.camera, inputs.mesh, inputs.calibration, inputs.cues
    also = explained = None
    nats = np.full(len(found.tracked), -np.inf)
    if inputs.texture is not None:
        also = found.poses
        found, explained = refine_texture(frames, camera, mesh, inputs.texture, found, calibration, progress)
    if "contour" in cues:
        together = inputs.texture is not None
        found, nats = refine_contours(
            *(frames, camera, mesh, found, calibration), cues=cues, also=also, together=together, progress=progress
        )
    if explained is not None:
        least = inputs.config.edge_share * float(np.median(nats[explained])) if explained.any() else np.inf
        found = found.without(found.tracked & ~explained & ~(nats > max(least, 0.0)))
    return found.clocked()


def _part(progress: Report | None, start: float, stop: float) -> Report | None:
    return None if progress is None else lambda share: progress(start + (stop - start) * share)


def _detect_all(
    detector: ObjectDetector,
    frames: FrameStore,
    path: Array,
    indices: NDArray[np.int64],
    inputs: TrackingInputs,
    progress: Report | None,
) -> tuple[Detections, NDArray[np.bool_], Array]:
    """Detect all frames in batches along the smoothed path [N, 3].

    Return the detections with several poses each, whether they are credible [N], and the evidence of the texture
    [N, H, G], nats.
    """
    size = min(inputs.config.batch, frames.at_once)
    starts = range(0, len(indices), size)
    batches = ((slice(k, k + size), [frames[int(i)] for i in indices[k : k + size]]) for k in starts)

    def detect(batch: tuple[slice, list[Image]]) -> tuple[Detections, NDArray[np.bool_], Array]:
        rows, images = batch
        seen = detector.at(indices[rows]).detect(images, path[rows], hypotheses=inputs.config.hypotheses)
        nats = np.zeros((*seen.poses.cost.shape, len(detector.model.rotations)))
        if inputs.texture is not None:
            nats = inputs.texture.evidence(seen, images, inputs.camera)
        return seen, detector.judge(images, seen)[0], nats

    parts = []
    for part in side_by_side(detect, batches):
        parts.append(part)
        if progress is not None:
            progress(len(parts) / len(starts))
    detections, credible, nats = zip(*parts, strict=True)
    return Detections.join(detections), np.concatenate(credible), np.concatenate(nats)


def label(
    times_s: Array,
    indices: NDArray[np.int64],
    seen: Detections,
    evidence: list[Evidence],
    inputs: TrackingInputs,
) -> Track:
    """Choose one hypothesis in each of the tracked frames, and return the track.

    Args:
        times_s: [T] times of the clip, s.
        indices: [N] indices of the tracked frames.
        seen: detections of these.
        evidence: [N, H, G] of cues beside keypoints, front map and tilt.
        inputs: model, camera, error model and tilt.
    """
    model, calibration, poses = inputs.model, inputs.calibration, seen.poses
    front_body = None if model.front is None else model.points_body[model.front]
    front = front_evidence(seen.front_logprob, seen.views, poses, model.rotations, front_body, model.center)
    tilt = tilt_evidence(poses, model.rotations, inputs.camera.at(indices), inputs.tilt_std_rad)
    divisor = calibration.clip_divisor(len(indices))
    cues = [Evidence("front", front, divisor), Evidence("tilt", tilt, divisor), *evidence]
    chosen = choose_hypotheses(poses, times_s[indices], model.rotations, scored(cues))
    rows = np.arange(len(indices))
    poses = poses[rows, chosen.hypothesis]
    order = model.permutation[chosen.element]  # detected point k of a frame is true point order[k]
    inverse = np.argsort(order, axis=1)
    rotation = poses.rotation @ np.swapaxes(model.rotations[chosen.element], -1, -2)
    aside = offsets(model.rotations[chosen.element], model.center)  # rotations[g] moves the origin there
    poses = PoseEstimate(
        Pose(rotation, poses.translation - np.einsum("nij,nj->ni", rotation, aside)),
        poses.covariance,
        poses.chi2,
        poses.cost,
        np.take_along_axis(poses.inliers, inverse, 1),
    )
    quality = seen.quality[rows, chosen.hypothesis]
    lost = Track.of_nothing(times_s, model.points_body, calibration, chosen.log_likelihood)
    return lost.seeing(indices, seen, poses, quality, chosen.element, inverse, calibration)

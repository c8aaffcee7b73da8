"""Track a mesh through a clip with nothing trained, and state what was found as a `Track`.

`MeshTracker` finds the fit of each frame by silhouettes. Where the mesh has a texture, its features may find the body
first; then the texture refines poses and refuses frames. Of other bodies, surfaces that the clip teaches refine poses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import in_processes, one_thread
from vid2phys.engine.pnp import PoseEstimate
from vid2phys.engine.pose_geometry import project_points
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.indices import evenly
from vid2phys.risp.networks.model import Shape
from vid2phys.tracking.contour_refinement import refine_contours
from vid2phys.tracking.cues.texture import SurfaceTexture
from vid2phys.tracking.detectors.texture_features import TextureFeatures
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.ground import Ground
from vid2phys.tracking.hint import Hint
from vid2phys.tracking.hinted_search import HintedRow, is_at_hint
from vid2phys.tracking.hypotheses import TEMPERATURES
from vid2phys.tracking.measured import with_poses
from vid2phys.tracking.mesh_tracker import DEFAULTS, MeshTracker, MeshTrackerConfig, shown_at
from vid2phys.tracking.silhouette_fit import Fit, SilhouetteFitConfig
from vid2phys.tracking.texture_refinement import refine_texture
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera, Clip, Mesh, with_rows


@one_thread()
def track_mesh(
    clip: Clip,
    camera: Camera,
    mesh: Mesh,
    shape: Shape,
    calibration: Calibration,
    progress: Callable[[float], None] | None = None,
    config: MeshTrackerConfig = DEFAULTS,
    hint: Hint | None = None,
    tilt_std_rad: float | None = None,
    first: Callable[[int, Pose], None] | None = None,
    frames: FrameStore | None = None,
    ground: Ground | None = None,
) -> Track:
    """Track a mesh through a clip with nothing trained.

    Args:
        clip: frames and times.
        camera: of the clip.
        mesh: of the body.
        shape: its symmetry, and keypoints as names of places on the body.
        calibration: error model of contour fits.
        progress: receives the share of the work that is done.
        config: settings.
        hint: where the body is in one frame; with it, the body need not move.
        tilt_std_rad: standard deviation of the angle between the body's z axis and up in the motions of the system;
            None: all angles are equally probable.
        first: receives a frame in which the body was found and its pose, long before all frames are tracked.
        frames: of the clip, where they are read already.
        ground: that the body does not reach below, where it is known.

    Raises:
        InputError: when the camera moves, nothing moves, or the body is found in no frame or not at the hint.
    """
    frames = FrameStore.of(clip) if frames is None else frames
    texture = SurfaceTexture.of(mesh, shape.rotations, shape.center)
    if texture is not None:
        seen = _track_features(frames, clip.times_s, camera, mesh, texture, shape, calibration, config)
        if seen is not None and (hint is None or is_at_hint(seen, hint, clip, camera, mesh)):
            if first is not None:
                i = int(np.argmax(seen.tracked))
                first(i, seen.poses.pose[i])
            return seen
    if camera.moves:
        got = "a camera that moves, and no trained model: a body is found by its motion before a static camera"
        raise InputError(got, "a static camera or a trained model", "film from a tripod, or run `vid2phys train-risp`")
    tracker = MeshTracker(frames, clip.times_s, camera, mesh, shape, texture, progress, config)
    tracker.tilt_std_rad, tracker.first = tilt_std_rad, first
    if hint is not None:
        tracker.hinted = HintedRow(hint.row(clip), hint)
    found = tracker.track()
    good = _supported(found, config)
    track = Track.of_nothing(clip.times_s, shape.points_body, calibration, tracker.evidence)
    if not tracker.moved:
        got = f"nothing moves in '{clip.name}': without a trained model a body is found by its motion"
        raise InputError(
            got, "a body that moves before a static camera", "film it in motion, or show the body with --hint"
        )
    if not len(good):
        raise InputError(
            f"nothing that moves in '{clip.name}' has the shape of the mesh '{mesh.name}' in any frame",
            "a clip of the body of the mesh",
            "check the mesh, and that the body is in view and at least 20 pixels wide",
        )
    fits = {int(i): fit for i in good if (fit := found[i]) is not None}
    refined = None
    if texture is None:
        poses = {i: fit.pose for i, fit in fits.items()}
        refined = tracker.refined_by_surfaces(poses)
    if refined is not None:
        fits = _moved(fits, refined.poses, tracker)
    if ground is not None:
        still = tracker.still(fits)
        fits = ground.supporting(tracker.laid(fits, still, ground), still, mesh)
    good = np.array(list(fits), dtype=np.int64)
    track = _with_fits(track, good, list(fits.values()), calibration, config)
    track = replace(track, learned_texture=refined is not None and refined.is_textured)
    refused = np.setdiff1d([i for i, fit in enumerate(found) if fit is not None], good)
    track = replace(track, unsupported=refused.astype(np.int64), blur=tracker.blur)
    if texture is not None:
        track = _by_texture(frames, camera, mesh, texture, track, calibration, config) or track
    return track.clocked()


def _moved(fits: Mapping[int, Fit], poses: Mapping[int, Pose], tracker: MeshTracker) -> dict[int, Fit]:
    """Return fits by frame at other poses, with their evidence there; fits without enough are left out."""
    rows = list(fits)
    moved = list(in_processes(lambda i: tracker.judged(i, poses[i], fits[i].contour), rows))
    return {rows[k]: moved[k] for k in _supported(moved, tracker.config).tolist()}


def _supported(found: Sequence[Fit | None], config: MeshTrackerConfig) -> NDArray[np.int64]:
    """Return the frames whose fits have enough evidence, beside that of the clip's good frames.

    Evidence grows with the size of the silhouette. It is compared half way between all distances being one and each
    being right: a fit to a shadow or to a fragment is far away.
    """
    rows = np.array([i for i, fit in enumerate(found) if fit is not None], dtype=np.int64)
    if not len(rows):
        return rows
    fits = [fit for fit in found if fit is not None]
    support = np.array([fit.nats * np.sqrt(np.linalg.norm(fit.pose.translation)) for fit in fits])
    overlap = np.array([fit.overlap for fit in fits])
    least = config.lost_share * np.percentile(support, 80)
    return np.asarray(rows[(overlap > config.lost_overlap) & (support > max(least, 0.0))])


def _track_features(
    frames: FrameStore,
    times_s: Array,
    camera: Camera,
    mesh: Mesh,
    texture: SurfaceTexture,
    shape: Shape,
    calibration: Calibration,
    config: MeshTrackerConfig,
) -> Track | None:
    """Track a textured mesh from frames in which its features are found; None where the texture explains too few."""
    features = TextureFeatures.of(mesh)
    if features is None:
        return None
    rows = evenly(len(frames), config.feature_frames)
    seen = list(in_processes(lambda i: features.detect(frames[i], camera.at(i)), rows.tolist()))
    fits = {int(i): Fit(found[0], 0.0, 1.0, None) for i, found in zip(rows, seen, strict=True) if found is not None}
    if len(fits) < config.least_feature_share * len(rows):
        return None
    nothing = Track.of_nothing(times_s, shape.points_body, calibration, np.zeros(len(shape.rotations)))
    track = _with_fits(nothing, np.array(list(fits)), list(fits.values()), calibration, config)
    refined = _by_texture(frames, camera, mesh, texture, track, calibration, config)
    return None if refined is None else refined.clocked()


def _by_texture(
    frames: FrameStore,
    camera: Camera,
    mesh: Mesh,
    texture: SurfaceTexture,
    track: Track,
    calibration: Calibration,
    config: MeshTrackerConfig,
) -> Track | None:
    """Return the track as the texture completes it and contours refine it; None where it explains too few frames."""
    refined, explained = refine_texture(frames, camera, mesh, texture, track, calibration)
    if explained.mean() <= config.textured_share:
        return None
    kept = refined.without(refined.tracked & ~explained)
    kept, _ = refine_contours(frames, camera, mesh, kept, calibration, together=True)
    of_texture = _by_elements(frames, camera, mesh, texture, kept, config)
    return replace(kept, branch_log_likelihood=kept.branch_log_likelihood + of_texture)


def _by_elements(
    frames: FrameStore, camera: Camera, mesh: Mesh, texture: SurfaceTexture, track: Track, config: MeshTrackerConfig
) -> Array:
    """Return the evidence [G] of the texture for the poses of a track under each symmetry element, nats."""
    tracked = np.flatnonzero(track.tracked)
    rows = tracked[evenly(len(tracked), config.element_frames)]
    each = np.array(
        [
            texture.element_nats(shown_at(frames[i], camera.at(i), mesh, texture, track.poses.pose[i], config))
            for i in rows.tolist()
        ]
    )
    total = np.maximum(each - each.max(axis=1, keepdims=True), -config.most_nats).sum(axis=0)
    return np.asarray(total / TEMPERATURES.symmetry)


def _with_fits(
    track: Track, good: NDArray[np.int64], fits: list[Fit], calibration: Calibration, config: MeshTrackerConfig
) -> Track:
    """Return a track in which nothing was found yet, with the fits of the frames `good`."""
    points_body = track.observation.points_body
    poses = Pose.stack([fit.pose for fit in fits])
    basis = np.array([np.diag(_std(fit, calibration)) for fit in fits])
    rows = np.zeros(len(fits))
    estimate = PoseEstimate(poses, basis**2, rows, rows, np.zeros((len(fits), len(points_body)), dtype=bool))
    own = (config.independent_share * basis) ** 2
    correlation_s = np.array(calibration.contour_correlation_s)
    seen = with_poses(track.observation, good, poses, basis, correlation_s, "silhouette", own)
    # keypoints are not seen, but say where the body is: a search by texture needs it
    bearings = with_rows(seen.bearings, good, project_points(poses, points_body))
    return replace(
        track,
        observation=replace(seen, bearings=bearings),
        poses=track.poses.with_rows(good, estimate),
        tracked=with_rows(track.tracked, good, True),
        quality=with_rows(track.quality, good, np.array([fit.overlap for fit in fits])),
        element=with_rows(track.element, good, np.zeros(len(good), dtype=np.int64)),
    )


def _std(fit: Fit, calibration: Calibration) -> Array:
    """Return the standard deviations [6] of a fitted pose, in its local coordinates."""
    if fit.contour is None:
        return np.array(SilhouetteFitConfig().contour_std)
    return np.asarray(np.sqrt(np.diag(fit.contour.covariance)) * np.array(calibration.contour_scale))

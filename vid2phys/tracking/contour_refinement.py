"""Readings of a tracked clip, corrected by the body's outline (`contour`) and by their neighbours (`neighbours`).

Readings are put where keypoints and outline together have the body; of a frame that its neighbours put right, where
they and the outline have it. What is left is what a frame is off as a whole, as coefficients of the six pose modes.
Small bodies are left as they are: at 20 pixels outlines add nothing, at 28 they do (`benchmarks/contour`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.ndimage import median_filter

from vid2phys.engine.parallel import side_by_side
from vid2phys.engine.pnp import PoseEstimate
from vid2phys.engine.pose_geometry import covariance_in_modes, pose_modes, project_points
from vid2phys.error_model import Calibration
from vid2phys.tracking.ambiguous_poses import PoseScorer
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues import ALL_CUES, ActiveCues
from vid2phys.tracking.cues.contour import Contour, fit_contour
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.detectors.network import Image, direction_and_size, in_frame_diameter
from vid2phys.tracking.temporal_outliers import TemporalOutliers
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera, Mesh

LEAST_PX = 28.0  # in-frame diameter of the bounding sphere
_FRAMES_ABOUT = 5
_STD_FLOOR = 1e-5


def refine_contours(
    frames: Indexed,
    camera: Camera,
    mesh: Mesh,
    track: Track,
    calibration: Calibration,
    *,
    cues: ActiveCues = ALL_CUES,
    also: PoseEstimate | None = None,
    progress: Callable[[float], None] | None = None,
) -> tuple[Track, Array]:
    """Fit the contour in every frame of a clip.

    Args:
        frames: T images.
        camera: of the clip.
        mesh: of the body.
        track: poses camera_from_body [T] and keypoints, NaN where the body is lost.
        calibration: the model's error model.
        cues: contour cues in use; `creases`, `region` and `temporal_outliers` may be off.
        also: further poses [T] that the frames may have, NaN for none.
        progress: receives the share of frames done.

    Returns:
        The track with refined poses and keypoints, and how well the poses explain the edges of their frames, [T] nats:
        minus infinity where the body is lost or small.
    """
    seen, poses = track.observation, track.poses
    bearings, basis = seen.bearings.copy(), seen.shared_basis.copy()
    pose = poses.pose.copy()
    solid = Solid.of(mesh) if "creases" in cues else Solid.of(mesh).without_creases()
    radius_m = mesh.radius_m
    known = np.flatnonzero(pose.is_finite & seen.visible.any(axis=1))
    prior = np.zeros((len(pose), 6, 6))
    sizes = in_frame_diameter(camera, *direction_and_size(pose.translation[known], radius_m))
    sizes_about = median_filter(sizes, _FRAMES_ABOUT, mode="nearest")  # a frame by itself may put the body far away
    large = known[sizes_about >= LEAST_PX].tolist()
    for i in large:
        shared = np.diag(_shared_std(basis[i], pose_modes(pose[i], seen.points_body)) ** 2)
        prior[i] = np.linalg.inv(covariance_in_modes(poses.covariance[i], pose.translation[i]) + shared)

    def reading(i: int, image: Image) -> PoseScorer:
        return PoseScorer(image, camera, solid, poses.pose[i], prior[i], "region" in cues)

    def fit(frame: tuple[int, Image]) -> tuple[Contour | None, float]:
        i, image = frame
        read = reading(*frame)
        found = fit_contour(image, camera, solid, read.pose, prior=prior[i])
        return found, read.edge_nats(read.pose if found is None else found.pose)

    nats = np.full(len(pose), -np.inf)
    fitted: dict[int, Contour] = {}
    fits = side_by_side(fit, ((i, frames[i]) for i in large))
    for done, (i, (found, nats[i])) in enumerate(zip(large, fits, strict=True)):
        if progress is not None:
            progress(done / len(large))
        if found is not None:
            fitted[i] = found
    for i, contour in fitted.items():
        pose[i] = contour.pose
    shown = np.isin(np.arange(len(pose)), large)
    if "temporal_outliers" in cues:
        fitted.update(TemporalOutliers(frames, seen.times_s, reading, shown, pose, nats, also).correct())
    for i, contour in fitted.items():
        # what points of a look are off by on their own lasts as well: left in, it bends poses by many degrees
        bearings[i] = project_points(contour.pose, seen.points_body)
        std = np.sqrt(np.diag(contour.covariance)) * calibration.contour_scale
        basis[i] = pose_modes(pose[i], seen.points_body) * std
    # outlines mistake the same look for the same thing for longer than the network does
    correlation_s = np.maximum(seen.correlation_time_s, bool(fitted) * np.array(calibration.contour_correlation_s))
    better = replace(seen, bearings=bearings, shared_basis=basis, correlation_time_s=correlation_s)
    return replace(track, observation=better, poses=replace(poses, pose=pose)), nats


def _shared_std(basis: Array, modes: Array) -> Array:
    """Standard deviations [6] of a frame's shared error: its basis [K, 2, 6] is the modes times these."""
    along = np.abs((basis * modes).sum(axis=(0, 1))) / (modes**2).sum(axis=(0, 1))
    return np.asarray(np.maximum(along, _STD_FLOOR))

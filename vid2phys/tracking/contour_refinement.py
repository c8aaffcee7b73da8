"""Refine the poses of a tracked clip by the body's contour (`cues.contour`) and by temporal outliers.

A refined pose is the one that keypoints and contour support together. In a frame that `temporal_outliers` corrects, it
is the one that adjacent frames and contour support. Its errors are the six local coordinates of a pose.

Limits: small bodies are left as they are. At 20 pixels contours add nothing, at 28 they do (`benchmarks/contour`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.ndimage import median_filter

from vid2phys.engine.parallel import in_processes
from vid2phys.engine.pnp import PoseEstimate
from vid2phys.engine.pose_geometry import covariance_in_modes
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose
from vid2phys.tracking.ambiguous_poses import PoseScorer
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues import ALL_CUES, ActiveCues
from vid2phys.tracking.cues.contour import Contour, fit_contour
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.detectors.network import Image, direction_and_size, in_frame_diameter
from vid2phys.tracking.measured import error_basis, shared_covariance, with_poses
from vid2phys.tracking.temporal_outliers import TemporalOutliers
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera, Mesh, Observation

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
    together: bool = False,
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
        together: whether errors keep their correlations, as those of a body whose texture holds its front in place.
        progress: receives the share of frames done.

    Returns:
        The track with refined poses, and how well the poses explain the edges of their frames, [T] nats:
        minus infinity where the body is lost or small.
    """
    seen, poses = track.observation, track.poses
    pose = poses.pose.copy()
    solid = Solid.of(mesh) if "creases" in cues else Solid.of(mesh).without_creases()
    large = _large_frames(camera, mesh, track)
    prior = _priors(track, large)

    def scorer(i: int, image: Image) -> PoseScorer:
        return PoseScorer(image, camera, solid, poses.pose[i], prior[i], "region" in cues)

    def fit(i: int) -> tuple[Contour | None, float]:
        tracked = scorer(i, frames[i])
        found = fit_contour(frames[i], camera, solid, tracked.pose, prior=prior[i])
        return found, tracked.edge_nats(tracked.pose if found is None else found.pose)

    nats = np.full(len(pose), -np.inf)
    fitted: dict[int, Contour] = {}
    fits = in_processes(fit, large)
    for done, (i, (found, nats[i])) in enumerate(zip(large, fits, strict=True)):
        if progress is not None:
            progress(done / len(large))
        if found is not None:
            fitted[i] = found
    for i, contour in fitted.items():
        pose[i] = contour.pose
    shown = np.isin(np.arange(len(pose)), large)
    if "temporal_outliers" in cues:
        fitted.update(TemporalOutliers(frames, seen.times_s, scorer, shown, pose, nats, also).correct())
    better = _observed(seen, fitted, calibration, together)
    return replace(track, observation=better, poses=replace(poses, pose=pose)), nats


def _large_frames(camera: Camera, mesh: Mesh, track: Track) -> list[int]:
    """Return the frames in which the body is known, and large enough for its contour."""
    pose = track.poses.pose
    known = np.flatnonzero(pose.is_finite & track.observation.seen)
    sizes = in_frame_diameter(camera, *direction_and_size(pose.translation[known], mesh.radius_m))
    sizes_about = median_filter(sizes, _FRAMES_ABOUT, mode="nearest")  # a frame by itself may put the body far away
    return [int(i) for i in known[sizes_about >= LEAST_PX]]


def _priors(track: Track, frames: list[int]) -> Array:
    """Return the information [T, 6, 6] that the tracker gives of the poses of some frames; zero in the others."""
    poses, information = track.poses, np.zeros((len(track.tracked), 6, 6))
    shared = shared_covariance(track.observation, np.array(frames, dtype=np.int64), poses.pose[frames])
    for i, covariance in zip(frames, shared, strict=True):
        own = covariance_in_modes(poses.covariance[i], poses.translation[i])
        information[i] = np.linalg.inv(own + covariance + _STD_FLOOR**2 * np.eye(6))
    return information


def _observed(seen: Observation, fitted: dict[int, Contour], calibration: Calibration, together: bool) -> Observation:
    """Return the observation with the fitted poses of some frames in place of their keypoints.

    The offsets of single keypoints last as long as an appearance does. A fit to them would rotate poses by degrees.

    together: as of `refine_contours`.
    """
    if not fitted:
        return seen
    poses = Pose.stack([contour.pose for contour in fitted.values()])
    covariance = np.array([contour.covariance for contour in fitted.values()])
    basis = np.array(calibration.contour_scale)[:, None] * error_basis(
        covariance if together else covariance * np.eye(6)
    )
    # a contour is mistaken in the same way for longer than the network is
    correlation_s = np.maximum(seen.process_time_s, calibration.contour_correlation_s)
    return with_poses(seen, np.array(list(fitted)), poses, basis, correlation_s, "contour")

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
from vid2phys.engine.pnp import Pose
from vid2phys.engine.pose_geometry import covariance_in_modes, pose_modes, project_points
from vid2phys.error_model import Calibration
from vid2phys.tracking.ambiguous_poses import Reading
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.contour import Contour, fit_contour
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.detectors.network import Image, direction_and_size, in_frame_diameter
from vid2phys.tracking.temporal_outliers import Neighbours
from vid2phys.types import Array, Camera, Mesh, Observation

LEAST_PX = 28.0  # in-frame diameter of the bounding sphere
_FRAMES_ABOUT = 5
_STD_FLOOR = 1e-5


def outlined(
    frames: Indexed,
    camera: Camera,
    mesh: Mesh,
    seen: Observation,
    poses: Pose,
    calibration: Calibration,
    progress: Callable[[float], None] | None = None,
    also: Pose | None = None,
) -> tuple[Observation, Pose, Array]:
    """Observation and poses [T] (camera_from_body, NaN where lost) after fitting the outlines of all frames, and how
    well these explain the frames' edges, [T] nats: minus infinity where the body is lost or small.

    also: poses [T] that frames may have as well, NaN for none.
    """
    bearings, basis = seen.bearings.copy(), seen.shared_basis.copy()
    rotation, translation = poses.rotation.copy(), poses.translation.copy()
    solid, radius_m = Solid.of(mesh), mesh.radius_m
    known = np.flatnonzero(np.isfinite(translation).all(axis=-1) & seen.visible.any(axis=1))
    prior = np.zeros((len(translation), 6, 6))
    sizes = in_frame_diameter(camera, *direction_and_size(translation[known], radius_m))
    sizes_about = median_filter(sizes, _FRAMES_ABOUT, mode="nearest")  # a frame by itself may put the body far away
    large = known[sizes_about >= LEAST_PX].tolist()
    for i in large:
        shared = np.diag(_shared_std(basis[i], pose_modes(rotation[i], translation[i], seen.points_body)) ** 2)
        prior[i] = np.linalg.inv(covariance_in_modes(poses.covariance[i], translation[i]) + shared)

    def reading(i: int, image: Image) -> Reading:
        return Reading(image, camera, solid, poses.rotation[i], poses.translation[i], prior[i])

    def fit(frame: tuple[int, Image]) -> tuple[Contour | None, float]:
        i, image = frame
        pose, read = (poses.rotation[i], poses.translation[i]), reading(*frame)
        found = fit_contour(image, camera, solid, *pose, prior=prior[i])
        if found is not None:
            pose = found.rotation, found.translation
        return found, read.edge_nats(*pose)

    nats = np.full(len(translation), -np.inf)
    fitted: dict[int, Contour] = {}
    fits = side_by_side(fit, ((i, frames[i]) for i in large))
    for done, (i, (found, nats[i])) in enumerate(zip(large, fits, strict=True)):
        if progress is not None:
            progress(done / len(large))
        if found is not None:
            fitted[i] = found
    for i, contour in fitted.items():
        rotation[i], translation[i] = contour.rotation, contour.translation
    shown = np.isin(np.arange(len(translation)), large)
    beside = Neighbours(frames, seen.times_s, reading, shown, rotation, translation, nats, also)
    fitted.update(beside.settle())
    for i, contour in fitted.items():
        # what points of a look are off by on their own lasts as well: left in, it bends poses by many degrees
        bearings[i] = project_points(contour.rotation, contour.translation, seen.points_body)
        std = np.sqrt(np.diag(contour.covariance)) * calibration.contour_scale
        basis[i] = pose_modes(rotation[i], translation[i], seen.points_body) * std
    # outlines mistake the same look for the same thing for longer than the network does
    correlation_s = np.maximum(seen.correlation_time_s, bool(fitted) * np.array(calibration.contour_correlation_s))
    better = replace(seen, bearings=bearings, shared_basis=basis, correlation_time_s=correlation_s)
    return better, replace(poses, rotation=rotation, translation=translation), nats


def _shared_std(basis: Array, modes: Array) -> Array:
    """Standard deviations [6] of a frame's shared error: its basis [K, 2, 6] is the modes times these."""
    along = np.abs((basis * modes).sum(axis=(0, 1))) / (modes**2).sum(axis=(0, 1))
    return np.asarray(np.maximum(along, _STD_FLOOR))

"""Readings of a tracked clip, corrected frame by frame by the body's outline (`contour`).

What a frame's readings are off as a whole, as coefficients of the six pose modes, is replaced by what keypoints and
outline say together; what points err by on their own stays. Small bodies are left as they are: below some 40 pixels
outlines add nothing (`benchmarks/contour`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from vid2phys.risp.calibration.error_model import Calibration
from vid2phys.risp.pixels.align_errors import difference
from vid2phys.risp.pixels.contour import fit_contour
from vid2phys.risp.tracking.geometry import covariance_in_modes, pose_modes
from vid2phys.risp.tracking.motion import Indexed
from vid2phys.risp.tracking.pose import Pose
from vid2phys.risp.tracking.sight import direction_and_size, in_frame_diameter
from vid2phys.types import Array, Camera, Mesh, Observation

LEAST_PX = 40.0  # in-frame diameter of the bounding sphere
_STD_FLOOR = 1e-5


def outlined(
    frames: Indexed,
    camera: Camera,
    mesh: Mesh,
    seen: Observation,
    poses: Pose,
    calibration: Calibration,
    progress: Callable[[float], None] | None = None,
) -> tuple[Observation, Pose]:
    """Observation and poses [T] (camera_from_body, NaN where lost) after fitting the outlines of all frames."""
    bearings, basis = seen.bearings.copy(), seen.shared_basis.copy()
    rotation, translation = poses.rotation.copy(), poses.translation.copy()
    radius_m = float(np.linalg.norm(mesh.vertices, axis=1).max())
    fitted = False
    known = np.flatnonzero(np.isfinite(translation).all(axis=-1) & seen.visible.any(axis=1))
    for done, i in enumerate(known):
        if progress is not None:
            progress(done / len(known))
        place, angle = direction_and_size(translation[i], radius_m)
        if float(in_frame_diameter(camera, place, angle)) < LEAST_PX:
            continue
        modes = pose_modes(rotation[i], translation[i], seen.points_body)
        covariance = covariance_in_modes(poses.covariance[i], translation[i]) + np.diag(
            _shared_std(basis[i], modes) ** 2
        )
        prior: Array = np.asarray(np.linalg.inv(covariance))
        fit = fit_contour(frames[int(i)], camera, mesh, rotation[i], translation[i], prior=prior)
        if fit is None:
            continue
        bearings[i] += modes @ difference(rotation[i], translation[i], fit.rotation, fit.translation)
        rotation[i], translation[i] = fit.rotation, fit.translation
        std = np.sqrt(np.diag(fit.covariance)) * calibration.contour_scale
        basis[i] = pose_modes(rotation[i], translation[i], seen.points_body) * std
        fitted = True
    # outlines mistake the same look for the same thing for longer than the network does
    correlation_s = np.maximum(seen.correlation_time_s, calibration.contour_correlation_s if fitted else 0.0)
    better = replace(seen, bearings=bearings, shared_basis=basis, correlation_time_s=correlation_s)
    return better, replace(poses, rotation=rotation, translation=translation)


def _shared_std(basis: Array, modes: Array) -> Array:
    """Standard deviations [6] of a frame's shared error: its basis [K, 2, 6] is the modes times these."""
    along = np.abs((basis * modes).sum(axis=(0, 1))) / (modes**2).sum(axis=(0, 1))
    return np.asarray(np.maximum(along, _STD_FLOOR))

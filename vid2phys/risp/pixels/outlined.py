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
from vid2phys.risp.networks.threads import side_by_side
from vid2phys.risp.pixels.align_errors import difference
from vid2phys.risp.pixels.contour import Contour, fit_contour
from vid2phys.risp.pixels.creases import Solid
from vid2phys.risp.tracking.geometry import covariance_in_modes, pose_modes
from vid2phys.risp.tracking.motion import Indexed
from vid2phys.risp.tracking.pose import Pose
from vid2phys.risp.tracking.sight import Image, direction_and_size, in_frame_diameter
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
    solid, radius_m = Solid.of(mesh), float(np.linalg.norm(mesh.vertices, axis=1).max())
    known = np.flatnonzero(np.isfinite(translation).all(axis=-1) & seen.visible.any(axis=1))

    def fit(frame: tuple[int, Image]) -> tuple[Array, Contour] | None:
        i, picture = frame
        place, angle = direction_and_size(translation[i], radius_m)
        if float(in_frame_diameter(camera, place, angle)) < LEAST_PX:
            return None
        modes = pose_modes(rotation[i], translation[i], seen.points_body)
        shared = np.diag(_shared_std(basis[i], modes) ** 2)
        prior = np.linalg.inv(covariance_in_modes(poses.covariance[i], translation[i]) + shared)
        contour = fit_contour(picture, camera, solid, rotation[i], translation[i], prior=np.asarray(prior))
        return None if contour is None else (modes, contour)

    fitted = False
    found = side_by_side(fit, ((int(i), frames[int(i)]) for i in known))
    for done, (i, fit_of_frame) in enumerate(zip(known, found, strict=True)):
        if progress is not None:
            progress(done / len(known))
        if fit_of_frame is None:
            continue
        modes, contour = fit_of_frame
        bearings[i] += modes @ difference(rotation[i], translation[i], contour.rotation, contour.translation)
        rotation[i], translation[i] = contour.rotation, contour.translation
        std = np.sqrt(np.diag(contour.covariance)) * calibration.contour_scale
        basis[i] = pose_modes(rotation[i], translation[i], seen.points_body) * std
        fitted = True
    # outlines mistake the same look for the same thing for longer than the network does
    correlation_s = np.maximum(seen.correlation_time_s, fitted * np.array(calibration.contour_correlation_s))
    better = replace(seen, bearings=bearings, shared_basis=basis, correlation_time_s=correlation_s)
    return better, replace(poses, rotation=rotation, translation=translation)


def _shared_std(basis: Array, modes: Array) -> Array:
    """Standard deviations [6] of a frame's shared error: its basis [K, 2, 6] is the modes times these."""
    along = np.abs((basis * modes).sum(axis=(0, 1))) / (modes**2).sum(axis=(0, 1))
    return np.asarray(np.maximum(along, _STD_FLOOR))

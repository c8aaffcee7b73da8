"""The pose of a painted mesh by its colours in one frame: Gauss-Newton from coarse to fine, up to light.

Points of the surface have the mesh's colours, lit with a brightness that changes linearly with the normal, and haze
(as in `paint`); the pose moves the points over the image (direct alignment, after Lucas and Kanade 1981 and Baker and
Matthews 2004). Points behind a finger or in a highlight count less. Errors of a tenth of the body's size are within
reach, where its paint has large patches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels, bearings_to_pixels
from vid2phys.engine.pose_geometry import modes_of_points
from vid2phys.geometry import Pose
from vid2phys.tracking.cues.photometric import MODES
from vid2phys.tracking.cues.texture import FLOOR, Light, Paint
from vid2phys.types import Array, Camera

_GRAZING = 0.2  # cosine between normal and sight from which on a point is seen
_PURE = (0.6, 0.3)  # share of a point's surroundings on the same side from which on it counts, until it counts fully
_LEAST = 40  # points
_STEPS = 5  # a level, at most: until one is smaller than
_STILL = np.array([1e-3, 1e-3, 1e-3, 5e-5, 5e-5, 3e-4])
_LEAST_BLUR_PX = 0.8
_CORRELATED = 12.0  # points that count as one
_MARGIN_PX = 12
_DAMPING = np.array([0.3, 0.3, 0.3, 0.02, 0.02, 0.1]) ** -2.0  # as if poses were known so well beforehand


@dataclass(frozen=True)
class PaintFit:
    """A pose fitted to colours.

    Attributes:
        pose: camera_from_body.
        information: of the colours, [6, 6], in the local coordinates of the pose.
        score: share of the image's variation on the body that the texture explains, at most 1.
    """

    pose: Pose
    information: Array
    score: float


def fit_paint(frame: NDArray[np.uint8], camera: Camera, paint: Paint, pose: Pose) -> PaintFit | None:
    """Fit a pose camera_from_body to the colours in a frame [H, W, 3]; None where too little is seen of the body."""
    size_px = _size_px(camera, paint, pose)
    if size_px is None:
        return None
    information, score = np.zeros((MODES, MODES)), 0.0
    for share, colors, pure in zip(paint.blur_shares, paint.fine_colors, paint.pure, strict=True):
        blurred = _blurred(frame, camera, paint, pose, share * size_px)
        if blurred is None:
            return None
        best, kept = None, pose
        for _ in range(_STEPS):
            seen = _look(*blurred, camera, paint, pose)
            if seen is None:
                return None
            found, change, normals, rows, facing = seen
            trust = np.clip((pure[rows] - _PURE[0]) / _PURE[1], 0.0, 1.0)
            trust *= np.clip((facing - _GRAZING) / _GRAZING, 0.05, 1.0)
            light = Light.fit(found, colors[rows], normals, trust)
            if best is not None and light.misfit > best[0].misfit:
                break
            kept, best = pose, (light, found, normals, trust)
            weight = light.weight / (_CORRELATED * (light.scale + FLOOR**2))
            flat = change.reshape(-1, MODES)
            weighted = flat.T * np.repeat(weight, 3)
            information = weighted @ flat
            step = np.linalg.solve(information + np.diag(_DAMPING), -weighted @ light.residual.ravel())
            pose = pose.retract(np.asarray(step, dtype=float))
            if (np.abs(step) < _STILL).all():
                break
        pose = kept
        assert best is not None
        score = best[0].explained(*best[1:])
    return PaintFit(pose, information, score)


def mirrored(paint: Paint, pose: Pose) -> Pose:
    """The pose in which the side that faces the camera most looks almost the same, tilted the other way.

    What is painted on a flat side shows its tilt only by perspective; the other sides tell which of both it is.
    """
    normals, posed = paint.fine_normals @ pose.rotation.T, pose.apply(paint.fine_points)
    facing = np.maximum(-(normals * posed).sum(axis=1) / np.linalg.norm(posed, axis=1), 0.0)
    candidates = paint.fine_normals[:: max(1, len(facing) // 60)]
    alike = paint.fine_normals @ candidates.T > 0.95  # [M, C]
    chosen = int(np.argmax(facing @ alike))
    side = alike[:, chosen]
    middle = np.average(paint.fine_points[side], axis=0, weights=facing[side] + 1e-9)
    sight = pose.rotation @ middle + pose.translation
    sight = sight / np.linalg.norm(sight)
    normal = candidates[chosen]
    turned = (np.eye(3) - 2.0 * np.outer(sight, sight)) @ pose.rotation @ (np.eye(3) - 2.0 * np.outer(normal, normal))
    return Pose(turned, pose.translation + (pose.rotation - turned) @ middle)


def _size_px(camera: Camera, paint: Paint, pose: Pose) -> float | None:
    posed = pose.apply(paint.fine_points)
    if posed[:, 2].min() <= 0.0:
        return None
    pixels = bearings_to_pixels(camera, posed[:, :2] / posed[:, 2:])
    inside = np.isfinite(pixels).all(axis=1)
    return float(np.ptp(pixels[inside], axis=0).max()) if inside.sum() > _LEAST else None


def _blurred(
    frame: NDArray[np.uint8], camera: Camera, paint: Paint, pose: Pose, blur_px: float
) -> tuple[NDArray[np.float32], NDArray[np.float32], Array] | None:
    """The part of the frame around the body out of focus, [h, w, 3] in 0..1, its slope along x and y [h, w, 3, 2], and
    its first pixel (x, y)."""
    import cv2

    blur_px = max(_LEAST_BLUR_PX, blur_px)
    posed = pose.apply(paint.fine_points)
    pixels = bearings_to_pixels(camera, posed[:, :2] / posed[:, 2:])
    extent, margin = np.array(frame.shape[1::-1]), _MARGIN_PX + 3.0 * blur_px
    low = np.clip(np.floor(np.nanmin(pixels, axis=0) - margin), 0, extent).astype(int)
    high = np.clip(np.ceil(np.nanmax(pixels, axis=0) + margin) + 1, low, extent).astype(int)
    if (high - low).min() < 4:
        return None
    patch = frame[low[1] : high[1], low[0] : high[0]].astype(np.float32) / np.float32(255.0)
    image = np.asarray(cv2.GaussianBlur(patch, (0, 0), blur_px), dtype=np.float32)
    slope = np.stack([cv2.Sobel(image, -1, i, 1 - i, scale=0.125) for i in (1, 0)], axis=-1)
    return image, np.asarray(slope, dtype=np.float32), low.astype(float)


def _look(
    image: NDArray[np.float32],
    slope: NDArray[np.float32],
    corner: Array,
    camera: Camera,
    paint: Paint,
    pose: Pose,
) -> tuple[Array, Array, Array, NDArray[np.int64], Array] | None:
    """Colours [N, 3] under the points that are seen, their change with the modes [N, 3, 6], the points' normals in
    camera axes, which points they are, and the cosines [N] at which they are seen."""
    import cv2

    normals = paint.fine_normals @ pose.rotation.T
    posed = pose.apply(paint.fine_points)
    facing = -(normals * posed).sum(axis=1) / np.linalg.norm(posed, axis=1)
    bearings = posed[:, :2] / np.maximum(posed[:, 2:], 1e-9)
    pixels = bearings_to_pixels(camera, bearings) - corner
    extent = np.array(image.shape[1::-1]) - 2.0
    rows = np.flatnonzero((facing > _GRAZING) & (posed[:, 2] > 0.0) & ((pixels > 1.0) & (pixels < extent)).all(axis=1))
    if len(rows) < _LEAST:
        return None
    x, y = (np.ascontiguousarray(pixels[rows, i], dtype=np.float32)[:, None] for i in range(2))
    found = cv2.remap(image, x, y, cv2.INTER_LINEAR)[:, 0].astype(float)
    along = [cv2.remap(slope[..., i], x, y, cv2.INTER_LINEAR)[:, 0] for i in range(2)]
    gradient = np.stack(along, axis=-1).astype(float)  # [N, 3, 2]
    to_pixels = bearing_jacobian_to_pixels(camera, bearings[rows])
    return (
        found,
        gradient @ (to_pixels @ modes_of_points(posed[rows], pose.translation)),
        normals[rows],
        rows,
        facing[rows],
    )

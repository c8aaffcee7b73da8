"""Fit the pose of a textured mesh to the colours of one frame: Gauss-Newton from coarse to fine, up to light.

Points of the surface have the colours of the mesh, lit as in `texture.Light`. The pose moves the points over the image:
direct alignment (Lucas and Kanade 1981; Baker and Matthews 2004). Points behind a finger or in a highlight count less.

Limits: errors of a tenth of the body's size are within reach, where the texture has large patches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels, bearings_to_pixels
from vid2phys.engine.pose_geometry import modes_of_points
from vid2phys.geometry import Pose
from vid2phys.tracking.cues.photometric import MODES
from vid2phys.tracking.cues.texture import Light, SurfaceTexture
from vid2phys.types import Array, Camera


@dataclass(frozen=True, kw_only=True)
class TextureFitConfig:
    """Settings of `fit_texture`."""

    grazing: float = 0.2
    """Least cosine between normal and line of sight at which a point is seen."""
    min_grazing_trust: float = 0.05
    """Least weight of a point that is hardly seen."""
    pure_range: tuple[float, float] = (0.6, 0.3)
    """Share of a point's surroundings on its own side from which on it counts, and the range to its full weight."""
    min_points: int = 40
    """Least number of points."""
    steps: int = 5
    """Largest number of steps at each blur."""
    still: tuple[float, ...] = (1e-3, 1e-3, 1e-3, 5e-5, 5e-5, 3e-4)
    """Step [6] after which no further one follows, in local coordinates of the pose."""
    min_blur_px: float = 0.8
    """Least blur of the frame, px."""
    correlated_points: float = 12.0
    """Number of points that count as one."""
    margin_px: int = 12
    """Margin of the patch around the body, px."""
    prior_std: tuple[float, ...] = (0.3, 0.3, 0.3, 0.02, 0.02, 0.1)
    """Standard deviations [6] of the start, which damp the steps."""


DEFAULTS = TextureFitConfig()


@dataclass(frozen=True)
class TextureFit:
    """A pose fitted to colours.

    Attributes:
        pose: camera_from_body.
        information: of the colours, [6, 6], in the local coordinates of the pose.
        score: share of the image's variation on the body that the texture explains, at most 1.
    """

    pose: Pose
    information: Array
    score: float


def fit_texture(
    frame: NDArray[np.uint8],
    camera: Camera,
    texture: SurfaceTexture,
    pose: Pose,
    config: TextureFitConfig = DEFAULTS,
) -> TextureFit | None:
    """Fit a pose camera_from_body to the colours in a frame [H, W, 3]; None where too little is seen of the body."""
    size_px = _size_px(camera, texture, pose, config)
    if size_px is None:
        return None
    information, score = np.zeros((MODES, MODES)), 0.0
    damping = np.diag(np.array(config.prior_std) ** -2.0)
    for share, colors, pure in zip(texture.blur_shares, texture.fine_colors, texture.pure, strict=True):
        blurred = _blurred(frame, camera, texture, pose, share * size_px, config)
        if blurred is None:
            return None
        best, kept = None, pose
        for _ in range(config.steps):
            seen = _colors(blurred, camera, texture, pose, config)
            if seen is None:
                return None
            found, change, normals, rows, facing = seen
            trust = np.clip((pure[rows] - config.pure_range[0]) / config.pure_range[1], 0.0, 1.0)
            trust *= np.clip((facing - config.grazing) / config.grazing, config.min_grazing_trust, 1.0)
            light = Light.fit(found, colors[rows], normals, trust, texture.config)
            if best is not None and light.misfit > best[0].misfit:
                break
            kept, best = pose, (light, found, normals, trust)
            floor = texture.config.noise_floor
            weight = light.weight / (config.correlated_points * (light.scale + floor**2))
            flat = change.reshape(-1, MODES)
            weighted = flat.T * np.repeat(weight, 3)
            information = weighted @ flat
            step = np.linalg.solve(information + damping, -weighted @ light.residual.ravel())
            pose = pose.retract(np.asarray(step, dtype=float))
            if (np.abs(step) < config.still).all():
                break
        pose = kept
        assert best is not None
        score = best[0].explained(*best[1:])
    return TextureFit(pose, information, score)


def mirrored(texture: SurfaceTexture, pose: Pose) -> Pose:
    """Return the pose in which the side that faces the camera looks almost the same, tilted the other way.

    The texture of a flat side shows its tilt only by perspective. The other sides decide between both.
    """
    normals, placed = texture.fine_normals @ pose.rotation.T, pose.apply(texture.fine_points)
    facing = np.maximum(-(normals * placed).sum(axis=1) / np.linalg.norm(placed, axis=1), 0.0)
    candidates = texture.fine_normals[:: max(1, len(facing) // 60)]
    alike = texture.fine_normals @ candidates.T > 0.95  # [M, C]
    chosen = int(np.argmax(facing @ alike))
    side = alike[:, chosen]
    middle = np.average(texture.fine_points[side], axis=0, weights=facing[side] + 1e-9)
    ray = pose.rotation @ middle + pose.translation
    ray = ray / np.linalg.norm(ray)
    normal = candidates[chosen]
    rotation = (np.eye(3) - 2.0 * np.outer(ray, ray)) @ pose.rotation @ (np.eye(3) - 2.0 * np.outer(normal, normal))
    return Pose(rotation, pose.translation + (pose.rotation - rotation) @ middle)


def _size_px(camera: Camera, texture: SurfaceTexture, pose: Pose, config: TextureFitConfig) -> float | None:
    """Return the size of the body in the frame, px; None where it is behind the camera or hardly in the frame."""
    placed = pose.apply(texture.fine_points)
    if placed[:, 2].min() <= 0.0:
        return None
    pixels = bearings_to_pixels(camera, placed[:, :2] / placed[:, 2:])
    inside = np.isfinite(pixels).all(axis=1)
    return float(np.ptp(pixels[inside], axis=0).max()) if inside.sum() > config.min_points else None


def _blurred(
    frame: NDArray[np.uint8],
    camera: Camera,
    texture: SurfaceTexture,
    pose: Pose,
    blur_px: float,
    config: TextureFitConfig,
) -> tuple[NDArray[np.float32], NDArray[np.float32], Array] | None:
    """Return the patch of the frame around the body, blurred; None for too small a patch.

    The results are the patch [h, w, 3] in 0..1, its derivative by x and y [h, w, 3, 2], and its first pixel (x, y).
    """
    import cv2

    blur_px = max(config.min_blur_px, blur_px)
    placed = pose.apply(texture.fine_points)
    pixels = bearings_to_pixels(camera, placed[:, :2] / placed[:, 2:])
    extent, margin = np.array(frame.shape[1::-1]), config.margin_px + 3.0 * blur_px
    low = np.clip(np.floor(np.nanmin(pixels, axis=0) - margin), 0, extent).astype(int)
    high = np.clip(np.ceil(np.nanmax(pixels, axis=0) + margin) + 1, low, extent).astype(int)
    if (high - low).min() < 4:
        return None
    patch = frame[low[1] : high[1], low[0] : high[0]].astype(np.float32) / np.float32(255.0)
    image = np.asarray(cv2.GaussianBlur(patch, (0, 0), blur_px), dtype=np.float32)
    slope = np.stack([cv2.Sobel(image, -1, i, 1 - i, scale=0.125) for i in (1, 0)], axis=-1)
    return image, np.asarray(slope, dtype=np.float32), low.astype(float)


def _colors(
    patch: tuple[NDArray[np.float32], NDArray[np.float32], Array],
    camera: Camera,
    texture: SurfaceTexture,
    pose: Pose,
    config: TextureFitConfig,
) -> tuple[Array, Array, Array, NDArray[np.int64], Array] | None:
    """Return the colours of the patch (`_blurred`) at the points that are seen; None for too few.

    The results are colours [N, 3], their derivative by the pose [N, 3, 6], the normals [N, 3] of the points in camera
    axes, the indices [N] of the points, and the cosines [N] between normal and line of sight.
    """
    import cv2

    image, slope, corner = patch
    normals = texture.fine_normals @ pose.rotation.T
    placed = pose.apply(texture.fine_points)
    facing = -(normals * placed).sum(axis=1) / np.linalg.norm(placed, axis=1)
    bearings = placed[:, :2] / np.maximum(placed[:, 2:], 1e-9)
    pixels = bearings_to_pixels(camera, bearings) - corner
    extent = np.array(image.shape[1::-1]) - 2.0
    rows = np.flatnonzero(
        (facing > config.grazing) & (placed[:, 2] > 0.0) & ((pixels > 1.0) & (pixels < extent)).all(axis=1)
    )
    if len(rows) < config.min_points:
        return None
    x, y = (np.ascontiguousarray(pixels[rows, i], dtype=np.float32)[:, None] for i in range(2))
    found = cv2.remap(image, x, y, cv2.INTER_LINEAR)[:, 0].astype(float)
    along = [cv2.remap(slope[..., i], x, y, cv2.INTER_LINEAR)[:, 0] for i in range(2)]
    gradient = np.stack(along, axis=-1).astype(float)  # [N, 3, 2]
    to_pixels = bearing_jacobian_to_pixels(camera, bearings[rows])
    return (
        found,
        gradient @ (to_pixels @ modes_of_points(placed[rows], pose.translation)),
        normals[rows],
        rows,
        facing[rows],
    )

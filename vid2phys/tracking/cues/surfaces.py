"""Smooth parts of a surface, each of one colour, before a known background: a model of all pixels around a body.

Purpose: the contour cue takes the strongest step of colour for the contour. Where a narrow side of a body is nearly as
bright as the background, the strongest step is the crease beside the contour. Here each part has its own colour, and
sides without contrast say nothing.

Method: a pixel is the mean of the colours in it, weighted by their areas, which a supersampled drawing gives. Light
adds up, so colours are linear light and not display values. Colours of a frame enter linearly, and are eliminated
(variable projection; Kaufman, BIT 1975). What stays is a quadratic model of the pose (Gauss-Newton).

Limits: a static camera whose background is known beside the body. A texture widens the errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import project
from vid2phys.geometry import Pose
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.light import linear
from vid2phys.types import Array, Camera, Mesh


@dataclass(frozen=True, kw_only=True)
class SurfacesConfig:
    """Settings of the cue. Colours are linear light, 0 to 1."""

    supersample: int = 3
    """Drawn pixels along each side of a pixel."""
    blur_px: float = 0.5
    """Standard deviation of the blur of lens and codec, px."""
    margin_px: int = 4
    """Width of the background around the body that counts, px."""
    step_px: float = 1.0
    """Largest motion of a vertex in the differences that give derivatives, px."""
    color_std: float = 0.25
    """Standard deviation of a part's colour about that of the body."""
    large_px: float = 300.0
    """Area from which on a part's colour has a slope along both axes of the image, px."""
    least_px: float = 40.0
    """Least area of the body."""
    noise: float = 0.004
    """Least standard deviation of a pixel."""
    usual: float = 0.03
    """Usual difference of pixels and model, with which poses are compared."""
    robust_sigma: float = 2.0
    """Standard deviations beyond which a pixel counts less."""
    same_px: float = 6.0
    """Number of pixels that err alike."""


DEFAULTS = SurfacesConfig()
_LEAST_SEEN = 2  # frames in which the background has to be seen


@dataclass(frozen=True)
class Backdrop:
    """The background of a static camera, in linear light: image [H, W, 3] and which pixels are known [H, W]."""

    image: NDArray[np.float32]
    known: NDArray[np.bool_]

    @staticmethod
    def of(
        frames: Sequence[NDArray[np.uint8]],
        unlike: Sequence[NDArray[np.bool_]],
        camera: Camera,
        mesh: Mesh,
        poses: Pose,
        margin_px: int,
    ) -> Backdrop:
        """Return the median of what frames [H, W, 3] show beside a body at poses [T], by `margin_px` at least.

        unlike: pixels [H, W] of each frame that do not have the body's colours. They show the background even where the
        poses, which may be off, have the body.
        """
        shown = np.stack([linear(frame) for frame in frames])
        part, whole = np.zeros(len(mesh.faces), dtype=np.int64), (0, 0, camera.width, camera.height)
        for k, image in enumerate(shown):
            body = _shares(poses[k].apply(mesh.vertices), mesh.faces, part, camera, whole, 1)[0] > 0.0
            image[_grown(body, margin_px) & _grown(~unlike[k], 1)] = np.nan
        count = np.isfinite(shown[..., 0]).sum(axis=0)
        known = count >= _LEAST_SEEN
        image = np.zeros(shown.shape[1:], dtype=np.float32)
        image[known] = _median(shown[:, known], count[known])
        return Backdrop(image, known)


@dataclass(frozen=True)
class PoseModel:
    """A quadratic model of the pose of a body in a frame, in local coordinates.

    Attributes:
        information: [6, 6] about the pose.
        pull: [6] information times the step to the best pose.
        gain: log-likelihood ratio of the body at the pose and of nothing but the background, nats.
    """

    information: Array
    pull: Array
    gain: float


def pose_model(
    frame: NDArray[np.uint8],
    backdrop: Backdrop,
    camera: Camera,
    solid: Solid,
    pose: Pose,
    config: SurfacesConfig = DEFAULTS,
) -> PoseModel | None:
    """Return what a frame states about a pose; None where the body is too small or beside the frame.

    Args:
        frame: [H, W, 3].
        backdrop: the background.
        camera: of the frame.
        solid: mesh and its smooth parts.
        pose: camera_from_body.
        config: settings.
    """
    vertices = pose.apply(solid.mesh.vertices)
    box = _box(vertices, camera, config)
    if box is None:
        return None
    parts, part = np.unique(solid.smooth_parts, return_inverse=True)
    whole = _shares(vertices, solid.mesh.faces, part, camera, box, len(parts), config)
    seen_parts = np.flatnonzero(whole.sum(axis=(1, 2)) > 1.0)
    share = whole[seen_parts]
    areas = share.sum(axis=(1, 2))
    rows, columns = slice(box[1], box[1] + box[3]), slice(box[0], box[0] + box[2])
    near = _grown(share.sum(axis=0) > 0.02, config.margin_px) & backdrop.known[rows, columns]
    if not len(seen_parts) or min(areas.sum(), near.sum()) < config.least_px:
        return None
    seen = linear(frame[rows, columns][near]).astype(float)
    behind = backdrop.image[rows, columns][near].astype(float)
    at = share[:, near].astype(float)
    basis = _basis(at, areas, near, config)
    inside = at.sum(axis=0)
    pure = inside > 0.9
    middle = np.median(seen[pure], axis=0) if pure.any() else seen.mean(axis=0)
    target = seen - inside[:, None] * middle - (1.0 - inside)[:, None] * behind
    slopes = []
    for step in _steps(pose, solid, camera, config):
        ahead, back = (
            _shares(pose.retract(s * step).apply(solid.mesh.vertices), solid.mesh.faces, part, camera, box, len(parts),
                    config)[seen_parts]
            for s in (1.0, -1.0)
        )  # fmt: skip
        slopes.append((ahead - back)[:, near] / (2.0 * float(np.abs(step).max())))
    return _solved(target, basis, np.stack(slopes), (middle, behind, seen - behind), config)


def _solved(
    target: Array, basis: Array, slopes: Array, colors: tuple[Array, Array, Array], config: SurfacesConfig
) -> PoseModel:
    """Return the model of a pose, from what colours have to explain.

    target: [N, 3] pixels less the body's usual colour and the background. basis: [M, N] of the colours. slopes:
    [6, P, N] of the shares of parts. colors: usual colour [3], background [N, 3], pixels less the background
    [N, 3].
    """
    middle, behind, changed = colors
    weight = np.ones(len(target))
    moved = slopes.sum(axis=1)[..., None] * (middle - behind)  # [6, N, 3]
    count = slopes.shape[1]
    noise = config.noise
    for _ in range(3):
        weighted = basis * weight
        inverse = np.linalg.inv(weighted @ basis.T + (noise / config.color_std) ** 2 * np.eye(len(basis)))
        color = inverse @ (weighted @ target)
        off = target - basis.T @ color
        size = (off**2).mean(axis=-1)
        noise = max(config.noise, float(np.sqrt(np.median(size) / 0.79)))
        weight = 1.0 / (1.0 + size / (noise * config.robust_sigma) ** 2)
    constant = color[:count]  # [P, 3] colours of the parts beside the usual one, in their middle
    jacobian = moved + np.swapaxes(slopes, 1, 2) @ constant
    left = weighted @ jacobian  # [6, M, 3]
    free = weight[:, None] * (jacobian - basis.T @ (inverse @ left))
    scale = 1.0 / (noise**2 * config.same_px)
    information = scale * free.reshape(6, -1) @ jacobian.reshape(6, -1).T
    pull = scale * free.reshape(6, -1) @ off.ravel()
    gain = (_cost(changed, config) - _cost(off, config)) / config.same_px
    return PoseModel(0.5 * (information + information.T), pull, gain)


def _cost(off: Array, config: SurfacesConfig) -> float:
    """Return the robust cost of residuals [N, 3], nats."""
    return float(np.log1p((off**2).mean(axis=-1) / config.usual**2).sum())


def _basis(share: Array, areas: Array, near: NDArray[np.bool_], config: SurfacesConfig) -> Array:
    """Return what the colours multiply, [M, N]: shares of parts, then slopes of the large ones."""
    rows, columns = np.nonzero(near)
    size = max(float(np.ptp(rows)), float(np.ptp(columns)), 1.0)
    u, v = (rows - rows.mean()) / size, (columns - columns.mean()) / size
    large = share[areas > config.large_px]
    return np.concatenate([share, large * u, large * v])


def _box(vertices: Array, camera: Camera, config: SurfacesConfig) -> tuple[int, int, int, int] | None:
    """Return left, top, width and height of the rectangle around a body, px; None beside the frame or behind it."""
    if not vertices[:, 2].min() > 0.0:
        return None
    pixels, more = project(camera, vertices), config.margin_px + 4
    left, top = np.maximum(np.floor(pixels.min(axis=0)).astype(int) - more, 0).tolist()
    right, bottom = np.minimum(np.ceil(pixels.max(axis=0)).astype(int) + more, [camera.width, camera.height]).tolist()
    return (left, top, right - left, bottom - top) if min(right - left, bottom - top) > 2 else None


def _shares(
    vertices: Array,
    faces: NDArray[np.int64],
    part: NDArray[np.int64],
    camera: Camera,
    box: tuple[int, int, int, int],
    count: int,
    config: SurfacesConfig = DEFAULTS,
) -> NDArray[np.float32]:
    """Return the share of each part in the pixels of a rectangle, [P, h, w], through the lens."""
    import cv2

    pixels = project(camera, vertices) - np.array(box[:2])
    drawn = _drawn(pixels, 1.0 / vertices[:, 2], faces, part, box[2], box[3], count, config.supersample)
    for k in range(count):
        if drawn[k].any():
            drawn[k] = cv2.GaussianBlur(drawn[k], (0, 0), config.blur_px)
    return drawn


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _drawn(
    pixels: Array,
    nearness: Array,
    faces: NDArray[np.int64],
    part: NDArray[np.int64],
    width: int,
    height: int,
    count: int,
    supersample: int,
) -> NDArray[np.float32]:
    """Return the share of each part in each pixel, [P, h, w], by a z-buffer of finer pixels.

    Args:
        pixels: [V, 2] vertices, px.
        nearness: [V] 1 / depth, 1/m.
        faces: [F, 3] indices of vertices.
        part: [F] of the faces.
        width: of the image.
        height: of the image.
        count: number of parts.
        supersample: finer pixels along each side of a pixel.
    """
    rows, columns = height * supersample, width * supersample
    near = np.zeros((rows, columns), np.float32)
    label = np.full((rows, columns), -1, np.int32)
    half = 0.5 * (supersample - 1)
    for f in range(len(faces)):
        a, b, c = faces[f]
        xa, ya = supersample * pixels[a, 0] + half, supersample * pixels[a, 1] + half
        ux, uy = supersample * pixels[b, 0] + half - xa, supersample * pixels[b, 1] + half - ya
        vx, vy = supersample * pixels[c, 0] + half - xa, supersample * pixels[c, 1] + half - ya
        area = ux * vy - uy * vx
        if area == 0.0:
            continue
        base, du, dv = nearness[a], nearness[b] - nearness[a], nearness[c] - nearness[a]
        by_x, by_y = (du * vy - dv * uy) / area, (dv * ux - du * vx) / area
        for row in range(
            max(0, math.ceil(ya + min(0.0, uy, vy))), min(rows - 1, math.floor(ya + max(0.0, uy, vy))) + 1
        ):
            y, left, right = row - ya, math.inf, -math.inf
            for x0, y0, x1, y1 in ((0.0, 0.0, ux, uy), (ux, uy, vx, vy), (vx, vy, 0.0, 0.0)):
                if min(y0, y1) <= y <= max(y0, y1):
                    if y0 == y1:
                        left, right = min(left, x0, x1), max(right, x0, x1)
                    else:
                        x = x0 + (x1 - x0) * (y - y0) / (y1 - y0)
                        left, right = min(left, x), max(right, x)
            if left > right:
                continue
            for column in range(max(0, math.ceil(xa + left)), min(columns - 1, math.floor(xa + right)) + 1):
                value = np.float32(base + by_y * y + by_x * (column - xa))
                if value > near[row, column]:
                    near[row, column], label[row, column] = value, part[f]
    out, one = np.zeros((count, height, width), np.float32), np.float32(1.0 / supersample**2)
    for row in range(rows):
        for column in range(columns):
            if label[row, column] >= 0:
                out[label[row, column], row // supersample, column // supersample] += one
    return out


def _steps(pose: Pose, solid: Solid, camera: Camera, config: SurfacesConfig) -> Array:
    """Return a step [6, 6] along each coordinate that moves vertices by `step_px` at most."""
    at, small = project(camera, pose.apply(solid.mesh.vertices)), 1e-4
    steps = []
    for unit in np.eye(6):
        moved = project(camera, pose.retract(small * unit).apply(solid.mesh.vertices)) - at
        most = float(np.nanmax(np.linalg.norm(moved, axis=-1))) / small
        steps.append(config.step_px / max(most, 1e-6) * unit)
    return np.array(steps)


def _median(values: NDArray[np.float32], count: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the median [P, 3] of values [T, P, 3] of which `count` [P] are numbers, and the others NaN."""
    ordered = np.sort(values, axis=0)  # NaN comes last
    low, high = (np.take_along_axis(ordered, k[None, :, None], axis=0)[0] for k in ((count - 1) // 2, count // 2))
    return np.asarray(0.5 * (low + high), dtype=np.float32)


def _grown(mask: NDArray[np.bool_], margin_px: int) -> NDArray[np.bool_]:
    import cv2

    size = 2 * margin_px + 1
    return np.asarray(cv2.dilate(mask.astype(np.uint8), np.ones((size, size), np.uint8)) > 0)

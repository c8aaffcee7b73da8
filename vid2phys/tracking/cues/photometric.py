"""Aligning a posed mesh to the pixels of a clip: the body's light over the clip's own background, pose by Gauss-Newton.

In linear light an image is coverage * body + (1 - coverage) * background. The body's parts have one colour each that
changes linearly with the direction of the surface in the world (a fixed light, as first-order spherical harmonics:
Basri and Jacobs 2003); these colours are the same in all frames and are solved for by least squares. Poses move the
image of the body over the background that is known from other frames, so silhouettes count as much as what is inside.
Nothing here is learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels, pixels_to_bearings
from vid2phys.engine.pose_geometry import modes_of_points
from vid2phys.engine.render.rasterizer import Raster, rasterize_camera
from vid2phys.geometry import Pose
from vid2phys.indices import evenly
from vid2phys.tracking.cues.background_image import Backdrop, backdrop, grown
from vid2phys.tracking.cues.light import (
    CORRELATED_PX,
    LENS_PX,
    blurred,
    display_slope,
    linear,
    part_basis,
    reduced,
    smaller,
)
from vid2phys.types import Array, Camera, Clip, Mesh

MODES = 6  # rotation [rad] about camera x, y, z; sideways as fractions of the range; log distance
PRIOR_STD = np.array([0.06, 0.06, 0.06, 3e-3, 3e-3, 0.04])  # how wrong a pose may be that is to be aligned
_SUPERSAMPLE = 3
MARGIN_PX = 7  # of background around the silhouette
_APART_PX = 2.5  # from the body: around it
_SHADOW_PX = 4.0  # over which shadows change
_SHADOW_RIDGE = 1e-4
_SHADOW_GAIN = (0.2, 1.3)
_SOFT_PX = (2.0, 1.2, 0.8)  # blur of image and prediction, a round: wide first
_BACKDROP_FRAMES, _BACKDROP_BYTES = (9, 24), 300e6
_COLOR_FRAMES = 16
_MOST_PX = 120.0  # of the body; a larger one is looked at in a smaller image, where a step is a pixel or two
_COLOR_RIDGE = 1e-3
_GAIN_STD = 0.15  # of the body's brightness from frame to frame
_ROBUST_SIGMA = 2.5  # residuals beyond count less (Cauchy)
_NOISE = 0.004  # of a pixel, full scale 1


@dataclass(frozen=True)
class Stage:
    """What stays the same through a clip: mesh, camera, what is behind the body.

    camera: of the images that are compared, `reduction` times smaller than the clip's and the backdrop's.
    """

    mesh: Mesh
    camera: Camera
    backdrop: Backdrop
    reduction: int = 1

    def look(self, frame: NDArray[np.uint8], pose: Pose) -> Look | None:
        """A frame [H, W, 3] with the body at about a pose camera_from_body; None where that is out of the image."""
        mask = grown(draw(self.mesh, self.camera, pose, 1).mask, MARGIN_PX)
        if not mask.any():
            return None
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        box = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
        whole = tuple(slice(part.start * self.reduction, part.stop * self.reduction) for part in box)
        size = box[1].stop - box[1].start, box[0].stop - box[0].start
        light, behind = (reduced(linear(image[whole]), size) for image in (frame, self.backdrop.image))
        level = 0.5 * (blurred(light, 1.5) + blurred(behind, 1.5)).mean(axis=-1)
        slope = display_slope(level)
        known = mask[box] & (reduced(self.backdrop.known[whole].astype(np.float32), size) > 1.0 - 1e-3)
        patch = Patch(*box, light, behind, (slope * known).astype(np.float32))
        return Look(self, patch, pose)


def stage_of(clip: Clip, camera: Camera, mesh: Mesh, pose: Pose) -> Stage:
    """Return the stage of a clip from poses camera_from_body [T] of its frames, NaN where a pose is not known."""
    known = np.flatnonzero(pose.is_finite)
    count = int(np.clip(_BACKDROP_BYTES / (3 * clip.width * clip.height), *_BACKDROP_FRAMES))
    chosen = known[evenly(len(known), count)]
    drawn = [draw(mesh, camera, pose[i], 1) for i in chosen]
    size_px = np.median([max(part.stop - part.start for part in raster.window) for raster in drawn])
    reduction = max(1, int(np.ceil(size_px / _MOST_PX)))
    masks = [grown(raster.mask, MARGIN_PX * reduction) for raster in drawn]
    return Stage(mesh, smaller(camera, reduction), backdrop(list(clip.frames.at(chosen)), masks), reduction)


def draw(mesh: Mesh, camera: Camera, pose: Pose, supersample: int) -> Raster:
    """The mesh at a pose camera_from_body."""
    return rasterize_camera(pose.apply(mesh.vertices), mesh.faces, camera, supersample)


@dataclass(frozen=True)
class Patch:
    """The box of a frame around the body. frame, behind: linear light, [h, w, 3]. weight: [h, w], zero outside the
    mask and where the background is not known, else the slope of the display's tone curve."""

    rows: slice
    columns: slice
    frame: NDArray[np.float32]
    behind: NDArray[np.float32]
    weight: NDArray[np.float32]

    def lit_as_around(self, covered: NDArray[np.float32]) -> Patch:
        """With what is behind the body as bright as around it: it hangs in its own shadow. covered: [h, w]."""
        import cv2

        apart = cv2.distanceTransform((covered < 1e-3).astype(np.uint8), cv2.DIST_L2, 3)
        known = (self.weight > 0.0) & (apart > _APART_PX)
        both = np.stack([(self.frame * self.behind).sum(axis=-1), (self.behind**2).sum(axis=-1)], axis=-1)
        both = cv2.GaussianBlur(both * known[..., None], (0, 0), _SHADOW_PX) + _SHADOW_RIDGE
        gain = np.clip(both[..., 0] / both[..., 1], *_SHADOW_GAIN).astype(np.float32)
        return replace(self, behind=self.behind * gain[..., None])


@dataclass(frozen=True)
class Alignment:
    """Aligned poses of N frames.

    steps: [N, 6] from the given poses to the aligned ones, in MODES. information: [N, 6, 6] of the pixels alone. level:
    [N] mean squared residual (display values, full scale 1). log_likelihood: of all frames, poses and colours profiled,
    up to a constant that depends on the patches alone; nats. usable: [N], False where nothing could be compared.
    """

    steps: Array
    information: Array
    level: Array
    log_likelihood: float
    usable: NDArray[np.bool_]

    @property
    def covariance(self) -> Array:
        """Of the steps as the pixels state it, [N, 6, 6]; the prior keeps what they do not show finite."""
        return np.asarray(np.linalg.inv(self.information + np.diag(PRIOR_STD**-2.0)))


def align(looks: Sequence[Look], *, prior_std: Array = PRIOR_STD) -> Alignment:
    """Align the poses of frames that show one body in one light, as far as `prior_std` [6] allows."""
    count = len(looks)
    some = evenly(count, _COLOR_FRAMES)
    steps, level = np.zeros((count, MODES)), np.full(count, np.inf)
    information, usable = np.zeros((count, MODES, MODES)), np.zeros(count, dtype=bool)
    colors: Array | None = None
    for soft in _SOFT_PX:
        drawn = (looks[i].at(steps[i]) for i in some)  # one at a time
        colors = _solve_colors(drawn, len(looks[0].stage.mesh.part_names), soft, colors, level[some])
        for i, look in enumerate(looks):
            found = _gauss_newton(look.at(steps[i]), colors, soft, steps[i], prior_std)
            usable[i] = found is not None
            if found is not None:
                steps[i] += found.step
                information[i], level[i] = found.information, found.level
    return Alignment(steps, information, level, _log_likelihood(looks, level, steps / prior_std, usable), usable)


@dataclass(frozen=True)
class Look:
    """One frame, the pose that the body is thought to have in it, and the body drawn there."""

    stage: Stage
    patch: Patch
    pose: Pose
    raster: Raster | None = field(default=None, repr=False)

    def at(self, step: Array) -> Look:
        """At the pose moved by [6], drawn."""
        pose = self.pose.retract(step)
        raster = draw(self.stage.mesh, self.stage.camera, pose, _SUPERSAMPLE)
        drawn = replace(self, pose=pose, raster=raster)
        covered = drawn.spread(np.zeros((len(self.stage.mesh.faces), 0), dtype=np.float32))[..., 0]
        return replace(drawn, patch=self.patch.lit_as_around(covered))

    def basis(self) -> NDArray[np.float32]:
        """What the colours of the faces are linear in: part, and part times normal in the world, [F, 4 * parts]."""
        assert self.raster is not None
        pose = self.stage.camera.camera_to_world
        axes = None if pose is None else np.asarray(pose, dtype=float)[:3, :3]
        return part_basis(self.stage.mesh, self.raster.normals, self._sight(), axes)

    def _sight(self) -> Array:
        """Directions [F, 3] from the camera to the faces."""
        vertices = self.pose.apply(self.stage.mesh.vertices)
        return vertices[self.stage.mesh.faces[:, 0]]

    def spread(self, by_face: NDArray[np.float32]) -> NDArray[np.float32]:
        """Values of faces [F, C] over the patch, times coverage; then coverage and 1 / depth [1/m]: [h, w, C + 2]."""
        raster, patch = self.raster, self.patch
        assert raster is not None
        s, seen = raster.supersample, raster.faces_seen
        table = np.zeros((len(by_face) + 1, by_face.shape[1] + 2), dtype=np.float32)  # its last row is "no face"
        table[:-1, :-2], table[:-1, -2] = by_face, 1.0
        values = table[seen]
        values[..., -1] = raster.nearness
        h, w = seen.shape[0] // s, seen.shape[1] // s
        mean = values.reshape(h, s, w * s, -1).sum(axis=1).reshape(h, w, s, -1).sum(axis=2) / np.float32(s * s)
        out = np.zeros((*patch.weight.shape, mean.shape[-1]), dtype=np.float32)
        rows, inner_rows = _overlap(raster.image_window[0], patch.rows)
        columns, inner_columns = _overlap(raster.image_window[1], patch.columns)
        out[rows, columns] = mean[inner_rows, inner_columns]
        return out


@dataclass(frozen=True)
class _Step:
    step: Array
    information: Array
    level: float


def _solve_colors(looks: Iterable[Look], parts: int, soft: float, before: Array | None, level: Array) -> Array:
    """Colours [4 * parts, 3] in linear light by least squares over frames; pixels that the last ones did not explain
    count less."""
    size = 4 * parts
    normal, right = np.zeros((size, size)), np.zeros((size, 3))
    for look, mean_square in zip(looks, level, strict=True):
        patch = look.patch
        spread = blurred(look.spread(look.basis()), LENS_PX)
        weights = blurred(spread[..., :-2], soft)
        target = blurred(patch.frame - (1.0 - spread[..., -2:-1]) * patch.behind, soft)
        square = patch.weight**2
        if before is not None and np.isfinite(mean_square):
            residual = ((target - weights @ before.astype(np.float32)) ** 2).mean(axis=-1) * square
            square = square / (1.0 + residual / (_ROBUST_SIGMA**2 * mean_square))
        flat = weights.reshape(-1, weights.shape[-1]).astype(float)
        weighted = flat * square.reshape(-1, 1)
        normal += weighted.T @ flat
        right += weighted.T @ target.reshape(-1, 3)
    ridge = (_COLOR_RIDGE * np.trace(normal) / size + 1e-12) * np.eye(size)
    return np.asarray(np.linalg.solve(normal + ridge, right))


def _predict(look: Look, colors: Array) -> NDArray[np.float32]:
    """The body's light times coverage, coverage, 1 / depth: [h, w, 5], the first four through the lens."""
    spread = look.spread(look.basis() @ colors.astype(np.float32))
    spread[..., :4], covered = blurred(spread[..., :4], LENS_PX), spread[..., 3].copy()
    spread[..., 4] /= np.maximum(covered, 1e-6)
    return spread


def _residual(look: Look, body: NDArray[np.float32], soft: float) -> NDArray[np.float32]:
    """Seen minus predicted in display values, [h, w, 3]."""
    patch = look.patch
    light = patch.frame - body[..., :3] - (1.0 - body[..., 3:4]) * patch.behind
    return blurred(light, soft) * patch.weight[..., None]


def _gauss_newton(look: Look, colors: Array, soft: float, so_far: Array, prior_std: Array) -> _Step | None:
    body = _predict(look, colors)
    pixels = int(np.count_nonzero(look.patch.weight))
    near = body[..., 4]
    if pixels == 0 or not (near > 0.0).any():
        return None
    residual = _residual(look, body, soft)
    level = float((residual**2).sum()) / (3 * pixels) + _NOISE**2
    robust = 1.0 / (1.0 + (residual**2).mean(axis=-1) / (_ROBUST_SIGMA**2 * level))
    jacobian = _jacobian(look, body, near, soft)  # [h, w, 7, 3]
    jacobian = np.moveaxis(jacobian, 2, 3).reshape(-1, MODES + 1).astype(float)
    weighted = jacobian.T * (np.repeat(robust.ravel(), 3) / (level * CORRELATED_PX))
    normal, right = weighted @ jacobian, weighted @ residual.ravel()
    normal[MODES, MODES] += _GAIN_STD**-2.0
    gain = normal[:MODES, MODES] / normal[MODES, MODES]
    information = normal[:MODES, :MODES] - np.outer(gain, normal[MODES, :MODES])
    right = right[:MODES] - gain * right[MODES]
    step = np.linalg.solve(information + np.diag(prior_std**-2.0), right - so_far / prior_std**2)
    return _Step(np.clip(step, -2.0 * prior_std, 2.0 * prior_std), information, level)


def _jacobian(look: Look, body: NDArray[np.float32], near: NDArray[np.float32], soft: float) -> NDArray[np.float32]:
    """Derivative of the prediction wrt the modes and the log of the body's brightness, display values, [h, w, 7, 3].

    A small motion carries the body's image along: d image = -gradient . flow. Next to the silhouette the flow is
    that of the nearest point of the body.
    """
    patch = look.patch
    flow = _flow(look, near).astype(np.float32)  # [h, w, 2, 6]
    down, right = (np.asarray(d) for d in np.gradient(body[..., :4], axis=(0, 1)))
    change = -(right[:, :, None] * flow[:, :, 0, :, None] + down[:, :, None] * flow[:, :, 1, :, None])
    light = change[..., :3] - change[..., 3:] * patch.behind[:, :, None]
    light = np.concatenate([light, body[:, :, None, :3]], axis=2)
    height, width = light.shape[:2]
    soft_light = blurred(light.reshape(height, width, -1).astype(np.float32), soft).reshape(light.shape)
    return soft_light * patch.weight[..., None, None]


def _flow(look: Look, near: NDArray[np.float32]) -> Array:
    """How the image moves with the pose, pixels [h, w, 2, 6]."""
    from scipy.ndimage import distance_transform_edt

    nearest = distance_transform_edt(near <= 0.0, return_distances=False, return_indices=True)
    corner = np.array([look.patch.columns.start, look.patch.rows.start], dtype=float)
    pixels = np.stack([nearest[1], nearest[0]], axis=-1) + corner
    bearings = pixels_to_bearings(look.stage.camera, pixels)
    depth = 1.0 / near[nearest[0], nearest[1]].astype(float)
    points = np.concatenate([bearings, np.ones((*depth.shape, 1))], axis=-1) * depth[..., None]
    to_pixels = bearing_jacobian_to_pixels(look.stage.camera, bearings.reshape(-1, 2).mean(axis=0))
    return np.asarray(to_pixels @ modes_of_points(points, look.pose.translation))


def _log_likelihood(looks: Sequence[Look], level: Array, pull: Array, usable: NDArray[np.bool_]) -> float:
    pixels = 3.0 * np.array([np.count_nonzero(look.patch.weight) for look in looks])
    total = -0.5 * pixels / CORRELATED_PX * np.log(np.where(usable, level, 1.0)) - 0.5 * (pull**2).sum(axis=1)
    return float(total[usable].sum())


def _overlap(window: slice, box: slice) -> tuple[slice, slice]:
    """Where a window lies in a box, and which part of the window that is."""
    start, stop = max(window.start, box.start), max(min(window.stop, box.stop), max(window.start, box.start))
    return slice(start - box.start, stop - box.start), slice(start - window.start, stop - window.start)

"""Align a mesh to the pixels of a clip: the body's light over the clip's own background, poses by Gauss-Newton.

In linear light an image is coverage * body + (1 - coverage) * background. Each part of the body has one colour that
changes linearly with the surface's normal in the world: a fixed light, as first-order spherical harmonics (Basri and
Jacobs 2003). These colours are common to all frames and solved by least squares. Poses move the image of the body over
the background that other frames show. So silhouettes count as much as the inside. Nothing is learned.

Limits: a static camera, a background that some frame shows, and poses that are nearly right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels, pixels_to_bearings
from vid2phys.engine.parallel import in_processes
from vid2phys.engine.pose_geometry import modes_of_points
from vid2phys.engine.render.rasterizer import Raster, rasterize_camera
from vid2phys.geometry import Pose
from vid2phys.indices import evenly
from vid2phys.tracking.cues import Cue
from vid2phys.tracking.cues.background_image import Backdrop, backdrop, grown
from vid2phys.tracking.cues.light import DEFAULTS as LIGHT
from vid2phys.tracking.cues.light import (
    LightConfig,
    blurred,
    display_slope,
    linear,
    part_basis,
    reduced,
    smaller,
)
from vid2phys.types import Array, Camera, Clip, Mesh

CUE = Cue("alignment of the whole clip to its pixels after the first fit; `identify` alone uses this cue")

MODES = 6  # rotation about camera x, y, z [rad]; sideways as shares of the distance; log distance
PRIOR_STD = np.array([0.06, 0.06, 0.06, 3e-3, 3e-3, 0.04])  # of the poses before the alignment
_COVERED = 1e-3  # least coverage of a pixel of the body


@dataclass(frozen=True, kw_only=True)
class PhotometricConfig:
    """Settings of the photometric cue."""

    supersample: int = 3
    """Samples on each side of a pixel when the body is drawn."""
    margin_px: int = 7
    """Background around the silhouette that is compared, px."""
    apart_px: float = 2.5
    """Distance from the body from which on a pixel shows the background's light, px."""
    shadow_px: float = 4.0
    """Length over which shadows change, px."""
    shadow_ridge: float = 1e-4
    """Ridge of the shadow's gain."""
    shadow_gain: tuple[float, float] = (0.2, 1.3)
    """Least and largest gain of the background by shadows."""
    blurs_px: tuple[float, ...] = (2.0, 1.2, 0.8)
    """Blur of image and prediction in each round, px; wide first."""
    background_frames: tuple[int, int] = (9, 24)
    """Least and largest number of frames from which the background is estimated."""
    background_bytes: float = 300e6
    """Memory of these frames, bytes."""
    color_frames: int = 16
    """Largest number of frames from which the colours are solved."""
    max_size_px: float = 120.0
    """Largest size of the body, px; larger bodies are aligned in a smaller image, where a step is a pixel or two."""
    color_ridge: float = 1e-3
    """Ridge of the colours, as a share of the mean diagonal."""
    gain_std: float = 0.15
    """Standard deviation of the logarithm of the body's brightness between frames."""
    robust_sigma: float = 2.5
    """Residual beyond which a pixel counts less, in standard deviations (Cauchy)."""
    noise: float = 0.004
    """Noise of a pixel, full scale 1."""
    max_step: float = 2.0
    """Largest step, in standard deviations of the prior."""
    light: LightConfig = LIGHT
    """Blur of the lens, and correlation of pixels."""


DEFAULTS = PhotometricConfig()


@dataclass(frozen=True)
class Stage:
    """All that stays the same in a clip.

    Attributes:
        mesh: of the body.
        camera: of the images that are compared, `reduction` times smaller than those of clip and background.
        backdrop: the background.
        reduction: pixels of the clip on a side of a pixel that is compared.
        config: settings.
    """

    mesh: Mesh
    camera: Camera
    backdrop: Backdrop
    reduction: int = 1
    config: PhotometricConfig = DEFAULTS

    def frame_at(self, frame: NDArray[np.uint8], pose: Pose) -> PoseInFrame | None:
        """Return a frame [H, W, 3] with the body near a pose camera_from_body; None where no pixel shows the body."""
        mask = grown(draw(self.mesh, self.camera, pose, 1).mask, self.config.margin_px)
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
        return PoseInFrame(self, patch, pose)


def stage_of(clip: Clip, camera: Camera, mesh: Mesh, pose: Pose, config: PhotometricConfig = DEFAULTS) -> Stage:
    """Return the stage of a clip from poses camera_from_body [T] of its frames, NaN where a pose is not known."""
    known = np.flatnonzero(pose.is_finite)
    count = int(np.clip(config.background_bytes / (3 * clip.width * clip.height), *config.background_frames))
    chosen = known[evenly(len(known), count)]
    drawn = [draw(mesh, camera, pose[i], 1) for i in chosen]
    size_px = np.median([max(part.stop - part.start for part in raster.window) for raster in drawn])
    reduction = max(1, int(np.ceil(size_px / config.max_size_px)))
    masks = [grown(raster.mask, config.margin_px * reduction) for raster in drawn]
    behind = backdrop(list(clip.frames.at(chosen)), masks)
    return Stage(mesh, smaller(camera, reduction), behind, reduction, config)


def draw(mesh: Mesh, camera: Camera, pose: Pose, supersample: int) -> Raster:
    """Draw a mesh at a pose camera_from_body."""
    return rasterize_camera(pose.apply(mesh.vertices), mesh.faces, camera, supersample)


@dataclass(frozen=True)
class Patch:
    """The box of a frame around the body.

    Attributes:
        rows: of the frame.
        columns: of the frame.
        frame: [h, w, 3] linear light.
        behind: [h, w, 3] linear light of the background.
        weight: [h, w] slope of the display's tone curve; zero outside of the mask and where no background is known.
    """

    rows: slice
    columns: slice
    frame: NDArray[np.float32]
    behind: NDArray[np.float32]
    weight: NDArray[np.float32]

    def with_shadow(self, covered: NDArray[np.float32], config: PhotometricConfig) -> Patch:
        """Return the patch with the background behind the body as bright as around it; covered: [h, w].

        A body may hang in its own shadow.
        """
        import cv2

        apart = cv2.distanceTransform((covered < _COVERED).astype(np.uint8), cv2.DIST_L2, 3)
        known = (self.weight > 0.0) & (apart > config.apart_px)
        both = np.stack([(self.frame * self.behind).sum(axis=-1), (self.behind**2).sum(axis=-1)], axis=-1)
        both = cv2.GaussianBlur(both * known[..., None], (0, 0), config.shadow_px) + config.shadow_ridge
        gain = np.clip(both[..., 0] / both[..., 1], *config.shadow_gain).astype(np.float32)
        return replace(self, behind=self.behind * gain[..., None])


@dataclass(frozen=True)
class Alignment:
    """Aligned poses of N frames.

    Attributes:
        steps: [N, 6] from the given poses to the aligned ones (`Pose.retract`).
        information: [N, 6, 6] of the pixels alone.
        level: [N] mean squared residual, display values, full scale 1.
        log_likelihood: of all frames, with poses and colours profiled, up to a constant of the patches, nats.
        usable: [N], False where no pixel could be compared.
    """

    steps: Array
    information: Array
    level: Array
    log_likelihood: float
    usable: NDArray[np.bool_]

    @property
    def covariance(self) -> Array:
        """The covariance [N, 6, 6] of the steps as the pixels state it, with the prior, which keeps it finite."""
        return np.asarray(np.linalg.inv(self.information + np.diag(PRIOR_STD**-2.0)))


def align(frames: Sequence[PoseInFrame], *, prior_std: Array = PRIOR_STD) -> Alignment:
    """Align the poses of frames that show one body in one light, as far as `prior_std` [6] allows."""
    count, config = len(frames), frames[0].stage.config
    some = evenly(count, config.color_frames)
    steps, level = np.zeros((count, MODES)), np.full(count, np.inf)
    information, usable = np.zeros((count, MODES, MODES)), np.zeros(count, dtype=bool)
    colors: Array | None = None
    for blur_px in config.blurs_px:
        drawn = (frames[i].at(steps[i]) for i in some)  # one at a time
        colors = _solve_colors(drawn, frames[0].stage, blur_px, colors, level[some])
        step_of = partial(_step_of, frames, steps, colors, blur_px, prior_std)
        for i, found in enumerate(in_processes(step_of, range(count))):
            usable[i] = found is not None
            if found is not None:
                steps[i] += found.step
                information[i], level[i] = found.information, found.level
    return Alignment(steps, information, level, _log_likelihood(frames, level, steps / prior_std, usable), usable)


@dataclass(frozen=True)
class PoseInFrame:
    """One frame, a pose of the body in it, and the body drawn there.

    Attributes:
        stage: of the clip.
        patch: of the frame.
        pose: camera_from_body.
        raster: the drawn body; None before `at`.
    """

    stage: Stage
    patch: Patch
    pose: Pose
    raster: Raster | None = field(default=None, repr=False)

    def at(self, step: Array) -> PoseInFrame:
        """Return the frame with the pose moved by a step [6], and the body drawn."""
        pose = self.pose.retract(step)
        raster = draw(self.stage.mesh, self.stage.camera, pose, self.stage.config.supersample)
        drawn = replace(self, pose=pose, raster=raster)
        covered = drawn.spread(np.zeros((len(self.stage.mesh.faces), 0), dtype=np.float32))[..., 0]
        return replace(drawn, patch=self.patch.with_shadow(covered, self.stage.config))

    def basis(self) -> NDArray[np.float32]:
        """Return the basis [F, 4 * parts] of the faces' colours: part, and part times normal in the world."""
        assert self.raster is not None
        pose = self.stage.camera.camera_to_world
        axes = None if pose is None else np.asarray(pose, dtype=float)[:3, :3]
        return part_basis(self.stage.mesh, self.raster.normals, self._rays(), axes)

    def _rays(self) -> Array:
        """Return the directions [F, 3] from the camera to the faces."""
        vertices = self.pose.apply(self.stage.mesh.vertices)
        return vertices[self.stage.mesh.faces[:, 0]]

    def spread(self, by_face: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return values of faces [F, C] over the patch, times coverage, then coverage and 1 / depth: [h, w, C + 2]."""
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


def _step_of(
    frames: Sequence[PoseInFrame], steps: Array, colors: Array, blur_px: float, prior_std: Array, i: int
) -> _Step | None:
    """Return a further step of frame i, after the steps [N, 6] so far."""
    return _gauss_newton(frames[i].at(steps[i]), colors, blur_px, steps[i], prior_std)


def _solve_colors(
    frames: Iterable[PoseInFrame], stage: Stage, blur_px: float, before: Array | None, level: Array
) -> Array:
    """Solve for the colours [4 * parts, 3] in linear light by least squares over frames.

    Pixels that the colours of the last round (before) did not explain count less.
    """
    size, config = 4 * len(stage.mesh.part_names), stage.config
    normal, right = np.zeros((size, size)), np.zeros((size, 3))
    for frame, mean_square in zip(frames, level, strict=True):
        patch = frame.patch
        spread = blurred(frame.spread(frame.basis()), config.light.lens_px)
        weights = blurred(spread[..., :-2], blur_px)
        target = blurred(patch.frame - (1.0 - spread[..., -2:-1]) * patch.behind, blur_px)
        square = patch.weight**2
        if before is not None and np.isfinite(mean_square):
            residual = ((target - weights @ before.astype(np.float32)) ** 2).mean(axis=-1) * square
            square = square / (1.0 + residual / (config.robust_sigma**2 * mean_square))
        flat = weights.reshape(-1, weights.shape[-1]).astype(float)
        weighted = flat * square.reshape(-1, 1)
        normal += weighted.T @ flat
        right += weighted.T @ target.reshape(-1, 3)
    ridge = (config.color_ridge * np.trace(normal) / size + 1e-12) * np.eye(size)
    return np.asarray(np.linalg.solve(normal + ridge, right))


def _predict(frame: PoseInFrame, colors: Array) -> NDArray[np.float32]:
    """Return the body's light times coverage, coverage, and 1 / depth: [h, w, 5], the first four through the lens."""
    spread = frame.spread(frame.basis() @ colors.astype(np.float32))
    spread[..., :4], covered = blurred(spread[..., :4], frame.stage.config.light.lens_px), spread[..., 3].copy()
    spread[..., 4] /= np.maximum(covered, 1e-6)
    return spread


def _residual(frame: PoseInFrame, body: NDArray[np.float32], blur_px: float) -> NDArray[np.float32]:
    """Return the image minus its prediction in display values, [h, w, 3]."""
    patch = frame.patch
    light = patch.frame - body[..., :3] - (1.0 - body[..., 3:4]) * patch.behind
    return blurred(light, blur_px) * patch.weight[..., None]


def _gauss_newton(frame: PoseInFrame, colors: Array, blur_px: float, so_far: Array, prior_std: Array) -> _Step | None:
    """Return one step of a pose whose steps so far sum to `so_far` [6]; None where no pixel can be compared."""
    config = frame.stage.config
    body = _predict(frame, colors)
    pixels = int(np.count_nonzero(frame.patch.weight))
    near = body[..., 4]
    if pixels == 0 or not (near > 0.0).any():
        return None
    residual = _residual(frame, body, blur_px)
    level = float((residual**2).sum()) / (3 * pixels) + config.noise**2
    robust = 1.0 / (1.0 + (residual**2).mean(axis=-1) / (config.robust_sigma**2 * level))
    jacobian = _jacobian(frame, body, near, blur_px)  # [h, w, 7, 3]
    jacobian = np.moveaxis(jacobian, 2, 3).reshape(-1, MODES + 1).astype(float)
    weighted = jacobian.T * (np.repeat(robust.ravel(), 3) / (level * config.light.correlated_px))
    normal, right = weighted @ jacobian, weighted @ residual.ravel()
    normal[MODES, MODES] += config.gain_std**-2.0
    gain = normal[:MODES, MODES] / normal[MODES, MODES]
    information = normal[:MODES, :MODES] - np.outer(gain, normal[MODES, :MODES])
    right = right[:MODES] - gain * right[MODES]
    step = np.linalg.solve(information + np.diag(prior_std**-2.0), right - so_far / prior_std**2)
    most = config.max_step * prior_std
    return _Step(np.clip(step, -most, most), information, level)


def _jacobian(
    frame: PoseInFrame, body: NDArray[np.float32], near: NDArray[np.float32], blur_px: float
) -> NDArray[np.float32]:
    """Return the derivative [h, w, 7, 3] of the prediction by the pose and the log of the body's brightness.

    A small motion moves the body's image: d image = -gradient . flow. Beside the silhouette the flow is that of the
    nearest point of the body. Values are display values.
    """
    patch = frame.patch
    flow = _flow(frame, near).astype(np.float32)  # [h, w, 2, 6]
    down, right = (np.asarray(d) for d in np.gradient(body[..., :4], axis=(0, 1)))
    change = -(right[:, :, None] * flow[:, :, 0, :, None] + down[:, :, None] * flow[:, :, 1, :, None])
    light = change[..., :3] - change[..., 3:] * patch.behind[:, :, None]
    light = np.concatenate([light, body[:, :, None, :3]], axis=2)
    height, width = light.shape[:2]
    smooth = blurred(light.reshape(height, width, -1).astype(np.float32), blur_px).reshape(light.shape)
    return smooth * patch.weight[..., None, None]


def _flow(frame: PoseInFrame, near: NDArray[np.float32]) -> Array:
    """Return the motion of the image by the pose, [h, w, 2, 6], px."""
    from scipy.ndimage import distance_transform_edt

    nearest = distance_transform_edt(near <= 0.0, return_distances=False, return_indices=True)
    corner = np.array([frame.patch.columns.start, frame.patch.rows.start], dtype=float)
    pixels = np.stack([nearest[1], nearest[0]], axis=-1) + corner
    bearings = pixels_to_bearings(frame.stage.camera, pixels)
    depth = 1.0 / near[nearest[0], nearest[1]].astype(float)
    points = np.concatenate([bearings, np.ones((*depth.shape, 1))], axis=-1) * depth[..., None]
    to_pixels = bearing_jacobian_to_pixels(frame.stage.camera, bearings.reshape(-1, 2).mean(axis=0))
    return np.asarray(to_pixels @ modes_of_points(points, frame.pose.translation))


def _log_likelihood(frames: Sequence[PoseInFrame], level: Array, pull: Array, usable: NDArray[np.bool_]) -> float:
    """Return the log-likelihood of frames with mean squares `level`; pull: [N, 6] of the prior."""
    correlated_px = frames[0].stage.config.light.correlated_px
    pixels = 3.0 * np.array([np.count_nonzero(frame.patch.weight) for frame in frames])
    total = -0.5 * pixels / correlated_px * np.log(np.where(usable, level, 1.0)) - 0.5 * (pull**2).sum(axis=1)
    return float(total[usable].sum())


def _overlap(window: slice, box: slice) -> tuple[slice, slice]:
    """Return where a window lies in a box, and which part of the window that is."""
    start, stop = max(window.start, box.start), max(min(window.stop, box.stop), max(window.start, box.start))
    return slice(start - box.start, stop - box.start), slice(start - window.start, stop - window.start)

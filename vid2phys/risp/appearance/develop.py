"""Develop a training image from a render of the body before black, through the pipeline of a real video frame.

The light of body and background is mixed, with the body's shadow, look-alikes and occluders. It is shrunk to the size
that the body has in a frame (20 to 100 px). There it is blurred, exposed, made noisy and compressed. The virtual camera
then resamples it bilinearly, as it does with a tracked frame. Derivatives of the light pass the same steps, linearised.

Limits: noise and codec are constants of the derivative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.appearance import camera_chain as chain
from vid2phys.risp.appearance.backgrounds import compose_background
from vid2phys.risp.appearance.codec import compress
from vid2phys.risp.appearance.distractors import add_lookalikes
from vid2phys.risp.appearance.occluders import hand, occlude
from vid2phys.risp.appearance.randomisation import ALL, Randomisation
from vid2phys.risp.appearance.shadows import cast_shadow
from vid2phys.types import Array

Linear = NDArray[Any]  # float32 light
FILL = 2.0 / 3.0  # share of the view that the body's bounding sphere takes
IN_FRAME_PX = (20.0, 100.0)  # diameter of the bounding sphere in the frame, log-triangular with its mode at MODE_PX
MODE_PX = 50.0
VIEW_PX = (IN_FRAME_PX[0] / FILL, MODE_PX / FILL, IN_FRAME_PX[1] / FILL)
_SHADOW, _LOOKALIKE, _HAND_BEHIND, _OCCLUDED, _TRANSLUCENT = 0.3, 0.15, 0.06, 0.3, 0.06  # shares of the images


class RenderLike(Protocol):
    """The parts of a dataset's render that are used here."""

    @property
    def radiance(self) -> NDArray[Any]:
        """Return premultiplied linear RGB and coverage, [S, S, 4]."""

    @property
    def K(self) -> Array:  # noqa: N802
        """Return the pinhole matrix [3, 3] of the S x S image, px, pixel centres at integers."""

    @property
    def view_from_body(self) -> Array:
        """Return the pose [4, 4] of the body, m, OpenCV axes."""

    @property
    def tangents(self) -> NDArray[Any] | None:
        """Return the derivatives [P, S, S, 4] of the radiance by psi, or None."""


@dataclass(frozen=True)
class Developed:
    """A training image.

    Attributes:
        image: [V, V, 3] uint8.
        points_px: [K, 2] keypoints, pixels of the image.
        visible: [K], False outside of the image or behind an occluder.
        tangents: [P, V, V, 3] derivative of the image by psi, display units per standard deviation of psi, or None.
        K: [3, 3] camera matrix of the image, px.
        view_from_body: [4, 4] pose of the body in the image, m.
    """

    image: NDArray[np.uint8]
    points_px: Array
    visible: NDArray[np.bool_]
    tangents: Linear | None
    K: Array
    view_from_body: Array


def project(render: RenderLike, points_body: Array) -> Array:
    """Return the pixels [K, 2] of body points [K, 3] m in the render."""
    pose = np.asarray(render.view_from_body, dtype=float)
    pixels = (points_body @ pose[:3, :3].T + pose[:3, 3]) @ np.asarray(render.K, dtype=float).T
    return pixels[:, :2] / pixels[:, 2:]


def apply_affine(matrix: Array, points: Array) -> Array:
    """Apply an affine map [2, 3] to points [..., 2]."""
    return points @ matrix[:, :2].T + matrix[:, 2]


def compose_affine(outer: Array, inner: Array) -> Array:
    """Return the affine map outer(inner(x)), [2, 3] each."""
    return np.concatenate([outer[:, :2] @ inner[:, :2], (outer[:, :2] @ inner[:, 2] + outer[:, 2])[:, None]], axis=1)


def similarity(scale: float, turn_rad: float, source_center: Array, target_center: Array) -> Array:
    """Return the affine map [2, 3] that rotates and scales about a point and moves this point to `target_center`."""
    c, s = scale * np.cos(turn_rad), scale * np.sin(turn_rad)
    linear = np.array([[c, -s], [s, c]])
    return np.concatenate([linear, (np.asarray(target_center) - linear @ source_center)[:, None]], axis=1)


@dataclass(frozen=True)
class DevelopOptions:
    """How images are developed.

    Attributes:
        size: Width and height V of the image, px.
        bank: [N, B, B, 3] uint8 background images.
        jitter: Whether to rotate, zoom and shift the render a little beyond the dataset's own variation. Without it the
            camera is that of the render, scaled to V.
        absent: Whether to leave the body out, so that nothing is visible.
        view_px: Least, most frequent and largest width of the image in frame pixels.
        varied: What is randomised.
    """

    size: int
    bank: NDArray[np.uint8]
    jitter: bool = True
    absent: bool = False
    view_px: tuple[float, float, float] = VIEW_PX
    varied: Randomisation = ALL


def develop(render: RenderLike, points_body: Array, rng: np.random.Generator, options: DevelopOptions) -> Developed:
    """Develop one training image of a render, with keypoints [K, 3] m of the body."""
    size, view_px = options.size, options.view_px
    source = render.radiance.shape[0]
    middle = np.full(2, (size - 1) / 2)
    angle, zoom, shift = 0.0, 1.0, np.zeros(2)
    if options.jitter:
        angle, zoom, shift = rng.normal(0, 0.07), np.exp(rng.normal(0, 0.05)), rng.normal(0, 0.025 * size, 2)
    view_from_render = similarity(zoom * size / source, angle, np.full(2, (source - 1) / 2), middle + shift)
    in_frame = float(np.exp(rng.triangular(*np.log(view_px))))
    if not options.varied.small_bodies:
        in_frame = max(in_frame, view_px[1])
    side = int(np.ceil(in_frame)) + 6
    grid_turn = rng.normal(0, 0.1) if rng.random() < 0.3 else 0.0
    frame_from_view = similarity(
        in_frame / size, grid_turn, middle, np.full(2, (side - 1) / 2) + rng.uniform(-0.5, 0.5, 2)
    )
    points_px = apply_affine(view_from_render, project(render, points_body))
    frame_from_render = compose_affine(frame_from_view, view_from_render)
    frame = _expose(render, frame_from_render, rng, side=side, options=options)
    in_image = (points_px >= -0.5).all(-1) & (points_px <= size - 0.5).all(-1)
    cells = np.clip(np.round(apply_affine(frame_from_view, points_px)), 0, side - 1).astype(int)
    view_from_frame = np.asarray(cv2.invertAffineTransform(frame_from_view), dtype=float)
    image = chain.area_filtered_warp(frame.image.astype(np.float32), view_from_frame, (size, size), replicate=True)
    tangents = frame.tangents
    if tangents is not None:
        stacked = np.moveaxis(tangents, 0, -2).reshape(side, side, -1)
        stacked = chain.area_filtered_warp(stacked, view_from_frame, (size, size), replicate=True)
        tangents = np.ascontiguousarray(np.moveaxis(stacked.reshape(size, size, -1, 3), -2, 0))
    return Developed(
        _bytes(image),
        points_px,
        in_image & ~frame.hidden[cells[:, 1], cells[:, 0]],
        tangents,
        *_developed_camera(render, view_from_render, angle),
    )


def _developed_camera(render: RenderLike, view_from_render: Array, turn_rad: float) -> tuple[Array, Array]:
    """Return camera matrix and pose after a similarity of the image, whose rotation is a roll of the camera."""
    about_axis = np.eye(4)
    about_axis[:2, :2] = [[np.cos(turn_rad), -np.sin(turn_rad)], [np.sin(turn_rad), np.cos(turn_rad)]]
    K = np.vstack([view_from_render, [0.0, 0.0, 1.0]]) @ np.asarray(render.K, dtype=float) @ about_axis[:3, :3].T
    return K, about_axis @ np.asarray(render.view_from_body, dtype=float)


@dataclass(frozen=True)
class _Frame:
    """A piece [side, side] of a video frame: bytes, where the body is hidden or the image ends, and derivatives."""

    image: NDArray[np.uint8]
    hidden: NDArray[np.bool_]
    tangents: Linear | None


def _expose(
    render: RenderLike,
    frame_from_render: Array,
    rng: np.random.Generator,
    *,
    side: int,
    options: DevelopOptions,
) -> _Frame:
    """Return the piece [side, side] of a video frame that shows the render, before a random background."""
    bank, absent, varied = options.bank, options.absent, options.varied
    body, derivative = body_in_frame(render, frame_from_render, rng, side=side, varied=varied)
    background = compose_background(rng, bank, side)
    if rng.random() < 0.25:
        background = _like_body(rng, background, body)
    background = _around(rng, background, body, bank, varied)
    light = background if absent else body[..., :3] + (1.0 - body[..., 3:]) * background
    before, own = rng.random() < _OCCLUDED, _seed(rng)
    covered = np.zeros((side, side), np.float32)
    if before and varied.occlusion:
        light, covered = occlude(np.random.default_rng(own), light, body[..., 3], bank)
    soft = min(1.0, side / 75.0)  # a smaller image of the body is not more blurred
    seen = None if derivative is None else derivative * (1.0 - covered[..., None])
    display, slope = expose_light(rng, light, seen, soft, varied)
    hidden = (covered > 0.5) | absent
    if rng.random() < 0.04:
        hidden |= _cut_off(rng, display)
    image = _bytes(display)
    return _Frame(compress(rng, image) if varied.codec else image, hidden, slope)


def _around(
    rng: np.random.Generator, background: Linear, body: Linear, bank: NDArray[np.uint8], varied: Randomisation
) -> Linear:
    """Return the background [s, s, 3] with look-alikes, a hand that holds the body from behind, and a shadow."""
    chances, seeds = rng.random(3), [_seed(rng) for _ in range(3)]
    if chances[0] < _LOOKALIKE and varied.distractors:
        background = add_lookalikes(np.random.default_rng(seeds[0]), background, body)
    if chances[1] < _HAND_BEHIND and varied.distractors:
        side = len(background)
        mask, skin = hand(
            np.random.default_rng(seeds[1]), background, np.full(2, 0.5 * (side - 1)), side * FILL / 3.0, bank
        )
        background = background + mask[..., None] * (skin - background)
    if chances[2] < _SHADOW and varied.shadows:
        background = cast_shadow(np.random.default_rng(seeds[2]), background, np.ascontiguousarray(body[..., 3]))
    return background


def _seed(rng: np.random.Generator) -> int:
    """Return a seed for an effect that can be switched off, so that later random numbers do not depend on it."""
    return int(rng.integers(1 << 62))


def body_in_frame(
    render: RenderLike,
    frame_from_render: Array,
    rng: np.random.Generator,
    *,
    side: int,
    varied: Randomisation = ALL,
) -> tuple[Linear, Linear | None]:
    """Return the body's light and coverage at frame resolution [side, side, 4], and derivatives [P, side, side, 3].

    The brightness is normalised: the mean reflected light is log-normal around 0.16 of a white surface.
    """
    radiance = np.asarray(render.radiance, dtype=np.float32)
    covered = radiance[..., 3] > 0.5
    mean = float(chain.luminance(radiance[..., :3])[covered].mean()) if covered.any() else 1.0
    gain = np.float32(np.exp(rng.normal(np.log(0.16), 0.8)) / max(mean, 1e-4))
    scale = float(np.sqrt(abs(np.linalg.det(frame_from_render[:, :2]))))
    length = rng.exponential(2.5) if rng.random() < 0.35 else 0.0
    angle = rng.uniform(0, 2 * np.pi)
    shift = min(length, 0.08 * scale * radiance.shape[0]) * np.array([np.cos(angle), np.sin(angle)])
    shift = shift if varied.motion_blur else 0.0 * shift
    opacity = np.float32(rng.uniform(0.45, 0.9)) if rng.random() < _TRANSLUCENT else np.float32(1.0)
    if varied.translucency:  # smoked plastic: the background shines through, the body's own light is weaker
        gain *= np.float32(0.4) + np.float32(0.6) * opacity
    else:
        opacity = np.float32(1.0)
    light = radiance * np.array([gain, gain, gain, opacity], np.float32)

    def warped(image: Linear) -> Linear:
        return chain.area_filtered_warp(
            image, frame_from_render, (side, side), replicate=False, filtered=varied.antialiasing
        )

    body = chain.motion_blur(warped(light), shift)
    if render.tangents is None:
        return body, None
    tangents = np.asarray(render.tangents, dtype=np.float32)[..., :3] * gain
    stacked = np.moveaxis(tangents, 0, -2).reshape(*tangents.shape[1:3], -1)
    pieces = warped(stacked).reshape(side, side, -1, 3)
    moved = [chain.motion_blur(np.ascontiguousarray(pieces[:, :, p]), shift) for p in range(pieces.shape[2])]
    return body, np.stack(moved)


def expose_light(
    rng: np.random.Generator,
    light: Linear,
    derivative: Linear | None,
    softness: float = 1.0,
    varied: Randomisation = ALL,
) -> tuple[Linear, Linear | None]:
    """Apply defocus, exposure and noise to linear light. Return display values 0..255 and their derivatives."""
    sigma = softness * abs(rng.normal(0.0, 0.6))
    light = chain.gaussian_blur(light, sigma)
    exposure = chain.draw_exposure(rng, light, varied)
    display, own = exposure.apply(light), _seed(rng)
    if varied.noise:
        display = chain.sensor_noise(np.random.default_rng(own), display)
    if derivative is None:
        return display, None
    blurred = np.stack([chain.gaussian_blur(np.ascontiguousarray(d), sigma) for d in derivative])
    return display, exposure.apply_derivative(light, blurred)


def _bytes(display: Linear) -> NDArray[np.uint8]:
    """Round display values to bytes."""
    return np.clip(np.round(display), 0, 255).astype(np.uint8)


def _like_body(rng: np.random.Generator, background: Linear, body: Linear) -> Linear:
    """Return the background in about the body's own colour: the low-contrast case."""
    alpha = body[..., 3].sum() + 1e-3
    ratio = (body[..., :3].sum((0, 1)) / alpha + 1e-3) / (background.mean((0, 1)) + 1e-3)
    return background * (ratio ** rng.uniform(0.4, 1.0)).astype(np.float32)


def _cut_off(rng: np.random.Generator, display: Linear) -> NDArray[np.bool_]:
    """Let the frame end inside the image: repeat its edge in place, as `virtual_camera.resample` does; return where."""
    side = display.shape[0]
    beyond = np.zeros((side, side), np.bool_)
    keep = int(side * rng.uniform(0.5, 0.9))
    direction = int(rng.integers(4))
    rotated, mask = np.rot90(display, direction), np.rot90(beyond, direction)
    rotated[keep:] = rotated[keep - 1]
    mask[keep:] = True
    return beyond

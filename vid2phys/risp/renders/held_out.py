"""Short clips of looks held out from training: the images that the error model is calibrated on.

A render sequence is put on a background that stays where it is while the body moves over it, in half of the clips with
its shadow, through one setting of the camera chain, at one in-frame size: what a video of one flight would give the
tracker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.error_clock import error_clock
from vid2phys.io.photographs import photographs
from vid2phys.risp.appearance import camera_chain as chain
from vid2phys.risp.appearance.backgrounds import compose_background, make_bank
from vid2phys.risp.appearance.codec import compress
from vid2phys.risp.appearance.develop import IN_FRAME_PX, body_in_frame
from vid2phys.risp.appearance.shadows import cast_shadow
from vid2phys.risp.renders.dataset import Render, RenderSet
from vid2phys.risp.renders.viewpoints import FRAMES_PER_SEQUENCE
from vid2phys.types import Array, Camera

_MARGIN = 1.3  # of the frame around the body, in diameters of its bounding sphere
_SHADOW = 0.5  # of looks show the body's shadow
_BANK = 64  # photographs to put clips on
SPEED_PX = 2.0  # of the body over the background, a frame


@dataclass(frozen=True)
class HeldOutClip:
    """frames: T images, uint8. cameras: their cameras (they turn after the body). rotation: [T, 3, 3] and translation
    [T, 3] m, camera_from_body. times_s: [T]. diameter_px: of the bounding sphere in the first frame. background: a
    frame
    without the body."""

    frames: list[NDArray[np.uint8]]
    cameras: list[Camera]
    rotation: Array
    translation: Array
    times_s: Array
    diameter_px: float
    background: NDArray[np.uint8]

    @property
    def clock_s(self) -> Array:
        """Its times by the clock of errors, [T]."""
        return error_clock(self.times_s, self.rotation)


def make_clips(
    renders: RenderSet,
    radius_m: float,
    most: int,
    *,
    seed: int,
    in_frame_px: tuple[float, float] = IN_FRAME_PX,
    speed_px: float = SPEED_PX,
    progress: Callable[[float], None] | None = None,
) -> Iterator[tuple[int, HeldOutClip]]:
    """At most so many sequences with their clips, on photographs: see `make_clip`. progress: is told the share that is
    done with."""
    bank = make_bank(photographs(), count=_BANK, seed=seed + 1)
    count = min(len(renders) // FRAMES_PER_SEQUENCE, most)
    for sequence in range(count):
        yield (
            sequence,
            make_clip(renders, sequence, radius_m, bank, seed=seed, in_frame_px=in_frame_px, speed_px=speed_px),
        )
        if progress is not None:
            progress((sequence + 1) / count)


def make_clip(
    renders: RenderSet,
    sequence: int,
    radius_m: float,
    bank: NDArray[np.uint8],
    *,
    seed: int,
    in_frame_px: tuple[float, float] = IN_FRAME_PX,
    speed_px: float = SPEED_PX,
) -> HeldOutClip:
    """Clip of render sequence `sequence`, the same for the same seed.

    in_frame_px: between which its bounding sphere's diameter in the frame is drawn. speed_px: of the body over the
    background, a frame; 0: it stands still.
    """
    rng = np.random.default_rng([seed, sequence])
    samples = [renders.sample(sequence * FRAMES_PER_SEQUENCE + i) for i in range(FRAMES_PER_SEQUENCE)]
    diameter = float(np.exp(rng.uniform(*np.log(in_frame_px))))
    scale = diameter / _rendered_diameter(samples[0], radius_m) * samples[0].K[0, 0]  # focal length of the clip, px
    way = _way(rng, len(samples), speed_px)
    half = 0.5 * np.ptp(way, axis=0).max() + _MARGIN * diameter
    side = int(np.ceil(2.0 * half))
    stage = _Stage.set_up(rng, samples[0], bank, side)
    frames, cameras = [], []
    for index, (sample, place) in enumerate(zip(samples, way - 0.5 * (way.max(0) + way.min(0)), strict=True)):
        frame_from_render = _place_in_frame(sample, scale, 0.5 * (side - 1) + place)
        frames.append(stage.image(sample, frame_from_render, index))
        K = np.vstack([frame_from_render, [0.0, 0.0, 1.0]]) @ sample.K
        cameras.append(Camera(K, side, side))
    poses = np.stack([np.asarray(sample.view_from_body, dtype=float) for sample in samples])
    times = np.array([sample.time_s for sample in samples])
    return HeldOutClip(
        frames, cameras, poses[:, :3, :3], poses[:, :3, 3], times, diameter, stage.image(None, np.eye(2, 3), 0)
    )


def _rendered_diameter(sample: Render, radius_m: float) -> float:
    distance = float(np.linalg.norm(sample.view_from_body[:3, 3]))
    return float(2.0 * np.tan(np.arcsin(radius_m / distance)) * sample.K[0, 0])


def _way(rng: np.random.Generator, count: int, speed_px: float) -> Array:
    """Where the body is relative to the background, [T, 2] px: steady motion with a slow bend."""
    t = np.arange(count, dtype=float)
    bend = rng.normal(0.0, 0.015 * speed_px, 2) * (t[:, None] - 0.5 * count) ** 2
    return t[:, None] * rng.normal(0.0, speed_px, 2) + bend + rng.uniform(-0.5, 0.5, 2)


def _place_in_frame(sample: Render, focal: float, center: Array) -> Array:
    """Affine map [2, 3] from the render's pixels to the frame's: zoom to `focal`, body origin to `center`."""
    zoom = focal / sample.K[0, 0]
    origin = sample.K @ sample.view_from_body[:3, 3]
    shift = center - zoom * origin[:2] / origin[2]
    return np.array([[zoom, 0.0, shift[0]], [0.0, zoom, shift[1]]])


@dataclass(frozen=True)
class _Stage:
    """What stays the same through a clip: background, brightness of the body, blur, exposure, noise, codec."""

    background: NDArray[np.float32]
    exposure: chain.Exposure
    blur_px: float
    seed: int
    shadowed: bool

    @staticmethod
    def set_up(rng: np.random.Generator, first: Render, bank: NDArray[np.uint8], side: int) -> _Stage:
        background = compose_background(rng, bank, side)
        exposure = chain.draw_exposure(rng, background)
        blur_px, seed = abs(rng.normal(0.0, 0.6)), int(rng.integers(1 << 31))
        return _Stage(background, exposure, blur_px, seed, bool(rng.random() < _SHADOW))

    def image(self, sample: Render | None, frame_from_render: Array, index: int) -> NDArray[np.uint8]:
        """One frame; drawing from the same seed each time keeps the look, rolling the noise makes it new."""
        side = len(self.background)
        light: NDArray[Any] = self.background
        if sample is not None:
            body, _ = body_in_frame(sample, frame_from_render, np.random.default_rng([self.seed, 0]), side=side)
            if self.shadowed:
                light = cast_shadow(np.random.default_rng([self.seed, 4]), light, np.ascontiguousarray(body[..., 3]))
            light = body[..., :3] + (1.0 - body[..., 3:]) * light
        display = self.exposure.apply(chain.gaussian_blur(light, self.blur_px))
        roll = np.random.default_rng([self.seed, 1, index]).integers(side, size=2)
        noisy = chain.sensor_noise(
            np.random.default_rng([self.seed, 2]), np.ascontiguousarray(np.roll(display, roll, axis=(0, 1)))
        )
        noisy = np.roll(noisy, -roll, axis=(0, 1))
        return compress(np.random.default_rng([self.seed, 3]), np.clip(np.round(noisy), 0, 255).astype(np.uint8))

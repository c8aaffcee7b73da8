"""Short clips with held-out appearances, on which error models are calibrated.

The body of a render sequence moves over a static background, in half of the clips with its shadow. All frames of a clip
share the settings of the camera pipeline and the size in the frame, as in a video of one flight.

Limits: the camera's rotation follows the body; the background does not show it.
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

_MARGIN = 1.3  # half width of the frame around the body, in diameters of its bounding sphere
_SHADOW = 0.5  # share of the appearances with the body's shadow
_BANK = 64  # number of background images
SPEED_PX = 2.0  # motion of the body over the background per frame


@dataclass(frozen=True)
class HeldOutClip:
    """A clip of T frames with its truth.

    Attributes:
        frames: T images [H, W, 3].
        cameras: Their cameras, which rotate with the body.
        rotation: [T, 3, 3] of camera_from_body.
        translation: [T, 3] of camera_from_body, m.
        times_s: [T], s.
        diameter_px: Diameter of the bounding sphere in the first frame, px.
        background: [H, W, 3] frame without the body.
    """

    frames: list[NDArray[np.uint8]]
    cameras: list[Camera]
    rotation: Array
    translation: Array
    times_s: Array
    diameter_px: float
    background: NDArray[np.uint8]

    @property
    def clock_s(self) -> Array:
        """Return the times [T] by the clock of errors (`error_clock`), s."""
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
    """Yield at most `most` sequence numbers with their clips, before photographs. Arguments: see `make_clip`.

    progress: is called with the share of clips done.
    """
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
    """Make the clip of a render sequence; equal seeds give equal clips.

    Args:
        renders: The render sequences.
        sequence: Number of the sequence.
        radius_m: Radius of the body's bounding sphere, m.
        bank: Background images.
        seed: Seed of all random numbers.
        in_frame_px: Range of the bounding sphere's diameter in the frame, px.
        speed_px: Motion of the body over the background per frame, px; 0 for a static body.
    """
    rng = np.random.default_rng([seed, sequence])
    samples = [renders.sample(sequence * FRAMES_PER_SEQUENCE + i) for i in range(FRAMES_PER_SEQUENCE)]
    diameter = float(np.exp(rng.uniform(*np.log(in_frame_px))))
    scale = diameter / _rendered_diameter(samples[0], radius_m) * samples[0].K[0, 0]  # focal length of the clip, px
    way = _way(rng, len(samples), speed_px)
    half = 0.5 * np.ptp(way, axis=0).max() + _MARGIN * diameter
    side = int(np.ceil(2.0 * half))
    scene = _Scene.draw(rng, bank, side)
    frames, cameras = [], []
    for index, (sample, place) in enumerate(zip(samples, way - 0.5 * (way.max(0) + way.min(0)), strict=True)):
        frame_from_render = _place_in_frame(sample, scale, 0.5 * (side - 1) + place)
        frames.append(scene.image(sample, frame_from_render, index))
        K = np.vstack([frame_from_render, [0.0, 0.0, 1.0]]) @ sample.K
        cameras.append(Camera(K, side, side))
    poses = np.stack([np.asarray(sample.view_from_body, dtype=float) for sample in samples])
    times = np.array([sample.time_s for sample in samples])
    return HeldOutClip(
        frames, cameras, poses[:, :3, :3], poses[:, :3, 3], times, diameter, scene.image(None, np.eye(2, 3), 0)
    )


def _rendered_diameter(sample: Render, radius_m: float) -> float:
    """Return the diameter of the bounding sphere in a render, px."""
    distance = float(np.linalg.norm(sample.view_from_body[:3, 3]))
    return float(2.0 * np.tan(np.arcsin(radius_m / distance)) * sample.K[0, 0])


def _way(rng: np.random.Generator, count: int, speed_px: float) -> Array:
    """Draw the body's places [T, 2] before the background, px: steady motion on a slightly bent curve."""
    t = np.arange(count, dtype=float)
    bend = rng.normal(0.0, 0.015 * speed_px, 2) * (t[:, None] - 0.5 * count) ** 2
    return t[:, None] * rng.normal(0.0, speed_px, 2) + bend + rng.uniform(-0.5, 0.5, 2)


def _place_in_frame(sample: Render, focal: float, center: Array) -> Array:
    """Return the affine map [2, 3] from render to frame pixels: zoom to `focal` [px], body origin to `center` [2]."""
    zoom = focal / sample.K[0, 0]
    origin = sample.K @ sample.view_from_body[:3, 3]
    shift = center - zoom * origin[:2] / origin[2]
    return np.array([[zoom, 0.0, shift[0]], [0.0, zoom, shift[1]]])


@dataclass(frozen=True)
class _Scene:
    """What all frames of a clip share: background, brightness of the body, blur, exposure, noise, codec."""

    background: NDArray[np.float32]
    exposure: chain.Exposure
    blur_px: float
    seed: int
    shadowed: bool

    @staticmethod
    def draw(rng: np.random.Generator, bank: NDArray[np.uint8], side: int) -> _Scene:
        """Draw a scene with frames of width and height `side`, px."""
        background = compose_background(rng, bank, side)
        exposure = chain.draw_exposure(rng, background)
        blur_px, seed = abs(rng.normal(0.0, 0.6)), int(rng.integers(1 << 31))
        return _Scene(background, exposure, blur_px, seed, bool(rng.random() < _SHADOW))

    def image(self, sample: Render | None, frame_from_render: Array, index: int) -> NDArray[np.uint8]:
        """Return one frame. The same seed keeps the appearance in all frames, and the rolled noise is new in each."""
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

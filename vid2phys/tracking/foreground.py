"""Segment the frames of a clip: how much more likely each pixel shows the body than the scene behind it.

Each pixel gets a log-likelihood ratio in nats. The scene's side is a normal distribution about the background of a
static camera, the same colour in shadow (same chromaticity, darker), or any colour of the scene. The body's side is
its colour histogram, once a pose was fitted in some frames; before that all colours are equally likely. Segmentation
and pose take turns, as in region-based tracking (Prisacariu and Reid, PWP3D, IJCV 2012).

Limits: a static camera. A body with the colours of the scene behind it is seen only where the background is known.
Frames are taken as large as they are: 31 of them are held in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.indices import evenly
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.detectors.network import Image
from vid2phys.types import Array

_LEVELS = 256
_BINS = 16  # bins of a colour histogram in each channel
_SHIFT = 4  # binary digits of a channel that a bin drops
_compiled = numba.njit(cache=True, error_model="numpy", fastmath=True, nogil=True)


@dataclass(frozen=True, kw_only=True)
class ForegroundConfig:
    """Settings of `Foreground`. Colours are display values, 0 to 255."""

    frames: int = 31
    """Number of frames from which the background is estimated."""
    min_noise: float = 3.0
    """Least standard deviation of a pixel about its background, grey levels."""
    noise_factor: float = 1.5
    """Factor of the measured noise: codecs change pixels together."""
    shadow_nats: float = 3.0
    """Cost of a shadow, nats."""
    darkest_shadow: float = 0.35
    """Least brightness in a shadow, as a share of the background's."""
    other_nats: float = 3.5
    """Cost of a pixel of the scene that is neither the background nor its shadow, nats."""
    unknown_nats: float = 2.0
    """Log-likelihood of a body of unknown colours above that of a uniform distribution, nats."""
    lights: tuple[float, ...] = (0.5, 0.65, 0.8, 1.0)
    """Brightnesses in which the colours of a texture may appear."""
    unknown_light_share: float = 0.3
    """Share of any colour beside those of a texture."""
    uniform_share: float = 0.1
    """Share of the body's pixels that may have any colour."""
    max_nats: float = 4.0
    """Largest log-likelihood ratio of a pixel, nats."""
    min_others: int = 3
    """Number of frames in which a pixel needs other colours than the body's, for only these to count."""
    body_nats: float = 1.0
    """Log-likelihood ratio of colours from which on a pixel does not count for the background, nats."""


DEFAULTS = ForegroundConfig()


@dataclass(frozen=True)
class Foreground:
    """Colour models of a clip's scene and of the body before it.

    Attributes:
        samples: [S, H, W, 3] frames from which the background was estimated.
        rows: [S] indices of these frames.
        background: [H, W, 3] of a static camera.
        noise: [H, W] standard deviation of a pixel about its background, grey levels; infinite where the background
            is unknown.
        scene: [4096] log density of the scene's colours.
        body: [4096] log density of the body's colours, or None while no pose is known.
        config: settings.
    """

    samples: Image
    rows: NDArray[np.int64]
    background: Image
    noise: NDArray[np.float32]
    scene: Array
    body: Array | None = None
    config: ForegroundConfig = DEFAULTS

    @staticmethod
    def of(frames: Indexed, config: ForegroundConfig = DEFAULTS) -> Foreground:
        """Return the model of a static camera's clip before any pose is known."""
        rows = evenly(len(frames), config.frames)
        samples = np.stack([frames[int(i)] for i in rows])
        used = np.ones(samples.shape[:3], dtype=np.bool_)
        background, noise = _background(samples, used)
        scene = color_density(background.reshape(-1, 3), 0.3)
        return Foreground(samples, rows, background, _floored(noise, config), scene, None, config)

    def knowing(self, colors: Array) -> Foreground:
        """Return the model of a body whose texture has colours [N, 3] (perceptual, 0..1), in light of any strength."""
        lit = 255.0 * np.clip(colors[None] * np.array(self.config.lights)[:, None, None], 0.0, 1.0)
        return replace(self, body=color_density(lit.reshape(-1, 3).astype(np.uint8), self.config.unknown_light_share))

    def learned(self, frames: Indexed, silhouettes: Mapping[int, tuple[slice, slice, NDArray[np.bool_]]]) -> Foreground:
        """Return the model after poses were fitted in some frames.

        Args:
            frames: of the clip.
            silhouettes: by frame: rows and columns of a rectangle, and which of its pixels show the body.

        The body's colours are those inside the silhouettes. The background is that of frames in which the body is
        elsewhere; where the body was not found, pixels of its colours do not count.
        """
        inside = [frames[i][rows, columns][mask] for i, (rows, columns, mask) in silhouettes.items()]
        colors = np.concatenate(inside) if inside else np.zeros((0, 3), np.uint8)
        if not len(colors):
            return self
        body = color_density(colors, self.config.uniform_share)
        used = _other_colors(self.samples, body, self.scene, self.config.body_nats)
        used |= used.sum(axis=0) < self.config.min_others  # a thing of the body's colours that is always there
        for k, i in enumerate(self.rows.tolist()):
            if i in silhouettes:
                rows, columns, mask = silhouettes[i]
                used[k] = True
                used[k, rows, columns] &= ~_grown(mask)
        background, noise = _background(self.samples, used)
        return replace(self, background=background, noise=_floored(noise, self.config), body=body)

    def log_ratio(self, frame: Image) -> NDArray[np.float32]:
        """Return the log-likelihood ratio [H, W] of body and scene for the pixels of a frame, nats."""
        import cv2

        config = self.config
        unknown = np.full(_BINS**3, config.unknown_nats - 3.0 * np.log(_LEVELS))
        body = unknown if self.body is None else self.body
        shadow = config.shadow_nats, config.darkest_shadow
        ratio = _log_ratio(frame, self.background, self.noise, body, self.scene, shadow, config.other_nats)
        most = config.max_nats
        smooth = cv2.blur(np.clip(ratio, -3.0 * most, 3.0 * most), (3, 3))
        return np.asarray(np.clip(smooth, -most, most), dtype=np.float32)


def color_density(colors: Image, uniform_share: float) -> Array:
    """Return the log density [4096] of colours [N, 3], per cube of one grey level.

    uniform_share: share of a uniform distribution.
    """
    from scipy.ndimage import gaussian_filter

    bins = (colors.astype(np.int64) >> _SHIFT) @ [_BINS**2, _BINS, 1]
    counts = np.bincount(bins, minlength=_BINS**3).astype(float).reshape(_BINS, _BINS, _BINS)
    smooth = gaussian_filter(counts, 0.7, mode="nearest").ravel()
    share = (1.0 - uniform_share) * smooth / max(smooth.sum(), 1e-9) + uniform_share / _BINS**3
    return np.asarray(np.log(share / (_LEVELS / _BINS) ** 3))


def _grown(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    import cv2

    return np.asarray(cv2.dilate(mask.astype(np.uint8), np.ones((7, 7), np.uint8)) > 0)


def _floored(noise: NDArray[np.float32], config: ForegroundConfig) -> NDArray[np.float32]:
    import cv2

    known = np.isfinite(noise)
    typical = float(np.median(noise[known])) if known.any() else config.min_noise
    smooth = cv2.blur(np.where(known, noise, typical).astype(np.float32), (5, 5))
    floored = np.maximum(smooth, max(config.min_noise, config.noise_factor * typical))
    return np.where(known, floored, np.inf).astype(np.float32)


@_compiled
def _background(samples: Image, used: NDArray[np.bool_]) -> tuple[Image, NDArray[np.float32]]:
    """Return the median [H, W, 3] of samples [S, H, W, 3] where they are used, and the noise [H, W] about it.

    The noise is infinite where fewer than three samples are used.
    """
    count, height, width, _ = samples.shape
    median, noise = np.zeros((height, width, 3), np.uint8), np.full((height, width), np.inf, np.float32)
    values, spread = np.empty(count, np.float32), np.empty(count, np.float32)
    for y in range(height):
        for x in range(width):
            total = 0.0
            for c in range(3):
                n = 0
                for k in range(count):
                    if used[k, y, x]:
                        values[n] = samples[k, y, x, c]
                        n += 1
                if n < 3:
                    break
                ordered = np.sort(values[:n])
                middle = ordered[n // 2]
                median[y, x, c] = np.uint8(middle)
                for k in range(n):
                    spread[k] = abs(ordered[k] - middle)
                total += np.sort(spread[:n])[n // 2]
                if c == 2:
                    noise[y, x] = 1.48 * total / 3.0
    return median, noise


@_compiled
def _other_colors(samples: Image, body: Array, scene: Array, most: float) -> NDArray[np.bool_]:
    """Return which samples [S, H, W] have colours that are not the body's."""
    count, height, width, _ = samples.shape
    out = np.empty((count, height, width), np.bool_)
    for k in range(count):
        for y in range(height):
            for x in range(width):
                color = samples[k, y, x]
                i = (color[0] >> _SHIFT) * _BINS**2 + (color[1] >> _SHIFT) * _BINS + (color[2] >> _SHIFT)
                out[k, y, x] = body[i] - scene[i] < most
    return out


@_compiled
def _log_ratio(
    frame: Image,
    background: Image,
    noise: NDArray[np.float32],
    body: Array,
    scene: Array,
    shadow: tuple[float, float],
    other_nats: float,
) -> NDArray[np.float32]:
    """Return the log-likelihood ratio [H, W] of body and scene; shadow: cost and least brightness."""
    height, width, _ = frame.shape
    shadow_nats, darkest = shadow
    out = np.empty((height, width), np.float32)
    for y in range(height):
        for x in range(width):
            i = (frame[y, x, 0] >> _SHIFT) * _BINS**2 + (frame[y, x, 1] >> _SHIFT) * _BINS + (frame[y, x, 2] >> _SHIFT)
            likely = scene[i] - other_nats
            std = noise[y, x]
            if std < np.inf:
                dot, square = 0.0, 1.0
                for c in range(3):
                    dot += float(frame[y, x, c]) * float(background[y, x, c])
                    square += float(background[y, x, c]) ** 2
                dim = min(max(dot / square, darkest), 1.0)
                plain, dimmed = 0.0, 0.0
                for c in range(3):
                    plain += (float(frame[y, x, c]) - float(background[y, x, c])) ** 2
                    dimmed += (float(frame[y, x, c]) - dim * float(background[y, x, c])) ** 2
                norm = -2.757 - 3.0 * np.log(std)
                likely = max(likely, norm - 0.5 * plain / std**2)
                likely = max(likely, norm - 1.2 - 0.5 * dimmed / (1.5 * std) ** 2 - shadow_nats - 2.0 * (1.0 - dim))
            else:
                likely = scene[i]
            out[y, x] = body[i] - likely
    return out

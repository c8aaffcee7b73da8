"""The camera pipeline from light to a video frame's bytes: blur, exposure, colour, tone curve, noise (then `codec`).

An `Exposure` is drawn once per image. It is applied to the light and, linearised, to the derivatives of the light.

Limits: noise and codec are constants of the derivative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.appearance.randomisation import ALL, Randomisation

Linear = NDArray[Any]  # float32 light
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722], np.float32)


def area_filtered_warp(
    image: Linear, matrix: NDArray[np.float64], size: tuple[int, int], *, replicate: bool, filtered: bool = True
) -> Linear:
    """Warp an image by an affine map, with an area filter where the map shrinks it.

    Args:
        image: [h, w, C] source, any C.
        matrix: [2, 3] map from source to target pixels.
        size: Width and height of the target, px.
        replicate: Whether the source's edge continues outside of the source; otherwise zero.
        filtered: Whether to average over the area of a target pixel.
    """
    scale = float(np.sqrt(abs(np.linalg.det(matrix[:, :2]))))
    if scale < 0.95 and filtered:  # the variance of a target pixel's box beyond that of a source pixel's
        image = gaussian_blur(image, float(np.sqrt((1.0 / scale**2 - 1.0) / 12.0)))
    border = cv2.BORDER_REPLICATE if replicate else cv2.BORDER_CONSTANT
    pieces = [
        cv2.warpAffine(image[..., i : i + 4], matrix, size, flags=cv2.INTER_LINEAR, borderMode=border)
        for i in range(0, image.shape[-1], 4)
    ]
    pieces = [p[..., None] if p.ndim == 2 else p for p in pieces]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1)


def gaussian_blur(image: Linear, sigma_px: float) -> Linear:
    """Blur an image isotropically; return it unchanged for less than a tenth of a pixel."""
    if sigma_px < 0.1:
        return image
    return cv2.GaussianBlur(image, (0, 0), sigma_px).reshape(image.shape)


def motion_blur(image: Linear, shift_px: NDArray[np.float64]) -> Linear:
    """Average an image over a straight motion of `shift_px` [2] around the middle of the exposure."""
    length = float(np.linalg.norm(shift_px))
    if length < 0.3:
        return image
    half = int(np.ceil(length / 2)) + 1
    kernel = np.zeros((2 * half + 1, 2 * half + 1), np.float32)
    samples = half + np.linspace(-0.5, 0.5, 4 * int(np.ceil(length)) + 1)[:, None] * shift_px
    corner = np.floor(samples).astype(int)
    part = samples - corner
    for dx in (0, 1):
        for dy in (0, 1):
            weight = np.abs(1 - dx - part[:, 0]) * np.abs(1 - dy - part[:, 1])
            np.add.at(kernel, (corner[:, 1] + dy, corner[:, 0] + dx), weight)
    kernel /= kernel.sum()
    return cv2.filter2D(image, -1, kernel, borderType=cv2.BORDER_REPLICATE).reshape(image.shape)


def luminance(linear: Linear) -> Linear:
    """Return the Rec. 709 luminance of linear RGB, [..., 3] -> [...]."""
    return linear @ _LUMINANCE


@dataclass(frozen=True)
class Exposure:
    """A map from linear light to display values 0..255.

    Attributes:
        color: [3, 3] colour matrix with gain and white balance.
        shoulder: Whether highlights roll off; otherwise they are clipped.
        exponent: Exponent of the tone curve.
        contrast: Share of an S-curve, 0 to 1.
    """

    color: Linear
    shoulder: bool
    exponent: float
    contrast: float

    def apply(self, linear: Linear) -> Linear:
        """Return display values 0..255 as floats, [..., 3]."""
        light = np.maximum(linear @ self.color.T, 0.0)
        light = 1.0 - np.exp(-light) if self.shoulder else np.minimum(light, 1.0)
        tone = light ** np.float32(self.exponent)
        if self.contrast:
            tone = (1.0 - self.contrast) * tone + self.contrast * tone * tone * (3.0 - 2.0 * tone)
        return tone * np.float32(255.0)

    def apply_derivative(self, linear: Linear, derivative: Linear) -> Linear:
        """Return the derivative of `apply` at `linear` [h, w, 3] along `derivative` [P, h, w, 3]."""
        light = linear @ self.color.T
        inside = (light > 1e-3) & (self.shoulder | (light < 1.0))
        light = np.maximum(light, 1e-3)
        slope = np.exp(-light) if self.shoulder else np.ones_like(light)
        light = 1.0 - slope if self.shoulder else np.minimum(light, 1.0)
        tone = light**self.exponent
        slope = slope * self.exponent * tone / light
        slope = slope * ((1.0 - self.contrast) + self.contrast * 6.0 * tone * (1.0 - tone))
        return (derivative @ self.color.T) * (255.0 * slope * inside).astype(np.float32)


def draw_exposure(rng: np.random.Generator, linear: Linear, varied: Randomisation = ALL) -> Exposure:
    """Draw an imperfect automatic exposure, white balance, saturation and tone curve for an image."""
    percentile, level = rng.uniform(65, 98), rng.uniform(0.15, 0.95)
    balance = np.exp(rng.normal(0.0, 0.12, 3))
    keep = rng.uniform(0.5, 1.4) if rng.random() < 0.8 else 0.0 if rng.random() < 0.15 else 1.0
    contrast = rng.uniform(0.0, 0.7) if rng.random() < 0.4 else 0.0
    shoulder, exponent = bool(rng.random() < 0.5), 1.0 / rng.uniform(1.7, 2.6)
    if not varied.exposure:
        percentile, level, contrast, shoulder, exponent = 90.0, 0.7, 0.0, False, 1.0 / 2.2
    if not varied.colour_cast:
        balance, keep = np.ones(3), 1.0
    gain = level / (float(np.percentile(luminance(linear)[::2, ::2], percentile)) + 1e-4)
    saturation = keep * np.eye(3) + (1.0 - keep) * np.tile(_LUMINANCE, (3, 1))
    return Exposure((gain * saturation * balance).astype(np.float32), shoulder, exponent, contrast)


def sensor_noise(rng: np.random.Generator, display: Linear) -> Linear:
    """Add noise of a video camera to display values: mostly little, sometimes strong, often smooth over pixels."""
    level = np.float32(np.exp(rng.normal(np.log(1.6), 0.7)))
    noise = rng.standard_normal(display.shape, dtype=np.float32)
    if rng.random() < 0.5:  # shared by the colours, as after chroma denoising
        noise = 0.8 * noise[..., :1] + 0.4 * noise
    if rng.random() < 0.4:
        noise = gaussian_blur(noise, 0.6) * np.float32(1.7)
    return display + level * noise * (0.6 + 0.4 * np.sqrt(np.clip(display, 0, 255) / 128.0))

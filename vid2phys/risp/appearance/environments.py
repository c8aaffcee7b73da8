"""Random environment images that light training renders.

An environment is a latitude-longitude image [32, 64, 3] of linear radiance. Row 0 is at the zenith, and the mean
luminance over the sphere is 1. Bright soft boxes stand for lamps and windows, which bare metal reflects.

Limits: the resolution of 6 degrees blurs reflections in polished metal.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from vid2phys.types import Array

ROWS, COLUMNS = 32, 64
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
# Rotation from the world (z up) to the image's own axes (y up).
IMAGE_FROM_WORLD = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])


def random_environment(rng: np.random.Generator, *, structured: bool) -> Array:
    """Draw an environment [32, 64, 3]. structured: never draw a constant one (for bare metal)."""
    kinds = (_sky, _photograph, _room) if structured else (_sky, _photograph, _room, _constant)
    weights = np.array([0.3, 0.4, 0.3] if structured else [0.28, 0.34, 0.23, 0.15])
    image = kinds[rng.choice(len(kinds), p=weights)](rng)
    if rng.random() < 0.5:
        image = _blur(image, rng.uniform(0.5, 4.0))
    boxes = rng.integers(1, 5) if structured else rng.integers(0, 4)
    for _ in range(boxes):
        image = _add_soft_box(rng, image)
    return image / max(mean_luminance(image), 1e-6)


def uniform_like(image: Array) -> Array:
    """Return an environment [32, 64, 3] of the image's mean colour everywhere."""
    return np.broadcast_to(mean_color(image), (ROWS, COLUMNS, 3)).copy()


def mean_luminance(image: Array) -> float:
    """Return the mean luminance over the sphere, with rows weighted by their solid angle."""
    return float(mean_color(image) @ LUMINANCE)


def mean_color(image: Array) -> Array:
    """Return the mean radiance [3] over the sphere."""
    weights = np.sin((np.arange(ROWS) + 0.5) * np.pi / ROWS)
    return np.einsum("r,rck->k", weights, image) / (weights.sum() * COLUMNS)


def tint(rng: np.random.Generator, strength: float) -> Array:
    """Draw a light's colour [3] with luminance 1: warm to cold, with a little green or magenta."""
    warm, green = rng.normal(0.0, strength), rng.normal(0.0, 0.25 * strength)
    color = np.exp(np.array([warm, green, -warm]))
    return color / (color @ LUMINANCE)


def _constant(rng: np.random.Generator) -> Array:
    """Draw light of one colour from everywhere."""
    return np.broadcast_to(tint(rng, 0.15), (ROWS, COLUMNS, 3)).copy()


def _sky(rng: np.random.Generator) -> Array:
    """Draw a sky: zenith, horizon and ground colours with a soft horizon, one side brighter."""
    zenith, horizon, ground = (tint(rng, 0.3) * rng.uniform(*span) for span in ((0.3, 1.5), (0.5, 2.0), (0.05, 0.8)))
    height = np.cos((np.arange(ROWS) + 0.5) * np.pi / ROWS)[:, None, None]
    up = np.clip(height, 0.0, 1.0) ** rng.uniform(0.4, 1.0)
    sky = horizon * (1.0 - up) + zenith * up
    image = np.where(height > 0.0, sky, ground) * np.ones((1, COLUMNS, 1))
    cosine = np.cos(np.arange(COLUMNS) * 2.0 * np.pi / COLUMNS)[None, :, None]
    return np.asarray(image * (1.0 + rng.uniform(0.0, 0.8) * cosine))


def _room(rng: np.random.Generator) -> Array:
    """Draw a room: ceiling, floor and four walls of different colours, some with a pattern."""
    image = np.zeros((ROWS, COLUMNS, 3))
    ceiling, floor = rng.integers(5, 12), rng.integers(18, 26)
    edges = np.sort(rng.choice(COLUMNS, 4, replace=False))
    for begin, end in zip(edges, np.roll(edges, -1), strict=True):
        columns = np.arange(begin, end if end > begin else end + COLUMNS) % COLUMNS
        image[ceiling:floor, columns] = tint(rng, 0.35) * rng.uniform(0.15, 1.2)
    image[:ceiling] = tint(rng, 0.1) * rng.uniform(0.4, 1.5)
    image[floor:] = tint(rng, 0.35) * rng.uniform(0.05, 0.9)
    if rng.random() < 0.5:
        tiles = rng.integers(2, 9)
        checker = (np.arange(ROWS)[:, None] // 2 + np.arange(COLUMNS)[None, :] // tiles) % 2
        image[floor:] *= 1.0 - rng.uniform(0.2, 0.85) * checker[floor:, :, None]
    return image * np.exp(rng.normal(0.0, 0.15, (ROWS, COLUMNS, 1)))


def _photograph(rng: np.random.Generator) -> Array:
    """Draw a panorama of a photograph with brighter highlights."""
    images = _small_photographs()
    image = images[rng.integers(len(images))]
    if rng.random() < 0.5:
        image = image[:, ::-1]
    if rng.random() < 0.3:
        image = image.mean(axis=2, keepdims=True) * tint(rng, 0.3)
    # The whites of a photograph are clipped: restore some of the light of lamps and sky.
    image = image + rng.uniform(0.0, 6.0) * image**4
    return np.roll(image, rng.integers(COLUMNS), axis=1)


@cache
def _small_photographs() -> tuple[NDArray[np.float64], ...]:
    """Return photographs as panoramas without a seam: an image beside its mirror image, linear light."""
    import cv2

    from vid2phys.io.photographs import photographs

    panoramas = []
    for photograph in photographs():
        half = cv2.resize(photograph, (COLUMNS // 2, ROWS), interpolation=cv2.INTER_AREA) / 255.0
        panoramas.append(np.concatenate([half, half[:, ::-1]], axis=1) ** 2.2)
    return tuple(panoramas)


def _blur(image: Array, sigma: float) -> Array:
    return np.asarray(ndimage.gaussian_filter(image, (sigma, sigma, 0), mode=("nearest", "wrap", "nearest")))


def _add_soft_box(rng: np.random.Generator, image: Array) -> Array:
    """Add a bright rectangle with soft edges, mostly in the upper half."""
    row = rng.uniform(1.0, 15.0) if rng.random() < 0.85 else rng.uniform(15.0, 28.0)
    column = rng.uniform(0.0, COLUMNS)
    height, width = rng.uniform(1.0, 4.0), rng.uniform(1.0, 7.0)
    down = np.abs(np.arange(ROWS) + 0.5 - row) - height
    across = np.abs((np.arange(COLUMNS) + 0.5 - column + COLUMNS / 2) % COLUMNS - COLUMNS / 2) - width
    soft = rng.uniform(0.3, 1.5)
    mask = np.clip(0.5 - down / soft, 0.0, 1.0)[:, None] * np.clip(0.5 - across / soft, 0.0, 1.0)[None, :]
    level = mean_luminance(image) * np.exp(rng.uniform(np.log(2.0), np.log(25.0)))
    return image + mask[..., None] * tint(rng, 0.25) * level

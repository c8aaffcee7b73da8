"""Random backgrounds of training images: photographs, walls, floors, noise, flat shapes and shaded solids.

All random numbers come from a NumPy generator: an image depends on its seed alone. Images of the bank are uint8 sRGB;
solids are drawn in linear light.

Limits: backgrounds are flat images. They have no parallax and no reflections of the body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[Any]  # uint8
Linear = NDArray[Any]  # float32 light

BANK_SIZE_PX = 192
_LINEAR_OF_BYTE = np.where(
    np.arange(256) <= 10, np.arange(256) / 255 / 12.92, ((np.arange(256) / 255 + 0.055) / 1.055) ** 2.4
).astype(np.float32)


def to_linear(image: Image) -> Linear:
    """Convert sRGB bytes to linear light 0..1 (IEC 61966-2-1)."""
    return _LINEAR_OF_BYTE[image]


def random_color(rng: np.random.Generator) -> Linear:
    """Draw a colour [3] in 0..1: half of them greys and browns of walls, half of them saturated."""
    if rng.random() < 0.45:
        value, tint = rng.uniform(0.05, 0.95), rng.normal(0.0, 0.05, 3) + np.array([0.04, 0.01, -0.04]) * rng.random()
        return np.clip(value * (1.0 + tint), 0.0, 1.0).astype(np.float32)
    hsv = np.array([[[rng.uniform(0, 360), rng.beta(2.0, 1.3), rng.uniform(0.08, 1.0)]]], np.float32)
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)[0, 0]


def fractal_noise(rng: np.random.Generator, size: int, *, roughness: float, stretch: float = 1.0) -> Linear:
    """Draw a sum of smoothed noise over octaves, [size, size], with mean 0 and standard deviation 1."""
    total = np.zeros((size, size), np.float32)
    cells = 3
    while cells < size:
        grid = rng.standard_normal((max(2, int(cells / stretch)), cells)).astype(np.float32)
        total += cells**-roughness * cv2.resize(grid, (size, size), interpolation=cv2.INTER_CUBIC)
        cells *= 2
    return (total - total.mean()) / (total.std() + 1e-6)


def _noise(rng: np.random.Generator, size: int) -> Linear:
    """Draw fractal noise between two colours."""
    stretch = float(rng.choice([1.0, 1.0, 4.0, 12.0]))
    field = fractal_noise(rng, size, roughness=rng.uniform(0.2, 1.4), stretch=stretch)
    if rng.random() < 0.3:  # rings, as wood and marble have
        field = np.sin(field * rng.uniform(2.0, 8.0)).astype(np.float32)
    mix = np.clip(0.5 + field * rng.uniform(0.05, 0.35), 0, 1)[..., None]
    return random_color(rng) * mix + random_color(rng) * (1 - mix)


def _gradient(rng: np.random.Generator, size: int) -> Linear:
    """Draw a linear gradient between two colours."""
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) / size
    angle = rng.uniform(0, 2 * np.pi)
    mix = np.clip(0.5 + rng.uniform(0.3, 1.0) * ((x - 0.5) * np.cos(angle) + (y - 0.5) * np.sin(angle)), 0, 1)[
        ..., None
    ]
    return (random_color(rng) * mix + random_color(rng) * (1 - mix)).astype(np.float32)


def _cells(rng: np.random.Generator, size: int) -> Linear:
    """Draw bricks, planks, tiles, checkers or stripes: a grid of rectangles with joints."""
    kind = rng.choice(["brick", "plank", "tile", "checker", "stripe"])
    height = rng.uniform(size / 14, size / 4)
    ratio = {"brick": rng.uniform(2, 3.5), "plank": rng.uniform(6, 14), "tile": rng.uniform(0.8, 1.3)}.get(kind, 1.0)
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) + rng.uniform(0, size, 2)[:, None, None].astype(np.float32)
    row = np.floor(y / height)
    shift = {"brick": 0.5, "plank": 0.37}.get(kind, 0.0)
    column = np.floor(x / (height * ratio) + shift * row) if kind != "stripe" else np.zeros_like(row)
    table = rng.standard_normal(4096).astype(np.float32)
    cell = table[(row.astype(np.int64) * 131 + column.astype(np.int64) * 17) % 4096]
    base, other = random_color(rng), random_color(rng)
    if kind in ("checker", "stripe"):
        image = np.where(((row + column) % 2)[..., None] > 0.5, base, other)
    else:
        image = base * (1.0 + rng.uniform(0.03, 0.3) * cell[..., None])
        joint = rng.uniform(0.02, 0.12) * height
        gap = (y - row * height < joint) | (x - (column - shift * row) * height * ratio < joint)
        image = np.where(gap[..., None], other, image)
    grain = fractal_noise(rng, size, roughness=rng.uniform(0.1, 0.8), stretch=6.0 if kind == "plank" else 1.0)
    return (image * (1.0 + rng.uniform(0.0, 0.2) * grain[..., None])).astype(np.float32)


def _shapes(rng: np.random.Generator, size: int) -> Linear:
    """Draw flat polygons and ellipses over a gradient or noise."""
    image = _gradient(rng, size) if rng.random() < 0.5 else _noise(rng, size)
    image = np.ascontiguousarray(image, np.float32)
    for _ in range(int(rng.integers(4, 25))):
        center, color = rng.uniform(0, size, 2), tuple(float(c) for c in random_color(rng))
        radius = size * np.exp(rng.uniform(np.log(0.03), np.log(0.4)))
        corners = int(rng.integers(3, 8)) if rng.random() < 0.7 else 32
        angles = np.sort(rng.uniform(0, 2 * np.pi, corners)) if corners < 32 else np.linspace(0, 2 * np.pi, 32)
        squeeze = rng.uniform(0.1, 1.0)
        polygon = center + radius * np.stack([np.cos(angles), squeeze * np.sin(angles)], -1)
        cv2.fillPoly(image, [np.round(polygon * 8).astype(np.int32)], color, cv2.LINE_8, 3)
    return image


def _photograph(rng: np.random.Generator, size: int, photographs: list[Image]) -> Linear:
    """Return a random square of a random photograph."""
    photo = photographs[int(rng.integers(len(photographs)))]
    side = int(min(photo.shape[:2]) * rng.uniform(0.25, 1.0))
    top, left = (int(rng.integers(0, extent - side + 1)) for extent in photo.shape[:2])
    crop = cv2.resize(photo[top : top + side, left : left + side], (size, size), interpolation=cv2.INTER_AREA)
    return crop.astype(np.float32) / 255


_PROCEDURAL: tuple[tuple[float, Callable[[np.random.Generator, int], Linear]], ...] = (
    (0.45, _cells),
    (0.25, _noise),
    (0.10, _gradient),
    (0.20, _shapes),
)


def make_bank(photographs: list[Image], *, count: int, seed: int, size: int = BANK_SIZE_PX) -> Image:
    """Draw background images, uint8 sRGB [count, size, size, 3]: 35 % photographs, the rest procedural. 5 ms each."""
    bank = np.empty((count, size, size, 3), np.uint8)
    weights = np.array([weight for weight, _ in _PROCEDURAL])
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        if photographs and rng.random() < 0.35:
            image = _photograph(rng, size, photographs)
        else:
            image = _PROCEDURAL[int(rng.choice(len(weights), p=weights))][1](rng, size)
        bank[index] = np.clip(image * 255, 0, 255)
    return bank


def _plane(rng: np.random.Generator, bank: Image, size: int) -> Linear:
    """Return a piece of a bank image, rotated, scaled, and tilted a little as a wall seen from the side."""
    image = bank[int(rng.integers(len(bank)))]
    side = bank.shape[1]
    half = 0.5 * min(side * 0.95, size * np.exp(rng.uniform(np.log(0.4), np.log(2.5))))
    center = rng.uniform(half * 0.7, side - half * 0.7, 2)
    angle = rng.normal(0.0, 0.15) if rng.random() < 0.7 else rng.uniform(-np.pi, np.pi)
    corners = half * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * (1 + rng.uniform(-0.35, 0.35, (4, 2)))
    if rng.random() < 0.5:
        corners[:, 0] *= -1
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    source = (center + corners @ rotation.T).astype(np.float32)
    target = np.array([[0, 0], [size - 1, 0], [size - 1, size - 1], [0, size - 1]], np.float32)
    homography = cv2.getPerspectiveTransform(source, target)
    warped = cv2.warpPerspective(
        image, homography, (size, size), flags=cv2.INTER_AREA, borderMode=cv2.BORDER_REFLECT_101
    )
    return to_linear(warped) * np.exp(rng.normal(0.0, 0.2, 3)).astype(np.float32)


def compose_background(rng: np.random.Generator, bank: Image, size: int) -> Linear:
    """Draw linear light [size, size, 3]: one plane, or wall and floor, uneven light, and solids before them."""
    background = _plane(rng, bank, size)
    y, x = np.mgrid[0:size, 0:size].astype(np.float32) / size - 0.5
    if rng.random() < 0.3:
        angle = rng.normal(0.0, 0.15) + (np.pi / 2 if rng.random() < 0.25 else 0.0)
        below = (y * np.cos(angle) + x * np.sin(angle) > rng.uniform(-0.4, 0.4))[..., None]
        background = np.where(below, _plane(rng, bank, size), background)
    if rng.random() < 0.5:
        slope = rng.normal(0.0, 0.7, 2)
        background = background * np.exp(slope[0] * x + slope[1] * y)[..., None].astype(np.float32)
    background = np.ascontiguousarray(background * np.exp(rng.normal(0.0, 0.5)), np.float32)
    if rng.random() < 0.2:  # a soft shadow
        center, radius = rng.uniform(-0.5, 0.5, 2), rng.uniform(0.05, 0.4)
        blob = np.exp(-((x - center[0]) ** 2 + ((y - center[1]) * rng.uniform(1, 3)) ** 2) / radius**2)
        background *= 1.0 - rng.uniform(0.3, 0.8) * blob[..., None]
    for _ in range(int(rng.choice([0, 1, 2, 3], p=[0.5, 0.25, 0.15, 0.1]))):
        draw_solid(rng, background, center=rng.uniform(0, size, 2), radius=size * rng.uniform(0.06, 0.5))
    return background


def draw_solid(
    rng: np.random.Generator, image: Linear, *, center: NDArray[np.float64], radius: float
) -> NDArray[np.bool_]:
    """Draw a shaded sphere, box, cone, cylinder, disc or crossed bars into a linear image; return where."""
    covered = np.zeros(image.shape[:2], np.bool_)
    reach = 1.5 * radius
    left, top = (int(max(0.0, np.floor(c - reach))) for c in center)
    right, bottom = (int(np.ceil(c + reach)) + 1 for c in center)
    patch, mask = image[top:bottom, left:right], covered[top:bottom, left:right]
    y, x = np.mgrid[0 : patch.shape[0], 0 : patch.shape[1]].astype(np.float32)
    angle = rng.uniform(-np.pi, np.pi) if rng.random() < 0.5 else 0.0
    x, y = (
        (x + np.float32(left - center[0])) / np.float32(radius),
        (y + np.float32(top - center[1])) / np.float32(radius),
    )
    c, s = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    color, shape = _solid(rng, x * c + y * s, y * c - x * s)
    patch[shape], mask[shape] = color[shape], True
    return covered


def _solid(rng: np.random.Generator, u: Linear, v: Linear) -> tuple[Linear, NDArray[np.bool_]]:
    """Return colour and mask of a solid of radius about 1 at coordinates u, v: Lambert's law and a highlight."""
    light = rng.normal(size=3).astype(np.float32)
    light /= np.linalg.norm(light)
    kind = rng.choice(["sphere", "box", "cone", "cylinder", "disc", "bars"])
    squeeze = np.float32(rng.uniform(0.15, 1.0))
    zero = np.zeros_like(u)
    if kind == "sphere":
        mask, nx, ny = u * u + v * v < 1, u, v
    elif kind == "box":
        edge = np.float32(rng.uniform(-0.6, 0.6))
        mask = (np.abs(u) < 1) & (np.abs(v) < squeeze)
        nx, ny = np.where(u < edge, zero - 0.7, zero + 0.5), np.where(v < -0.6 * squeeze, zero - 0.8, zero + 0.1)
    elif kind == "cone":
        width = np.clip((v + 1) / 2, 0.01, 1)
        mask, nx, ny = (np.abs(v) < 1) & (np.abs(u) < width), u / width, zero - 0.3
    elif kind == "cylinder":
        mask, nx, ny = (np.abs(v) < 1) & (np.abs(u) < squeeze), u / squeeze, zero
    elif kind == "disc":
        mask, nx, ny = u * u + (v / squeeze) ** 2 < 1, zero, zero - 0.6
    else:
        thin = np.float32(rng.uniform(0.05, 0.2))
        mask = ((np.abs(u) < thin) | (np.abs(v) < thin)) & (u * u + v * v < 1)
        nx, ny = u * 0.3, v * 0.3
    nx, ny = np.clip(nx, -1, 1), np.clip(ny, -1, 1)
    nz = np.sqrt(np.clip(1 - nx * nx - ny * ny, 0, 1))
    lambert = np.clip(nx * light[0] + ny * light[1] + nz * abs(light[2]), 0, None)
    base = to_linear(np.asarray(255 * random_color(rng), np.uint8)) * np.float32(rng.uniform(0.3, 1.3))
    shade = np.float32(rng.uniform(0.05, 0.5)) + np.float32(rng.uniform(0.2, 1.2)) * lambert
    color = base * shade[..., None]
    if rng.random() < 0.4:
        color += (np.float32(rng.uniform(0, 1.0)) * lambert ** np.float32(rng.uniform(5, 60)))[..., None]
    return color, mask

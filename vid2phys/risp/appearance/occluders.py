"""Random occluders in training images: poles, edges, mugs, hands and solids, plain or with a photograph's texture.

An occluder is a soft mask [s, s] in 0..1 and its light [s, s, 3]. None hides more than half of the body, since a hidden
body teaches nothing.

Limits: occluders are drawn in the image plane. They cast no shadow on the body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.appearance.backgrounds import draw_solid, random_color, to_linear

Linear = NDArray[Any]  # float32 light
MOST_HIDDEN = 0.5
_TRIES = 4
_BITS = 4  # fractional bits of coordinates in OpenCV's drawing
_PALE, _DARK = np.array([0.72, 0.45, 0.34]), np.array([0.10, 0.05, 0.03])  # skin, linear light


def occlude(
    rng: np.random.Generator, light: Linear, coverage: Linear, bank: NDArray[np.uint8]
) -> tuple[Linear, Linear]:
    """Draw an occluder before the body.

    Args:
        rng: Random numbers.
        light: [s, s, 3] linear light of the image.
        coverage: [s, s] of the body.
        bank: Images for textures.

    Returns:
        The light with the occluder, and its mask [s, s] in 0..1. Both stay unchanged if every try hides more than half
        of the body.
    """
    center, radius = _where(coverage)
    total = float(coverage.sum())
    for _ in range(_TRIES):
        mask, color = _KINDS[int(rng.choice(len(_KINDS), p=_WEIGHTS))](rng, light, center, radius, bank)
        if float((mask * coverage).sum()) <= MOST_HIDDEN * total:
            return light + mask[..., None] * (color - light), mask
    return light, np.zeros_like(coverage)


def hand(
    rng: np.random.Generator, light: Linear, center: NDArray[Any], radius: float, bank: NDArray[np.uint8]
) -> tuple[Linear, Linear]:
    """Draw a palm beside the body, with fingers that reach over it and a forearm that leaves the image."""
    side = len(light)
    size = radius * rng.uniform(0.7, 1.7)
    away = rng.uniform(0.0, 2.0 * np.pi)
    outward = np.array([np.cos(away), np.sin(away)])
    palm = center + outward * (radius * rng.uniform(0.6, 1.1) + 0.5 * size)
    mask = np.zeros((side, side), np.uint8)
    _capsule(mask, palm, palm + outward * 3.0 * side, size * rng.uniform(0.45, 0.7))
    _capsule(mask, palm, palm - outward * 0.2 * size, size * rng.uniform(0.6, 0.9))
    for spread in np.linspace(-0.6, 0.6, int(rng.integers(2, 6))) + rng.normal(0.0, 0.08):
        angle = away + np.pi + spread * rng.uniform(0.6, 1.4)
        root = palm + 0.35 * size * np.array([np.cos(away + np.pi + 1.3 * spread), np.sin(away + np.pi + 1.3 * spread)])
        knuckle = root + size * rng.uniform(0.25, 0.5) * np.array([np.cos(angle), np.sin(angle)])
        bend = angle + rng.normal(0.0, 0.4)
        tip = knuckle + size * rng.uniform(0.15, 0.4) * np.array([np.cos(bend), np.sin(bend)])
        thick = size * rng.uniform(0.13, 0.22)
        _capsule(mask, root, knuckle, thick)
        _capsule(mask, knuckle, tip, thick)
    skin = _PALE * (_DARK / _PALE) ** rng.uniform(0.0, 1.0)
    if rng.random() < 0.15:  # a glove or a sleeve
        skin = to_linear(np.asarray(255 * random_color(rng), np.uint8))
    soft = mask.astype(np.float32) / 255.0
    relief = cv2.GaussianBlur(soft, (0, 0), max(0.6, 0.12 * size))
    down, right = np.gradient(relief) if side > 1 else (relief, relief)
    lamp = rng.normal(0.0, 1.0, 2) * 0.35 * size
    shade = np.clip(0.35 + 0.65 * relief + lamp[0] * right + lamp[1] * down, 0.05, 2.0)
    return soft, _exposed(rng, light, skin) * shade[..., None]


def pole(
    rng: np.random.Generator, light: Linear, center: NDArray[Any], radius: float, bank: NDArray[np.uint8]
) -> tuple[Linear, Linear]:
    """Draw a bar across the whole image: the leg of a table, a cable, a twig."""
    angle = rng.uniform(-np.pi, np.pi) if rng.random() < 0.5 else rng.normal(np.pi / 2, 0.1)
    half = 0.5 * radius * float(np.exp(rng.uniform(np.log(0.06), np.log(0.8))))
    across = _across(light, angle, center) - radius * rng.uniform(-0.8, 0.8)
    mask = np.clip(half - np.abs(across) + 0.5, 0.0, 1.0)
    return mask, _material(rng, light, bank) * _rounded(rng, across / max(half, 0.5))


def _edge(
    rng: np.random.Generator, light: Linear, center: NDArray[Any], radius: float, bank: NDArray[np.uint8]
) -> tuple[Linear, Linear]:
    """Draw a large half plane that covers a part of the body: a door, a screen, a wall."""
    across = _across(light, rng.uniform(-np.pi, np.pi), center) - radius * rng.uniform(-0.05, 0.9)
    mask = np.clip(across + 0.5, 0.0, 1.0)
    return mask, _material(rng, light, bank)


def mug(
    rng: np.random.Generator, light: Linear, center: NDArray[Any], radius: float, bank: NDArray[np.uint8]
) -> tuple[Linear, Linear]:
    """Draw a cylinder with a handle, seen from somewhat above."""
    side = len(light)
    place = center + radius * rng.uniform(-1.0, 1.0, 2)
    width, height = radius * rng.uniform(0.25, 0.7), radius * rng.uniform(0.35, 0.9)
    open_ = width * rng.uniform(0.1, 0.45)
    mask, rim = np.zeros((side, side), np.uint8), np.zeros((side, side), np.uint8)
    right = 1.0 if rng.random() < 0.5 else -1.0
    ring = _axes(0.45 * width, 0.55 * height)
    thick = max(1, round(0.25 * width))
    cv2.ellipse(mask, _fixed(place + np.array([right * width, 0.0])), ring, 0, 0, 360, 255, thick, cv2.LINE_AA, _BITS)
    corners = place + np.array([[-width, -height], [width, -height], [0.9 * width, height], [-0.9 * width, height]])
    cv2.fillPoly(mask, [np.round(corners * 2**_BITS).astype(np.int32)], 255, cv2.LINE_AA, _BITS)
    for image, end in ((mask, -height), (mask, height), (rim, -height)):
        cv2.ellipse(
            image, _fixed(place + np.array([0.0, end])), _axes(width, open_), 0, 0, 360, 255, -1, cv2.LINE_AA, _BITS
        )
    color = _material(rng, light, bank) * _rounded(rng, _across(light, 0.0, place) / max(width, 0.5))
    inside = (rim.astype(np.float32) / 255.0)[..., None]
    return mask.astype(np.float32) / 255.0, color * (1.0 - inside * np.float32(rng.uniform(0.2, 0.8)))


def _solid(
    rng: np.random.Generator, light: Linear, center: NDArray[Any], radius: float, bank: NDArray[np.uint8]
) -> tuple[Linear, Linear]:
    """Draw a shaded solid, as in backgrounds."""
    color = light.copy()
    place = center + radius * rng.uniform(-1.1, 1.1, 2)
    covered = draw_solid(rng, color, center=place, radius=radius * rng.uniform(0.12, 0.7))
    mask = cv2.GaussianBlur(covered.astype(np.float32), (3, 3), 0.6)  # the solid has hard edges
    return mask * covered, color


_Kind = Callable[[np.random.Generator, Linear, NDArray[Any], float, NDArray[np.uint8]], tuple[Linear, Linear]]
_KINDS: tuple[_Kind, ...] = (hand, pole, _edge, mug, _solid)
_WEIGHTS = np.array([0.3, 0.22, 0.08, 0.15, 0.25])


def _where(coverage: Linear) -> tuple[NDArray[Any], float]:
    """Return the centre [2] and half the extent of the body, px; of the image without a body."""
    rows, columns = (np.flatnonzero(coverage.max(axis=axis) > 0.5) for axis in (1, 0))
    if not len(rows):
        return np.full(2, 0.5 * (len(coverage) - 1)), len(coverage) / 3.0
    center = 0.5 * np.array([columns[0] + columns[-1], rows[0] + rows[-1]], dtype=float)
    return center, max(2.0, 0.5 * max(len(rows), len(columns)))


def _material(rng: np.random.Generator, light: Linear, bank: NDArray[np.uint8]) -> Linear:
    """Draw a plain colour or a piece of an image, [s, s, 3], about as bright as the scene."""
    if rng.random() < 0.5:
        return _exposed(rng, light, to_linear(np.asarray(255 * random_color(rng), np.uint8)))
    side, photo = len(light), bank[int(rng.integers(len(bank)))]
    take = min(len(photo), max(8, int(side * rng.uniform(0.4, 1.2))))
    top, left = (int(v) for v in rng.integers(0, len(photo) - take + 1, 2))
    piece = cv2.resize(photo[top : top + take, left : left + take], (side, side), interpolation=cv2.INTER_LINEAR)
    return _exposed(rng, light, to_linear(piece))


def _exposed(rng: np.random.Generator, light: Linear, albedo: Any) -> Linear:
    """Return the light of a surface under the scene's lamps, at about the image's median brightness."""
    level = float(np.median(light[::4, ::4])) + 0.02
    return (np.asarray(albedo, np.float32) * np.float32(2.5 * level * np.exp(rng.normal(0.0, 0.6)))) + np.zeros_like(
        light
    )


def _across(light: Linear, angle: float, center: NDArray[Any]) -> Linear:
    """Return the distances [s, s] of the pixels from the line through `center` with its normal at `angle` rad."""
    y, x = np.mgrid[0 : len(light), 0 : len(light)].astype(np.float32)
    return (x - np.float32(center[0])) * np.float32(np.cos(angle)) + (y - np.float32(center[1])) * np.float32(
        np.sin(angle)
    )


def _rounded(rng: np.random.Generator, across: Linear) -> Linear:
    """Return the brightness [s, s, 1] of a cylinder at -1..1 across it."""
    u = np.clip(across, -1.0, 1.0)
    lamp = rng.uniform(-0.9, 0.9)
    facing = np.sqrt(1.0 - u * u) * np.sqrt(1.0 - lamp * lamp) + u * lamp
    return np.asarray(0.25 + 0.85 * np.clip(facing, 0.0, 1.0), np.float32)[..., None]


def _capsule(mask: NDArray[np.uint8], begin: NDArray[Any], end: NDArray[Any], thickness: float) -> None:
    """Draw a line with round ends into a mask."""
    cv2.line(mask, _fixed(begin), _fixed(end), 255, max(1, round(thickness)), cv2.LINE_AA, _BITS)


def _fixed(point: NDArray[Any]) -> tuple[int, int]:
    return round(float(point[0]) * 2**_BITS), round(float(point[1]) * 2**_BITS)


def _axes(a: float, b: float) -> tuple[int, int]:
    return max(1, round(a * 2**_BITS)), max(1, round(b * 2**_BITS))

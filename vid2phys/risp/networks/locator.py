"""Locate a body in a whole frame: the coarse network over an image pyramid (Adelson et al. 1984), in tiles.

Limits: bodies below 12 px are not found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from vid2phys.risp.networks.network import STRIDE, LocatorNetwork, cell_to_pixel, to_input
from vid2phys.risp.renders.scenes import DIAMETER_PX
from vid2phys.types import Array

_TILE, _OVERLAP = 512, 64  # px of a pyramid level; one of two tiles shows a body in their overlap as a whole
_MULTIPLE = 16
_PER_LEVEL = 12
_LEAST_SCORE = 0.02
_SAME = 0.35  # candidates closer than this share of their diameter are one


@dataclass(frozen=True)
class Candidates:
    """Candidate places of a body, best first.

    Attributes:
        center_px: [N, 2] frame pixels.
        diameter_px: [N] diameters of the bounding sphere.
        score: [N], 0 to 1.
    """

    center_px: Array
    diameter_px: Array
    score: Array


def locate(network: LocatorNetwork, image: NDArray[np.uint8], *, most: int = 16) -> Candidates:
    """Return at most `most` candidates in a frame [H, W, 3] uint8 of any size."""
    import cv2

    found: list[Array] = []
    level, scale = image, 1.0
    while min(level.shape[:2]) >= 2 * _MULTIPLE:
        found += [row / np.array([scale, scale, scale, 1.0]) + np.array([s := 0.5 / scale - 0.5, s, 0.0, 0.0])
                  for row in _level(network, level)]  # fmt: skip
        if DIAMETER_PX[1] / scale > min(image.shape[:2]):
            break
        scale *= 0.5
        size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
        level = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    return _distinct(np.array(found).reshape(-1, 4), most)


def _level(network: LocatorNetwork, image: NDArray[np.uint8]) -> Array:
    """Return the candidates of one pyramid level, [N, 4]: x, y, diameter [px of this level], score."""
    pieces = []
    for top in _starts(image.shape[0]):
        for left in _starts(image.shape[1]):
            tile = image[top : top + _TILE, left : left + _TILE]
            pieces.append(_tile(network, tile) + np.array([left, top, 0.0, 0.0]))
    rows = np.concatenate(pieces)
    return rows[np.argsort(-rows[:, 3], kind="stable")][:_PER_LEVEL]


def _starts(extent: int) -> list[int]:
    """Return the first pixels of the tiles along an axis."""
    if extent <= _TILE:
        return [0]
    count = int(np.ceil((extent - _OVERLAP) / (_TILE - _OVERLAP)))
    return [int(s) for s in np.linspace(0, extent - _TILE, count).round()]


@torch.no_grad()
def _tile(network: LocatorNetwork, image: NDArray[np.uint8]) -> Array:
    """Return the candidates [N, 4] of one tile."""
    height, width = image.shape[:2]
    pad = ((0, -height % _MULTIPLE), (0, -width % _MULTIPLE), (0, 0))
    device = next(network.parameters()).device
    padded = torch.from_numpy(np.pad(image, pad, mode="edge")).to(device)
    output = network(to_input(padded[None]))[0].float().cpu()
    return _peaks(output, height, width)


def _peaks(output: Tensor, height: int, width: int) -> Array:
    """Return the local maxima of the centre map, refined to the centroid of 3x3 cells, [N, 4]."""
    score = output[0].sigmoid()
    highest = functional.max_pool2d(score[None, None], 3, stride=1, padding=1)[0, 0]
    rows, columns = torch.nonzero((score == highest) & (score > _LEAST_SCORE), as_tuple=True)
    padded = functional.pad(score, (1, 1, 1, 1))
    patch = torch.stack([padded[rows + dy, columns + dx] for dy in range(3) for dx in range(3)], -1)
    patch = patch / patch.sum(-1, keepdim=True)
    offset = torch.tensor([[dx - 1.0, dy - 1.0] for dy in range(3) for dx in range(3)])
    cells = torch.stack([columns, rows], -1) + patch @ offset
    center = cell_to_pixel(cells)
    diameter = output[1, rows, columns].exp() * LocatorNetwork.REFERENCE_PX
    inside = (center[:, 0] < width + STRIDE) & (center[:, 1] < height + STRIDE)
    table = torch.cat([center, diameter[:, None], score[rows, columns][:, None]], -1)[inside]
    return np.asarray(table.numpy(), dtype=float)


def _distinct(rows: Array, most: int) -> Candidates:
    """Return the best of each group of candidates that overlap and agree in size (non-maximum suppression)."""
    kept: list[Array] = []
    for row in rows[np.argsort(-rows[:, 3], kind="stable")]:
        same = any(
            np.linalg.norm(row[:2] - other[:2]) < _SAME * max(row[2], other[2]) and abs(np.log(row[2] / other[2])) < 0.5
            for other in kept
        )
        if not same:
            kept.append(row)
        if len(kept) == most:
            break
    table = np.array(kept).reshape(-1, 4)
    return Candidates(table[:, :2], table[:, 2], table[:, 3])

"""Where on lines across an outline the edge is, by the colours on both sides.

Along a line the picture is coverage * F + (1 - coverage) * B plus noise, coverage being that of the drawn silhouette
through the lens, moved along the line by d: regions that compete for pixels (Zhu and Yuille 1996), as lines (Stoiber
et al. 2021; Tjaden et al. 2018), and with local colours and pixels on the edge being of both (Hanek and Beetz 2004).
F and B are normal about what the sides show over the whole outline, and integrated out for every d in closed form;
how much a side varies is what it does on the line. All in linear light.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.pixels.outline import Outline
from vid2phys.types import Array

_REACH_SIGMA = 2.5
_HALF = 9  # steps that a line reaches to either side
_PARTS = 4  # hypotheses a step
_LENS_PX = 0.85  # blur of lens, codec, pixel and reading between pixels
_PURE = 0.03  # of the other side that a pixel of one side may have
_INTERPOLATED = 2.25  # reading between pixels takes this factor off the variance of noise and correlates it
_CORRELATED = 3.0  # pixels of a texture vary together: so many count as one
_LEAST_GAIN = 0.2  # information of a line over that of the prior, from which on it counts
_FLOOR = 0.004  # noise, full scale 1
_GAMMA = 2.2


@dataclass(frozen=True)
class Edges:
    """The posterior of the edge on N lines, from its drawn place, outward: mean [N] and variance [N], frame pixels.

    Infinite variance: nothing on the line says where it is.
    """

    mean: Array
    variance: Array


def linear_light(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Display bytes to linear light."""
    return _TABLE[picture]


_TABLE = ((np.arange(256) / 255.0) ** _GAMMA).astype(np.float32)


def find_edges(light: NDArray[np.float32], origin: Array, outline: Outline, within_px: float) -> Edges:
    """Edges near an outline.

    light: [h, w, 3] linear, the part of the frame whose first pixel is `origin` (x, y). within_px: standard deviation
    of the edge's place beforehand.
    """
    import cv2

    step_px = max(1.0, 0.5 * within_px)
    reach = int(np.ceil(_REACH_SIGMA * within_px / step_px))
    soft = np.sqrt(max(0.0, (0.5 * step_px) ** 2 - 0.25))  # so that a step is not finer than what it reads
    picture = light if soft < 0.3 else cv2.GaussianBlur(light, (0, 0), soft)
    offsets = step_px * np.arange(-_HALF, _HALF + 1)
    places = outline.pixels[:, None] + offsets[:, None] * outline.normals[:, None]
    seen = _read(picture, places - origin)
    ends, last = places[:, [0, -1]] - origin, np.array(light.shape[1::-1]) - 1.0
    inside = (ends >= 0.0) & (ends <= last)
    fine = step_px / _PARTS * np.arange(-(_HALF + reach) * _PARTS, (_HALF + reach) * _PARTS + 1)
    drawn = outline.to_drawing(outline.pixels[:, None] + fine[:, None] * outline.normals[:, None])
    blurred = cv2.GaussianBlur(outline.silhouette, (0, 0), float(np.hypot(_LENS_PX, soft)) * outline.zoom)
    cover = _read(blurred, drawn, cv2.BORDER_CONSTANT)
    logs = _places(seen, cover, reach)
    mean, variance = _moments(logs / _CORRELATED, step_px / _PARTS, within_px)
    variance[~inside.all(axis=(1, 2))] = np.inf
    return Edges(mean, variance * _INTERPOLATED)


def _read(picture: Any, places: Array, border: int = 1) -> NDArray[np.float32]:
    import cv2

    x, y = np.ascontiguousarray(np.moveaxis(places.astype(np.float32), -1, 0))
    return np.asarray(cv2.remap(picture, x, y, cv2.INTER_LINEAR, borderMode=border), dtype=np.float32)


def _places(seen: NDArray[np.float32], cover: NDArray[np.float32], reach: int) -> Array:
    """Log-likelihood [N, 2 reach _PARTS + 1] of the edge being moved outward by d, up to a constant a line.

    seen: [N, R, 3]. cover: [N, ...] coverage at d = 0 on the fine grid that is `reach` steps longer on both sides.
    """
    from vid2phys.risp.pixels.edge_likelihood import line_likelihood

    y, here = seen.astype(float), cover[:, reach * _PARTS : cover.shape[1] - reach * _PARTS : _PARTS]
    sides = [_side(y, (here > 1.0 - _PURE).astype(float)), _side(y, (here < _PURE).astype(float))]
    mean = np.stack([np.broadcast_to(side[0], (len(y), 3)) for side in sides], axis=1)
    spread, texture = np.array([side[1] for side in sides]), np.stack([side[2] for side in sides], axis=1)
    return np.asarray(line_likelihood(y, cover.astype(float), _PARTS, mean, spread, texture, _floor(y)))


def _side(y: Array, pure: Array) -> tuple[Any, Any, Any]:
    """Mean colour [3] of a side over all lines, variance [] of lines about it, variance [N] within lines."""
    count = pure.sum(axis=1)
    own = (y * pure[..., None]).sum(axis=1) / np.maximum(count, 1.0)[:, None]
    some = count > 0.0
    if not some.any():
        return np.full(3, 0.3), np.float64(0.1), np.full(len(y), 0.01)
    weight = np.maximum(count, 1e-6)
    mean = np.average(own, axis=0, weights=weight)
    spread = np.average(((own - mean) ** 2).mean(-1), weights=weight) + _FLOOR**2
    square = (((y - own[:, None]) ** 2).mean(-1) * pure).sum(axis=1)
    whole = square.sum() / max(1.0, np.maximum(count - 1.0, 0.0).sum())
    texture = (square + 2.0 * whole) / (np.maximum(count - 1.0, 0.0) + 2.0)
    return mean, spread, texture


def _floor(y: Array) -> Array:
    """Variance [N] of noise that is always there, in linear light."""
    level = y.mean(axis=(1, 2))
    return np.asarray((_FLOOR * _GAMMA * (level + 0.02) ** (1.0 - 1.0 / _GAMMA)) ** 2)


def _moments(logs: Array, step: float, within: float) -> tuple[Array, Array]:
    """Mean and variance [N] that, joined with the prior, give those of the posterior; by the peak where that is narrow.

    logs: [N, D] log-likelihood. within: standard deviation of the prior.
    """
    count = logs.shape[1]
    d = step * (np.arange(count) - count // 2)
    logs = logs - 0.5 * (d / within) ** 2
    p = np.exp(logs - logs.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    mean = p @ d
    variance = p @ d**2 - mean**2
    peak = np.clip(np.argmax(logs, axis=1), 1, count - 2)
    rows = np.arange(len(logs))
    left, top, right = (logs[rows, peak + k] for k in (-1, 0, 1))
    bend = left - 2.0 * top + right
    sharp = (variance < step**2) & (bend < -1e-9)
    safe = np.where(sharp, bend, -1.0)
    mean = np.where(sharp, d[peak] + step * np.clip(0.5 * (left - right) / safe, -1.0, 1.0), mean)
    variance = np.where(sharp, -(step**2) / safe, np.maximum(variance, 0.5 * step**2))
    gained = np.maximum(1.0 / variance - 1.0 / within**2, 1e-12)
    return mean / (variance * gained), np.where(gained * within**2 > _LEAST_GAIN, 1.0 / gained, np.inf)

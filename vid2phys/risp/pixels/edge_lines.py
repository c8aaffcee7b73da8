"""Where on lines across an outline the edge is, by the colours on both sides.

Along a line the picture is coverage * F + (1 - coverage) * B plus noise, coverage being that of the drawn silhouette
through the lens, moved along the line by d: regions that compete for pixels (Zhu and Yuille 1996), as lines (Stoiber
et al. 2021; Tjaden et al. 2018), and with local colours and pixels on the edge being of both (Hanek and Beetz 2004).
F and B are normal about what the sides show over the whole outline, and integrated out for every d in closed form;
how much a side varies is what it does on the line. All in linear light.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.pixels.outline import Outline
from vid2phys.types import Array

_REACH_SIGMA = 2.5
_HALF = 9  # steps that a line reaches to either side
_PARTS = 3  # hypotheses a step
_PURE = 0.03  # of the other side that a pixel of one side may have
_INTERPOLATED = 2.25  # reading between pixels takes this factor off the variance of noise and correlates it
_CORRELATED = 3.0  # pixels of a texture vary together: so many count as one
_LEAST_GAIN = 0.2  # information of a line over that of the prior, from which on it counts
_FLOOR = 0.004  # noise, full scale 1
_GAMMA = 2.2
_LIGHT = (np.arange(256) / 255.0) ** _GAMMA


@dataclass(frozen=True)
class Edges:
    """The posterior of the edge on N lines, from its drawn place, outward: mean [N] and variance [N], frame pixels.

    Infinite variance: nothing on the line says where it is.
    """

    mean: Array
    variance: Array


def linear_light(picture: NDArray[np.uint8]) -> Array:
    """Display bytes to linear light."""
    return _LIGHT[picture]


def find_edges(frame: NDArray[np.uint8], outline: Outline, within_px: float) -> Edges:
    """Edges near an outline in a frame [H, W, 3]. within_px: standard deviation of the edge's place beforehand."""
    from vid2phys.risp.pixels.edge_likelihood import cover_lines, line_likelihood, posterior, read_lines, side_colors

    step_px = max(1.0, 0.5 * within_px)
    reach = int(np.ceil(_REACH_SIGMA * within_px / step_px))
    length, reads = 2 * _HALF + 1, round(step_px)
    start = outline.pixels - _HALF * step_px * outline.normals
    seen, inside = read_lines(frame, _LIGHT, start, outline.normals, step_px, length, reads)
    fine, half = step_px / _PARTS, (_HALF + reach) * _PARTS
    start, smooth = outline.drawn - half * fine * outline.across, 0 if reads == 1 else _PARTS
    cover = cover_lines(outline.coverage, start, fine * outline.across, 2 * half + 1, smooth)
    here = cover[:, reach * _PARTS : cover.shape[1] - reach * _PARTS : _PARTS]
    sides = [side_colors(seen, pure, _FLOOR) for pure in (here > 1.0 - _PURE, here < _PURE)]
    mean, spread, texture = (np.stack([side[k] for side in sides], axis=-1) for k in range(3))
    logs = line_likelihood(seen, cover, _PARTS, mean.T.copy(), spread, texture, _noise(seen))
    mean, variance = posterior(logs / _CORRELATED, fine, within_px, _LEAST_GAIN)
    return Edges(mean, np.where(inside, variance * _INTERPOLATED, np.inf))


def _noise(seen: Array) -> Array:
    """Variance [N] of noise that is always there, in linear light."""
    level = seen.mean(axis=(1, 2))
    return np.asarray((_FLOOR * _GAMMA * (level + 0.02) ** (1.0 - 1.0 / _GAMMA)) ** 2)

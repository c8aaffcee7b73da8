"""Where on lines across an outline the edge is, by the colours on both sides.

Along a line the image is coverage * F + (1 - coverage) * B plus noise, coverage being that of the drawn silhouette
through the lens, moved along the line by d: regions that compete for pixels (Zhu and Yuille 1996), as lines (Stoiber
et al. 2021; Tjaden et al. 2018), and with local colours and pixels on the edge being of both (Hanek and Beetz 2004).
F and B are normal about what the sides show over the whole outline, and integrated out for every d in closed form;
how much a side varies is what it does on the line. All in linear light.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.tracking.cues.creases import CreaseLines
from vid2phys.tracking.cues.occluding_contour import LENS_PX, Outline
from vid2phys.types import Array

_REACH_SIGMA = 2.5
_HALF = 9  # steps that a line reaches to either side
_HALF_OF_CREASE = 4  # of lines across creases: faces end
_PARTS = 3  # hypotheses a step
_PURE = 0.03  # of the other side that a pixel of one side may have
_INTERPOLATED = 2.25  # reading between pixels takes this factor off the variance of noise and correlates it
_CORRELATED = 3.0  # pixels of a texture vary together: so many count as one
_LEAST_GAIN = 0.2  # information of a line over that of the prior, from which on it counts
_FLOOR = 0.004  # noise, full scale 1
_GAMMA = 2.2
_DISPLAY = np.arange(256) / 255.0
_LIGHT = _DISPLAY**_GAMMA
_SIDE_PX = 5  # of a side that tells whether there is an edge
_SIDE_NOISE = 0.012  # of display values, 0 to 1
_SIDE, _LEAST_SIDE = 0.15, 3  # of the other side that a pixel of a side may have; pixels of a side
_EVEN_OUTLINE, _EVEN_CREASE = 0.65, 0.45  # at which odds are even on held-out cubes of 50 to 100 px
_ODDS_SLOPE, _ODDS = 4.4, (-2.5, 3.0)  # nats by log ratio, nats


@dataclass(frozen=True)
class Edges:
    """The posterior of the edge on N lines, from its drawn place, outward: mean [N] and variance [N], frame pixels.

    Infinite variance: nothing on the line says where it is.
    """

    mean: Array
    variance: Array


def linear_light(image: NDArray[np.uint8]) -> Array:
    """Display bytes to linear light."""
    return np.asarray(_LIGHT[image])


def find_edges(frame: NDArray[np.uint8], outline: Outline, within_px: float) -> Edges:
    """Edges near an outline in a frame [H, W, 3]. within_px: standard deviation of the edge's place beforehand."""
    from vid2phys.tracking.cues.edge_likelihood import cover_lines

    step_px, reach = _steps(within_px)
    fine, half = step_px / _PARTS, (_HALF + reach) * _PARTS
    start = outline.drawn - half * fine * outline.across
    smooth = 0 if round(step_px) == 1 else _PARTS
    cover = cover_lines(outline.coverage, start, fine * outline.across, 2 * half + 1, smooth)
    return _find(frame, outline.pixels, outline.normals, cover, _HALF, within_px)


def find_creases(frame: NDArray[np.uint8], lines: CreaseLines, within_px: float) -> Edges:
    """As `find_edges`, of lines across creases: short, with a straight edge."""
    from scipy.special import ndtr

    step_px, reach = _steps(within_px)
    half = (_HALF_OF_CREASE + reach) * _PARTS
    straight = ndtr(-step_px / _PARTS * np.arange(-half, half + 1) / LENS_PX)
    cover = np.tile(straight, (len(lines.points), 1))
    return _find(frame, lines.pixels, lines.normals, cover, _HALF_OF_CREASE, within_px)


def _steps(within_px: float) -> tuple[float, int]:
    """Length of a line's step, px, and how many of them an edge may be off."""
    step_px = max(1.0, 0.5 * within_px)
    return step_px, int(np.ceil(_REACH_SIGMA * within_px / step_px))


def crease_reach_px(within_px: float) -> float:
    """How far lines across creases reach to each side, with what they may be off."""
    step_px, reach = _steps(within_px)
    return (_HALF_OF_CREASE + reach) * step_px


def _find(frame: NDArray[np.uint8], pixels: Array, normals: Array, cover: Array, half: int, within_px: float) -> Edges:
    """Edges on lines of `half` steps to both sides of pixels [N, 2] along normals [N, 2].

    cover: [N, C] of the drawn body on the lines, `_PARTS` places a step, longer by where edges may be.
    """
    from vid2phys.tracking.cues.edge_likelihood import line_likelihood, posterior, read_lines, side_colors

    step_px, reach = _steps(within_px)
    start = pixels - half * step_px * normals
    seen, inside = read_lines(frame, _LIGHT, start, normals, step_px, 2 * half + 1, round(step_px))
    here = cover[:, reach * _PARTS : cover.shape[1] - reach * _PARTS : _PARTS]
    sides = [side_colors(seen, pure, _FLOOR) for pure in (here > 1.0 - _PURE, here < _PURE)]
    mean, spread, texture = (np.stack([side[k] for side in sides], axis=-1) for k in range(3))
    logs = line_likelihood(seen, cover, _PARTS, mean.T.copy(), spread, texture, _noise(seen))
    mean, variance = posterior(logs / _CORRELATED, step_px / _PARTS, within_px, _LEAST_GAIN)
    return Edges(mean, np.where(inside, variance * _INTERPOLATED, np.inf))


def _noise(seen: Array) -> Array:
    """Variance [N] of noise that is always there, in linear light."""
    level = seen.mean(axis=(1, 2))
    return np.asarray((_FLOOR * _GAMMA * (level + 0.02) ** (1.0 - 1.0 / _GAMMA)) ** 2)


def outline_evidence(frame: NDArray[np.uint8], outline: Outline) -> float:
    """How much more the edge of an outline is seen in a frame than is by chance, nats."""
    from vid2phys.tracking.cues.edge_likelihood import cover_lines

    start = outline.drawn - _SIDE_PX * outline.across
    cover = cover_lines(outline.coverage, start, outline.across, 2 * _SIDE_PX + 1, 0)
    return _evidence(frame, outline.pixels, outline.normals, cover, _EVEN_OUTLINE)


def crease_evidence(frame: NDArray[np.uint8], lines: CreaseLines) -> float:
    """As `outline_evidence`, of creases."""
    straight = np.where(np.arange(-_SIDE_PX, _SIDE_PX + 1) == 0, 0.5, np.arange(-_SIDE_PX, _SIDE_PX + 1) < 0)
    return _evidence(frame, lines.pixels, lines.normals, np.tile(straight, (len(lines.pixels), 1)), _EVEN_CREASE)


def _evidence(frame: NDArray[np.uint8], pixels: Array, normals: Array, cover: Array, even: float) -> float:
    """Nats of an edge through pixels [N, 2], in order along it, with normals [N, 2] across; cover: [N, R] of a side.

    A line's sides differ by r = log(std of the line / std within its sides), in display values; the log-odds of an edge
    are linear in r, bounded, and zero at `even`, as held-out looks showed.
    """
    from vid2phys.tracking.cues.edge_likelihood import read_lines, side_ratio

    seen, inside = read_lines(frame, _DISPLAY, pixels - _SIDE_PX * normals, normals, 1.0, 2 * _SIDE_PX + 1, 1)
    ratio, shown = side_ratio(seen, cover, _SIDE, _LEAST_SIDE, _SIDE_NOISE)
    odds = np.where(inside & shown, np.clip(_ODDS_SLOPE * (ratio - even), *_ODDS), 0.0)
    apart = np.hypot(*np.diff(pixels, axis=0).T) if len(pixels) > 1 else np.ones(1)
    return float(odds.sum() * np.median(apart))

"""Locate edges on lines across a contour, by the colours on both sides.

Along a line the image is coverage * F + (1 - coverage) * B plus noise, in light that a gamma of 1.5 decodes. The
coverage is that of the drawn silhouette through the lens, moved along the line by d. So regions compete for pixels
(Zhu and Yuille 1996), on lines (Stoiber et al. 2021; Tjaden et al. 2018), with local colours and mixed pixels on the
edge (Hanek and Beetz 2004). F and B are normal about the colours of the whole contour's sides, and are integrated out
for every d in closed form. The variance of a side is the one on its line.

Limits: a side that has the colour of the other has no edge; the line then counts as nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.tracking.cues.contour_config import DEFAULTS, ContourConfig
from vid2phys.tracking.cues.creases import CreaseLines
from vid2phys.tracking.cues.occluding_contour import OccludingContour
from vid2phys.types import Array

# A lens mixes linear light at an edge, where a display has a gamma of 2.2; a codec and resampling mix display values.
# In linear light a dark body is 0.1 to 0.2 px too wide on each side, a bright one too narrow: decision 013.
_GAMMA = 1.5
_DISPLAY = np.arange(256) / 255.0
_LIGHT = _DISPLAY**_GAMMA


@dataclass(frozen=True)
class Edges:
    """The posterior of the edges' places on N lines.

    Attributes:
        mean: [N] distance from the drawn place, outward, px of the frame.
        variance: [N], px^2; infinite where a line does not show an edge.
    """

    mean: Array
    variance: Array


def linear_light(image: NDArray[np.uint8]) -> Array:
    """Return display bytes as linear light."""
    return np.asarray(_LIGHT[image])


def find_edges(
    frame: NDArray[np.uint8], contour: OccludingContour, within_px: float, config: ContourConfig = DEFAULTS
) -> Edges:
    """Locate the edges near a contour in a frame [H, W, 3]; within_px: prior standard deviation of their places."""
    from vid2phys.tracking.cues.edge_likelihood import cover_lines

    step_px, reach = _steps(within_px, config)
    places = config.places_per_step
    length = config.half_length + int(np.ceil(0.5 * np.hypot(*config.path_px) / step_px))
    fine, half = step_px / places, (length + reach) * places
    start = contour.drawn - half * fine * contour.across
    smooth = 0 if round(step_px) == 1 else places
    cover = cover_lines(contour.coverage, start, fine * contour.across, 2 * half + 1, smooth)
    return _find(frame, contour, cover, length, within_px, config)


def find_creases(
    frame: NDArray[np.uint8], lines: CreaseLines, within_px: float, config: ContourConfig = DEFAULTS
) -> Edges:
    """Locate edges as `find_edges` on lines across creases, which are short and have a straight edge.

    Lines along which the body moves in the exposure do not count: they would have to be longer.
    """
    from scipy.special import ndtr

    step_px, reach = _steps(within_px, config)
    half = (config.half_length_crease + reach) * config.places_per_step
    straight = ndtr(-step_px / config.places_per_step * np.arange(-half, half + 1) / config.lens_px)
    cover = np.tile(straight, (len(lines.points), 1))
    found = _find(frame, lines, cover, config.half_length_crease, within_px, config)
    return replace(found, variance=np.where(_blur(lines.normals, config) > config.sharp_px, np.inf, found.variance))


def _blur(normals: Array, config: ContourConfig) -> Array:
    """Return the widths [N] that the body's motion gives to edges with unit normals [N, 2], px."""
    return np.abs(normals @ np.array(config.path_px))


def _longer(blur: Array, config: ContourConfig) -> Array:
    """Return the lengths [N, 1] of steps across edges of some blur [N], px."""
    return np.maximum(1.0, blur / config.blurred_steps)[:, None]


def _steps(within_px: float, config: ContourConfig) -> tuple[float, int]:
    """Return the length of a line's step, px, and by how many steps an edge may be off."""
    step_px = max(1.0, 0.5 * within_px)
    return step_px, int(np.ceil(config.reach_sigma * within_px / step_px))


def crease_reach_px(within_px: float, config: ContourConfig = DEFAULTS) -> float:
    """Return how far lines across creases reach to each side, the uncertainty of their edges included, px."""
    step_px, reach = _steps(within_px, config)
    return (config.half_length_crease + reach) * step_px


def crease_evidence_reach_px(config: ContourConfig = DEFAULTS) -> float:
    """Return how far lines across creases reach to each side when their evidence is asked, px."""
    blur = min(float(np.hypot(*config.path_px)), config.blurred_crease_px)
    return config.evidence_reach_px * max(1.0, blur / config.blurred_steps)


def _find(
    frame: NDArray[np.uint8],
    lines: OccludingContour | CreaseLines,
    cover: Array,
    half: int,
    within_px: float,
    config: ContourConfig,
) -> Edges:
    """Locate edges on lines that reach `half` steps to both sides.

    cover: [N, C] coverage by the drawn body on the lines, longer by the uncertainty of the edges.
    """
    from vid2phys.tracking.cues.edge_likelihood import line_likelihood, posterior, sample_lines, side_colors

    (step_px, reach), places = _steps(within_px, config), config.places_per_step
    start = lines.pixels - half * step_px * lines.normals
    seen, inside = sample_lines(frame, _LIGHT, start, lines.normals, step_px, 2 * half + 1, round(step_px))
    here = cover[:, reach * places : cover.shape[1] - reach * places : places]
    pure = here > 1.0 - config.pure_share, here < config.pure_share
    sides = [side_colors(seen, of_side, config.noise_floor) for of_side in pure]
    mean, spread, texture = (np.stack([side[k] for side in sides], axis=-1) for k in range(3))
    logs = line_likelihood(seen, cover, places, mean.T.copy(), spread, texture, _noise(seen, config))
    mean, variance = posterior(logs / config.correlated_steps, step_px / places, within_px, config.min_gain)
    return Edges(mean, np.where(inside, variance * config.interpolation_factor, np.inf))


def _noise(seen: Array, config: ContourConfig) -> Array:
    """Return the variance [N] of noise that is always there, in linear light."""
    level = seen.mean(axis=(1, 2))
    return np.asarray((config.noise_floor * _GAMMA * (level + 0.02) ** (1.0 - 1.0 / _GAMMA)) ** 2)


def contour_evidence(frame: NDArray[np.uint8], contour: OccludingContour, config: ContourConfig = DEFAULTS) -> float:
    """Return by how much the edge of a contour is seen in a frame above chance, nats."""
    from vid2phys.tracking.cues.edge_likelihood import cover_lines

    step_px = _longer(contour.blur_px, config)
    across = step_px * contour.across
    start = contour.drawn - config.side_px * across
    cover = cover_lines(contour.coverage, start, across, 2 * config.side_px + 1, 0)
    odds = _odds(frame, contour.pixels, step_px * contour.normals, cover, config.even_contour, config)
    return float(odds.sum() * _apart(contour.pixels))


def crease_evidence(frame: NDArray[np.uint8], lines: CreaseLines, config: ContourConfig = DEFAULTS) -> float:
    """Return by how much creases are seen in a frame above chance, nats."""
    return float(_crease_odds(frame, lines.pixels, lines.normals, config).sum() * _apart(lines.pixels))


def print_evidence(
    frame: NDArray[np.uint8],
    lines: CreaseLines,
    rows: slice,
    columns: slice,
    shown: NDArray[np.bool_],
    config: ContourConfig = DEFAULTS,
) -> float:
    """Return the evidence, nats, that a print gives for creases where the body has none.

    The creases are moved sideways within the body's sides. The strongest edges found there count. A plain body has no
    edges there, so that its value is zero.

    Args:
        frame: image [H, W, 3].
        lines: across creases.
        rows: those of the frame that hold the body.
        columns: those of the frame that hold the body.
        shown: [rows, columns] pixels that show it.
        config: settings.
    """
    import cv2

    sides = np.pad(shown.astype(np.uint8), 1)  # a border that is no part of the body

    def at(places: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return rows and columns of `sides` for places in the frame; for places beside it, those of its border."""
        nearest = np.round(places - [columns.start - 1, rows.start - 1]).astype(np.int64)
        x, y = np.clip(nearest, 0, np.array(sides.shape[::-1]) - 1).T
        return y, x

    sides[at(lines.pixels)] = 0
    clear = cv2.distanceTransform(sides, cv2.DIST_L2, 3)
    strongest = 0.0
    for moved in config.print_places_px:
        places = lines.pixels + moved * lines.normals
        inside = clear[at(places)] >= config.print_clear_px
        if inside.mean() >= config.print_share:
            odds = _crease_odds(frame, places[inside], lines.normals[inside], config)
            strongest = max(strongest, float(odds.mean()) * len(places) * _apart(lines.pixels))
    return strongest


def _crease_odds(frame: NDArray[np.uint8], pixels: Array, normals: Array, config: ContourConfig) -> Array:
    """Return the log odds [N] of a straight edge through each of some pixels [N, 2], across normals [N, 2]."""
    blur = _blur(normals, config)
    step_px = _longer(blur, config)
    places = step_px * np.arange(-config.side_px, config.side_px + 1)
    straight = np.clip(0.5 - places / np.maximum(blur[:, None], 1e-9), 0.0, 1.0)
    odds = _odds(frame, pixels, step_px * normals, straight, config.even_crease, config)
    return np.where(blur > config.blurred_crease_px, 0.0, odds)


def _apart(pixels: Array) -> float:
    """Return the distance of pixels [N, 2] that are in order along an edge."""
    return float(np.median(np.hypot(*np.diff(pixels, axis=0).T))) if len(pixels) > 1 else 1.0


def _odds(
    frame: NDArray[np.uint8], pixels: Array, steps: Array, cover: Array, even: float, config: ContourConfig
) -> Array:
    """Return the log odds [N] of an edge through each of some pixels [N, 2], on lines with steps [N, 2] px.

    The sides of a line differ by r = log(std of the line / std within its sides), in display values. The log odds of an
    edge are linear in r, bounded, and zero at `even`, as measured on held-out appearances. cover: [N, R] of a side.
    """
    from vid2phys.tracking.cues.edge_likelihood import sample_lines, side_ratio

    start, length = pixels - config.side_px * steps, 2 * config.side_px + 1
    seen, inside = sample_lines(frame, _DISPLAY, start, steps, 1.0, length, 1)
    ratio, shown = side_ratio(seen, cover, config.side_share, config.min_side_px, config.side_noise)
    clipped = np.clip(config.odds_slope * (ratio - even), *config.odds_range)
    return np.asarray(np.where(inside & shown, clipped, 0.0))

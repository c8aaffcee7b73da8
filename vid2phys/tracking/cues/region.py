"""How well a silhouette separates the colours of a frame.

The edges of a pose cannot show what the pose leaves out, such as an arm in a place where no edge is drawn. Colours
inside and outside the silhouette can. Each side has a histogram, and the better the silhouette, the more both differ.
That is region-based tracking (Prisacariu and Reid, PWP3D, IJCV 2012) with the mutual information of label and colour
(Kim et al., IEEE TIP 2005).

Limits: a background with the colours of the body says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels, bearings_to_pixels
from vid2phys.tracking.cues import Cue
from vid2phys.tracking.cues.silhouette import Drawing
from vid2phys.types import Array, Camera

CUE = Cue("colours inside the silhouette against colours around it, which separate ambiguous poses")

_SMOOTH = np.exp(-0.5 * np.arange(-3, 4) ** 2)  # blur of histograms, a standard deviation of one bin
_compiled = numba.njit(cache=True, error_model="numpy", nogil=True)


@dataclass(frozen=True, kw_only=True)
class RegionConfig:
    """Settings of the region cue."""

    around: float = 1.35
    """Radius of the circle of cells, radii of the bounding sphere."""
    max_cells: int = 96
    """Largest number of cells on a side; cells are never finer than the frame's pixels."""
    bins: int = 12
    """Bins of the histogram in each channel."""
    min_count: float = 1e-3
    """Cells that are added to each bin."""
    places_per_cell: int = 3
    """Places on each side of a cell at which the drawing is sampled."""
    correlated_cells: float = 5.0
    """Number of cells that count as one piece of evidence."""


DEFAULTS = RegionConfig()


@dataclass(frozen=True)
class Region:
    """The cells of a frame around a body. The bearing of a cell is start + (column, row) * step.

    Attributes:
        colors: [N, N] bins, -1 off the frame or outside of the circle.
        start: [2] bearing of the first cell.
        step: distance of cells, bearings.
        config: settings.
    """

    colors: NDArray[np.int64]
    start: Array
    step: float
    config: RegionConfig = DEFAULTS

    @staticmethod
    def of(
        frame: NDArray[np.uint8], camera: Camera, center: Array, radius: float, config: RegionConfig = DEFAULTS
    ) -> Region:
        """Return the cells of a frame [H, W, 3] around a sphere at a bearing [2] with an angular radius, rad."""
        import cv2

        most, bins = config.max_cells, config.bins
        half = config.around * float(np.tan(radius))
        pixel = 1.0 / float(np.sqrt(abs(np.linalg.det(bearing_jacobian_to_pixels(camera, np.asarray(center))))))
        count = int(np.clip(np.nan_to_num(np.ceil(2.0 * half / pixel), nan=most), 8, most))  # NaN: beyond the lens
        step = 2.0 * half / count
        along = step * (np.arange(count) + 0.5) - half
        bearings = np.stack(np.meshgrid(along, along), axis=-1)
        places = np.nan_to_num(bearings_to_pixels(camera, bearings + center), nan=-9.0)
        x, y = np.moveaxis(places.astype(np.float32), -1, 0)
        seen = cv2.remap(frame, x, y, cv2.INTER_LINEAR)
        color = seen.astype(np.int64) * bins // 256
        inside = np.all((places > -0.5) & (places < np.array(frame.shape[1::-1]) - 0.5), axis=-1)
        inside &= np.linalg.norm(bearings, axis=-1) < half
        colors = np.where(inside, (color * [bins**2, bins, 1]).sum(axis=-1), -1)
        return Region(colors, center + along[0], step, config)

    def evidence(self, drawing: Drawing) -> float:
        """Return by how much the silhouette of a drawing makes the colours more likely, nats."""
        start, step = drawing.focal * self.start - drawing.corner, drawing.focal * self.step
        config = self.config
        covered = _cover(drawing.nearness, self.colors.shape[0], start, step, config.places_per_cell)
        return float(_information(self.colors, covered, config.bins, config.min_count)) / config.correlated_cells


@_compiled
def _cover(nearness: NDArray[np.float32], count: int, start: Array, step: float, parts: int) -> NDArray[np.float64]:
    """Return the share of each of count x count cells that a drawing covers; the first is about start [2], drawn px."""
    height, width = nearness.shape
    covered = np.zeros((count, count))
    for row in range(count * parts):
        y = round(start[1] + step * ((row + 0.5) / parts - 0.5))
        if 0 <= y < height:
            for column in range(count * parts):
                x = round(start[0] + step * ((column + 0.5) / parts - 0.5))
                if 0 <= x < width and nearness[y, x] > 0.0:
                    covered[row // parts, column // parts] += 1.0 / parts**2
    return covered


@_compiled
def _information(colors: NDArray[np.int64], covered: Array, bins: int, least: float) -> float:
    """Return the log-likelihood of colours by two histograms above that by a common one, nats."""
    both = np.zeros((2, bins**3))
    for row in range(len(colors)):
        for column in range(len(colors)):
            color, share = colors[row, column], covered[row, column]
            if color >= 0:
                both[0, color] += share
                both[1, color] += 1.0 - share
    for side in range(2):
        both[side] = _smoothed(both[side].copy(), bins) + least
    inside, outside = both[0].sum(), both[1].sum()
    total = 0.0
    for row in range(len(colors)):
        for column in range(len(colors)):
            color, share = colors[row, column], covered[row, column]
            if color >= 0:
                own, other = both[0, color], both[1, color]
                likely = share * own / inside + (1.0 - share) * other / outside
                total += np.log(likely * (inside + outside) / (own + other))
    return total


@_compiled
def _smoothed(histogram: Array, bins: int) -> Array:
    """Return a histogram [bins^3], blurred along its three channels."""
    reach = len(_SMOOTH) // 2
    weights = _SMOOTH / _SMOOTH.sum()
    for stride in (1, bins, bins**2):
        blurred = np.zeros_like(histogram)
        for k in range(len(histogram)):
            if histogram[k] > 0.0:
                place = k // stride % bins
                for j in range(-reach, reach + 1):
                    beside = min(max(place + j, 0), bins - 1)
                    blurred[k + stride * (beside - place)] += weights[j + reach] * histogram[k]
        histogram = blurred
    return histogram

"""How well a silhouette parts the colours of a frame: what a pose leaves out, or covers that is not the body.

Edges that a pose draws say nothing of those that it does not: of an arm that no pose puts where one is seen. Colours
inside and outside the silhouette do: each side is what its histogram says, and the better the silhouette, the more they
differ (region-based tracking: Prisacariu and Reid, PWP3D, IJCV 2012; mutual information of label and colour after Kim
et al., IEEE TIP 2005).
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels, bearings_to_pixels
from vid2phys.tracking.cues.silhouette import Drawing
from vid2phys.types import Array, Camera

_AROUND = 1.35  # radii of the bounding sphere that are looked at
_CELLS = 96  # a side, at most; never finer than the frame
_BINS = 12  # a channel
_SMOOTH = np.exp(-0.5 * np.arange(-3, 4) ** 2)  # of histograms, bins
_LEAST = 1e-3  # cells in a bin
_PARTS = 3  # places a side in each cell where the drawing is read
_ALIKE = 5.0  # cells that count as one piece of evidence
_compiled = numba.njit(cache=True, error_model="numpy", nogil=True)


@dataclass(frozen=True)
class Region:
    """The cells of a frame about a body. colors: [N, N] bins, -1 off the frame or outside of the circle. A cell's
    bearing is start [2] + (column, row) * step."""

    colors: NDArray[np.int64]
    start: Array
    step: float

    @staticmethod
    def of(frame: NDArray[np.uint8], camera: Camera, center: Array, radius: float) -> Region:
        """The cells of a frame [H, W, 3] about a bounding sphere at bearings center [2] and of radius rad."""
        import cv2

        half = _AROUND * float(np.tan(radius))
        pixel = 1.0 / float(np.sqrt(abs(np.linalg.det(bearing_jacobian_to_pixels(camera, np.asarray(center))))))
        count = int(np.clip(np.nan_to_num(np.ceil(2.0 * half / pixel), nan=_CELLS), 8, _CELLS))  # NaN: beyond the lens
        step = 2.0 * half / count
        along = step * (np.arange(count) + 0.5) - half
        bearings = np.stack(np.meshgrid(along, along), axis=-1)
        places = np.nan_to_num(bearings_to_pixels(camera, bearings + center), nan=-9.0)
        x, y = np.moveaxis(places.astype(np.float32), -1, 0)
        seen = cv2.remap(frame, x, y, cv2.INTER_LINEAR)
        bins = seen.astype(np.int64) * _BINS // 256
        inside = np.all((places > -0.5) & (places < np.array(frame.shape[1::-1]) - 0.5), axis=-1)
        inside &= np.linalg.norm(bearings, axis=-1) < half
        return Region(np.where(inside, (bins * [_BINS**2, _BINS, 1]).sum(axis=-1), -1), center + along[0], step)

    def evidence(self, drawing: Drawing) -> float:
        """How much more likely the colours are with the silhouette of a drawing than without one, nats."""
        start, step = drawing.focal * self.start - drawing.corner, drawing.focal * self.step
        covered = _cover(drawing.nearness, self.colors.shape[0], start, step)
        return float(_information(self.colors, covered, _SMOOTH)) / _ALIKE


@_compiled
def _cover(nearness: NDArray[np.float32], count: int, start: Array, step: float) -> NDArray[np.float64]:
    """How much of each of count x count cells, the first about start [2] in drawn pixels, a drawing covers."""
    height, width = nearness.shape
    covered = np.zeros((count, count))
    for row in range(count * _PARTS):
        y = round(start[1] + step * ((row + 0.5) / _PARTS - 0.5))
        if 0 <= y < height:
            for column in range(count * _PARTS):
                x = round(start[0] + step * ((column + 0.5) / _PARTS - 0.5))
                if 0 <= x < width and nearness[y, x] > 0.0:
                    covered[row // _PARTS, column // _PARTS] += 1.0 / _PARTS**2
    return covered


@_compiled
def _information(colors: NDArray[np.int64], covered: Array, smooth: Array) -> float:
    """Log-likelihood of colours by what both sides show, above that by what they show together, nats."""
    both = np.zeros((2, _BINS**3))
    for row in range(len(colors)):
        for column in range(len(colors)):
            color, share = colors[row, column], covered[row, column]
            if color >= 0:
                both[0, color] += share
                both[1, color] += 1.0 - share
    for side in range(2):
        both[side] = _smoothed(both[side].copy(), smooth) + _LEAST
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
def _smoothed(histogram: Array, smooth: Array) -> Array:
    """A histogram [bins^3], blurred along its three channels."""
    reach = len(smooth) // 2
    weights = smooth / smooth.sum()
    for stride in (1, _BINS, _BINS**2):
        blurred = np.zeros_like(histogram)
        for k in range(len(histogram)):
            if histogram[k] > 0.0:
                place = k // stride % _BINS
                for j in range(-reach, reach + 1):
                    beside = min(max(place + j, 0), _BINS - 1)
                    blurred[k + stride * (beside - place)] += weights[j + reach] * histogram[k]
        histogram = blurred
    return histogram

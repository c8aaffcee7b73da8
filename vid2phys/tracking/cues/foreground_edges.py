"""Locate the edge of a body on lines across its contour, from how likely each pixel shows the body.

The likelihood of an edge at a place is that all pixels before it show the body, and all pixels after it the scene
(Stoiber et al., SRT3D, IJCV 2021). Edges are found from far, since whole regions count and not only steps of light.

Limits: a region that is taken for the body, such as a shadow, moves the edge.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.types import Array

_compiled = numba.njit(cache=True, error_model="numpy", fastmath=True, nogil=True)


@_compiled
def edge_places(
    log_ratio: NDArray[np.float32], pixels: Array, normals: Array, reach_px: float, steps: int, correlated: float
) -> tuple[Array, Array]:
    """Return the means [N] and variances [N] of the edges' places along outward normals, px.

    Args:
        log_ratio: [H, W] log-likelihood ratio of body and scene, nats.
        pixels: [N, 2] points of the contour (x, y).
        normals: [N, 2] unit, outward.
        reach_px: largest distance of an edge from the contour, px; a normal prior has half of it as deviation.
        steps: number of steps to each side.
        correlated: number of pixels in a row that count as one.
    """
    height, width = log_ratio.shape
    count = 2 * steps + 1
    mean, variance, sums = np.empty(len(pixels)), np.empty(len(pixels)), np.empty(count + 1)
    step = reach_px / steps
    for i in range(len(pixels)):
        sums[0] = 0.0
        for k in range(count):
            along = (k - steps) * step
            x, y = pixels[i, 0] + along * normals[i, 0], pixels[i, 1] + along * normals[i, 1]
            value = -1.0  # beyond the frame nothing is known, and little of the body is expected
            if 0.0 <= x < width - 1 and 0.0 <= y < height - 1:
                left, top = int(x), int(y)
                u, v = x - left, y - top
                upper = log_ratio[top, left] + u * (log_ratio[top, left + 1] - log_ratio[top, left])
                lower = log_ratio[top + 1, left] + u * (log_ratio[top + 1, left + 1] - log_ratio[top + 1, left])
                value = upper + v * (lower - upper)
            elif not (-1.0 <= x <= width and -1.0 <= y <= height):
                value = 0.0
            sums[k + 1] = sums[k] + value * step / correlated
        best = -np.inf
        for k in range(count + 1):
            at = (k - 0.5 - steps) * step
            sums[k] -= 2.0 * (at / reach_px) ** 2
            best = max(best, sums[k])
        total, first, second = 0.0, 0.0, 0.0
        for k in range(count + 1):
            at, weight = (k - 0.5 - steps) * step, np.exp(sums[k] - best)
            total += weight
            first += weight * at
            second += weight * at * at
        mean[i] = first / total
        variance[i] = max(second / total - mean[i] ** 2, 0.0) + 0.1 * step**2 + 0.05
    return mean, variance

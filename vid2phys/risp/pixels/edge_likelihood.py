"""The compiled loop of `edge_lines`: how well an edge at each place explains the pixels of a line."""

from __future__ import annotations

import math

import numba
import numpy as np

from vid2phys.types import Array


@numba.njit(cache=True, fastmath=True, error_model="numpy", nogil=True)
def line_likelihood(
    seen: Array, cover: Array, parts: int, mean: Array, spread: Array, texture: Array, floor: Array
) -> Array:
    """Log-likelihoods [N, D] of edges moved outward by each of D places, up to a constant a line.

    seen: [N, R, 3] linear light. cover: [N, D + parts * (R - 1)], coverage at the middle place on a grid `parts` times
    as fine. mean [N, 2, 3], spread [2]: of the colours of inside and outside, between lines. texture: [N, 2] variance
    of their pixels. floor: [N] variance of noise.
    """
    lines, length = seen.shape[0], seen.shape[1]
    places = cover.shape[1] - parts * (length - 1)
    out = np.empty((lines, places))
    for i in range(lines):
        for d in range(places):
            n_ff, n_fb, n_bb = 1.0 / spread[0], 0.0, 1.0 / spread[1]
            f0 = f1 = f2 = b0 = b1 = b2 = square = log_v = 0.0
            product = 1.0
            for r in range(length):
                a = cover[i, parts * r + places - 1 - d]
                b = 1.0 - a
                v = a * a * texture[i, 0] + b * b * texture[i, 1] + floor[i]
                w = 1.0 / v
                product *= v
                if r % 4 == 3:
                    log_v += math.log(product)
                    product = 1.0
                e0 = seen[i, r, 0] - a * mean[i, 0, 0] - b * mean[i, 1, 0]
                e1 = seen[i, r, 1] - a * mean[i, 0, 1] - b * mean[i, 1, 1]
                e2 = seen[i, r, 2] - a * mean[i, 0, 2] - b * mean[i, 1, 2]
                wa, wb = w * a, w * b
                n_ff += wa * a
                n_fb += wa * b
                n_bb += wb * b
                f0 += wa * e0
                f1 += wa * e1
                f2 += wa * e2
                b0 += wb * e0
                b1 += wb * e1
                b2 += wb * e2
                square += w * (e0 * e0 + e1 * e1 + e2 * e2)
            log_v += math.log(product)
            det = n_ff * n_bb - n_fb * n_fb
            gain = n_bb * (f0 * f0 + f1 * f1 + f2 * f2) + n_ff * (b0 * b0 + b1 * b1 + b2 * b2)
            gain = (gain - 2.0 * n_fb * (f0 * b0 + f1 * b1 + f2 * b2)) / det
            out[i, d] = -0.5 * (square - gain) - 1.5 * (math.log(det) + log_v)
    return out

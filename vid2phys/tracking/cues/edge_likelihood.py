"""The compiled loops of `edge_lines`: images along lines, colours of their sides, the likelihood of an edge.

All functions work on N lines. `seen` [N, R, 3] is an image in linear light at R steps of each line. `cover` [N, C] is
the drawn coverage on a grid that is `parts` times as fine and longer at both ends. An edge at place d of
D = C - parts (R - 1) covers step r by cover[parts r + D - 1 - d].
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.types import Array

_LANES = 16  # numbers that a compiled loop takes at once, unrolled
_compiled = numba.njit(cache=True, fastmath=True, error_model="numpy", nogil=True)


@_compiled
def sample_lines(
    frame: NDArray[np.uint8], table: Array, start: Array, direction: Array, step: float, length: int, samples: int
) -> tuple[Array, NDArray[np.bool_]]:
    """Return the light [N, length, 3] of a frame along lines, and which lines [N] lie wholly inside it.

    Args:
        frame: [H, W, 3] display bytes.
        table: [256] light of display bytes.
        start: [N, 2] first pixels.
        direction: [N, 2] unit.
        step: length of a step, px.
        length: number of steps.
        samples: bilinear samples in a step, whose mean is taken.
    """
    height, width = frame.shape[0], frame.shape[1]
    out, inside = np.zeros((len(start), length, 3)), np.ones(len(start), np.bool_)
    for i in range(len(start)):
        for r in range(length):
            for q in range(samples):
                along = step * (r + (q + 0.5) / samples - 0.5)
                x, y = start[i, 0] + along * direction[i, 0], start[i, 1] + along * direction[i, 1]
                if not (0.0 <= x <= width - 1 and 0.0 <= y <= height - 1):
                    inside[i] = False
                    break
                left, top = min(int(x), width - 2), min(int(y), height - 2)
                u, v = (x - left) / samples, y - top
                for c in range(3):
                    above, below = table[frame[top, left, c]], table[frame[top + 1, left, c]]
                    above_right, below_right = table[frame[top, left + 1, c]], table[frame[top + 1, left + 1, c]]
                    upper = above / samples + u * (above_right - above)
                    lower = below / samples + u * (below_right - below)
                    out[i, r, c] += upper + v * (lower - upper)
    return out, inside


@_compiled
def cover_lines(drawing: NDArray[np.float32], start: Array, step: Array, length: int, smooth: int) -> Array:
    """Return the coverage [N, length] along lines of a drawing [h, w], zero outside, averaged over `smooth` steps.

    start, step: [N, 2], drawn pixels.
    """
    height, width = drawing.shape
    out, fine = np.empty((len(start), length)), np.empty(length + smooth)
    for i in range(len(start)):
        for k in range(length + smooth):
            along = k - 0.5 * smooth
            x, y = start[i, 0] + along * step[i, 0], start[i, 1] + along * step[i, 1]
            fine[k] = 0.0
            if 0.0 <= x < width - 1 and 0.0 <= y < height - 1:
                left, top = int(x), int(y)
                u, v = x - left, y - top
                upper = drawing[top, left] + u * (drawing[top, left + 1] - drawing[top, left])
                lower = drawing[top + 1, left] + u * (drawing[top + 1, left + 1] - drawing[top + 1, left])
                fine[k] = upper + v * (lower - upper)
        for k in range(length):
            total = 0.0
            for j in range(smooth + 1):
                total += fine[k + j]
            out[i, k] = total / (smooth + 1)
    return out


@_compiled
def side_colors(seen: Array, pure: NDArray[np.bool_], floor: float) -> tuple[Array, float, Array]:
    """Return the mean colour [3] of a side, the variance of lines about it, and the variance [N] within lines.

    pure: [N, R], True where a step shows this side only. floor: standard deviation of noise.
    """
    lines, length = pure.shape
    own, square, count = np.zeros((lines, 3)), np.zeros(lines), np.zeros(lines)
    mean, spread, texture = np.zeros(3), 0.0, np.empty(lines)
    for i in range(lines):
        for r in range(length):
            if pure[i, r]:
                count[i] += 1.0
                for c in range(3):
                    own[i, c] += seen[i, r, c]
                    square[i] += seen[i, r, c] ** 2 / 3.0
        for c in range(3):
            mean[c] += own[i, c]
            own[i, c] /= max(count[i], 1.0)
            square[i] -= count[i] * own[i, c] ** 2 / 3.0
    total, freedom = count.sum(), np.maximum(count - 1.0, 0.0).sum()
    if total == 0.0:
        return np.full(3, 0.3), 0.1, np.full(lines, 0.01)
    mean /= total
    pooled = max(square.sum(), 0.0) / max(freedom, 1.0)
    for i in range(lines):
        for c in range(3):
            spread += count[i] * (own[i, c] - mean[c]) ** 2 / (3.0 * total)
        texture[i] = (max(square[i], 0.0) + 2.0 * pooled) / (max(count[i] - 1.0, 0.0) + 2.0)
    return mean, spread + floor**2, texture


@_compiled
def _slide(grid: Array, values: Array, parts: int, out: Array) -> None:
    """Write out[k] = sum over r of values[r] grid[parts r + k], in an order that the compiler vectorises."""
    for k in range(len(out)):
        out[k] = values[0] * grid[k]
    for r in range(1, len(values)):
        value, shifted = values[r], grid[parts * r :]
        for k in range(len(out)):
            out[k] += value * shifted[k]


@_compiled
def line_likelihood(
    seen: Array, cover: Array, parts: int, mean: Array, spread: Array, texture: Array, floor: Array
) -> Array:
    """Return log-likelihoods [N, D] of edges that are moved outward by each of D places, up to a constant per line.

    Terms that do not depend on the step are computed once for each point of the grid.

    Args:
        seen: [N, R, 3] light.
        cover: [N, C] coverage.
        parts: places per step.
        mean: [2, 3] colours of inside and outside.
        spread: [2] variance of these between lines.
        texture: [N, 2] variance of their pixels.
        floor: [N] variance of noise.
    """
    lines, length, count = seen.shape[0], seen.shape[1], cover.shape[1]
    places = count - parts * (length - 1)
    whole = -(-places // _LANES) * _LANES  # so that no loop has a remainder
    out = np.empty((lines, places))
    grid = np.ones((4, count + whole - places))  # 1 / v, a / v, a^2 / v and v
    values, sums = np.ones((5, length)), np.empty((11, whole))
    apart = mean[0] - mean[1]
    for i in range(lines):
        for m in range(count):
            a = cover[i, m]
            b = 1.0 - a
            v = a * a * texture[i, 0] + b * b * texture[i, 1] + floor[i]
            grid[0, m], grid[1, m], grid[2, m], grid[3, m] = 1.0 / v, a / v, a * a / v, v
        for r in range(length):
            values[3, r] = 0.0
            for c in range(3):  # colours less the outside's mean, their square, and ones in the last row
                values[c, r] = seen[i, r, c] - mean[1, c]
                values[3, r] += values[c, r] ** 2
        for k in range(5):
            _slide(grid[0], values[k], parts, sums[k])
        for k in range(3):
            _slide(grid[1], values[k], parts, sums[5 + k])
        _slide(grid[1], values[4], parts, sums[8])
        _slide(grid[2], values[4], parts, sums[9])
        product = sums[10]
        product[:] = 1.0
        for r in range(length):
            shifted = grid[3, parts * r :]
            for k in range(whole):  # with variances above 1e-6 the product of some tens stays in range
                product[k] *= shifted[k]
        for k in range(places):
            n_aa, n_fb = sums[9, k], sums[8, k] - sums[9, k]
            n_ff, n_bb = n_aa + 1.0 / spread[0], sums[4, k] - sums[8, k] - n_fb + 1.0 / spread[1]
            det = n_ff * n_bb - n_fb * n_fb
            square, gain = sums[3, k], 0.0
            for c in range(3):
                of_w, of_wa, d = sums[c, k], sums[5 + c, k], apart[c]
                square += d * (d * n_aa - 2.0 * of_wa)
                f, b = of_wa - d * n_aa, of_w - of_wa - d * n_fb
                gain += n_bb * f * f + n_ff * b * b - 2.0 * n_fb * f * b
            out[i, places - 1 - k] = -0.5 * (square - gain / det) - 1.5 * math.log(det * product[k])
    return out


@_compiled
def posterior(logs: Array, step: float, within: float, least_gain: float) -> tuple[Array, Array]:
    """Return mean and variance [N] that, with the prior, give those of the posterior; at the peak where it is narrow.

    The variance is infinite where a line adds less than the share `least_gain` of the prior's information.

    Args:
        logs: [N, D] log-likelihoods of places about zero.
        step: distance of these places.
        within: standard deviation of the prior.
        least_gain: least share.
    """
    lines, places = logs.shape
    mean, variance = np.empty(lines), np.empty(lines)
    value = np.empty(places)
    for i in range(lines):
        peak = 0
        for k in range(places):
            d = step * (k - places // 2)
            value[k] = logs[i, k] - 0.5 * (d / within) ** 2
            if value[k] > value[peak]:
                peak = k
        top, total, first, second = value[peak], 0.0, 0.0, 0.0
        for k in range(places):
            d, p = step * (k - places // 2), math.exp(value[k] - top)
            total += p
            first += p * d
            second += p * d * d
        m = first / total
        v = second / total - m * m
        near = min(max(peak, 1), places - 2)
        bend = value[near - 1] - 2.0 * value[near] + value[near + 1]
        if v < step**2 and bend < -1e-9:
            aside = 0.5 * (value[near - 1] - value[near + 1]) / bend
            m = step * (near - places // 2 + min(max(aside, -1.0), 1.0))
            v = -(step**2) / bend
        else:
            v = max(v, 0.5 * step**2)
        gained = max(1.0 / v - 1.0 / within**2, 1e-12)
        mean[i] = m / (v * gained)
        variance[i] = 1.0 / gained if gained * within**2 > least_gain else math.inf
    return mean, variance


@_compiled
def side_ratio(seen: Array, cover: Array, other: float, least: int, noise: float) -> tuple[Array, NDArray[np.bool_]]:
    """Return log(standard deviation of a line / that within its sides) [N], and which lines show both sides [N].

    Args:
        seen: [N, R, 3] values of the image.
        cover: [N, R] coverage by one side.
        other: largest share of the other side in a pixel of a side.
        least: least number of pixels of each side.
        noise: standard deviation of noise.
    """
    lines, length, channels = seen.shape
    ratio, shown = np.empty(lines), np.empty(lines, np.bool_)
    for i in range(lines):
        whole, within, total, fewest = 0.0, 0.0, 0.0, float(length)
        together = np.zeros((2, channels))  # sums, and sums of squares
        for side in range(2):
            count, sums = 0.0, np.zeros((2, channels))
            for r in range(length):
                if cover[i, r] < other if side else cover[i, r] > 1.0 - other:
                    count += 1.0
                    for c in range(channels):
                        sums[0, c] += seen[i, r, c]
                        sums[1, c] += seen[i, r, c] ** 2
            for c in range(channels):
                within += sums[1, c] - sums[0, c] ** 2 / max(count, 1.0)
            together += sums
            total += count
            fewest = min(fewest, count)
        for c in range(channels):
            whole += together[1, c] - together[0, c] ** 2 / max(total, 1.0)
        share = channels * max(total, 1.0)
        ratio[i] = 0.5 * math.log((max(whole / share, 0.0) + noise**2) / (max(within / share, 0.0) + noise**2))
        shown[i] = fewest >= least
    return ratio, shown


@_compiled
def correlated_count(normal: Array, most: int) -> float:
    """Return how many residuals [N] in a row count as one: the sum of their autocorrelation while above chance."""
    count = len(normal)
    z = np.minimum(np.maximum(normal, -3.0), 3.0)
    z = z - z.mean()
    power = (z * z).sum() + 1e-12
    total = 1.0
    for lag in range(1, min(most, count // 2)):
        along = 0.0
        for k in range(count - lag):
            along += z[k + lag] * z[k]
        along /= power
        if along <= 2.0 * count**-0.5:  # not above chance
            break
        total += 2.0 * along
    return total

"""Drawing what a mesh covers, and how near it is: a compiled z-buffer for small images that are drawn often."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.types import Array

_DRAWN_PX = 150.0  # size at which bodies are drawn
_MARGIN_PX = 16.0  # of the drawing around it
_LEAST_DEPTH = 1e-6  # m


@dataclass(frozen=True)
class Drawing:
    """A posed mesh, drawn by a pinhole camera zoomed until the body is large, so that what is read from it is as fine
    for a body of 20 pixels as for one of 200.

    nearness: [h, w] 1 / depth [1/m], zero where the body is not. A drawn pixel is focal * bearing - corner [2].
    """

    nearness: NDArray[np.float32]
    focal: float
    corner: Array


def draw(posed: Array, faces: NDArray[np.int64]) -> Drawing | None:
    """A mesh with vertices [V, 3] m in camera axes, its longer side 150 pixels; None where it is behind the camera."""
    if not posed[:, 2].min() > _LEAST_DEPTH:
        return None
    z = posed[:, 2].copy()
    bearings = np.ascontiguousarray(posed.T[:2]) / z  # [2, V]
    low, high = bearings.min(axis=1), bearings.max(axis=1)
    focal = _DRAWN_PX / float((high - low).max() + 1e-9)
    corner = focal * low - _MARGIN_PX
    width, height = (int(side) for side in np.ceil(focal * (high - low) + 2.0 * _MARGIN_PX) + 1)
    x, y = focal * bearings - corner[:, None]
    return Drawing(draw_nearness(x, y, z, faces, width, height), focal, corner)


@numba.njit(cache=True, fastmath=True, error_model="numpy", nogil=True)
def draw_nearness(
    x: Array, y: Array, z: Array, faces: NDArray[np.int64], width: int, height: int
) -> NDArray[np.float32]:
    """1 / depth [height, width] of the nearest face at each pixel centre, zero where there is none.

    x, y, z: [V] vertices in pixels (centres at integers) and depth. faces: [F, 3]. Faces that reach behind the
    camera are dropped; edges between vertices are straight in the image.
    """
    out = np.zeros((height, width), np.float32)
    for f in range(faces.shape[0]):
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        za, zb, zc = z[a], z[b], z[c]
        if not (za > 0.0 and zb > 0.0 and zc > 0.0):
            continue
        xa, ya = x[a], y[a]
        ux, uy = x[b] - xa, y[b] - ya
        vx, vy = x[c] - xa, y[c] - ya
        area = ux * vy - uy * vx
        top = max(0, math.ceil(ya + min(0.0, uy, vy)))
        bottom = min(height - 1, math.floor(ya + max(0.0, uy, vy)))
        if area == 0.0 or top > bottom:
            continue
        base = 1.0 / za  # which is linear in the image
        du, dv = 1.0 / zb - base, 1.0 / zc - base
        by_x, by_y = (du * vy - dv * uy) / area, (dv * ux - du * vx) / area
        ends = (xa, xa + ux, xa + vx, xa)
        rows = (ya, ya + uy, ya + vy, ya)
        for row in range(top, bottom + 1):
            left, right = math.inf, -math.inf
            for k in range(3):
                y0, y1 = rows[k], rows[k + 1]
                if min(y0, y1) <= row <= max(y0, y1):
                    if y0 == y1:
                        left, right = min(left, ends[k], ends[k + 1]), max(right, ends[k], ends[k + 1])
                    else:
                        at = ends[k] + (ends[k + 1] - ends[k]) * (row - y0) / (y1 - y0)
                        left, right = min(left, at), max(right, at)
            if left > right:
                continue
            start = base + by_y * (row - ya) - by_x * xa
            for column in range(max(0, math.ceil(left)), min(width - 1, math.floor(right)) + 1):
                near = np.float32(start + by_x * column)
                if near > out[row, column]:
                    out[row, column] = near
    return out

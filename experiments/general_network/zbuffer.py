"""Draw which face of a mesh each pixel of a pinhole camera shows: a compiled z-buffer for small images.

Limits: faces that reach behind the camera are dropped; one ray a pixel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.types import Array


@dataclass(frozen=True)
class FaceMap:
    """What the pixels of a square image show of a mesh.

    Attributes:
        face: [S, S] index of the face at each pixel, -1 beside the body.
        nearness: [S, S] 1 / depth, zero beside the body, 1/m.
    """

    face: NDArray[np.int32]
    nearness: NDArray[np.float32]

    @property
    def covered(self) -> NDArray[np.bool_]:
        """Return which pixels [S, S] show the body."""
        return self.face >= 0

    def points(self, K: Array) -> NDArray[np.float32]:
        """Return the points [N, 3] m, in camera axes, that the covered pixels show. K: [3, 3] px."""
        rows, columns = np.nonzero(self.covered)
        depth = 1.0 / self.nearness[rows, columns]
        x, y = (columns - K[0, 2]) / K[0, 0] * depth, (rows - K[1, 2]) / K[1, 1] * depth
        return np.stack([x, y, depth], axis=-1).astype(np.float32)


def draw_faces(vertices: Array, faces: NDArray[np.int64], K: Array, size: int) -> FaceMap:
    """Draw a mesh into a square image.

    Args:
        vertices: [V, 3] in camera axes, m.
        faces: [F, 3] indices of vertices.
        K: [3, 3] camera matrix, px; pixel centres at integers.
        size: width and height of the image, px.
    """
    z = np.ascontiguousarray(vertices[:, 2])
    safe = np.where(z > 0.0, z, 1.0)
    x, y = K[0, 0] * vertices[:, 0] / safe + K[0, 2], K[1, 1] * vertices[:, 1] / safe + K[1, 2]
    return FaceMap(*_draw(x, y, z, faces, size))


@numba.njit(cache=True, fastmath=True, error_model="numpy", nogil=True)
def _draw(
    x: Array, y: Array, z: Array, faces: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the face and 1 / depth [size, size] of the nearest face at each pixel centre."""
    nearness, face = np.zeros((size, size), np.float32), np.full((size, size), -1, np.int32)
    for f in range(faces.shape[0]):
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        if not (z[a] > 0.0 and z[b] > 0.0 and z[c] > 0.0):
            continue
        ux, uy, vx, vy = x[b] - x[a], y[b] - y[a], x[c] - x[a], y[c] - y[a]
        area = ux * vy - uy * vx
        if area == 0.0:
            continue
        base = 1.0 / z[a]  # which is linear in the image
        du, dv = 1.0 / z[b] - base, 1.0 / z[c] - base
        top, bottom = max(0, math.ceil(y[a] + min(0.0, uy, vy))), min(size - 1, math.floor(y[a] + max(0.0, uy, vy)))
        left, right = max(0, math.ceil(x[a] + min(0.0, ux, vx))), min(size - 1, math.floor(x[a] + max(0.0, ux, vx)))
        for row in range(top, bottom + 1):
            for column in range(left, right + 1):
                px, py = column - x[a], row - y[a]
                u, v = (px * vy - py * vx) / area, (ux * py - uy * px) / area
                if u < 0.0 or v < 0.0 or u + v > 1.0:
                    continue
                near = np.float32(base + u * du + v * dv)
                if near > nearness[row, column]:
                    nearness[row, column], face[row, column] = near, f
    return face, nearness

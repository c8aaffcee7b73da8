"""Compute areas of a mesh's faces, its radius, and which of its vertices are at the same place.

A file may give each face vertices of its own; the surface is closed all the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.types import Array


def face_areas(vertices: Array, faces: NDArray[np.int64]) -> Array:
    """Return the areas of triangles, vertices [V, 3] m and faces [F, 3] -> [F] m^2."""
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    return np.asarray(0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1))


def first_alike(vertices: Array, within_m: float) -> NDArray[np.int64]:
    """Return for each vertex [V, 3] m the first one at its place, [V].

    within_m: size of the grid cells by which places are compared.
    """
    cells = np.round(vertices / within_m).astype(np.int64)
    _, first, cell = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[cell.reshape(-1)])

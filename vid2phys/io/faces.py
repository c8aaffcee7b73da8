"""Faces of a mesh: how large they are, and which of their corners are at the same place.

A surface is closed, and its faces are neighbours, though a file gives each face vertices of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.types import Array


def face_areas(vertices: Array, faces: NDArray[np.int64]) -> Array:
    """Of triangles, vertices [V, 3] m and faces [F, 3] -> [F] m^2."""
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    return np.asarray(0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1))


def first_alike(vertices: Array, within_m: float) -> NDArray[np.int64]:
    """Of each vertex [V, 3] m the first one at its place, [V]. within_m: of the cells that places are told apart by."""
    cells = np.round(vertices / within_m).astype(np.int64)
    _, first, cell = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[cell.reshape(-1)])

"""Vertices at the same place: a surface is closed, and its faces are neighbours, though a file gives each its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.types import Array


def first_alike(vertices: Array, within_m: float) -> NDArray[np.int64]:
    """Of each vertex [V, 3] m the first one at its place, [V]. within_m: of the cells that places are told apart by."""
    cells = np.round(vertices / within_m).astype(np.int64)
    _, first, cell = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[cell.reshape(-1)])

"""The ground as a grid of lines in the world, for overlays: whether a body touches it there is seen at once.

Limits: one plane.
"""

from __future__ import annotations

import numpy as np

from vid2phys.types import Array

_CELLS = 16  # largest number of cells along the longer side
_POINTS = 24  # of a line: a lens bends it


def ground_grid(normal: Array, offset: float, places: Array, size_m: float) -> Array:
    """Return lines [N, P, 3] m of a grid on the plane normal . x = offset, below places [T, 3] m.

    Args:
        normal: [3], of unit length.
        offset: m.
        places: of the body, m; the grid reaches one cell beyond them.
        size_m: least side of a cell, m.
    """
    first = np.cross(normal, np.eye(3)[int(np.argmin(np.abs(normal)))])
    across = np.stack([first / np.linalg.norm(first), np.cross(normal, first / np.linalg.norm(first))])
    flat = places[np.isfinite(places).all(axis=1)] @ across.T
    side = max(size_m, float(np.ptp(flat, axis=0).max()) / _CELLS)
    low, high = np.floor(flat.min(axis=0) / side) - 1.0, np.ceil(flat.max(axis=0) / side) + 1.0
    lines = []
    for along in range(2):
        other = 1 - along
        for k in np.arange(low[other], high[other] + 0.5):
            line = np.full((_POINTS, 2), side * k)
            line[:, along] = side * np.linspace(low[along], high[along], _POINTS)
            lines.append(line @ across + offset * normal)
    return np.stack(lines)

"""Descents whose steps are smooth over a body (Neuberger, Sobolev Gradients and Differential Equations, 1997).

A gradient by single vertices is large at vertices of the contour and says little of those inside.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from vid2phys.types import Array


def roughness(points_m: Array, cells: NDArray[np.integer], length_m: float) -> Array:
    """Return the roughness (1 + l^2 laplacian) [V, V] of the edges of triangles or tets, cells [C, 3 or 4], between
    points [V, 3].

    Values of vertices times this are what is moved in place of them: a gradient by these unknowns, times the inverse,
    is a step that is smoothed over a length l, and no values are out of reach.
    """
    laplacian = np.zeros((len(points_m),) * 2)
    for a, b in {tuple(sorted(edge)) for cell in np.asarray(cells).tolist() for edge in combinations(cell, 2)}:
        weight = 1.0 / float(np.square(points_m[a] - points_m[b]).sum())
        laplacian[[a, b], [a, b]] += weight
        laplacian[[a, b], [b, a]] -= weight
    return np.eye(len(laplacian)) + length_m**2 * laplacian

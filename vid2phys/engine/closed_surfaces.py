"""Find the faces of a mesh that a camera outside of the body never sees from behind: those of closed surfaces.

A renderer may leave them out where they point away. A sheet is seen from both sides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.io.faces import first_alike
from vid2phys.types import Array

_SAME = 1e-9  # of a body's size: vertices as close as this are one


def one_sided(vertices: Array, faces: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which faces [F] belong to a closed surface that points outwards, and so are never seen from behind.

    vertices: [V, 3]; equal ones count as one. A surface is closed if each of its edges has two faces that run along it
    in opposite directions.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    welded = first_alike(vertices, _SAME * max(float(np.ptp(vertices, axis=0).max()), 1e-30))[faces]
    edges = np.stack([welded, np.roll(welded, -1, axis=1)], axis=-1)  # [F, 3, 2]
    count = int(welded.max(initial=0)) + 1
    forth, back = edges[..., 0] * count + edges[..., 1], edges[..., 1] * count + edges[..., 0]
    keys, times = np.unique(forth, return_counts=True)
    once = np.isin(forth, keys[times == 1]) & np.isin(back, keys[times == 1])
    links = edges.reshape(-1, 2)
    graph = coo_matrix((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(count, count))
    surface = connected_components(graph, directed=False)[1][welded[:, 0]]
    is_open = np.bincount(surface, ~once.all(axis=1)) > 0
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    volume = np.bincount(surface, np.einsum("fk,fk->f", a, np.cross(b, c)))
    return np.asarray((~is_open & (volume > 0.0))[surface])

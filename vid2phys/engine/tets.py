"""Tetrahedral meshes: a box to start from, volumes, quadratic tets, checks of meshes that no simulation can use.

Limits: only boxes are made here; other shapes come from files. Edges at rest are straight.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.types import Array

Indices = NDArray[np.int64]
EDGES = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))  # of a tet; node 4 + i is in the middle of edge i
_CORNERS = ((0, 4, 5, 6), (4, 1, 7, 8), (5, 7, 2, 9), (6, 8, 9, 3))  # of a quadratic tet, and its middle
_MIDDLES = (
    ((4, 9, 5, 6), (4, 9, 6, 8), (4, 9, 8, 7), (4, 9, 7, 5)),
    ((5, 8, 6, 4), (5, 8, 9, 6), (5, 8, 7, 9), (5, 8, 4, 7)),
    ((6, 7, 4, 5), (6, 7, 5, 9), (6, 7, 9, 8), (6, 7, 8, 4)),
)
_EIGHTHS = np.array([(*_CORNERS, *middle) for middle in _MIDDLES])  # by the diagonal that its middle is divided along
_GAUSS = 0.58541019662496845  # the largest barycentric coordinate of each of four points (Keast, 1986)
QUADRATIC_SHARES = np.array([1 / 36] * 4 + [4 / 27] * 6)
"""Share of a quadratic tet's mass at each of its nodes (Hinton, Rock and Zienkiewicz, 1976)."""
_FLAT = 1e-9  # volumes below this share of the cube of the longest edge are flat


def box_tets(size_m: tuple[float, float, float], cells: tuple[int, int, int]) -> tuple[Array, Indices]:
    """Return vertices [V, 3] m and tets [T, 4] of a box from the origin to `size_m`, six tets a cell (Kuhn's
    subdivision).

    The tets of a cell share its diagonal; neighbouring cells fit whatever their numbers.
    """
    if min(cells) < 1 or min(size_m) <= 0.0:
        raise InputError(f"a box of {size_m} m in {cells} cells", "positive numbers", "correct them")
    counts = np.array(cells) + 1
    vertices = np.stack(np.meshgrid(*(np.arange(n) for n in counts), indexing="ij"), axis=-1).reshape(-1, 3)
    strides = np.array([counts[1] * counts[2], counts[2], 1])
    origins = (vertices @ strides)[(vertices < np.array(cells)).all(axis=1)]
    paths = []
    for axes in permutations(range(3)):
        path = np.concatenate([[0], np.cumsum(strides[list(axes)])])
        odd = np.linalg.det(np.eye(3)[list(axes)]) < 0.0
        paths.append(path[[0, 2, 1, 3]] if odd else path)
    tets = (origins[:, None, None] + np.array(paths)[None]).reshape(-1, 4)
    return vertices * (np.array(size_m) / np.array(cells)), tets.astype(np.int64)


def tet_volumes(vertices: Array, tets: Indices) -> Array:
    """Return the signed volumes [..., T] m^3 of tets [T, 4] with vertices [..., V, 3]."""
    corners = vertices[..., tets, :]
    return np.asarray(np.linalg.det(corners[..., 1:, :] - corners[..., :1, :]) / 6.0)


def check_volume(tets: Indices) -> None:
    """Raise InputError for a surface mesh, or what is no mesh of tets at all."""
    if tets.ndim == 2 and tets.shape[1] == 3:
        raise InputError(
            "a surface mesh (triangles)",
            "a volume: tets [T, 4]",
            "tetrahedralise it (e.g. fTetWild: pip install pytetwild), or use the system 'cloth' for a thin sheet",
        )
    if tets.ndim != 2 or tets.shape[1] != 4:
        raise InputError(f"tets of shape {tets.shape}", "[T, 4]", "give four vertex indices a tet")


def check_tets(vertices: Array, tets: Indices) -> None:
    """Raise InputError for flat or inverted tets at rest."""
    corners, volumes = vertices[tets], tet_volumes(vertices, tets)
    longest = np.linalg.norm(corners[:, :, None] - corners[:, None], axis=-1).max(axis=(1, 2))
    flat = np.abs(volumes) <= _FLAT * longest**3
    if flat.any():
        raise InputError(
            f"tet {np.argmax(flat)} is flat ({flat.sum()} in all)",
            "tets with a volume",
            "remove them, or mesh the body again",
        )
    if (volumes < 0.0).any():
        raise InputError(
            f"tet {np.argmax(volumes < 0.0)} is inverted ({(volumes < 0.0).sum()} in all)",
            "tets whose vertices 1, 2, 3 turn counter-clockwise seen from vertex 0's far side (positive volume)",
            "exchange two of the vertices of each",
        )


def boundary_faces(tets: Indices) -> Indices:
    """Return the faces [F, 3] that one tet alone has, counter-clockwise seen from outside."""
    faces = tets[:, [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]].reshape(-1, 3)
    _, first, count = np.unique(np.sort(faces, axis=1), axis=0, return_index=True, return_counts=True)
    return np.asarray(faces[np.sort(first[count == 1])])


def shape_gradients(vertices: Array, tets: Indices) -> Array:
    """Return the gradients [T, 4, 3] 1/m of the barycentric coordinates of each tet at rest."""
    corners = vertices[tets]
    inner = np.linalg.inv(np.swapaxes(corners[:, 1:] - corners[:, :1], 1, 2))
    return np.concatenate([-inner.sum(axis=1, keepdims=True), inner], axis=1)


def quadratic_nodes(vertices: Array, tets: Indices) -> tuple[Array, Indices]:
    """Return the nodes [N, 3] and tets [T, 10] of quadratic tets: vertices first, then middles of edges."""
    edges = np.sort(tets[:, EDGES].reshape(-1, 2), axis=1)
    unique, middle = np.unique(edges, axis=0, return_inverse=True)
    nodes = np.concatenate([vertices, vertices[unique].mean(axis=1)])
    return nodes, np.concatenate([tets, len(vertices) + middle.reshape(-1, 6)], axis=1)


def eighths(nodes: Array, tets: Indices) -> Indices:
    """Return the eight linear tets [8 T, 4] that nodes [N, 3] divide each of the quadratic tets [T, 10] into.

    The octahedron in the middle is divided along its shortest diagonal, so that tets keep their shape (Bey,
    "Tetrahedral grid refinement", 1995).
    """
    ends = nodes[tets[:, [[4, 9], [5, 8], [6, 7]]]]
    shortest = np.linalg.norm(ends[:, :, 1] - ends[:, :, 0], axis=2).argmin(axis=1)
    return np.asarray(tets[np.arange(len(tets))[:, None, None], _EIGHTHS[shortest]].reshape(-1, 4))


def quadratic_gradients(gradients: Array) -> Array:
    """Return the gradients [T, 5, 10, 3] 1/m of quadratic shape functions at four points and at the centre.

    gradients: of the barycentric coordinates [T, 4, 3] (`shape_gradients`).
    """
    rest = (1.0 - _GAUSS) / 3.0
    points = np.vstack([np.full((4, 4), rest) + (_GAUSS - rest) * np.eye(4), np.full(4, 0.25)])
    corners = (4.0 * points - 1.0)[None, :, :, None] * gradients[:, None]
    first, second = np.array(EDGES).T
    middles = points[:, first, None] * gradients[:, None, second] + points[:, second, None] * gradients[:, None, first]
    return np.concatenate([corners, 4.0 * middles], axis=2)

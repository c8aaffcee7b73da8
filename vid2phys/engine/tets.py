"""Tetrahedral meshes: a box to start from, volumes, and checks of meshes that no simulation can use.

Limits: only boxes are made here; other shapes come from files.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.types import Array

Indices = NDArray[np.int64]
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

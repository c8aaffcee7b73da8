"""Simplify meshes with too many faces to draw quickly, by clusters of vertices on a grid.

Clusters follow Rossignac and Borrel, "Multi-resolution 3D approximations" (1993). Each vertex is placed where the
planes of its cluster meet best, by the quadrics of Garland and Heckbert (1997) as Lindstrom, "Out-of-core
simplification of large polygonal models" (2000), uses them: edges and corners stay sharp. Any mesh will do, closed or
not. Limits: details smaller than a cell are lost. A closed mesh may come out open, so mass properties are those of the
original mesh.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.io.faces import face_areas
from vid2phys.io.texture import of_faces
from vid2phys.types import Array, Mesh

MOST_FACES = 40_000
_ENOUGH = 0.7  # of the faces allowed: the grid is fine enough
_TRIES = 12
_SOFTNESS = 1e-3  # how strongly a vertex is pulled to the middle of its cluster where its planes leave it free


def simplified(mesh: Mesh, most_faces: int = MOST_FACES) -> Mesh:
    """Return the mesh with at most `most_faces` faces, with a warning; or itself when it has no more."""
    if len(mesh.faces) <= most_faces:
        return mesh
    size_m, labels, kept = _finest_grid(mesh, most_faces)
    vertices = _placed(mesh, labels, size_m)
    used, faces = np.unique(labels[mesh.faces[kept]], return_inverse=True)
    warnings.warn(
        f"mesh '{mesh.name}' has {len(mesh.faces)} faces: it is drawn with {len(kept)}, without details below "
        f"{1e3 * size_m:.2g} mm; simplify it yourself to keep those that matter",
        stacklevel=2,
    )
    part, texture = mesh.part[kept], of_faces(mesh.texture, kept)
    there, part = np.unique(part, return_inverse=True)
    names = tuple(mesh.part_names[i] for i in there)
    return replace(
        mesh, vertices=vertices[used], faces=faces.reshape(-1, 3), part=part, part_names=names, texture=texture
    )


def _finest_grid(mesh: Mesh, most_faces: int) -> tuple[float, NDArray[np.int64], NDArray[np.int64]]:
    """Return the size of the cells, the cluster of each vertex [V], and the faces that are left."""
    size_m = float(np.sqrt(2.0 * face_areas(mesh.vertices, mesh.faces).sum() / most_faces))
    labels = _labels(mesh.vertices, size_m)
    kept = _kept(labels[mesh.faces])
    for _ in range(_TRIES):
        if _ENOUGH * most_faces <= len(kept) <= most_faces:
            break
        finer = size_m * float(np.sqrt(max(len(kept), 1) / (0.85 * most_faces)))
        finer_labels = _labels(mesh.vertices, finer)
        finer_kept = _kept(finer_labels[mesh.faces])
        if len(kept) <= most_faces < len(finer_kept):
            break  # too coarse rather than too fine
        size_m, labels, kept = finer, finer_labels, finer_kept
    return size_m, labels, kept


def _labels(vertices: Array, size_m: float) -> NDArray[np.int64]:
    """Return the cluster of each vertex: the number of its cell among those that are not empty."""
    cells = np.floor((vertices - vertices.min(axis=0)) / size_m).astype(np.int64)
    extent = cells.max(axis=0) + 1
    key = (cells[:, 0] * extent[1] + cells[:, 1]) * extent[2] + cells[:, 2]
    return np.unique(key, return_inverse=True)[1].astype(np.int64)


def _kept(clusters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the faces whose corners [F, 3] lie in three clusters, one of those that lie in the same three."""
    whole = np.flatnonzero((clusters != np.roll(clusters, 1, axis=1)).all(axis=1))
    corners = np.sort(clusters[whole], axis=1)
    count = int(clusters.max()) + 1
    key = (corners[:, 0] * count + corners[:, 1]) * count + corners[:, 2]
    return np.sort(whole[np.unique(key, return_index=True)[1]])


def _placed(mesh: Mesh, labels: NDArray[np.int64], size_m: float) -> Array:
    """Return where the clusters' vertices lie [C, 3]: nearest to the planes of their faces, in least squares."""
    count = int(labels.max()) + 1
    sizes = np.bincount(labels, minlength=count)
    middle = np.stack([np.bincount(labels, mesh.vertices[:, k], count) for k in range(3)], -1) / sizes[:, None]
    a, b, c = np.moveaxis(mesh.vertices[mesh.faces], 1, 0)
    normal = np.cross(b - a, c - a)
    area = np.linalg.norm(normal, axis=1)
    normal = normal / np.sqrt(np.maximum(area, 1e-300))[:, None]  # squared: unit normals weighted by area
    left, right = np.zeros((count, 3, 3)), np.zeros((count, 3))
    for corner in labels[mesh.faces].T:
        off = np.einsum("fk,fk->f", normal, a - middle[corner])
        for i in range(3):
            right[:, i] += np.bincount(corner, normal[:, i] * off, count)
            for j in range(i + 1):
                left[:, i, j] += np.bincount(corner, normal[:, i] * normal[:, j], count)
    left = left + np.tril(left, -1).swapaxes(1, 2)
    trace = np.maximum(np.trace(left, axis1=1, axis2=2), 1e-300)
    left = left + (_SOFTNESS * trace)[:, None, None] * np.eye(3)
    move = np.linalg.solve(left, right[..., None])[..., 0]
    length = np.linalg.norm(move, axis=1, keepdims=True)
    return np.asarray(middle + move * np.minimum(1.0, size_m / np.maximum(length, 1e-300)))

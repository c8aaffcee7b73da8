"""Prints on bodies that the project's own rasteriser draws: cells of a few colours."""

from __future__ import annotations

import numpy as np
import trimesh

from benchmarks.clips.bodies import Solid
from vid2phys.types import Mesh


def printed(solid: Solid, colors: int) -> Mesh:
    """Return the body with small faces that belong to one of some colours, by cells of its own space."""
    vertices, faces = solid.vertices, solid.faces
    if colors == 1:
        return Mesh(vertices, faces, np.zeros(len(faces), np.int64))
    vertices, faces = trimesh.remesh.subdivide_to_size(vertices, faces, 0.008)
    cells = np.floor(vertices[faces].mean(axis=1) / np.array([0.031, 0.023, 0.027]) + 0.37).astype(int)
    part = np.random.default_rng(5).integers(colors, size=(64, 64, 64))[tuple(cells.T % 64)]
    return Mesh(np.asarray(vertices), np.asarray(faces), part)

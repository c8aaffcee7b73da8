"""Read a net of springs: its points and lines from an OBJ file, and the faces that are seen.

The lines of the file (`l`) are the springs. Without lines, the edges of its triangles are; a polygon is a fan of
triangles. Vertices at the same place become one.

Limits: springs are the lines of an OBJ file alone; of other files, and of primitives, they are the edges.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError, unknown_name
from vid2phys.io.faces import first_alike
from vid2phys.io.files import require_file
from vid2phys.io.mesh import UNITS_M, WELD, check_arrays, check_size
from vid2phys.io.obj import parse_obj
from vid2phys.io.orientation import inconsistent_faces
from vid2phys.io.primitives import is_primitive, load_surface
from vid2phys.types import Array

_A_NET = "a Wavefront OBJ with vertices (v), faces (f) and springs as lines (l)"


@dataclass(frozen=True)
class Net:
    """A net. points: [V, 3] m. springs: [S, 2] and faces: [F, 3], indices of points."""

    points: Array
    springs: NDArray[np.int64]
    faces: NDArray[np.int64]


def load_net(path: str | Path, units: str = "m", *, units_flag: str) -> Net:
    """Return the net of a file, with a warning where its edges stand for lines.

    units: of the file. units_flag: the option that sets them, for errors. Raises InputError for a file that is not
    readable or has no springs, for lines and faces that use vertices which are not there, for vertices that no spring
    holds, and as `load_mesh` for sizes and units.
    """
    if is_primitive(path) or Path(path).suffix.lower() != ".obj":
        mesh = load_surface(path, units, units_flag=units_flag)
        return Net(mesh.vertices, _edges(mesh.name, mesh.faces), mesh.faces)
    if units not in UNITS_M:
        raise unknown_name("mesh unit", units, tuple(UNITS_M))
    path = require_file(path, _A_NET)
    obj = parse_obj(path)
    for what, elements in (("face", obj.faces), ("line", obj.segments)):
        check_arrays(path, obj.vertices, elements, what)
    if not len(obj.faces) and not len(obj.segments):
        raise InputError(f"'{path}' has no springs: neither lines nor faces", _A_NET, "add lines: l 1 2 3")
    points = obj.vertices * UNITS_M[units]
    check_size(path, points, units, units_flag)
    first = first_alike(points, WELD * float(np.ptp(points, axis=0).max()))
    faces = first[obj.faces]
    faces = faces[(faces != np.roll(faces, 1, axis=1)).all(axis=1)]
    springs = first[obj.segments] if len(obj.segments) else _edges(path.name, faces)
    kept = np.unique(first)
    loose = np.setdiff1d(kept, springs)
    if loose.size:
        got = f"no spring holds vertex {loose[0] + 1} of '{path}' ({loose.size} in all)"
        raise InputError(got, "vertices that lines (l) join to others", "join them or leave them out")
    faces = np.where(inconsistent_faces(faces)[:, None], faces[:, ::-1], faces)
    return Net(points[kept], np.searchsorted(kept, springs), np.searchsorted(kept, faces))


def _edges(name: str, faces: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the edges [S, 2] of triangles [F, 3], with a warning that they are the springs."""
    edges = np.unique(np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])), axis=0)
    warnings.warn(f"'{name}' has no lines (l): the {len(edges)} edges of its triangles are the springs", stacklevel=3)
    return edges

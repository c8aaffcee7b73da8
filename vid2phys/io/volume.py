"""Read tetrahedral meshes with units, or make them from a surface where pytetwild is installed."""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError, unknown_name
from vid2phys.io.files import require_file
from vid2phys.io.mesh import UNITS_M, check_size
from vid2phys.io.primitives import is_primitive, load_surface
from vid2phys.types import Array

Indices = NDArray[np.int64]
_A_VOLUME = "a mesh of tets (.msh, .vtk, .vtu, .mesh ...)"
_SURFACES = (".stl", ".obj", ".ply", ".off", ".glb", ".gltf", ".3mf", ".dae")
# By ending, meshio's readers that come back from any file. Those of ANSYS (.msh too), Nastran, TetGen ... may not.
_FORMATS = {
    **{".msh": "gmsh", ".vtk": "vtk", ".vtu": "vtu", ".mesh": "medit", ".meshb": "medit", ".inp": "abaqus"},
    **{".xml": "dolfin-xml", ".vol": "netgen", ".avs": "avsucd", ".post": "permas", ".dato": "permas"},
}
_FLAT_KINDS = ("vertex", "line", "triangle", "quad")  # cells that fill no volume
_FLAT_TET = 1e-9  # volumes below this share of the cube of the longest edge are flat
_EDGE = 0.1  # of a tet made from a surface, as a share of the diagonal of its bounding box
_LONGEST_REASON = 200


@dataclass(frozen=True)
class Volume:
    """A body as tets. vertices: [V, 3] m, each of some tet. tets: [T, 4] vertex indices, of positive volume."""

    vertices: Array
    tets: Indices
    name: str


def load_volume(path: str | Path, units: str = "m", *, units_flag: str = "--body-units") -> Volume:
    """Return a mesh of tets, in metres, from a file in a format of `_FORMATS` or from a primitive.

    Tets that are all left-handed are of another convention, and their corners are swapped. Of tets of higher order the
    corners are kept. Vertices that are no corner are dropped, with a warning. A surface (STL, OBJ ..., or a file
    without tets) is filled with tets by pytetwild if that is installed, with edges of about a tenth of the body's
    diagonal.

    Args:
        path: of the file, or a primitive, which is filled as a surface is.
        units: of the file (m, cm, mm, in, ft).
        units_flag: the option that sets the units, for errors.

    Raises:
        InputError: the file is not readable or has no tets, has cells of other kinds, tets that are flat or of mixed
            handedness, numbers that are not finite, or a size above 10 m or below 1 mm.
        UsageError: the unit is unknown.
    """
    if units not in UNITS_M:
        raise unknown_name("mesh unit", units, tuple(UNITS_M))
    path = Path(path) if is_primitive(path) else require_file(path, _A_VOLUME)
    if is_primitive(path) or path.suffix.lower() in _SURFACES:
        mesh = load_surface(path, units, units_flag=units_flag)
        vertices, tets = _fill(path, mesh.vertices, mesh.faces)
    else:
        found = _read(path)
        points = UNITS_M[units] * np.asarray(found.points, dtype=float)
        tets, triangles = _tets(path, found.cells), _triangles(found.cells)
        if not len(tets) and len(triangles):
            points, tets = _fill(path, *_used(path, points, triangles))
        vertices, tets = _used(path, points, tets)
    check_size(path, vertices, units, units_flag)
    tets = _right_handed(path, vertices, tets)
    _warn_of_pieces(path, tets, len(vertices))
    return Volume(vertices, tets, path.stem)


def _read(path: Path) -> Any:
    """Return meshio's mesh. meshio prints and leaves by SystemExit where it fails."""
    import meshio

    kind, remedy = _FORMATS.get(path.suffix.lower()), f"convert it: meshio convert {path.name} {path.stem}.vtu"
    if kind is None:
        raise InputError(f"'{path}' is of a kind that is not read", ", ".join(_FORMATS), remedy)

    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            return meshio.read(path, kind)
    except (Exception, SystemExit) as error:  # its readers raise whatever they meet
        reason = " ".join((printed.getvalue() or str(error) or type(error).__name__).split())[:_LONGEST_REASON]
        raise InputError(f"'{path}' cannot be read ({reason})", _A_VOLUME, f"export it again, or {remedy}") from error


def _tets(path: Path, cells: Any) -> Indices:
    """Return the corners of all tets [T, 4]. Raises InputError for other cells with a volume, and without cells."""
    others = [block for block in cells if not block.type.startswith(("tetra", *_FLAT_KINDS))]
    if others:
        got = f"'{path}' has {len(others[0].data)} cells of kind {others[0].type}"
        raise InputError(got, "tets only", "mesh the body with tets, or split those cells")
    if not any(block.type.startswith(("tetra", "triangle", "quad")) for block in cells):
        kinds = ", ".join(sorted({block.type for block in cells})) or "none"
        raise InputError(f"'{path}' has no tets (its cells: {kinds})", _A_VOLUME, "mesh the body's volume")
    solid = [block.data for block in cells if block.type.startswith("tetra")]
    if any(np.ndim(corners) != 2 for corners in solid):
        raise InputError(f"'{path}' has tets of unequal length", _A_VOLUME, "export it again")
    found = [corners[:, :4] for corners in solid]
    return np.concatenate([np.zeros((0, 4), np.int64), *found]).astype(np.int64)


def _triangles(cells: Any) -> Indices:
    """Return the surface [F, 3]: triangles, and quads as two."""
    found = [np.zeros((0, 3), np.int64)]
    for block in cells:
        if block.type.startswith("triangle"):
            found.append(block.data[:, :3])
        elif block.type.startswith("quad"):
            found += [block.data[:, [0, 1, 2]], block.data[:, [0, 2, 3]]]
    return np.concatenate(found).astype(np.int64)


def _used(path: Path, points: Array, elements: Indices) -> tuple[Array, Indices]:
    """Return the points that are corners, and elements renumbered. Raises InputError for bad indices and numbers."""
    if not len(elements):
        raise InputError(f"'{path}' has no cells", _A_VOLUME, "mesh the body's volume")
    if elements.min() < 0 or elements.max() >= len(points):
        got = f"'{path}' has {len(points)} vertices and a cell that uses vertex {elements.max() + 1}"
        raise InputError(got, _A_VOLUME, "the file is cut short; copy or export it again")
    used, renumbered = np.unique(elements, return_inverse=True)
    if not np.isfinite(points[used]).all():
        row = int(used[np.argmin(np.isfinite(points[used]).all(axis=1))]) + 1
        raise InputError(f"vertex {row} of '{path}' is not finite", "numbers", "export it again")
    if len(used) < len(points):
        dropped = f"{len(points) - len(used)} vertices of '{path}' are dropped"
        warnings.warn(f"{dropped}: they are no corners (loose, or along edges, which are straight here)", stacklevel=3)
    return points[used], renumbered.reshape(elements.shape)


def _fill(path: Path, vertices: Array, faces: Indices) -> tuple[Array, Indices]:
    """Return tets inside a surface by fTetWild (Hu et al., SIGGRAPH 2020). Raises InputError if it is not installed,
    and for an open surface."""
    edges = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    places = np.unique(vertices, axis=0, return_inverse=True)[1].reshape(-1)  # STL has corners of its own in each face
    sides = np.unique(np.sort(places[edges], axis=1), axis=0, return_counts=True)[1]
    if (sides == 1).any():
        got = f"'{path}' is an open surface ({int((sides == 1).sum())} edges of one triangle alone)"
        raise InputError(got, "a closed surface, or tets", "close it, or use cloth for a sheet")
    try:
        import pytetwild
    except ImportError:
        raise InputError(
            f"'{path}' is a surface ({len(faces)} triangles)",
            f"a volume: {_A_VOLUME}",
            "pip install 'vid2phys[volume]' fills it with tets (pytetwild); or mesh its volume, for example with Gmsh",
        ) from None
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # it leaves a file where it runs
        filled = pytetwild.tetrahedralize(vertices, faces.astype(np.int32), edge_length_fac=_EDGE, num_threads=1)
    if not len(filled[1]):
        raise InputError(f"'{path}' encloses no volume", "a closed surface", "close it, or use cloth for a sheet")
    return np.asarray(filled[0], dtype=float), np.asarray(filled[1], dtype=np.int64)


def _right_handed(path: Path, vertices: Array, tets: Indices) -> Indices:
    """Return tets of positive volume. Raises InputError for flat ones and for those that differ from most."""
    corners = vertices[tets]
    volumes = np.linalg.det(corners[:, 1:] - corners[:, :1]) / 6.0
    longest = np.linalg.norm(corners[:, :, None] - corners[:, None], axis=-1).max(axis=(1, 2))
    flat = np.flatnonzero(np.abs(volumes) <= _FLAT_TET * longest**3)
    if flat.size:
        got = f"tet {flat[0] + 1} of '{path}' is flat ({flat.size} of {len(tets)})"
        raise InputError(got, "tets with a volume", "remove them, or mesh the body again")
    left = volumes < 0.0
    if left.all():
        return tets[:, [0, 2, 1, 3]]
    if left.any():
        odd = np.flatnonzero(left if left.sum() <= len(tets) / 2 else ~left)
        got = f"tets {', '.join(str(i + 1) for i in odd[:5])} of '{path}' are inverted ({odd.size} of {len(tets)})"
        raise InputError(got, "tets of one handedness", "exchange two corners of each, or mesh the body again")
    return tets


def _warn_of_pieces(path: Path, tets: Indices, count: int) -> None:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = np.concatenate([tets[:, [0, i]] for i in (1, 2, 3)])
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(count, count))
    pieces = connected_components(graph, directed=False, return_labels=False)
    if pieces > 1:
        warnings.warn(f"'{path}' is of {pieces} pieces that share no vertex: nothing holds them together", stacklevel=3)

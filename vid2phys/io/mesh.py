"""Read meshes with units and parts, write OBJ, and compute mass properties.

A mesh is welded when it is read: vertices at the same place become one. So closed surfaces are recognised as closed,
and silhouettes are differentiated once (split vertices double silhouette gradients).
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError, unknown_name
from vid2phys.io.faces import face_areas, first_alike
from vid2phys.io.files import require_file
from vid2phys.io.geometry import GeometrySignature as GeometrySignature
from vid2phys.io.geometry import geometry_signature as geometry_signature
from vid2phys.io.geometry import signature_distance as signature_distance
from vid2phys.io.move import moved
from vid2phys.io.obj import parse_obj
from vid2phys.io.orientation import inconsistent_faces
from vid2phys.io.texture import of_faces, turned_over
from vid2phys.io.texture_files import obj_texture, pieces_texture
from vid2phys.io.unsupported import refuse_known
from vid2phys.types import Array, Mesh, Texture

UNITS_M = {"m": 1.0, "cm": 1e-2, "mm": 1e-3, "in": 0.0254, "ft": 0.3048}
LARGEST_M, SMALLEST_M = 10.0, 1e-3
_A_MESH = "a triangle mesh (OBJ, STL, PLY, OFF, GLB, glTF)"
MOST_PARTS = 48
WELD = 1e-6  # of the largest extent
_FLAT = 1e-6  # thickness of a flat mesh, as a share of its extent


@dataclass(frozen=True)
class MassProperties:
    """Mass properties of a body of uniform density.

    volume: m^3. center_of_mass: [3] m. inertia_per_mass: [3, 3] m^2 about it. watertight: False when they are those of
    the convex hull, or of a plate.
    """

    volume: float
    center_of_mass: Array
    inertia_per_mass: Array
    watertight: bool


def load_mesh(path: str | Path, units: str = "m", *, units_flag: str = "--mesh-units", move: str | None = None) -> Mesh:
    """Return a mesh in metres; its parts are the file's groups, else materials, else connected pieces.

    Faces that point against their neighbours are flipped, parts beyond MOST_PARTS are joined, and missing textures are
    left out: each with a warning.

    Args:
        path: of the mesh.
        units: of the file (m, cm, mm, in, ft).
        units_flag: the option that sets the units, for errors.
        move: rotations and shifts to the body's axes and origin, before anything else (`io/move.py`).

    Raises:
        InputError: the file is not readable or has no faces; or the mesh is larger than 10 m or smaller than 1 mm, so
            its units are most likely others.
        UsageError: the unit or the move is unknown.
    """
    if units not in UNITS_M:
        raise unknown_name("mesh unit", units, tuple(UNITS_M))
    path = require_file(path, _A_MESH)
    vertices, faces, part, names, texture = _load_obj(path) if path.suffix.lower() == ".obj" else _load_other(path)
    if not len(faces):
        raise InputError(f"'{path}' has no faces", _A_MESH, "export the surface, not points or lines")
    check_arrays(path, vertices, faces)
    vertices, faces, whole = _weld(moved(vertices * UNITS_M[units], move), faces)
    part, texture = part[whole], of_faces(texture, whole)
    if not len(faces) or face_areas(vertices, faces).max() < WELD**2 * float(np.ptp(vertices, axis=0).max()) ** 2:
        raise InputError(f"every face of '{path}' has zero area", _A_MESH, "export it again")
    check_size(path, vertices, units, units_flag)
    flipped = inconsistent_faces(faces)
    if flipped.any():
        warnings.warn(f"{flipped.sum()} faces of '{path.name}' pointed against their neighbours: flipped", stacklevel=2)
        faces, texture = np.where(flipped[:, None], faces[:, ::-1], faces), turned_over(texture, flipped)
    if _signed_volume(vertices, faces) < 0.0 and _trimesh(vertices, faces).is_watertight:
        faces, texture = faces[:, ::-1], turned_over(texture)
    if len(names) < 2:
        part, names = _connected_parts(vertices, faces)
    part, names = _few_parts(*_only_used(part, names), face_areas(vertices, faces), path)
    return Mesh(vertices, np.ascontiguousarray(faces), part, names, path.stem, texture)


def mass_properties(mesh: Mesh) -> MassProperties:
    """Return volume, centre of mass and inertia per kilogram at uniform density.

    A mesh that is not watertight encloses no volume: its convex hull is used, with a warning. A flat one gets those of
    a thin plate, whose volume is zero.
    """
    solid = _trimesh(mesh.vertices, mesh.faces)
    watertight = bool(solid.is_watertight and solid.is_winding_consistent and solid.volume > 0.0)
    if not watertight and _is_flat(mesh):
        return _of_plate(mesh)
    if not watertight:
        warnings.warn(
            f"mesh '{mesh.name}' is not watertight; its inertia is that of its convex hull; "
            "close the surface, or give inertia_xx, inertia_yy and inertia_zz with --set",
            stacklevel=2,
        )
        solid = solid.convex_hull
    volume = float(solid.volume)
    inertia = np.asarray(solid.moment_inertia, dtype=float) / volume
    return MassProperties(volume, np.asarray(solid.center_mass, dtype=float), inertia, watertight)


def _is_flat(mesh: Mesh) -> bool:
    """Return whether all vertices lie in a plane."""
    centered = mesh.vertices - mesh.vertices.mean(axis=0)
    spread = np.linalg.svd(centered, compute_uv=False)
    return bool(spread[2] < _FLAT * spread[0])


def _of_plate(mesh: Mesh) -> MassProperties:
    """Return the mass properties of the faces as plates of one very small thickness."""
    warnings.warn(f"mesh '{mesh.name}' is flat; its inertia is that of a thin plate", stacklevel=3)
    corners, areas = mesh.vertices[mesh.faces], face_areas(mesh.vertices, mesh.faces)
    center = areas @ corners.mean(axis=1) / areas.sum()
    corners = corners - center
    # Exact for a triangle: the integral of x y is area / 12 times (sum over the corners + product of the sums).
    total = corners.sum(axis=1)
    moments = np.einsum("fki,fkj->fij", corners, corners) + np.einsum("fi,fj->fij", total, total)
    moments = np.einsum("f,fij->ij", areas, moments) / (12.0 * areas.sum())
    return MassProperties(0.0, center, np.trace(moments) * np.eye(3) - moments, watertight=False)


def _trimesh(vertices: Array, faces: NDArray[np.int64]) -> Any:
    import trimesh

    return trimesh.Trimesh(vertices, faces, process=False)


_Loaded = tuple[Array, NDArray[np.int64], NDArray[np.int64], tuple[str, ...], Texture | None]


def _load_obj(path: Path) -> _Loaded:
    obj = parse_obj(path)
    return obj.vertices, obj.faces, obj.part, obj.names, obj_texture(path, obj)


def _load_other(path: Path) -> _Loaded:
    """Load whatever trimesh reads; each geometry of a scene is a part, with its transform applied."""
    import trimesh

    log = logging.getLogger("trimesh")  # it would print tracebacks of images that are missing
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        scene = trimesh.load_scene(path, process=False)
        found = [
            (name, piece) for name, piece in _placed(scene) if isinstance(piece, trimesh.Trimesh) and len(piece.faces)
        ]
    except Exception as error:  # trimesh raises whatever its readers meet
        refuse_known("mesh", path, _A_MESH)
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"'{path}' cannot be read ({reason})", _A_MESH, "export it as OBJ") from error
    finally:
        log.setLevel(level)
    if not found:
        refuse_known("mesh", path, _A_MESH)
        raise InputError(f"'{path}' has no faces", _A_MESH, "export the surface, not points or lines")
    offsets = np.cumsum([0] + [len(piece.vertices) for _, piece in found])
    vertices = np.concatenate([np.asarray(piece.vertices, dtype=float) for _, piece in found])
    faces = np.concatenate([np.asarray(p.faces, np.int64) + o for (_, p), o in zip(found, offsets, strict=False)])
    part = np.repeat(np.arange(len(found)), [len(piece.faces) for _, piece in found])
    texture = pieces_texture(path, [piece for _, piece in found])
    return vertices, faces, part, tuple(name for name, _ in found), texture


def _placed(scene: Any) -> list[tuple[str, Any]]:
    placed = []
    for node in scene.graph.nodes_geometry:
        transform, geometry = scene.graph[node]
        piece = scene.geometry[geometry].copy()
        piece.apply_transform(transform)
        placed.append((str(node), piece))
    return placed


def check_arrays(path: Path, vertices: Array, elements: NDArray[np.int64], what: str = "face") -> None:
    """Raise InputError for elements [E, C] that use vertices which are not there, and vertices that are not finite."""
    if elements.min(initial=0) < 0 or elements.max(initial=-1) >= len(vertices):
        got = f"'{path}' has {len(vertices)} vertices and a {what} that uses vertex {int(elements.max()) + 1}"
        raise InputError(got, _A_MESH, "the file is cut short; copy or export it again")
    if not np.isfinite(vertices).all():
        row = int(np.flatnonzero(~np.isfinite(vertices).all(axis=1))[0]) + 1
        raise InputError(f"vertex {row} of '{path}' is not finite", "numbers", "export it again")


def check_size(path: Path, vertices: Array, units: str, units_flag: str) -> None:
    """Raise InputError for a body larger than 10 m or smaller than 1 mm: its units are most likely others."""
    extent = float(np.ptp(vertices, axis=0).max())
    if extent > LARGEST_M:
        remedy = f"if it is in millimetres give {units_flag} mm"
        raise InputError(f"mesh '{path}' has an extent of {extent:.4g} m", f"at most {LARGEST_M:g} m", remedy)
    if extent < SMALLEST_M:
        remedy = f"if it is in metres give {units_flag} m" if units != "m" else "scale it to metres"
        raise InputError(f"mesh '{path}' has an extent of {extent:.2g} m", f"at least {SMALLEST_M:g} m", remedy)


def _weld(vertices: Array, faces: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64], NDArray[np.bool_]]:
    """Join vertices at the same place, drop faces without area and vertices without faces; keep the order.

    Return also which faces are kept, [F] bool.
    """
    used, faces = np.unique(faces, return_inverse=True)
    vertices, faces = vertices[used], faces.reshape(-1, 3)
    faces = first_alike(vertices, WELD * max(float(np.ptp(vertices, axis=0).max()), 1e-12))[faces]
    whole = (faces != np.roll(faces, 1, axis=1)).all(axis=1)
    used, faces = np.unique(faces[whole], return_inverse=True)
    return vertices[used], faces.reshape(-1, 3).astype(np.int64), whole


def _signed_volume(vertices: Array, faces: NDArray[np.int64]) -> float:
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6.0)


def _connected_parts(vertices: Array, faces: NDArray[np.int64]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]]])
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(len(vertices),) * 2)
    count, label = connected_components(graph, directed=False)
    names = ("body",) if count == 1 else tuple(f"part_{i}" for i in range(count))
    return label[faces[:, 0]].astype(np.int64), names


def _few_parts(
    part: NDArray[np.int64], names: tuple[str, ...], areas: Array, path: Path
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return at most MOST_PARTS parts: the smallest become one, with a warning.

    A fit gives each part a colour of its own, so many parts cost time.
    """
    if len(names) <= MOST_PARTS:
        return part, names
    order = np.argsort(-np.bincount(part, areas, len(names)), kind="stable")
    large = np.sort(order[: MOST_PARTS - 1])
    number = np.full(len(names), MOST_PARTS - 1)
    number[large] = np.arange(MOST_PARTS - 1)
    warnings.warn(
        f"'{path.name}' has {len(names)} parts: the {MOST_PARTS - 1} largest keep a colour of their own, the others "
        "share one; group them in the file to choose which",
        stacklevel=3,
    )
    return number[part], (*(names[i] for i in large), "rest")


def _only_used(part: NDArray[np.int64], names: tuple[str, ...]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    used, part = np.unique(part, return_inverse=True)
    return part.astype(np.int64), tuple(names[i] for i in used)

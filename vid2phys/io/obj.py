"""Read Wavefront OBJ: shape, groups (general readers lose them), lines and texture coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.io.files import read_text
from vid2phys.types import Array

_LARGEST_INDEX = 1 << 62


@dataclass(frozen=True)
class ObjFile:
    """An OBJ file: vertices [V, 3] in its unit, faces [F, 3], part of each face [F], names of the parts.

    segments: [S, 2], pairs of vertices that follow each other in line elements (`l`).
    uv: [F, 3, 2] texture coordinates, NaN where a corner has none. material: name for each face. libraries: the MTL
    files named. vertex_color: [V, 3] in 0..1 when every vertex has one (`v x y z r g b`), else None.
    """

    vertices: Array
    faces: NDArray[np.int64]
    part: NDArray[np.int64]
    names: tuple[str, ...]
    segments: NDArray[np.int64]
    uv: Array
    material: tuple[str, ...]
    libraries: tuple[str, ...]
    vertex_color: Array | None


def parse_obj(path: Path) -> ObjFile:
    """Return the shape, groups and texture coordinates of an OBJ file.

    Parts are groups or objects (`g`, `o`) when there are several, else materials. Polygons become fans of triangles.
    Raises InputError naming a line that is not readable.
    """
    vertices: list[list[float]] = []
    colors: list[list[float]] = []
    coordinates: list[list[float]] = [[np.nan, np.nan]]  # where corners without texture coordinates find theirs
    faces: list[list[int]] = []
    segments: list[tuple[int, int]] = []
    corners: list[list[int]] = []
    labels: list[tuple[str, str]] = []
    libraries: list[str] = []
    group, material = "body", "body"
    text = read_text(path, "a Wavefront OBJ").replace("\\\n", " ")
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        try:
            if words[0] == "v":
                vertices.append([float(word) for word in words[1:4]])
                if len(vertices[-1]) < 3:
                    raise ValueError
                if len(words) >= 7:
                    colors.append([float(word) for word in words[4:7]])
            elif words[0] == "vt":
                coordinates.append([float(words[1]), float(words[2]) if len(words) > 2 else 0.0])
            elif words[0] == "f":
                triangles, textures = _fan(words[1:], len(vertices), len(coordinates) - 1)
                faces += triangles
                corners += textures
                labels += [(group, material)] * len(triangles)
            elif words[0] == "l":
                segments += pairwise(_indices(words[1:], len(vertices), 2))
        except (ValueError, IndexError):
            got = f"line {number} of '{path}' is '{line.strip()[:40]}'"
            raise InputError(got, "a vertex, a face or a line of an OBJ file", "the file may be cut short") from None
        if words[0] in ("g", "o"):
            group = "_".join(words[1:]) or "body"
        elif words[0] == "usemtl":
            material = "_".join(words[1:]) or "body"
        elif words[0] == "mtllib":
            libraries.append(line.split(None, 1)[1].strip() if len(words) > 1 else "")
    part, names = _number(labels)
    return ObjFile(
        vertices=np.array(vertices).reshape(-1, 3),
        faces=np.array(faces, dtype=np.int64).reshape(-1, 3),
        part=part,
        names=names,
        segments=np.array(segments, dtype=np.int64).reshape(-1, 2),
        uv=_coordinates(coordinates, corners),
        material=tuple(name for _, name in labels),
        libraries=tuple(libraries),
        vertex_color=np.array(colors) if colors and len(colors) == len(vertices) else None,
    )


def _coordinates(known: list[list[float]], corners: list[list[int]]) -> Array:
    """Return texture coordinates of corners [F, 3], counted from 1; NaN for 0 and for missing ones."""
    index = np.array(corners, dtype=np.int64).reshape(-1, 3)
    return np.array(known)[np.where((index > 0) & (index < len(known)), index, 0)]


def _fan(corners: list[str], vertices_so_far: int, textures_so_far: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the triangles of one polygon, vertices counted from 0 and texture coordinates from 1 (0: none).

    Negative OBJ indices count back from the last one.
    """
    indices = _indices(corners, vertices_so_far, 3)
    fields = [corner.split("/") for corner in corners]
    textures = [int(field[1]) if len(field) > 1 and field[1] else 0 for field in fields]
    textures = [i if i >= 0 else textures_so_far + 1 + i for i in textures]
    if max(map(abs, textures)) > _LARGEST_INDEX:
        raise ValueError
    return _triangles(indices), _triangles(textures)


def _indices(corners: list[str], vertices_so_far: int, least: int) -> list[int]:
    """Return the vertices of corners, counted from 0. Raises ValueError for fewer than `least`, and for no indices."""
    indices = [int(corner.split("/")[0]) for corner in corners]
    if len(indices) < least or 0 in indices:
        raise ValueError
    indices = [i - 1 if i > 0 else vertices_so_far + i for i in indices]
    if max(map(abs, indices)) > _LARGEST_INDEX:
        raise ValueError
    return indices


def _triangles(polygon: list[int]) -> list[list[int]]:
    return [[polygon[0], polygon[k], polygon[k + 1]] for k in range(1, len(polygon) - 1)]


def _number(labels: list[tuple[str, str]]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    groups = list(dict.fromkeys(group for group, _ in labels))
    column = 0 if len(groups) > 1 else 1
    chosen = [label[column] for label in labels]
    names = list(dict.fromkeys(chosen))
    position = {name: i for i, name in enumerate(names)}
    return np.array([position[name] for name in chosen], dtype=np.int64), tuple(names) or ("body",)

"""Wavefront OBJ: the parts of the format that carry shape and groups (general readers lose the groups)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.io.files import read_text
from vid2phys.types import Array


def parse_obj(path: Path) -> tuple[Array, NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]:
    """Vertices [V, 3] in the file's unit, faces [F, 3], part of each face [F], names of the parts.

    Parts are groups or objects (`g`, `o`) when there are several, else materials. Polygons become fans of triangles.
    Raises InputError naming the line that cannot be read.
    """
    vertices: list[list[float]] = []
    faces: list[list[int]] = []
    labels: list[tuple[str, str]] = []
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
            elif words[0] == "f":
                triangles = _fan(words[1:], len(vertices))
                faces += triangles
                labels += [(group, material)] * len(triangles)
        except ValueError:
            got = f"line {number} of '{path}' is '{line.strip()[:40]}'"
            raise InputError(got, "a vertex or a face of an OBJ file", "the file may be cut short") from None
        if words[0] in ("g", "o"):
            group = "_".join(words[1:]) or "body"
        elif words[0] == "usemtl":
            material = "_".join(words[1:]) or "body"
    part, names = _number(labels)
    return np.array(vertices).reshape(-1, 3), np.array(faces, dtype=np.int64).reshape(-1, 3), part, names


def _fan(corners: list[str], vertices_so_far: int) -> list[list[int]]:
    """Triangles of one polygon, counted from 0; negative OBJ indices count back from the last vertex."""
    if len(corners) < 3:
        raise ValueError
    indices = [int(corner.split("/")[0]) for corner in corners]
    if 0 in indices:
        raise ValueError
    indices = [i - 1 if i > 0 else vertices_so_far + i for i in indices]
    return [[indices[0], indices[k], indices[k + 1]] for k in range(1, len(indices) - 1)]


def _number(labels: list[tuple[str, str]]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    groups = list(dict.fromkeys(group for group, _ in labels))
    column = 0 if len(groups) > 1 else 1
    chosen = [label[column] for label in labels]
    names = list(dict.fromkeys(chosen))
    position = {name: i for i, name in enumerate(names)}
    return np.array([position[name] for name in chosen], dtype=np.int64), tuple(names) or ("body",)

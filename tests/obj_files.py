"""OBJ files of meshes that tests make."""

from __future__ import annotations

from pathlib import Path

from vid2phys.io.files import write_text
from vid2phys.types import Mesh


def save_obj(mesh: Mesh, path: str | Path) -> None:
    """Write an OBJ file in metres with one group a part."""
    lines = ["# metres"] + [f"v {x:.9g} {y:.9g} {z:.9g}" for x, y, z in mesh.vertices]
    for index, name in enumerate(mesh.part_names):
        lines.append(f"g {name}")
        lines += [f"f {a} {b} {c}" for a, b, c in mesh.faces[mesh.part == index] + 1]
    write_text(path, "\n".join(lines) + "\n")

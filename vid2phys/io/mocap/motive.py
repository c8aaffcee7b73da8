"""OptiTrack Motive CSV, formats 1.2x: a row of key,value pairs, header rows, then a row a frame; occlusions are blank.

Quaternions are x, y, z, w. The axes are those chosen at export (see `up_axis` of `load_mocap`).
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.mocap._poses import length_scale, make_log
from vid2phys.io.table import numbers
from vid2phys.types import PoseLog

_UNITS = {
    "meters": "m",
    "metres": "m",
    "decimeters": "dm",
    "centimeters": "cm",
    "millimeters": "mm",
    "inches": "in",
    "feet": "ft",
}
_A_MOTIVE = "a Motive CSV with Frame and Time columns"
_HEADER_ROWS = 12


def matches(text: str) -> bool:
    """Motive's first cell."""
    return text.lstrip('"').startswith("Format Version")


def load(path: str | Path, text: str, body: str | None, units: str | None) -> PoseLog:
    """The rigid body called `body`, or the only one. Raises InputError listing the bodies when there are several."""
    rows = list(csv.reader(text.splitlines()))
    head = next((i for i, row in enumerate(rows[:_HEADER_ROWS]) if row[:1] == ["Frame"]), None)
    if head is None:
        raise InputError(f"'{path}' has no header row that starts with Frame", _A_MOTIVE, "export the take again")
    name, columns = _columns(path, rows[: head + 1], body)
    scale = _length_scale(path, rows[0], units)
    kept = [(i, row) for i, row in enumerate(rows[head + 1 :], start=head + 2) if any(cell.strip() for cell in row)]
    row_of = np.array([i for i, _ in kept], dtype=np.int64)
    table = numbers(path, [row for _, row in kept], [1, *columns], row_of)
    return make_log(path, table[:, 0], table[:, 1:4] * scale, table[:, [7, 4, 5, 6]], row_of, name)


def _columns(path: str | Path, header: list[list[str]], body: str | None) -> tuple[str, list[int]]:
    """The body's name, and its columns in the order position x, y, z, rotation x, y, z, w."""
    width = len(header[-1])
    padded = [(row + [""] * width)[:width] for row in header]
    kinds = next((row for row in padded if "Rigid Body" in row), None)
    if kinds is None:
        raise InputError(f"'{path}' has no rigid body", _A_MOTIVE, "define a rigid body in Motive and export it")
    names = padded[padded.index(kinds) + 1]
    what, axes = padded[-2], padded[-1]
    bodies = list(dict.fromkeys(n for kind, n in zip(kinds, names, strict=True) if kind == "Rigid Body"))
    if body is None and len(bodies) > 1:
        raise InputError(f"'{path}' has {len(bodies)} bodies", f"one of {', '.join(bodies)}", "choose it with --body")
    if body is not None and body not in bodies:
        raise InputError(f"'{path}' has no body '{body}'", f"one of {', '.join(bodies)}", "choose it with --body")
    name = body or bodies[0]
    found = {(what[i], axes[i]): i for i in range(width) if kinds[i] == "Rigid Body" and names[i] == name}
    wanted = [("Position", axis) for axis in "XYZ"] + [("Rotation", axis) for axis in "XYZW"]
    if any(key not in found for key in wanted):
        rotation = dict(zip(header[0][::2], header[0][1::2], strict=False)).get("Rotation Type", "unknown")
        got = f"body '{name}' in '{path}' has rotation type {rotation}"
        raise InputError(got, "Quaternion, and positions", "export with Rotation Type: Quaternion")
    return name, [found[key] for key in wanted]


def _length_scale(path: str | Path, first_row: list[str], units: str | None) -> float:
    said = dict(zip(first_row[::2], first_row[1::2], strict=False)).get("Length Units", "").strip().lower()
    if said and said not in _UNITS:
        raise InputError(f"'{path}' has the length unit '{said}'", f"one of {', '.join(_UNITS)}", "export in metres")
    if not said and units is None:
        raise InputError(
            f"'{path}' does not say its length unit", "Length Units in its first row", "give --mocap-units"
        )
    return length_scale(path, _UNITS.get(said), units)

"""Read OptiTrack Motive CSV, formats 1.2x: key,value pairs, header rows, then a row a frame; occlusions are blank.

Quaternions are x, y, z, w; Euler angles are in degrees about the body's own axes, in the order that the first row names
(NatNet's "relative, right-handed"). A take without rigid bodies gives one from its labelled markers. The axes are those
chosen at export (see `up_axis` of `load_mocap`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.io.mocap._markers import choose_markers, poses_of_markers
from vid2phys.io.mocap._poses import (
    EULER_ORDERS,
    Asked,
    Source,
    choose_body,
    euler_quats,
    make_log,
    require_length_scale,
)
from vid2phys.io.table import numbers, rows_of
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
Columns = dict[str, dict[tuple[str, str], int]]  # of a body or marker: what and axis, to the column


def matches(source: Source) -> bool:
    """Return whether the first cell is Motive's."""
    return source.text.lstrip('"').startswith("Format Version")


def load(source: Source, asked: Asked) -> PoseLog:
    """Return the rigid body asked for, or the only one. Raises InputError listing the bodies when there are several."""
    path, rows = source.path, rows_of(source.path, source.text)
    head = next((i for i, row in enumerate(rows[:_HEADER_ROWS]) if row[:1] == ["Frame"]), None)
    if head is None:
        raise InputError(f"'{path}' has no header row that starts with Frame", _A_MOTIVE, "export the take again")
    header = dict(zip(rows[0][::2], rows[0][1::2], strict=False))
    scale = require_length_scale(path, _length_unit(path, header.get("Length Units", "")), asked.units)
    kept = [(i, row) for i, row in enumerate(rows[head + 1 :], start=head + 2) if any(row)]
    row_of = np.array([i for i, _ in kept], dtype=np.int64)
    body_rows = [row for _, row in kept]
    bodies = _columns(rows[: head + 1], "Rigid Body")
    if not bodies:
        return _from_markers(path, _columns(rows[: head + 1], "Marker"), body_rows, row_of, scale, asked)
    name = choose_body(path, list(bodies), asked.body)
    found, rotation = bodies[name], header.get("Rotation Type", "unknown")
    place, orientation = ([(what, axis) for axis in "XYZ"] for what in ("Position", "Rotation"))
    is_quat = ("Rotation", "W") in found
    if any(key not in found for key in place + orientation) or not (is_quat or rotation in EULER_ORDERS):
        got = f"body '{name}' in '{path}' has rotation type {rotation}"
        raise InputError(got, "Quaternion or XYZ, and positions", "export with Rotation Type: Quaternion")
    columns = [found[key] for key in [*place, *orientation, *([("Rotation", "W")] if is_quat else [])]]
    table = numbers(path, body_rows, [1, *columns], row_of)
    quats = table[:, [7, 4, 5, 6]] if is_quat else euler_quats(path, table[:, 4:7], "deg", asked, rotation)
    return make_log(path, table[:, 0], table[:, 1:4] * scale, quats, row_of, name)


def _columns(header: list[list[str]], wanted_kind: str) -> Columns:
    """Return the columns of everything of a kind (the row above the names), by name."""
    width = len(header[-1])
    padded = [(row + [""] * width)[:width] for row in header]
    at = next((i for i, row in enumerate(padded[1:-1], start=1) if wanted_kind in row), None)
    if at is None:
        return {}
    kinds, names, what, axes = padded[at], padded[at + 1], padded[-2], padded[-1]
    found: Columns = {}
    for i in range(width):
        if kinds[i] == wanted_kind:
            found.setdefault(names[i], {}).setdefault((what[i], axes[i]), i)
    return found


def _from_markers(
    path: Path, markers: Columns, rows: list[list[str]], row_of: NDArray[np.int64], scale: float, asked: Asked
) -> PoseLog:
    place = [("Position", axis) for axis in "XYZ"]
    markers = {name: found for name, found in markers.items() if all(key in found for key in place)}
    if not markers:
        raise InputError(f"'{path}' has no rigid body", _A_MOTIVE, "define a rigid body in Motive and export it")
    name, chosen = choose_markers(path, list(markers), asked.body)
    labels = [list(markers)[i] for i in chosen]
    columns = [markers[label][key] for label in labels for key in place]
    table = numbers(path, rows, [1, *columns], row_of)
    points = table[:, 1:].reshape(len(table), len(chosen), 3) * scale
    return make_log(path, table[:, 0], *poses_of_markers(path, points, labels), row_of, name)


def _length_unit(path: Path, unit: str) -> str | None:
    unit = unit.strip().lower()
    if unit and unit not in _UNITS:
        raise InputError(f"'{path}' has the length unit '{unit}'", f"one of {', '.join(_UNITS)}", "export in metres")
    return _UNITS.get(unit)

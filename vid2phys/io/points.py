"""Read known points as CSV: points of a scene with their pixels, markers, named points of a body.

Columns are found by name: `x_m`, `y_mm`, `z [cm]` with their unit, `u_px` and `v_px` (or `u`, `v`), an optional `name`;
for markers `id`, and optionally `corner` (0 to 3 clockwise from the upper left; without it, the position is of the
middle). Points of a body are in the axes of its mesh.
"""

from __future__ import annotations

import re
from pathlib import Path

from vid2phys.errors import InputError
from vid2phys.io.files import write_text
from vid2phys.io.table import Sheet
from vid2phys.types import Array

_NAME = r"name|point|label|id"
_UNITS = {"m": 1.0, "dm": 0.1, "cm": 1e-2, "mm": 1e-3, "in": 0.0254}
_A_POINT_FILE = "a CSV with the columns name, x_m, y_m, z_m, u_px, v_px"
_A_MARKER_FILE = "a CSV with the columns id, x_m, y_m, z_m, and corner (0 to 3) unless the places are of the middles"
_A_BODY_FILE = "a CSV with the columns name, x_m, y_m, z_m: points of the body in the axes of its mesh"


def load_points(path: str | Path) -> tuple[tuple[str, ...], Array, Array]:
    """Return names, positions [N, 3] m, and pixels [N, 2]. Raises InputError naming the column or row at fault."""
    sheet = Sheet.read(path, _A_POINT_FILE)
    places = _places(sheet)
    columns = [sheet.column(rf"{axis}(?:_px)?|pixel_{axis}|{other}_px") for axis, other in ("ux", "vy")]
    pixels = sheet.finite(columns, ["u", "v"])
    at, numbered = sheet.find(_NAME), zip(sheet.row_of, sheet.rows, strict=True)
    names = tuple(row[at] if at is not None and row[at] else f"row {i}" for i, row in numbered)
    return names, places, pixels


def load_markers(path: str | Path) -> dict[tuple[int, int | None], Array]:
    """Return positions [3] m by marker and corner (None: its middle).

    Raises InputError naming the column or row at fault.
    """
    sheet = Sheet.read(path, _A_MARKER_FILE)
    places = _places(sheet)
    at_id, at_corner = sheet.column(r"id|marker|tag|marker_id|tag_id"), sheet.find("corner")
    keys = sheet.finite([at_id] if at_corner is None else [at_id, at_corner], ["id", "corner"])
    found: dict[tuple[int, int | None], Array] = {}
    for i, (key, place) in enumerate(zip(keys, places, strict=True)):
        marker, corner = int(key[0]), int(key[1]) if len(key) > 1 else None
        if (key != key.astype(int)).any() or corner not in (None, 0, 1, 2, 3) or (marker, corner) in found:
            raise InputError(f"{sheet.where(i)} has marker {key}", "whole numbers, each corner once", "correct it")
        found[marker, corner] = place
    return found


def load_body_points(path: str | Path) -> dict[str, Array]:
    """Return positions [3] m of a body's points by name, in file order.

    Raises InputError naming the column or row at fault.
    """
    sheet = Sheet.read(path, _A_BODY_FILE)
    at, places = sheet.column(_NAME), _places(sheet)
    found: dict[str, Array] = {}
    for i, (cells, place) in enumerate(zip(sheet.rows, places, strict=True)):
        if not cells[at] or cells[at] in found:
            got = f"{sheet.where(i)} has " + (f"'{cells[at]}' again" if cells[at] else "no name")
            raise InputError(got, "each point once, by name", "correct it")
        found[cells[at]] = place
    return found


def save_body_points(points: dict[str, Array], path: str | Path) -> None:
    """Write what `load_body_points` reads."""
    lines = [",".join((name, *(f"{value:.9g}" for value in place))) for name, place in points.items()]
    write_text(path, "\n".join(["name,x_m,y_m,z_m", *lines]) + "\n")


def _places(sheet: Sheet) -> Array:
    """Return the positions of all rows, [N, 3] m."""
    columns, scales = [], []
    for axis in "xyz":
        at = sheet.column(rf"{axis}(?:_[a-z]+)?(?<!_px)")
        unit = re.search(r"[_\[(\s](\w+)[\])]?$", sheet.header[at].lower())
        if unit is None or unit[1] not in _UNITS:
            got = f"column '{sheet.header[at]}' of '{sheet.path}' has no unit"
            raise InputError(got, f"{axis}_m, {axis}_mm ...", "write the unit into its name")
        columns.append(at)
        scales.append(_UNITS[unit[1]])
    return sheet.finite(columns, list("xyz")) * scales

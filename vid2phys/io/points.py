"""Known places, from CSV: points of a scene with the pixels that show them, markers, named points of a body.

Columns are found by name: `x_m`, `y_mm`, `z [cm]` with their unit, `u_px` and `v_px` (or `u`, `v`), an optional
`name`; for markers `id`, and optionally `corner` (0 to 3 clockwise from the upper left; without it, the place is of the
middle). Points of a body are in the axes of its mesh.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.files import write_text
from vid2phys.io.table import column_named, find_column, numbers, require_finite, titled_rows
from vid2phys.types import Array

_NAME = r"name|point|label|id"
_UNITS = {"m": 1.0, "dm": 0.1, "cm": 1e-2, "mm": 1e-3, "in": 0.0254}
_A_POINT_FILE = "a CSV with the columns name, x_m, y_m, z_m, u_px, v_px"
_A_MARKER_FILE = "a CSV with the columns id, x_m, y_m, z_m, and corner (0 to 3) unless the places are of the middles"
_A_BODY_FILE = "a CSV with the columns name, x_m, y_m, z_m: points of the body in the axes of its mesh"


def load_points(path: str | Path) -> tuple[tuple[str, ...], Array, Array]:
    """Names, places [N, 3] m, and pixels [N, 2]. Raises InputError naming the column or row at fault."""
    header, rows, row_of = titled_rows(path, _A_POINT_FILE)
    places = _places(path, header, rows, row_of, _A_POINT_FILE)
    columns = [
        column_named(path, header, rf"{axis}(?:_px)?|pixel_{axis}|{other}_px", _A_POINT_FILE)
        for axis, other in ("ux", "vy")
    ]
    pixels = numbers(path, rows, columns, row_of)
    require_finite(path, pixels, ["u", "v"], row_of)
    at = find_column(header, _NAME)
    names = tuple(row[at] if at is not None and row[at] else f"row {i}" for i, row in zip(row_of, rows, strict=True))
    return names, places, pixels


def load_markers(path: str | Path) -> dict[tuple[int, int | None], Array]:
    """Places [3] m by marker and corner (None: its middle). Raises InputError naming the column or row at fault."""
    header, rows, row_of = titled_rows(path, _A_MARKER_FILE)
    places = _places(path, header, rows, row_of, _A_MARKER_FILE)
    at_id = column_named(path, header, r"id|marker|tag|marker_id|tag_id", _A_MARKER_FILE)
    at_corner = find_column(header, "corner")
    keys = numbers(path, rows, [at_id] if at_corner is None else [at_id, at_corner], row_of)
    require_finite(path, keys, ["id", "corner"], row_of)
    found: dict[tuple[int, int | None], Array] = {}
    for key, place, row in zip(keys, places, row_of, strict=True):
        marker, corner = int(key[0]), int(key[1]) if len(key) > 1 else None
        if (key != key.astype(int)).any() or corner not in (None, 0, 1, 2, 3) or (marker, corner) in found:
            raise InputError(f"row {row} of '{path}' has marker {key}", "whole numbers, each corner once", "correct it")
        found[marker, corner] = place
    return found


def load_body_points(path: str | Path) -> dict[str, Array]:
    """Places [3] m of a body's points by name, as in the file. Raises InputError naming the column or row at fault."""
    header, rows, row_of = titled_rows(path, _A_BODY_FILE)
    at = column_named(path, header, _NAME, _A_BODY_FILE)
    places = _places(path, header, rows, row_of, _A_BODY_FILE)
    found: dict[str, Array] = {}
    for cells, place, row in zip(rows, places, row_of, strict=True):
        if not cells[at] or cells[at] in found:
            got = f"row {row} of '{path}' has " + (f"'{cells[at]}' again" if cells[at] else "no name")
            raise InputError(got, "each point once, by name", "correct it")
        found[cells[at]] = place
    return found


def save_body_points(points: dict[str, Array], path: str | Path) -> None:
    """Writes what `load_body_points` reads."""
    lines = [",".join((name, *(f"{value:.9g}" for value in place))) for name, place in points.items()]
    write_text(path, "\n".join(["name,x_m,y_m,z_m", *lines]) + "\n")


def _places(path: str | Path, header: list[str], rows: list[list[str]], row_of: np.ndarray, what: str) -> Array:
    columns, scales = [], []
    for axis in "xyz":
        at = column_named(path, header, rf"{axis}(?:_[a-z]+)?(?<!_px)", what)
        unit = re.search(r"[_\[(\s](\w+)[\])]?$", header[at].lower())
        if unit is None or unit[1] not in _UNITS:
            got = f"column '{header[at]}' of '{path}' has no unit"
            raise InputError(got, f"{axis}_m, {axis}_mm ...", "write the unit into its name")
        columns.append(at)
        scales.append(_UNITS[unit[1]])
    places = numbers(path, rows, columns, row_of) * scales
    require_finite(path, places, list("xyz"), row_of)
    return places

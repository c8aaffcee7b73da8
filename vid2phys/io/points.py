"""Known places of a scene, from CSV: points with the pixels that show them, and markers.

Columns are found by name: `x_m`, `y_mm`, `z [cm]` with their unit, `u_px` and `v_px` (or `u`, `v`), an optional
`name`; for markers `id`, and optionally `corner` (0 to 3 clockwise from the upper left; without it, the place is of the
middle).
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.files import read_text
from vid2phys.io.table import numbers, require_finite, rows_of
from vid2phys.types import Array

_UNITS = {"m": 1.0, "dm": 0.1, "cm": 1e-2, "mm": 1e-3, "in": 0.0254}
_A_POINT_FILE = "a CSV with the columns name, x_m, y_m, z_m, u_px, v_px"
_A_MARKER_FILE = "a CSV with the columns id, x_m, y_m, z_m, and corner (0 to 3) unless the places are of the middles"
_ADD = "add the columns that are missing"


def load_points(path: str | Path) -> tuple[tuple[str, ...], Array, Array]:
    """Names, places [N, 3] m, and pixels [N, 2]. Raises InputError naming the column or row at fault."""
    header, rows, row_of = _read(path, _A_POINT_FILE)
    places = _places(path, header, rows, row_of, _A_POINT_FILE)
    columns = [
        _column(path, header, rf"{axis}(?:_px)?|pixel_{axis}|{other}_px", _A_POINT_FILE) for axis, other in ("ux", "vy")
    ]
    pixels = numbers(path, rows, columns, row_of)
    require_finite(path, pixels, ["u", "v"], row_of)
    at = _find(header, r"name|point|label|id")
    names = tuple(row[at] if at is not None and row[at] else f"row {i}" for i, row in zip(row_of, rows, strict=True))
    return names, places, pixels


def load_markers(path: str | Path) -> dict[tuple[int, int | None], Array]:
    """Places [3] m by marker and corner (None: its middle). Raises InputError naming the column or row at fault."""
    header, rows, row_of = _read(path, _A_MARKER_FILE)
    places = _places(path, header, rows, row_of, _A_MARKER_FILE)
    at_id, at_corner = _column(path, header, r"id|marker|tag|marker_id|tag_id", _A_MARKER_FILE), _find(header, "corner")
    keys = numbers(path, rows, [at_id] if at_corner is None else [at_id, at_corner], row_of)
    require_finite(path, keys, ["id", "corner"], row_of)
    found: dict[tuple[int, int | None], Array] = {}
    for key, place, row in zip(keys, places, row_of, strict=True):
        marker, corner = int(key[0]), int(key[1]) if len(key) > 1 else None
        if (key != key.astype(int)).any() or corner not in (None, 0, 1, 2, 3) or (marker, corner) in found:
            raise InputError(f"row {row} of '{path}' has marker {key}", "whole numbers, each corner once", "correct it")
        found[marker, corner] = place
    return found


def _read(path: str | Path, what: str) -> tuple[list[str], list[list[str]], np.ndarray]:
    """Titles, rows of cells (padded), and their numbers in the file."""
    rows = rows_of(path, read_text(path, what))
    kept = [(i, row) for i, row in enumerate(rows, start=1) if any(row) and not row[0].startswith("#")]
    if len(kept) < 2:
        raise InputError(f"'{path}' has {len(kept)} rows", what, "write a header and a row a point")
    header = kept[0][1]
    padded = [row + [""] * (len(header) - len(row)) for _, row in kept[1:]]
    return header, padded, np.array([i for i, _ in kept[1:]])


def _places(path: str | Path, header: list[str], rows: list[list[str]], row_of: np.ndarray, what: str) -> Array:
    columns, scales = [], []
    for axis in "xyz":
        at = _column(path, header, rf"{axis}(?:_[a-z]+)?(?<!_px)", what)
        unit = re.search(r"[_\[(\s](\w+)[\])]?$", header[at].lower())
        if unit is None or unit[1] not in _UNITS:
            got = f"column '{header[at]}' of '{path}' has no unit"
            raise InputError(got, f"{axis}_m, {axis}_mm ...", "write the unit into its name")
        columns.append(at)
        scales.append(_UNITS[unit[1]])
    places = numbers(path, rows, columns, row_of) * scales
    require_finite(path, places, list("xyz"), row_of)
    return places


def _find(header: list[str], pattern: str) -> int | None:
    plain = [re.sub(r"\s*[\[(].*", "", title).strip().lower() for title in header]
    return next((i for i, title in enumerate(plain) if re.fullmatch(pattern, title)), None)


def _column(path: str | Path, header: list[str], pattern: str, what: str) -> int:
    at = _find(header, pattern)
    if at is None:
        raise InputError(f"'{path}' has the columns {', '.join(header[:12])}", what, _ADD)
    return at

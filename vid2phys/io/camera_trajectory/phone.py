"""Read logs of phones (ARKit, ARCore): camera-to-world in OpenGL axes, in a world whose y axis points up.

A CSV has columns of a time, a position and a quaternion: `timestamp, x, y, z, qx, qy, qz, qw`, with the names and units
that `io.mocap.plain` knows. A JSON is a list of such records, or a mapping with one. Records may nest, as in
`{"timestamp": 1.0, "position": {"x": ...}, "rotation": [qx, qy, qz, qw]}`. Times above 1e11 are nanoseconds.

Limits: rows in which the phone lost its place, as `io.mocap` finds them, are gaps. Matrices are not read.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.camera._parse import Source
from vid2phys.io.camera_trajectory._trajectory import OPENGL_TO_OPENCV, CameraTrajectory
from vid2phys.io.mocap import plain
from vid2phys.io.mocap._poses import Asked

_Z_UP = np.array([[1.0, 0, 0, 0], [0, 0, -1.0, 0], [0, 1.0, 0, 0], [0, 0, 0, 1.0]])  # y up to z up
_A_LOG = "columns or keys timestamp, x, y, z, qx, qy, qz, qw"


def matches(source: Source) -> bool:
    """Return whether the file is a CSV, by its name or header, or a JSON with a list of records."""
    return source.path.suffix.lower() == ".csv" or bool(_records(source)) or plain.matches(source)


def load(source: Source) -> CameraTrajectory:
    """Return the poses by time. Raises InputError for columns that are missing, and for rows that are no poses."""
    table = Source(source.path, _table(_records(source))) if _records(source) else source
    if not plain.matches(table):
        header = table.text.split("\n", 1)[0][:120]
        raise InputError(f"'{source.path}' has {header}", _A_LOG, "rename the columns, or write a TUM file")
    found = CameraTrajectory.of_log(plain.load(table, Asked()))
    return replace(found, poses=_Z_UP @ found.poses @ OPENGL_TO_OPENCV)


def _records(source: Source) -> list[dict[str, Any]]:
    """Return the records of a JSON with a list of them; none for a file of another kind."""
    if not source.text.lstrip().startswith(("[", "{")):
        return []
    try:
        data = json.loads(source.text)
    except (ValueError, RecursionError):
        return []
    lists = [data] if isinstance(data, list) else list(data.values())
    return next((one for one in lists if isinstance(one, list) and one and isinstance(one[0], dict)), [])


def _table(records: list[dict[str, Any]]) -> str:
    """Return records as the text of a CSV, with the keys of the first record as columns."""
    flat = [_flat(record) for record in records]
    rows = [",".join(flat[0]), *(",".join(str(row.get(key, "")) for key in flat[0]) for row in flat)]
    return "\n".join(rows)


def _flat(record: Any, name: str = "") -> dict[str, float]:
    """Return the numbers of nested mappings and of lists of 3 or 4, by names such as position.x."""
    if isinstance(record, list) and len(record) in (3, 4):
        record = dict(zip("xyzw", record, strict=False))
    if isinstance(record, dict):
        parts = [_flat(value, f"{name}.{key}" if name else str(key)) for key, value in record.items()]
        return {key: value for part in parts for key, value in part.items()}
    return {name: record} if isinstance(record, int | float) and not isinstance(record, bool) else {}

"""CSV with named columns: a time, a position and a quaternion; EuRoC ground truth is one of them.

Names are read without their case, prefixes and signs: `t`, `time`, `timestamp`; `x`, `pos_x`, `p_RS_R_x [m]`, `x_mm`;
`qw`, `q_w`, `quat_w`, `q_RS_w []`. A unit in the name (`_mm`, `[ns]`) is honoured; without one, positions are in metres
(or in the unit the caller gives) and times in seconds, except EuRoC's integer nanoseconds.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.mocap._poses import LENGTH_UNITS, length_scale, make_log
from vid2phys.io.table import numbers, split_csv
from vid2phys.types import Array, PoseLog

_TIME_UNITS = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_LARGEST_SECONDS = 1e11  # unix time in seconds is 1e9; in nanoseconds 1e18


def matches(text: str) -> bool:
    """A first line with commas or semicolons and a column for each number of a pose."""
    header = _header(text)
    return len(header) >= 8 and not _missing(_find(header))


def load(path: str | Path, text: str, body: str | None, units: str | None) -> PoseLog:
    """The only body of the file; its name is `body`, or the file's."""
    header = _header(text)
    found = _find(header)
    lines = list(enumerate(text.splitlines(), start=1))[1:]
    kept = [(i, split_csv(line)) for i, line in lines if line.strip() and not line.startswith("#")]
    row_of = np.array([i for i, _ in kept], dtype=np.int64)
    order = ["t", "x", "y", "z", "qw", "qx", "qy", "qz"]
    table = numbers(path, [row for _, row in kept], [found[key] for key in order], row_of)
    units_found = {_unit(header[found[axis]], LENGTH_UNITS) for axis in "xyz"}
    if len(units_found) > 1:
        raise InputError(f"'{path}' mixes length units", "one unit for x, y and z", "convert them")
    scale = length_scale(path, units_found.pop(), units)
    times_s = table[:, 0] * _time_scale(header[found["t"]], table[:, 0])
    return make_log(path, times_s, table[:, 1:4] * scale, table[:, 4:8], row_of, body or Path(path).stem)


def _header(text: str) -> list[str]:
    return split_csv(text.split("\n", 1)[0].lstrip("#").strip())


def _find(header: list[str]) -> dict[str, int]:
    """Columns by key: t, x, y, z, qw, qx, qy, qz; the first that fits each."""
    found: dict[str, int] = {}
    for index, name in enumerate(header):
        key = _key(name)
        if key is not None:
            found.setdefault(key, index)
    return found


def _key(name: str) -> str | None:
    plain = re.sub(r"[\[(].*", "", name).strip().lower()
    plain = re.sub(r"_(?:m|dm|cm|mm|in|ft|s|sec|ms|us|ns)$", "", plain)
    if re.fullmatch(r"t|time|timestamp|timestamps|seconds", plain):
        return "t"
    if position := re.fullmatch(r"(?:t|p|pos|position|translation|p_rs_r)?_?([xyz])", plain):
        return position[1]
    if rotation := re.fullmatch(
        r"(?:q|quat|quaternion|orientation|rot|rotation|q_rs|orientation_quat)_?([wxyz])", plain
    ):
        return "q" + rotation[1]
    return None


def _missing(found: dict[str, int]) -> list[str]:
    return [key for key in ("t", "x", "y", "z", "qw", "qx", "qy", "qz") if key not in found]


def _unit(name: str, known: dict[str, float]) -> str | None:
    said = re.search(r"[\[(]\s*(\w+)\s*[\])]|_([a-z]+)$", name.strip().lower())
    unit = (said[1] or said[2]) if said else None
    return unit if unit in known else None


def _time_scale(name: str, times: Array) -> float:
    unit = _unit(name, _TIME_UNITS)
    if unit is not None:
        return _TIME_UNITS[unit]
    finite = times[np.isfinite(times)]
    return 1e-9 if len(finite) and np.abs(finite).max() > _LARGEST_SECONDS else 1.0

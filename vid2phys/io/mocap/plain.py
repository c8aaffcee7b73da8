"""Read CSV with named columns: a time, a position and a rotation, of one body or several; EuRoC's ground truth, too.

Names match without their case, prefixes and signs: `t`, `time`, `timestamp`; `x`, `pos_x`, `p_RS_R_x [m]`, `x_mm`;
`qw`, `q_w`, `quat_w`, `q_RS_w []`; `roll`, `pitch`, `yaw` or `rot_x` for angles, whose order the user gives. The part
before, as in `drone.x` or `pose.position.x`, is the body; a column `name`, `body` or `object` names it in each row. A
unit in the name (`_mm`, `[ns]`, `_deg`) counts. Without one, positions are in metres (or in the unit the user gives)
and times in seconds, except EuRoC's integer nanoseconds.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.mocap._markers import choose_markers, poses_of_markers
from vid2phys.io.mocap._poses import (
    ANGLE_UNITS,
    LENGTH_UNITS,
    Asked,
    Source,
    choose_body,
    euler_quats,
    length_scale,
    make_log,
)
from vid2phys.io.table import numbers, rows_of
from vid2phys.types import Array, PoseLog

_TIME_UNITS = {"s": 1.0, "sec": 1.0, "secs": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_LARGEST_SECONDS = 1e11  # unix time in seconds is 1e9; in nanoseconds 1e18
_PLACE, _QUAT, _ANGLES = ("x", "y", "z"), ("qw", "qx", "qy", "qz"), ("rx", "ry", "rz")
_TIME = re.compile(r"%?(?:rosbag)?(?:t|time|timestamps?|seconds|(?:.*[._/ ])?stamp(?:[._/ ]secs?)?)")
_NANOSECONDS = re.compile(r"(?:.*[._/ ])?stamp[._/ ]n(?:ano)?secs?")
_NAMES = re.compile(r"name|(?:body|object|subject|rigid_?body|tracker)(?:_?name)?")
_BEFORE = r"(?:(?P<body>.*?)[._:/ ]+)??"
_AXIS = r"[._: ]?(?P<axis>[{}])"
_POSITION = re.compile(_BEFORE + r"(?:t|p|pos|position|trans|translation|loc|location|p_rs_r)?" + _AXIS.format("xyz"))
_QUATERNION = re.compile(_BEFORE + r"(?:q|quat|quaternion|orientation|orientation_quat|q_rs)" + _AXIS.format("wxyz"))
_ROTATION = re.compile(_BEFORE + r"(?:r|rot|rotation|euler|angle)" + _AXIS.format("wxyz"))
_ROLL = re.compile(_BEFORE + r"(?P<axis>roll|pitch|yaw)")
_KINDS = ((_QUATERNION, "q"), (_ROTATION, "r"), (_ROLL, "r"), (_POSITION, ""))
Columns = dict[str, dict[str, int]]  # of a body, by key: x, qw, rx ...


def matches(source: Source) -> bool:
    """Return whether the first line has a time and, for some body, a column for each coordinate of its position."""
    header = _header(source)
    return _time_column(header) is not None and any(all(k in found for k in _PLACE) for found in _find(header).values())


def load(source: Source, asked: Asked) -> PoseLog:
    """Return the body asked for, or the only one; a single body is called as was asked for, or as the file."""
    path, header = source.path, _header(source)
    at_time, bodies = _time_column(header), _find(header)
    assert at_time is not None  # `matches` has seen it
    rows = list(enumerate(rows_of(path, source.text), start=1))[1:]
    rows = [(i, row) for i, row in rows if any(row) and not row[0].startswith("#")]
    whole = {
        name: found
        for name, found in bodies.items()
        if all(key in found for key in _PLACE) and any(all(key in found for key in keys) for keys in (_QUAT, _ANGLES))
    }
    if not whole and sum(all(key in found for key in _PLACE) for found in bodies.values()) >= 3:
        return _from_markers(path, header, at_time, bodies, rows, asked)
    if not whole:
        remedy = "export the rotations, too, or markers of the body (C3D)"
        raise InputError(f"'{path}' has positions and no rotations", "quaternion or angle columns", remedy)
    several = len(whole) > 1
    found = whole[choose_body(path, list(whole), asked.body)] if several else next(iter(whole.values()))
    kept, name = _of_one_body(path, header, rows, asked, several)
    row_of = np.array([i for i, _ in kept], dtype=np.int64)
    keys = [*_PLACE, *(_QUAT if all(key in found for key in _QUAT) else _ANGLES)]
    extra = [i for i, title in enumerate(header) if _NANOSECONDS.fullmatch(_plain(title))][:1]
    columns = [at_time, *(found[key] for key in keys), *extra]
    table = numbers(path, [row for _, row in kept], columns, row_of)
    times_s = table[:, 0] * _time_scale(header[at_time], table[:, 0])
    times_s = times_s + 1e-9 * table[:, -1] if extra else times_s
    positions = table[:, 1:4] * _scale(path, header, [found[axis] for axis in _PLACE], asked)
    if "qw" in keys:
        quats = table[:, 4:8]
    else:
        units = {_unit(header[found[key]], ANGLE_UNITS) for key in _ANGLES}
        quats = euler_quats(path, table[:, 4:7], units.pop() if len(units) == 1 else None, asked)
    return make_log(path, times_s, positions, quats, row_of, name)


def _from_markers(
    path: Path, header: list[str], at_time: int, points: Columns, rows: list[tuple[int, list[str]]], asked: Asked
) -> PoseLog:
    """Return the body of columns such as `quad1_x`: points with positions only are markers."""
    markers = {name: found for name, found in points.items() if all(key in found for key in _PLACE)}
    name, chosen = choose_markers(path, list(markers), asked.body)
    labels = [list(markers)[i] for i in chosen]
    columns = [markers[label][axis] for label in labels for axis in _PLACE]
    row_of = np.array([i for i, _ in rows], dtype=np.int64)
    table = numbers(path, [row for _, row in rows], [at_time, *columns], row_of)
    places = table[:, 1:].reshape(len(table), len(chosen), 3) * _scale(path, header, columns, asked)
    times_s = table[:, 0] * _time_scale(header[at_time], table[:, 0])
    return make_log(path, times_s, *poses_of_markers(path, places, labels), row_of, name)


def _scale(path: Path, header: list[str], columns: list[int], asked: Asked) -> float:
    units = {_unit(header[column], LENGTH_UNITS) for column in columns}
    if len(units) > 1:
        raise InputError(f"'{path}' mixes length units", "one unit for x, y and z", "convert them")
    return length_scale(path, units.pop(), asked.units)


def _header(source: Source) -> list[str]:
    first = source.text.split("\n", 1)[0].lstrip("#").strip()
    return rows_of(source.path, first)[0] if first and '"\n' not in first else []


def _plain(title: str) -> str:
    """Return a column's title without unit and case."""
    plain = re.sub(r"[\[(].*", "", title).strip().lower()
    return re.sub(r"_(?:m|dm|cm|mm|in|ft|s|sec|ms|us|ns|deg|rad)$", "", plain)


def _time_column(header: list[str]) -> int | None:
    return next((i for i, title in enumerate(header) if _TIME.fullmatch(_plain(title))), None)


def _find(header: list[str]) -> Columns:
    """Return columns by body (empty for titles without a prefix) and key; the first that fits each."""
    found: Columns = {}
    for index, title in enumerate(header):
        hits = [(hit, kind) for pattern, kind in _KINDS if (hit := pattern.fullmatch(_plain(title))) is not None]
        if hits:  # the one that leaves least for the body's name: p_RS_R_x is no rotation (r) of "p_RS"
            hit, kind = min(hits, key=lambda one: len(one[0]["body"] or ""))
            axis = {"roll": "x", "pitch": "y", "yaw": "z"}.get(hit["axis"], hit["axis"])
            body = title.strip()[: len(hit["body"] or "")]  # with its capitals
            found.setdefault(body, {}).setdefault(kind + axis, index)
    for keys in found.values():
        if "rw" in keys:  # `rot_w`: these were quaternions after all
            for axis in "wxyz":
                if "r" + axis in keys:
                    keys.setdefault("q" + axis, keys.pop("r" + axis))
    return found


def _of_one_body(
    path: Path, header: list[str], rows: list[tuple[int, list[str]]], asked: Asked, several: bool
) -> tuple[list[tuple[int, list[str]]], str]:
    """Return the rows of one body, where a column names it, and its name."""
    at = next((i for i, title in enumerate(header) if _NAMES.fullmatch(_plain(title))), None)
    if at is None or several:
        return rows, asked.body or path.stem
    names = list(dict.fromkeys(row[at] for _, row in rows if len(row) > at))
    if len(names) < 2:
        return rows, asked.body or next(iter(names), path.stem)
    name = choose_body(path, names, asked.body)
    return [(i, row) for i, row in rows if len(row) > at and row[at] == name], name


def _unit(title: str, known: dict[str, float]) -> str | None:
    named = re.search(r"[\[(]\s*(\w+)\s*[\])]|_([a-z]+)$", title.strip().lower())
    unit = (named[1] or named[2]) if named else None
    return unit if unit in known else None


def _time_scale(title: str, times: Array) -> float:
    unit = _unit(title, _TIME_UNITS)
    if unit is not None:
        return _TIME_UNITS[unit]
    finite = times[np.isfinite(times)]
    return 1e-9 if len(finite) and np.abs(finite).max() > _LARGEST_SECONDS else 1.0

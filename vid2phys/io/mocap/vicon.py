"""Read Vicon CSV (Nexus, Tracker): sections of a title, a rate in Hz, names, column titles, units, then a row a frame.

Bodies are columns RX, RY, RZ (and RW: a quaternion) with TX, TY, TZ, of `Objects`, `Segments` or `Model Outputs`. Three
rotation columns are Euler angles or a rotation vector, as was chosen at export. The file does not name which, so the
user has to. Without bodies, the markers of `Trajectories` give one. Commas or semicolons; empty cells are gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.io.mocap._markers import choose_markers, poses_of_markers
from vid2phys.io.mocap._poses import (
    LENGTH_UNITS,
    Asked,
    Source,
    choose_body,
    euler_quats,
    make_log,
    require_length_scale,
)
from vid2phys.io.table import numbers, rows_of
from vid2phys.types import PoseLog

_TITLES = ("Objects", "Segments", "Model Outputs", "Trajectories", "Joints", "Devices", "Bones")
_ANGLES = {"deg": "deg", "degrees": "deg", "rad": "rad", "radians": "rad"}
_A_VICON = "a Vicon CSV: section title, rate, names, Frame and Sub Frame columns, units"
_PLACE, _TURN, _POINT = ("TX", "TY", "TZ"), ("RX", "RY", "RZ"), ("X", "Y", "Z")


@dataclass(frozen=True)
class _Section:
    """A part of the file. columns: of a name, by column title. rows: the data. row_of: their numbers in the file."""

    title: str
    rate_hz: float
    columns: dict[str, dict[str, int]]
    units: list[str]
    rows: list[list[str]]
    row_of: NDArray[np.int64]


def matches(source: Source) -> bool:
    """Return whether the first line has a section's title only, and the next one a number only."""
    first, second = ([word.strip(' "') for word in line.split(mark)] for line, mark in _two_lines(source.text))
    return first[0] in _TITLES and not any(first[1:] + second[1:]) and second[0].replace(".", "", 1).isdigit()


def load(source: Source, asked: Asked) -> PoseLog:
    """Return the body asked for, or the only one. Raises InputError listing the bodies when there are several."""
    path = source.path
    sections = _sections(path, rows_of(path, source.text))
    bodies: dict[str, _Section] = {}
    for part in sections:
        whole = (name for name, found in part.columns.items() if all(key in found for key in _PLACE + _TURN))
        bodies = dict.fromkeys(whole, part) | bodies
    if not bodies:
        return _from_markers(path, sections, asked)
    name = choose_body(path, list(bodies), asked.body)
    section = bodies[name]
    found = section.columns[name]
    is_quat = "RW" in found
    columns = [found[key] for key in [*_PLACE, *_TURN, *(["RW"] if is_quat else [])]]
    scale = _scale(path, section, columns[:3], asked)
    table, times_s, row_of = _table(path, section, columns)
    if is_quat:
        quats = table[:, [6, 3, 4, 5]]
    else:
        unit = _ANGLES.get(section.units[columns[3]].lower())
        quats = euler_quats(path, table[:, 3:6], unit, asked)
    return make_log(path, times_s, table[:, :3] * scale, quats, row_of, name)


def _two_lines(text: str) -> list[tuple[str, str]]:
    lines = [*[line for line in text[:100_000].splitlines() if line.strip()][:2], "", ""][:2]
    return [(line, ";" if ";" in line else ",") for line in lines]


def _sections(path: Path, rows: list[list[str]]) -> list[_Section]:
    starts = [i for i, row in enumerate(rows) if row and row[0] in _TITLES and not any(row[1:])]
    filled = [i for i, row in enumerate(rows) if any(row)]
    found = []
    if not starts:
        raise InputError(f"'{path}' has no section", _A_VICON, "export the trial again")
    for start, end in pairwise([*starts, len(rows)]):
        inside = [i for i in filled if start < i < end]
        if len(inside) < 4 or rows[inside[2]][:1] != ["Frame"]:
            got = f"section '{rows[start][0]}' in row {start + 1} of '{path}' has no header"
            raise InputError(got, _A_VICON, "export the trial again")
        rate, names, titles, units = (rows[i] for i in inside[:4])
        width = len(titles)
        columns: dict[str, dict[str, int]] = {}
        name = ""
        for i in range(2, width):
            name = (names[i] if i < len(names) else "") or name
            columns.setdefault(name, {}).setdefault(titles[i].upper(), i)
        kept = [i for i in inside[4:] if rows[i][0].isdigit() and (len(rows[i]) < 2 or rows[i][1] in ("", "0"))]
        padded = [rows[i] + [""] * (width - len(rows[i])) for i in kept]
        section = _Section(
            rows[start][0], _rate(path, rate[0]), columns, units + [""] * width, padded, np.array(kept, dtype=int) + 1
        )
        found.append(section)
    return found


def _rate(path: Path, cell: str) -> float:
    try:
        rate = float(cell)
    except ValueError:
        rate = np.nan
    if not 0.0 < rate < 1e6:
        raise InputError(f"'{path}' has the rate '{cell}'", "frames a second", "export the trial again")
    return rate


def _table(path: Path, section: _Section, columns: list[int]) -> tuple[np.ndarray, np.ndarray, NDArray[np.int64]]:
    """Return numbers of the columns, times [s] by frame number, and their rows."""
    table = numbers(path, section.rows, [0, *columns], section.row_of)
    return table[:, 1:], table[:, 0] / section.rate_hz, section.row_of


def _scale(path: Path, section: _Section, columns: list[int], asked: Asked) -> float:
    units = {section.units[column].lower() for column in columns} - {""}
    unknown = units - set(LENGTH_UNITS)
    if unknown or len(units) > 1:
        raise InputError(f"'{path}' has the length units {', '.join(sorted(units))}", "mm, cm or m", "export in mm")
    return require_length_scale(path, next(iter(units), None), asked.units)


def _from_markers(path: Path, sections: list[_Section], asked: Asked) -> PoseLog:
    section = next((item for item in sections if item.title == "Trajectories"), None)
    if section is None:
        titles = ", ".join(dict.fromkeys(item.title for item in sections))
        remedy = "export Objects, Segments or Trajectories"
        raise InputError(f"'{path}' has {titles} and no body", "columns RX, RY, RZ, TX, TY, TZ of a body", remedy)
    markers = {name: found for name, found in section.columns.items() if name and all(key in found for key in _POINT)}
    name, chosen = choose_markers(path, list(markers), asked.body)
    labels = [list(markers)[i] for i in chosen]
    columns = [markers[label][key] for label in labels for key in _POINT]
    scale = _scale(path, section, columns, asked)
    table, times_s, row_of = _table(path, section, columns)
    points = table.reshape(len(table), len(chosen), 3) * scale
    return make_log(path, times_s, *poses_of_markers(path, points, labels), row_of, name)

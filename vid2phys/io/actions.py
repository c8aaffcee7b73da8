"""Read and write actions as CSV: a header that names units, `time_s` in the clip's clock, zero-order hold.

    time_s,thrust_N,torque_x_Nm,torque_y_Nm,torque_z_Nm        collective thrust along body z, body torques
    time_s,rotor_0_N,rotor_1_N,rotor_2_N,rotor_3_N             one thrust a rotor
    time_s,torque_Nm                                           of other systems: their inputs, by name

Forces may be in N, mN, kN, g, gf or kgf (gram- and kilogram-force), torques in Nm, mNm, uNm, Ncm or Nmm; `_per_kg`
after the unit marks actions divided by an unknown mass. Columns of other quantities are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.files import read_text, write_text
from vid2phys.io.table import Sheet, numbers, require_finite, require_increasing, split_csv
from vid2phys.types import Actions, Array, Clip

STANDARD_GRAVITY = 9.80665
_FORCE = {
    "N": 1.0,
    "mN": 1e-3,
    "kN": 1e3,
    "g": 1e-3 * STANDARD_GRAVITY,
    "gf": 1e-3 * STANDARD_GRAVITY,
    "kgf": STANDARD_GRAVITY,
}
_TORQUE = {"Nm": 1.0, "mNm": 1e-3, "uNm": 1e-6, "Ncm": 1e-2, "Nmm": 1e-3}
_TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_UNITS = {"N": _FORCE, "Nm": _TORQUE}
_Kind = Literal["rotors", "wrench", "push", "other"]
_TORQUES = ("torque_x", "torque_y", "torque_z")
_Layouts = dict[_Kind, dict[str, dict[str, float]]]
_LAYOUTS: _Layouts = {
    "wrench": {"thrust": _FORCE, **dict.fromkeys(_TORQUES, _TORQUE)},
    "rotors": {f"rotor_{i}": _FORCE for i in range(4)},
    "push": {"force_x": _FORCE, "force_y": _FORCE, "force_z": _FORCE, **dict.fromkeys(_TORQUES, _TORQUE)},
}
_ZERO_WITHOUT: dict[_Kind, tuple[str, ...]] = {"push": _TORQUES}  # columns that a file may leave out
_EXAMPLE = (
    "time_s,thrust_N,torque_x_Nm,torque_y_Nm,torque_z_Nm, or time_s,rotor_0_N,...,rotor_3_N, or "
    "time_s,force_x_N,force_y_N,force_z_N"
)
_REMEDY = "name the columns with their units"


def load_actions(path: str | Path, inputs: Mapping[str, str] | None = None) -> Actions:
    """Return recorded actions, in SI.

    Args:
        path: of the CSV file.
        inputs: name -> SI unit of a system's inputs; None for those of a quadrotor, or of a body that is pushed.

    Raises:
        InputError: columns are missing or units unknown; by row, values or times are not finite, or times do not
            increase.
    """
    layouts, example = _LAYOUTS, _EXAMPLE
    if inputs is not None:
        plain = {name: re.sub(r"[ *]", "", unit) for name, unit in inputs.items()}
        layouts = {"other": {name: _UNITS.get(unit, {unit: 1.0}) for name, unit in plain.items()}}
        example = ",".join(["time_s", *(f"{name}_{unit}" for name, unit in plain.items())])
    lines = read_text(path, f"an actions CSV ({example})").splitlines()
    kept = [(i, line) for i, line in enumerate(lines, start=1) if line.strip() and not line.startswith("#")]
    if not kept:
        raise InputError(f"'{path}' has no header", example, _REMEDY)
    header = split_csv(kept[0][1])
    time_column, time_scale = _time_column(path, header)
    kind, columns, scales, per_kilogram = _action_columns(path, header, layouts, example)
    rows = [split_csv(line) for _, line in kept[1:]]
    if not rows:
        raise InputError(f"'{path}' has a header and no rows", "one row an action", "record or export it again")
    row_of = np.array([i for i, _ in kept[1:]])
    table = numbers(path, rows, [time_column, *columns.values()], row_of)
    times_s = table[:, 0] * time_scale
    require_increasing(path, times_s, row_of)
    require_finite(path, table[:, 1:], [header[c] for c in columns.values()], row_of)
    names, units = tuple(layouts[kind]), tuple(next(iter(known)) for known in layouts[kind].values())
    values = np.zeros((len(table), len(names)))
    values[:, [names.index(name) for name in columns]] = table[:, 1:] * scales
    return Actions(times_s, values, kind, names, units, per_kilogram)


def load_actions_std(path: str | Path, actions: Actions) -> Array | None:
    """Return the standard deviations [N, M] that `save_actions` wrote beside the actions; None where it wrote none."""
    sheet = Sheet.read(path, "actions written by vid2phys")
    columns = [sheet.find(f"{name}_std_.*") for name in actions.names]
    found = [column for column in columns if column is not None]
    return sheet.numbers(found) if len(found) == len(columns) else None


def written_units(path: str | Path) -> dict[str, str]:
    """Return name -> unit of the actions in a file that `save_actions` wrote, whatever system they drive."""
    header = split_csv(read_text(path, "actions written by vid2phys").partition("\n")[0])
    columns = (name.removesuffix("_per_kg").rpartition("_") for name in header[1:] if "_std_" not in name)
    return {name: unit for name, _, unit in columns}


def save_actions(actions: Actions, path: str | Path, std: Array | None = None) -> None:
    """Write actions in SI, with one standard deviation of each ([N, M], same units) in `..._std_...` columns."""
    suffix = "_per_kg" if actions.per_kilogram else ""
    pairs = list(zip(actions.names, actions.units, strict=True))
    header = ["time_s"] + [f"{name}_{unit.replace(' ', '')}{suffix}" for name, unit in pairs]
    columns = [actions.times_s[:, None], actions.values]
    if std is not None:
        header += [f"{name}_std_{unit.replace(' ', '')}{suffix}" for name, unit in pairs]
        columns.append(std)
    lines = [",".join(f"{value:.10g}" for value in row) for row in np.concatenate(columns, axis=1)]
    write_text(path, "\n".join([",".join(header), *lines]) + "\n")


def require_cover(actions: Actions, clip: Clip, path: str | Path) -> None:
    """Raise InputError when the actions do not last from the clip's first frame to its last.

    The last action holds for one more interval, and half an interval may be missing at both ends.
    """
    interval = float(np.median(np.diff(actions.times_s))) if len(actions.times_s) > 1 else 0.0
    start, end = float(actions.times_s[0]), float(actions.times_s[-1]) + interval
    first, last = float(clip.times_s[0]), float(clip.times_s[-1])
    if start > first + 0.5 * interval or end < last - 0.5 * interval:
        lasts = f"clip '{clip.name}' lasts from {first:.3f} to {last:.3f} s"
        raise InputError(
            f"actions '{path}' cover {start:.3f} to {end:.3f} s, {lasts}",
            "actions for the whole clip, in the clip's clock (0 at its first frame)",
            "cut the clip or shift time_s",
        )


def _time_column(path: str | Path, header: list[str]) -> tuple[int, float]:
    for index, name in enumerate(header):
        found = re.fullmatch(r"(?:time|t|timestamp)_(\w+)", name)
        if found and found[1] in _TIME:
            return index, _TIME[found[1]]
    raise InputError(
        f"'{path}' has no time column among {', '.join(header)[:120]}", "time_s", "add it, in the clip's clock"
    )


def _action_columns(
    path: str | Path, header: list[str], layouts: _Layouts, example: str
) -> tuple[_Kind, dict[str, int], Array, bool]:
    """Return kind, columns by quantity and factors to SI of the actions, and whether they are per kilogram."""
    found = {kind: {quantity: _find(header, quantity) for quantity in layout} for kind, layout in layouts.items()}
    complete = [
        kind
        for kind, columns in found.items()
        if all(column is not None or name in _ZERO_WITHOUT.get(kind, ()) for name, column in columns.items())
    ]
    if len(complete) != 1:
        what = f"columns of {' and '.join(complete)}" if complete else f"the columns {', '.join(header)[:120]}"
        raise InputError(f"'{path}' has {what}", example, _REMEDY if not complete else "keep one of them")
    kind = complete[0]
    columns = {quantity: column for quantity, column in found[kind].items() if column is not None}
    scales, per_kilogram = [], []
    for quantity, column in columns.items():
        units = layouts[kind][quantity]
        unit = header[column][len(quantity) :].strip("_ []()")
        per_kilogram.append(unit.endswith("_per_kg"))
        unit = unit.removesuffix("_per_kg").replace("_", "").replace("*", "")
        if unit not in units:
            got = f"column '{header[column]}' of '{path}' " + (f"has the unit '{unit}'" if unit else "names no unit")
            raise InputError(got, f"one of {', '.join(units)}", f"write it as {quantity}_{next(iter(units))}")
        scales.append(units[unit])
    if len(set(per_kilogram)) > 1:
        raise InputError(f"'{path}' has some columns per kilogram and some not", "all or none", "convert them")
    return kind, columns, np.array(scales), per_kilogram[0]


def _find(header: list[str], quantity: str) -> int | None:
    """Return the column of a quantity: its name, then nothing or a unit. Standard deviations do not count."""
    for index, name in enumerate(header):
        if re.fullmatch(rf"{quantity}([_ \[(].*)?", name) and not name.startswith(f"{quantity}_std"):
            return index
    return None

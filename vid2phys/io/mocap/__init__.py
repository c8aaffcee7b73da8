"""Read motion capture logs; `load_mocap` finds the format by content.

A format is one file here with `matches(source) -> bool` and `load(source, asked) -> PoseLog`; it is found by its file
name. World axes are those of the file: Motive exports with y up by default, so give `up_axis="y"` then. Nothing is
rotated unasked. Times are those of the file in seconds; gaps in the poses are NaN.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from vid2phys import plugins
from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import quat_from_rotvec, quat_multiply, rotate
from vid2phys.io.files import require_file
from vid2phys.io.mocap._poses import A_LOG, ANGLE_UNITS, EULER_ORDERS, LENGTH_UNITS, Asked, read_source
from vid2phys.io.unsupported import refuse_known
from vid2phys.types import PoseLog

# Rotations that bring the named axis up to z, keeping x (for x itself, keeping y).
_TO_Z_UP = {"y": np.array([np.pi / 2, 0.0, 0.0]), "x": np.array([0.0, -np.pi / 2, 0.0])}


def formats() -> tuple[str, ...]:
    """Return the names of the formats, by the files of this folder."""
    return plugins.names(__path__)


def load_mocap(
    path: str | Path,
    body: str | None = None,
    units: str | None = None,
    *,
    up_axis: str = "z",
    euler: str | None = None,
    angle_units: str | None = None,
) -> PoseLog:
    """Return the poses of one body.

    Args:
        path: of the log.
        body: its name, needed where the file has several; of a file with markers only, a group of them or their names
            with commas between.
        units: of length (m, cm, mm ...), for files without them.
        up_axis: the file's vertical axis; the world is rotated so that it becomes z.
        euler: order of the file's Euler angles, where it has such and does not name it.
        angle_units: of those angles (deg, rad).

    Raises:
        InputError: the file is not readable; or, by row, times are not finite or do not increase.
    """
    for given, known, what in (
        (units, tuple(LENGTH_UNITS), "length unit"),
        (up_axis, ("x", "y", "z"), "axis"),
        (euler, EULER_ORDERS, "order of Euler angles"),
        (angle_units, tuple(ANGLE_UNITS), "unit of angles"),
    ):
        if given is not None and given not in known:
            raise UsageError(f"unknown {what} '{given}'", f"one of {', '.join(known)}", "choose what the log has")
    refuse_known("mocap", require_file(path, A_LOG), A_LOG)  # before it is read: such files are large
    source = read_source(path)
    for name in formats():
        module = importlib.import_module(f"{__name__}.{name}")
        if module.matches(source):
            log: PoseLog = module.load(source, Asked(body, units, euler, angle_units))
            return _turned(log, up_axis)
    raise InputError(f"'{path}' is in none of the known formats", A_LOG, "export it as Motive CSV, C3D or TUM")


def _turned(log: PoseLog, up_axis: str) -> PoseLog:
    if up_axis == "z":
        return log
    to_z_up = quat_from_rotvec(_TO_Z_UP[up_axis])
    orientation = quat_multiply(to_z_up, log.orientation_quat_wxyz)
    return replace(log, positions_m=rotate(to_z_up, log.positions_m), orientation_quat_wxyz=orientation)

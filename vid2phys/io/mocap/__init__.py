"""Motion capture logs: `load_mocap` finds the format by content.

A format is one file here with `matches(text) -> bool` and `load(path, text, body, units) -> PoseLog`; it is found by
its file name. World axes are those of the file: Motive exports with y up unless told otherwise, so say `up_axis="y"`
then; nothing is turned unasked. Times are those of the file in seconds; gaps in the poses are NaN.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from vid2phys.errors import InputError, UsageError
from vid2phys.io.files import read_text
from vid2phys.io.mocap._poses import LENGTH_UNITS
from vid2phys.rotations import quat_from_rotvec, quat_multiply, rotate
from vid2phys.types import PoseLog

_A_LOG = "a motion capture log (OptiTrack Motive CSV, TUM, EuRoC, or CSV with time, position and quaternion columns)"
# Rotations that bring the named axis up to z, keeping x (for x itself, keeping y).
_TO_Z_UP = {"y": np.array([np.pi / 2, 0.0, 0.0]), "x": np.array([0.0, -np.pi / 2, 0.0])}


def formats() -> tuple[str, ...]:
    """Names of the formats, by the files of this folder."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


def load_mocap(path: str | Path, body: str | None = None, units: str | None = None, *, up_axis: str = "z") -> PoseLog:
    """Reads the poses of one body.

    body: its name, needed where the file has several. units: of length (m, cm, mm ...), for files that do not say.
    up_axis: the file's vertical axis; the world is turned so that it becomes z. Raises InputError for what cannot be
    read and, by row, for times that are not finite or do not increase.
    """
    if units is not None and units not in LENGTH_UNITS:
        raise UsageError(f"unknown length unit '{units}'", f"one of {', '.join(LENGTH_UNITS)}", "choose one of them")
    if up_axis not in ("x", "y", "z"):
        raise UsageError(f"unknown axis '{up_axis}'", "one of x, y, z", "choose the axis that points up in the log")
    text = read_text(path, _A_LOG)
    for name in formats():
        module = importlib.import_module(f"{__name__}.{name}")
        if module.matches(text):
            log: PoseLog = module.load(path, text, body, units)
            return _turned(log, up_axis)
    raise InputError(f"'{path}' is in none of the known formats", _A_LOG, "export it as Motive CSV or TUM")


def _turned(log: PoseLog, up_axis: str) -> PoseLog:
    if up_axis == "z":
        return log
    turn = quat_from_rotvec(_TO_Z_UP[up_axis])
    orientation = quat_multiply(turn, log.orientation_quat_wxyz)
    return replace(log, positions_m=rotate(turn, log.positions_m), orientation_quat_wxyz=orientation)

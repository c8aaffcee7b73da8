"""What the mocap formats share: units, checks of times and quaternions, and the making of a PoseLog."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.io.table import require_increasing
from vid2phys.types import Array, PoseLog

LENGTH_UNITS = {"m": 1.0, "dm": 0.1, "cm": 1e-2, "mm": 1e-3, "in": 0.0254, "ft": 0.3048}
_LARGEST_M = 100.0  # of a capture volume; beyond it the unit is most likely another
_NORM_TOLERANCE = 0.05


def length_scale(path: str | Path, found: str | None, given: str | None) -> float:
    """Metres per unit of the file. Raises InputError when the caller's unit contradicts the file's."""
    if found is not None and given is not None and found != given:
        raise InputError(f"'{path}' says its lengths are in {found}", f"the same as given, {given}", "drop the unit")
    return LENGTH_UNITS[found or given or "m"]


def make_log(
    path: str | Path, times_s: Array, positions_m: Array, quat_wxyz: Array, row_of: NDArray[np.int64], name: str
) -> PoseLog:
    """A checked PoseLog; a pose with any blank or NaN is a gap. row_of: [T] rows of the file, for the errors."""
    if not len(times_s):
        raise InputError(f"'{path}' has no rows", "at least one pose", "export the take again")
    require_increasing(path, times_s, row_of)
    seen = ~np.isnan(np.hstack([positions_m, quat_wxyz]).sum(axis=1))
    if not seen.any():
        raise InputError(f"body '{name}' in '{path}' has no pose at all", "at least one", "choose another body or take")
    norms: Array = np.linalg.norm(quat_wxyz, axis=1)
    bad = np.flatnonzero(seen & (np.abs(norms - 1.0) > _NORM_TOLERANCE))
    if len(bad):
        got = f"row {row_of[bad[0]]} of '{path}' has a quaternion of length {norms[bad[0]]:.3g}"
        raise InputError(got, "unit quaternions", "check the order of the columns")
    largest = float(np.abs(positions_m[seen]).max())
    if largest > _LARGEST_M:
        remedy = "if the log is in millimetres give --mocap-units mm"
        raise InputError(f"'{path}' has positions up to {largest:.4g} m", f"at most {_LARGEST_M:g} m", remedy)
    positions = np.where(seen[:, None], positions_m, np.nan)
    orientation = np.where(seen[:, None], quat_wxyz / np.where(seen, norms, 1.0)[:, None], np.nan)
    return PoseLog(times_s, positions, orientation, name)

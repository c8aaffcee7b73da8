"""Parse what the mocap formats share: options of the user, units, rotations, checks, and the making of a PoseLog."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.io.files import Source
from vid2phys.io.mocap._lost import FAR_M, lost_rows
from vid2phys.io.table import require_increasing
from vid2phys.types import Array, PoseLog

LENGTH_UNITS = {"m": 1.0, "dm": 0.1, "cm": 1e-2, "mm": 1e-3, "in": 0.0254, "ft": 0.3048}
ANGLE_UNITS = {"deg": np.pi / 180.0, "rad": 1.0}
# Capital letters: about the body's own axes, one after the other; small ones: about fixed axes. Or a rotation vector.
EULER_ORDERS = (*("".join(axes) for letters in ("XYZ", "xyz") for axes in permutations(letters)), "rotvec")
A_LOG = "a motion capture log (Motive CSV, Vicon CSV, C3D, TUM, EuRoC, or CSV with time, position and rotation columns)"
_NORM_TOLERANCE = 0.05
_NO_ROTATION = 1e-6  # length of a quaternion of zeros
_LARGEST_LOG_BYTES = 1 << 28  # bytes
_MOST_BODIES_LISTED = 24


@dataclass(frozen=True)
class Asked:
    """Options of the user, for what a file leaves open: body, unit of length, order and unit of its Euler angles."""

    body: str | None = None
    units: str | None = None
    euler: str | None = None
    angle_units: str | None = None


def read_source(path: str | Path) -> Source:
    """Return the file. Raises InputError for a file that is missing, empty or far too large."""
    remedy = "export the part of the take that the clip shows"
    return Source.read(path, A_LOG, _LARGEST_LOG_BYTES, remedy, "latin-1")  # names and degree signs of older exports


def length_scale(path: str | Path, found: str | None, given: str | None) -> float:
    """Return metres per unit of the file. Raises InputError when the user's unit contradicts the file's."""
    if found is not None and given is not None and found != given:
        raise InputError(f"'{path}' says its lengths are in {found}", f"the same as given, {given}", "drop the unit")
    return LENGTH_UNITS[found or given or "m"]


def require_length_scale(path: str | Path, found: str | None, given: str | None) -> float:
    """Return metres per unit, of a format whose files name their unit. Raises InputError when this one does not."""
    if found is None and given is None:
        raise InputError(f"'{path}' does not say its length unit", "m, cm or mm", "give --mocap-units")
    return length_scale(path, found, given)


def euler_quats(path: str | Path, angles: Array, units: str | None, asked: Asked, order: str | None = None) -> Array:
    """Return quaternions wxyz, [T, 4], of angles about x, y and z, [T, 3]; rows with a NaN are NaN.

    units, order: of the file. Raises InputError for what neither the file nor the user gives.
    """
    from scipy.spatial.transform import Rotation

    order = order or asked.euler
    if order is None:
        expected = f"one of {', '.join(EULER_ORDERS)} (capitals: about the body's own axes, small: about fixed ones)"
        raise InputError(f"'{path}' has three angles and not their order", expected, "give it with --euler")
    units = units or asked.angle_units
    if units is None:
        raise InputError(f"'{path}' does not say the unit of its angles", "deg or rad", "give it with --euler-units")
    seen = np.isfinite(angles).all(axis=1)
    quats = np.full((len(angles), 4), np.nan)
    radians = angles[seen] * ANGLE_UNITS[units]
    if order == "rotvec":
        rotation = Rotation.from_rotvec(radians)
    else:
        rotation = Rotation.from_euler(order, radians[:, ["xyz".index(axis) for axis in order.lower()]])
    quats[seen] = np.roll(rotation.as_quat(), 1, axis=-1)
    return quats


def choose_body(path: str | Path, names: list[str], wanted: str | None, what: str = "bodies") -> str:
    """Return `wanted`, or the only name. Raises InputError listing the names when there are several, or none fits."""
    listed = ", ".join(names[:_MOST_BODIES_LISTED]) + (
        f" ... ({len(names)})" if len(names) > _MOST_BODIES_LISTED else ""
    )
    if wanted is None and len(names) > 1:
        raise InputError(f"'{path}' has {len(names)} {what}", f"one of {listed}", "choose it with --body")
    if wanted is not None and wanted not in names:
        raise InputError(f"'{path}' has no body '{wanted}'", f"one of {listed}", "choose it with --body")
    return wanted or names[0]


def make_log(
    path: str | Path, times_s: Array, positions_m: Array, quat_wxyz: Array, row_of: NDArray[np.int64], name: str
) -> PoseLog:
    """Return a checked PoseLog; rows without a pose, or in which the tracker had lost the body, become counted gaps.

    row_of: [T] rows of the file, for the errors. Raises InputError for a log without any pose, times that do not
    increase, quaternions that are none, and places too far away.
    """
    if not len(times_s):
        raise InputError(f"'{path}' has no rows", "at least one pose", "export the take again")
    require_increasing(path, times_s, row_of)
    norms: Array = np.linalg.norm(quat_wxyz, axis=1)
    seen: NDArray[np.bool_] = np.isfinite(positions_m).all(axis=1) & np.isfinite(norms) & (norms > _NO_ROTATION)
    lost = {"without a pose": ~seen} if not seen.all() else {}
    if not seen.any():
        raise InputError(f"body '{name}' in '{path}' has no pose at all", "at least one", "choose another body or take")
    bad = np.flatnonzero(seen & (np.abs(norms - 1.0) > _NORM_TOLERANCE))
    if len(bad):
        got = f"row {row_of[bad[0]]} of '{path}' has a quaternion of length {norms[bad[0]]:.3g}"
        raise InputError(got, "unit quaternions", "check the order of the columns")
    quats = quat_wxyz / np.where(seen, norms, 1.0)[:, None]
    kept = np.flatnonzero(seen)
    for what, rows in lost_rows(PoseLog(times_s[kept], positions_m[kept], quats[kept])).items():
        lost[what] = np.zeros(len(times_s), dtype=bool)
        lost[what][kept] = rows
        seen &= ~lost[what]
    largest = float(np.abs(positions_m[seen]).max())
    if largest > FAR_M:
        remedy = "if the log is in millimetres give --mocap-units mm, in centimetres cm"
        raise InputError(f"'{path}' has positions up to {largest:.4g} m", f"at most {FAR_M:g} m", remedy)
    positions = np.where(seen[:, None], positions_m, np.nan)
    orientation = np.where(seen[:, None], quats, np.nan)
    counts = {what: int(rows.sum()) for what, rows in lost.items()}
    return PoseLog(times_s, positions, orientation, name, counts)

"""Read the readout of a rolling shutter from the keys of a camera file.

`readout_s` and `readout_from` are this tool's. `rolling_shutter_tr` (VINS-Mono) means the same as `readout_s`.
`line_delay` is the time from row to row, as Kalibr's `kalibr_calibrate_rs_cameras` prints it. All are in seconds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from vid2phys.errors import InputError
from vid2phys.io.camera._parse import first_of, not_negative, own_keys
from vid2phys.types import Camera, Side

SIDES: tuple[str, ...] = get_args(Side)


def with_readout(path: str | Path, data: Any, camera: Camera) -> Camera:
    """Return the camera with the readout of its file's mapping, at the top or under the camera's name.

    Raises InputError for a readout that is negative or no number, for two that differ, and for an unknown side.
    """
    keys = own_keys(data, camera.name)
    found = {name: value for name in ("readout_s", "rolling_shutter_tr") if (value := _seconds(path, keys, name))}
    if line_s := _seconds(path, keys, "line_delay"):
        found["line_delay"] = line_s * camera.height
    if len(found) > 1 and max(found.values()) > 1.001 * min(found.values()):
        got = f"{' and '.join(found)} in '{path}' contradict each other"
        raise InputError(got, "one readout", "keep the right one")
    side = first_of(keys, "readout_from") or "top"
    return replace(camera, readout_s=next(iter(found.values()), 0.0), readout_from=checked_side(side))


def checked_side(side: object) -> Any:
    """Return a side of the frame. Raises InputError for anything else."""
    if side not in SIDES:
        expected = f"one of {', '.join(SIDES)}"
        raise InputError(f"readout_from '{side}'", expected, "name the side of the frame that is exposed first")
    return side


def _seconds(path: str | Path, keys: dict[str, Any], name: str) -> float:
    return not_negative(path, keys, name, "seconds", "give the side that comes first as readout_from: bottom")

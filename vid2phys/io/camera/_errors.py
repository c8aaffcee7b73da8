"""Read the standard deviations of a calibration from the keys of a camera file.

`focal_std` is that of the focal length, as a share of it; `direction_std_deg` that of the camera's rotation about each
axis. Both are this tool's: `vid2phys calibrate` writes them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.camera._parse import not_negative, own_keys
from vid2phys.types import Camera

_LARGEST_SHARE, _LARGEST_DEG = 0.5, 30.0  # a camera that is known worse is not calibrated
_REMEDY = "calibrate again with `vid2phys calibrate`"


def with_errors(path: str | Path, data: Any, camera: Camera) -> Camera:
    """Return the camera with the standard deviations of its file's mapping, at the top or under the camera's name.

    Raises InputError for one that is negative, no number, or too large for a calibrated camera.
    """
    keys = own_keys(data, camera.name)
    share = not_negative(path, keys, "focal_std", "a share of the focal length", _REMEDY)
    degrees = not_negative(path, keys, "direction_std_deg", "degrees", _REMEDY)
    if share > _LARGEST_SHARE:
        expected = f"a share of the focal length, up to {_LARGEST_SHARE:g}"
        raise InputError(f"focal_std {share:g} in '{path}'", expected, "0.01 is 1 %")
    if degrees > _LARGEST_DEG:
        raise InputError(f"direction_std_deg {degrees:g} in '{path}'", f"up to {_LARGEST_DEG:g} deg", _REMEDY)
    return replace(camera, focal_std=share, direction_std_rad=float(np.radians(degrees)))

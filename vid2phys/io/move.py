"""Move a mesh to the body's axes and origin, by the text of `--mesh-move`."""

from __future__ import annotations

import numpy as np

from vid2phys.errors import UsageError
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.types import Array

_FORM = "steps like x:90 (degrees about x, y or z) or shift:0:0:-0.02 (metres), with commas between"
_SMALLEST = 1e-12  # smaller entries are rounding: the cosine of 90 degrees is not exactly 0


def parse_move(text: str, flag: str = "--mesh-move") -> tuple[Array, Array]:
    """Return the rotation [3, 3] and the shift [3] m of steps, done one after the other about fixed axes.

    flag: the option, for errors. Raises UsageError for anything but such steps.
    """
    rotation, shift = np.eye(3), np.zeros(3)
    for step in text.split(","):
        name, *numbers = step.strip().lower().split(":")
        try:
            values = np.array([float(number) for number in numbers])
        except ValueError:
            values = np.full(0, np.nan)
        if name in ("x", "y", "z") and values.shape == (1,) and np.isfinite(values).all():
            axis = np.eye(3)["xyz".index(name)]
            about_axis = matrix_from_rotvec(np.deg2rad(values[0]) * axis)
            about_axis = np.where(np.abs(about_axis) < _SMALLEST, 0.0, about_axis)
            rotation, shift = about_axis @ rotation, about_axis @ shift
        elif name == "shift" and values.shape == (3,) and np.isfinite(values).all():
            shift = shift + values
        else:
            raise UsageError(f"{flag} {text}", _FORM, f"for example {flag} x:90")
    return rotation, shift


def moved(points: Array, move: str | None) -> Array:
    """Return points [N, 3] m after `move`, the text of the option; None leaves them. Raises UsageError."""
    if move is None:
        return points
    rotation, shift = parse_move(move)
    return points @ rotation.T + shift

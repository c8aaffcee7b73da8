"""What the names of a system's coordinates tell: which is the rate of which, and which are angles.

A rate is named after what it is the rate of, with `_s` after the unit: `elbow_rad` and `elbow_rad_s`. Positions have
velocities, rotations and angles have angular velocities: `position_x_m` and `velocity_x_m_s`.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

NO_RATE = -1
_COORDINATE = re.compile(r"(?P<quantity>.*)_(?P<unit>rad|m)(?P<place> of .*)?")
_RATES = {"position": "velocity", "rotation": "angular_velocity", "angle": "angular_velocity"}


def rates(names: tuple[str, ...]) -> NDArray[np.int64]:
    """Return for each tangent coordinate the index of its rate, `NO_RATE` where it has none, [D]."""
    index = {name: i for i, name in enumerate(names)}
    return np.array([next((index[r] for r in _rate_names(name) if r in index), NO_RATE) for name in names])


def angles(names: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the indices of the names that are angles in rad."""
    return np.flatnonzero([_without_place(name).endswith("_rad") for name in names])


def turning(names: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the indices of the names that are angles in rad or their rates in rad/s."""
    return np.flatnonzero([_without_place(name).endswith(("_rad", "_rad_s")) for name in names])


def quaternions(names: tuple[str, ...]) -> list[list[int]]:
    """Return where the quaternions are in a state, four indices each."""
    first = [i for i, name in enumerate(names) if "quat_w" in name]
    return [list(range(i, i + 4)) for i in first]


def _without_place(name: str) -> str:
    """Return a name without the vertex or point that it is of."""
    return name.partition(" of ")[0]


def _rate_names(name: str) -> list[str]:
    """Return the names that the rate of a coordinate may have."""
    match = _COORDINATE.fullmatch(name)
    if match is None:
        return []
    first, _, rest = match["quantity"].partition("_")
    quantities = [match["quantity"], "_".join(filter(None, (_RATES.get(first, first), rest)))]
    return [f"{quantity}_{match['unit']}_s{match['place'] or ''}" for quantity in quantities]

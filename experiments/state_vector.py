"""States as the vectors in which RISP (Ma, Du et al., ICLR 2022) measures errors.

A rigid body has position and rotation (eq. 18), as sines and cosines of roll, pitch and yaw. The hand has its joint
angles, the rod the heights of its sensors.

Limits: the systems of the paper only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vid2phys.engine.system import System
from vid2phys.errors import UsageError
from vid2phys.geometry import matrix_from_quat
from vid2phys.types import Array


def state_vector(system: System, states: Array, half_range_m: Array | float = 1.0) -> Array:
    """Return the vectors of states [..., N]: [..., 9] of a rigid body, [..., 13] of the hand, [..., 10] of the rod.

    half_range_m: divisor of lengths, [3] or one number. Raises UsageError for a system that the paper does not have.
    """
    if system.name not in _VECTORS:
        known = ", ".join(sorted(_VECTORS))
        raise UsageError(f"no state vector of the paper for '{system.name}'", f"one of {known}", "choose one of them")
    return _VECTORS[system.name](system, np.asarray(states, dtype=float), half_range_m)


def rigid_vector(position_m: Array, rotation: Array, half_range_m: Array | float = 1.0) -> Array:
    """Return eq. 18: positions [..., 3] m and rotations world_from_body [..., 3, 3] -> [..., 9].

    Position over half its range, then the sines, then the cosines of roll, pitch and yaw (R = R_z R_y R_x).
    """
    sin_pitch = np.clip(-rotation[..., 2, 0], -1.0, 1.0)
    roll = np.arctan2(rotation[..., 2, 1], rotation[..., 2, 2])
    yaw = np.arctan2(rotation[..., 1, 0], rotation[..., 0, 0])
    angles = np.stack([roll, np.arcsin(sin_pitch), yaw], axis=-1)
    return np.concatenate([position_m / half_range_m, np.sin(angles), np.cos(angles)], axis=-1)


def _rigid(system: System, states: Array, half_range_m: Array | float) -> Array:
    position, quat = system.body_pose(states)
    return rigid_vector(position, matrix_from_quat(quat), half_range_m)


def _joint_angles(system: System, states: Array, half_range_m: Array | float) -> Array:
    return states[..., : states.shape[-1] // 2]


def _sensor_heights(system: System, states: Array, half_range_m: Array | float) -> Array:
    spine_m: Array = system.spine_m  # type: ignore[attr-defined]
    return system.keypoints(states, spine_m)[..., 2] / half_range_m


_VECTORS: dict[str, Callable[[System, Array, Array | float], Array]] = {
    "quadrotor": _rigid,
    "rigid_contact": _rigid,
    "cube": _rigid,
    "hand": _joint_angles,
    "rod": _sensor_heights,
}

"""A smooth flight along noisy places, for a controller to follow.

The quadrotor tilts as the acceleration asks (Mellinger and Kumar, "Minimum snap trajectory generation and control for
quadrotors", ICRA 2011). Limit: headings are about +z, and the flight is never upside down.
"""

from __future__ import annotations

import numpy as np
from scipy.interpolate import make_smoothing_spline

from vid2phys.geometry import quat_conjugate, quat_from_rotvec, quat_multiply, rotvec_from_quat
from vid2phys.types import Array

_RATE_STEP_S = 1e-3  # of the differences that rates are


def smooth_reference(
    times_s: Array, positions: Array, headings: Array, gravity: float, *, axes: Array | None = None
) -> Array:
    """Return what a controller follows: states [T, 13] at positions [T, 3] m with headings [T] rad, both smoothed.

    Tilted as the acceleration asks (Mellinger and Kumar, "Minimum snap trajectory generation and control for
    quadrotors", ICRA 2011). axes: [3, 3], columns in the world, along which errors of positions are independent: each
    coordinate there is a spline as smooth as generalised cross-validation finds best (Craven and Wahba, 1979).
    """
    axes = np.eye(3) if axes is None else axes
    seen = np.column_stack([positions @ axes, np.unwrap(headings)])
    splines = [make_smoothing_spline(times_s, column) for column in seen.T]

    def places(at: Array, order: int) -> Array:
        return np.stack([spline(at, order) for spline in splines[:3]], axis=1) @ axes.T

    def attitudes(at: Array) -> Array:
        up = places(at, 2)
        up[:, 2] += gravity
        up /= np.linalg.norm(up, axis=1, keepdims=True)
        axis = np.cross([0.0, 0.0, 1.0], up)
        tilt = quat_from_rotvec(axis / np.sinc(np.arccos(up[:, 2:]) / np.pi))
        return quat_multiply(tilt, quat_from_rotvec(splines[3](at)[:, None] * [0.0, 0.0, 1.0]))

    before, after = (attitudes(times_s + sign * _RATE_STEP_S) for sign in (-0.5, 0.5))
    rates = rotvec_from_quat(quat_multiply(quat_conjugate(before), after)) / _RATE_STEP_S
    return np.concatenate([places(times_s, 0), attitudes(times_s), places(times_s, 1), rates], axis=1)

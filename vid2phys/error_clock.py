"""Compute the clock in which a network's errors are correlated.

A wrong detection repeats in the next image if that shows the same sides of the body: errors last while the body is
static and change as it rotates. On held-out clips of a cube that rotates at 3.5, 5.1 and 7.4 rad/s aligned rotations
are correlated over 0.11, 0.09 and 0.05 s, which is 0.4 rad each time. So correlation times are given for a body that
rotates at `TURN_RATE_RAD_S`, and the clock runs as fast as the body rotates against the camera.
"""

from __future__ import annotations

import numpy as np

from vid2phys.geometry import angle_between, quat_from_matrix
from vid2phys.types import Array

TURN_RATE_RAD_S = 3.0
_SLOWEST = 0.1  # of a static body, whose images still differ by noise and codec
_REACH_S = 0.1  # over which a rotation is measured, either way: single detections jitter


def error_clock(times_s: Array, rotation: Array) -> Array:
    """Return the clock [T] s of frames at times_s [T] s.

    rotation: camera_from_body [T, 3, 3], NaN where it is unknown.
    """
    known = np.flatnonzero(np.isfinite(rotation).all(axis=(1, 2)))
    if len(known) < 2:
        return times_s
    times, quat = times_s[known], quat_from_matrix(rotation[known])
    before = np.minimum(np.searchsorted(times, times - _REACH_S), np.maximum(np.arange(len(times)) - 1, 0))
    after = np.maximum(np.searchsorted(times, times + _REACH_S, side="right") - 1, before + 1)
    rate = angle_between(quat[after], quat[before]) / (times[after] - times[before])
    speed = np.maximum(np.interp(times_s, times, rate) / TURN_RATE_RAD_S, _SLOWEST)
    return np.asarray(
        times_s[0] + np.concatenate([[0.0], np.cumsum(0.5 * (speed[1:] + speed[:-1]) * np.diff(times_s))])
    )

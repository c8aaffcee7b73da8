"""The clock by which a network's errors forget.

What is read wrongly in an image is read wrongly again in the next one, if that shows the same sides of the body:
errors last while it rests and change as it turns. On held-out clips of a cube that turns at 3.5, 5.1 and 7.4 rad/s
aligned rotations are correlated over 0.11, 0.09 and 0.05 s, which is 0.4 rad each time. So correlation times are stated
for a body that turns at `TURN_RATE_RAD_S`, and a clock runs as fast as it turns against the camera.
"""

from __future__ import annotations

import numpy as np

from vid2phys.geometry import angle_between, quat_from_matrix
from vid2phys.types import Array

TURN_RATE_RAD_S = 3.0
_SLOWEST = 0.1  # of a body at rest, whose images still differ by noise and codec
_REACH_S = 0.1  # over which a turn is measured, either way: single readings jitter


def error_clock(times_s: Array, rotation: Array) -> Array:
    """The clock [T] s of frames at times_s [T] with orientations camera_from_body [T, 3, 3], NaN where not known."""
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

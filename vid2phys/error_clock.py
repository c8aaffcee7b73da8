"""The clock of errors: the time by which a network's errors decorrelate.

A wrong detection recurs in the next image if that shows the same sides of the body. Errors therefore last while the
body is at rest before the camera, and change as it rotates. On held-out clips of a cube that rotates at 3.5, 5.1 and
7.4 rad/s, the errors of aligned rotations are correlated over 0.11, 0.09 and 0.05 s, 0.4 rad each time. Correlation
times are stated for a body that rotates at `TURN_RATE_RAD_S`, and the clock runs in proportion to the rotation.

Limits: a translation that changes what is visible does not drive the clock.
"""

from __future__ import annotations

import numpy as np

from vid2phys.geometry import angle_between, quat_from_matrix
from vid2phys.types import Array

TURN_RATE_RAD_S = 3.0
_SLOWEST = 0.1  # least speed of the clock: noise and codec change images of a body at rest
_REACH_S = 0.1  # rotations are measured over this time either way, since single detections jitter


def error_clock(times_s: Array, rotation: Array) -> Array:
    """Return the clock of errors at frames.

    Args:
        times_s: [T] times of the frames, s.
        rotation: [T, 3, 3] orientations camera_from_body, NaN where unknown.

    Returns:
        Times [T] by the clock, s.
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

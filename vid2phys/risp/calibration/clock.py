"""The clock by which a network's errors forget.

What is read wrongly in a picture is read wrongly again in the next one, if that shows the same sides of the body:
errors last while it rests and change as it turns. On held-out clips of a cube that turns at 3.5, 5.1 and 7.4 rad/s
aligned rotations are correlated over 0.11, 0.09 and 0.05 s, which is 0.4 rad each time. So correlation times are stated
for a body that turns at `TURN_RATE_RAD_S`, and a clock runs as fast as it turns against the camera. Bodies that bend
look different as they do: errors of a hand whose fingers swing to and fro in half a second come back with the fingers,
and are alike over a way in postures, whatever the time. Theirs are stated for a body that bends at `BEND_RATE`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.rotations import angle_between, quat_from_matrix
from vid2phys.types import Array

TURN_RATE_RAD_S = 3.0
BEND_RATE = 3.0  # 1/s, standard deviations of a posture's coordinates, root mean square over them
_SLOWEST = 0.1  # of a body at rest, whose pictures still differ by noise and codec
_REACH_S = 0.1  # over which a turn is measured, either way: single readings jitter


def error_clock(times_s: Array, rotation: Array) -> Array:
    """The clock [T] s of frames at times_s [T] with orientations camera_from_body [T, 3, 3], NaN where not known."""
    known = np.flatnonzero(np.isfinite(rotation).all(axis=(1, 2)))
    if len(known) < 2:
        return times_s
    times, quat = times_s[known], quat_from_matrix(rotation[known])
    before, after = _ends(times)
    rate = angle_between(quat[after], quat[before]) / (times[after] - times[before])
    return _running(times_s, times, rate / TURN_RATE_RAD_S)


def posture_clock(times_s: Array, postures: Array) -> Array:
    """The clock [T] s of frames at times_s [T] with postures [T, D] in standard deviations of what is usual, NaN where
    not known."""
    known = np.flatnonzero(np.isfinite(postures).all(axis=1))
    if len(known) < 2:
        return times_s
    times, path = times_s[known], postures[known]
    slopes = []
    for first, last in zip(*_ends(times), strict=True):
        near = times[first : last + 1] - times[first : last + 1].mean()
        slopes.append(near @ path[first : last + 1] / (near @ near))
    return _running(times_s, times, np.sqrt((np.array(slopes) ** 2).mean(axis=1)) / BEND_RATE)


def _ends(times: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first and the last of the frames [N] about each, over which its change is measured."""
    before = np.minimum(np.searchsorted(times, times - _REACH_S), np.maximum(np.arange(len(times)) - 1, 0))
    return before, np.maximum(np.searchsorted(times, times + _REACH_S, side="right") - 1, before + 1)


def _running(times_s: Array, times: Array, speed: Array) -> Array:
    """The clock [T] at times_s [T] that runs at speeds [N] at times [N]."""
    speed = np.maximum(np.interp(times_s, times, speed), _SLOWEST)
    return np.asarray(
        times_s[0] + np.concatenate([[0.0], np.cumsum(0.5 * (speed[1:] + speed[:-1]) * np.diff(times_s))])
    )

"""Frames in which the object could not be read by itself, read where the frames around them say it is.

A symmetric body has to be called by one of its labellings; where two fit alike, or where much of it is hidden, a
network is torn, while the frames before and after are plain. Between them the body turns steadily, and its points are
read near where that puts them (`heatmaps.decode_near`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.pnp import PoseEstimate, known_pose
from vid2phys.geometry import Pose, angle_between, matrix_from_quat, quat_from_matrix, slerp
from vid2phys.tracking.detectors.search import Watch
from vid2phys.tracking.first_pass import FrameStore
from vid2phys.tracking.track import Track
from vid2phys.types import Array

REACH_S = 0.25  # between two frames that were read; a turn in between goes on for no longer
_MOST_TURN_RAD = np.radians(100.0)  # from one to the other, beyond which the way is not known
_AGREES_RAD = np.radians(25.0)  # with what was expected
_MIN_POINTS = 6
_BATCH = 16


def filled(track: Track, watch: Watch, frames: FrameStore) -> Track:
    """The track with gaps filled as far as their frames can be read."""
    lost, expected = _between(track)
    for start in range(0, len(lost), _BATCH):
        part = slice(start, start + _BATCH)
        images = [frames[int(i)] for i in lost[part]]
        seen = watch.reinitialise(images, expected[part])
        good = watch.judge(images, seen)[0] & (seen.poses.inliers[:, 0].sum(axis=-1) >= _MIN_POINTS)
        good &= _apart(seen.poses.rotation[:, 0], expected.rotation[part]) < _AGREES_RAD
        if good.any():
            some = seen.select(good)
            count, points = some.bearings.shape[:2]
            as_read = np.zeros(count, dtype=np.int64)
            own = np.broadcast_to(np.arange(points), (count, points))
            track = track.seeing(
                lost[part][good], some, some.poses[:, 0], some.quality[:, 0], as_read, own, watch.calibration
            )
    return track


def _between(track: Track) -> tuple[NDArray[np.int64], PoseEstimate]:
    """Lost frames [N] with others close by on both sides, and the poses [N] that these put the object in."""
    times, known = track.observation.times_s, np.flatnonzero(track.tracked)
    lost = np.flatnonzero(~track.tracked)
    after = np.searchsorted(known, lost)
    inner = (after > 0) & (after < len(known))
    lost, before, after = lost[inner], known[after[inner] - 1], known[after[inner]]
    rotation, translation = track.poses.rotation, track.poses.translation
    near = (times[after] - times[before] <= REACH_S) & (_apart(rotation[before], rotation[after]) < _MOST_TURN_RAD)
    lost, before, after = lost[near], before[near], after[near]
    share = (times[lost] - times[before]) / (times[after] - times[before])
    turned = matrix_from_quat(slerp(quat_from_matrix(rotation[before]), quat_from_matrix(rotation[after]), share))
    place = translation[before] + share[:, None] * (translation[after] - translation[before])
    return lost, known_pose(Pose(turned, place))


def _apart(a: Array, b: Array) -> Array:
    """Angles [N] rad between rotations [N, 3, 3]."""
    return angle_between(quat_from_matrix(a), quat_from_matrix(b))

"""Fill gaps of a track: detect the object in lost frames near the poses that the adjacent frames predict.

A symmetric body needs one of several labellings. Where two fit alike, or where much of the body is hidden, the network
is undecided, while the frames before and after are clear. Between these the body rotates steadily, and its keypoints
are detected near the predicted ones (`heatmaps.decode_near`).

Limits: gaps of up to a quarter of a second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.pnp import PoseEstimate, known_pose
from vid2phys.geometry import Pose, angle_between, matrix_from_quat, quat_from_matrix, slerp
from vid2phys.tracking.detectors.search import ObjectDetector
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.track import Track
from vid2phys.types import Array


@dataclass(frozen=True, kw_only=True)
class GapConfig:
    """Settings of `filled`."""

    reach_s: float = 0.25
    """Largest time between the two tracked frames around a gap, s."""
    max_rotation_rad: float = float(np.radians(100.0))
    """Largest rotation between them, rad."""
    agreement_rad: float = float(np.radians(25.0))
    """Largest rotation between a detection and its prediction, rad."""
    min_points: int = 6
    """Least number of inlier keypoints."""
    batch: int = 16
    """Number of frames that are detected at once."""


DEFAULTS = GapConfig()


def filled(track: Track, detector: ObjectDetector, frames: FrameStore, config: GapConfig = DEFAULTS) -> Track:
    """Return the track with gaps filled where the object is detected."""
    lost, expected = _between(track, config)
    for start in range(0, len(lost), config.batch):
        part = slice(start, start + config.batch)
        images = [frames[int(i)] for i in lost[part]]
        seen = detector.at(lost[part]).reinitialise(images, expected[part])
        good = detector.judge(images, seen)[0] & (seen.poses.inliers[:, 0].sum(axis=-1) >= config.min_points)
        good &= _apart(seen.poses.rotation[:, 0], expected.rotation[part]) < config.agreement_rad
        if good.any():
            some = seen.select(good)
            count, points = some.bearings.shape[:2]
            as_detected = np.zeros(count, dtype=np.int64)
            own = np.broadcast_to(np.arange(points), (count, points))
            track = track.seeing(
                lost[part][good], some, some.poses[:, 0], some.quality[:, 0], as_detected, own, detector.calibration
            )
    return track


def _between(track: Track, config: GapConfig) -> tuple[NDArray[np.int64], PoseEstimate]:
    """Return lost frames [N] with tracked ones close by on both sides, and the poses [N] between these."""
    times, known = track.observation.times_s, np.flatnonzero(track.tracked)
    lost = np.flatnonzero(~track.tracked)
    after = np.searchsorted(known, lost)
    inner = (after > 0) & (after < len(known))
    lost, before, after = lost[inner], known[after[inner] - 1], known[after[inner]]
    rotation, translation = track.poses.rotation, track.poses.translation
    near = (times[after] - times[before] <= config.reach_s) & (
        _apart(rotation[before], rotation[after]) < config.max_rotation_rad
    )
    lost, before, after = lost[near], before[near], after[near]
    share = (times[lost] - times[before]) / (times[after] - times[before])
    rotated = matrix_from_quat(slerp(quat_from_matrix(rotation[before]), quat_from_matrix(rotation[after]), share))
    place = translation[before] + share[:, None] * (translation[after] - translation[before])
    return lost, known_pose(Pose(rotated, place))


def _apart(a: Array, b: Array) -> Array:
    """Return the angles [N] between rotations [N, 3, 3], rad."""
    return angle_between(quat_from_matrix(a), quat_from_matrix(b))

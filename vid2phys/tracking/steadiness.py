"""Measure how steadily tracked poses move: single poses that err jump about the motion.

A body moves smoothly between impacts, so that second differences over three frames are small. Their median is hardly
changed by impacts, and needs no truth. Poses that were found wrongly jump by tens of degrees, and in distance. A body
that is found upside down in part of a clip jumps once.

Limits: a pose that is wrong in the same way in all frames moves steadily, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import Pose, quat_from_matrix, rotvec_from_quat
from vid2phys.types import Array


@dataclass(frozen=True)
class Steadiness:
    """How far poses are off the middle of those before and after, and how far they move; medians over a clip.

    Attributes:
        jitter_deg: second difference of the rotation that is seen, deg.
        jitter_distance: second difference of the logarithm of the distance.
        step_deg: rotation from frame to frame, deg.
        jump_deg: largest rotation between two frames that those before and after share, deg; it is no median.
    """

    jitter_deg: float
    jitter_distance: float
    step_deg: float
    jump_deg: float


def steadiness(poses: Pose, tracked: NDArray[np.bool_], axes: Sequence[Array] = ()) -> Steadiness | None:
    """Return the steadiness of poses [T] camera_from_body; None without three tracked frames in a row.

    axes: of revolution, if the body has one; two of a ball. Rotations about them are not seen.
    """
    middle = 1 + np.flatnonzero(tracked[:-2] & tracked[1:-1] & tracked[2:])
    if not len(middle):
        return None
    log_m = np.log(np.linalg.norm(poses.translation, axis=-1))
    distance = np.abs(log_m[middle + 1] - 2.0 * log_m[middle] + log_m[middle - 1])
    before, now, after = (poses.rotation[middle + k] for k in (-1, 0, 1))
    if len(axes) == 1:
        jitter = np.linalg.norm((before - 2.0 * now + after) @ axes[0], axis=-1)
    elif len(axes) > 1:
        jitter = np.zeros(len(middle))
    else:
        first, second = now @ np.swapaxes(before, -1, -2), after @ np.swapaxes(now, -1, -2)
        jitter = _angle(second @ np.swapaxes(first, -1, -2))
    four = 1 + np.flatnonzero(tracked[:-3] & tracked[1:-2] & tracked[2:-1] & tracked[3:])
    a, b, c, d = (poses.rotation[four + k] for k in (-1, 0, 1, 2))
    jump = np.minimum(_apart(b, c, axes), _apart(a, d, axes)).max(initial=0.0)  # one frame that errs is none
    step = np.median(_apart(before, now, axes))
    return Steadiness(
        *(float(np.degrees(np.median(jitter))), float(np.median(distance))), float(np.degrees(step)), np.degrees(jump)
    )


def _apart(one: Array, other: Array, axes: Sequence[Array]) -> Array:
    """Return the angles [N] between orientations [N, 3, 3], or of the axis of revolution, rad."""
    if len(axes) > 1:
        return np.zeros(len(one))
    if len(axes) == 1:
        return np.asarray(2.0 * np.arcsin(np.minimum(0.5 * np.linalg.norm((one - other) @ axes[0], axis=-1), 1.0)))
    return _angle(other @ np.swapaxes(one, -1, -2))


def _angle(rotation: Array) -> Array:
    """Return the angles [N] of rotations [N, 3, 3], rad."""
    return np.asarray(np.linalg.norm(rotvec_from_quat(quat_from_matrix(rotation)), axis=-1))

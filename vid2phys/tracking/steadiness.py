"""Measure how steadily tracked poses move: single poses that err jump about the motion.

A body moves smoothly between impacts, so that third differences over four frames are small. Second differences are not:
at 10 deg a frame, an axis that rotates steadily has 1.7 deg. Medians are hardly changed by impacts, and need no truth.
Poses that were found wrongly jump by tens of degrees, and in distance. A body that is found upside down in part of a
clip jumps once.

Limits: a pose that is wrong in the same way in all frames moves steadily, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import Pose, quat_from_matrix, rotvec_from_quat
from vid2phys.types import Array

_SCALE = (6.0 / 20.0) ** 0.5  # of second over third differences of independent errors
_THIRD = _SCALE * np.array([-1.0, 3.0, -3.0, 1.0])


@dataclass(frozen=True)
class Steadiness:
    """How far poses are off a smooth motion, and how far they move; medians over a clip.

    Differences are scaled so that independent errors give the size of second differences, 2.4 times their own.

    Attributes:
        jitter_deg: third difference of the rotation that is seen, deg.
        jitter_distance: third difference of the logarithm of the distance.
        step_deg: rotation from frame to frame, deg.
        jump_deg: largest rotation between two frames that those before and after share, deg; it is no median.
    """

    jitter_deg: float
    jitter_distance: float
    step_deg: float
    jump_deg: float


def steadiness(poses: Pose, tracked: NDArray[np.bool_], axes: Sequence[Array] = ()) -> Steadiness | None:
    """Return the steadiness of poses [T] camera_from_body; None without four tracked frames in a row.

    axes: of revolution, if the body has one; two of a ball. Rotations about them are not seen.
    """
    four = np.flatnonzero(tracked[:-3] & tracked[1:-2] & tracked[2:-1] & tracked[3:])
    if not len(four):
        return None
    rotation = [poses.rotation[four + k] for k in range(4)]
    log_m = np.log(np.linalg.norm(poses.translation, axis=-1))
    distance = np.abs(_THIRD @ [log_m[four + k] for k in range(4)])
    if len(axes) == 1:
        jitter = np.linalg.norm(np.tensordot(_THIRD, [each @ axes[0] for each in rotation], 1), axis=-1)
    elif len(axes) > 1:
        jitter = np.zeros(len(four))
    else:
        steps = [_rotvec(after @ np.swapaxes(before, -1, -2)) for before, after in itertools.pairwise(rotation)]
        jitter = _SCALE * np.linalg.norm(steps[2] - 2.0 * steps[1] + steps[0], axis=-1)
    a, b, c, d = rotation
    jump = np.minimum(_apart(b, c, axes), _apart(a, d, axes)).max(initial=0.0)  # one frame that errs is none
    return Steadiness(
        jitter_deg=float(np.degrees(np.median(jitter))),
        jitter_distance=float(np.median(distance)),
        step_deg=float(np.degrees(np.median(_apart(a, b, axes)))),
        jump_deg=float(np.degrees(jump)),
    )


def _apart(one: Array, other: Array, axes: Sequence[Array]) -> Array:
    """Return the angles [N] between orientations [N, 3, 3], or of the axis of revolution, rad."""
    if len(axes) > 1:
        return np.zeros(len(one))
    if len(axes) == 1:
        return np.asarray(2.0 * np.arcsin(np.minimum(0.5 * np.linalg.norm((one - other) @ axes[0], axis=-1), 1.0)))
    return np.asarray(np.linalg.norm(_rotvec(other @ np.swapaxes(one, -1, -2)), axis=-1))


def _rotvec(rotation: Array) -> Array:
    """Return the rotation vectors [N, 3] of rotations [N, 3, 3], rad."""
    return rotvec_from_quat(quat_from_matrix(rotation))

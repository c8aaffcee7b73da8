"""Choose frames of a clip that are evenly spread over the time in which something moves, to learn the background from.

A body that rests for most of a clip is in few of these frames. In frames that are spread evenly over time it would be
there in most, and count for the background.

Limits: a static camera. What changes for a single frame counts as motion, such as a flash.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from vid2phys.indices import evenly
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.detectors.network import Image
from vid2phys.types import Array

_TRIED = 4  # frames that are compared, for each one that is chosen
_WIDTH_PX = 160  # of the frames that are compared, about
_LEAST_CHANGE, _NOISES = 10.0, 4.0  # of a pixel that changes: grey levels, and usual changes
_MOVING = 0.25  # motion from which on a frame counts in full, as a share of the mean between frames
_STILL = 0.1  # weight of a frame without motion
_RESTS = 0.3  # share of frames without motion from which on a body may rest for most of the clip


def evenly_in_motion(frames: Indexed, most: int) -> NDArray[np.int64]:
    """Return at most `most` frames in ascending order, evenly spread over the time in which something moves.

    Where hardly any frame is without motion, they are evenly spread over all of the time.
    """
    tried = evenly(len(frames), _TRIED * most)
    small = [_reduced(frames[i]) for i in tried.tolist()]
    motion = np.array([_changed(a, b) for a, b in itertools.pairwise(small)])
    if not motion.any() or (motion < _MOVING * motion.mean()).mean() < _RESTS:
        return evenly(len(frames), most)
    weight = np.clip(motion / motion.mean(), _STILL, 1.0)
    passed = np.concatenate([[0.0], np.cumsum(weight)])
    wanted = np.linspace(0.0, passed[-1], min(most, len(tried)))
    return tried[np.unique(np.abs(passed[:, None] - wanted).argmin(axis=0))]


def _reduced(frame: Image) -> Array:
    import cv2

    by = max(1, round(frame.shape[1] / _WIDTH_PX))
    size = (frame.shape[1] // by, frame.shape[0] // by)
    return np.asarray(cv2.resize(frame, size, interpolation=cv2.INTER_AREA), dtype=np.float32)


def _changed(one: Array, other: Array) -> float:
    """Return the share of pixels that change between two frames."""
    change = np.abs(one - other).max(axis=-1)
    return float((change > max(_LEAST_CHANGE, _NOISES * float(np.median(change)))).mean())

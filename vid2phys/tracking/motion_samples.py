"""Choose frames of a clip that are evenly spread over its motion, to learn the background from.

A body that rests for most of a clip is in few of these frames. In frames that are spread evenly over time it would be
there in most, and count for the background.

Limits: a static camera. What changes for a single frame counts as motion, such as a flash.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from vid2phys.indices import evenly
from vid2phys.tracking.background import Indexed, shrunk
from vid2phys.tracking.detectors.network import Image

_TRIED = 4  # frames that are compared, for each one that is chosen
_WIDTH_PX = 160  # of the frames that are compared, about
_LEAST_CHANGE, _NOISES = 10.0, 4.0  # of a pixel that changes: grey levels, and usual changes
_LEAST_MOTION = 0.25  # below which a frame is without motion, as a share of the mean between frames
_LEAST_WEIGHT = 0.1  # of such a frame; 1 is that of a frame with the mean motion or more
_RESTS = 0.3  # share of frames without motion from which on a body may rest for most of the clip


def evenly_in_motion(frames: Indexed, most: int) -> NDArray[np.int64]:
    """Return at most `most` frames in ascending order, evenly spread over the motion of a clip.

    Where few frames are without motion, they are evenly spread over time.
    """
    tried = evenly(len(frames), _TRIED * most)
    by = max(1, round(frames[0].shape[1] / _WIDTH_PX))
    small = [shrunk(frames[i], by) for i in tried.tolist()]
    motion = np.array([_changed(a, b) for a, b in itertools.pairwise(small)])
    if not motion.any() or (motion < _LEAST_MOTION * motion.mean()).mean() < _RESTS:
        return evenly(len(frames), most)
    weight = np.clip(motion / motion.mean(), _LEAST_WEIGHT, 1.0)
    passed = np.concatenate([[0.0], np.cumsum(weight)])
    wanted = np.linspace(0.0, passed[-1], min(most, len(tried)))
    return tried[np.unique(np.abs(passed[:, None] - wanted).argmin(axis=0))]


def _changed(one: Image, other: Image) -> float:
    """Return the share of pixels that change between two frames."""
    import cv2

    change = cv2.absdiff(one, other).max(axis=-1)
    return float((change > max(_LEAST_CHANGE, _NOISES * float(np.median(change)))).mean())

"""Propose places where the image differs from the clip's background.

Limits: a camera that moves has no background, and the detector proposes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vid2phys.tracking.detectors import Places
from vid2phys.tracking.detectors.network import Image

if TYPE_CHECKING:
    from vid2phys.tracking.detectors.search import ObjectDetector


def propose(frame: Image, search: ObjectDetector) -> Places:
    """Return the changed regions of a frame, as spheres that are a little wider than the regions."""
    if search.background is None:
        return Places(np.zeros((0, 2)), np.zeros(0))
    center, width = search.background.proposals(frame)
    return Places(center, width * search.config.blob_to_sphere)

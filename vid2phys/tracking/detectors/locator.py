"""Propose places by the coarse network, which sees the whole frame at once.

Limits: the coarse network knows the body of its model; a model without a coarse network proposes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vid2phys.tracking.detectors import Places
from vid2phys.tracking.detectors.network import Image

if TYPE_CHECKING:
    from vid2phys.tracking.detectors.search import ObjectDetector


def propose(frame: Image, search: ObjectDetector) -> Places:
    """Return the best places of the coarse network, at most `SearchConfig.candidates`."""
    found = search.model.locate(frame)
    order = np.argsort(-np.asarray(found.score), kind="stable")[: search.config.candidates]
    center = np.asarray(found.center_px, dtype=float)[order].reshape(-1, 2)
    return Places(center, np.asarray(found.diameter_px, dtype=float)[order].ravel())

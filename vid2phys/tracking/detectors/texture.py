"""Detect a textured body in a single image, where no motion separates the body from its background.

A network has to be very sure of such an image, and may be wrong then. The texture says more: where pose and texture
explain the image, the body is there, however unsure the network is.

Limits: the search takes some seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vid2phys.tracking.detectors.network import Detections, Image
from vid2phys.tracking.detectors.search import ObjectDetector, plausible

if TYPE_CHECKING:
    from vid2phys.tracking.single_image import TexturedBody

_FINALISTS = 6
_LEAST_SHARE = 0.4  # of the texture's variation that must be explained, as in nine of ten held-out images of a cube


def textured_detection(detector: ObjectDetector, frame: Image, body: TexturedBody) -> Detections | None:
    """Return the most likely detection in a frame [H, W, 3] that the texture explains; None without any."""
    seen = detector.finalists(frame, _FINALISTS)
    if seen is None:
        return None
    poses = seen.poses
    for n in np.flatnonzero(plausible(seen, detector.radius_m) & np.isfinite(poses.cost[:, 0])):
        share = body.share(frame, detector.camera, poses.pose[n, 0])
        if share >= _LEAST_SHARE:
            return seen.select(np.arange(len(poses.cost)) == n)
    return None

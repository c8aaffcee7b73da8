"""A painted body found in an image by itself, where nothing moves that would tell it from what stands about.

A network has to be very sure of what it sees in such an image, and then may be wrong. What the mesh has painted on it
says more: where pose and paint explain the image, the body is, however unsure the network was.
"""

from __future__ import annotations

import numpy as np

from vid2phys.tracking.detectors.network import Detections, Image
from vid2phys.tracking.detectors.search import Watch, plausible
from vid2phys.tracking.single_image import Lone

_FINALISTS = 6
_LEAST_SHARE = 0.4  # that the paint explains: nine in ten held-out images of a painted cube show as much


def painted_detection(watch: Watch, frame: Image, lone: Lone) -> Detections | None:
    """The likeliest place of a frame [H, W, 3] that the paint explains; None where it explains none. Some seconds."""
    seen = watch.finalists(frame, _FINALISTS)
    if seen is None:
        return None
    poses = seen.poses
    for n in np.flatnonzero(plausible(seen, watch.radius_m) & np.isfinite(poses.cost[:, 0])):
        share = lone.share(frame, watch.camera, poses.pose[n, 0])
        if share >= _LEAST_SHARE:
            return seen.select(np.arange(len(poses.cost)) == n)
    return None

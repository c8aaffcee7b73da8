"""Detect a textured body in a single image, where no motion separates the body from its background.

A network has to be very sure of such an image, and may be wrong then. The texture says more: where pose and texture
explain the image, the body is there, however unsure the network is.

Limits: the search takes a second for each place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vid2phys.tracking.detectors.network import Detections, Image
from vid2phys.tracking.detectors.search import ObjectDetector, plausible

if TYPE_CHECKING:
    from vid2phys.geometry import Pose
    from vid2phys.tracking.single_image import PoseSearch, TexturedBody
    from vid2phys.types import Array

_FINALISTS = 6
_SAME_PLACE, _SAME_RAD = 0.02, 0.1  # distances of starts that lead to one pose: a share of the depth, and a rotation
_LEAST_SHARE = 0.4  # of the texture's variation that must be explained, as in nine of ten held-out images of a cube


def textured_detection(
    detector: ObjectDetector, frame: Image, body: TexturedBody
) -> tuple[Detections, PoseSearch] | None:
    """Return the detection in a frame [H, W, 3] from which shape and texture are explained best, and the search there.

    None where the texture explains too little at all of them.
    """
    seen = detector.finalists(frame, _FINALISTS)
    if seen is None:
        return None
    poses = seen.poses
    found: dict[int, PoseSearch] = {}
    tried: list[Pose] = []
    for n in np.flatnonzero(plausible(seen, detector.radius_m) & np.isfinite(poses.cost[:, 0])).tolist():
        if any(_is_near(poses.pose[n, 0], other, body.rotations) for other in tried):
            continue
        tried.append(poses.pose[n, 0])
        search = body.search(frame, detector.camera, poses.pose[n, 0])
        if search.share >= _LEAST_SHARE:
            found[n] = search
    if not found:
        return None
    best = max(found, key=lambda n: found[n].nats)
    return seen.select(np.arange(len(poses.cost)) == best), found[best]


def _is_near(pose: Pose, other: Pose, rotations: Array) -> bool:
    """Return whether a search from a pose leads where one from another pose does, up to symmetry [G, 3, 3]."""
    if np.linalg.norm(pose.translation - other.translation) > _SAME_PLACE * np.linalg.norm(other.translation):
        return False
    between = other.rotation.T @ pose.rotation
    return bool(np.einsum("gij,ij->g", rotations, between).max() > 1.0 + 2.0 * np.cos(_SAME_RAD))

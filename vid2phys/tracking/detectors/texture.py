"""Detect a textured body in a single image, where no motion separates the body from its background.

A network has to be very sure of such an image, and may be wrong then. The texture says more: where pose and texture
explain the image, the body is there, however unsure the network is.

Limits: the search takes a second for each place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.tracking.detectors.network import Detections, Image
from vid2phys.tracking.detectors.search import ObjectDetector, plausible

if TYPE_CHECKING:
    from vid2phys.geometry import Pose
    from vid2phys.tracking.detectors import Places
    from vid2phys.tracking.single_image import PoseSearch, TexturedBody
    from vid2phys.types import Array

_FINALISTS = 6
_SAME_PLACE, _SAME_RAD = 0.02, 0.1  # distances of starts that lead to one pose: a share of the depth, and a rotation
_SURE_SHARE = 0.75  # of the texture's variation, from which on no other place is tried
_LEAST_SHARE = 0.4  # of the texture's variation that must be explained, as in nine of ten held-out images of a cube


def textured_detection(
    detector: ObjectDetector, frame: Image, body: TexturedBody
) -> tuple[Detections, PoseSearch] | None:
    """Return the detection in a frame [H, W, 3] from which shape and texture are explained best, and the search there.

    Where the user shows the body, all orientations are tried there, too. None where the texture explains too little.
    """
    found = list(_at_finalists(detector, frame, body))
    if detector.shown is not None and max((search.share for _, search in found), default=0.0) < _SURE_SHARE:
        found += _where_shown(detector, detector.shown, frame, body)
    found = [each for each in found if each[1].share >= _LEAST_SHARE]
    return max(found, key=lambda each: each[1].nats, default=None)


def _at_finalists(
    detector: ObjectDetector, frame: Image, body: TexturedBody
) -> Iterator[tuple[Detections, PoseSearch]]:
    """Yield the network's detections, and the searches that begin at them, those alike once."""
    seen = detector.finalists(frame, _FINALISTS)
    if seen is None:
        return
    poses = seen.poses
    tried: list[Pose] = []
    for n in np.flatnonzero(plausible(seen, detector.radius_m) & np.isfinite(poses.cost[:, 0])).tolist():
        if any(_is_near(poses.pose[n, 0], other, body.rotations) for other in tried):
            continue
        tried.append(poses.pose[n, 0])
        yield seen.select(np.arange(len(poses.cost)) == n), body.search(frame, detector.camera, poses.pose[n, 0])


def _where_shown(
    detector: ObjectDetector, shown: Places, frame: Image, body: TexturedBody
) -> list[tuple[Detections, PoseSearch]]:
    """Return the search through all orientations at a place, with the network's detection there; none in vain."""
    search = body.search_box(frame, detector.camera, shown.center_px[0], float(shown.diameter_px[0]))
    if search is None:
        return []
    seen = detector.detect([frame], search.pose.translation[None])
    return [(seen, search)] if np.isfinite(seen.poses.cost[0, 0]) else []


def _is_near(pose: Pose, other: Pose, rotations: Array) -> bool:
    """Return whether a search from a pose leads where one from another pose does, up to symmetry [G, 3, 3]."""
    if np.linalg.norm(pose.translation - other.translation) > _SAME_PLACE * np.linalg.norm(other.translation):
        return False
    between = other.rotation.T @ pose.rotation
    return bool(np.einsum("gij,ij->g", rotations, between).max() > 1.0 + 2.0 * np.cos(_SAME_RAD))

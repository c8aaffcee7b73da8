"""Which of its look-alike orientations a nearly symmetric body has, by what its silhouette, edges and parts show of a
frame.

What hardly differs between them, a camera in front, arms that are no square, moves outlines by a pixel: enough to tell
once the pose is fitted to the edges in each of the orientations. Then parts say which of them colours fit
(`cues.part_colors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import side_by_side
from vid2phys.geometry import Pose
from vid2phys.risp.shape.rotation_groups import offsets
from vid2phys.tracking.ambiguous_poses import Reading
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues import ALL_CUES, ActiveCues
from vid2phys.tracking.cues.contour import fit_contour
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.part_colors import part_nats
from vid2phys.tracking.cues.photometric import PRIOR_STD
from vid2phys.tracking.detectors.network import Detections
from vid2phys.types import Array, Camera

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Shape

_MOST, _OVERCONFIDENT = 20.0, 5.0  # nats of a frame, and by how much they are too many: as held-out looks showed
_MOST_OF_PARTS, _PARTS_OVERCONFIDENT = 4.0, 3.0  # the same of parts, of all frames together: they show one look
_FRAMES = 12  # of a clip
_LEAST_PX = 40.0  # in-frame diameter of the bounding sphere: outlines of smaller ones do not tell


def turn_evidence(
    frames: Indexed,
    indices: Sequence[int] | NDArray[np.int64],
    seen: Detections,
    camera: Camera,
    solid: Solid,
    shape: Shape,
    cues: ActiveCues = ALL_CUES,
) -> Array:
    """Nats [N, H, G], calibrated, for orientations R @ rotations[g]^T, above those of knowing nothing.

    indices: of the N frames that were read. seen: how, with H hypotheses, of which the first is looked at, in some
    frames evenly over the clip. Zero elsewhere, where no outline is seen, and of bodies that look exactly the same.
    """
    nats = np.zeros((*seen.poses.cost.shape, len(shape.rotations)))
    if shape.exact or len(shape.rotations) < 2:
        return nats
    large = np.flatnonzero((seen.diameter_px >= _LEAST_PX) & np.isfinite(seen.poses.cost[:, 0]))
    some = large[np.unique(np.linspace(0, len(large) - 1, min(_FRAMES, len(large))).round().astype(int))]

    def of_frame(shown: tuple[int, NDArray[np.uint8]]) -> Array:
        n, frame = shown
        best = seen.poses[n, 0]
        return _of_frame(frame, camera, solid, best.pose, shape, 1.0 / len(some), cues)

    for n, found in zip(some, side_by_side(of_frame, ((n, frames[int(indices[n])]) for n in some)), strict=True):
        nats[n, 0] = found
    return nats


def _of_frame(
    frame: NDArray[np.uint8],
    camera: Camera,
    solid: Solid,
    pose: Pose,
    shape: Shape,
    parts_share: float,
    cues: ActiveCues,
) -> Array:
    """Nats [G] of one frame [H, W, 3] in which a pose was read. parts_share: what its parts count."""
    prior = np.diag(PRIOR_STD**-2.0)
    read = Reading(frame, camera, solid, pose, prior, "region" in cues)
    found, poses = np.zeros(len(shape.rotations)), []
    for g, turn in enumerate(shape.rotations):
        turned = pose.rotation @ turn.T
        start = Pose(turned, pose.translation - turned @ offsets(turn, shape.center))
        fit = fit_contour(frame, camera, solid, start, prior=prior)
        if fit is None:
            return np.zeros(len(shape.rotations))
        found[g] = read.explained(fit.pose)
        poses.append(fit.pose)
    told = np.maximum(found - found.max(), -_MOST) / _OVERCONFIDENT
    if "part_colors" in cues:
        of_parts = np.maximum(part_nats(frame, camera, solid.mesh, poses) / _PARTS_OVERCONFIDENT, -_MOST_OF_PARTS)
        told = told + parts_share * of_parts
    return np.asarray(told - np.log(np.exp(told).mean()))

"""Which symmetry element a nearly symmetric body has in a frame, by its silhouette, edges and parts.

Small differences between the elements, such as a camera in front or arms that are not square, move contours by a pixel.
That suffices once the pose is fitted to the edges under each element. Then the colours of the parts are compared
(`cues.part_colors`).

Limits: bodies of less than 40 pixels, and exact symmetries, say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import in_processes
from vid2phys.geometry import Pose
from vid2phys.risp.shape.rotation_groups import offsets
from vid2phys.tracking.ambiguous_poses import PoseScorer
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues import ALL_CUES, ActiveCues
from vid2phys.tracking.cues.contour import fit_contour
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.part_colors import part_nats
from vid2phys.tracking.cues.photometric import PRIOR_STD
from vid2phys.tracking.detectors.network import Detections
from vid2phys.tracking.hypotheses import TEMPERATURES, Evidence
from vid2phys.types import Array, Camera

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Shape


@dataclass(frozen=True, kw_only=True)
class SymmetryConfig:
    """Settings of `symmetry_evidence`."""

    max_nats: float = 20.0
    """Largest evidence of a frame's edges and colours, nats before their temperature."""
    max_part_nats: float = 12.0
    """Largest evidence of the parts' colours, nats before their temperature."""
    max_frames: int = 12
    """Number of frames of a clip that are compared, evenly over the clip."""
    min_size_px: float = 40.0
    """Least diameter of the bounding sphere in the frame, px."""


DEFAULTS = SymmetryConfig()


def symmetry_evidence(
    frames: Indexed,
    indices: Sequence[int] | NDArray[np.int64],
    seen: Detections,
    camera: Camera,
    solid: Solid,
    shape: Shape,
    cues: ActiveCues = ALL_CUES,
    config: SymmetryConfig = DEFAULTS,
) -> tuple[Evidence, Evidence]:
    """Return the evidence of edges and of part colours for orientations R @ rotations[g]^T.

    Args:
        frames: images by index.
        indices: [N] indices of the tracked frames.
        seen: detections of these, with H hypotheses; the first of each frame is compared.
        camera: of the frames.
        solid: mesh and creases.
        shape: of the body.
        cues: cues in use; `region` and `part_colors` may be off.
        config: settings.

    Returns:
        Evidence [N, H, G] of `symmetry` and of `part_colors`, together above that of no knowledge. Both are zero in
        frames that are not compared, where no contour is seen, and for exactly symmetric bodies.
    """
    edges, parts = (np.zeros((*seen.poses.cost.shape, len(shape.rotations))) for _ in range(2))
    large = np.flatnonzero((seen.diameter_px >= config.min_size_px) & np.isfinite(seen.poses.cost[:, 0]))
    some = large[np.unique(np.linspace(0, len(large) - 1, min(config.max_frames, len(large))).round().astype(int))]
    if shape.exact or len(shape.rotations) < 2:
        some = some[:0]
    part_temperature = TEMPERATURES.part_colors * max(len(some), 1)

    def compare(n: int) -> tuple[Array, Array]:
        frame, pose = frames[int(indices[n])], seen.poses[n, 0].pose
        of_edges, poses = _edge_nats(frame, camera, solid, pose, shape, cues)
        of_edges = np.maximum(of_edges - of_edges.max(), -config.max_nats)
        of_parts = np.zeros_like(of_edges)
        if poses and "part_colors" in cues:
            of_parts = np.maximum(part_nats(frame, camera, solid.mesh, poses), -config.max_part_nats)
        total = of_edges / TEMPERATURES.symmetry + of_parts / part_temperature
        return of_edges - TEMPERATURES.symmetry * np.log(np.exp(total).mean()), of_parts

    for n, found in zip(some, in_processes(compare, some.tolist()), strict=True):
        edges[n, 0], parts[n, 0] = found
    return Evidence("symmetry", edges, TEMPERATURES.symmetry), Evidence("part_colors", parts, part_temperature)


def _edge_nats(
    frame: NDArray[np.uint8], camera: Camera, solid: Solid, pose: Pose, shape: Shape, cues: ActiveCues
) -> tuple[Array, list[Pose]]:
    """Return the nats [G] of a frame under each symmetry element of a detected pose, and the fitted poses.

    Zeros and no poses where the contour of an element is not seen.
    """
    prior = np.diag(PRIOR_STD**-2.0)
    scorer = PoseScorer(frame, camera, solid, pose, prior, "region" in cues)
    nats, poses = np.zeros(len(shape.rotations)), []
    for g, element in enumerate(shape.rotations):
        rotation = pose.rotation @ element.T
        start = Pose(rotation, pose.translation - rotation @ offsets(element, shape.center))
        fit = fit_contour(frame, camera, solid, start, prior=prior)
        if fit is None:
            return np.zeros(len(shape.rotations)), []
        nats[g] = scorer.explained(fit.pose)
        poses.append(fit.pose)
    return nats, poses

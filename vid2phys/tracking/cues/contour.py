"""The pose of a rigid mesh by its edges in one frame: outline and creases (`refine`).

Needs no learnt appearance and no other frame, and leaves a pose alone where nothing stands out from what is behind it.

Limits: errors of a quarter of the body's size and gross ones (a pose's mirror twin) are beyond its reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import Pose
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.photometric import PRIOR_STD
from vid2phys.tracking.refine import OVERCONFIDENT, fit_edges
from vid2phys.types import Array, Camera, Mesh

_MOST_STEP = 2.0 * PRIOR_STD


@dataclass(frozen=True)
class Contour:
    """A pose camera_from_body that was fitted to edges.

    Attributes:
        pose: camera_from_body.
        information: of the edges, [6, 6], as their scatter states it, in the local coordinates of the pose (many times
            too much on real appearances).
        prior: of the start, [6, 6].
    """

    pose: Pose
    information: Array
    prior: Array

    @property
    def covariance(self) -> Array:
        """Covariance of edges and prior together, [6, 6], before its scaling to errors on held-out appearances."""
        return np.asarray(np.linalg.inv(self.information / OVERCONFIDENT + self.prior))


@dataclass(frozen=True)
class _RigidBody:
    """A rigid mesh at a pose (see `Movable`)."""

    mesh: Mesh
    pose: Pose

    def vertices(self) -> Array:
        return self.pose.apply(self.mesh.vertices)

    def slopes(self, points: Array, along: Array) -> Array:
        from vid2phys.tracking.cues.edge_steps import slopes

        return np.asarray(slopes(points, along, self.pose.translation))

    def moved(self, step: Array) -> tuple[_RigidBody, Array]:
        return _RigidBody(self.mesh, self.pose.retract(step)), step


def fit_contour(
    frame: NDArray[np.uint8],
    camera: Camera,
    solid: Solid,
    pose: Pose,
    *,
    prior: Array | None = None,
) -> Contour | None:
    """Fit a pose camera_from_body to the outline and the creases in a frame [H, W, 3].

    prior: [6, 6] information about the given pose in its modes; weak unless given. None where too few lines of the
    outline say where the edge is.
    """
    prior = np.diag(PRIOR_STD**-2.0) if prior is None else np.ascontiguousarray(prior)
    fit = fit_edges(frame, camera, solid, _RigidBody(solid.mesh, pose), prior, _MOST_STEP)
    return None if fit is None else Contour(fit[0].pose, fit[1], prior)

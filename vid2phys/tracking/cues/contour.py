"""Fit the pose of a rigid mesh to its edges in one frame: contour and creases (`tracking.refine`).

The cue needs no learnt appearance and no other frame. A pose stays where the body does not stand out from its
background.

Limits: errors of a quarter of the body's size, and gross ones such as a depth reversal, are beyond its reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import Pose
from vid2phys.tracking.cues import Cue
from vid2phys.tracking.cues.contour_config import DEFAULTS, ContourConfig
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.photometric import PRIOR_STD
from vid2phys.tracking.refine import fit_edges
from vid2phys.types import Array, Camera, Mesh

CUE = Cue("edges of the silhouette and of creases, which refine the pose in every frame")


@dataclass(frozen=True)
class Contour:
    """A pose camera_from_body that was fitted to edges.

    Attributes:
        pose: camera_from_body.
        information: of the edges, [6, 6], as their scatter states it, in the local coordinates of the pose. On real
            appearances it is many times too large.
        prior: of the start, [6, 6].
        overconfidence: factor by which the information is too large.
    """

    pose: Pose
    information: Array
    prior: Array
    overconfidence: float = DEFAULTS.overconfidence

    @property
    def covariance(self) -> Array:
        """The covariance of edges and prior together, [6, 6], before its scaling to errors on held-out appearances."""
        return np.asarray(np.linalg.inv(self.information / self.overconfidence + self.prior))


@dataclass(frozen=True)
class _RigidBody:
    """A rigid mesh at a pose (see `refine.PlacedMesh`)."""

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
    config: ContourConfig = DEFAULTS,
) -> Contour | None:
    """Fit a pose camera_from_body to the contour and the creases in a frame.

    Args:
        frame: [H, W, 3].
        camera: of the frame.
        solid: mesh and creases.
        pose: start.
        prior: [6, 6] information about the start, in its local coordinates; weak unless given.
        config: settings.

    Returns:
        The fit; None where too few lines across the contour find the edge.
    """
    prior = np.diag(PRIOR_STD**-2.0) if prior is None else np.ascontiguousarray(prior)
    most = config.max_step_prior * PRIOR_STD
    fit = fit_edges(frame, camera, solid, _RigidBody(solid.mesh, pose), prior, most, config=config)
    return None if fit is None else Contour(fit[0].pose, fit[1], prior, config.overconfidence)

"""The pose of a rigid mesh by its edges in one frame: outline and creases (`refine`).

Needs no learnt appearance and no other frame, and leaves a pose alone where nothing stands out from what is behind it.

Limits: errors of a quarter of the body's size and gross ones (a pose's mirror twin) are beyond its reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.photometric import PRIOR_STD, moved
from vid2phys.tracking.refine import OVERCONFIDENT, fit_edges
from vid2phys.types import Array, Camera, Mesh

_MOST_STEP = 2.0 * PRIOR_STD


@dataclass(frozen=True)
class Contour:
    """rotation [3, 3], translation [3] m: camera_from_body. information: [6, 6] of the edges alone, as their scatter
    says, in the modes of `align.moved` about this pose (many times too much on real looks). prior: [6, 6]
    what was known before."""

    rotation: Array
    translation: Array
    information: Array
    prior: Array

    @property
    def covariance(self) -> Array:
        """Of edges and prior together, [6, 6], before it is scaled to what held-out looks showed."""
        return np.asarray(np.linalg.inv(self.information / OVERCONFIDENT + self.prior))


@dataclass(frozen=True)
class _Posed:
    """See `Movable`."""

    mesh: Mesh
    rotation: Array
    translation: Array

    def vertices(self) -> Array:
        return np.asarray(self.mesh.vertices @ self.rotation.T + self.translation)

    def slopes(self, points: Array, along: Array) -> Array:
        from vid2phys.tracking.cues.edge_steps import slopes

        return np.asarray(slopes(points, along, self.translation))

    def moved(self, step: Array) -> tuple[_Posed, Array]:
        return _Posed(self.mesh, *moved(self.rotation, self.translation, step)), step


def fit_contour(
    frame: NDArray[np.uint8],
    camera: Camera,
    solid: Solid,
    rotation: Array,
    translation: Array,
    *,
    prior: Array | None = None,
) -> Contour | None:
    """Fit a pose camera_from_body to the outline and the creases in a frame [H, W, 3].

    prior: [6, 6] information about the given pose in its modes; weak unless given. None where too few lines of the
    outline say where the edge is.
    """
    prior = np.diag(PRIOR_STD**-2.0) if prior is None else np.ascontiguousarray(prior)
    fit = fit_edges(frame, camera, solid, _Posed(solid.mesh, rotation, translation), prior, _MOST_STEP)
    return None if fit is None else Contour(fit[0].rotation, fit[0].translation, fit[1], prior)

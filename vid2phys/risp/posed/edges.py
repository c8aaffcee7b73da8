"""The posture of a body on a known base by its edges in one frame, as `pixels.contour` for rigid ones.

A point of the outline or of a crease moves as the mesh's vertex next to it. What a camera does not tell apart (a rod's
height and its way towards a camera above it) stays as keypoints and prior say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.pixels.creases import Solid
from vid2phys.risp.pixels.edge_fit import fit_edges
from vid2phys.risp.posed.body import PosedBody
from vid2phys.rotations import invert_transform
from vid2phys.types import Array, Camera

_MOST_STEP = 0.5  # standard deviations of the posture's prior
_DIFFERENCE = 1e-5  # of a posture, in standard deviations of its prior
_OVERCONFIDENT = 50.0  # points of a frame err together: what they state of the posture is off by more


@dataclass(frozen=True)
class _Posed:
    """See `Movable`."""

    body: PosedBody
    camera_from_base: Array
    posture: Array

    def vertices(self) -> Array:
        turn, place = self.camera_from_base[:3, :3], self.camera_from_base[:3, 3]
        return np.asarray(self.body.vertices(self.posture) @ turn.T + place)

    def slopes(self, points: Array, along: Array) -> Array:
        from scipy.spatial import cKDTree

        nearest = cKDTree(self.vertices()).query(points)[1]
        x, y, z = points.T
        u, v = along.T / z
        normal = np.stack([u, v, -(u * x + v * y) / z], axis=-1) @ self.camera_from_base[:3, :3]
        return np.asarray(np.einsum("nj,dnj->nd", normal, self._vertex_slopes()[:, nearest]))

    def moved(self, step: Array) -> tuple[_Posed, Array]:
        within = np.clip(self.posture + step, self.body.lower, self.body.upper)
        return _Posed(self.body, self.camera_from_base, within), within - self.posture

    def _vertex_slopes(self) -> Array:
        """d vertices / d posture, [D, V, 3], in the base's axes."""
        steps = _DIFFERENCE * np.diag(self.body.spread)
        ahead, behind = ([self.body.vertices(self.posture + sign * step) for step in steps] for sign in (1.0, -1.0))
        return np.asarray((np.stack(ahead) - np.stack(behind)) / (2.0 * steps.sum(axis=1)[:, None, None]))


def fit_posture(
    frame: NDArray[np.uint8], camera: Camera, body: PosedBody, solid: Solid, posture: Array, covariance: Array
) -> Array:
    """A posture [D], read with a covariance [D, D] by the points of a frame [H, W, 3], moved to the frame's edges.

    camera: has a pose. solid: of the body's mesh. The posture itself where too few edges are seen.
    """
    assert camera.camera_to_world is not None
    start = _Posed(body, invert_transform(np.asarray(camera.camera_to_world, dtype=float)), posture)
    prior = np.asarray(np.linalg.inv(_OVERCONFIDENT * covariance), dtype=float)
    found = fit_edges(frame, camera, solid, start, prior, _MOST_STEP * body.spread)
    return posture if found is None else found[0].posture

"""Lines across the contours of a body of vertices, by which a motion is compared with the edges in a clip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import transform_points
from vid2phys.types import Array


@dataclass(frozen=True)
class ContourLines:
    """L lines across the contours of a motion, of all its frames.

    frame: [L] indices. corners [L, 3] and weights [L, 3] of the vertices that carry each point. along: [L, 2]
    derivative of a pixel along the normal by the bearing. edge: [L] px, `along` times the bearing of the measured edge.
    std: [L] px. normal: [L, 2] unit, outward in the frame. to_camera: [4, 4].
    """

    frame: NDArray[np.int64]
    corners: NDArray[np.int64]
    weights: Array
    along: Array
    edge: Array
    std: Array
    normal: Array
    to_camera: Array

    def residuals(self, positions: Array) -> Array:
        """Return how far points are outside of the edges, in standard deviations [B, L], of motions [B, F, V, 3] m."""
        carried = positions[:, self.frame[:, None], self.corners]
        points = transform_points(self.to_camera, np.einsum("lc,blcx->blx", self.weights, carried))
        bearings = points[..., :2] / np.maximum(points[..., 2:], 1e-6)
        return np.asarray(((self.along * bearings).sum(axis=-1) - self.edge) / self.std)

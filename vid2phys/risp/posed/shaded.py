"""The posture of a body that bends by how light falls on it, after its edges (`edges`).

One camera sees what bends along its sight by the body's width alone; its shading turns with it (`pixels.shading`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.pixels.creases import Solid
from vid2phys.risp.pixels.shading import Turned, seen_shading, shading_information
from vid2phys.risp.posed.body import PosedBody
from vid2phys.risp.posed.sight import Window
from vid2phys.types import Array

_ROUNDS = 3  # of drawing the body
_MOST_STEP = 0.5  # of a round, standard deviations of the posture's prior


def fit_shading(
    frame: NDArray[np.uint8], window: Window, body: PosedBody, solid: Solid, posture: Array, covariance: Array
) -> tuple[Array, Array]:
    """The posture [D] that a frame's [H, W, 3] shading and what is known of it say, and the covariance [D, D] of both.

    covariance: [D, D] of the posture given. Both as they are where the frame shows too little of the body.
    """
    at, known, most = posture, np.linalg.inv(covariance), _MOST_STEP * body.spread
    told = np.zeros_like(known)
    for _ in range(_ROUNDS):
        vertices = body.vertices(at)
        seen = seen_shading(frame, window.camera, window.in_camera(vertices), solid.mesh.faces, solid.smooth_parts)
        if seen is None:
            break
        corners = solid.mesh.faces[seen.faces]
        slopes = body.vertex_slopes(at, corners.ravel()).reshape(*corners.shape, 3, -1)
        turned = Turned.of(vertices[corners], slopes, solid.smooth_parts[seen.faces], body.radius_m)
        gradient, told = shading_information(seen, turned)
        step = np.linalg.solve(told + known, -gradient - known @ (at - posture))
        at = np.clip(at + np.clip(step, -most, most), body.lower, body.upper)
    return at, np.asarray(np.linalg.inv(known + told))

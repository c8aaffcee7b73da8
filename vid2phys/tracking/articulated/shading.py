"""Configurations of a body that bends by how light falls on it, after its edges (`edges`).

One camera sees what bends along its sight by the body's width alone; its shading turns with it (`pixels.shading`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.tracking.articulated.detector import Window
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.shading import Shading, Told, Turned, seen_shading, told_by_shading
from vid2phys.types import Array

_ROUNDS = 3  # of drawing the body
_MOST_STEP = 0.5  # of a round, standard deviations of the configuration's prior


def fit_shading(
    frames: Indexed,
    which: Sequence[int],
    window: Window,
    body: ArticulatedBody,
    solid: Solid,
    configurations: Array,
    covariance: Array,
) -> tuple[Array, Array]:
    """Configurations [T, D] that the shading in the T frames `which`, of one light, and what is known of them say, and
    the covariance [T, D, D] of each.

    covariance: [T, D, D] of the configurations given. Both as they are of frames that show too little of the body.
    """
    at, known, most = configurations.copy(), np.linalg.inv(covariance), _MOST_STEP * body.spread
    result = covariance.copy()
    for _ in range(_ROUNDS):
        looked = [
            _seen(frames[i], window, body, solid, configuration) for i, configuration in zip(which, at, strict=True)
        ]
        seen = [each for each in looked if each is not None]
        if not seen:
            break
        some = np.array([each is not None for each in looked])
        told = told_by_shading([shading for shading, _ in seen], [turned for _, turned in seen])
        pull = told.gradient + np.einsum("tde,te->td", known[some], at[some] - configurations[some])
        step, result[some] = _solved(told, known[some], -pull)
        at[some] = np.clip(at[some] + np.clip(step, -most, most), body.lower, body.upper)
    return at, result


def _seen(
    frame: NDArray[np.uint8], window: Window, body: ArticulatedBody, solid: Solid, configuration: Array
) -> tuple[Shading, Turned] | None:
    """Return the shading that a frame shows at a configuration [D] and its derivatives; None for too few faces."""
    vertices, parts = body.vertices(configuration), solid.smooth_parts
    seen = seen_shading(frame, window.camera, window.in_camera(vertices), solid.mesh.faces, parts)
    if seen is None:
        return None
    corners = solid.mesh.faces[seen.faces]
    slopes = body.vertex_jacobian(configuration, corners.ravel()).reshape(*corners.shape, 3, -1)
    return seen, Turned.of(vertices[corners], slopes, parts[seen.faces], body.radius_m)


def _solved(told: Told, known: Array, pull: Array) -> tuple[Array, Array]:
    """Steps [T, D] for a pull [T, D], and the covariance [T, D, D] of each frame, with information [T, D, D] known of
    each beforehand: frames hang together by their light alone (Woodbury)."""
    apart = np.linalg.inv(told.apart + known)
    spread = told.shared @ apart
    of_light = np.eye(told.shared.shape[1]) - np.einsum("tld,tkd->lk", spread, told.shared, optimize=True)
    alone = np.einsum("tde,te->td", apart, pull)
    common = np.linalg.solve(of_light, np.einsum("tld,td->l", told.shared, alone))
    step = alone + np.einsum("tld,l->td", spread, common)
    return step, apart + np.swapaxes(spread, 1, 2) @ np.linalg.solve(of_light, spread)

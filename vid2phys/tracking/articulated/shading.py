"""Refine configurations of a body that bends by its shading, after its contour (`contour`).

A single camera sees a deformation along its line of sight by the body's width only. The shading of the surface changes
with it (`cues.shading`): Gauss-Newton on the shading residuals of all frames, whose light is common.

Limits: frames that show too few faces stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.tracking.articulated.config import DEFAULTS, ArticulatedConfig
from vid2phys.tracking.articulated.detector import Window
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.shading import FaceMotion, Shading, ShadingInformation, measure_shading, shading_information
from vid2phys.types import Array


def fit_shading(
    frames: Indexed,
    which: Sequence[int],
    window: Window,
    body: ArticulatedBody,
    solid: Solid,
    configurations: Array,
    covariance: Array,
    config: ArticulatedConfig = DEFAULTS,
) -> tuple[Array, Array]:
    """Fit configurations to the shading in T frames of one light.

    Args:
        frames: Frames [H, W, 3] of the clip, by index.
        which: Indices of the T frames.
        window: The camera, and its pose.
        body: The body.
        solid: The mesh of the body with its creases.
        configurations: [T, D] start.
        covariance: [T, D, D] of the start.
        config: Settings.

    Returns:
        The configurations [T, D] and their covariances [T, D, D]. Frames that show too little stay as given.
    """
    at, known, most = configurations.copy(), np.linalg.inv(covariance), config.shading_max_step * body.prior_std
    result = covariance.copy()
    for _ in range(config.shading_rounds):
        measured = [
            _measured(frames[i], window, body, solid, configuration) for i, configuration in zip(which, at, strict=True)
        ]
        seen = [each for each in measured if each is not None]
        if not seen:
            break
        some = np.array([each is not None for each in measured])
        information = shading_information([shading for shading, _ in seen], [motion for _, motion in seen])
        pull = information.gradient + np.einsum("tde,te->td", known[some], at[some] - configurations[some])
        step, result[some] = _solved(information, known[some], -pull)
        at[some] = body.retract(at[some], np.clip(step, -most, most))
    return at, result


def _measured(
    frame: NDArray[np.uint8], window: Window, body: ArticulatedBody, solid: Solid, configuration: Array
) -> tuple[Shading, FaceMotion] | None:
    """Return the shading that a frame shows at a configuration [D] and its derivatives; None for too few faces."""
    vertices, parts = body.vertices(configuration), solid.smooth_parts
    seen = measure_shading(frame, window.camera, window.in_camera(vertices), solid.mesh.faces, parts)
    if seen is None:
        return None
    corners = solid.mesh.faces[seen.faces]
    slopes = body.jacobian(configuration, corners.ravel()).reshape(*corners.shape, 3, -1)
    return seen, FaceMotion.of(vertices[corners], slopes, parts[seen.faces], body.radius_m)


def _solved(information: ShadingInformation, known: Array, pull: Array) -> tuple[Array, Array]:
    """Solve for the steps [T, D] and the covariances [T, D, D].

    The frames' normal matrices couple by the light only: the solution is block-diagonal plus low rank (Woodbury).
    known: [T, D, D], prior information. pull: [T, D], negative gradient.
    """
    apart = np.linalg.inv(information.apart + known)
    spread = information.shared @ apart
    of_light = np.eye(information.shared.shape[1]) - np.einsum("tld,tkd->lk", spread, information.shared, optimize=True)
    single = np.einsum("tde,te->td", apart, pull)
    common = np.linalg.solve(of_light, np.einsum("tld,td->l", information.shared, single))
    step = single + np.einsum("tld,l->td", spread, common)
    return step, apart + np.swapaxes(spread, 1, 2) @ np.linalg.solve(of_light, spread)

"""The configuration of a body on a known base by its edges in one frame, as `pixels.contour` for rigid ones.

A point of the outline or of a crease moves as the mesh's vertex next to it. What a camera does not tell apart (a rod's
height and its way towards a camera above it) stays as keypoints and prior say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.tracking.articulated.detector import Window
from vid2phys.tracking.articulated.kinematic_fit import Configurations
from vid2phys.tracking.articulated.shading import fit_shading
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.evidence import Evidence
from vid2phys.tracking.detectors.network import direction_and_size
from vid2phys.tracking.refine import OVERCONFIDENT, fit_edges
from vid2phys.types import Array

_MOST_STEP = 0.5  # standard deviations of the configuration's prior
# Points of a frame err together: what they state of the configuration is off by more. By held-out looks; the more where
# its shading tells of it, too.
_OVERCONFIDENT, _OVERCONFIDENT_SHADED = 50.0, 150.0
_ASIDE_PX = 0.3  # by which edges of a body that bends are off as a whole: its width says how far away it is
_SAME = 0.05  # standard deviations of the prior between minima that are one


@dataclass(frozen=True)
class _Posed:
    """See `Movable`."""

    body: ArticulatedBody
    camera_from_base: Array
    configuration: Array

    def vertices(self) -> Array:
        turn, place = self.camera_from_base[:3, :3], self.camera_from_base[:3, 3]
        return np.asarray(self.body.vertices(self.configuration) @ turn.T + place)

    def slopes(self, points: Array, along: Array) -> Array:
        from scipy.spatial import cKDTree

        nearest = cKDTree(self.vertices()).query(points)[1]
        x, y, z = points.T
        u, v = along.T / z
        normal = np.stack([u, v, -(u * x + v * y) / z], axis=-1) @ self.camera_from_base[:3, :3]
        return np.asarray(np.einsum("nj,njd->nd", normal, self.body.vertex_jacobian(self.configuration, nearest)))

    def moved(self, step: Array) -> tuple[_Posed, Array]:
        within = np.clip(self.configuration + step, self.body.lower, self.body.upper)
        return _Posed(self.body, self.camera_from_base, within), within - self.configuration


def fit_configuration(
    frame: NDArray[np.uint8], window: Window, body: ArticulatedBody, solid: Solid, minima: Configurations
) -> Array:
    """The configuration [D] of one frame [H, W, 3], moved to its edges, of the minima [S] that its points leave open.

    Of a body that bends, its shading counts, too. solid: of the body's mesh. Points that err together state too much:
    with as much less of what they say the body's weak prior has its share. Of several minima the one is taken that
    explains the frame best.
    """
    configurations, costs = [], []
    for read in minima.distinct(_SAME * body.spread):
        begin, prior = _begun(body, read)
        found = refine_from(frame, window, body, solid, begin, prior)
        at = begin if found is None else found[0]
        if found is not None and body.bends:
            at = fit_shading([frame], [0], window, body, solid, at[None], found[1][None])[0][0]
        configurations.append(at)
        costs.append(float(read.cost))
    if len(configurations) == 1:
        return configurations[0]

    shown = image_evidence(frame, window, body, solid)
    nats = [
        log_likelihood(shown, window, body, configuration) - cost / _overconfident(body)
        for configuration, cost in zip(configurations, costs, strict=True)
    ]
    return configurations[int(np.argmax(nats))]


def image_evidence(frame: NDArray[np.uint8], window: Window, body: ArticulatedBody, solid: Solid) -> Evidence:
    """What a frame [H, W, 3] shows of the body, wherever in its workspace it is."""
    pose = window.camera_from_base
    center, radius = direction_and_size(pose[:3, :3] @ body.center_m + pose[:3, 3], body.radius_m)
    return Evidence(frame, window.camera, solid, center, float(radius))


def log_likelihood(
    shown: Evidence, window: Window, body: ArticulatedBody, configuration: Array, *, colors_alone: bool = False
) -> float:
    """How well a configuration [D] explains what a frame shows."""
    vertices = _Posed(body, window.camera_from_base, configuration).vertices()
    return shown.color_nats(vertices) if colors_alone else shown.nats(vertices)


def refine_from(
    frame: NDArray[np.uint8], window: Window, body: ArticulatedBody, solid: Solid, configuration: Array, prior: Array
) -> tuple[Array, Array] | None:
    """The configuration [D] that edges and what was known before say, and its covariance [D, D] before it is scaled.

    prior: [D, D] information about the configuration [D] given. None where too few lines of the outline say where the
    edge is.
    """
    start = _Posed(body, window.camera_from_base, configuration)
    aside_px = _ASIDE_PX if body.bends else 0.0
    found = fit_edges(frame, window.camera, solid, start, prior, _MOST_STEP * body.spread, aside_px)
    if found is None:
        return None
    at, information = found
    return at.configuration, np.asarray(np.linalg.inv(information / OVERCONFIDENT + prior))


def refine_near(
    frame: NDArray[np.uint8], window: Window, body: ArticulatedBody, solid: Solid, configuration: Array, kept: float
) -> tuple[Array, Array] | None:
    """What edges say near a configuration [D]: `refine_from` with the body's weak prior about it, of which a share is
    kept.

    The rest is taken out again, so that what edges do not tell stays near but is stated to be anywhere.
    """
    weak = _weak(body)
    found = refine_from(frame, window, body, solid, configuration, weak)
    if found is None:
        return None
    at, known = found
    covariance = np.linalg.inv(np.linalg.inv(known) - (1.0 - kept) * weak)
    return at + (1.0 - kept) * covariance @ weak @ (at - configuration), np.asarray(covariance)


def _weak(body: ArticulatedBody) -> Array:
    """Information [D, D] of the body's weak prior."""
    return np.diag(body.spread**-2.0)


def _overconfident(body: ArticulatedBody) -> float:
    return _OVERCONFIDENT_SHADED if body.bends else _OVERCONFIDENT


def downweighted(body: ArticulatedBody, pull: Array, information: Array, less: float) -> tuple[Array, Array]:
    """Where a configuration [D] lies when its points say less of it, and the information there, [D, D].

    information: [D, D], of the points, which counts so many times less beside the body's weak prior. pull: [D], that
    information times the configuration that they say.
    """
    weak = _weak(body)
    prior = information / less + weak
    configuration = np.linalg.solve(prior, pull / less + weak @ body.middle)
    return np.clip(configuration, body.lower, body.upper), prior


def _begun(body: ArticulatedBody, read: Configurations) -> tuple[Array, Array]:
    """Where a single image's search for edges begins, and the information there."""
    weak, told = _weak(body), np.linalg.inv(read.covariance)
    return downweighted(body, told @ read.configuration - weak @ body.middle, told - weak, _overconfident(body))

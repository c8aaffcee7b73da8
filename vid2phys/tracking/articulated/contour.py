"""Refine the configuration of a body in one frame by its contour and its creases, as `cues.contour` for rigid bodies.

A point of the contour or of a crease moves with the nearest known place on the surface.

Limits: some changes of a configuration do not move any edge, such as the height of a rod and its way towards a camera
above it. Keypoints and the prior determine these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.tracking.articulated.config import DEFAULTS, ArticulatedConfig
from vid2phys.tracking.articulated.detector import Window
from vid2phys.tracking.articulated.kinematic_fit import Configurations
from vid2phys.tracking.articulated.shading import fit_shading
from vid2phys.tracking.cues.contour_config import DEFAULTS as CONTOUR
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.edge_steps import point_slopes
from vid2phys.tracking.cues.evidence import Evidence
from vid2phys.tracking.detectors.network import direction_and_size
from vid2phys.tracking.refine import fit_edges
from vid2phys.types import Array


@dataclass(frozen=True)
class PlacedBody:
    """A body in a configuration [D] before a camera, for the edge fit. See `refine.PlacedMesh`."""

    body: ArticulatedBody
    camera_from_base: Array
    configuration: Array

    def vertices(self) -> Array:
        """Return the vertices [V, 3] in camera axes, m."""
        rotation, translation = self.camera_from_base[:3, :3], self.camera_from_base[:3, 3]
        return np.asarray(self.body.vertices(self.configuration) @ rotation.T + translation)

    def slopes(self, points: Array, along: Array) -> Array:
        """Return by how much the coordinates move points [N, 3] along their normals, [N, D] px."""
        from scipy.spatial import cKDTree

        rotation, translation = self.camera_from_base[:3, :3], self.camera_from_base[:3, 3]
        surface = self.body.surface(self.configuration) @ rotation.T + translation
        nearest = cKDTree(surface).query(points)[1]
        normal = point_slopes(points, along) @ rotation
        return np.asarray(np.einsum("nj,njd->nd", normal, self.body.surface_jacobian(self.configuration, nearest)))

    def moved(self, step: Array) -> tuple[PlacedBody, Array]:
        """Return the body after a step [D], and the step that its limits allow."""
        within = self.body.retract(self.configuration, step)
        return PlacedBody(self.body, self.camera_from_base, within), within - self.configuration


def fit_configuration(
    frame: NDArray[np.uint8],
    window: Window,
    body: ArticulatedBody,
    solid: Solid,
    minima: Configurations,
    config: ArticulatedConfig = DEFAULTS,
) -> Array:
    """Fit the configuration in a single image to its edges, and to its shading if the body bends.

    Args:
        frame: [H, W, 3].
        window: The camera, and its pose.
        body: The body.
        solid: The mesh of the body with its creases.
        minima: [S] hypotheses that the keypoints leave open.
        config: Settings.

    Returns:
        The configuration [D] that explains the image best. Keypoints err together, so that their information counts
        less here, and the body's weak prior has its share.
    """
    configurations, costs = [], []
    for detected in minima.distinct(config.same_minimum * body.prior_std):
        begin, prior = _start(body, detected, config)
        found = refine_from(frame, window, body, solid, begin, prior, config)
        at = begin if found is None else found[0]
        if found is not None and body.bends:
            at = fit_shading([frame], [0], window, body, solid, at[None], found[1][None], config)[0][0]
        configurations.append(at)
        costs.append(float(detected.cost))
    if len(configurations) == 1:
        return configurations[0]

    shown = image_evidence(frame, window, body, solid)
    nats = [
        log_likelihood(shown, window, body, configuration) - cost / _overconfidence(body, config)
        for configuration, cost in zip(configurations, costs, strict=True)
    ]
    return configurations[int(np.argmax(nats))]


def image_evidence(frame: NDArray[np.uint8], window: Window, body: ArticulatedBody, solid: Solid) -> Evidence:
    """Return the evidence that a frame [H, W, 3] has for the body, anywhere in its workspace."""
    pose = window.camera_from_base
    center, radius = direction_and_size(pose[:3, :3] @ body.center_m + pose[:3, 3], body.radius_m)
    return Evidence(frame, window.camera, solid, center, float(radius))


def log_likelihood(
    shown: Evidence, window: Window, body: ArticulatedBody, configuration: Array, *, colors_alone: bool = False
) -> float:
    """Return the log-likelihood of a frame given a configuration [D], nats, up to a constant.

    colors_alone: whether to compare colours inside and outside of the silhouette only.
    """
    vertices = PlacedBody(body, window.camera_from_base, configuration).vertices()
    return shown.color_nats(vertices) if colors_alone else shown.nats(vertices)


def refine_from(
    frame: NDArray[np.uint8],
    window: Window,
    body: ArticulatedBody,
    solid: Solid,
    configuration: Array,
    prior: Array,
    config: ArticulatedConfig = DEFAULTS,
) -> tuple[Array, Array] | None:
    """Fit a configuration to the edges in a frame and to a prior.

    Args:
        frame: [H, W, 3].
        window: The camera, and its pose.
        body: The body.
        solid: The mesh of the body with its creases.
        configuration: [D] start, and the mean of the prior.
        prior: [D, D] information of the prior.
        config: Settings.

    Returns:
        The configuration [D] and its covariance [D, D], not yet scaled by the error model; None where too few lines
        across the contour find the edge.
    """
    start = PlacedBody(body, window.camera_from_base, configuration)
    shared_px = config.contour_shared_px if body.bends else 0.0
    most = config.contour_max_step * body.prior_std
    found = fit_edges(frame, window.camera, solid, start, prior, most, shared_px)
    if found is None:
        return None
    at, information = found
    return at.configuration, np.asarray(np.linalg.inv(information / CONTOUR.overconfidence + prior))


def refine_near(
    frame: NDArray[np.uint8],
    window: Window,
    body: ArticulatedBody,
    solid: Solid,
    configuration: Array,
    kept: float,
    config: ArticulatedConfig = DEFAULTS,
) -> tuple[Array, Array] | None:
    """Fit to the edges near a configuration [D] by `refine_from`, with the body's weak prior around it.

    The result contains the share `kept` of that prior. The rest is subtracted again: what edges do not determine stays
    near the start, and its covariance is large.
    """
    weak = _weak_prior(body)
    found = refine_from(frame, window, body, solid, configuration, weak, config)
    if found is None:
        return None
    at, known = found
    covariance = np.linalg.inv(np.linalg.inv(known) - (1.0 - kept) * weak)
    return at + (1.0 - kept) * covariance @ weak @ (at - configuration), np.asarray(covariance)


def downweighted(body: ArticulatedBody, pull: Array, information: Array, factor: float) -> tuple[Array, Array]:
    """Combine keypoints whose information is divided by a factor with the body's weak prior.

    Args:
        body: The body.
        pull: [D] information of the keypoints times their configuration.
        information: [D, D] of the keypoints.
        factor: Their overconfidence factor.

    Returns:
        The configuration [D], within the limits, and its information [D, D].
    """
    weak = _weak_prior(body)
    prior = information / factor + weak
    configuration = np.linalg.solve(prior, pull / factor + weak @ body.prior_mean)
    return np.clip(configuration, body.lower, body.upper), prior


def _weak_prior(body: ArticulatedBody) -> Array:
    """Return the information [D, D] of the body's weak prior."""
    return np.diag(body.prior_std**-2.0)


def _overconfidence(body: ArticulatedBody, config: ArticulatedConfig) -> float:
    return config.point_overconfidence_shaded if body.bends else config.point_overconfidence


def _start(body: ArticulatedBody, detected: Configurations, config: ArticulatedConfig) -> tuple[Array, Array]:
    """Return the start [D] of a single image's edge fit, and its information [D, D]."""
    weak, information = _weak_prior(body), np.linalg.inv(detected.covariance)
    pull = information @ detected.configuration - weak @ body.prior_mean
    return downweighted(body, pull, information - weak, _overconfidence(body, config))

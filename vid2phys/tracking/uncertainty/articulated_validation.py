"""Validate a network's configurations on renders with held-out appearances.

Limits: the kinematic fit has a fixed error model, since the network is not yet calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.error_model import Calibration
from vid2phys.risp.networks import heatmaps
from vid2phys.risp.networks.model import excess_covariance
from vid2phys.risp.networks.network import predict
from vid2phys.risp.renders.stream import ImageStream, Key
from vid2phys.tracking.articulated.kinematic_fit import Configurations, fit_configurations
from vid2phys.types import Array

_EPOCH = 1_000_000  # a number that no training epoch has: the same images each time
_UNCALIBRATED = Calibration(point_scale=1.0, point_floor_px=1.0)
_DIAMETER_PX = 80.0


@dataclass
class ConfigurationValidation:
    """N held-out images with their true configurations.

    Attributes:
        images: [N, V, V, 3].
        points_px: [N, K, 2] true keypoints, px.
        visible: [N, K].
        K: [N, 3, 3] camera matrices, px.
        view_from_body: [N, 4, 4] poses of the base, m.
        configurations: [N, D] true configurations.
        body: The body.
    """

    images: NDArray[np.uint8]
    points_px: Tensor
    visible: Tensor
    K: Array
    view_from_body: Array
    configurations: Array
    body: ArticulatedBody

    @staticmethod
    def prepare(
        stream: ImageStream, indices: NDArray[np.int64], body: ArticulatedBody, configurations: Array
    ) -> ConfigurationValidation:
        """Develop the images of some renders.

        Args:
            stream: A stream without jitter.
            indices: Indices of the renders.
            body: The body.
            configurations: [N, D] true configurations of all renders.
        """
        items = [stream[Key(_EPOCH, int(i), "plain")] for i in indices]
        renders = [stream.primal(int(i)) for i in indices]
        scale = stream.settings.view_size / renders[0].radiance.shape[0]
        zoom = np.diag([scale, scale, 1.0])
        zoom[:2, 2] = 0.5 * scale - 0.5  # pixel centres at integers
        return ConfigurationValidation(
            np.stack([item["image"].numpy() for item in items]),
            torch.stack([item["points_px"] for item in items]),
            torch.stack([item["visible"] for item in items]),
            np.stack([zoom @ np.asarray(r.K, dtype=float) for r in renders]),
            np.stack([np.asarray(r.view_from_body, dtype=float) for r in renders]),
            configurations[indices],
            body,
        )

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """Return errors of points [px], of fitted configurations [rad or m], and of the fitted points in space [mm].

        `posture` is the mean absolute error of configurations, and nine in ten are below `posture_p90`. `rest` and
        `rest_mm` are the errors of a body that is always at rest. `within_2_sigma` is a share of the coordinates.
        """
        output = predict(network, self.images)[:, :-1]
        log_prob = heatmaps.log_probabilities(output)
        diagonal = torch.diagonal(heatmaps.cross_entropy(log_prob, self.points_px), dim1=1, dim2=2)
        points, moment, mass = heatmaps.decode(output)
        distance = (points - self.points_px).norm(dim=-1)[self.visible]
        raw = excess_covariance(moment.double(), mass.double()).numpy()
        found = self._fit(points.double().numpy(), raw)
        error = np.abs(found.configuration - self.configurations)
        std = np.sqrt(np.einsum("ndd->nd", found.covariance))
        at_rest = self.body.points(self.body.rest)
        away = np.linalg.norm(self.body.points(found.configuration) - self.body.points(self.configurations), axis=-1)
        return {
            "val_ce": float(diagonal[self.visible].mean()),
            "px": float(distance.median()),
            "px_p90": float(distance.quantile(0.9)),
            "posture": float(error.mean()),
            "posture_p90": float(np.quantile(error, 0.9)),
            "points_mm": float(1e3 * np.mean(away)),
            "within_2_sigma": float((error < 2.0 * std).mean()),
            "rest_mm": float(1e3 * np.linalg.norm(self.body.points(self.configurations) - at_rest, axis=-1).mean()),
            "rest": float(np.abs(self.configurations - self.body.rest).mean()),
        }

    def predict_configurations(self, network: nn.Module) -> Array:
        """Return the configurations [N, D] of the images by the kinematic fit."""
        points, moment, mass = heatmaps.decode(predict(network, self.images)[:, :-1])
        raw = excess_covariance(moment.double(), mass.double()).numpy()
        return self._fit(points.double().numpy(), raw).configuration

    def _fit(self, points_px: Array, raw_px: Array) -> Configurations:
        """Fit configurations to keypoints [N, K, 2] px with raw covariances [N, K, 2, 2] px^2."""
        inverse = np.linalg.inv(self.K)
        bearings = np.einsum("nij,nkj->nki", inverse[:, :2, :2], points_px) + inverse[:, None, :2, 2]
        covariance_px = _UNCALIBRATED.point_covariance(raw_px, np.full(len(raw_px), _DIAMETER_PX))
        to_bearings = inverse[:, None, :2, :2]
        covariance = to_bearings @ covariance_px @ np.swapaxes(to_bearings, -1, -2)
        return fit_configurations(self.body, self.view_from_body, bearings, covariance, visible=self.visible.numpy())

"""Fit configurations to bearings with covariances: a robust kinematic fit within the limits, batched over frames and
starts.

Levenberg-Marquardt (Marquardt 1963) on a Student-t cost, with annealed standard deviations. A coordinate that presses
against its limit is fixed for one step. A weak prior, as wide as the limits, resolves what no keypoint determines:
hidden joints end near the middle of their range with a wide interval.

Limits: each start leads to the nearest minimum only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.pnp import OUTLIER_SIGMA, STUDENT_NU
from vid2phys.tracking.articulated.config import DEFAULTS, ArticulatedConfig
from vid2phys.types import Array


@dataclass(frozen=True)
class Configurations:
    """Configurations with the same leading axes [...].

    Attributes:
        configuration: [..., D].
        covariance: [..., D, D] by the inliers and the prior.
        cost: [...] robust cost, nats.
        chi2: [...] sum of the inliers' squared normalised residuals.
        inliers: [..., K].
    """

    configuration: Array
    covariance: Array
    cost: Array
    chi2: Array
    inliers: NDArray[np.bool_]

    def best(self) -> Configurations:
        """Return the minimum of least cost of each frame, [N, S] -> [N]."""
        return self[np.arange(len(self.cost)), self.cost.argmin(axis=1)]

    def distinct(self, apart: Array) -> list[Configurations]:
        """Return the minima [S] of one frame that differ by more than `apart` [D] in a coordinate, the best first."""
        kept: list[Configurations] = []
        for i in np.argsort(self.cost, kind="stable"):
            if all((np.abs(self.configuration[i] - other.configuration) > apart).any() for other in kept):
                kept.append(self[i])
        return kept

    @staticmethod
    def join(parts: Sequence[Configurations], axis: int = 0) -> Configurations:
        """Concatenate configurations along an axis."""
        return Configurations(
            **{f.name: np.concatenate([getattr(p, f.name) for p in parts], axis) for f in fields(Configurations)}
        )

    def __getitem__(self, index: object) -> Configurations:
        return Configurations(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


@dataclass(frozen=True)
class _Data:
    """Data of M fits: poses [M, 4, 4], bearings [M, K, 2], whiteners [M, K, 2, 2] (zero for hidden points)."""

    body: ArticulatedBody
    camera_from_base: Array
    bearings: Array
    whitener: Array
    nearest_m: float

    def residuals(self, configurations: Array) -> Array:
        """Return whitened detected minus predicted bearings, [M, K, 2]."""
        return self._white(self.bearings - _project(self._in_camera(configurations)))

    def jacobian(self, configurations: Array) -> Array:
        """Return the derivative of the whitened prediction by the configuration, [M, K, 2, D]."""
        x = self._in_camera(configurations)
        slope = np.zeros((*x.shape[:-1], 2, 3))
        slope[..., 0, 0] = slope[..., 1, 1] = 1.0
        slope[..., 2] = -x[..., :2] / x[..., 2:]
        slope /= x[..., 2, None, None]
        rotation = self.camera_from_base[:, None, :3, :3]
        return self.whitener @ (slope @ rotation @ self.body.points_jacobian(configurations))

    def cost(self, configurations: Array, residual: Array) -> Array:
        """Return the cost [M] of whitened residuals [M, K, 2] and of the prior, nats."""
        squared = (residual**2).sum(axis=-1)
        robust = 0.5 * (STUDENT_NU + 2.0) * np.log1p(squared / STUDENT_NU).sum(axis=-1)
        return np.asarray(robust + 0.5 * (self.from_middle(configurations) ** 2).sum(axis=-1))

    def from_middle(self, configurations: Array) -> Array:
        """Return the distance from the prior's mean in its standard deviations, [M, D]."""
        return (configurations - self.body.prior_mean) / self.body.prior_std

    def _in_camera(self, configurations: Array) -> Array:
        pose = self.camera_from_base
        x = self.body.points(configurations) @ np.swapaxes(pose[:, :3, :3], -1, -2) + pose[:, None, :3, 3]
        x[..., 2] = np.maximum(x[..., 2], self.nearest_m)
        return x

    def _white(self, difference: Array) -> Array:
        return (self.whitener @ difference[..., None])[..., 0]


def fit_configurations(
    body: ArticulatedBody,
    camera_from_base: Array,
    bearings: Array,
    covariance: Array,
    *,
    visible: NDArray[np.bool_] | None = None,
    starts: Array | None = None,
    config: ArticulatedConfig = DEFAULTS,
) -> Configurations:
    """Return the best configuration of each of N frames, with leading axis [N]. Arguments: `find_minima`."""
    minima = find_minima(body, camera_from_base, bearings, covariance, visible=visible, starts=starts, config=config)
    return minima.best()


def find_minima(
    body: ArticulatedBody,
    camera_from_base: Array,
    bearings: Array,
    covariance: Array,
    *,
    visible: NDArray[np.bool_] | None = None,
    starts: Array | None = None,
    config: ArticulatedConfig = DEFAULTS,
) -> Configurations:
    """Fit configurations from S starts in each of N frames.

    Args:
        body: The body.
        camera_from_base: [N, 4, 4] or [4, 4] pose of the base, m.
        bearings: [N, K, 2] detected keypoints.
        covariance: [N, K, 2, 2] of the bearings.
        visible: [N, K], whether to use a keypoint; None for all.
        starts: [N, S, D] starts; None for the rest and two configurations that are bent to either side.
        config: Settings.

    Returns:
        Minima with leading axes [N, S].
    """
    count, size = len(bearings), len(body.rest)
    seen = np.asarray(np.isfinite(bearings).all(axis=-1) & np.isfinite(covariance).all(axis=(-1, -2)))
    if visible is not None:
        seen = seen & visible
    if starts is None:
        bent = config.start_offset * body.prior_std
        usual = np.stack([body.rest, body.prior_mean - bent, body.prior_mean + bent])
        starts = np.broadcast_to(usual, (count, 3, size))
    tried = starts.shape[1]
    safe = np.where(seen[..., None, None], covariance, np.eye(2))
    whitener = np.linalg.inv(np.linalg.cholesky(safe)) * seen[..., None, None]
    pose = np.broadcast_to(camera_from_base, (count, 4, 4))
    of_frames = (pose, np.where(seen[..., None], bearings, 0.0), whitener, seen)
    poses, rays, whiteners, visible = (np.repeat(a, tried, axis=0) for a in of_frames)
    data = _Data(body, poses, rays, whiteners, config.nearest_m)
    begin = np.clip(starts.reshape(-1, size), body.lower, body.upper)
    found = _finish(data, _descend(data, begin, config), visible)
    return Configurations(**{f.name: _folded(getattr(found, f.name), count) for f in fields(Configurations)})


def _folded(values: NDArray[Any], count: int) -> NDArray[Any]:
    return values.reshape(count, -1, *values.shape[1:])


def _descend(data: _Data, configurations: Array, config: ArticulatedConfig) -> Array:
    """Move every configuration [M, D] to the nearest minimum of the robust cost."""
    damping = np.full(len(configurations), config.first_damping)
    residual = data.residuals(configurations)
    for inflation in config.anneal:
        step = _step(data, configurations, residual / inflation, inflation, damping)
        moved = data.body.retract(configurations, step)
        there = data.residuals(moved)
        better = data.cost(moved, there / inflation) < data.cost(configurations, residual / inflation)
        configurations = np.where(better[:, None], moved, configurations)
        residual = np.where(better[:, None, None], there, residual)
        damping = np.where(better, 0.3 * damping, 10.0 * damping).clip(1e-6, 1e6)
    return configurations


def _step(data: _Data, configurations: Array, residual: Array, inflation: float, damping: Array) -> Array:
    """Return damped Gauss-Newton steps [M, D]; a coordinate that presses against its limit does not move."""
    jacobian = data.jacobian(configurations) / inflation
    weight = (STUDENT_NU + 2.0) / (STUDENT_NU + (residual**2).sum(axis=-1))
    precision = 1.0 / data.body.prior_std**2
    hessian = _normal(jacobian, weight) + np.diag(precision)
    weighted = (residual * weight[..., None]).reshape(len(residual), 1, -1)
    downhill = (weighted @ jacobian.reshape(len(residual), -1, len(precision)))[:, 0]
    downhill -= data.from_middle(configurations) / data.body.prior_std
    fixed = ((configurations <= data.body.lower) & (downhill < 0.0)) | (
        (configurations >= data.body.upper) & (downhill > 0.0)
    )
    diagonal = np.einsum("mdd->md", hessian)
    matrix = hessian + (damping[:, None] * diagonal)[..., None] * np.eye(len(precision))
    free = ~fixed
    matrix = np.where(free[:, :, None] & free[:, None, :], matrix, diagonal[..., None] * np.eye(len(precision)))
    return np.asarray(np.linalg.solve(matrix, (downhill * free)[..., None])[..., 0])


def _normal(jacobian: Array, weight: Array) -> Array:
    """Return the sum over points of w J^T J, [M, D, D]."""
    rows = (jacobian * np.sqrt(weight)[..., None, None]).reshape(len(jacobian), -1, jacobian.shape[-1])
    return np.swapaxes(rows, -1, -2) @ rows


def _finish(data: _Data, configurations: Array, seen: NDArray[np.bool_]) -> Configurations:
    """Return the fits with covariances, costs and inliers."""
    residual = data.residuals(configurations)
    squared = (residual**2).sum(axis=-1)
    inliers = seen & (squared < OUTLIER_SIGMA**2)
    hessian = _normal(data.jacobian(configurations), inliers.astype(float)) + np.diag(1.0 / data.body.prior_std**2)
    covariance = np.asarray(np.linalg.inv(hessian), dtype=float)
    return Configurations(
        configurations, covariance, data.cost(configurations, residual), (squared * inliers).sum(axis=-1), inliers
    )


def _project(x: Array) -> Array:
    return x[..., :2] / x[..., 2:]

"""Configurations from bearings with covariances: robust kinematic fit within the limits, batched over frames and
starts.

Damped Gauss-Newton on a Student-t cost, standard deviations inflated at first; a coordinate that presses against its
limit is held there for a step. A weak prior, as wide as the limits, keeps apart what no point tells: hidden joints come
back near the middle of their range with an interval that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.pnp import OUTLIER_SIGMA, STUDENT_NU
from vid2phys.types import Array

_ANNEAL = (8.0, 4.0, 4.0, 2.0, 2.0, *(1.0,) * 8)  # standard deviations are inflated by this
_FIRST_DAMPING = 1e-2  # of the Hessian's diagonal
_BENT = 0.85  # standard deviations of the prior by which starts are bent
_NEAREST_M = 1e-3  # a point is at least this far in front of the camera


@dataclass(frozen=True)
class Configurations:
    """Configurations with the same leading axes [...].

    configuration: [..., D]. covariance: [..., D, D], of the points that are not outliers and the prior. cost: [...]
    nats. chi2: [...] squared normalised residuals of the inliers. inliers: [..., K].
    """

    configuration: Array
    covariance: Array
    cost: Array
    chi2: Array
    inliers: NDArray[np.bool_]

    def best(self) -> Configurations:
        """Of S minima a frame the one of least cost, [N, S] -> [N]."""
        return self[np.arange(len(self.cost)), self.cost.argmin(axis=1)]

    def distinct(self, apart: Array) -> list[Configurations]:
        """Of minima [S] of one frame those that differ by more than `apart` [D] in some coordinate, the best first."""
        kept: list[Configurations] = []
        for i in np.argsort(self.cost, kind="stable"):
            if all((np.abs(self.configuration[i] - other.configuration) > apart).any() for other in kept):
                kept.append(self[i])
        return kept

    @staticmethod
    def join(parts: Sequence[Configurations], axis: int = 0) -> Configurations:
        """Several as one."""
        return Configurations(
            **{f.name: np.concatenate([getattr(p, f.name) for p in parts], axis) for f in fields(Configurations)}
        )

    def __getitem__(self, index: object) -> Configurations:
        return Configurations(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


@dataclass(frozen=True)
class _Data:
    """What M fits share: pose [M, 4, 4], bearings [M, K, 2], whitener [M, K, 2, 2] (zero where nothing is seen)."""

    body: ArticulatedBody
    camera_from_base: Array
    bearings: Array
    whitener: Array

    def residuals(self, configurations: Array) -> Array:
        """Whitened read minus predicted, [M, K, 2]."""
        return self._white(self.bearings - _project(self._in_camera(configurations)))

    def jacobian(self, configurations: Array) -> Array:
        """d whitened prediction / d configuration, [M, K, 2, D]."""
        x = self._in_camera(configurations)
        slope = np.zeros((*x.shape[:-1], 2, 3))
        slope[..., 0, 0] = slope[..., 1, 1] = 1.0
        slope[..., 2] = -x[..., :2] / x[..., 2:]
        slope /= x[..., 2, None, None]
        turn = self.camera_from_base[:, None, :3, :3]
        return self.whitener @ (slope @ turn @ self.body.jacobian(configurations))

    def cost(self, configurations: Array, residual: Array) -> Array:
        """Nats [M] of whitened residuals [M, K, 2] and of the prior."""
        squared = (residual**2).sum(axis=-1)
        robust = 0.5 * (STUDENT_NU + 2.0) * np.log1p(squared / STUDENT_NU).sum(axis=-1)
        return np.asarray(robust + 0.5 * (self.from_middle(configurations) ** 2).sum(axis=-1))

    def from_middle(self, configurations: Array) -> Array:
        """Distance from the prior's middle in its standard deviations, [M, D]."""
        return (configurations - self.body.middle) / self.body.spread

    def _in_camera(self, configurations: Array) -> Array:
        pose = self.camera_from_base
        x = self.body.points(configurations) @ np.swapaxes(pose[:, :3, :3], -1, -2) + pose[:, None, :3, 3]
        x[..., 2] = np.maximum(x[..., 2], _NEAREST_M)
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
) -> Configurations:
    """Return the best configuration of each of N frames, with leading axis [N]. Arguments: `find_minima`."""
    return find_minima(body, camera_from_base, bearings, covariance, visible=visible, starts=starts).best()


def find_minima(
    body: ArticulatedBody,
    camera_from_base: Array,
    bearings: Array,
    covariance: Array,
    *,
    visible: NDArray[np.bool_] | None = None,
    starts: Array | None = None,
) -> Configurations:
    """The minima that S starts lead to in each of N frames: a `Configurations` with leading axes [N, S].

    camera_from_base: [N, 4, 4] or [4, 4] m. bearings: [N, K, 2]. covariance: [N, K, 2, 2]. visible: [N, K], what is
    False is not used. starts: [N, S, D] configurations to begin with instead of rest and two that are bent to either
    side.
    """
    count, size = len(bearings), len(body.rest)
    seen = np.asarray(np.isfinite(bearings).all(axis=-1) & np.isfinite(covariance).all(axis=(-1, -2)))
    if visible is not None:
        seen = seen & visible
    if starts is None:
        bent = _BENT * body.spread
        usual = np.stack([body.rest, body.middle - bent, body.middle + bent])
        starts = np.broadcast_to(usual, (count, 3, size))
    tried = starts.shape[1]
    safe = np.where(seen[..., None, None], covariance, np.eye(2))
    whitener = np.linalg.inv(np.linalg.cholesky(safe)) * seen[..., None, None]
    pose = np.broadcast_to(camera_from_base, (count, 4, 4))
    of_frames = (pose, np.where(seen[..., None], bearings, 0.0), whitener, seen)
    *arrays, visible = (np.repeat(a, tried, axis=0) for a in of_frames)
    data = _Data(body, *arrays)
    found = _finish(data, _descend(data, np.clip(starts.reshape(-1, size), body.lower, body.upper)), visible)
    return Configurations(**{f.name: _folded(getattr(found, f.name), count) for f in fields(Configurations)})


def _folded(values: NDArray[Any], count: int) -> NDArray[Any]:
    return values.reshape(count, -1, *values.shape[1:])


def _descend(data: _Data, configurations: Array) -> Array:
    """Every configuration [M, D] taken down to the nearest minimum of the robust cost."""
    damping = np.full(len(configurations), _FIRST_DAMPING)
    residual = data.residuals(configurations)
    for inflation in _ANNEAL:
        step = _step(data, configurations, residual / inflation, inflation, damping)
        moved = np.clip(configurations + step, data.body.lower, data.body.upper)
        there = data.residuals(moved)
        better = data.cost(moved, there / inflation) < data.cost(configurations, residual / inflation)
        configurations = np.where(better[:, None], moved, configurations)
        residual = np.where(better[:, None, None], there, residual)
        damping = np.where(better, 0.3 * damping, 10.0 * damping).clip(1e-6, 1e6)
    return configurations


def _step(data: _Data, configurations: Array, residual: Array, inflation: float, damping: Array) -> Array:
    """Damped Gauss-Newton step [M, D] that leaves alone what presses against a limit."""
    jacobian = data.jacobian(configurations) / inflation
    weight = (STUDENT_NU + 2.0) / (STUDENT_NU + (residual**2).sum(axis=-1))
    precision = 1.0 / data.body.spread**2
    hessian = _normal(jacobian, weight) + np.diag(precision)
    weighted = (residual * weight[..., None]).reshape(len(residual), 1, -1)
    downhill = (weighted @ jacobian.reshape(len(residual), -1, len(precision)))[:, 0]
    downhill -= data.from_middle(configurations) / data.body.spread
    held = ((configurations <= data.body.lower) & (downhill < 0.0)) | (
        (configurations >= data.body.upper) & (downhill > 0.0)
    )
    diagonal = np.einsum("mdd->md", hessian)
    matrix = hessian + (damping[:, None] * diagonal)[..., None] * np.eye(len(precision))
    free = ~held
    matrix = np.where(free[:, :, None] & free[:, None, :], matrix, diagonal[..., None] * np.eye(len(precision)))
    return np.asarray(np.linalg.solve(matrix, (downhill * free)[..., None])[..., 0])


def _normal(jacobian: Array, weight: Array) -> Array:
    """Sum over points of w J^T J, [M, D, D]."""
    rows = (jacobian * np.sqrt(weight)[..., None, None]).reshape(len(jacobian), -1, jacobian.shape[-1])
    return np.swapaxes(rows, -1, -2) @ rows


def _finish(data: _Data, configurations: Array, seen: NDArray[np.bool_]) -> Configurations:
    residual = data.residuals(configurations)
    squared = (residual**2).sum(axis=-1)
    inliers = seen & (squared < OUTLIER_SIGMA**2)
    hessian = _normal(data.jacobian(configurations), inliers.astype(float)) + np.diag(1.0 / data.body.spread**2)
    covariance = np.asarray(np.linalg.inv(hessian), dtype=float)
    return Configurations(
        configurations, covariance, data.cost(configurations, residual), (squared * inliers).sum(axis=-1), inliers
    )


def _project(x: Array) -> Array:
    return x[..., :2] / x[..., 2:]

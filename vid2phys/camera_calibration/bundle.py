"""Fit intrinsics and the poses of all views together by least squares, for every camera model, with covariances.

Unknowns: fx, fy, cx, cy, the distortion coefficients, and for each view a rotation vector and a translation of the
target in camera axes. `engine.observe` projects the points, so a calibration is for the very model that uses it.
Derivatives are central differences. All views move at once, since the residuals of a view depend on its own pose alone.
Limit: the start has to be near, because the bundle does not search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vid2phys.camera_calibration.detect import View
from vid2phys.engine.observe import project
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.types import Array, Camera

_STEP = 1e-6
_UNSEEN_PX = 1e3  # error of a point that the camera cannot see


@dataclass(frozen=True)
class Bundle:
    """Views of one target through one camera.

    points: [N, 3] m, of the target in page axes. views: what the images show. size: width and height [px]. model: the
    name of the distortion model.
    """

    points: Array
    views: list[View]
    size: tuple[int, int]
    model: str

    def camera(self, intrinsics: Array) -> Camera:
        """Return the camera of the vector [fx, fy, cx, cy, distortion ...]."""
        fx, fy, cx, cy = intrinsics[:4]
        K = np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])
        return Camera(K, *self.size, intrinsics[4:], self.model)

    def residuals(self, intrinsics: Array, poses: Array) -> Array:
        """Return detected minus projected pixels of all points of all views, [M, 2] px; poses [V, 6]."""
        camera = self.camera(intrinsics)
        rotation = matrix_from_rotvec(poses[:, :3])
        moved = [self.points[view.ids] @ rotation[i].T + poses[i, 3:] for i, view in enumerate(self.views)]
        seen = np.concatenate([view.pixels for view in self.views])
        return np.nan_to_num(seen - project(camera, np.concatenate(moved)), nan=_UNSEEN_PX)

    def jacobian(self, intrinsics: Array, poses: Array) -> Array:
        """Return d residuals / d (intrinsics, poses), [2 M, I + 6 V], by central differences."""
        count, views = len(intrinsics), len(self.views)
        of_view = np.repeat(np.arange(views), [len(view.ids) for view in self.views])
        out = np.zeros((len(of_view), 2, count + 6 * views))
        for i in range(count):
            step = np.zeros(count)
            step[i] = _STEP * max(1.0, abs(intrinsics[i]))
            change = self.residuals(intrinsics + step, poses) - self.residuals(intrinsics - step, poses)
            out[:, :, i] = change / (2.0 * step[i])
        for i in range(6):
            step = np.zeros(6)
            step[i] = _STEP
            change = self.residuals(intrinsics, poses + step) - self.residuals(intrinsics, poses - step)
            out[np.arange(len(of_view)), :, count + 6 * of_view + i] = change / (2.0 * _STEP)
        return out.reshape(-1, count + 6 * views)

    def solve(self, intrinsics: Array, poses: Array) -> tuple[Array, Array]:
        """Return the intrinsics [I] and poses [V, 6] of least squares, from a start nearby."""
        from scipy.optimize import least_squares

        count = len(intrinsics)

        def split(x: Array) -> tuple[Array, Array]:
            return x[:count], x[count:].reshape(-1, 6)

        found = least_squares(
            lambda x: self.residuals(*split(x)).ravel(),
            np.concatenate([intrinsics, poses.ravel()]),
            jac=lambda x: self.jacobian(*split(x)),
            x_scale="jac",
            method="lm",
            max_nfev=100,
        )
        return split(np.asarray(found.x))

    def standard_deviations(self, intrinsics: Array, poses: Array) -> Array:
        """Return standard deviations of the intrinsics, [I], scaled by the spread of the residuals.

        What the views do not determine has an infinite one.
        """
        jacobian = self.jacobian(intrinsics, poses)
        residuals = self.residuals(intrinsics, poses)
        variance = float((residuals**2).sum()) / max(residuals.size - jacobian.shape[1], 1)
        scale = np.maximum(np.linalg.norm(jacobian, axis=0), 1e-12)
        normal = (jacobian / scale).T @ (jacobian / scale)
        values, vectors = np.linalg.eigh(normal)
        if values[0] < 1e-12 * values[-1]:
            return np.full(len(intrinsics), np.inf)
        covariance = (vectors / values) @ vectors.T
        return np.sqrt(variance * np.diag(covariance)[: len(intrinsics)]) / scale[: len(intrinsics)]

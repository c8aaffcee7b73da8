"""The keypoint loss: bearings of the body's keypoints with their covariances, the default.

Smoothing and shooting fit the same residuals.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vid2phys.engine.points import world_points
from vid2phys.errors import InputError
from vid2phys.geometry import invert_transform
from vid2phys.solvers.losses._loss import Loss, misfit, robust
from vid2phys.solvers.rollout_fit import BatchedMotionLoss
from vid2phys.solvers.shooting import whitening
from vid2phys.types import Array

_NEAREST_M = 1e-6


class KeypointLoss(BatchedMotionLoss, Loss):
    """Bearings of keypoints, whitened by the error model, under a Student-t cost a frame."""

    name = "keypoint"
    has_residuals = True

    def prepare(self) -> None:
        """See `Loss.prepare`. Raises InputError when no keypoint was seen."""
        seen = self.problem.observation
        if not seen.visible.any():
            raise InputError(
                "no keypoint was seen in any frame", "frames that show the body", "use a clip in which it is tracked"
            )
        self._roots = torch.from_numpy(whitening(self.problem))
        self._visible = torch.from_numpy(seen.visible)
        self._seen = torch.from_numpy(np.where(seen.visible[..., None], seen.bearings, 0.0))
        self._to_camera = torch.from_numpy(invert_transform(self.problem.camera_to_world))

    def check(self, states: Tensor) -> None:
        """See `Loss.check`: keypoints pull from everywhere."""

    def batched_residuals(self, motions: Tensor) -> Tensor:
        """See `Judge.batched_residuals`."""
        points = world_points(self.problem.system, motions.flatten(0, 1), self.problem.observation.points_body)
        camera = points.unflatten(0, motions.shape[:2]) @ self._to_camera[:3, :3].T + self._to_camera[:3, 3]
        bearings = camera[..., :2] / camera[..., 2:].clamp(min=_NEAREST_M)
        off = torch.where(self._visible[..., None], bearings - self._seen, torch.zeros_like(bearings))
        white = (self._roots @ off.flatten(2).permute(1, 2, 0)).permute(2, 0, 1)  # roots are not copied for each
        return robust(white, 2.0 * self._visible.sum(1)).flatten(1)

    def variance(self, residuals: Array) -> float:
        """See `Loss.variance`: of those of points that were seen."""
        return misfit(residuals[residuals != 0.0])

"""The keypoint loss: keypoints and measured configurations with their covariances, the default.

Smoothing and shooting fit the same residuals (`measurements`). Here they are PyTorch functions of states.

Limits: measured coordinates of articulated and modal bodies have no gradients; fits by differences need none.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vid2phys.engine.points import world_points
from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import Pose, invert_transform
from vid2phys.solvers import configurations
from vid2phys.solvers.losses._loss import Loss, misfit, robust
from vid2phys.solvers.measurements import Errors
from vid2phys.solvers.rollout_fit import BatchedMotionLoss
from vid2phys.solvers.shooting import whitening
from vid2phys.types import Array, ConfigurationMeasurement

_NEAREST_M = 1e-6
_TINY = 1e-18  # of a squared sine: keeps gradients finite where a rotation is none


class KeypointLoss(BatchedMotionLoss, Loss):
    """Measurements whitened by the error model, under a Student-t cost a frame."""

    name = "keypoint"
    has_residuals = True

    def prepare(self) -> None:
        """See `Loss.prepare`. Raises InputError when no frame shows the body."""
        seen = self.problem.observation
        if not seen.seen.any():
            raise InputError(
                "no keypoint was seen in any frame", "frames that show the body", "use a clip in which it is tracked"
            )
        self._roots = torch.from_numpy(whitening(self.problem))
        self._used = torch.from_numpy(seen.used)
        self._count = torch.from_numpy(Errors.of(seen).used.sum(axis=1))
        self._seen = torch.from_numpy(seen.bearings)
        self._measured = seen.configuration
        self._to_camera = torch.from_numpy(invert_transform(self.problem.camera_to_world))

    def check(self, states: Tensor) -> None:
        """See `Loss.check`: keypoints pull from everywhere."""

    def batched_residuals(self, motions: Tensor) -> Tensor:
        """See `Judge.batched_residuals`."""
        camera = self._in_camera(motions, self.problem.observation.points_body)
        bearings = camera[..., :2] / camera[..., 2:].clamp(min=_NEAREST_M)
        off = torch.where(self._used[..., None], bearings - self._seen, torch.zeros_like(bearings)).flatten(2)
        if self._measured is not None:
            off = torch.cat([off, self._steps(motions, self._measured)], dim=-1)
        white = (self._roots @ off.permute(1, 2, 0)).permute(2, 0, 1)  # roots are not copied for each
        return robust(white, self._count).flatten(1)

    def _in_camera(self, motions: Tensor, points_body: Array) -> Tensor:
        """Return points [K, 3] m of the body in camera axes along motions [B, F, N], [B, F, K, 3]."""
        points = world_points(self.problem.system, motions.flatten(0, 1), points_body)
        rotation, translation = self._to_camera[..., :3, :3], self._to_camera[..., None, :3, 3]
        return points.unflatten(0, motions.shape[:2]) @ rotation.mT + translation

    def _steps(self, motions: Tensor, measured: ConfigurationMeasurement) -> Tensor:
        """Return the steps [B, F, D] from the measured configurations to those of motions [B, F, N]."""
        if not isinstance(measured.configuration, Pose):
            if motions.requires_grad:
                raise UsageError("gradients of measured coordinates", "a fit by differences", "use --solver shooting")
            off = configurations.residual(self.problem, self.problem.parameters, motions.numpy())
            return torch.from_numpy(off)
        at, pose = self._in_camera(motions, configurations.AXES), measured.pose
        before, translation = torch.from_numpy(pose.rotation), torch.from_numpy(pose.translation)
        growth = at[..., 0, 2:].clamp(min=_NEAREST_M) / translation[:, 2:]
        aside = (at[..., 0, :2] / growth - translation[:, :2]) / translation.norm(dim=-1, keepdim=True)
        axes = at[..., 1:, :] - at[..., :1, :]
        turned = axes.transpose(-1, -2) @ before.transpose(-1, -2)
        steps = torch.cat([_rotation_vector(turned), aside, growth.log()], dim=-1)
        return torch.where(torch.from_numpy(measured.measured)[:, None], steps, torch.zeros_like(steps))

    def variance(self, residuals: Array) -> float:
        """See `Loss.variance`: of those of measurements that count."""
        return misfit(residuals[residuals != 0.0])


def _rotation_vector(rotation: Tensor) -> Tensor:
    """Return the logarithms [..., 3] rad of rotations [..., 3, 3] of less than half a turn."""
    skew = 0.5 * (rotation - rotation.transpose(-1, -2))
    sine = torch.stack([skew[..., 2, 1], skew[..., 0, 2], skew[..., 1, 0]], dim=-1)
    cosine = 0.5 * (rotation.diagonal(dim1=-2, dim2=-1).sum(dim=-1, keepdim=True) - 1.0)
    size = (sine.square().sum(dim=-1, keepdim=True) + _TINY).sqrt()
    return sine * torch.atan2(size, cosine) / size

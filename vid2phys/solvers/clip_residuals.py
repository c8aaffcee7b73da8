"""The measurements of a clip as a whole, with errors that are correlated from frame to frame.

Purpose: fits to single frames count correlated errors for less (`shooting.whitening`). That is right for what changes
as slowly as the errors do. Of faster motion it loses most, because lasting errors are equal in adjacent frames and
cancel. A fit reaches the Cramer-Rao bound only with the covariance of the whole clip.

Limits: the covariance is dense, so that a clip has a few thousand numbers at most.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import solve_triangular
from torch import Tensor

from vid2phys.solvers import interval_parts
from vid2phys.solvers.least_squares import STUDENT_DOF
from vid2phys.solvers.measurements import Errors, residuals
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.rollout_fit import BatchedMotionLoss
from vid2phys.types import Array


class ClipResiduals(BatchedMotionLoss):
    """Predicted minus measured numbers (`measurements`), whitened by their covariance over all frames."""

    def __init__(self, problem: Problem, weights: Array) -> None:
        """Factor the covariance. weights: [F, N], factors of the information of each number."""
        self._problem, self._errors = problem, Errors.of(problem.observation)
        errors = self._errors
        self._kept = errors.used.ravel()
        self._scale = np.sqrt(weights.ravel()[self._kept])
        self._root = np.linalg.cholesky(errors.of_clip()[np.ix_(self._kept, self._kept)])

    @staticmethod
    def about(problem: Problem, states: Array) -> ClipResiduals:
        """Return residuals with each measurement weighted by its agreement with states [F, n] (Student's t)."""
        errors = Errors.of(problem.observation)
        off = np.nan_to_num(residuals(problem, problem.parameters, states))
        total = errors.covariance + errors.basis @ np.swapaxes(errors.basis, -1, -2)
        weights, points = np.ones(off.shape), 2 * problem.observation.visible.shape[1]
        blocks = [slice(2 * k, 2 * k + 2) for k in range(points // 2)] + [slice(points, off.shape[1])]
        for block in blocks[: -1 if off.shape[1] == points else None]:
            solved = np.linalg.solve(total[:, block, block], off[:, block, None])[..., 0]
            share = (off[:, block] * solved).mean(axis=-1, keepdims=True)
            weights[:, block] = np.minimum(1.0, (STUDENT_DOF + 1.0) / (STUDENT_DOF + share))
        return ClipResiduals(problem, weights)

    def batched_residuals(self, motions: Tensor) -> Tensor:
        """See `rollout_fit.MotionLoss.batched_residuals`; not differentiable."""
        return torch.from_numpy(self.whitened(residuals(self._problem, self._problem.parameters, motions.numpy())))

    def variances(self, gain: Array) -> dict[str, Array]:
        """Return what the variances [Q] of estimates are made of, which move by gain [Q, R] times the residuals."""
        shape = self._errors.used.shape
        of_kept = solve_triangular(self._root, gain.T, lower=True, trans="T", check_finite=False).T
        of_all = np.zeros((len(gain), self._kept.size))
        of_all[:, self._kept] = of_kept
        return interval_parts.of_measurements(self._errors, of_all.reshape(len(gain), *shape))

    def whitened(self, off: Array) -> Array:
        """Return residuals [B, R] of unit variance of predicted minus measured numbers [B, F, N]."""
        scaled = self._scale * np.nan_to_num(off.reshape(len(off), -1)[:, self._kept], nan=1.0)
        return np.asarray(solve_triangular(self._root, scaled.T, lower=True, check_finite=False).T)

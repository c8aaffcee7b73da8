"""Bearings of a clip as a whole, with errors that are correlated from frame to frame.

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

from vid2phys.solvers.cramer_rao import error_covariance
from vid2phys.solvers.least_squares import STUDENT_DOF
from vid2phys.solvers.prediction import bearings
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.rollout_fit import BatchedMotionLoss
from vid2phys.types import Array


class ClipResiduals(BatchedMotionLoss):
    """Predicted minus measured bearings, whitened by their covariance over all frames."""

    def __init__(self, problem: Problem, weights: Array) -> None:
        """Factor the covariance. weights: [F, K], factors of the information of each point."""
        self._problem = problem
        self._kept = np.repeat(problem.observation.visible.ravel(), 2)
        self._scale = np.sqrt(np.repeat(weights.ravel(), 2)[self._kept])
        covariance = error_covariance(problem.observation)[np.ix_(self._kept, self._kept)]
        self._root = np.linalg.cholesky(covariance)

    @staticmethod
    def about(problem: Problem, states: Array) -> ClipResiduals:
        """Return residuals with each point weighted by its agreement with states [F, N] (Student's t)."""
        seen = problem.observation
        off = bearings(problem, problem.parameters, states) - seen.bearings
        total = seen.covariance + seen.shared_basis @ np.swapaxes(seen.shared_basis, -1, -2)
        share = 0.5 * np.einsum("fki,fki->fk", off, np.linalg.solve(total, off[..., None])[..., 0])
        return ClipResiduals(problem, np.minimum(1.0, (STUDENT_DOF + 1.0) / (STUDENT_DOF + share)))

    def batched_residuals(self, motions: Tensor) -> Tensor:
        """See `rollout_fit.MotionLoss.batched_residuals`; not differentiable."""
        return torch.from_numpy(self.whitened(bearings(self._problem, self._problem.parameters, motions.numpy())))

    def whitened(self, predicted: Array) -> Array:
        """Return residuals [B, R] of unit variance of predicted bearings [B, F, K, 2]."""
        off = (predicted - self._problem.observation.bearings).reshape(len(predicted), -1)[:, self._kept]
        scaled = self._scale * np.nan_to_num(off, nan=1.0)
        return np.asarray(solve_triangular(self._root, scaled.T, lower=True, check_finite=False).T)

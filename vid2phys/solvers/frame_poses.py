"""The pose that each frame's measurements give, with its error: what fits compare with rollouts of rigid bodies.

Method: a frame has keypoints or a configuration. Gauss-Newton on the frame by itself turns both into a pose in the
world, with its covariance and with the effect of the clip's error processes on it.

Limits: the errors are those of the linear model about the pose. A rotation that does not show has a standard deviation
of pi.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.solvers import measurements
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array

if TYPE_CHECKING:
    from vid2phys.engine.system import System

_UNSEEN = np.array([1e-6, 1e-6, 1e-6, *[np.pi**-2] * 3])  # information on a pose that is there without a frame
NOTHING_HIDDEN = np.zeros((0, 3))
"""Axes [0, 3] of a body of which every rotation shows."""
_ROUNDS = 3


@dataclass(frozen=True)
class FramePoses:
    """Poses in G of the F frames of a clip.

    rows: [G] indices of the frames. states: [G, N] states with these poses. covariance: [G, 6, 6] of errors that are
    independent between frames, in the tangent space of the pose. basis: [G, 6, R] effect of the error processes, of
    unit variance. times_s: [R] their correlation times. clock_s: [G] the time in which they forget.
    """

    rows: NDArray[np.int64]
    states: Array
    covariance: Array
    basis: Array
    times_s: Array
    clock_s: Array

    @staticmethod
    def of(problem: Problem, states: Array, hidden: Array = NOTHING_HIDDEN) -> FramePoses:
        """Return the poses of a clip's frames near the states [F, N] of a rigid body.

        hidden: [A, 3] axes of the body, rotations about which do not show.
        """
        errors = measurements.Errors.of(problem.observation)
        weight = np.linalg.inv(errors.covariance) * errors.used[:, None, :] * errors.used[:, :, None]
        states = states.copy()
        for _ in range(_ROUNDS):
            off, by_state, _ = measurements.linear_residuals(problem, problem.parameters, states)
            onto = np.swapaxes(np.nan_to_num(by_state[..., :6]), 1, 2) @ weight
            information = onto @ np.nan_to_num(by_state[..., :6]) + np.diag(_UNSEEN)
            step = np.zeros((len(states), len(problem.system.tangent_names)))
            step[:, :6] = -np.linalg.solve(information, onto @ np.nan_to_num(off)[..., None])[..., 0]
            states = problem.system.retract(states, step)
        covariance = np.linalg.inv(information)
        basis = covariance @ onto @ errors.basis
        covariance[:, 3:, 3:] += np.pi**2 * hidden.T @ hidden
        rows = np.flatnonzero(errors.used.any(axis=1))
        return FramePoses(rows, states[rows], covariance[rows], basis[rows], errors.times_s, errors.clock_s[rows])

    @cached_property
    def precision(self) -> Array:
        """Return the inverse [G, 6, 6] of each pose's own covariance, with the error processes."""
        return np.asarray(np.linalg.inv(self.covariance + self.basis @ np.swapaxes(self.basis, 1, 2)))

    def moving(self, system: System, times_s: Array) -> Array:
        """Return states [F, N] of a rigid body at all times [F], with velocities by differences between poses.

        Frames without a pose get that of the frame before.
        """
        seen_s = times_s[self.rows]
        rates = system.local(self.states[:-2], self.states[2:])[:, :6] / (seen_s[2:] - seen_s[:-2])[:, None]
        states = self.states.copy()
        states[:, 7:13] = np.vstack([rates[:1], rates, rates[-1:]])
        last = np.maximum(np.searchsorted(self.rows, np.arange(len(times_s)), side="right") - 1, 0)
        return states[last]

    def covariance_of_clip(self, weights: Array) -> Array:
        """Return the covariance [6 G, 6 G] of all poses; weights [G] divide the frames' own covariances."""
        apart = np.abs(self.clock_s[:, None] - self.clock_s[None, :])
        together = np.exp(-apart[..., None] / np.maximum(self.times_s, 1e-9))
        total = np.einsum("fir,fgr,gjr->figj", self.basis, together, self.basis, optimize=True)
        each = np.arange(len(self.rows))
        total[each, :, each, :] += self.covariance / weights[:, None, None]
        return np.asarray(total.reshape(6 * len(each), 6 * len(each)))

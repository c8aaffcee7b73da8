"""What every solver gives back: states, controls, parameters and what is known about their errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vid2phys.solvers.prediction import linear_bearings
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array, Parameters


@dataclass(frozen=True)
class Solution:
    """A fit at the frames of the clip.

    states [F, N]; covariance [F, D, D] in their tangent space; controls [F - 1, M], means over the frame intervals;
    action_std [F - 1, A] of the fitted actions, None when they were recorded; parameters: all, with fitted values;
    theta_names [P]: the free parameters, then the solver's nuisances, with theta_covariance [P, P] and
    null_directions [*, P] in solver coordinates; extra: the nuisances' values and the levels found, by name.
    weights: [F, K] robust weights of the keypoints. residuals: [F, C] of deterministic models, white where they
    explain the clip (`innovations`); None where lasting disturbances are part of the model.
    knot_states [T, N], knot_inputs [T, M]: where to start again.
    """

    states: Array
    covariance: Array
    controls: Array
    action_std: Array | None
    parameters: Parameters
    theta_names: tuple[str, ...]
    theta_covariance: Array
    null_directions: Array
    iterations: int
    converged: bool
    loss: float
    extra: dict[str, float]
    weights: Array
    residuals: Array | None
    knot_states: Array
    knot_inputs: Array | None = None


def residual_bearings(problem: Problem, states: Array) -> Array:
    """Observed minus predicted bearings, [F, K, 2], NaN where a point was not visible; at the problem's parameters."""
    seen = problem.observation
    predicted = linear_bearings(problem, problem.parameters, states)[0]
    return np.where(seen.visible[..., None], seen.bearings - predicted, np.nan)


def degrees_of_freedom(problem: Problem, parameters: int) -> float:
    """Frames seen times the six numbers that a rigid pose has, less the parameters: conservative for t-intervals."""
    frames = int(problem.observation.visible.any(axis=1).sum())
    return max(1.0, 6.0 * frames - parameters)


def innovations(problem: Problem, states: Array) -> Array:
    """What a rollout leaves of each frame's errors that the frame before did not foretell, [F, R]; NaN if not seen.

    states: [F, N]. The readings' shared errors last by themselves (first-order Gauss-Markov): what is white is how each
    frame's coefficients differ from the share of the last frame's that is left.
    """
    seen = problem.observation
    frames = len(seen.times_s)
    residual = np.nan_to_num(residual_bearings(problem, states))
    weight = np.where(seen.visible[..., None, None], np.linalg.inv(seen.covariance), 0.0)
    onto = np.einsum("fkir,fkij->fkjr", seen.shared_basis, weight)
    information = np.einsum("fkjr,fkjs->frs", onto, seen.shared_basis) + np.eye(seen.shared_basis.shape[-1])
    found = np.linalg.solve(information, np.einsum("fkjr,fkj->fr", onto, residual)[..., None])[..., 0]
    found[~seen.visible.any(axis=1)] = np.nan
    step = np.diff(seen.error_clock_s)[:, None]
    kept = np.exp(-step / np.maximum(seen.correlation_time_s, 1e-9))
    new = np.full((frames, found.shape[1]), np.nan)
    new[1:] = (found[1:] - kept * found[:-1]) / np.sqrt(np.maximum(1.0 - kept**2, 1e-12))
    return new

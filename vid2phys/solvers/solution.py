"""The result of every solver: states, controls, parameters and their covariances."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vid2phys.solvers import configurations, measurements, prediction
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array, Parameters


@dataclass(frozen=True)
class Solution:
    """A fit at the frames of the clip.

    states [F, N]; covariance [F, D, D] in their tangent space; controls [F - 1, M], means over the frame intervals;
    action_std [F - 1, A] of the fitted actions, None when they were recorded; parameters: all, with fitted values;
    theta_names [P]: the free parameters, then the solver's nuisances, with theta_covariance [P, P] and
    null_directions [*, P] in solver coordinates; extra: the nuisances' values and the hyperparameters, by name.
    weights: [F, K] robust weights of the keypoints, in frames with a measured configuration that of it. residuals: [F,
    C] of deterministic models, white where they explain the clip (`innovations`); None where lasting disturbances are
    part of the model.
    knot_states [T, N], knot_inputs [T, M]: where to start again. theta_parts: what the diagonal of theta_covariance is
    made of, [P] each (`interval_parts`); empty where it is not split. theta_quantiles: [P] half widths of 95 %
    intervals over standard deviations (`marginal_quantiles`); None where variances are known.
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
    theta_parts: dict[str, Array] = field(default_factory=dict)
    theta_quantiles: Array | None = None


def residual_bearings(problem: Problem, states: Array) -> Array:
    """Return measured minus predicted bearings at the problem's parameters, [F, K, 2], NaN for points not visible.

    In frames with a measured configuration, the keypoints of this count as measured.
    """
    at, shown = configurations.image_points(problem)
    return np.where(shown[..., None], at - prediction.bearings(problem, problem.parameters, states), np.nan)


def degrees_of_freedom(problem: Problem, parameters: int) -> float:
    """Return six numbers for each frame that shows the body, less the parameters: conservative for t-intervals."""
    frames = int(problem.observation.seen.sum())
    return max(1.0, 6.0 * frames - parameters)


def innovations(problem: Problem, states: Array) -> Array:
    """Return the part of each frame's errors that the frame before does not predict, [F, R]; NaN where lost.

    states: [F, N]. The measurements' shared errors are correlated (first-order Gauss-Markov). White is the difference
    between a frame's coefficients and the share that is left of the last frame's.
    """
    errors = measurements.Errors.of(problem.observation)
    residual = -np.nan_to_num(measurements.residuals(problem, problem.parameters, states))
    weight = np.linalg.inv(errors.covariance) * errors.used[:, None, :] * errors.used[:, :, None]
    onto = np.swapaxes(errors.basis, 1, 2) @ weight
    information = onto @ errors.basis + np.eye(errors.basis.shape[-1])
    found = np.linalg.solve(information, onto @ residual[..., None])[..., 0]
    found[~problem.observation.seen] = np.nan
    step = np.diff(errors.clock_s)[:, None]
    kept = np.exp(-step / np.maximum(errors.times_s, 1e-9))
    new = np.full(found.shape, np.nan)
    new[1:] = (found[1:] - kept * found[:-1]) / np.sqrt(np.maximum(1.0 - kept**2, 1e-12))
    return new

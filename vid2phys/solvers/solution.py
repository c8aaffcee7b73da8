"""What every solver gives back: states, controls, parameters and what is known about their errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vid2phys.engine.observe import observe
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array, Parameters


@dataclass(frozen=True)
class Solution:
    """A fit at the frames of the clip.

    states [F, N]; covariance [F, D, D] in their tangent space; controls [F - 1, M], means over the frame intervals;
    action_std [F - 1, A] of the fitted actions, None when they were recorded; parameters: all, with fitted values;
    theta_names [P]: the free parameters, then the solver's nuisances, with theta_covariance [P, P] and
    null_directions [*, P] in solver coordinates; extra: the nuisances' values and the levels found, by name.
    weights: [F, K] robust weights of the keypoints. knot_states [T, N], knot_inputs [T, M]: where to start again.
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
    knot_states: Array
    knot_inputs: Array | None = None


def residual_bearings(problem: Problem, states: Array) -> Array:
    """Observed minus predicted bearings, [F, K, 2], NaN where a point was not visible."""
    seen = problem.observation
    predicted, _, _ = observe(problem.system, states, seen.points_body, problem.camera_to_world)
    return np.where(seen.visible[..., None], seen.bearings - predicted, np.nan)


def degrees_of_freedom(problem: Problem, parameters: int) -> float:
    """Frames seen times the six numbers that a rigid pose has, less the parameters: conservative for t-intervals."""
    frames = int(problem.observation.visible.any(axis=1).sum())
    return max(1.0, 6.0 * frames - parameters)

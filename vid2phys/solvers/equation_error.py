"""A start of parameters by the equation error: what each measured state leads to, beside the state measured later.

Purpose: a rollout over a whole clip has many optima in its parameters. Predictions over a few frames have one, where
all states are measured.

Method: least squares of predictions from the smoothed states of all frames (Ljung, "System identification", 1999,
section 3.2), with the priors of the parameters.

Limits: errors of the states bias it, so it is a start and no estimate. Nothing but constant controls drives the system.
"""

from __future__ import annotations

import numpy as np

from vid2phys.engine.rollout import simulate
from vid2phys.errors import SimulationError
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array, Parameters

_AHEAD_S = 0.15  # of a prediction
_STEP_S = 0.005  # longest step of integration
_UNABLE = 1e3  # residual of motions that cannot be computed


def start_parameters(problem: Problem, states: Array) -> Parameters:
    """Return the parameters with free ones as predictions between states [T, N] of the frames have them."""
    from scipy.optimize import least_squares

    parameters, times_s = problem.parameters, problem.observation.times_s
    names = parameters.free_names
    usual_s = float(np.median(np.diff(times_s)))
    ahead = min(max(1, round(_AHEAD_S / usual_s)), len(times_s) - 1)
    rows = np.flatnonzero(np.isfinite(states[:-ahead] + states[ahead:]).all(axis=1))
    if not names or len(rows) <= len(names):
        return parameters
    dt_s = np.stack([np.diff(times_s[row : row + ahead + 1]) for row in rows])
    controls = np.tile(problem.system.hover_controls(parameters.vector), (len(rows), ahead, 1))
    spread = np.maximum(np.nanstd(problem.system.local(states[rows], states[rows + ahead]), axis=0), 1e-9)

    scale = np.array([min(1.0, problem.priors[name][1]) if name in problem.priors else 1.0 for name in names])
    begin = parameters.free_vector()

    def residuals(unknowns: Array) -> Array:
        theta = begin + scale * unknowns
        values, substeps = parameters.fitted_at(theta).vector, max(1, int(np.ceil(usual_s / _STEP_S)))
        try:
            ends = simulate(problem.system, states[rows], controls, values, dt_s, substeps=substeps)[:, -1]
        except SimulationError:
            return np.full(rows.size * len(spread) + len(names), _UNABLE)
        off = problem.system.local(states[rows + ahead], ends) / spread
        prior, _ = problem.prior(names, theta)
        return np.concatenate([off.ravel(), prior / np.sqrt(len(times_s))])

    found = least_squares(residuals, np.zeros(len(names)), loss="soft_l1", f_scale=0.1)
    return parameters.fitted_at(begin + scale * found.x)

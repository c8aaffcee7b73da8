"""The Cramer-Rao bound: the least covariance that unbiased estimates can have under an observation's error model.

Method: errors are those that an `Observation` states. Each measurement has its own error, and all measurements of a
frame share others, which are correlated from frame to frame (a Gauss-Markov process by the observation's clock). The
bound is the inverse of the information of the whole clip.

Limits: dense covariance, for clips of a few thousand numbers. Fits that weight correlated frames less do not reach it
(`shooting.whitening`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vid2phys.solvers import configurations
from vid2phys.solvers.gauss_markov import draw_first_order
from vid2phys.solvers.measurements import Errors, residuals
from vid2phys.solvers.prediction import bearings
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.rollout_fit import Motions
from vid2phys.types import Array

_STEP = 1e-3  # of differences, in units of the unknowns


def cramer_rao(problem: Problem, roll: Motions, values: Array, units: Array) -> Array:
    """Return the least covariance [U, U] of the unknowns at `values` [U]; infinite for undetermined ones.

    roll: see `rollout_fit.motions`. units: [U], changes of the unknowns that make about equal differences.
    """
    steps = _STEP * np.diag(units)
    states = roll(np.concatenate([values + steps, values - steps]))
    off = residuals(problem, problem.parameters, states).reshape(2, len(values), -1)
    slopes = ((off[0] - off[1]) / (2.0 * _STEP)).T  # [F N, U]
    errors = Errors.of(problem.observation)
    kept = errors.used.ravel()
    root = np.linalg.cholesky(errors.of_clip()[np.ix_(kept, kept)])
    white = np.linalg.solve(root, slopes[kept])
    sizes, rotation = np.linalg.eigh(white.T @ white)
    if sizes.min() <= 1e-12 * max(float(sizes.max()), 1e-30):
        return np.full((len(values), len(values)), np.inf)
    covariance = rotation @ np.diag(1.0 / sizes) @ rotation.T
    return np.asarray(covariance * np.outer(units, units))


def noisy(problem: Problem, states: Array, rng: np.random.Generator) -> Problem:
    """Return the problem measured along states [F, N], with errors drawn from its observation's error model."""
    seen = problem.observation
    frames, points = seen.visible.shape
    shared = draw_first_order(rng, seen.error_clock_s, seen.process_time_s)
    measured = seen.configuration
    if measured is not None:
        own = np.linalg.cholesky(measured.covariance) @ rng.normal(size=(*measured.covariance.shape[:2], 1))
        errors = (own + measured.shared_basis @ shared[..., None])[..., 0]
        measured = configurations.measured_at(problem, states, errors)
    own = (np.linalg.cholesky(seen.covariance) @ rng.normal(size=(frames, points, 2, 1)))[..., 0]
    drawn = bearings(problem, problem.parameters, states) + np.einsum("fkir,fr->fki", seen.shared_basis, shared) + own
    return replace(problem, observation=replace(seen, bearings=drawn, configuration=measured))

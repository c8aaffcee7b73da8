"""Quantiles of parameters whose variance is itself uncertain: how strong unknown forces are is not known well.

Purpose: a clip of a few seconds shows an unknown force over a few of its correlation times. An interval that takes its
strength as known is too narrow. Where a clip shows hardly any force, it excludes larger ones and not smaller ones.

Method: the posterior of a parameter is a mixture of normal distributions over hyperparameters, weighted by their
evidence. It is summed on a line through the best ones. For each parameter the line has the direction in which its
variance changes most, in units of the curvature of the evidence (after Rue, Martino and Chopin, "Approximate Bayesian
inference for latent Gaussian models by using integrated nested Laplace approximations", 2009).

Limits: one clip; the mean of a parameter does not move along the line.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from vid2phys.engine.parallel import in_processes
from vid2phys.solvers import arrow
from vid2phys.solvers.hyperparameters import evidence_and_gradient, pack, unpack, within_bounds
from vid2phys.solvers.smoothing_model import Hyperparameters, Layout, Linear, Unknowns, with_priors
from vid2phys.types import Array

_OUTSIDE = 0.05  # of a 95 % interval
_STEP = 0.05  # of differences by logarithms
_LEAST_CURVATURE = 0.25  # that of the widest prior; the evidence may be flat or bend the other way
_LINE = np.linspace(-3.0, 3.0, 9)  # places on the line, in standard deviations
_WIDEST = 100.0  # quantile over the standard deviation

Variances = Callable[[Array], Array]
"""Information [Q, Q] that a clip gives of its parameters to their variances [P]."""


def marginal_quantiles(
    layout: Layout, linear: Linear, point: Unknowns, hyperparameters: Hyperparameters, variances: Variances
) -> Array:
    """Return half widths [P] of 95 % intervals over standard deviations; 1.96 where hyperparameters are known."""

    def at(vector: Array) -> tuple[float, Array, Array]:
        """Return evidence, its gradient and the variances at logarithms of hyperparameters."""
        there = unpack(vector, hyperparameters)
        evidence, gradient = evidence_and_gradient(layout, linear, point, there)
        factor = arrow.factorize(with_priors(linear, layout, point, there).matrix)
        return evidence, gradient, variances(factor.schur)

    middle = pack(hyperparameters)
    known = at(middle)[2]
    quantiles = np.full(len(known), norm.isf(0.5 * _OUTSIDE))
    directions = _directions(at, middle)
    some = [j for j, direction in enumerate(directions) if known[j] > 0.0 and direction.any()]
    places = [within_bounds(middle + place * directions[j]) for j in some for place in _LINE]
    found = list(in_processes(at, places))
    for n, j in enumerate(some):
        on_line = found[n * len(_LINE) : (n + 1) * len(_LINE)]
        evidence = np.array([each[0] for each in on_line])
        stds = np.sqrt(np.array([each[2][j] for each in on_line]) / known[j])
        quantiles[j] = _quantile(np.exp(evidence - evidence.max()), stds)
    return quantiles


def _directions(at: Callable[[Array], tuple[float, Array, Array]], middle: Array) -> Array:
    """Return how hyperparameters change [P, H] by one standard deviation where each variance changes most."""
    curvature, slopes = [], []
    steps = _STEP * np.eye(len(middle))
    found = list(in_processes(at, (middle + step for step in np.concatenate([steps, -steps]))))
    for ahead, behind in zip(found[: len(steps)], found[len(steps) :], strict=True):
        curvature.append((behind[1] - ahead[1]) / (2.0 * _STEP))
        slopes.append((ahead[2] - behind[2]) / (2.0 * _STEP))
    values, vectors = np.linalg.eigh(0.5 * (np.array(curvature) + np.array(curvature).T))
    covariance = (vectors / np.maximum(values, _LEAST_CURVATURE)) @ vectors.T
    moved = covariance @ np.array(slopes)  # [H, P]
    sizes = np.sqrt(np.maximum((np.array(slopes) * moved).sum(axis=0), 0.0))
    return np.where(sizes > 0.0, moved / np.where(sizes > 0.0, sizes, 1.0), 0.0).T


def _quantile(weights: Array, stds: Array) -> float:
    """Return where a mixture of centred normal distributions leaves 2.5 % on either side."""
    weights = weights / weights.sum()

    def outside(place: float) -> float:
        return float(2.0 * weights @ norm.sf(place / stds)) - _OUTSIDE

    return float(brentq(outside, 0.0, _WIDEST * stds.max()))

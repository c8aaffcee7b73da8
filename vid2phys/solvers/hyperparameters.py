"""Hyperparameters of a smoothing problem by evidence (empirical Bayes).

Purpose: how strong and how fast unknown inputs are, and how large observation errors are, is not known beforehand.

Method: Laplace's approximation of the marginal likelihood (MacKay, "Bayesian interpolation", 1992), maximised by
L-BFGS-B under weak priors. Its gradient is that of the expected complete log-likelihood under the posterior (Fisher's
identity). It costs one pass over the posterior's covariances, however many hyperparameters there are.

Limits: the model is linear about the current point; smoothing repeats both in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from vid2phys.solvers import arrow, gauss_markov
from vid2phys.solvers.smoothing_model import (
    STEP_STD,
    Hyperparameters,
    Layout,
    Linear,
    Normal,
    Terms,
    Unknowns,
    linearized,
    with_priors,
)
from vid2phys.types import Array

# Priors of the hyperparameters: medians and spreads (natural logarithm) of standard deviation and bandwidth.
PRIORS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "thrust": ((1.0, 1.5), (8.0, 0.8)),  # m/s^2, rad/s
    "tilt_torque": ((20.0, 1.5), (12.0, 0.8)),  # rad/s^2
    "yaw_torque": ((5.0, 1.5), (8.0, 0.8)),
    "force": ((0.2, 1.5), (3.0, 0.8)),
    "torque": ((10.0, 1.5), (10.0, 0.8)),
    "action_force": ((5.0, 2.0), (15.0, 1.0)),  # on a thrown, pushed or hand-held body, which may hit something
    "action_torque": ((50.0, 2.0), (15.0, 1.0)),
}
STEP_PRIOR = 1.5  # spread of the logarithm of step_std
SCALE_PRIOR = 0.3  # spread of the logarithm of point_scale and shared_scale
_STEP_REACH = np.log(30.0)  # by how much step_std may be below its median; with less, descents take many steps
_OF_STEPS, _OF_SCALES = slice(-4, -2), slice(-2, None)  # of the vector of all hyperparameters
_ITERATIONS = 25
_REACH = 3.0  # largest change of a logarithm in one round
_DIFFERENCE = 1e-4


@dataclass(frozen=True)
class OtherClips:
    """Information [P, P] and gradient [P] that other clips give of theta."""

    information: Array
    gradient: Array


def prior_hyperparameters(layout: Layout) -> Hyperparameters:
    """Return the medians of the priors."""
    groups = {channel.group for channel in layout.channels}
    return Hyperparameters({g: PRIORS[g][0][0] for g in groups}, {g: PRIORS[g][1][0] for g in groups})


def maximize_evidence(
    layout: Layout, point: Unknowns, hyperparameters: Hyperparameters, other_clips: OtherClips | None = None
) -> Hyperparameters:
    """Return the hyperparameters that maximise the evidence of the linear model at a point.

    other_clips: what other clips tell of the parameters.
    """
    linear = linearized(layout, point, hyperparameters)
    if other_clips is not None:
        linear.corner += other_clips.information
        linear.gradient_theta += other_clips.gradient
    start, kept = (
        pack(hyperparameters),
        [linear],
    )  # scipy's optimiser refers to itself and would keep it

    def objective(vector: Array) -> tuple[float, Array]:
        try:
            value, gradient = evidence_and_gradient(layout, kept[0], point, unpack(vector, hyperparameters))
        except np.linalg.LinAlgError:
            return 1e12, np.zeros(len(vector))
        if not (np.isfinite(value) and np.isfinite(gradient).all()):  # a NaN passes LAPACK's factorisation
            return 1e12, np.zeros(len(vector))
        return -value, -gradient

    bounds = [(value - _REACH, value + _REACH) for value in start]
    # measured configurations, and errors that the trajectory absorbs (a bias of depth), leave hardly any residual:
    # their scales are never below the calibrated ones
    for k in (-2, -1):
        bounds[k] = (min(0.0, start[k]), max(bounds[k][1], 0.0))
    bounds[_OF_STEPS] = zip(*_step_bounds(), strict=True)
    options = {"maxiter": _ITERATIONS, "ftol": 1e-6}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    kept.clear()
    return unpack(found.x, hyperparameters)


def within_bounds(vector: Array) -> Array:
    """Return logarithms of hyperparameters (`pack`) with those of steps and scales within the bounds of the search."""
    vector = vector.copy()
    vector[_OF_STEPS] = np.clip(vector[_OF_STEPS], *_step_bounds())
    vector[_OF_SCALES] = np.maximum(vector[_OF_SCALES], 0.0)
    return vector


def _step_bounds() -> tuple[Array, Array]:
    """Return the least and the largest logarithms of step_std."""
    most = np.log(list(STEP_STD.values()))
    return most - _STEP_REACH, most


def geometric_mean(hyperparameters: Sequence[Hyperparameters]) -> Hyperparameters:
    """Return the geometric mean of each hyperparameter."""
    return unpack(np.mean([pack(each) for each in hyperparameters], axis=0), hyperparameters[0])


def change(before: Hyperparameters, after: Hyperparameters) -> float:
    """Return the largest change of a hyperparameter's logarithm."""
    return float(np.abs(pack(before) - pack(after)).max())


def log_evidence(layout: Layout, linear: Linear, point: Unknowns, hyperparameters: Hyperparameters) -> float:
    """Return Laplace's approximation of the log marginal likelihood, with the priors of the hyperparameters.

    The unknowns are optimised again in the linear model, so that the point need not be the mode.
    """
    return evidence_and_gradient(layout, linear, point, hyperparameters)[0]


def evidence_and_gradient(
    layout: Layout, linear: Linear, point: Unknowns, hyperparameters: Hyperparameters
) -> tuple[float, Array]:
    """Return `log_evidence` and its derivative by the logarithms of the hyperparameters, in the order of `pack`."""
    normal = with_priors(linear, layout, point, hyperparameters)
    factor = arrow.factorize(normal.matrix)
    null = parameter_null(layout, normal, factor)
    chain, theta = arrow.solve(factor, normal.gradient, normal.gradient_theta, null.covariance)
    gained = 0.5 * float((normal.gradient * chain).sum() + normal.gradient_theta @ theta)
    rank = len(factor.schur) - len(null.directions)
    information = np.linalg.eigvalsh(factor.schur)[len(factor.schur) - rank :]
    logdet = factor.chain_logdet + float(np.log(np.maximum(information, 1e-300)).sum())
    value = -(normal.cost - gained) - 0.5 * logdet + 0.5 * normal.prior_logdet
    blocks, below = arrow.marginals(normal.matrix, factor, null.covariance)
    prior, prior_gradient = _log_prior(hyperparameters)
    gradient = _input_gradients(layout, point.inputs - chain[:, layout.inputs], blocks, below, hyperparameters)
    across = -factor.arrow_solution @ null.covariance
    after = _After((-chain, -theta), arrow.Arrow(blocks, below, across, null.covariance))
    by_point, *by_step = (after.gradient(terms, std) for std, terms in linear.scaled(hyperparameters))
    gradient = np.append(gradient, [*by_step, by_point])
    shared = point.shared - chain[:, layout.shared]
    gradient = np.append(gradient, _shared_gradient(layout, shared, blocks, below, hyperparameters.shared_scale))
    return value + prior, gradient + prior_gradient


def _input_gradients(
    layout: Layout, inputs: Array, blocks: Array, below: Array, hyperparameters: Hyperparameters
) -> Array:
    """Return derivatives by the standard deviations, then the bandwidths, groups in alphabetical order."""
    groups, count, steps = sorted(hyperparameters.input_std), len(layout.channels), layout.knots.step_s
    gradient = np.zeros((2, len(groups)))
    for j, channel in enumerate(layout.channels):
        index = layout.inputs.start + np.array([j, count + j])
        moments = _Moments.of(inputs[:, [j, count + j]], blocks, below, index)
        level = np.array([hyperparameters.input_std[channel.group], hyperparameters.bandwidth_rad_s[channel.group]])

        def gain(factors: Array, moments: _Moments = moments, level: Array = level) -> float:
            std, width = level * factors
            return moments.log_likelihood(gauss_markov.second_order(steps, std=std, bandwidth_rad_s=width))

        gradient[:, groups.index(channel.group)] += _differences(gain, 2)
    return gradient.ravel()


def _shared_gradient(layout: Layout, shared: Array, blocks: Array, below: Array, scale: float) -> float:
    steps, total = layout.error_step_s, 0.0
    for j, tau in enumerate(layout.problem.observation.process_time_s):
        moments = _Moments.of(shared[:, [j]], blocks, below, np.array([layout.shared.start + j]))

        def gain(factors: Array, moments: _Moments = moments, tau: float = float(tau)) -> float:
            prior = gauss_markov.first_order(steps, std=scale * float(factors[0]), time_constant_s=tau)
            return moments.log_likelihood(prior)

        total += float(_differences(gain, 1)[0])
    return total


def parameter_null(layout: Layout, normal: Normal, factor: arrow.Factor) -> arrow.Null:
    """Return the covariance of the parameters of one clip by itself."""
    precision = layout.problem.prior_precision(layout.theta_names)
    return arrow.parameter_covariance(factor.schur, reference=np.diagonal(normal.matrix.corner), prior=precision)


@dataclass(frozen=True)
class _After:
    """The posterior: the step to its mean (chain [T, n], theta [P]), and its covariances, laid out as an arrow."""

    step: tuple[Array, Array]
    covariance: arrow.Arrow

    def gradient(self, terms: Terms, std: float) -> float:
        """Return the derivative of the expected log density of residuals by the logarithm of their deviation `std`."""
        chain, theta = self.step
        matrix, known = terms.matrix, self.covariance
        slope = float((terms.gradient * chain).sum() + terms.gradient_theta @ theta)
        bent = float(arrow.squares(matrix, chain[..., None], theta[:, None])[0])
        spread = float((matrix.diagonal * known.diagonal).sum() + 2.0 * (matrix.lower * known.lower).sum())
        spread += float(2.0 * (matrix.arrow * known.arrow).sum() + (matrix.corner * known.corner).sum())
        return 2.0 * (terms.cost + slope + 0.5 * (bent + spread)) / std**2 - terms.count


def _differences(gain: Callable[[Array], float], count: int) -> Array:
    """Return central differences of `gain` by the logarithms of its factors, at 1."""
    steps = np.exp(_DIFFERENCE * np.eye(count))
    return np.array([gain(step) - gain(1.0 / step) for step in steps]) / (2.0 * _DIFFERENCE)


@dataclass(frozen=True)
class _Moments:
    """Posterior second moments of a chain's S states: here [T, S, S]; across [T - 1, S, S], of a knot by the one
    before."""

    here: Array
    across: Array

    @staticmethod
    def of(values: Array, blocks: Array, below: Array, index: NDArray[np.int64]) -> _Moments:
        """Return the moments of the states at `index` of a knot, with posterior mean `values` [T, S]."""
        rows, columns = index[:, None], index[None, :]
        here = values[:, :, None] * values[:, None, :] + blocks[:, rows, columns]
        return _Moments(here, values[1:, :, None] * values[:-1, None, :] + below[:, rows, columns])

    def log_likelihood(self, prior: gauss_markov.Chain) -> float:
        """Return the expected log density of the chain under a prior, up to a constant."""
        mixed = self.across @ np.swapaxes(prior.transition, 1, 2)
        residual = self.here[1:] - mixed - np.swapaxes(mixed, 1, 2)
        residual = residual + prior.transition @ self.here[:-1] @ np.swapaxes(prior.transition, 1, 2)
        cost = float((prior.precision * residual).sum() + (prior.initial * self.here[0]).sum())
        return 0.5 * (prior.logdet - cost)


def _log_prior(hyperparameters: Hyperparameters) -> tuple[float, Array]:
    groups = sorted(hyperparameters.input_std)
    medians = [*(PRIORS[g][i][0] for i in (0, 1) for g in groups), *STEP_STD.values(), 1.0, 1.0]
    spreads = np.array(
        [*(PRIORS[g][i][1] for i in (0, 1) for g in groups), *[STEP_PRIOR] * len(STEP_STD), *[SCALE_PRIOR] * 2]
    )
    off = (pack(hyperparameters) - np.log(medians)) / spreads
    return -0.5 * float(off @ off), -off / spreads


def pack(hyperparameters: Hyperparameters) -> Array:
    """Return logarithms: standard deviations and bandwidths, groups in alphabetical order, steps, then the scales."""
    groups = sorted(hyperparameters.input_std)
    values = [hyperparameters.input_std[g] for g in groups] + [hyperparameters.bandwidth_rad_s[g] for g in groups]
    values += [hyperparameters.step_std[group] for group in STEP_STD]
    return np.log([*values, hyperparameters.point_scale, hyperparameters.shared_scale])


def unpack(vector: Array, like: Hyperparameters) -> Hyperparameters:
    """Return the hyperparameters of a vector made by `pack`."""
    groups, values = sorted(like.input_std), np.exp(vector)
    count = len(groups)
    return Hyperparameters(
        dict(zip(groups, values[:count], strict=True)),
        dict(zip(groups, values[count : 2 * count], strict=True)),
        float(values[-2]),
        float(values[-1]),
        dict(zip(STEP_STD, values[_OF_STEPS].tolist(), strict=True)),
    )

"""The levels of a smoothing problem by marginal likelihood: how strong and how fast unknown inputs are, and how far
observations err.

MacKay, "Bayesian interpolation" (1992), by Laplace's approximation. The gradient is that of the expected complete
log-likelihood under the posterior (Fisher's identity), so it costs one pass over the posterior's covariances, however
many levels there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from vid2phys.solvers import arrow, process
from vid2phys.solvers.assemble import Layout, Levels, Linear, Normal, Unknowns, linearized, with_priors
from vid2phys.types import Array

# Medians and spreads (natural logarithm) of the levels before the data speak: (standard deviation, bandwidth).
LEVEL_PRIORS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "thrust": ((1.0, 1.5), (8.0, 0.8)),  # m/s^2, rad/s
    "tilt_torque": ((20.0, 1.5), (12.0, 0.8)),  # rad/s^2
    "yaw_torque": ((5.0, 1.5), (8.0, 0.8)),
    "force": ((0.2, 1.5), (3.0, 0.8)),
    "torque": ((10.0, 1.5), (10.0, 0.8)),
    "action_force": ((5.0, 2.0), (15.0, 1.0)),  # on a thrown, pushed or hand-held body, which may hit something
    "action_torque": ((50.0, 2.0), (15.0, 1.0)),
}
SCALE_PRIOR = 0.3  # spread of the logarithm of point_scale and shared_scale
_ITERATIONS = 25
_REACH = 3.0  # of a level's logarithm in one go
_DIFFERENCE = 1e-4


@dataclass(frozen=True)
class Elsewhere:
    """What is known of theta from beside a clip, about where it is: information [P, P] and gradient [P]."""

    information: Array
    gradient: Array


def first_levels(layout: Layout) -> Levels:
    """The medians of the priors."""
    groups = {channel.group for channel in layout.channels}
    return Levels({g: LEVEL_PRIORS[g][0][0] for g in groups}, {g: LEVEL_PRIORS[g][1][0] for g in groups})


def improve_levels(layout: Layout, point: Unknowns, levels: Levels, elsewhere: Elsewhere | None = None) -> Levels:
    """Levels that maximise the evidence of the linear model at a point.

    elsewhere: what other clips say of the parameters.
    """
    linear = linearized(layout, point, levels)
    if elsewhere is not None:
        linear.corner += elsewhere.information
        linear.gradient_theta += elsewhere.gradient
    start, held = pack(levels), [linear]  # scipy's optimiser is a ring of references, which would keep it for long

    def objective(vector: Array) -> tuple[float, Array]:
        try:
            value, gradient = evidence_and_gradient(layout, held[0], point, unpack(vector, levels))
        except np.linalg.LinAlgError:
            return 1e12, np.zeros(len(vector))
        if not (np.isfinite(value) and np.isfinite(gradient).all()):  # a NaN passes LAPACK's factorisation
            return 1e12, np.zeros(len(vector))
        return -value, -gradient

    bounds = [(value - _REACH, value + _REACH) for value in start]
    # points that were put where a pose has them (`tracking.contour_refinement`), and errors that the trajectory takes
    # up (a bias of depth), leave no residual: their levels are never below what was calibrated
    for k in (-2, -1):
        bounds[k] = (min(0.0, start[k]), max(bounds[k][1], 0.0))
    options = {"maxiter": _ITERATIONS, "ftol": 1e-6}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    held.clear()
    return unpack(found.x, levels)


def mean_levels(levels: Sequence[Levels]) -> Levels:
    """Geometric means."""
    return unpack(np.mean([pack(each) for each in levels], axis=0), levels[0])


def level_change(before: Levels, after: Levels) -> float:
    """The largest change of a level's logarithm."""
    return float(np.abs(pack(before) - pack(after)).max())


def log_evidence(layout: Layout, linear: Linear, point: Unknowns, levels: Levels) -> float:
    """Laplace approximation of the log marginal likelihood of the levels, priors of the levels included.

    The unknowns are re-optimised in the linear model, so the point need not be the mode for these levels.
    """
    return evidence_and_gradient(layout, linear, point, levels)[0]


def evidence_and_gradient(layout: Layout, linear: Linear, point: Unknowns, levels: Levels) -> tuple[float, Array]:
    """`log_evidence` and its derivative wrt the logarithms of the levels, in the order of `pack`."""
    normal = with_priors(linear, layout, point, levels)
    factor = arrow.factorize(normal.matrix)
    null = parameter_null(layout, normal, factor)
    chain, theta = arrow.solve(factor, normal.gradient, normal.gradient_theta, null.covariance)
    gained = 0.5 * float((normal.gradient * chain).sum() + normal.gradient_theta @ theta)
    rank = len(factor.schur) - len(null.directions)
    information = np.linalg.eigvalsh(factor.schur)[len(factor.schur) - rank :]
    logdet = factor.chain_logdet + float(np.log(np.maximum(information, 1e-300)).sum())
    value = -(normal.cost - gained) - 0.5 * logdet + 0.5 * normal.prior_logdet
    value -= linear.observations * np.log(levels.point_scale)
    blocks, below = arrow.marginals(normal.matrix, factor, null.covariance)
    prior, prior_gradient = _level_log_prior(levels)
    gradient = _input_gradients(layout, point.inputs - chain[:, layout.inputs], blocks, below, levels)
    across = -factor.arrow_solution @ null.covariance
    of_theta = _theta_gain(linear, chain, theta, across, null.covariance)
    gradient = np.append(gradient, _point_gradient(linear, -chain, blocks, of_theta, levels.point_scale))
    shared = point.shared - chain[:, layout.shared]
    gradient = np.append(gradient, _shared_gradient(layout, shared, blocks, below, levels.shared_scale))
    return value + prior, gradient + prior_gradient


def _input_gradients(layout: Layout, inputs: Array, blocks: Array, below: Array, levels: Levels) -> Array:
    """Of the standard deviations, then the bandwidths, groups in alphabetical order."""
    groups, count, steps = sorted(levels.input_std), len(layout.channels), layout.knots.step_s
    gradient = np.zeros((2, len(groups)))
    for j, channel in enumerate(layout.channels):
        index = layout.inputs.start + np.array([j, count + j])
        moments = _Moments.of(inputs[:, [j, count + j]], blocks, below, index)
        level = np.array([levels.input_std[channel.group], levels.bandwidth_rad_s[channel.group]])

        def gain(factors: Array, moments: _Moments = moments, level: Array = level) -> float:
            std, width = level * factors
            return moments.log_likelihood(process.second_order(steps, std=std, bandwidth_rad_s=width))

        gradient[:, groups.index(channel.group)] += _differences(gain, 2)
    return gradient.ravel()


def _shared_gradient(layout: Layout, shared: Array, blocks: Array, below: Array, scale: float) -> float:
    steps, total = layout.error_step_s, 0.0
    for j, tau in enumerate(layout.problem.observation.correlation_time_s):
        moments = _Moments.of(shared[:, [j]], blocks, below, np.array([layout.shared.start + j]))

        def gain(factors: Array, moments: _Moments = moments, tau: float = float(tau)) -> float:
            prior = process.first_order(steps, std=scale * float(factors[0]), time_constant_s=tau)
            return moments.log_likelihood(prior)

        total += float(_differences(gain, 1)[0])
    return total


def parameter_null(layout: Layout, normal: Normal, factor: arrow.Factor) -> arrow.Null:
    """Covariance of the parameters of one clip by itself."""
    precision = layout.problem.prior_precision(layout.theta_names)
    return arrow.parameter_covariance(factor.schur, reference=np.diagonal(normal.matrix.corner), prior=precision)


def _theta_gain(linear: Linear, chain: Array, theta: Array, across: Array, covariance: Array) -> float:
    """The part of the parameters in the expected cost of keypoints after the step (-chain, -theta).

    across: [T, n, P] covariance of the chain with theta; covariance: [P, P].
    """
    change = -float(linear.gradient_theta_obs @ theta) + 0.5 * float(theta @ linear.corner_obs @ theta)
    change += float(np.einsum("ki,kip,p->", chain, linear.arrow_obs, theta))
    return change + float((linear.arrow_obs * across).sum() + 0.5 * (linear.corner_obs * covariance).sum())


def _point_gradient(linear: Linear, step: Array, blocks: Array, of_theta: float, scale: float) -> float:
    moved = (linear.diagonal_obs @ step[..., None])[..., 0]
    cost = linear.cost_obs + float((linear.gradient_obs * step).sum() + 0.5 * (step * moved).sum())
    spread = 0.5 * float((blocks * linear.diagonal_obs).sum())
    return 2.0 * (cost + spread + of_theta) / scale**2 - linear.observations


def _differences(gain: Callable[[Array], float], count: int) -> Array:
    """Central differences of `gain` wrt the logarithms of its factors, at 1."""
    steps = np.exp(_DIFFERENCE * np.eye(count))
    return np.array([gain(step) - gain(1.0 / step) for step in steps]) / (2.0 * _DIFFERENCE)


@dataclass(frozen=True)
class _Moments:
    """Posterior second moments of a chain's S states: here [T, S, S], and of neighbours, later by earlier, across
    [T - 1, S, S]."""

    here: Array
    across: Array

    @staticmethod
    def of(values: Array, blocks: Array, below: Array, index: NDArray[np.int64]) -> _Moments:
        """Of the states at `index` of a knot with posterior mean `values` [T, S]."""
        rows, columns = index[:, None], index[None, :]
        here = values[:, :, None] * values[:, None, :] + blocks[:, rows, columns]
        return _Moments(here, values[1:, :, None] * values[:-1, None, :] + below[:, rows, columns])

    def log_likelihood(self, prior: process.Chain) -> float:
        """Expected log density of the chain under a prior, up to a constant."""
        mixed = self.across @ np.swapaxes(prior.transition, 1, 2)
        residual = self.here[1:] - mixed - np.swapaxes(mixed, 1, 2)
        residual = residual + prior.transition @ self.here[:-1] @ np.swapaxes(prior.transition, 1, 2)
        cost = float((prior.precision * residual).sum() + (prior.initial * self.here[0]).sum())
        return 0.5 * (prior.logdet - cost)


def _level_log_prior(levels: Levels) -> tuple[float, Array]:
    groups = sorted(levels.input_std)
    medians = [LEVEL_PRIORS[g][i][0] for i in (0, 1) for g in groups] + [1.0, 1.0]
    spreads = np.array([LEVEL_PRIORS[g][i][1] for i in (0, 1) for g in groups] + [SCALE_PRIOR, SCALE_PRIOR])
    off = (pack(levels) - np.log(medians)) / spreads
    return -0.5 * float(off @ off), -off / spreads


def pack(levels: Levels) -> Array:
    """Logarithms: standard deviations and bandwidths of the groups in alphabetical order, point and shared scale."""
    groups = sorted(levels.input_std)
    values = [levels.input_std[g] for g in groups] + [levels.bandwidth_rad_s[g] for g in groups]
    return np.log([*values, levels.point_scale, levels.shared_scale])


def unpack(vector: Array, like: Levels) -> Levels:
    """Levels of a vector made by `pack`."""
    groups, values = sorted(like.input_std), np.exp(vector)
    count = len(groups)
    return Levels(
        dict(zip(groups, values[:count], strict=True)),
        dict(zip(groups, values[count : 2 * count], strict=True)),
        float(values[-2]),
        float(values[-1]),
    )

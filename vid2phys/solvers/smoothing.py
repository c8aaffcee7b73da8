"""Smoothing: the states of all frames are unknown, the dynamics are weighted residuals (design, section 6).

Gauss-Newton with Levenberg damping on the normal equations of `assemble`; the levels and bandwidths of all processes
and the scale of the observation errors by marginal likelihood (Laplace), with weak priors: MacKay, "Bayesian
interpolation" (1992); the structure is that of Barfoot, "State Estimation for Robotics", chapter 3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from vid2phys.solvers import arrow
from vid2phys.solvers.assemble import (
    Layout,
    Levels,
    Linear,
    Normal,
    Unknowns,
    controls_of,
    linearized,
    moved,
    with_priors,
)
from vid2phys.solvers.problem import DELAY, LAG, Problem
from vid2phys.solvers.solution import Solution
from vid2phys.types import Array

# Medians and spreads (natural logarithm) of the levels before the data speak: (standard deviation, bandwidth).
LEVEL_PRIORS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "thrust": ((1.0, 1.5), (8.0, 0.8)),  # m/s^2, rad/s
    "tilt_torque": ((20.0, 1.5), (12.0, 0.8)),  # rad/s^2
    "yaw_torque": ((5.0, 1.5), (8.0, 0.8)),
    "force": ((0.2, 1.5), (3.0, 0.8)),
    "torque": ((10.0, 1.5), (10.0, 0.8)),
}
SCALE_PRIOR = 0.3  # spread of the logarithm of point_scale and shared_scale


@dataclass(frozen=True)
class Smoothed:
    """A fit: the mode, the levels, marginal covariances and how it ended.

    chain_covariance [T, n, n] in the layout of a knot; theta_covariance [P, P]; null_directions [*, P].
    """

    layout: Layout
    point: Unknowns
    levels: Levels
    chain_covariance: Array
    theta_covariance: Array
    null_directions: Array
    iterations: int
    converged: bool
    log_evidence: float


def fit(
    problem: Problem, states: Array, inputs: Array | None = None, *, rounds: int = 4, levels: Levels | None = None
) -> Smoothed:
    """Fit from initial states [T, N] at all knots (and input accelerations [T, M]).

    Levels and unknowns are found in turn: the mode for fixed levels, then the levels that explain it best, `rounds`
    times. levels: where to start (default: their priors).
    """
    layout = Layout.of(problem)
    if levels is None:
        groups = {channel.group for channel in layout.channels}
        levels = Levels({g: LEVEL_PRIORS[g][0][0] for g in groups}, {g: LEVEL_PRIORS[g][1][0] for g in groups})
    point, total = initial_unknowns(layout, states, inputs), 0
    for _ in range(rounds):
        point, used, converged = gauss_newton(layout, point, levels)
        total += used
        before, levels = levels, improve_levels(layout, point, levels)
        if _change(before, levels) < 0.05:
            break
    point, used, converged = gauss_newton(layout, point, levels)
    linear = linearized(layout, point, levels)
    normal = with_priors(linear, layout, point, levels)
    factor = arrow.factorize(normal.matrix)
    null = arrow.parameter_covariance(factor.schur, reference=np.diagonal(normal.matrix.corner))
    return Smoothed(
        layout,
        point,
        levels,
        arrow.marginals(normal.matrix, factor, null.covariance),
        null.covariance,
        null.directions,
        total + used,
        converged,
        log_evidence(layout, linear, point, levels),
    )


def initial_unknowns(layout: Layout, states: Array, inputs: Array | None) -> Unknowns:
    """Start: given states and inputs, no shared error, parameters at their values, no delay, a lag of 20 ms."""
    steps, count = len(layout.knots.times_s), len(layout.channels)
    values = np.zeros((steps, 2 * count))
    if inputs is not None:
        values[:, :count] = inputs
    theta = layout.problem.parameters.free_vector()
    if len(layout.theta_names) > len(theta):
        theta = np.concatenate([theta, [0.0, np.log(0.02)]])
    return Unknowns(states.copy(), values, np.zeros((steps, layout.modes)), theta)


def gauss_newton(
    layout: Layout, point: Unknowns, levels: Levels, *, iterations: int = 30, tolerance: float = 1e-2
) -> tuple[Unknowns, int, bool]:
    """Descend to the mode for fixed levels. Returns the point, iterations used and whether it converged."""
    damping = 1e-6
    normal, cost = _evaluate(layout, point, levels)
    for iteration in range(iterations):
        while True:
            chain, theta = _step(normal, damping)
            candidate = moved(layout, point, chain, theta)
            new_normal, new_cost = _evaluate(layout, candidate, levels)
            if new_cost <= cost + tolerance:
                break
            damping = max(damping * 10.0, 1e-4)
            if damping > 1e6:
                return point, iteration + 1, False
        gain, point, normal, cost = cost - new_cost, candidate, new_normal, new_cost
        damping = max(damping / 10.0, 1e-9)
        if gain < tolerance:
            return point, iteration + 1, True
    return point, iterations, False


def _evaluate(layout: Layout, point: Unknowns, levels: Levels) -> tuple[Normal, float]:
    """Normal equations and the objective that Gauss-Newton descends: Student-t keypoints, the rest quadratic."""
    linear = linearized(layout, point, levels)
    normal = with_priors(linear, layout, point, levels)
    return normal, normal.cost - linear.cost_obs / levels.point_scale**2 + linear.cost_student


def _step(normal: Normal, damping: float) -> tuple[Array, Array]:
    size = normal.matrix.diagonal.shape[1]
    damped = replace(normal.matrix, diagonal=normal.matrix.diagonal * (1.0 + damping * np.eye(size)))
    factor = arrow.factorize(damped)
    null = arrow.parameter_covariance(factor.schur, reference=np.diagonal(normal.matrix.corner))
    return arrow.solve(factor, -normal.gradient, -normal.gradient_theta, null.covariance)


def log_evidence(layout: Layout, linear: Linear, point: Unknowns, levels: Levels) -> float:
    """Laplace approximation of the log marginal likelihood of the levels, priors of the levels included.

    The unknowns are re-optimised in the linear model, so the point need not be the mode for these levels.
    """
    normal = with_priors(linear, layout, point, levels)
    factor = arrow.factorize(normal.matrix)
    null = arrow.parameter_covariance(factor.schur, reference=np.diagonal(normal.matrix.corner))
    chain, theta = arrow.solve(factor, normal.gradient, normal.gradient_theta, null.covariance)
    gained = 0.5 * float((normal.gradient * chain).sum() + normal.gradient_theta @ theta)
    rank = len(factor.schur) - len(null.directions)
    information = np.linalg.eigvalsh(factor.schur)[len(factor.schur) - rank :]
    logdet = factor.chain_logdet + float(np.log(np.maximum(information, 1e-300)).sum())
    value = -(normal.cost - gained) - 0.5 * logdet + 0.5 * normal.prior_logdet
    value -= linear.observations * np.log(levels.point_scale)
    return value + _level_log_prior(levels)


def _level_log_prior(levels: Levels) -> float:
    total = 0.0
    for group, std in levels.input_std.items():
        for value, (median, spread) in zip((std, levels.bandwidth_rad_s[group]), LEVEL_PRIORS[group], strict=True):
            total -= 0.5 * (np.log(value / median) / spread) ** 2
    scales = np.log([levels.point_scale, levels.shared_scale])
    return total - 0.5 * float(((scales / SCALE_PRIOR) ** 2).sum())


def improve_levels(layout: Layout, point: Unknowns, levels: Levels) -> Levels:
    """Levels that maximise the evidence of the linear model at a point."""
    linear = linearized(layout, point, levels)
    start = _pack(levels)

    def objective(vector: Array) -> float:
        try:
            return -log_evidence(layout, linear, point, _unpack(vector, levels))
        except np.linalg.LinAlgError:
            return 1e12

    bounds = [(value - 3.0, value + 3.0) for value in start]
    found = minimize(objective, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": 12, "eps": 1e-3})
    return _unpack(found.x, levels)


def _pack(levels: Levels) -> Array:
    groups = sorted(levels.input_std)
    values = [levels.input_std[g] for g in groups] + [levels.bandwidth_rad_s[g] for g in groups]
    return np.log([*values, levels.point_scale, levels.shared_scale])


def _unpack(vector: Array, like: Levels) -> Levels:
    groups, values = sorted(like.input_std), np.exp(vector)
    count = len(groups)
    return Levels(
        dict(zip(groups, values[:count], strict=True)),
        dict(zip(groups, values[count : 2 * count], strict=True)),
        float(values[-2]),
        float(values[-1]),
    )


def _change(before: Levels, after: Levels) -> float:
    return float(np.abs(_pack(before) - _pack(after)).max())


def solve(
    problem: Problem, states: Array, inputs: Array | None = None, *, rounds: int = 4, levels: Levels | None = None
) -> Solution:
    """`fit`, and what it means at the frames of the clip."""
    return solution(fit(problem, states, inputs, rounds=rounds, levels=levels))


def solution(smoothed: Smoothed) -> Solution:
    """States, actions and parameters of a fit at the frames of the clip."""
    layout, point = smoothed.layout, smoothed.point
    problem, frames, tangent = layout.problem, layout.knots.frame_knot, layout.tangent
    controls = layout.knots.frame_means(controls_of(layout, point)[0])
    linear = linearized(layout, point, smoothed.levels)
    levels = {f"{group}_std": std for group, std in smoothed.levels.input_std.items()}
    levels |= {f"{group}_bandwidth_rad_s": width for group, width in smoothed.levels.bandwidth_rad_s.items()}
    levels |= {"point_scale": smoothed.levels.point_scale, "shared_scale": smoothed.levels.shared_scale}
    if problem.actions is not None:
        levels |= {DELAY: float(point.theta[-2]), LAG: float(np.exp(point.theta[-1]))}
    return Solution(
        states=point.states[frames],
        covariance=smoothed.chain_covariance[frames][:, :tangent, :tangent],
        controls=controls,
        action_std=None if problem.actions is not None else _action_std(smoothed),
        parameters=problem.parameters.with_free_vector(point.theta[: len(layout.parameter_names)]),
        theta_names=layout.theta_names,
        theta_covariance=smoothed.theta_covariance,
        null_directions=smoothed.null_directions,
        iterations=smoothed.iterations,
        converged=smoothed.converged,
        loss=-smoothed.log_evidence,
        extra={name: float(value) for name, value in levels.items()},
        weights=linear.weights,
        knot_states=point.states,
        knot_inputs=point.inputs[:, : len(layout.channels)],
    )


def _action_std(smoothed: Smoothed) -> Array:
    """One standard deviation of the fitted actions, [F - 1, A]; knots within a frame interval count as one."""
    layout = smoothed.layout
    problem, names = layout.problem, layout.problem.parameters.names
    parameters = layout.parameters(smoothed.point.theta)
    count = len(problem.system.action_names)
    std = np.zeros((len(layout.knots.step_s), count))
    for j, channel in enumerate(layout.channels):
        if channel.index < count:
            index = layout.inputs.start + j
            scale = parameters[names.index(channel.inertia)]
            std[:, channel.index] = scale * np.sqrt(smoothed.chain_covariance[:-1, index, index])
    return layout.knots.frame_means(std)

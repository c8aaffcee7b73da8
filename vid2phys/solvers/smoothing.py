"""Smoothing: the states of all frames are unknown, the dynamics are weighted residuals (design, section 6).

Gauss-Newton with Levenberg damping on the normal equations of `assemble`; the levels and bandwidths of all processes
and the scale of the observation errors by marginal likelihood (Laplace), with weak priors: MacKay, "Bayesian
interpolation" (1992); the structure is that of Barfoot, "State Estimation for Robotics", chapter 3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vid2phys.solvers import arrow
from vid2phys.solvers.activity import can_rest, with_activity
from vid2phys.solvers.assemble import (
    Layout,
    Levels,
    Linear,
    Normal,
    Unknowns,
    controls_of,
    keypoint_residuals,
    linearized,
    moved,
    with_priors,
)
from vid2phys.solvers.levels import first_levels, improve_levels, level_change, log_evidence
from vid2phys.solvers.problem import DELAY, LAG, Problem
from vid2phys.solvers.solution import Solution
from vid2phys.types import Array

ROUNDS = 4  # of levels and unknowns in turn
_CHI2_MEDIAN = 1.386  # of two degrees of freedom
_ACTIVITY_ROUNDS = 5  # more, of inputs that act now and then


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
    problem: Problem, states: Array, inputs: Array | None = None, *, rounds: int = ROUNDS, levels: Levels | None = None
) -> Smoothed:
    """Fit from initial states [T, N] at all knots (and input accelerations [T, M]).

    Levels and unknowns are found in turn: the mode for fixed levels, then the levels that explain it best, `rounds`
    times. levels: where to start (default: their priors).
    """
    layout = Layout.of(problem)
    point, total = initial_unknowns(layout, states, inputs), 0
    if levels is None:
        levels = replace(first_levels(layout), point_scale=_first_scale(layout, point))
    for _ in range(rounds):
        point, used, converged = gauss_newton(layout, point, levels)
        total += used
        before, levels = levels, improve_levels(layout, point, levels)
        if level_change(before, levels) < 0.05:
            break
    point, used, converged = gauss_newton(layout, point, levels)
    total += used
    linear = linearized(layout, point, levels)
    covariance, null = _marginals(linear, layout, point, levels)
    if rounds >= ROUNDS and can_rest(layout):
        states = covariance[:, : layout.tangent, : layout.tangent]
        for _ in range(_ACTIVITY_ROUNDS):
            layout, point, levels = with_activity(layout, point, levels, covariance)
            point, used, converged = gauss_newton(layout, point, levels)
            total, levels = total + used, improve_levels(layout, point, levels)
            linear = linearized(layout, point, levels)
            covariance, null = _marginals(linear, layout, point, levels)
        # when forces act is taken for known in these: states keep the intervals that they have without it
        covariance[:, : layout.tangent, : layout.tangent] = states
    evidence = log_evidence(layout, linear, point, levels)
    return Smoothed(*(layout, point, levels, covariance, null.covariance, null.directions, total, converged, evidence))


def _first_scale(layout: Layout, point: Unknowns) -> float:
    """By how much more than they should keypoints are off at the start, at least 1: robust weights see no outlier in
    what the start is wrong by, and as the fit nears them the level falls to what they really err by."""
    squared = (keypoint_residuals(layout, point)[0] ** 2).sum(axis=-1)[layout.problem.observation.visible]
    return float(np.sqrt(max(1.0, np.median(squared) / _CHI2_MEDIAN))) if len(squared) else 1.0


def _marginals(linear: Linear, layout: Layout, point: Unknowns, levels: Levels) -> tuple[Array, arrow.Null]:
    """Covariances of the knots' unknowns [T, n, n], and of the parameters."""
    normal = with_priors(linear, layout, point, levels)
    factor = arrow.factorize(normal.matrix)
    null = arrow.parameter_covariance(factor.schur, reference=np.diagonal(normal.matrix.corner))
    return arrow.marginals(normal.matrix, factor, null.covariance)[0], null


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


def solve(
    problem: Problem, states: Array, inputs: Array | None = None, *, rounds: int = ROUNDS, levels: Levels | None = None
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
        residuals=None,
        knot_states=point.states,
        knot_inputs=point.inputs[:, : len(layout.channels)] * layout.activity,
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
            spread = np.sqrt(smoothed.chain_covariance[:-1, index, index])
            std[:, channel.index] = scale * layout.activity[:-1, j] * spread
    return layout.knots.frame_means(std)

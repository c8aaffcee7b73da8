"""Smoothing: the states of all frames are unknown, the dynamics are weighted residuals (design, section 6).

Gauss-Newton with Levenberg damping on the normal equations of `assemble`; the levels and bandwidths of all processes
and the scale of the observation errors by marginal likelihood (Laplace), with weak priors: MacKay, "Bayesian
interpolation" (1992); the structure is that of Barfoot, "State Estimation for Robotics", chapter 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vid2phys.solvers import arrow
from vid2phys.solvers.activity import can_rest, with_activity
from vid2phys.solvers.assemble import (
    Layout,
    Levels,
    Normal,
    Unknowns,
    controls_of,
    keypoint_residuals,
    linearized,
    moved,
    with_priors,
)
from vid2phys.solvers.joint import Join
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


@dataclass(frozen=True)
class Start:
    """Where the fit of a clip begins: states [T, N] at all knots, input accelerations [T, M], levels (or None)."""

    problem: Problem
    states: Array
    inputs: Array | None = None
    levels: Levels | None = None


@dataclass(frozen=True)
class Chain:
    """A clip's unknowns at a point, under its levels."""

    layout: Layout
    point: Unknowns
    levels: Levels


def fit(
    problem: Problem, states: Array, inputs: Array | None = None, *, rounds: int = ROUNDS, levels: Levels | None = None
) -> Smoothed:
    """Fit from initial states [T, N] at all knots (and input accelerations [T, M]): `fit_clips` of one."""
    return fit_clips([Start(problem, states, inputs, levels)], rounds=rounds)[0]


def fit_clips(starts: Sequence[Start], *, rounds: int = ROUNDS) -> list[Smoothed]:
    """Fit one or more clips of the same body: parameters are shared, states, levels and nuisances are of each clip.

    Levels and unknowns are found in turn: the mode for fixed levels, then the levels that explain it best, `rounds`
    times. Levels start at their priors where a start has none. Raises UsageError for clips with different parameters.
    """
    chains = [_chain(start, first=number == 0) for number, start in enumerate(starts)]
    join, total = _join(chains), 0
    for _ in range(rounds):
        chains, used, converged = gauss_newton(chains)
        total += used
        before, chains = chains, _with_better_levels(join, chains)
        if max(level_change(a.levels, b.levels) for a, b in zip(before, chains, strict=True)) < 0.05:
            break
    chains, used, converged = gauss_newton(chains)
    total += used
    covariances, null = _marginals(join, chains)
    if rounds >= ROUNDS and can_rest(chains[0].layout):
        tangent = chains[0].layout.tangent
        states = [covariance[:, :tangent, :tangent] for covariance in covariances]
        for _ in range(_ACTIVITY_ROUNDS):
            chains = [
                Chain(*with_activity(chain.layout, chain.point, chain.levels, covariance))
                for chain, covariance in zip(chains, covariances, strict=True)
            ]
            chains, used, converged = gauss_newton(chains)
            total, chains = total + used, _with_better_levels(join, chains)
            covariances, null = _marginals(join, chains)
        for covariance, before_it in zip(covariances, states, strict=True):
            # when forces act is taken for known in these: states keep the intervals that they have without it
            covariance[:, :tangent, :tangent] = before_it
    found = []
    for chain, covariance, columns in zip(chains, covariances, join.columns, strict=True):
        linear = linearized(chain.layout, chain.point, chain.levels)
        evidence = log_evidence(chain.layout, linear, chain.point, chain.levels)
        directions = null.directions[:, columns]
        directions = directions[np.abs(directions).max(axis=1, initial=0.0) > 1e-9]
        of_theta = null.covariance[np.ix_(columns, columns)]
        found.append(Smoothed(*(chain.layout, chain.point, chain.levels, covariance, of_theta, directions, total,
                                converged, evidence)))  # fmt: skip
    return found


def _chain(start: Start, *, first: bool) -> Chain:
    """A clip where its fit begins. Only the first one has the priors of what is shared: they count once."""
    problem = start.problem if first else replace(start.problem, priors={})
    layout = Layout.of(problem)
    point = initial_unknowns(layout, start.states, start.inputs)
    levels = start.levels or replace(first_levels(layout), point_scale=_first_scale(layout, point))
    return Chain(layout, point, levels)


def _join(chains: Sequence[Chain]) -> Join:
    return Join.of([chain.layout.theta_names for chain in chains], chains[0].layout.parameter_names)


def _with_better_levels(join: Join, chains: list[Chain]) -> list[Chain]:
    """Each clip under the levels that explain it best, given what the others say of the parameters."""
    schurs: list[Array] = []
    gradients: list[Array] = []
    if len(chains) > 1:
        for chain in chains:
            normal, _ = _evaluate(chain)
            factor = arrow.factorize(normal.matrix)
            schurs.append(factor.schur)
            gradients.append(arrow.reduced(factor, normal.gradient, normal.gradient_theta))
    return [
        replace(
            chain,
            levels=improve_levels(chain.layout, chain.point, chain.levels, join.elsewhere(g, schurs, gradients)),
        )
        for g, chain in enumerate(chains)
    ]


def _first_scale(layout: Layout, point: Unknowns) -> float:
    """By how much more than they should keypoints are off at the start, at least 1: robust weights see no outlier in
    what the start is wrong by, and as the fit nears them the level falls to what they really err by."""
    squared = (keypoint_residuals(layout, point)[0] ** 2).sum(axis=-1)[layout.problem.observation.visible]
    return float(np.sqrt(max(1.0, np.median(squared) / _CHI2_MEDIAN))) if len(squared) else 1.0


def _marginals(join: Join, chains: Sequence[Chain]) -> tuple[list[Array], arrow.Null]:
    """Covariances of the knots' unknowns [T, n, n] of each clip, and of all parameters."""
    normals = [_evaluate(chain)[0] for chain in chains]
    factors = [arrow.factorize(normal.matrix) for normal in normals]
    null = _null(join, chains, normals, factors)
    return [
        arrow.marginals(normal.matrix, factor, null.covariance[np.ix_(columns, columns)])[0]
        for normal, factor, columns in zip(normals, factors, join.columns, strict=True)
    ], null


def _null(
    join: Join, chains: Sequence[Chain], normals: Sequence[Normal], factors: Sequence[arrow.Factor]
) -> arrow.Null:
    """Covariance of all parameters of several clips, and what none of them determines."""
    reference = join.vector([np.diagonal(normal.matrix.corner) for normal in normals])
    known = [chain.layout.problem.prior_precision(chain.layout.theta_names) for chain in chains]
    return arrow.parameter_covariance(
        join.matrix([factor.schur for factor in factors]), reference=reference, prior=join.vector(known)
    )


def initial_unknowns(layout: Layout, states: Array, inputs: Array | None) -> Unknowns:
    """Start: given states and inputs, no shared error, parameters at their values, no delay, a lag of 20 ms."""
    steps, count = len(layout.knots.times_s), len(layout.channels)
    values = np.zeros((steps, 2 * count))
    if inputs is not None:
        values[:, :count] = inputs
    theta = layout.problem.parameters.free_vector()
    if layout.problem.actions is not None:
        theta = np.concatenate([theta, [0.0, np.log(0.02)]])
    return Unknowns(states.copy(), values, np.zeros((steps, layout.modes)), theta)


def gauss_newton(
    chains: Sequence[Chain], *, iterations: int = 30, tolerance: float = 1e-2
) -> tuple[list[Chain], int, bool]:
    """Descend to the mode of all clips for fixed levels. Returns the chains, iterations used and whether it converged.

    Raises SimulationError when the motion cannot be computed where the descent begins.
    """
    damping, join, chains = 1e-6, _join(chains), list(chains)
    normals, cost = _evaluate_all(chains)
    for iteration in range(iterations):
        while True:
            steps = _step(join, chains, normals, damping)
            candidate = [
                replace(chain, point=moved(chain.layout, chain.point, *step))
                for chain, step in zip(chains, steps, strict=True)
            ]
            new_normals, new_cost = _evaluate_all(candidate)
            if new_cost <= cost + tolerance:
                break
            damping = max(damping * 10.0, 1e-4)
            if damping > 1e6:
                return chains, iteration + 1, False
        gain, chains, normals, cost = cost - new_cost, candidate, new_normals, new_cost
        damping = max(damping / 10.0, 1e-9)
        if gain < tolerance:
            return chains, iteration + 1, True
    return chains, iterations, False


def _evaluate_all(chains: Sequence[Chain]) -> tuple[list[Normal], float]:
    found = [_evaluate(chain) for chain in chains]
    return [normal for normal, _ in found], sum(cost for _, cost in found)


def _evaluate(chain: Chain) -> tuple[Normal, float]:
    """Normal equations and the objective that Gauss-Newton descends: Student-t keypoints, the rest quadratic."""
    linear = linearized(chain.layout, chain.point, chain.levels)
    normal = with_priors(linear, chain.layout, chain.point, chain.levels)
    return normal, normal.cost - linear.cost_obs / chain.levels.point_scale**2 + linear.cost_student


def _step(join: Join, chains: Sequence[Chain], normals: Sequence[Normal], damping: float) -> list[tuple[Array, Array]]:
    """The damped Newton step of each clip: of its knots [T, n] and of its parameters [P_g]."""
    factors = []
    for normal in normals:
        size = normal.matrix.diagonal.shape[1]
        diagonal = normal.matrix.diagonal * (1.0 + damping * np.eye(size))
        factors.append(arrow.factorize(replace(normal.matrix, diagonal=diagonal)))
    right = [
        arrow.reduced(factor, -normal.gradient, -normal.gradient_theta)
        for factor, normal in zip(factors, normals, strict=True)
    ]
    theta = _null(join, chains, normals, factors).covariance @ join.vector(right)
    return [
        (arrow.back(factor, -normal.gradient, theta[columns]), theta[columns])
        for factor, normal, columns in zip(factors, normals, join.columns, strict=True)
    ]


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
        parameters=layout.parameters(point.theta),
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
    parameters = layout.parameters(smoothed.point.theta)
    count = len(layout.problem.system.action_names)
    std = np.zeros((len(layout.knots.step_s), count))
    for j, channel in enumerate(layout.channels):
        if channel.index < count:
            index = layout.inputs.start + j
            scale = parameters[channel.inertia].value
            spread = np.sqrt(smoothed.chain_covariance[:-1, index, index])
            std[:, channel.index] = scale * layout.activity[:-1, j] * spread
    return layout.knots.frame_means(std)

"""Smoothing: the states of all frames are unknown, the dynamics are weighted residuals.

Gauss-Newton with Levenberg damping on the normal equations of `assemble`; the levels and bandwidths of all processes
and the scale of the observation errors by marginal likelihood (Laplace), with weak priors: MacKay, "Bayesian
interpolation" (1992); the structure is that of Barfoot, "State Estimation for Robotics", chapter 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vid2phys.solvers import arrow
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
from vid2phys.solvers.hyperparameters import first_levels, improve_levels, level_change, log_evidence, mean_levels
from vid2phys.solvers.multi_clip import Join
from vid2phys.solvers.problem import DELAY, LAG, Problem
from vid2phys.solvers.relevance import can_rest, with_activity
from vid2phys.solvers.segments import Piece, at_frames, at_knots, cut, whole_point
from vid2phys.solvers.solution import Solution
from vid2phys.types import Array

ROUNDS = 4  # of levels and unknowns in turn
_CHI2_MEDIAN = 1.386  # of two degrees of freedom
_ACTIVITY_ROUNDS = 5  # more, of inputs that act now and then
_HELD_KNOTS = 4000  # of several chains


@dataclass(frozen=True)
class Smoothed:
    """A fit: the mode, the levels of each piece of the clip, marginal covariances and how it ended.

    covariance: [T, D, D] of the states in their tangent space. input_std: [T, M] of the input accelerations.
    theta_covariance [P, P]; null_directions [*, P]; weights: [F, K] of the keypoints.
    """

    layout: Layout
    point: Unknowns
    levels: tuple[Levels, ...]
    covariance: Array
    input_std: Array
    theta_covariance: Array
    null_directions: Array
    iterations: int
    converged: bool
    log_evidence: float
    weights: Array


@dataclass(frozen=True)
class Start:
    """Where the fit of a clip begins: states [T, N] at all knots, input accelerations [T, M], levels (or none) of its
    pieces."""

    problem: Problem
    states: Array
    inputs: Array | None = None
    levels: tuple[Levels, ...] = ()


@dataclass(frozen=True)
class Chain:
    """The unknowns of a clip, or of a piece of it, at a point, under its levels.

    share: of its frames, those that no other piece counts.
    """

    layout: Layout
    point: Unknowns
    levels: Levels
    share: float = 1.0


def fit(
    problem: Problem,
    states: Array,
    inputs: Array | None = None,
    *,
    rounds: int = ROUNDS,
    levels: tuple[Levels, ...] = (),
) -> Smoothed:
    """Fit from initial states [T, N] at all knots (and input accelerations [T, M]): `fit_clips` of one."""
    return fit_clips([Start(problem, states, inputs, levels)], rounds=rounds)[0]


def fit_clips(starts: Sequence[Start], *, rounds: int = ROUNDS) -> list[Smoothed]:
    """Fit one or more clips of the same body: parameters are shared, states, levels and nuisances are of each clip.

    Levels and unknowns are found in turn: the mode for fixed levels, then the levels that explain it best, `rounds`
    times. Levels start at their priors where a start has none. Long clips are fitted in `pieces`. Raises UsageError for
    clips with different parameters.
    """
    clips = [_whole(start, first=number == 0) for number, start in enumerate(starts)]
    pieces = [cut(clip) for clip in clips]
    chains = [
        _chain(piece, start, number)
        for start, some in zip(starts, pieces, strict=True)
        for number, piece in enumerate(some)
    ]
    join, total = _join(clips, [len(some) for some in pieces]), 0
    for _ in range(rounds):
        chains, used, converged = gauss_newton(chains, join)
        total += used
        before, chains = chains, _with_better_levels(join, chains)
        if max(level_change(a.levels, b.levels) for a, b in zip(before, chains, strict=True)) < 0.05:
            break
    chains, used, converged = gauss_newton(chains, join)
    total += used
    covariances, input_stds, null = _marginals(join, chains)
    if rounds >= ROUNDS and can_rest(chains[0].layout):
        for _ in range(_ACTIVITY_ROUNDS):
            chains = [_with_activity(*each) for each in zip(chains, input_stds, strict=True)]
            chains, used, converged = gauss_newton(chains, join)
            total, chains = total + used, _with_better_levels(join, chains)
            # when forces act is taken for known in these: states keep the intervals that they have without it
            _, input_stds, null = _marginals(join, chains)
    found, end = [], 0
    for clip, some in zip(clips, pieces, strict=True):
        these = slice(end, end + len(some))
        end, columns = these.stop, join.columns[end]
        directions = null.directions[:, columns]
        evidence, weights = _judged(chains[these])
        layout = replace(clip, activity=at_knots(some, [chain.layout.activity for chain in chains[these]]))
        found.append(
            Smoothed(
                layout=layout,
                point=whole_point(some, [chain.point for chain in chains[these]]),
                levels=tuple(chain.levels for chain in chains[these]),
                covariance=at_knots(some, covariances[these]),
                input_std=at_knots(some, input_stds[these]),
                theta_covariance=null.covariance[np.ix_(columns, columns)],
                null_directions=directions[np.abs(directions).max(axis=1, initial=0.0) > 1e-9],
                iterations=total,
                converged=converged,
                log_evidence=evidence,
                weights=at_frames(some, weights),
            )
        )
    return found


def _whole(start: Start, *, first: bool) -> Layout:
    """A clip's layout. Only the first one has the priors of what is shared: they count once."""
    return Layout.of(start.problem if first else replace(start.problem, priors={}))


def _chain(piece: Piece, start: Start, number: int) -> Chain:
    """A piece where its fit begins."""
    layout, inputs = piece.layout, None if start.inputs is None else start.inputs[piece.knots]
    point = initial_unknowns(layout, start.states[piece.knots], inputs)
    if start.levels:
        levels = start.levels[number]
    else:
        levels = replace(first_levels(layout), point_scale=_first_scale(layout, point))
    return Chain(layout, point, levels, piece.share)


def _judged(chains: Sequence[Chain]) -> tuple[float, list[Array]]:
    """Evidence of all chains, and the weights of each one's keypoints."""
    evidence, weights = 0.0, []
    for chain in chains:
        linear = linearized(chain.layout, chain.point, chain.levels)
        evidence += log_evidence(chain.layout, linear, chain.point, chain.levels)
        weights.append(linear.weights)
    return evidence, weights


def _with_activity(chain: Chain, input_std: Array) -> Chain:
    layout, point, levels = with_activity(chain.layout, chain.point, chain.levels, input_std)
    return replace(chain, layout=layout, point=point, levels=levels)


def _join(clips: Sequence[Layout], pieces: Sequence[int]) -> Join:
    """What the chains share: pieces of a clip, so many of each, have all parameters in common."""
    join = Join.of([clip.theta_names for clip in clips], clips[0].parameter_names)
    return replace(join, columns=tuple(c for c, n in zip(join.columns, pieces, strict=True) for _ in range(n)))


def _with_better_levels(join: Join, chains: list[Chain]) -> list[Chain]:
    """Each chain under the levels that explain it best, given what the others say of the parameters."""
    schurs, gradients, _ = _Normals(chains).said() if len(chains) > 1 else ([], [], [])
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


def _marginals(join: Join, chains: Sequence[Chain]) -> tuple[list[Array], list[Array], arrow.Null]:
    """Of each chain the covariance of its states [T, D, D] and the standard deviation of its inputs [T, M], and the
    covariance of all parameters."""
    normals = _Normals(chains)
    schurs, _, references = normals.said()
    known = [np.diag(chain.layout.problem.prior_precision(chain.layout.theta_names)) for chain in chains]
    once = [prior + chain.share * (schur - prior) for chain, schur, prior in zip(chains, schurs, known, strict=True)]
    null = _null(join, chains, once, references)
    covariances, input_stds = [], []
    for g, (chain, columns) in enumerate(zip(chains, join.columns, strict=True)):
        normal, factor = normals.factored(g)
        blocks, _ = arrow.marginals(normal.matrix, factor, null.covariance[np.ix_(columns, columns)])
        layout, count = chain.layout, len(chain.layout.channels)
        covariances.append(blocks[:, : layout.tangent, : layout.tangent].copy())
        variances = np.einsum("tii->ti", blocks)[:, layout.inputs][:, :count]
        input_stds.append(np.sqrt(np.maximum(variances, 0.0)))  # of what is known well rounding may leave less
    return covariances, input_stds, null


def _null(join: Join, chains: Sequence[Chain], schurs: Sequence[Array], references: Sequence[Array]) -> arrow.Null:
    """Covariance of all parameters of several chains, and what none of them determines."""
    known = [chain.layout.problem.prior_precision(chain.layout.theta_names) for chain in chains]
    return arrow.parameter_covariance(join.matrix(schurs), reference=join.vector(references), prior=join.vector(known))


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
    chains: Sequence[Chain], join: Join, *, iterations: int = 30, tolerance: float = 1e-2
) -> tuple[list[Chain], int, bool]:
    """Descend to the mode of all chains for fixed levels. Returns them, iterations used and whether it converged.

    Raises SimulationError when the motion cannot be computed where the descent begins.
    """
    damping, normals = 1e-6, _Normals(chains)
    cost = normals.cost()
    for iteration in range(iterations):
        while True:
            candidate = _Normals(normals.stepped(join, damping))
            new_cost = candidate.cost()
            if new_cost <= cost + tolerance:
                break
            damping = max(damping * 10.0, 1e-4)
            if damping > 1e6:
                return normals.chains, iteration + 1, False
        gain, normals, cost = cost - new_cost, candidate, new_cost
        damping = max(damping / 10.0, 1e-9)
        if gain < tolerance:
            return normals.chains, iteration + 1, True
    return normals.chains, iterations, False


@dataclass
class _Evaluated:
    """A chain where it is: normal equations, the objective, and the factor of those that were damped."""

    normal: Normal
    cost: float
    factor: arrow.Factor | None = None
    damping: float = 0.0


class _Normals:
    """The normal equations of chains, computed when asked for: those of one chain are held, or of all that are short.

    What long ones need together would grow with the length of a clip.
    """

    def __init__(self, chains: Sequence[Chain]) -> None:
        self.chains = list(chains)
        self._short = sum(len(chain.layout.knots.times_s) for chain in chains) <= _HELD_KNOTS
        self._held: dict[int, _Evaluated] = {}

    def cost(self) -> float:
        """The objective that Gauss-Newton descends, of all chains: Student-t keypoints, the rest quadratic."""
        return sum(self._at(g).cost for g in range(len(self.chains)))

    def factored(self, g: int, damping: float = 0.0) -> tuple[Normal, arrow.Factor]:
        """A chain's normal equations and their factor, the diagonal of the blocks raised by the share `damping`."""
        held = self._at(g)
        if held.factor is None or held.damping != damping:
            matrix = held.normal.matrix
            diagonal = matrix.diagonal * (1.0 + damping * np.eye(matrix.diagonal.shape[1]))
            held.factor, held.damping = arrow.factorize(replace(matrix, diagonal=diagonal)), damping
        return held.normal, held.factor

    def said(self, damping: float = 0.0) -> tuple[list[Array], list[Array], list[Array]]:
        """What each chain says of its parameters: information [P, P], gradient [P], information were all else known."""
        schurs, gradients, references = [], [], []
        for g in range(len(self.chains)):
            normal, factor = self.factored(g, damping)
            schurs.append(factor.schur)
            gradients.append(arrow.reduced(factor, normal.gradient, normal.gradient_theta))
            references.append(np.diagonal(normal.matrix.corner).copy())
        return schurs, gradients, references

    def stepped(self, join: Join, damping: float) -> list[Chain]:
        """The chains after a damped Newton step of all."""
        schurs, gradients, references = self.said(damping)
        theta = -_null(join, self.chains, schurs, references).covariance @ join.vector(gradients)
        after = []
        for g, (chain, columns) in enumerate(zip(self.chains, join.columns, strict=True)):
            normal, factor = self.factored(g, damping)
            step = arrow.back(factor, -normal.gradient, theta[columns])
            after.append(replace(chain, point=moved(chain.layout, chain.point, step, theta[columns])))
        return after

    def _at(self, g: int) -> _Evaluated:
        if g not in self._held:
            if not self._short:
                self._held.clear()
            chain = self.chains[g]
            linear = linearized(chain.layout, chain.point, chain.levels)
            normal = with_priors(linear, chain.layout, chain.point, chain.levels)
            cost = normal.cost - linear.cost_obs / chain.levels.point_scale**2 + linear.cost_student
            self._held[g] = _Evaluated(normal, cost)
        return self._held[g]


def solve(problem: Problem, states: Array, inputs: Array | None = None, *, rounds: int = ROUNDS) -> Solution:
    """`fit`, and what it means at the frames of the clip."""
    return solution(fit(problem, states, inputs, rounds=rounds))


def solution(smoothed: Smoothed) -> Solution:
    """States, actions and parameters of a fit at the frames of the clip."""
    layout, point = smoothed.layout, smoothed.point
    problem, frames = layout.problem, layout.knots.frame_knot
    controls = layout.knots.frame_means(controls_of(layout, point)[0])
    mean = mean_levels(smoothed.levels)
    levels = {f"{group}_std": std for group, std in mean.input_std.items()}
    levels |= {f"{group}_bandwidth_rad_s": width for group, width in mean.bandwidth_rad_s.items()}
    levels |= {"point_scale": mean.point_scale, "shared_scale": mean.shared_scale}
    if problem.actions is not None:
        levels |= {DELAY: float(point.theta[-2]), LAG: float(np.exp(point.theta[-1]))}
    return Solution(
        states=point.states[frames],
        covariance=smoothed.covariance[frames],
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
        weights=smoothed.weights,
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
            scale = parameters[channel.inertia].value
            std[:, channel.index] = scale * layout.activity[:-1, j] * smoothed.input_std[:-1, j]
    return layout.knots.frame_means(std)

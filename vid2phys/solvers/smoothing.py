"""Smoothing: the states of all frames are unknown, the dynamics are weighted residuals.

Method: least squares (`least_squares`) on the normal equations of `smoothing_model`, a block-tridiagonal matrix with an
arrow (Barfoot, "State Estimation for Robotics", 2017, chapter 3). Standard deviations and bandwidths of all processes,
and the scale of the observation errors, maximise the evidence (`hyperparameters`).

Limits: rigid bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import SimulationError, UsageError
from vid2phys.solvers import arrow, interval_parts, least_squares
from vid2phys.solvers.hyperparameters import (
    change,
    geometric_mean,
    log_evidence,
    maximize_evidence,
    prior_hyperparameters,
)
from vid2phys.solvers.least_squares import Settings, minimize
from vid2phys.solvers.marginal_quantiles import marginal_quantiles
from vid2phys.solvers.multi_clip import Join
from vid2phys.solvers.problem import DELAY, LAG, Problem
from vid2phys.solvers.relevance import has_intermittent_inputs, with_relevance
from vid2phys.solvers.segments import Piece, at_frames, at_knots, cut, whole_point
from vid2phys.solvers.smoothing_model import (
    TIME_BASE_PRIORS,
    Hyperparameters,
    Layout,
    Normal,
    Unknowns,
    controls_of,
    linearized,
    measurement_factors,
    moved,
    with_priors,
)
from vid2phys.solvers.solution import Solution
from vid2phys.types import Array

ROUNDS = 4  # of hyperparameters and unknowns in turn
_CHI2_MEDIAN = 1.386  # of two degrees of freedom
_RELEVANCE_ROUNDS = 5  # further ones, with inputs that act now and then
_CACHED_KNOTS = 4000  # of chains whose normal equations are kept
_STUCK = 10.0  # nats: a descent that ends where the linear model promises more has not converged
# costs are log-likelihoods: a gain of so many nats ends a descent; little damping hardly changes a step
_SETTINGS = Settings(tolerance=1e-2, cost_range=(1.0, 1.0), damping=1e-6, raised=1e-4)


@dataclass(frozen=True)
class Smoothed:
    """A fit: the mode, the hyperparameters of each piece of the clip, marginal covariances and how it ended.

    covariance: [T, D, D] of the states in their tangent space. input_std: [T, M] of the input accelerations.
    theta_covariance [P, P]; null_directions [*, P]. theta_parts: what the diagonal of theta_covariance is made of
    (`interval_parts`). theta_quantiles: [P], see `marginal_quantiles`; None where variances are known. weights: [F, K]
    of the keypoints, or of the measured configuration of the frame.
    """

    layout: Layout
    point: Unknowns
    hyperparameters: tuple[Hyperparameters, ...]
    covariance: Array
    input_std: Array
    theta_covariance: Array
    theta_parts: dict[str, Array]
    theta_quantiles: Array | None
    null_directions: Array
    iterations: int
    converged: bool
    log_evidence: float
    weights: Array


@dataclass(frozen=True)
class Start:
    """The start of the fit of a clip: states [T, N] at all knots, input accelerations [T, M], hyperparameters (or
    none) of its pieces."""

    problem: Problem
    states: Array
    inputs: Array | None = None
    hyperparameters: tuple[Hyperparameters, ...] = ()


@dataclass(frozen=True)
class Chain:
    """The unknowns of a clip, or of a piece of it, at a point, under its hyperparameters.

    share: of its frames, those that no other piece counts.
    """

    layout: Layout
    point: Unknowns
    hyperparameters: Hyperparameters
    share: float = 1.0


def fit(
    problem: Problem,
    states: Array,
    inputs: Array | None = None,
    *,
    rounds: int = ROUNDS,
    hyperparameters: tuple[Hyperparameters, ...] = (),
) -> Smoothed:
    """Fit from initial states [T, N] at all knots (and input accelerations [T, M]): `fit_clips` of one."""
    return fit_clips([Start(problem, states, inputs, hyperparameters)], rounds=rounds)[0]


def fit_clips(starts: Sequence[Start], *, rounds: int = ROUNDS) -> list[Smoothed]:
    """Fit one or more clips of the same body: they share parameters; each has states, hyperparameters and nuisances.

    Hyperparameters and unknowns are found in turn, `rounds` times: the mode for fixed hyperparameters, then the
    hyperparameters that explain it best. They start at their priors where a start has none. Long clips are fitted in
    pieces (`segments`). Raises UsageError for clips with different parameters.
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
        before, chains = chains, _with_better_hyperparameters(join, chains)
        if max(change(a.hyperparameters, b.hyperparameters) for a, b in zip(before, chains, strict=True)) < 0.05:
            break
    chains, used, converged = gauss_newton(chains, join)
    total += used
    covariances, input_stds, null = _marginals(join, chains)
    if rounds >= ROUNDS and has_intermittent_inputs(chains[0].layout):
        for _ in range(_RELEVANCE_ROUNDS):
            chains = [_with_relevance(*each) for each in zip(chains, input_stds, strict=True)]
            chains, used, converged = gauss_newton(chains, join)
            total, chains = total + used, _with_better_hyperparameters(join, chains)
            # these take the times of the forces as known: states keep the intervals without relevance
            _, input_stds, null = _marginals(join, chains)
    normals = _Normals(chains)
    parts, quantiles = _parts(join, normals, null.covariance), _quantiles(join, normals) if rounds >= ROUNDS else None
    found, end = [], 0
    for clip, some in zip(clips, pieces, strict=True):
        these = slice(end, end + len(some))
        end, columns = these.stop, join.columns[end]
        directions = null.directions[:, columns]
        evidence, weights = _judged(chains[these])
        layout = replace(clip, relevance=at_knots(some, [chain.layout.relevance for chain in chains[these]]))
        found.append(
            Smoothed(
                layout=layout,
                point=whole_point(some, [chain.point for chain in chains[these]]),
                hyperparameters=tuple(chain.hyperparameters for chain in chains[these]),
                covariance=at_knots(some, covariances[these]),
                input_std=at_knots(some, input_stds[these]),
                theta_covariance=null.covariance[np.ix_(columns, columns)],
                theta_parts={name: part[columns] for name, part in parts.items()},
                theta_quantiles=quantiles,
                null_directions=directions[np.abs(directions).max(axis=1, initial=0.0) > 1e-9],
                iterations=total,
                converged=converged,
                log_evidence=evidence,
                weights=at_frames(some, weights),
            )
        )
    return found


def _whole(start: Start, *, first: bool) -> Layout:
    """Return a clip's layout. Only the first one has the priors of what is shared: they count once."""
    return Layout.of(start.problem if first else replace(start.problem, priors={}))


def _chain(piece: Piece, start: Start, number: int) -> Chain:
    """Return a piece at the start of its fit."""
    layout, inputs = piece.layout, None if start.inputs is None else start.inputs[piece.knots]
    point = initial_unknowns(layout, start.states[piece.knots], inputs)
    if start.hyperparameters:
        hyperparameters = start.hyperparameters[number]
    else:
        hyperparameters = replace(prior_hyperparameters(layout), point_scale=_first_scale(layout, point))
    return Chain(layout, point, hyperparameters, piece.share)


def _judged(chains: Sequence[Chain]) -> tuple[float, list[Array]]:
    """Return the evidence of all chains, and the weights of each one's measurements."""
    evidence, weights = 0.0, []
    for chain in chains:
        linear = linearized(chain.layout, chain.point, chain.hyperparameters)
        evidence += log_evidence(chain.layout, linear, chain.point, chain.hyperparameters)
        weights.append(linear.weights)
    return evidence, weights


def _with_relevance(chain: Chain, input_std: Array) -> Chain:
    layout, point, hyperparameters = with_relevance(chain.layout, chain.point, chain.hyperparameters, input_std)
    return replace(chain, layout=layout, point=point, hyperparameters=hyperparameters)


def _join(clips: Sequence[Layout], pieces: Sequence[int]) -> Join:
    """Return what the chains share: pieces of a clip, so many of each, have all parameters in common."""
    join = Join.of([clip.theta_names for clip in clips], clips[0].parameter_names)
    return replace(join, columns=tuple(c for c, n in zip(join.columns, pieces, strict=True) for _ in range(n)))


def _with_better_hyperparameters(join: Join, chains: list[Chain]) -> list[Chain]:
    """Return each chain with its most likely hyperparameters, given what the others tell of the parameters."""
    schurs, gradients, _ = _Normals(chains).reduced() if len(chains) > 1 else ([], [], [])
    return [
        replace(
            chain,
            hyperparameters=maximize_evidence(
                chain.layout, chain.point, chain.hyperparameters, join.other_clips(g, schurs, gradients)
            ),
        )
        for g, chain in enumerate(chains)
    ]


def _first_scale(layout: Layout, point: Unknowns) -> float:
    """Return how much larger than stated the measurements' errors are at the start, at least 1.

    With this scale, robust weights take no error of the start for an outlier. It falls to the true one as the fit
    improves.
    """
    squared = np.concatenate([factor.distance[factor.used] for factor in measurement_factors(layout, point)])
    return float(np.sqrt(max(1.0, np.median(squared) / _CHI2_MEDIAN))) if len(squared) else 1.0


def _marginals(join: Join, chains: Sequence[Chain]) -> tuple[list[Array], list[Array], arrow.Null]:
    """Return each chain's covariance of states [T, D, D] and standard deviation of inputs [T, M], and the
    parameters'."""
    normals = _Normals(chains)
    schurs, _, references = normals.reduced()
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
        input_stds.append(np.sqrt(np.maximum(variances, 0.0)))  # rounding may leave negative variances
    return covariances, input_stds, null


def _parts(join: Join, normals: _Normals, covariance: Array) -> dict[str, Array]:
    """Return what the variances of all parameters are made of, [P] each; a piece counts with its share of frames."""
    total = {name: np.zeros(len(covariance)) for name in interval_parts.OF_CHAIN}
    for g, (chain, columns) in enumerate(zip(normals.chains, join.columns, strict=True)):
        layout, solution = chain.layout, normals.factored(g)[1].arrow_solution
        linear = linearized(layout, chain.point, chain.hyperparameters)
        of_chain = interval_parts.of_chain(layout, linear, chain.hyperparameters, solution, covariance[columns])
        for name, part in of_chain.items():
            total[name] += chain.share * part
        known = layout.problem.prior_precision(layout.theta_names)
        total[interval_parts.PRIOR] += known @ covariance[columns] ** 2
    return total


def _quantiles(join: Join, normals: _Normals) -> Array | None:
    """Return quantiles [P] of all parameters over their standard deviations; None where these count as known.

    They do without recorded actions, where forces are what is fitted, and for long clips or several.
    """
    chains, chain = normals.chains, normals.chains[0]
    if len(chains) > 1 or chain.layout.problem.actions is None:
        return None
    _, _, references = normals.reduced()

    def variances(schur: Array) -> Array:
        return np.diagonal(_null(join, chains, [schur], references).covariance)

    linear = linearized(chain.layout, chain.point, chain.hyperparameters)
    return marginal_quantiles(chain.layout, linear, chain.point, chain.hyperparameters, variances)


def _null(
    join: Join,
    chains: Sequence[Chain],
    schurs: Sequence[Array],
    references: Sequence[Array],
    free: NDArray[np.bool_] | slice = slice(None),
    damping: float = 0.0,
) -> arrow.Null:
    """Return the covariance of the parameters of several chains, and what none of the chains determines.

    free: those that are not known (default: all). damping: see `arrow.parameter_covariance`.
    """
    known = [chain.layout.problem.prior_precision(chain.layout.theta_names) for chain in chains]
    matrix, reference, prior = join.matrix(schurs)[free][:, free], join.vector(references)[free], join.vector(known)
    return arrow.parameter_covariance(matrix, reference=reference, prior=prior[free], damping=damping)


def initial_unknowns(layout: Layout, states: Array, inputs: Array | None) -> Unknowns:
    """Return the start: given states and inputs, no shared error, parameters at their values, and delay and motor lag
    of recorded actions at the means of their priors."""
    steps, count = len(layout.knots.times_s), len(layout.channels)
    values = np.zeros((steps, 2 * count))
    if inputs is not None:
        values[:, :count] = inputs
    theta = layout.problem.parameters.free_vector()
    if layout.problem.actions is not None:
        priors = TIME_BASE_PRIORS | layout.problem.priors
        theta = np.concatenate([theta, [priors[name][0] for name in (DELAY, LAG)]])
    return Unknowns(states.copy(), values, np.zeros((steps, layout.modes)), theta)


def gauss_newton(chains: Sequence[Chain], join: Join, *, iterations: int = 30) -> tuple[list[Chain], int, bool]:
    """Descend to the mode of all chains for fixed hyperparameters.

    Return the chains, the iterations used and whether the descent converged. Raises SimulationError when the motion
    cannot be computed where the descent begins.
    """
    found = minimize(_Mode(join), _Normals(chains), replace(_SETTINGS, iterations=iterations))
    return found.point.chains, found.iterations, found.converged and found.promised < _STUCK


@dataclass
class _Evaluated:
    """A chain at a point: normal equations, the objective, and the factor of those that were damped."""

    normal: Normal
    cost: float
    factor: arrow.Factor | None = None
    damping: float = 0.0


class _Normals:
    """The normal equations of chains, computed when asked for.

    Those of one chain are kept, or of all that are short: those of long ones together would grow with a clip's length.
    """

    def __init__(self, chains: Sequence[Chain]) -> None:
        self.chains = list(chains)
        self._short = sum(len(chain.layout.knots.times_s) for chain in chains) <= _CACHED_KNOTS
        self._cache: dict[int, _Evaluated] = {}

    def cost(self) -> float:
        """Return the objective of all chains: Student-t measurements, the rest quadratic."""
        return sum(self._at(g).cost for g in range(len(self.chains)))

    def factored(self, g: int, damping: float = 0.0) -> tuple[Normal, arrow.Factor]:
        """Return a chain's normal equations and their factor, the diagonal of the blocks raised by the share
        `damping`."""
        kept = self._at(g)
        if kept.factor is None or kept.damping != damping:
            matrix = kept.normal.matrix
            diagonal = matrix.diagonal * (1.0 + damping * np.eye(matrix.diagonal.shape[1]))
            kept.factor, kept.damping = arrow.factorize(replace(matrix, diagonal=diagonal)), damping
        return kept.normal, kept.factor

    def reduced(self, damping: float = 0.0) -> tuple[list[Array], list[Array], list[Array]]:
        """Return each chain's information [P, P] and gradient [P] of its parameters, and information with all else
        known."""
        schurs, gradients, references = [], [], []
        for g in range(len(self.chains)):
            normal, factor = self.factored(g, damping)
            schurs.append(factor.schur)
            gradients.append(arrow.reduced(factor, normal.gradient, normal.gradient_theta))
            references.append(np.diagonal(normal.matrix.corner).copy())
        return schurs, gradients, references

    def _at(self, g: int) -> _Evaluated:
        if g not in self._cache:
            if not self._short:
                self._cache.clear()
            chain = self.chains[g]
            linear = linearized(chain.layout, chain.point, chain.hyperparameters)
            normal = with_priors(linear, chain.layout, chain.point, chain.hyperparameters)
            cost = normal.cost + linear.cost_student
            cost -= linear.measurements.cost / chain.hyperparameters.point_scale**2
            self._cache[g] = _Evaluated(normal, cost)
        return self._cache[g]


@dataclass(frozen=True)
class _Mode(least_squares.Problem[_Normals]):
    """The objective of chains that share parameters."""

    join: Join

    def cost(self, point: _Normals) -> float:
        """See `least_squares.Problem.cost`."""
        try:
            return point.cost()
        except (SimulationError, UsageError):  # beyond what the engine can compute: a shorter step
            return np.inf

    def linearize(self, point: _Normals) -> _Linear:
        """See `least_squares.Problem.linearize`."""
        return _Linear(self.join, point, point.cost())


@dataclass
class _Linear(least_squares.Model[_Normals]):
    """Chains made linear; the parameters' step solves their Schur complements, each chain's its own blocks."""

    join: Join
    normals: _Normals
    cost: float

    def step(self, damping: float) -> tuple[_Normals, float]:
        """See `least_squares.Model.step`."""
        join, normals = self.join, self.normals
        schurs, gradients, references = normals.reduced(damping)
        theta, gradient = np.zeros(len(join.names)), join.vector(gradients)
        free = self._movable(gradient)
        theta[free] = -_null(join, normals.chains, schurs, references, free, damping).covariance @ gradient[free]
        after, slope = [], 0.0
        for g, (chain, columns) in enumerate(zip(normals.chains, join.columns, strict=True)):
            normal, factor = normals.factored(g, damping)
            step = arrow.back(factor, -normal.gradient, theta[columns])
            slope += float((normal.gradient * step).sum() + normal.gradient_theta @ theta[columns])
            after.append(replace(chain, point=moved(chain.layout, chain.point, step, theta[columns])))
        return _Normals(after), -0.5 * slope

    def _movable(self, gradient: Array) -> NDArray[np.bool_]:
        """Return which parameters [P] a step moves, see `least_squares.movable`."""
        layout, theta = self.normals.chains[0].layout, self.normals.chains[0].point.theta
        lower, upper = layout.problem.parameters.free_bounds
        free, count = np.ones(len(gradient), dtype=bool), len(lower)
        free[:count] = least_squares.movable(theta[:count], gradient[:count], lower, upper)
        return free


def solve(problem: Problem, states: Array, inputs: Array | None = None, *, rounds: int = ROUNDS) -> Solution:
    """Return the solution of `fit` at the frames of the clip."""
    return solution(fit(problem, states, inputs, rounds=rounds))


def solution(smoothed: Smoothed) -> Solution:
    """Return states, actions and parameters of a fit at the frames of the clip."""
    layout, point = smoothed.layout, smoothed.point
    problem, frames = layout.problem, layout.knots.frame_knot
    controls = layout.knots.frame_means(controls_of(layout, point)[0])
    mean = geometric_mean(smoothed.hyperparameters)
    hyperparameters = {f"{group}_std": std for group, std in mean.input_std.items()}
    hyperparameters |= {f"{group}_bandwidth_rad_s": width for group, width in mean.bandwidth_rad_s.items()}
    hyperparameters |= {"point_scale": mean.point_scale, "shared_scale": mean.shared_scale}
    if problem.actions is not None:
        hyperparameters |= {DELAY: float(point.theta[-2]), LAG: float(np.exp(point.theta[-1]))}
    return Solution(
        states=point.states[frames],
        covariance=smoothed.covariance[frames],
        controls=controls,
        action_std=None if problem.actions is not None else _action_std(smoothed),
        parameters=layout.parameters(point.theta),
        theta_names=layout.theta_names,
        theta_covariance=smoothed.theta_covariance,
        theta_parts=smoothed.theta_parts,
        theta_quantiles=smoothed.theta_quantiles,
        null_directions=smoothed.null_directions,
        iterations=smoothed.iterations,
        converged=smoothed.converged,
        loss=-smoothed.log_evidence,
        extra={name: float(value) for name, value in hyperparameters.items()},
        weights=smoothed.weights,
        residuals=None,
        knot_states=point.states,
        knot_inputs=point.inputs[:, : len(layout.channels)] * layout.relevance,
    )


def _action_std(smoothed: Smoothed) -> Array:
    """Return one standard deviation of the fitted actions, [F - 1, A]; knots within a frame interval count as one."""
    layout = smoothed.layout
    parameters = layout.parameters(smoothed.point.theta)
    count = len(layout.problem.system.action_names)
    std = np.zeros((len(layout.knots.step_s), count))
    for j, channel in enumerate(layout.channels):
        if channel.index < count:
            scale = parameters[channel.inertia].value
            std[:, channel.index] = scale * layout.relevance[:-1, j] * smoothed.input_std[:-1, j]
    return layout.knots.frame_means(std)

"""Fit rollouts through impacts to the poses of a clip: friction, restitution, the ground and the motion.

Purpose: a rollout through several impacts is chaotic, so that its least squares have many minima, and intervals of the
linear model are too narrow.

Method: each impact may depart from the law by a small share of its impulse (slack), which is an unknown with a normal
prior. Slack ties the rollout to the measured poses after each impact, as multiple shooting does (Bock and Plitt, "A
multiple shooting algorithm for direct solution of optimal control problems", 1984). The horizon
grows from the flight before the first impact to the end of the clip; from the first impact on, many values of friction
and restitution compete. At last the slack's standard deviation is that
of the largest evidence (Laplace's approximation), and frames get weights by Student's t.

Limits: one body over one plane. Slack acts in impacts, not while a body slides or rests. Parameters of the camera are
not fitted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from vid2phys.errors import SimulationError
from vid2phys.solvers import least_squares
from vid2phys.solvers.frame_poses import FramePoses
from vid2phys.solvers.least_squares import DenseModel, Minimum, NormalEquations, Settings, student_weights
from vid2phys.types import Array, Parameters

if TYPE_CHECKING:
    from vid2phys.engine.systems.thrown import Contacts, ThrownBody

_OF_IMPACT, _OF_SLIDING = slice(0, 3), 3  # slack of an interval
_AXES = 4
_SLACKS = (0.2, 0.1, 0.05, 0.03)  # standard deviations of the slack that are compared
_GROWING = 0.1  # the slack's standard deviation while the horizon grows
_FRICTIONS, _RESTITUTIONS = (0.07, 0.17, 0.3, 0.5, 0.9), (0.05, 0.2, 0.4, 0.6, 0.8)  # of starts
_LEAST_KEPT = 4  # motions
_ALIKE = 0.01  # distance of theta below which two motions count as the same
_SHARE_OF_SEARCH = 0.5  # of the work
_GROWTH, _LEAST_FRAMES, _LEAST_GROWTH = 1.1, 8, 3  # of the horizon
_STEPS = np.array([*[1e-5] * 3, *[1e-4] * 3, *[1e-3] * 3, *[1e-2] * 3])  # of differences: m, rad, m/s, rad/s
_THETA_STEP, _SLACK_STEP = 1e-3, 1e-3
_RATE_STD = 60.0  # rad/s: what is known of a rotation that does not show
_HARDLY = 1e-2  # information on each unknown that is there without the clip
_UNKNOWN = {"mu": 1.0, "restitution": 0.25}  # standard deviations from which on a parameter is not determined
_ROUNDING = 1e-13  # of the largest eigenvalue
_ROUNDS = 3  # of weights
_ONE_SIDED = 1.353  # half the chi-square at which a one-sided interval of 95 % ends
_SHARE = 0.85  # from one friction to the next while its least value is searched


@dataclass(frozen=True)
class Motion:
    """A rollout by its unknowns: start [13], theta [P] in solver coordinates, slack [F - 1, 4]."""

    start: Array
    theta: Array
    slack: Array


@dataclass(frozen=True)
class Fitted:
    """The end of a fit.

    states: [F, 13]. contacts: [1, F - 1]. covariance: [P, P] of theta. unknown: which of theta the clip does not
    determine. state_covariance: [F, 12, 12]. slack_std: of the slack. weights: [G] of the poses. residuals: [G, 6]
    white. misfit: their root mean square. least_friction: the least mu that explains the clip (95 %), where it only has
    such a bound.
    """

    motion: Motion
    parameters: Parameters
    states: Array
    contacts: Contacts
    covariance: Array
    state_covariance: Array
    slack_std: float
    weights: Array
    minimum: Minimum[Motion]
    residuals: Array
    misfit: float
    unknown: tuple[str, ...]
    least_friction: float | None


@dataclass(frozen=True)
class ImpactProblem(least_squares.Problem[Motion]):
    """The least squares of a rollout up to a frame.

    system, parameters: what is rolled out, and its free parameters. poses: of the clip. times_s: [F]. lower: Cholesky
    factor of the covariance of all poses. frames: how many count. slack_std: of the slack's prior. prior: returns the
    residuals and the precisions of the priors of theta.
    """

    system: ThrownBody
    parameters: Parameters
    poses: FramePoses
    times_s: Array
    lower: Array
    frames: int
    slack_std: float
    prior: Callable[[Array], tuple[Array, Array]]

    @property
    def rows(self) -> NDArray[np.int64]:
        """Return the frames with a pose that count."""
        return self.poses.rows[self.poses.rows < self.frames]

    def vectors(self, theta: Array) -> Array:
        """Return the system's parameters [B, P] of solver coordinates [B, free]."""
        vectors = np.repeat(self.parameters.vector[None], len(theta), axis=0)
        for k, i in enumerate(self.parameters.free_indices):
            log = self.parameters.items[i].transform == "log"
            vectors[:, i] = np.exp(theta[:, k]) if log else theta[:, k]
        return vectors

    @property
    def lengths_s(self) -> Array:
        """Return the lengths [F - 1] of the intervals that count."""
        return np.diff(self.times_s[: self.frames])

    def rolled(self, motion: Motion) -> tuple[Array, Contacts]:
        """Return states [F, 13] and contacts [1, F - 1] up to the last frame that counts."""
        given = self.vectors(motion.theta[None]), motion.slack[None, : self.frames - 1]
        states, contacts = self.system.rollouts(motion.start[None], self.lengths_s[None], *given)
        return states[0], contacts

    def white(self, values: Array) -> Array:
        """Return values [6 G, ...] of the poses that count, divided by the Cholesky factor of their covariance."""
        size = len(values)
        return np.asarray(solve_triangular(self.lower[:size, :size], values, lower=True))

    def whitened(self, states: Array) -> Array:
        """Return white residuals [6 G] of states [F, 13]."""
        rows = self.rows
        off = self.system.local(self.poses.states[: len(rows)], states[rows])[:, :6].ravel()
        return self.white(off) if np.isfinite(off).all() else np.full(off.shape, np.inf)

    def cost(self, motion: Motion) -> float:
        """See `Problem.cost`."""
        return self._cost(motion, self.whitened(self.rolled(motion)[0]))

    def _cost(self, motion: Motion, residual: Array) -> float:
        slack = motion.slack / self.slack_std
        prior, _ = self.prior(motion.theta)
        rate = motion.start[10:13] / _RATE_STD
        total = 0.5 * float(residual @ residual + (slack**2).sum() + prior @ prior + rate @ rate)
        return total if np.isfinite(total) else np.inf

    def active(self, contacts: Contacts) -> NDArray[np.int64]:
        """Return intervals and axes [S, 2] of the slack that the motion depends on."""
        used = np.zeros((contacts.impacts.shape[-1], _AXES), dtype=bool)
        used[:, _OF_IMPACT] = contacts.impacts[0, :, None] > 0.0
        used[:, _OF_SLIDING] = contacts.sliding_s[0] > 0.0
        return np.argwhere(used)

    def linearize(self, motion: Motion) -> DenseModel[Motion]:
        """See `Problem.linearize`."""
        cost, normal, active, _, _ = self.equations(motion)
        return DenseModel(cost, normal, lambda step: self.moved(motion, step, active))

    def equations(self, motion: Motion) -> tuple[float, NormalEquations, NDArray[np.int64], Array, Array]:
        """Return cost, normal equations, active slack, states [F, 13] and their derivatives [F, 12, U]."""
        states, contacts = self.rolled(motion)
        residual = self.whitened(states)
        if not np.isfinite(residual).all():
            raise SimulationError("a rollout through impacts is not finite")
        active = self.active(contacts)
        slopes = self._slopes(motion, states, active)
        jacobian = self.white(slopes[self.rows, :6].reshape(len(residual), -1)).T
        theta = len(motion.theta)
        prior, precision = self.prior(motion.theta)
        gradient, information = jacobian @ residual, jacobian @ jacobian.T
        own, rates = slice(12, 12 + theta), slice(9, 12)
        gradient[own] += prior * np.sqrt(precision)
        gradient[rates] += motion.start[10:13] / _RATE_STD**2
        gradient[12 + theta :] += motion.slack[tuple(active.T)] / self.slack_std**2
        diagonal = np.zeros(len(gradient))
        diagonal[own], diagonal[rates], diagonal[12 + theta :] = precision, _RATE_STD**-2, self.slack_std**-2
        normal = NormalEquations(gradient, information + np.diag(diagonal))
        return self._cost(motion, residual), normal, active, states, slopes

    def _slopes(self, motion: Motion, states: Array, active: NDArray[np.int64]) -> Array:
        """Return derivatives [F, 12, U] of the states by all unknowns.

        Central differences of single intervals are chained. Differences of whole rollouts would meet other impacts.
        """
        theta, count = len(motion.theta), self.frames - 1
        each = 12 + theta
        interval = np.concatenate([np.repeat(np.arange(count), each), active[:, 0]])
        start_step, theta_step = np.zeros((len(interval), 12)), np.zeros((len(interval), theta))
        slack_step = np.zeros((len(interval), _AXES))
        start_step[: count * each] = np.tile(np.vstack([np.diag(_STEPS), np.zeros((theta, 12))]), (count, 1))
        theta_step[: count * each] = np.tile(
            np.vstack([np.zeros((12, theta)), _THETA_STEP * np.eye(theta)]), (count, 1)
        )
        slack_step[np.arange(count * each, len(interval)), active[:, 1]] = _SLACK_STEP
        ends = []
        for sign in (1.0, -1.0):
            starts = self.system.retract(states[interval], sign * start_step)
            vectors = self.vectors(motion.theta + sign * theta_step)
            slack = motion.slack[interval] + sign * slack_step
            ends.append(self.system.rollouts(starts, self.lengths_s[interval, None], vectors, slack[:, None])[0][:, 1])
        step = np.concatenate([np.tile([*_STEPS, *[_THETA_STEP] * theta], count), np.full(len(active), _SLACK_STEP)])
        ahead, behind = (self.system.local(states[interval + 1], end) for end in ends)
        by_each = (ahead - behind) / (2.0 * step[:, None])
        slopes = np.zeros((self.frames, 12, each + len(active)))
        slopes[0, :, :12] = np.eye(12)
        of_state = by_each[: count * each].reshape(count, each, 12)
        for k in range(count):
            slopes[k + 1] = of_state[k, :12].T @ slopes[k]
            slopes[k + 1, :, 12:each] += of_state[k, 12:].T
            here = np.flatnonzero(active[:, 0] == k)
            slopes[k + 1][:, each + here] += by_each[count * each + here].T
        return slopes

    def moved(self, motion: Motion, step: Array, active: NDArray[np.int64]) -> Motion:
        """Return the motion after a step [U], its parameters within their bounds."""
        theta = len(motion.theta)
        low, high = self.parameters.free_bounds
        slack = motion.slack.copy()
        slack[tuple(active.T)] += step[12 + theta :]
        return Motion(
            self.system.retract(motion.start, step[:12]),
            np.clip(motion.theta + step[12 : 12 + theta], low, high),
            slack,
        )


def fit(
    system: ThrownBody,
    parameters: Parameters,
    poses: FramePoses,
    times_s: Array,
    first: Array,
    prior: Callable[[Array], tuple[Array, Array]],
    progress: Callable[[float], None] = lambda share: None,
    fixed: tuple[str, ...] = (),
) -> Fitted:
    """Fit the free parameters, the motion and the ground to the poses of a clip.

    Args:
        system: the body.
        parameters: of the system; free ones are fitted, the others stay.
        poses: of the frames.
        times_s: of all F frames.
        first: state [13] of the first frame, roughly.
        prior: residuals and precisions of the priors of theta, both [P].
        progress: receives the share of the horizon that is done.
        fixed: free parameters that stay where they are until the motion is found.
    """
    lower = _factor(poses, np.ones(len(poses.rows)))
    whole = ImpactProblem(system, parameters, poses, times_s, lower, len(times_s), _GROWING, prior)
    found, weights = _searched(_without(whole, fixed), first, progress)
    best: tuple[float, ImpactProblem, Motion, Array] | None = None
    for k, start in enumerate(found):
        end = _annealed(whole, _joined(whole, start, fixed), weights)
        if best is None or end[0] > best[0]:
            best = end
        progress(_SHARE_OF_SEARCH + (1.0 - _SHARE_OF_SEARCH) * (k + 1) / len(found))
    assert best is not None
    _, whole, motion, weights = best
    minimum = least_squares.minimize(whole, motion, Settings(iterations=15))
    return _concluded(whole, minimum, weights)


def _annealed(whole: ImpactProblem, motion: Motion, weights: Array) -> tuple[float, ImpactProblem, Motion, Array]:
    """Return the largest evidence over the slack's standard deviations, with its problem, motion and weights [G]."""
    best: tuple[float, ImpactProblem, Motion, Array] | None = None
    for std in _SLACKS:
        problem = replace(whole, slack_std=std, lower=_factor(whole.poses, weights))
        weights, motion = _robust(problem, weights, motion)
        problem = replace(problem, lower=_factor(whole.poses, weights))
        evidence = _evidence(problem, motion, weights)
        if best is None or evidence > best[0]:
            best = evidence, problem, motion, weights
    assert best is not None
    return best


def _evidence(problem: ImpactProblem, motion: Motion, weights: Array) -> float:
    """Return the logarithm of the evidence by Laplace's approximation, up to a constant."""
    cost, normal, active, _, _ = problem.equations(motion)
    bent = np.linalg.slogdet(normal.information + _HARDLY * np.eye(len(normal.gradient)))[1]
    given = 3.0 * float(np.log(weights).sum())  # poses that count less have wider errors
    return -cost + given - len(active) * float(np.log(problem.slack_std)) - 0.5 * float(bent)


def _factor(poses: FramePoses, weights: Array) -> Array:
    """Return the Cholesky factor [6 G, 6 G] of the covariance of all poses."""
    return np.asarray(np.linalg.cholesky(poses.covariance_of_clip(weights)))


def _weights(system: ThrownBody, poses: FramePoses, states: Array, count: int) -> Array:
    """Return the robust weights of the first `count` poses by how far they are from states [F, 13]."""
    residual = system.local(poses.states[:count], states[poses.rows[:count]])[..., :6]
    covariance = (poses.covariance + poses.basis @ np.swapaxes(poses.basis, 1, 2))[:count]
    square = np.einsum("gi,gij,gj->g", residual, np.linalg.inv(covariance), residual) / 6.0
    return np.minimum(student_weights(square), 1.0)


def _without(whole: ImpactProblem, fixed: tuple[str, ...]) -> ImpactProblem:
    """Return the problem with some free parameters fixed where they are."""
    names = whole.parameters.free_names
    free = np.array([name not in fixed for name in names])
    rest = whole.parameters.free_vector()

    def prior(theta: Array) -> tuple[Array, Array]:
        full = rest.copy()
        full[free] = theta
        residuals, precision = whole.prior(full)
        return residuals[free], precision[free]

    parameters = whole.parameters.with_free(tuple(name for name in names if name not in fixed))
    return replace(whole, parameters=parameters, prior=prior)


def _joined(whole: ImpactProblem, motion: Motion, fixed: tuple[str, ...]) -> Motion:
    """Return a motion of `_without` as one of the whole problem."""
    theta = whole.parameters.free_vector()
    theta[[name not in fixed for name in whole.parameters.free_names]] = motion.theta
    return replace(motion, theta=theta)


def _searched(whole: ImpactProblem, first: Array, progress: Callable[[float], None]) -> tuple[list[Motion], Array]:
    """Return the best motions up to the end, from horizons that grow, and the weights [G] of the poses.

    The flight before the first contact is fitted first. From there many starts compete; ever fewer go on.
    """
    total = len(whole.times_s)
    motion = Motion(first, whole.parameters.free_vector(), np.zeros((total - 1, _AXES)))
    horizon, weights = min(_LEAST_FRAMES, total), np.ones(len(whole.poses.rows))
    found: list[Motion] = []
    while True:
        problem = replace(whole, frames=horizon, lower=_factor(whole.poses, weights))
        if not found and len(problem.active(problem.rolled(motion)[1])):
            found = _starts(whole.parameters.free_names, motion)
        if found:
            found = _best(problem, found)
            motion = found[0]
            weights = _seen_weights(problem, weights, motion)
        else:
            weights, motion = _robust(problem, weights, motion)
        progress(_SHARE_OF_SEARCH * horizon / total)
        if horizon == total:
            return found or [motion], weights
        horizon = min(total, max(horizon + _LEAST_GROWTH, int(horizon * _GROWTH)))


def _best(problem: ImpactProblem, found: list[Motion]) -> list[Motion]:
    """Return motions fitted up to a longer horizon, the best of those that differ, about half as many."""
    ends = sorted((_descended(problem, motion) for motion in found), key=lambda end: end.cost)
    kept: list[Minimum[Motion]] = []
    for end in ends:
        if len(kept) == max(_LEAST_KEPT, len(found) // 2):
            break
        apart = [np.abs(end.point.theta - other.point.theta).max() for other in kept]
        if np.isfinite(end.cost) and min(apart, default=np.inf) > _ALIKE:
            kept.append(end)
    return [end.point for end in kept] or [ends[0].point]


def _starts(names: tuple[str, ...], motion: Motion) -> list[Motion]:
    """Return a motion with each combination of friction and restitution, where these are free."""
    of_law = {"mu": np.log(_FRICTIONS), "restitution": np.array(_RESTITUTIONS)}
    choices = [of_law.get(name, np.array([value])) for name, value in zip(names, motion.theta, strict=True)]
    return [replace(motion, theta=np.array(values)) for values in itertools.product(*choices)]


def _robust(problem: ImpactProblem, weights: Array, motion: Motion) -> tuple[Array, Motion]:
    """Return the weights [G] of the poses, and the motion fitted with them."""
    for _ in range(_ROUNDS):
        motion = _descended(problem, motion).point
        weights = _seen_weights(problem, weights, motion)
        problem = replace(problem, lower=_factor(problem.poses, weights))
    return weights, motion


def _seen_weights(problem: ImpactProblem, weights: Array, motion: Motion) -> Array:
    """Return the weights [G] with those of the frames that count by how far they are from a motion."""
    count = len(problem.rows)
    weights = weights.copy()
    weights[:count] = _weights(problem.system, problem.poses, problem.rolled(motion)[0], count)
    return weights


def _descended(problem: ImpactProblem, motion: Motion) -> Minimum[Motion]:
    try:
        return least_squares.minimize(problem, motion, Settings(iterations=6, tolerance=1e-3, raised=1e-2))
    except SimulationError:
        return Minimum(motion, np.inf, 0, least_squares.Status.NOT_FINITE)


def _concluded(whole: ImpactProblem, minimum: Minimum[Motion], weights: Array) -> Fitted:
    """Return the fit with its covariances, scaled by what the residuals leave over."""
    motion, names = minimum.point, whole.parameters.free_names
    _, normal, _, states, slopes = whole.equations(motion)
    residual = whole.whitened(states)
    misfit = float(np.sqrt((residual**2).mean()))
    covariance = _inverse(normal.information + _HARDLY * np.eye(len(normal.gradient))) * max(1.0, misfit**2)
    of_states = slopes @ covariance @ np.swapaxes(slopes, 1, 2)
    own = slice(12, 12 + len(names))
    stds = np.sqrt(np.diagonal(covariance)[own])
    unknown = tuple(name for name, std in zip(names, stds, strict=True) if std > _UNKNOWN.get(name, np.inf))
    _, contacts = whole.rolled(motion)
    return Fitted(
        *(motion, whole.parameters.fitted_at(motion.theta), states, contacts, covariance[own, own], of_states),
        *(whole.slack_std, weights, minimum, residual.reshape(-1, 6), misfit, unknown),
        _least_friction(whole, minimum) if "mu" in unknown and (contacts.impacts > 0).any() else None,
    )


def _inverse(information: Array) -> Array:
    """Return the inverse of a positive definite matrix, whose rows may differ by many orders of magnitude."""
    scale = np.sqrt(np.diagonal(information))
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    half = vectors / np.sqrt(np.maximum(values, _ROUNDING * values[-1]))
    return np.asarray(half @ half.T / np.outer(scale, scale))


def _least_friction(whole: ImpactProblem, minimum: Minimum[Motion]) -> float | None:
    """Return the least mu whose cost is within a one-sided interval; None where none is too small."""
    names, point = whole.parameters.free_names, minimum.point
    index = names.index("mu")
    others = tuple(name for name in names if name != "mu")
    mu, lowest = float(np.exp(point.theta[index])), minimum.cost
    motion = replace(point, theta=np.delete(point.theta, index))

    def prior(theta: Array) -> tuple[Array, Array]:
        residuals, precision = whole.prior(np.insert(theta, index, np.log(mu)))
        return np.delete(residuals, index), np.delete(precision, index)

    while mu > whole.parameters["mu"].lower:
        tried = _SHARE * mu
        fixed = whole.parameters.with_values({"mu": tried}).with_free(others)
        end = _descended(replace(whole, parameters=fixed, prior=prior), motion)
        if end.cost > lowest + _ONE_SIDED:
            return mu
        mu, motion = tried, end.point
    return None

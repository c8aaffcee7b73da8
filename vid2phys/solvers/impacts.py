"""Fit rollouts through impacts to the poses of a clip: friction, restitution, the ground and the motion.

Purpose: a rollout through several impacts is chaotic, so that its least squares have many minima, and intervals of the
linear model are too narrow.

Method: each impact may depart from the law by a small share of its impulse (slack), which is an unknown with a normal
prior. Slack ties the rollout to the measured poses after each impact, as multiple shooting does (Bock and Plitt, "A
multiple shooting algorithm for direct solution of optimal control problems", 1984). The horizon grows from the flight
before the first impact to the end of the clip. From the first impact on, several values of friction and restitution
compete. At last the slack's standard deviation is that of the largest evidence (Laplace's approximation), and frames
get weights by Student's t.

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
_SLACKS = (0.01, 0.03, 0.1, 0.2)  # standard deviations of the slack that are compared
_GROWING = 0.05  # the slack's standard deviation while the horizon grows
_FRICTIONS, _RESTITUTIONS = (0.1, 0.3, 0.8), (0.1, 0.4, 0.75)
_KEPT = ((3, 9), (6, 5), (10_000, 3))  # intervals with impacts, and starts that are kept up to them
_GROWTH, _LEAST_FRAMES = 1.15, 8
_NEAR_M = 0.0  # clearance below which a body touches
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
        return self.white(self.system.local(self.poses.states[: len(rows)], states[rows])[:, :6].ravel())

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
    """
    lower = _factor(poses, np.ones(len(poses.rows)))
    whole = ImpactProblem(system, parameters, poses, times_s, lower, len(times_s), _GROWING, prior)
    motion = _grown(whole, first, progress)
    weights = np.ones(len(poses.rows))
    for _ in range(_ROUNDS):
        whole, motion = _with_best_slack(whole, motion)
        residual = whole.system.local(poses.states, whole.rolled(motion)[0][poses.rows])[..., :6]
        square = np.einsum("gi,gij,gj->g", residual, np.linalg.inv(_marginal(poses)), residual) / 6.0
        weights = student_weights(square)
        whole = replace(whole, lower=_factor(poses, weights))
    minimum = least_squares.minimize(whole, motion, Settings(iterations=15))
    return _concluded(whole, minimum, weights)


def _factor(poses: FramePoses, weights: Array) -> Array:
    """Return the Cholesky factor [6 G, 6 G] of the covariance of all poses."""
    return np.asarray(np.linalg.cholesky(poses.covariance_of_clip(weights)))


def _marginal(poses: FramePoses) -> Array:
    """Return the covariance [G, 6, 6] of each pose by itself."""
    return np.asarray(poses.covariance + poses.basis @ np.swapaxes(poses.basis, 1, 2))


def _grown(whole: ImpactProblem, first: Array, progress: Callable[[float], None]) -> Motion:
    """Return the best motion up to the end, from horizons that grow."""
    names, theta = whole.parameters.free_names, whole.parameters.free_vector()
    total = len(whole.times_s)
    begun = Motion(first, theta, np.zeros((total - 1, _AXES)))
    horizon, found = min(_LEAST_FRAMES, total), [begun]
    split = False
    while True:
        problem = replace(whole, frames=horizon)
        if not split and whole.active(problem.rolled(found[0])[1]).size:
            found, split = [replace(found[0], theta=values) for values in _starts(names, theta)], True
        ends = sorted((_descended(problem, motion) for motion in found), key=lambda end: end.cost)
        impacts = int((problem.rolled(ends[0].point)[1].impacts > 0.0).sum())
        keep = next(kept for limit, kept in _KEPT if impacts <= limit)
        found = [end.point for end in ends[:keep]]
        progress(horizon / total)
        if horizon == total:
            return found[0]
        horizon = min(total, max(horizon + 3, int(horizon * _GROWTH)))


def _descended(problem: ImpactProblem, motion: Motion) -> Minimum[Motion]:
    try:
        return least_squares.minimize(problem, motion, Settings(iterations=6, tolerance=1e-3, raised=1e-2))
    except SimulationError:
        return Minimum(motion, np.inf, 0, least_squares.Status.NOT_FINITE)


def _starts(names: tuple[str, ...], theta: Array) -> list[Array]:
    """Return theta with each combination of friction and restitution, where these are free."""
    choices = [
        [np.log(mu) for mu in _FRICTIONS] if name == "mu" else list(_RESTITUTIONS) if name == "restitution" else [value]
        for name, value in zip(names, theta, strict=True)
    ]
    return [np.array(values) for values in itertools.product(*choices)]


def _with_best_slack(whole: ImpactProblem, motion: Motion) -> tuple[ImpactProblem, Motion]:
    """Return the problem with the slack of the largest evidence, and its minimum."""
    best: tuple[float, ImpactProblem, Motion] | None = None
    for std in sorted(_SLACKS, reverse=True):
        problem = replace(whole, slack_std=std)
        motion = _descended(problem, motion).point
        cost, normal, active, _, _ = problem.equations(motion)
        bent = np.linalg.slogdet(normal.information + _HARDLY * np.eye(len(normal.gradient)))[1]
        spread = 2.0 * len(active) * np.log(std) + bent
        evidence = -cost - 0.5 * float(spread)
        if best is None or evidence > best[0]:
            best = evidence, problem, motion
    assert best is not None
    return best[1], best[2]


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

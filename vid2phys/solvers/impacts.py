"""Fit the motion of a body through impacts to the poses of a clip: friction, restitution, the ground.

Purpose: a rollout through several impacts is chaotic, so that its least squares have many minima, and intervals of the
linear model are too narrow.

Method: multiple shooting (Bock and Plitt, "A multiple shooting algorithm for direct solution of optimal control
problems", 1984). The states of some frames (nodes) are unknown, in flight where there is one. Rollouts join each node
to the next, through one or a few impacts. At first rollouts may miss the next node by much, at last by nothing. Each
impact may depart from its law by a share of its impulse (slack). Several values of friction and restitution compete.
The slack with the largest evidence counts (Laplace's approximation), and frames get weights by Student's t.

Limits: one body over one plane. Parameters of the camera are not fitted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from vid2phys.errors import SimulationError
from vid2phys.solvers import least_squares
from vid2phys.solvers.frame_poses import FramePoses
from vid2phys.solvers.least_squares import DenseModel, Minimum, NormalEquations, Settings, student_weights
from vid2phys.types import Array, Parameters

if TYPE_CHECKING:
    from vid2phys.engine.systems.rigid_contact import Contacts, ThrownBody

Prior = Callable[[Array], tuple[Array, Array]]

_SIZE, _AXES = 12, 4  # numbers of a state, and of the slack of an interval
_OF_IMPACT, _OF_SLIDING = slice(0, 3), 3  # slack of an interval
_FRICTIONS, _RESTITUTIONS = (0.1, 0.3, 0.8), (0.1, 0.4, 0.75)  # of starts
# by how much rollouts may miss the next node, over `_EXACT`, and standard deviations of the slack; one after the other
_STRICTER = tuple(itertools.product((30.0, 10.0, 3.0, 1.0), (0.1, 0.03)))
_ROUGH = ((100.0, 0.2),)
_EXACT = np.array([*[5e-5] * 3, *[5e-4] * 3, *[3e-3] * 3, *[3e-2] * 3])  # m, rad, m/s, rad/s
_NEAR_M = 0.01  # clearance below which a body may touch
_FARTHEST, _NEAREST = 6, 3  # frames from one node to the next
_STEPS = np.array([*[1e-4] * 3, *[1e-3] * 3, *[1e-2] * 3, *[1e-1] * 3])  # of differences: m, rad, m/s, rad/s
_GROUND_STEPS = {"ground_height": 1e-4, "ground_tilt_x": 1e-3, "ground_tilt_y": 1e-3}  # m, rad
_THETA_STEP, _SLACK_STEP = 1e-2, 1e-2  # of other parameters in solver coordinates, and of the slack
_FINER = (5.0, 1.0, 0.2)  # times the steps of differences; large ones see past an impact that comes or goes
_WORSE = 100.0  # nats below the best evidence at which the laws hold too strictly
_REFINED, _EXPLAINED = 4, 1.1  # starts that go on, all of them until a misfit is below this
_ALIKE = 0.03  # distance of theta up to which two ends count as one
_UNSURE = 5.0  # nats by which evidences are wrong where descents end early
_ITERATIONS = 5
_RATE_STD = 60.0  # rad/s: what is known of a rotation that does not show
_HARDLY = 1e-2  # information on each unknown that is there without the clip
_NOTHING_HIDDEN = np.zeros((0, 3))
_UNKNOWN = {"mu": 1.0, "restitution": 0.15}  # standard deviations from which on a parameter is not determined
_FAST_M_S = 0.1  # an impact that shows the restitution
_ROUNDING = 1e-13  # of the largest eigenvalue
_ONE_SIDED = 1.353  # half the chi-square at which a one-sided interval of 95 % ends
_TWO_SIDED = 1.921  # the same of a two-sided interval
_SHARE = 0.85  # from one friction to the next while its least value is searched


@dataclass(frozen=True)
class Motion:
    """The unknowns: states [M, 13] of the nodes, theta [P] in solver coordinates, slack [F - 1, 4]."""

    nodes: Array
    theta: Array
    slack: Array


@dataclass(frozen=True)
class Fitted:
    """The end of a fit.

    states: [F, 13]. contacts: [1, F - 1]. covariance: [P, P] of theta. unknown: which of theta the clip does not
    determine. state_covariance: [F, 12, 12]. slack_std: of the slack. weights: [G] of the poses. misfit: of the poses,
    root mean square in standard deviations. least_friction: the least mu that explains the clip (95 %), where it only
    has such a bound.
    """

    parameters: Parameters
    states: Array
    contacts: Contacts
    covariance: Array
    state_covariance: Array
    slack_std: float
    weights: Array
    minimum: Minimum[Motion]
    misfit: float
    unknown: tuple[str, ...]
    least_friction: float | None

    @property
    def null_directions(self) -> Array:
        """Return one direction [P] of theta for each parameter that the clip does not determine, [K, P]."""
        names = self.parameters.free_names
        return np.array([[float(name == other) for other in names] for name in self.unknown]).reshape(-1, len(names))


@dataclass(frozen=True)
class ImpactProblem(least_squares.Problem[Motion]):
    """The least squares of a motion.

    system, parameters: the body, and its free parameters. poses: of the clip. lengths_s: [F - 1] of the intervals.
    lower: Cholesky factor of the covariance of all poses. frames: [M] of the nodes, the first is 0. prior: returns the
    residuals and the precisions of the priors of theta. slack_std: of the slack's prior. miss: standard deviations [12]
    by which rollouts miss the next node. step_factor: times `_STEPS`, the steps of differences.
    """

    system: ThrownBody
    parameters: Parameters
    poses: FramePoses
    lengths_s: Array
    lower: Array
    frames: NDArray[np.int64]
    prior: Prior
    slack_std: float
    miss: Array
    step_factor: float = 1.0

    def vectors(self, theta: Array) -> Array:
        """Return the system's parameters [B, P] of solver coordinates [B, free]."""
        vectors = np.repeat(self.parameters.vector[None], len(theta), axis=0)
        for k, i in enumerate(self.parameters.free_indices):
            log = self.parameters.items[i].transform == "log"
            vectors[:, i] = np.exp(theta[:, k]) if log else theta[:, k]
        return vectors

    def rolled(self, motion: Motion) -> tuple[Array, Array, Contacts]:
        """Return states [F, 13], where rollouts end at the nodes but the first [M - 1, 13], and contacts [1, F - 1]."""
        count = len(self.lengths_s)
        bounds = np.append(self.frames, count + (self.frames[-1] < count))
        sizes = np.diff(np.append(self.frames, count))
        longest = int(sizes.max())
        lengths, slack = np.zeros((len(sizes), longest)), np.zeros((len(sizes), longest, _AXES))
        for i, (first, size) in enumerate(zip(bounds, sizes, strict=False)):
            lengths[i, :size], slack[i, :size] = (
                self.lengths_s[first : first + size],
                motion.slack[first : first + size],
            )
        theta = np.repeat(motion.theta[None], len(sizes), 0)
        rolled, found = self.system.rollouts(motion.nodes, lengths, self.vectors(theta), slack)
        parts = [rolled[i, : size + (i == len(sizes) - 1)] for i, size in enumerate(sizes)]
        ends = np.array([rolled[i, size] for i, size in enumerate(sizes[:-1])]).reshape(-1, rolled.shape[-1])
        return np.concatenate(parts), ends, found.joined(sizes)

    def white(self, values: Array) -> Array:
        """Return values [6 G, ...] of the poses, divided by the Cholesky factor of their covariance."""
        return np.asarray(solve_triangular(self.lower, values, lower=True, check_finite=False))

    def residuals(self, motion: Motion) -> tuple[Array, Array]:
        """Return white residuals of the poses [6 G] and of the nodes [12 (M - 1)]."""
        states, ends, _ = self.rolled(motion)
        off = self.white(self.system.local(self.poses.states, states[self.poses.rows])[:, :6].ravel())
        missed = self.system.local(motion.nodes[1:], ends) / self.miss
        return off, missed.ravel()

    def cost(self, motion: Motion) -> float:
        """See `Problem.cost`."""
        return self._cost(motion, *self.residuals(motion))

    def _cost(self, motion: Motion, off: Array, missed: Array) -> float:
        slack, rate = motion.slack / self.slack_std, motion.nodes[0, 10:13] / _RATE_STD
        prior, _ = self.prior(motion.theta)
        total = 0.5 * float(off @ off + missed @ missed + (slack**2).sum() + prior @ prior + rate @ rate)
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
        states, ends, contacts = self.rolled(motion)
        off, missed = self.residuals(motion)
        if not (np.isfinite(off).all() and np.isfinite(missed).all()):
            raise SimulationError("a rollout through impacts is not finite")
        active = self.active(contacts)
        slopes, of_ends = self._slopes(motion, states, ends, active)
        if not (np.isfinite(slopes).all() and np.isfinite(of_ends).all()):
            raise SimulationError("derivatives through impacts are not finite")
        of_poses = self.white(slopes[self.poses.rows, :6].reshape(len(off), -1))
        of_nodes = of_ends / self.miss[:, None]
        of_nodes = of_nodes.reshape(len(missed), -1)
        count, theta = _SIZE * len(motion.nodes), len(motion.theta)
        for i in range(len(ends)):
            rows, columns = np.arange(_SIZE) + _SIZE * i, np.arange(_SIZE) + _SIZE * (i + 1)
            of_nodes[rows, columns] -= 1.0 / self.miss
        gradient = of_poses.T @ off + of_nodes.T @ missed
        information = of_poses.T @ of_poses + of_nodes.T @ of_nodes
        prior, precision = self.prior(motion.theta)
        own, rest = slice(count, count + theta), slice(count + theta, None)
        diagonal = np.zeros(len(gradient))
        gradient[own] += prior * np.sqrt(precision)
        gradient[9:12] += motion.nodes[0, 10:13] / _RATE_STD**2
        gradient[rest] += motion.slack[tuple(active.T)] / self.slack_std**2
        diagonal[own], diagonal[9:12], diagonal[rest] = precision, _RATE_STD**-2, self.slack_std**-2
        normal = NormalEquations(gradient, information + np.diag(diagonal))
        return self._cost(motion, off, missed), normal, active, states, slopes

    def _slopes(self, motion: Motion, states: Array, ends: Array, active: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return derivatives of the states [F, 12, U] and of the ends [M - 1, 12, U] by all unknowns.

        Central differences of single intervals are chained. Differences of whole rollouts would meet other impacts.
        """
        theta, count, nodes = len(motion.theta), len(self.lengths_s), _SIZE * len(motion.nodes)
        by_each, by_slack = self._interval_slopes(motion, states, active)
        total = nodes + theta + len(active)
        slopes, of_ends = np.zeros((count + 1, _SIZE, total)), np.zeros((len(ends), _SIZE, total))
        node_of = {int(frame): i for i, frame in enumerate(self.frames)}
        slopes[0, :, :_SIZE] = np.eye(_SIZE)
        for k in range(count):
            after = by_each[k, :, :_SIZE] @ slopes[k]
            after[:, nodes : nodes + theta] += by_each[k, :, _SIZE:]
            here = np.flatnonzero(active[:, 0] == k)
            after[:, nodes + theta + here] += by_slack[:, here]
            node = node_of.get(k + 1)
            if node is None:
                slopes[k + 1] = after
            else:
                of_ends[node - 1] = after
                slopes[k + 1, :, _SIZE * node : _SIZE * (node + 1)] = np.eye(_SIZE)
        return slopes, of_ends

    def _interval_slopes(self, motion: Motion, states: Array, active: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return derivatives [F - 1, 12, 12 + P] by the state before and theta, and by the active slack [12, S]."""
        theta, count = len(motion.theta), len(self.lengths_s)
        each = _SIZE + theta
        of_theta = [_GROUND_STEPS.get(name, _THETA_STEP) for name in self.parameters.free_names]
        of_each = self.step_factor * np.array([*_STEPS, *of_theta])
        slack_step = self.step_factor * _SLACK_STEP
        steps = np.concatenate([np.tile(of_each, count), np.full(len(active), slack_step)])
        interval = np.concatenate([np.repeat(np.arange(count), each), active[:, 0]])
        moves = np.zeros((len(interval), each))
        moves[: count * each] = np.tile(np.eye(each), (count, 1)) * steps[: count * each, None]
        slack_move = np.zeros((len(interval), _AXES))
        slack_move[np.arange(count * each, len(interval)), active[:, 1]] = slack_step
        ends = []
        for sign in (1.0, -1.0):
            starts = self.system.retract(states[interval], sign * moves[:, :_SIZE])
            vectors, slack = (
                self.vectors(motion.theta + sign * moves[:, _SIZE:]),
                motion.slack[interval] + sign * slack_move,
            )
            ends.append(self.system.rollouts(starts, self.lengths_s[interval, None], vectors, slack[:, None])[0][:, 1])
        slopes = self.system.local(ends[1], ends[0]) / (2.0 * steps[:, None])
        of_state = np.swapaxes(slopes[: count * each].reshape(count, each, _SIZE), 1, 2)
        return of_state, slopes[count * each :].T

    def moved(self, motion: Motion, step: Array, active: NDArray[np.int64]) -> Motion:
        """Return the motion after a step [U], its parameters within their bounds."""
        nodes, theta = _SIZE * len(motion.nodes), len(motion.theta)
        low, high = self.parameters.free_bounds
        slack = motion.slack.copy()
        slack[tuple(active.T)] += step[nodes + theta :]
        return Motion(
            self.system.retract(motion.nodes, step[:nodes].reshape(-1, _SIZE)),
            np.clip(motion.theta + step[nodes : nodes + theta], low, high),
            slack,
        )


_End: TypeAlias = tuple[float, ImpactProblem, Motion, Array]
"""The evidence of a fit, its problem with the strictness that it was fitted with, its motion and weights [G]."""


def fit(
    system: ThrownBody,
    parameters: Parameters,
    poses: FramePoses,
    times_s: Array,
    smoothed: Array,
    prior: Prior,
    progress: Callable[[float], None] = lambda share: None,
    hidden: Array = _NOTHING_HIDDEN,
) -> Fitted:
    """Fit the free parameters, the motion and the ground to the poses of a clip.

    Args:
        system: the body.
        parameters: of the system; free ones are fitted, the others stay.
        poses: of the frames.
        times_s: of all F frames.
        smoothed: states [F, 13] of a fit that knows no contact.
        prior: residuals and precisions of the priors of theta, both [P].
        progress: receives the share of the work that is done.
        hidden: [A, 3] axes of the body, rotations about which do not show.
    """
    weights, lengths = np.ones(len(poses.rows)), np.diff(times_s)
    frames = _node_frames(system, poses, smoothed, lengths, parameters.vector)
    given = system, parameters, poses, lengths, _factor(poses, weights), frames, prior
    exact = _EXACT.copy()
    free = np.abs(hidden).sum(axis=0)
    exact[3:6], exact[9:12] = np.hypot(exact[3:6], np.pi * free), np.hypot(exact[9:12], _RATE_STD * free)
    whole = ImpactProblem(*given, _ROUGH[0][1], exact)
    motion = Motion(smoothed[frames], parameters.free_vector(), np.zeros((len(lengths), _AXES)))
    candidates = _candidates(system, poses, smoothed, frames, times_s, parameters["gravity"].value)
    starts = _starts(parameters.free_names, motion)
    starts += [_with_nearest(whole, start, candidates) for start in starts]
    rough = [_tightened(whole, start, weights, exact, _ROUGH) for start in starts]
    progress(0.5)
    ends: list[_End] = []
    for _, _, begun, own in _different(sorted(rough, key=lambda end: -end[0])):
        if len(ends) >= _REFINED and min(_misfit(end[1], end[2]) for end in ends) < _EXPLAINED:
            break
        ends.append(_tightened(whole, begun, own, exact, _STRICTER))
        progress(0.5 + 0.5 * min(1.0, len(ends) / _REFINED))
    _, whole, motion, weights = max(ends, key=lambda end: end[0])
    minimum = least_squares.minimize(whole, motion, Settings(iterations=15))
    return _concluded(whole, minimum, weights, _between(ends))


def _different(ends: Sequence[_End]) -> list[_End]:
    """Return the ends whose parameters differ."""
    kept: list[_End] = []
    for end in ends:
        apart = [np.abs(end[2].theta - other[2].theta).max() for other in kept]
        if min(apart, default=np.inf) > _ALIKE:
            kept.append(end)
    return kept


def _misfit(problem: ImpactProblem, motion: Motion) -> float:
    """Return the root mean square of the residuals of the poses, in standard deviations."""
    return float(np.sqrt((problem.residuals(motion)[0] ** 2).mean()))


def _between(ends: Sequence[_End]) -> Array:
    """Return the covariance [P, P] of theta about the best of several ends, which count by their evidence."""
    evidence = np.array([end[0] for end in ends])
    theta = np.array([end[2].theta for end in ends])
    share = np.exp((evidence - evidence.max()) / _UNSURE)
    off = theta - theta[int(evidence.argmax())]
    return np.asarray((share[:, None] * off).T @ off / share.sum())


def _node_frames(
    system: ThrownBody, poses: FramePoses, states: Array, lengths_s: Array, vector: Array
) -> NDArray[np.int64]:
    """Return the frames of the nodes: the first, the middle of each flight, and others where a node is far."""
    clearance = system.clearance_m(states, vector)
    clearance[poses.rows] = np.minimum(clearance[poses.rows], system.clearance_m(poses.states, vector))
    speed = np.linalg.norm(states[:, 7:10], axis=1)
    clear = clearance > _NEAR_M + speed * np.append(lengths_s, lengths_s[-1])
    frames = [0]
    flight = 0  # frames of the flight so far
    for k, flies in enumerate(np.append(clear, False)):
        if flies:
            flight += 1
            continue
        middle = k - 1 - flight // 2
        if flight and middle - frames[-1] >= _NEAREST:
            frames.append(middle)
        flight = 0
        if k - frames[-1] >= _FARTHEST and k < len(clear) - _NEAREST:
            frames.append(k)
    return np.array(frames, dtype=np.int64)


def _candidates(
    system: ThrownBody, poses: FramePoses, smoothed: Array, frames: NDArray[np.int64], times_s: Array, gravity: float
) -> Array:
    """Return states [3, M, 13] from which nodes may begin.

    They are the smoothed ones, and those with velocities by the poses after a node, and before it.

    An impact beside a node spoils two of the three.
    """
    here = np.clip(np.searchsorted(poses.rows, frames), 0, len(poses.rows) - 1)
    candidates = [smoothed[frames]]
    for sign in (1, -1):
        there = np.clip(here + 2 * sign, 0, len(poses.rows) - 1)
        apart = (times_s[poses.rows[there]] - times_s[poses.rows[here]])[:, None]
        states = smoothed[frames].copy()
        far = np.flatnonzero(apart[:, 0])
        rate = system.local(poses.states[here[far]], poses.states[there[far]])[:, :6] / apart[far]
        rate[:, 2] += 0.5 * gravity * apart[far, 0]
        states[far, 7:13] = rate
        candidates.append(states)
    return np.array(candidates)


def _with_nearest(whole: ImpactProblem, motion: Motion, candidates: Array) -> Motion:
    """Return the motion whose nodes are those candidates that best explain the poses up to the next node.

    candidates: states [K, M, 13] of the M nodes.
    """
    poses = whole.poses
    segment = np.searchsorted(whole.frames, poses.rows, side="right") - 1
    costs = np.zeros(candidates.shape[:2])
    for k, nodes in enumerate(candidates):
        states = whole.rolled(replace(motion, nodes=nodes))[0]
        off = whole.system.local(poses.states, states[poses.rows])[:, :6]
        np.add.at(costs[k], segment, np.log1p(np.einsum("gi,gij,gj->g", off, poses.precision, off)))
    return replace(motion, nodes=candidates[costs.argmin(axis=0), np.arange(candidates.shape[1])])


def _starts(names: tuple[str, ...], motion: Motion) -> list[Motion]:
    """Return a motion with each combination of friction and restitution, where these are free."""
    of_law = {"mu": np.log(_FRICTIONS), "restitution": np.array(_RESTITUTIONS)}
    choices = [of_law.get(name, np.array([value])) for name, value in zip(names, motion.theta, strict=True)]
    return [replace(motion, theta=np.array(values)) for values in itertools.product(*choices)]


def _tightened(
    whole: ImpactProblem, motion: Motion, weights: Array, exact: Array, strictness: Sequence[tuple[float, float]]
) -> _End:
    """Return the largest evidence over levels of miss and slack, with its problem, motion and weights [G]."""
    best: _End | None = None
    for miss, std in strictness:
        whole = replace(whole, miss=miss * exact, slack_std=std)
        weights, motion = _robust(whole, motion, weights)
        whole = replace(whole, lower=_factor(whole.poses, weights))
        evidence = _evidence(whole, motion)
        if best is None or evidence > best[0]:
            best = evidence, whole, motion, weights
        elif evidence < best[0] - _WORSE:
            break
    assert best is not None
    return best


def _robust(problem: ImpactProblem, motion: Motion, weights: Array) -> tuple[Array, Motion]:
    """Return weights [G] of the poses, and the motion fitted with the ones before."""
    poses = problem.poses
    motion = _descended(replace(problem, lower=_factor(poses, weights)), motion).point
    off = problem.system.local(poses.states, problem.rolled(motion)[0][poses.rows])[:, :6]
    square = np.einsum("gi,gij,gj->g", off, poses.precision, off) / 6.0
    return np.minimum(student_weights(square), 1.0), motion


def _descended(problem: ImpactProblem, motion: Motion) -> Minimum[Motion]:
    """Return the lowest end of descents by ever finer differences, each from the one before."""
    settings = Settings(iterations=_ITERATIONS, tolerance=3e-4)
    best = Minimum(motion, np.inf, 0, least_squares.Status.NOT_FINITE)
    for factor in _FINER:
        try:
            found = least_squares.minimize(replace(problem, step_factor=factor), best.point, settings)
        except (SimulationError, np.linalg.LinAlgError):
            continue
        best = min(best, found, key=lambda each: each.cost)
    return best


def _evidence(problem: ImpactProblem, motion: Motion) -> float:
    """Return the logarithm of the evidence by Laplace's approximation, up to a constant."""
    try:
        cost, normal, active, _, _ = problem.equations(motion)
    except SimulationError:
        return -np.inf
    bent = np.linalg.slogdet(normal.information + _HARDLY * np.eye(len(normal.gradient)))[1]
    given = -float(np.log(np.diagonal(problem.lower)).sum()) - (len(problem.frames) - 1) * float(
        np.log(problem.miss).sum()
    )
    return given - cost - len(active) * float(np.log(problem.slack_std)) - 0.5 * float(bent)


def _factor(poses: FramePoses, weights: Array) -> Array:
    """Return the Cholesky factor [6 G, 6 G] of the covariance of all poses."""
    return np.asarray(np.linalg.cholesky(poses.covariance_of_clip(weights)))


def _concluded(whole: ImpactProblem, minimum: Minimum[Motion], weights: Array, between: Array) -> Fitted:
    """Return the fit with its covariances, scaled by what the residuals leave over; between: that of several ends."""
    motion, names = minimum.point, whole.parameters.free_names
    _, normal, _, states, slopes = whole.equations(motion)
    misfit = _misfit(whole, motion)
    covariance = _inverse(normal.information + _HARDLY * np.eye(len(normal.gradient))) * max(1.0, misfit**2)
    of_states = slopes @ covariance @ np.swapaxes(slopes, 1, 2)
    own = slice(_SIZE * len(motion.nodes), _SIZE * len(motion.nodes) + len(names))
    of_theta = covariance[own, own] + between
    stds = np.sqrt(np.diagonal(of_theta))
    contacts, parameters = whole.rolled(motion)[2], whole.parameters.fitted_at(motion.theta)
    unknown = [name for name, std in zip(names, stds, strict=True) if std > _UNKNOWN.get(name, np.inf)]
    if contacts.approach_m_s.max() < _FAST_M_S and "restitution" in names and "restitution" not in unknown:
        unknown.append("restitution")
    touches = bool((contacts.impacts > 0).any())
    if "mu" in names and "mu" not in unknown and touches and _is_open(whole, minimum):
        unknown.append("mu")
    bounded = "mu" in unknown and touches
    given = parameters, states, contacts, of_theta, of_states
    least = _least_friction(whole, minimum) if bounded else None
    return Fitted(*given, whole.slack_std, weights, minimum, misfit, tuple(unknown), least)


def _inverse(information: Array) -> Array:
    """Return the inverse of a positive definite matrix, whose rows may differ by many orders of magnitude."""
    scale = np.sqrt(np.diagonal(information))
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    half = vectors / np.sqrt(np.maximum(values, _ROUNDING * values[-1]))
    return np.asarray(half @ half.T / np.outer(scale, scale))


def _is_open(whole: ImpactProblem, minimum: Minimum[Motion]) -> bool:
    """Return whether twice the friction explains the clip as well: then nothing slides for long."""
    mu = 2.0 * float(np.exp(minimum.point.theta[whole.parameters.free_names.index("mu")]))
    problem, motion = _with_friction(whole, minimum.point, mu)
    return _descended(problem, motion).cost < minimum.cost + _TWO_SIDED


def _with_friction(whole: ImpactProblem, motion: Motion, mu: float) -> tuple[ImpactProblem, Motion]:
    """Return the problem with mu fixed, and the motion without it."""
    names = whole.parameters.free_names
    index = names.index("mu")

    def prior(theta: Array) -> tuple[Array, Array]:
        residuals, precision = whole.prior(np.insert(theta, index, np.log(mu)))
        return np.delete(residuals, index), np.delete(precision, index)

    parameters = whole.parameters.with_values({"mu": mu}).with_free(tuple(name for name in names if name != "mu"))
    return replace(whole, parameters=parameters, prior=prior), replace(motion, theta=np.delete(motion.theta, index))


def _least_friction(whole: ImpactProblem, minimum: Minimum[Motion]) -> float | None:
    """Return the least mu whose cost is within a one-sided interval; None where none is too small."""
    names, motion = whole.parameters.free_names, minimum.point
    mu = float(np.exp(motion.theta[names.index("mu")]))
    while mu > whole.parameters["mu"].lower:
        tried = _SHARE * mu
        problem, start = _with_friction(whole, motion, tried)
        end = _descended(problem, start)
        if end.cost > minimum.cost + _ONE_SIDED:
            return mu
        mu, motion = tried, replace(end.point, theta=np.insert(end.point.theta, names.index("mu"), np.log(tried)))
    return None

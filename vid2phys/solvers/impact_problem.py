"""The least squares of a body's motion through impacts: multiple shooting between nodes.

Unknowns are the states of some frames (nodes), the free parameters, and by how much each impact departs from its law
(slack). Rollouts from each node pass the poses of the clip, and may miss the next node by `miss`.

Source: Bock and Plitt, "A multiple shooting algorithm for direct solution of optimal control problems", 1984.
"""

from __future__ import annotations

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
    from vid2phys.engine.systems.rigid_contact import Contacts, ThrownBody

Prior = Callable[[Array], tuple[Array, Array]]

SIZE = 12  # numbers of a state in its tangent space
AXES = 4  # of the slack of an interval
_OF_IMPACT, _OF_SLIDING = slice(0, 3), 3  # slack of an interval
_STEPS = np.array([*[1e-4] * 3, *[1e-3] * 3, *[1e-2] * 3, *[1e-1] * 3])  # of differences: m, rad, m/s, rad/s
_GROUND_STEPS = {"ground_height": 1e-4, "ground_tilt_x": 1e-3, "ground_tilt_y": 1e-3}  # m, rad
_THETA_STEP, _SLACK_STEP = 1e-2, 1e-2  # of other parameters in solver coordinates, and of the slack
_FINER = (5.0, 1.0, 0.2)  # times the steps of differences; large ones see past an impact that comes or goes
_ITERATIONS = 5
RATE_STD = 60.0  # rad/s: what is known of a rotation that does not show
_HARDLY = 1e-2  # information on each unknown that is there without the clip
_ROUNDING = 1e-13  # of the largest eigenvalue


@dataclass(frozen=True)
class Motion:
    """The unknowns: states [M, 13] of the nodes, theta [P] in solver coordinates, slack [F - 1, 4]."""

    nodes: Array
    theta: Array
    slack: Array


@dataclass(frozen=True)
class ImpactProblem(least_squares.Problem[Motion]):
    """The least squares of a motion.

    system, parameters: the body, and its free parameters. poses: of the clip. lengths_s: [F - 1] of the intervals.
    lower: Cholesky factor of the covariance of all poses. frames: [M] of the nodes, the first is 0. prior: returns the
    residuals and the precisions of the priors of theta. slack_std: of the slack's prior. miss: standard deviations [12]
    or [M - 1, 12] by which rollouts miss the next node. step_factor: times `_STEPS`, the steps of differences.
    slack_weights: [F - 1], by Student's t: they divide the variance of the slack of each interval.
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
    slack_weights: Array | float = 1.0

    @property
    def slack_stds(self) -> Array:
        """Return the standard deviation of the slack of each interval, [F - 1]."""
        return np.broadcast_to(self.slack_std / np.sqrt(self.slack_weights), len(self.lengths_s))

    @property
    def misses(self) -> Array:
        """Return the standard deviations by which each rollout misses the next node, [M - 1, 12]."""
        return np.broadcast_to(self.miss, (len(self.frames) - 1, SIZE))

    def vectors(self, theta: Array) -> Array:
        """Return the system's parameters [B, P] of solver coordinates [B, free]."""
        vectors = np.repeat(self.parameters.vector[None], len(theta), axis=0)
        for k, i in enumerate(self.parameters.free_indices):
            log = self.parameters.items[i].transform == "log"
            vectors[:, i] = np.exp(theta[:, k]) if log else theta[:, k]
        return vectors

    def rolled(self, motion: Motion) -> tuple[Array, Array, Contacts]:
        """Return states [F, 13], where rollouts end at the nodes but the first [M - 1, 13], and contacts [1, F - 1]."""
        sizes, lengths, slack = self.segments(motion)
        theta = np.repeat(motion.theta[None], len(sizes), 0)
        rolled, found = self.system.rollouts(motion.nodes, lengths, self.vectors(theta), slack)
        parts = [rolled[i, : size + (i == len(sizes) - 1)] for i, size in enumerate(sizes)]
        ends = np.array([rolled[i, size] for i, size in enumerate(sizes[:-1])]).reshape(-1, rolled.shape[-1])
        return np.concatenate(parts), ends, found.joined(sizes)

    def segments(self, motion: Motion) -> tuple[NDArray[np.int64], Array, Array]:
        """Return the number of intervals [M] from each node to the next, their lengths [M, L] s and slack [M, L, 4].

        The last segment ends at the last frame. Shorter ones than the longest, L, are filled with intervals of 0 s.
        """
        sizes = np.diff(np.append(self.frames, len(self.lengths_s)))
        lengths, slack = np.zeros((len(sizes), sizes.max())), np.zeros((len(sizes), sizes.max(), AXES))
        for i, (first, size) in enumerate(zip(self.frames, sizes, strict=True)):
            lengths[i, :size] = self.lengths_s[first : first + size]
            slack[i, :size] = motion.slack[first : first + size]
        return sizes, lengths, slack

    def white(self, values: Array) -> Array:
        """Return values [6 G, ...] of the poses, divided by the Cholesky factor of their covariance."""
        return np.asarray(solve_triangular(self.lower, values, lower=True, check_finite=False))

    def residuals(self, motion: Motion) -> tuple[Array, Array]:
        """Return white residuals of the poses [6 G] and of the nodes [12 (M - 1)]."""
        states, ends, _ = self.rolled(motion)
        return self._residuals(motion, states, ends)

    def _residuals(self, motion: Motion, states: Array, ends: Array) -> tuple[Array, Array]:
        off = self.white(self.system.local(self.poses.states, states[self.poses.rows])[:, :6].ravel())
        missed = self.system.local(motion.nodes[1:], ends) / self.misses
        return off, missed.ravel()

    def cost(self, motion: Motion) -> float:
        """See `Problem.cost`."""
        return self._cost(motion, *self.residuals(motion))

    def _cost(self, motion: Motion, off: Array, missed: Array) -> float:
        slack, rate = motion.slack / self.slack_stds[:, None], motion.nodes[0, 10:13] / RATE_STD
        prior, _ = self.prior(motion.theta)
        total = 0.5 * float(off @ off + missed @ missed + (slack**2).sum() + prior @ prior + rate @ rate)
        return total if np.isfinite(total) else np.inf

    def active(self, contacts: Contacts) -> NDArray[np.int64]:
        """Return intervals and axes [S, 2] of the slack that the motion depends on."""
        used = np.zeros((contacts.impacts.shape[-1], AXES), dtype=bool)
        used[:, _OF_IMPACT] = contacts.impacts[0, :, None] > 0.0
        used[:, _OF_SLIDING] = contacts.sliding_s[0] > 0.0
        return np.argwhere(used)

    def forgiving(self, motion: Motion) -> ImpactProblem:
        """Return the problem with weights of the slack by a motion: the law binds impacts less that depart by much."""
        used = np.bincount(self.active(self.rolled(motion)[2])[:, 0], minlength=len(self.lengths_s))
        square = (motion.slack**2).sum(axis=1) / (self.slack_std**2 * np.maximum(used, 1))
        return replace(self, slack_weights=np.minimum(student_weights(square), 1.0))

    def linearize(self, motion: Motion) -> DenseModel[Motion]:
        """See `Problem.linearize`."""
        cost, normal, active, _, _ = self.equations(motion)
        return DenseModel(cost, normal, lambda step: self.moved(motion, step, active))

    def equations(self, motion: Motion) -> tuple[float, NormalEquations, NDArray[np.int64], Array, Array]:
        """Return cost, normal equations, active slack, states [F, 13] and their derivatives [F, 12, U]."""
        states, ends, contacts = self.rolled(motion)
        off, missed = self._residuals(motion, states, ends)
        if not (np.isfinite(off).all() and np.isfinite(missed).all()):
            raise SimulationError("a rollout through impacts is not finite")
        active = self.active(contacts)
        slopes, of_ends = self._slopes(motion, states, ends, active)
        if not (np.isfinite(slopes).all() and np.isfinite(of_ends).all()):
            raise SimulationError("derivatives through impacts are not finite")
        of_poses = self.white(slopes[self.poses.rows, :6].reshape(len(off), -1))
        of_nodes = of_ends / self.misses[..., None]
        of_nodes = of_nodes.reshape(len(missed), -1)
        count, theta = SIZE * len(motion.nodes), len(motion.theta)
        for i in range(len(ends)):
            rows, columns = np.arange(SIZE) + SIZE * i, np.arange(SIZE) + SIZE * (i + 1)
            of_nodes[rows, columns] -= 1.0 / self.misses[i]
        gradient = of_poses.T @ off + of_nodes.T @ missed
        information = of_poses.T @ of_poses + of_nodes.T @ of_nodes
        prior, precision = self.prior(motion.theta)
        own, rest = slice(count, count + theta), slice(count + theta, None)
        diagonal = np.zeros(len(gradient))
        gradient[own] += prior * np.sqrt(precision)
        gradient[9:12] += motion.nodes[0, 10:13] / RATE_STD**2
        of_slack = self.slack_stds[active[:, 0]] ** -2.0
        gradient[rest] += motion.slack[tuple(active.T)] * of_slack
        diagonal[own], diagonal[9:12], diagonal[rest] = precision, RATE_STD**-2, of_slack
        normal = NormalEquations(gradient, information + np.diag(diagonal))
        return self._cost(motion, off, missed), normal, active, states, slopes

    def _slopes(self, motion: Motion, states: Array, ends: Array, active: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return derivatives of the states [F, 12, U] and of the ends [M - 1, 12, U] by all unknowns.

        Central differences of single intervals are chained. Differences of whole rollouts would meet other impacts.
        """
        theta, count, nodes = len(motion.theta), len(self.lengths_s), SIZE * len(motion.nodes)
        by_each, by_slack = self._interval_slopes(motion, states, active)
        total = nodes + theta + len(active)
        slopes, of_ends = np.zeros((count + 1, SIZE, total)), np.zeros((len(ends), SIZE, total))
        node_of = {int(frame): i for i, frame in enumerate(self.frames)}
        slopes[0, :, :SIZE] = np.eye(SIZE)
        for k in range(count):
            after = by_each[k, :, :SIZE] @ slopes[k]
            after[:, nodes : nodes + theta] += by_each[k, :, SIZE:]
            here = np.flatnonzero(active[:, 0] == k)
            after[:, nodes + theta + here] += by_slack[:, here]
            node = node_of.get(k + 1)
            if node is None:
                slopes[k + 1] = after
            else:
                of_ends[node - 1] = after
                slopes[k + 1, :, SIZE * node : SIZE * (node + 1)] = np.eye(SIZE)
        return slopes, of_ends

    def _interval_slopes(self, motion: Motion, states: Array, active: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return derivatives [F - 1, 12, 12 + P] by the state before and theta, and by the active slack [12, S]."""
        theta, count = len(motion.theta), len(self.lengths_s)
        each = SIZE + theta
        of_theta = [_GROUND_STEPS.get(name, _THETA_STEP) for name in self.parameters.free_names]
        of_each = self.step_factor * np.array([*_STEPS, *of_theta])
        slack_step = self.step_factor * _SLACK_STEP
        steps = np.concatenate([np.tile(of_each, count), np.full(len(active), slack_step)])
        interval = np.concatenate([np.repeat(np.arange(count), each), active[:, 0]])
        moves = np.zeros((len(interval), each))
        moves[: count * each] = np.tile(np.eye(each), (count, 1)) * steps[: count * each, None]
        slack_move = np.zeros((len(interval), AXES))
        slack_move[np.arange(count * each, len(interval)), active[:, 1]] = slack_step
        ends = []
        for sign in (1.0, -1.0):
            starts = self.system.retract(states[interval], sign * moves[:, :SIZE])
            vectors = self.vectors(motion.theta + sign * moves[:, SIZE:])
            slack = motion.slack[interval] + sign * slack_move
            ends.append(self.system.rollouts(starts, self.lengths_s[interval, None], vectors, slack[:, None])[0][:, 1])
        slopes = self.system.local(ends[1], ends[0]) / (2.0 * steps[:, None])
        of_state = np.swapaxes(slopes[: count * each].reshape(count, each, SIZE), 1, 2)
        return of_state, slopes[count * each :].T

    def moved(self, motion: Motion, step: Array, active: NDArray[np.int64]) -> Motion:
        """Return the motion after a step [U], its parameters within their bounds."""
        nodes, theta = SIZE * len(motion.nodes), len(motion.theta)
        low, high = self.parameters.free_bounds
        slack = motion.slack.copy()
        slack[tuple(active.T)] += step[nodes + theta :]
        return Motion(
            self.system.retract(motion.nodes, step[:nodes].reshape(-1, SIZE)),
            np.clip(motion.theta + step[nodes : nodes + theta], low, high),
            slack,
        )


def descended(problem: ImpactProblem, motion: Motion) -> Minimum[Motion]:
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


def evidence_of(problem: ImpactProblem, motion: Motion) -> float:
    """Return the logarithm of the evidence by Laplace's approximation, up to a constant."""
    try:
        cost, normal, active, _, _ = problem.equations(motion)
    except SimulationError:
        return -np.inf
    bent = np.linalg.slogdet(_regular(normal))[1]
    given = -float(np.log(np.diagonal(problem.lower)).sum()) - float(np.log(problem.misses).sum())
    return given - cost - float(np.log(problem.slack_stds[active[:, 0]]).sum()) - 0.5 * float(bent)


def misfit_of(problem: ImpactProblem, motion: Motion) -> float:
    """Return the root mean square of the residuals of the poses, in standard deviations."""
    return float(np.sqrt((problem.residuals(motion)[0] ** 2).mean()))


def factor_of(poses: FramePoses, weights: Array) -> Array:
    """Return the Cholesky factor [6 G, 6 G] of the covariance of all poses."""
    return np.asarray(np.linalg.cholesky(poses.covariance_of_clip(weights)))


def with_fixed(problem: ImpactProblem, motion: Motion, values: dict[str, float]) -> tuple[ImpactProblem, Motion]:
    """Return the problem with some free parameters fixed, and the motion without them.

    values: in solver coordinates.
    """
    names = problem.parameters.free_names
    fixed = np.array([name in values for name in names])
    given = np.array([values.get(name, 0.0) for name in names])

    def prior(theta: Array) -> tuple[Array, Array]:
        every = given.copy()
        every[~fixed] = theta
        residuals, precision = problem.prior(every)
        return residuals[~fixed], precision[~fixed]

    theta = np.where(fixed, given, motion.theta)
    free = tuple(name for name in names if name not in values)
    parameters = problem.parameters.fitted_at(theta).with_free(free)
    return replace(problem, parameters=parameters, prior=prior), replace(motion, theta=motion.theta[~fixed])


def covariance_of(normal: NormalEquations) -> Array:
    """Return the covariance [U, U] of the unknowns."""
    return inverse(_regular(normal))


def _regular(normal: NormalEquations) -> Array:
    """Return the information [U, U] with the little that is known of each unknown without the clip."""
    return np.asarray(normal.information + _HARDLY * np.eye(len(normal.gradient)))


def inverse(information: Array) -> Array:
    """Return the inverse of a positive definite matrix, whose rows may differ by many orders of magnitude."""
    scale = np.sqrt(np.diagonal(information))
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    half = vectors / np.sqrt(np.maximum(values, _ROUNDING * values[-1]))
    return np.asarray(half @ half.T / np.outer(scale, scale))

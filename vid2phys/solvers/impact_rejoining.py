"""Search again for impacts where one part of a motion does not join the next.

Purpose: a descent cannot exchange one impact for another. A motion whose impacts are wrong in one part joins the next
part only by a miss and by slack, and so bends the parameters of the whole clip.

Method: the worst part is cut off, so that the rest tells the parameters and the states before and after the part.
States of its node, with parameters, are drawn from what the rest tells, and roll through the part by the law alone. New
ones are drawn about the best, ever nearer (an evolution strategy; Beyer and Schwefel, "Evolution strategies", 2002).
Descents of the whole motion begin at the best of all. Then the next part has its turn.

Limits: one part at a time, whose poses are nearly right. The last part joins nothing, and is not searched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from vid2phys.errors import SimulationError
from vid2phys.solvers.impact_problem import AXES, SIZE, ImpactProblem, Motion, covariance_of, descended, factor_of
from vid2phys.solvers.least_squares import STUDENT_DOF
from vid2phys.types import Array

_JOINED = 30.0  # squared misses and slack of a part, in variances, up to which it is not searched again
_PARTS, _IN_VAIN = 12, 3  # searches: of one motion, and in a row without a gain
_GAIN = 1.0  # nats
_CUT = 300.0  # times the strictest miss: that of a join that is cut
_LOOSE = 1e-3  # weight of the slack of a part that is cut off
_ROOM = 3.0  # times the strictest miss: by how much a part may miss the next node at little cost
_DRAWN, _KEPT, _ROUNDS = 512, 32, 5
_NARROWER = 0.6  # draws of each round, over those of the round before
_WIDTHS, _STEPS = (0.3, 1.0, 2.0), (0.1, 0.3, 1.0)  # of the first draws, and of later ones, in deviations
_STARTS, _APART = 3, 3.0  # of descents, and deviations from one to another


class End(NamedTuple):
    """The end of a descent.

    evidence: nats. problem: with the strictness that it was fitted with. motion: the best. weights: [G] of the poses.
    """

    evidence: float
    problem: ImpactProblem
    motion: Motion
    weights: Array


def rejoined(end: End, exact: Array, slack_std: float, descents: Callable[[list[Motion]], End]) -> End:
    """Return the end of a fit after a search of the parts that miss the next node.

    Args:
        end: the fit.
        exact: standard deviations [12] by which a right motion misses its nodes.
        slack_std: the standard deviation of a right motion's slack.
        descents: returns the best end of descents from some motions.
    """
    rng, tried = np.random.default_rng(0), set[int]()
    for _ in range(_PARTS):
        _, problem, motion, weights = end
        scores = _scores(problem, motion, exact, slack_std)
        scores[list(tried)] = 0.0
        if scores.max(initial=0.0) < _JOINED or len(tried) == _IN_VAIN:
            break
        part = int(scores.argmax())
        without = _cut(replace(problem, lower=factor_of(problem.poses, weights)), motion, part, exact, slack_std)
        starts = _Part(without, descended(without, motion).point, part).starts(exact, rng)
        found = descents(starts) if starts else end
        if found.evidence > end.evidence + _GAIN:
            end, tried = found, set()
        else:
            tried.add(part)
    return end


def _scores(problem: ImpactProblem, motion: Motion, exact: Array, slack_std: float) -> Array:
    """Return how badly each part but the last joins the next: squared misses and slack, in variances, [M - 1]."""
    missed = problem.residuals(motion)[1].reshape(-1, SIZE) * problem.misses / exact
    slack = np.add.reduceat((motion.slack**2).sum(axis=1), problem.frames)[:-1] / slack_std**2
    return np.asarray((missed**2).sum(axis=1) + slack)


def _cut(problem: ImpactProblem, motion: Motion, part: int, exact: Array, slack_std: float) -> ImpactProblem:
    """Return the strict problem with one part that is free of the law, and need not join the next."""
    misses = np.tile(exact, (len(problem.frames) - 1, 1))
    misses[part] *= _CUT
    strict = replace(problem, miss=misses, slack_std=slack_std).forgiving(motion)
    weights = np.array(np.broadcast_to(strict.slack_weights, len(problem.lengths_s)))
    weights[problem.frames[part] : problem.frames[part + 1]] = _LOOSE
    return replace(strict, slack_weights=weights)


@dataclass(frozen=True)
class _Part:
    """A part of a motion, from one node to the next, that is cut off.

    problem: with the part cut off. motion: its minimum. index: of the part.
    """

    problem: ImpactProblem
    motion: Motion
    index: int

    def starts(self, exact: Array, rng: np.random.Generator) -> list[Motion]:
        """Return motions from which to descend, of the best states of the node, the best first.

        There are none where the rest of the motion cannot be simulated.
        """
        problem, motion, node = self.problem, self.motion, SIZE * self.index
        try:
            covariance = covariance_of(problem.equations(motion)[1])
        except SimulationError:
            return []
        count = SIZE * len(motion.nodes)
        own, after = np.r_[node : node + SIZE, count : count + len(motion.theta)], slice(node + SIZE, node + 2 * SIZE)
        factor = np.asarray(np.linalg.cholesky(covariance[np.ix_(own, own)]))
        join = np.asarray(np.linalg.inv(covariance[after, after] + np.diag((_ROOM * exact) ** 2)))
        draws = rng.normal(size=(_DRAWN, len(own))) * rng.choice(_WIDTHS, (_DRAWN, 1))
        costs, width = self._costs(draws, factor, join), 1.0
        for _ in range(_ROUNDS):
            best, width = np.argsort(costs)[:_KEPT], _NARROWER * width
            draws, costs = draws[best], costs[best]
            step = width * rng.normal(size=(_DRAWN, len(own))) * rng.choice(_STEPS, (_DRAWN, 1))
            fresh = draws[rng.integers(0, len(draws), _DRAWN)] + step
            draws, costs = np.vstack([draws, fresh]), np.append(costs, self._costs(fresh, factor, join))
        kept: list[Array] = []
        for draw in draws[np.argsort(costs)]:
            if len(kept) < _STARTS and all(np.linalg.norm(draw - other) > _APART for other in kept):
                kept.append(draw)
        return [self._with(draw, factor) for draw in kept]

    @property
    def _intervals(self) -> slice:
        return slice(int(self.problem.frames[self.index]), int(self.problem.frames[self.index + 1]))

    def _moved(self, draws: Array, factor: Array) -> tuple[Array, Array]:
        """Return states [B, 13] of the node and parameters [B, P] of draws [B, 12 + P]."""
        steps, (low, high) = draws @ factor.T, self.problem.parameters.free_bounds
        nodes = self.problem.system.retract(self.motion.nodes[self.index], steps[:, :SIZE])
        return nodes, np.clip(self.motion.theta + steps[:, SIZE:], low, high)

    def _costs(self, draws: Array, factor: Array, join: Array) -> Array:
        """Return costs [B] of draws by the poses of the part, by the node after it, and by themselves."""
        problem, inside, poses = self.problem, self._intervals, self.problem.poses
        lengths, (nodes, theta) = problem.lengths_s[inside], self._moved(draws, factor)
        given = np.tile(lengths, (len(draws), 1)), problem.vectors(theta), np.zeros((len(draws), len(lengths), AXES))
        states = problem.system.rollouts(nodes, *given)[0]
        costs = 0.5 * (draws**2).sum(axis=1)
        for row in np.flatnonzero((poses.rows > inside.start) & (poses.rows < inside.stop)):
            at = states[:, poses.rows[row] - inside.start]
            costs += _student(problem.system.local(poses.states[row], at)[:, :6], poses.precision[row])
        costs += _student(problem.system.local(self.motion.nodes[self.index + 1], states[:, -1]), join)
        return np.nan_to_num(costs, nan=np.inf)

    def _with(self, draw: Array, factor: Array) -> Motion:
        """Return the motion with the node and the parameters of a draw, and with no slack in the part."""
        node, theta = self._moved(draw[None], factor)
        nodes, slack = self.motion.nodes.copy(), self.motion.slack.copy()
        nodes[self.index], slack[self._intervals] = node[0], 0.0
        return Motion(nodes, theta[0], slack)


def _student(off: Array, precision: Array) -> Array:
    """Return costs [B] of residuals [B, N] by Student's t; precision: [N, N]."""
    square = np.einsum("bi,ij,bj->b", off, precision, off)
    return np.asarray(0.5 * (STUDENT_DOF + off.shape[1]) * np.log1p(square / STUDENT_DOF))

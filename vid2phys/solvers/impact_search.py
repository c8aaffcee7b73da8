"""Search for the motions through impacts that explain the poses of a clip.

Purpose: a rollout through several impacts is chaotic, so that its least squares have many minima.

Method: some frames become nodes, in flight where there is one. Several values of friction and restitution compete. At
first rollouts may miss the next node by much, at last by nothing. Each impact may depart from its law by a share of its
impulse (slack). The miss and the slack with the largest evidence count (Laplace's approximation). Parts that do not
join are searched again (`impact_rejoining`). Starts begin anew at the best motion so far, and so does the whole search
where that is in parts. Few frames are far off, and few impacts depart by much: both get weights by Student's t.

Limits: no search finds the best motion of all for certain. Another one of less evidence may be the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import side_by_side
from vid2phys.solvers.frame_poses import FramePoses
from vid2phys.solvers.impact_problem import (
    AXES,
    ImpactProblem,
    Motion,
    Prior,
    descended,
    evidence_of,
    factor_of,
)
from vid2phys.solvers.impact_rejoining import End, rejoined
from vid2phys.solvers.least_squares import student_weights
from vid2phys.types import Array, Parameters

if TYPE_CHECKING:
    from vid2phys.engine.systems.rigid_contact import ThrownBody

_FRICTIONS, _RESTITUTIONS = (0.1, 0.3, 0.8), (0.1, 0.4, 0.75)  # of starts
# by how much rollouts may miss the next node, over `_EXACT`, and standard deviations of the slack; one after the other
_STRICTER = tuple(itertools.product((30.0, 10.0, 3.0, 1.0), (0.1, 0.03)))
_JOINING = (10.0, 3.0, 1.0)  # by how much rollouts may miss the next node, where a part is searched again
_FINEST = 0.01  # slack that is tried where the smallest one of these is best
_ROUGH = ((100.0, 0.2),)
_EXACT = np.array([*[5e-5] * 3, *[5e-4] * 3, *[3e-3] * 3, *[3e-2] * 3])  # m, rad, m/s, rad/s
_FARTHEST, _NEAREST = 8, 4  # frames from one node to the next
_WORSE = 100.0  # nats below the best evidence at which the laws hold too strictly
_REFINED = 2  # starts that go on
_AGAIN, _GAIN = 4, 1.0  # times that starts begin at the best motion, and nats that they must gain to go on
_SEARCHES = 2  # from the best motion, while that is in parts
_APART = 10.0, 0.1  # miss over `_EXACT` and slack from which on a motion is in parts: wrong impacts join them
_ALIKE = 0.1  # distance of theta up to which two ends count as one


def search(
    system: ThrownBody,
    parameters: Parameters,
    poses: FramePoses,
    times_s: Array,
    smoothed: Array,
    prior: Prior,
    progress: Callable[[float], None],
    hidden: Array,
) -> list[End]:
    """Return the ends of the search. For the arguments see `impacts.fit`."""
    weights, lengths = np.ones(len(poses.rows)), np.diff(times_s)
    frames = _node_frames(system, poses, lengths, parameters["gravity"].value)
    given = system, parameters, poses, lengths, factor_of(poses, weights), frames, prior
    exact = _exact(hidden)
    whole = ImpactProblem(*given, _ROUGH[0][1], exact)
    motion = Motion(smoothed[frames], parameters.free_vector(), np.zeros((len(lengths), AXES)))
    candidates = _candidates(system, poses, smoothed, frames, times_s, parameters["gravity"].value)
    starts = _starts(parameters.free_names, motion)
    starts += [_with_nearest(whole, start, candidates) for start in starts]
    return _searched_anew(whole, starts, weights, exact, progress)


def _searched_anew(
    whole: ImpactProblem, starts: Sequence[Motion], weights: Array, exact: Array, progress: Callable[[float], None]
) -> list[End]:
    """Return the ends of a search from some starts, and of others from the best motion while that is in parts.

    There is no other search after one that gains nothing.
    """
    ends = _searched(whole, starts, weights, exact)
    for k in range(_SEARCHES):
        progress(0.4 + 0.2 * k)
        best = best_of(ends)
        if not is_apart(best.problem):
            break
        ends += _searched(whole, _starts(whole.parameters.free_names, best.motion), best.weights, exact)
        if best_of(ends) is best:
            break
    return ends


def best_of(ends: Iterable[End]) -> End:
    """Return the end with the largest evidence."""
    return max(ends, key=lambda end: end.evidence)


def is_apart(problem: ImpactProblem) -> bool:
    """Return whether a motion is in parts that hardly join: some impacts are probably other ones."""
    miss, slack = _APART
    return bool(problem.miss[0] >= 0.99 * miss * _EXACT[0] and problem.slack_std >= 0.99 * slack)


def _exact(hidden: Array) -> Array:
    """Return by how much a right motion may miss its nodes, [12].

    A rotation about hidden axes [A, 3] may jump, since it does not show. Its rate goes on: friction depends on it.
    """
    exact = _EXACT.copy()
    exact[3:6] = np.hypot(exact[3:6], np.pi * np.abs(hidden).sum(axis=0))
    return exact


def _searched(whole: ImpactProblem, starts: Sequence[Motion], weights: Array, exact: Array) -> list[End]:
    """Return the two best ends that differ. Starts begin anew at the best motion while its evidence grows.

    weights: [G] of the poses. exact: by how much a right motion may miss its nodes, [12].
    """

    def rough(starts: Sequence[Motion], weights: Array) -> list[End]:
        return list(side_by_side(lambda start: _tightened(whole, start, weights, exact, _ROUGH), starts))

    def refined(end: End) -> End:
        best = _tightened(whole, end.motion, end.weights, exact, _STRICTER)
        if best.problem.slack_std <= _STRICTER[-1][1]:
            best = best_of([best, _tightened(*best[1:], best.problem.miss, ((1.0, _FINEST),))])
        return _rejoined(best, exact)

    found = rough(starts, weights)
    for _ in range(_AGAIN):
        best = best_of(found)
        found += rough(_starts(whole.parameters.free_names, best.motion), best.weights)
        if best_of(found).evidence < best.evidence + _GAIN:
            break
    return list(side_by_side(refined, _different(sorted(found, key=lambda end: -end.evidence))[:_REFINED]))


def _rejoined(end: End, exact: Array) -> End:
    """Return the end of a fit whose parts are searched again where they do not join."""
    slack = _STRICTER[-1][1]

    def descents(motions: Sequence[Motion]) -> End:
        """Return the end of the descent that is best at the first strictness, at the strictness that suits it."""
        first, *stricter = [(miss, slack) for miss in _JOINING]
        best = best_of(side_by_side(lambda one: _tightened(end.problem, one, end.weights, exact, [first]), motions))
        return best_of([best, _tightened(*best[1:], exact, stricter)])

    found = rejoined(end, exact, slack, descents)
    if found is end:
        return end
    return best_of([found, _tightened(*found[1:], exact, [(1.0, slack), (1.0, _FINEST)])])


def _different(ends: Sequence[End]) -> list[End]:
    """Return the ends whose parameters differ."""
    kept: list[End] = []
    for end in ends:
        apart = [np.abs(end.motion.theta - other.motion.theta).max() for other in kept]
        if min(apart, default=np.inf) > _ALIKE:
            kept.append(end)
    return kept


def _node_frames(system: ThrownBody, poses: FramePoses, lengths_s: Array, gravity: float) -> NDArray[np.int64]:
    """Return the frames of the nodes: the first, and of the next frames that where poses fly on most freely.

    An impact beside a node could be before or after it, which no descent tells.
    """
    kinks = np.full(len(lengths_s) + 1, np.inf)
    kinks[poses.rows] = _kinks(system, poses, np.append(0.0, np.cumsum(lengths_s)), gravity)
    wide = np.maximum(kinks, np.maximum(np.append(kinks[1:], 0.0), np.append(0.0, kinks[:-1])))
    frames = [0]
    while frames[-1] + _FARTHEST < len(wide) - _NEAREST // 2:
        window = wide[frames[-1] + _NEAREST : frames[-1] + _FARTHEST + 1]
        frames.append(frames[-1] + _NEAREST + int(window.argmin()))
    return np.array(frames, dtype=np.int64)


def _kinks(system: ThrownBody, poses: FramePoses, times_s: Array, gravity: float) -> Array:
    """Return by how many variances the velocity before each pose differs from that after it, without gravity, [G]."""
    kinks = np.zeros(len(poses.rows))
    now, times = poses.states[1:-1], times_s[poses.rows]
    before, after = np.diff(times)[:-1, None], np.diff(times)[1:, None]
    bend = system.local(now, poses.states[2:])[:, :6] / after + system.local(now, poses.states[:-2])[:, :6] / before
    bend[:, 2] += 0.5 * gravity * (before + after)[:, 0]
    spread = poses.covariance[2:] / after[..., None] ** 2 + poses.covariance[:-2] / before[..., None] ** 2
    spread = spread + poses.covariance[1:-1] * (1.0 / after + 1.0 / before)[..., None] ** 2
    kinks[1:-1] = np.einsum("gi,gij,gj->g", bend, np.linalg.inv(spread), bend)
    return kinks


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
) -> End:
    """Return the end with the largest evidence over levels of miss and slack."""
    best: End | None = None
    for miss, std in strictness:
        whole = replace(whole, miss=miss * exact, slack_std=std).forgiving(motion)
        weights, motion = _robust(whole, motion, weights)
        whole = replace(whole, lower=factor_of(whole.poses, weights)).forgiving(motion)
        nats = evidence_of(whole, motion)
        if best is None or nats > best.evidence:
            best = End(nats, whole, motion, weights)
        elif nats < best.evidence - _WORSE:
            break
    assert best is not None
    return best


def _robust(problem: ImpactProblem, motion: Motion, weights: Array) -> tuple[Array, Motion]:
    """Return weights [G] of the poses, and the motion fitted with the ones before."""
    poses = problem.poses
    motion = descended(replace(problem, lower=factor_of(poses, weights)), motion).point
    off = problem.system.local(poses.states, problem.rolled(motion)[0][poses.rows])[:, :6]
    square = np.einsum("gi,gij,gj->g", off, poses.precision, off) / 6.0
    return np.minimum(student_weights(square), 1.0), motion

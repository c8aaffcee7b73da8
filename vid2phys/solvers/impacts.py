"""Fit the motion of a body through impacts to the poses of a clip: friction, restitution, the ground.

Purpose: a rollout through several impacts is chaotic, so that its least squares have many minima, and intervals of the
linear model are too narrow.

Method: multiple shooting (Bock and Plitt, "A multiple shooting algorithm for direct solution of optimal control
problems", 1984). The states of some frames (nodes) are unknown, in flight where there is one. Rollouts join each node
to the next, through one or a few impacts. At first rollouts may miss the next node by much, at last by nothing. Each
impact may depart from its law by a share of its impulse (slack). Several values of friction and restitution compete.
The slack with the largest evidence counts (Laplace's approximation). Parts that do not join are searched again
(`impact_rejoining`). Few frames are far off, and few impacts depart by much: both get weights by Student's t.

Limits: one body over one plane. Parameters of the camera are not fitted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import one_thread, side_by_side
from vid2phys.solvers import least_squares
from vid2phys.solvers.frame_poses import NOTHING_HIDDEN, FramePoses
from vid2phys.solvers.impact_problem import (
    AXES,
    SIZE,
    ImpactProblem,
    Motion,
    Prior,
    covariance_of,
    descended,
    evidence_of,
    factor_of,
    misfit_of,
    with_fixed,
)
from vid2phys.solvers.impact_rejoining import End, rejoined
from vid2phys.solvers.impulses import impulses_of
from vid2phys.solvers.intervals import between_ends
from vid2phys.solvers.least_squares import Minimum, NormalEquations, Settings, student_weights
from vid2phys.types import Array, Parameters

if TYPE_CHECKING:
    from vid2phys.engine.systems.rigid_contact import Contacts, ThrownBody

_FRICTIONS, _RESTITUTIONS = (0.1, 0.3, 0.8), (0.1, 0.4, 0.75)  # of starts
# by how much rollouts may miss the next node, over `_EXACT`, and standard deviations of the slack; one after the other
_STRICTER = tuple(itertools.product((30.0, 10.0, 3.0, 1.0), (0.1, 0.03)))
_JOINING = (10.0, 3.0, 1.0)  # by how much rollouts may miss the next node, where a part is searched again
_FINEST = 0.01  # slack that is tried where the smallest one of these is best
_ROUGH = ((100.0, 0.2),)
_EXACT = np.array([*[5e-5] * 3, *[5e-4] * 3, *[3e-3] * 3, *[3e-2] * 3])  # m, rad, m/s, rad/s
_FARTHEST, _NEAREST = 8, 4  # frames from one node to the next
_WORSE = 100.0  # nats below the best evidence at which the laws hold too strictly
_REFINED, _EXPLAINED = 2, 1.1  # starts that go on, twice as many where none has a misfit below this
_APART = 10.0, 0.1  # miss over `_EXACT` and slack from which on a motion is in parts: wrong impacts join them
_ALIKE = 0.03  # distance of theta up to which two ends count as one
_UNSURE = 10.0  # nats by which evidences are wrong: searches end below the evidence of the true motion
_UNKNOWN = {"mu": 1.0, "restitution": 0.15}  # standard deviations from which on a parameter is not determined
_FAST_M_S = 0.1  # an impact that shows the restitution
_LEAST_NOISE = 0.5  # share of the stated errors of poses: parts of them last for a clip, and leave no residuals
_ONE_SIDED = 1.353  # half the chi-square at which a one-sided interval of 95 % ends
_TWO_SIDED = 1.921  # the same of a two-sided interval
_FRICTION_STEPS = (0.16, 0.02)  # largest and least step of the logarithm of friction while its least value is searched


@dataclass(frozen=True)
class Fitted:
    """The end of a fit.

    problem: whose minimum it is. states: [F, 13]. contacts: [1, F - 1]. covariance: [P, P] of theta. unknown: which of
    theta the clip does not determine. state_covariance: [F, 12, 12]. impulses, impulse_stds: [F - 1, 2] m/s, along the
    normal and along the plane. weights: [G] of the poses. misfit: of the poses, root mean square in standard
    deviations. least_friction: the least mu that explains the clip (95 %), where it only has such a bound.
    """

    problem: ImpactProblem
    parameters: Parameters
    states: Array
    contacts: Contacts
    covariance: Array
    state_covariance: Array
    impulses: Array
    impulse_stds: Array
    weights: Array
    minimum: Minimum[Motion]
    misfit: float
    unknown: tuple[str, ...]
    least_friction: float | None

    @property
    def slack_std(self) -> float:
        """Return the standard deviation by which most impulses depart from the law, as a share."""
        return self.problem.slack_std

    @property
    def is_apart(self) -> bool:
        """Return whether the motion is in parts that hardly join: some impacts are probably other ones."""
        return _is_apart(self.problem)

    @property
    def null_directions(self) -> Array:
        """Return one direction [P] of theta for each parameter that the clip does not determine, [K, P]."""
        names = self.parameters.free_names
        return np.array([[float(name == other) for other in names] for name in self.unknown]).reshape(-1, len(names))


def fit(
    system: ThrownBody,
    parameters: Parameters,
    poses: FramePoses,
    times_s: Array,
    smoothed: Array,
    prior: Prior,
    progress: Callable[[float], None] = lambda share: None,
    hidden: Array = NOTHING_HIDDEN,
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
    frames = _node_frames(system, poses, lengths, parameters["gravity"].value)
    given = system, parameters, poses, lengths, factor_of(poses, weights), frames, prior
    exact = _exact(hidden)
    whole = ImpactProblem(*given, _ROUGH[0][1], exact)
    motion = Motion(smoothed[frames], parameters.free_vector(), np.zeros((len(lengths), AXES)))
    candidates = _candidates(system, poses, smoothed, frames, times_s, parameters["gravity"].value)
    starts = _starts(parameters.free_names, motion)
    starts += [_with_nearest(whole, start, candidates) for start in starts]

    def refined(end: End) -> End:
        best = _tightened(whole, *end[2:], exact, _STRICTER)
        if best[1].slack_std <= _STRICTER[-1][1]:
            best = max(best, _tightened(*best[1:], best[1].miss, ((1.0, _FINEST),)), key=_evidence)
        return _rejoined(best, exact)

    with one_thread():
        rough = list(side_by_side(lambda start: _tightened(whole, start, weights, exact, _ROUGH), starts))
        progress(0.5)
        different = _different(sorted(rough, key=_evidence, reverse=True))
        ends: list[End] = []
        for some in (different[:_REFINED], different[_REFINED : 2 * _REFINED]):
            if some and not _explain(ends):
                ends += side_by_side(refined, some)
                progress(0.75)
    _, whole, motion, weights = max(ends, key=_evidence)
    minimum = least_squares.minimize(whole, motion, Settings(iterations=15))
    fitted = concluded(whole, minimum, weights, _between(ends))
    return fitted if fitted.least_friction is None else replace(fitted, least_friction=_least_of_all(fitted, ends))


def _exact(hidden: Array) -> Array:
    """Return by how much a right motion may miss its nodes, [12].

    A rotation about hidden axes [A, 3] may jump, since it does not show. Its rate goes on: friction depends on it.
    """
    exact = _EXACT.copy()
    exact[3:6] = np.hypot(exact[3:6], np.pi * np.abs(hidden).sum(axis=0))
    return exact


def _evidence(end: End) -> float:
    return end[0]


def _explain(ends: Sequence[End]) -> bool:
    """Return whether one of the ends explains the poses, and the best is not in parts."""
    misfits = [misfit_of(problem, motion) for _, problem, motion, _ in ends]
    return min(misfits, default=np.inf) <= _EXPLAINED and not _is_apart(max(ends, key=_evidence)[1])


def _rejoined(end: End, exact: Array) -> End:
    """Return the end of a fit whose parts are searched again where they do not join."""
    (_, whole, _, weights), slack = end, _STRICTER[-1][1]
    stricter = [(miss, slack) for miss in _JOINING]
    found = rejoined(end, exact, slack, lambda motion: _tightened(whole, motion, weights, exact, stricter))
    if found is end:
        return end
    return max(found, _tightened(*found[1:], exact, [(1.0, slack), (1.0, _FINEST)]), key=_evidence)


def _is_apart(problem: ImpactProblem) -> bool:
    miss, slack = _APART
    return bool(problem.miss[0] >= 0.99 * miss * _EXACT[0] and problem.slack_std >= 0.99 * slack)


def _different(ends: Sequence[End]) -> list[End]:
    """Return the ends whose parameters differ."""
    kept: list[End] = []
    for end in ends:
        apart = [np.abs(end[2].theta - other[2].theta).max() for other in kept]
        if min(apart, default=np.inf) > _ALIKE:
            kept.append(end)
    return kept


def _between(ends: Sequence[End]) -> Array:
    """Return the covariance [P, P] of theta about the best of several ends, which count by their evidence."""
    evidence = np.array([end[0] for end in ends])
    return between_ends(np.array([end[2].theta for end in ends]), evidence / _UNSURE)


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
    """Return the largest evidence over levels of miss and slack, with its problem, motion and weights [G]."""
    best: End | None = None
    for miss, std in strictness:
        whole = replace(whole, miss=miss * exact, slack_std=std).forgiving(motion)
        weights, motion = _robust(whole, motion, weights)
        whole = replace(whole, lower=factor_of(whole.poses, weights)).forgiving(motion)
        evidence = evidence_of(whole, motion)
        if best is None or evidence > best[0]:
            best = evidence, whole, motion, weights
        elif evidence < best[0] - _WORSE:
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


def concluded(whole: ImpactProblem, minimum: Minimum[Motion], weights: Array, between: Array | float = 0.0) -> Fitted:
    """Return the fit with its covariances, scaled by what the residuals show.

    weights: [G] of the poses. between: covariance [P, P] of theta between several ends.
    """
    motion, names = minimum.point, whole.parameters.free_names
    _, normal, _, states, slopes = whole.equations(motion)
    misfit = misfit_of(whole, motion)
    covariance = covariance_of(_sharpened(normal, *_of_poses(whole, motion, slopes))) * max(1.0, misfit**2)
    of_states = slopes @ covariance @ np.swapaxes(slopes, 1, 2)
    own = slice(SIZE * len(motion.nodes), SIZE * len(motion.nodes) + len(names))
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
    of_impulses = impulses_of(whole.system, parameters, whole.lengths_s, states, slopes, covariance)
    given = parameters, states, contacts, of_theta, of_states, *of_impulses
    least = _least_friction(whole, minimum) if bounded else None
    return Fitted(whole, *given, weights, minimum, misfit, tuple(unknown), least)


def _of_poses(whole: ImpactProblem, motion: Motion, slopes: Array) -> tuple[Array, Array]:
    """Return white residuals [R] of the poses, and their derivatives [R, U] by all unknowns."""
    off = whole.residuals(motion)[0]
    return off, whole.white(slopes[whole.poses.rows, :6].reshape(len(off), -1))


def _sharpened(normal: NormalEquations, off: Array, slopes: Array) -> NormalEquations:
    """Return the equations with the stated errors of the poses scaled to their residuals per degree of freedom.

    A tracker states errors that serve all clips. A motion through impacts has too few unknowns to follow errors of
    poses. So the residuals show how large the errors of this clip are. off: [R] of the poses. slopes: [R, U].
    """
    used = float(((slopes @ covariance_of(normal)) * slopes).sum())
    noise = np.clip(np.sqrt(off @ off / max(len(off) - used, 1.0)), _LEAST_NOISE, 1.0)
    return replace(normal, information=normal.information + (noise**-2.0 - 1.0) * slopes.T @ slopes)


def _is_open(whole: ImpactProblem, minimum: Minimum[Motion]) -> bool:
    """Return whether twice the friction explains the clip as well: then nothing slides for long."""
    theta = minimum.point.theta[whole.parameters.free_names.index("mu")] + np.log(2.0)
    problem, motion = with_fixed(whole, minimum.point, {"mu": float(theta)})
    return descended(problem, motion).cost < minimum.cost + _TWO_SIDED


def _least_of_all(fitted: Fitted, ends: Sequence[End]) -> float | None:
    """Return the least mu of the fit, or of the end with the lowest mu among those that explain the clip as well."""
    assert fitted.least_friction is not None
    index, enough = fitted.parameters.free_names.index("mu"), max(end[0] for end in ends) - _UNSURE
    lowest = min((end for end in ends if end[0] >= enough), key=lambda end: float(end[2].theta[index]))
    if np.exp(lowest[2].theta[index]) > fitted.least_friction:
        return fitted.least_friction
    return _least_friction(lowest[1], least_squares.minimize(lowest[1], lowest[2], Settings(iterations=15)))


def _least_friction(whole: ImpactProblem, minimum: Minimum[Motion]) -> float | None:
    """Return the least mu whose cost is within a one-sided interval; None where none is too small."""
    index, motion = whole.parameters.free_names.index("mu"), minimum.point
    log, step = float(motion.theta[index]), _FRICTION_STEPS[0]
    while step > _FRICTION_STEPS[1]:
        tried = log - step
        if tried < np.log(whole.parameters["mu"].lower):
            return None
        problem, start = with_fixed(whole, motion, {"mu": tried})
        end = descended(problem, start)
        if end.cost > minimum.cost + _ONE_SIDED:
            step *= 0.5
        else:
            log, motion = tried, replace(end.point, theta=np.insert(end.point.theta, index, tried))
    return float(np.exp(log))

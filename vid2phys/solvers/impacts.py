"""Fit the motion of a body through impacts to the poses of a clip: friction, restitution, the ground.

Purpose: a rollout through several impacts is chaotic, so that its least squares have many minima, and intervals of the
linear model are too narrow.

Method: multiple shooting (Bock and Plitt, "A multiple shooting algorithm for direct solution of optimal control
problems", 1984). The states of some frames (nodes) are unknown. Rollouts join each node to the next, through one or a
few impacts. `impact_search` finds motions that explain the poses. The best of them is fitted to its end. Intervals are
those of the linear model there, and of how far the ends of the search lie apart.

Limits: one body over one plane. Parameters of the camera are not fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import solve_triangular

from vid2phys.engine.parallel import one_thread
from vid2phys.solvers import least_squares
from vid2phys.solvers.frame_poses import NOTHING_HIDDEN, FramePoses
from vid2phys.solvers.impact_problem import (
    SIZE,
    ImpactProblem,
    Motion,
    Prior,
    covariance_of,
    descended,
    misfit_of,
    with_fixed,
)
from vid2phys.solvers.impact_rejoining import End
from vid2phys.solvers.impact_search import best_of, is_apart, search
from vid2phys.solvers.impulses import impulses_of, time_stds
from vid2phys.solvers.interval_parts import LAW_OF_IMPACT, MISFIT, OTHER_MINIMA, PRIOR, of_measurements
from vid2phys.solvers.intervals import between_ends
from vid2phys.solvers.least_squares import Minimum, NormalEquations, Settings
from vid2phys.types import Array, Parameters

if TYPE_CHECKING:
    from vid2phys.engine.systems.rigid_contact import Contacts, ThrownBody

_UNSURE = 10.0  # nats by which evidences are wrong: searches end below the evidence of the true motion
_UNKNOWN = {"mu": 1.0, "restitution": 0.15}  # standard deviations from which on a parameter is not determined
_TOUCH_SHARE = 0.1  # of the largest normal impulse, below which an impact is a mere touch
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
    normal and along the plane. time_stds: [F - 1] of the times of impacts, s. weights: [G] of the poses. misfit: of the
    poses, root mean square in standard deviations. least_friction: the least mu that explains the clip (95 %), where it
    only has such a bound. parts: what the diagonal of the covariance is made of, [P] each (`interval_parts`).
    """

    problem: ImpactProblem
    parameters: Parameters
    states: Array
    contacts: Contacts
    covariance: Array
    state_covariance: Array
    impulses: Array
    impulse_stds: Array
    time_stds: Array
    weights: Array
    minimum: Minimum[Motion]
    misfit: float
    unknown: tuple[str, ...]
    least_friction: float | None
    parts: dict[str, Array]

    @property
    def slack_std(self) -> float:
        """Return the standard deviation by which most impulses depart from the law, as a share."""
        return self.problem.slack_std

    @property
    def is_apart(self) -> bool:
        """Return whether the motion is in parts that hardly join: some impacts are probably other ones."""
        return is_apart(self.problem)

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
    with one_thread():
        ends = search(system, parameters, poses, times_s, smoothed, prior, progress, hidden)
    _, whole, motion, weights = best_of(ends)
    minimum = least_squares.minimize(whole, motion, Settings(iterations=15))
    fitted = concluded(whole, minimum, weights, _between(ends))
    return fitted if fitted.least_friction is None else replace(fitted, least_friction=_least_of_all(fitted, ends))


def _between(ends: Sequence[End]) -> Array:
    """Return the covariance [P, P] of theta about the best of several ends, which count by their evidence."""
    nats = np.array([end.evidence for end in ends])
    return between_ends(np.array([end.motion.theta for end in ends]), nats / _UNSURE)


def concluded(whole: ImpactProblem, minimum: Minimum[Motion], weights: Array, between: Array | float = 0.0) -> Fitted:
    """Return the fit with its covariances, scaled by what the residuals show.

    weights: [G] of the poses. between: covariance [P, P] of theta between several ends.
    """
    motion, names = minimum.point, whole.parameters.free_names
    _, normal, _, states, slopes = whole.equations(motion)
    misfit = misfit_of(whole, motion)
    off, of_poses = _of_poses(whole, motion, slopes)
    noise = _noise_of(normal, off, of_poses)
    linear = covariance_of(_sharpened(normal, of_poses, noise))
    covariance = linear * max(1.0, misfit**2)
    of_states = slopes @ covariance @ np.swapaxes(slopes, 1, 2)
    own = slice(SIZE * len(motion.nodes), SIZE * len(motion.nodes) + len(names))
    of_theta = covariance[own, own] + between
    parts = _parts(whole, motion, linear, own, of_poses, noise, weights) | {
        MISFIT: np.diagonal(covariance - linear)[own],
        OTHER_MINIMA: np.diagonal(between * np.eye(len(names))),
    }
    stds = np.sqrt(np.diagonal(of_theta))
    contacts, parameters = whole.rolled(motion)[2], whole.parameters.fitted_at(motion.theta)
    unknown = [name for name, std in zip(names, stds, strict=True) if std > _UNKNOWN.get(name, np.inf)]
    if contacts.approach_m_s.max() < _FAST_M_S and "restitution" in names and "restitution" not in unknown:
        unknown.append("restitution")
    touches = bool((contacts.impacts > 0).any())
    if "mu" in names and "mu" not in unknown and touches and _is_open(whole, minimum):
        unknown.append("mu")
    bounded = "mu" in unknown and touches and not is_apart(whole)  # a motion in parts bounds nothing
    of_impulses = impulses_of(whole.system, parameters, whole.lengths_s, states, slopes, covariance)
    of_times = time_stds(whole, motion, contacts, states, slopes, covariance)
    given = parameters, states, contacts, of_theta, of_states, *of_impulses, of_times
    least = _least_friction(whole, minimum) if bounded else None
    if least is not None:
        least = min(least, _used_friction(contacts, of_impulses[0]))
    return Fitted(whole, *given, weights, minimum, misfit, tuple(unknown), least, parts)


def _of_poses(whole: ImpactProblem, motion: Motion, slopes: Array) -> tuple[Array, Array]:
    """Return white residuals [R] of the poses, and their derivatives [R, U] by all unknowns."""
    off = whole.residuals(motion)[0]
    return off, whole.white(slopes[whole.poses.rows, :6].reshape(len(off), -1))


def _noise_of(normal: NormalEquations, off: Array, slopes: Array) -> float:
    """Return the size of the residuals of the poses per degree of freedom, in stated deviations.

    A tracker states errors that serve all clips. A motion through impacts has too few unknowns to follow errors of
    poses. So the residuals show how large the errors of this clip are. off: [R] of the poses. slopes: [R, U].
    """
    used = float(((slopes @ covariance_of(normal)) * slopes).sum())
    return float(np.clip(np.sqrt(off @ off / max(len(off) - used, 1.0)), _LEAST_NOISE, 1.0))


def _sharpened(normal: NormalEquations, slopes: Array, noise: float) -> NormalEquations:
    """Return the equations with the stated errors of the poses scaled by their noise. slopes: [R, U], white."""
    return replace(normal, information=normal.information + (noise**-2.0 - 1.0) * slopes.T @ slopes)


def _parts(
    whole: ImpactProblem, motion: Motion, covariance: Array, own: slice, slopes: Array, noise: float, weights: Array
) -> dict[str, Array]:
    """Return what the variances of theta are made of, [P] each, by the linear model.

    What neither the poses nor priors of theta explain comes from the law of impact: slack, and joins of nodes.
    covariance: [U, U]. own: of theta among the unknowns. slopes: [R, U] of the poses, white. weights: [G] of the poses.
    """
    of_theta, count = covariance[own], len(whole.poses.rows)
    gain = solve_triangular(whole.lower, slopes @ of_theta.T, lower=True, trans="T").T / noise**2
    poses = replace(whole.poses, covariance=whole.poses.covariance / weights[:, None, None])
    found = {name: noise**2 * part for name, part in of_measurements(poses, gain.reshape(len(gain), count, 6)).items()}
    found[PRIOR] = of_theta[:, own] ** 2 @ whole.prior(motion.theta)[1]
    found[LAW_OF_IMPACT] = np.diagonal(covariance)[own] - np.sum(list(found.values()), axis=0)
    return found


def _used_friction(contacts: Contacts, impulses: Array) -> float:
    """Return the largest ratio of the impulses along the plane and the normal, of impacts that are no mere touches.

    A friction of this size would give the same motion, so that no motion shows that friction is larger. Errors of a
    clip may make smaller frictions costly all the same. impulses: [F - 1, 2] m/s, along the normal and the plane.
    """
    normal, along = impulses.T
    strong = (contacts.impacts[0] > 0) & (normal > _TOUCH_SHARE * normal.max())
    return float((along[strong] / normal[strong]).max(initial=0.0))


def _is_open(whole: ImpactProblem, minimum: Minimum[Motion]) -> bool:
    """Return whether twice the friction explains the clip as well: then nothing slides for long."""
    theta = minimum.point.theta[whole.parameters.free_names.index("mu")] + np.log(2.0)
    problem, motion = with_fixed(whole, minimum.point, {"mu": float(theta)})
    return descended(problem, motion).cost < minimum.cost + _TWO_SIDED


def _least_of_all(fitted: Fitted, ends: Sequence[End]) -> float | None:
    """Return the least mu of the fit, or of the end with the lowest mu among those that explain the clip as well."""
    assert fitted.least_friction is not None
    index, enough = fitted.parameters.free_names.index("mu"), best_of(ends).evidence - _UNSURE
    lowest = min((end for end in ends if end.evidence >= enough), key=lambda end: float(end.motion.theta[index]))
    if np.exp(lowest.motion.theta[index]) > fitted.least_friction:
        return fitted.least_friction
    return _least_friction(
        lowest.problem, least_squares.minimize(lowest.problem, lowest.motion, Settings(iterations=15))
    )


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

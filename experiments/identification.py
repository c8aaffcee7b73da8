"""Identify parameters for RISP's table 2 by one method: from a video and forces.

`ours` is the user's command, which is not given the first state. The papers' methods move parameters by RMSProp as RISP
does, in the paper's units. `ours-known-start` detects keypoints and descends by Levenberg and Marquardt. Both begin at
the best of the same starts about the given one, each by its own loss.

Limits: all methods but the command are given the first state. Their fits have no prior.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from experiments.by_identify import Clip, intervals_of
from experiments.experiments import Experiment
from experiments.footage import Footage
from experiments.method_inputs import observation_of, scene_of, views_of
from vid2phys.errors import Vid2PhysError
from vid2phys.risp.networks.model import Model
from vid2phys.risp.networks.state_model import StateModel
from vid2phys.solvers import configurations, gradient, losses, prediction, rollout_fit
from vid2phys.solvers.clip_residuals import ClipResiduals
from vid2phys.solvers.cramer_rao import cramer_rao, noisy
from vid2phys.solvers.losses import Evidence
from vid2phys.solvers.network_outputs import of_model, of_state_model
from vid2phys.solvers.problem import Problem
from vid2phys.tracking.hypotheses import named
from vid2phys.types import Array, Observation, Result, Status

Network = Model | StateModel | None
COMMAND, KNOWN_START = "ours", "ours-known-start"
"""What the user's command finds, and what our model and optimiser find where the first state is given."""
LOSSES = {
    "pixel": "pixel",
    "perceptual": "perceptual",
    "paper-no-grad": "risp_image",
    "paper": "risp_image",
    "oracle": "state",
}
"""What methods that use the papers' optimiser descend along."""
_SAME_STARTS = {
    "oracle": ("quadrotor", "cube", "cube-plain", "hand", "rod"),
    "pixel": ("quadrotor", "cube", "cube-plain", "rod"),
    "perceptual": ("quadrotor", "cube", "cube-plain", "rod"),
}
"""Bodies whose rows a method has from the best of our starts. To run the others again takes hours."""
GIVEN_START_ALONE = (
    "Run from the given start alone, before the starts were shared: RISP's networks (`paper`) on all bodies, `pixel` "
    "and `perceptual` on the hand."
)
_ROUNDS = 2  # of fits to a clip as a whole, each weighing frames by the one before
_ANGLE_RAD = 1.0  # that counts as much as the body's radius where true states are compared


@dataclass(frozen=True)
class Outcome:
    """What a method found.

    values: of the unknowns, the paper's numbers; NaN where the command states none. failure: why they are those of the
    start, or None. ends: [U, 2] of the 95 % intervals, and status: as the command states them, None of other methods
    and of failures. states: the motion [F, N] that the command found. shares: of its 95 % intervals that hold the
    truth, by metric.
    """

    values: Array
    seconds: float
    failure: str | None = None
    ends: Array | None = None
    status: str | None = None
    states: Array | None = None
    shares: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One video with its start. footage: None for methods that do not look. iterations: of the papers' optimiser."""

    experiment: Experiment
    footage: Footage | None
    start: Array
    seed: int
    iterations: int = gradient.ITERATIONS


def versions(command: int, others: int) -> Callable[[str, str], int]:
    """Return the version of the rows of a method and a body, from those of the command and of the other methods."""

    def version(method: str, body: str) -> int:
        return command if method == COMMAND else others + (body in _SAME_STARTS.get(method, ()))

    return version


def identify(case: Case, method: str, network: Network) -> Outcome:
    """Return what a method makes of a case. Raises Vid2PhysError where the command does not take it."""
    if method == COMMAND:
        assert network is None or isinstance(network, Model)
        return by_command(case, network)
    return attempt(lambda: _values(case, method, network), case.start)


def by_command(case: Case, model: Model | None) -> Outcome:
    """Return what `vid2phys identify` makes of a case. It is given neither the place of the body nor its first state.

    Raises Vid2PhysError where the command does not take the case: unknowns that it does not fit, too few frames.
    """
    assert case.footage is not None
    clip = Clip.of(case.experiment, case.footage, model, case.start)

    def found(result: Result) -> Outcome:
        values, ends = intervals_of(clip, result)
        return Outcome(values, 0.0, None, ends, result.status.key)

    return outcome_of(clip, case.start, found)


def outcome_of(clip: Clip, start: Array, found: Callable[[Result], Outcome]) -> Outcome:
    """Return what the command makes of a clip, timed. What comes to nothing ends at the start, with the reason."""
    began = time.monotonic()
    try:
        result = clip.solved()
    except Vid2PhysError as error:
        return Outcome(start, time.monotonic() - began, str(error))
    seconds = time.monotonic() - began
    if result.status is Status.LOST:
        return Outcome(start, seconds, result.message)
    return replace(found(result), seconds=seconds)


def attempt(work: Callable[[], Array], start: Array) -> Outcome:
    """Return the outcome of some work, timed. What cannot be done ends at the start, with the reason."""
    began = time.monotonic()
    try:
        values, failure = work(), None
    except Vid2PhysError as error:
        values, failure = start, str(error)
    return Outcome(values, time.monotonic() - began, failure)


def _values(case: Case, method: str, network: Network) -> Array:
    if method in LOSSES:
        return _by_descent(case, LOSSES[method], network)
    problem = case.experiment.plan.problem(case.start, seen_in(case, network), pose_of(case))
    problem = replace(problem, body=case.experiment.articulated)
    if isinstance(network, Model):
        symmetry = network.permutation, network.rotations, network.center
        return by_newton(case.experiment, labelled_by_motion(case.experiment, problem, *symmetry), "keypoint")
    return by_newton(case.experiment, problem, "state")


def seen_in(case: Case, network: Network) -> Observation:
    """Return what is detected in the video; nothing for methods that do not look. Raises InputError when nothing can be
    read.
    """
    if not isinstance(network, Model):
        return case.experiment.no_observation
    assert case.footage is not None
    return observation_of(case.experiment, case.footage, network, case.seed)


def labelled_by_motion(
    experiment: Experiment, problem: Problem, order: NDArray[np.int64], rotations: Array, center: Array
) -> Problem:
    """Return the problem with the points of each frame named as the motion has them that agrees best, of those that a
    fit begins with.

    Frames far apart show a body whose shape is alike in several orientations in any of them: which it is, only a motion
    says, or a texture that may be mistaken.

    Args:
        experiment: what is filmed.
        problem: a rigid body's.
        order: [G, K] the names that its points may have.
        rotations: [G, 3, 3] the symmetry elements to which these belong.
        center: [3] m, the centre of the symmetry.
    """
    plan, seen = experiment.plan, problem.observation
    if len(order) == 1:
        return problem
    steps = np.linspace(-plan.reach, plan.reach, plan.looked_at)[:, None]
    values = problem.parameters.free_vector() + steps * plan.unknown.units(problem.parameters)
    predicted = prediction.bearings(problem, problem.parameters, rollout_fit.motions(problem, plan.initial)(values))
    found, shown = configurations.image_points(problem)
    off = np.full((len(values), len(seen.times_s), len(order)), np.inf)
    for g, names in enumerate(order):
        away = np.linalg.norm(found[:, names] - predicted, axis=-1)
        off[..., g] = np.where(shown[:, names], away, 0.0).sum(axis=-1)
    chosen = off[off.min(axis=-1).sum(axis=-1).argmin()].argmin(axis=-1)
    rotation = np.swapaxes(rotations[chosen], -1, -2)
    return replace(problem, observation=named(seen, order[chosen], rotation, center))


def by_newton(experiment: Experiment, problem: Problem, loss: str) -> Array:
    """Return the unknowns, the paper's numbers, from a problem with its parameters at the start."""
    plan = experiment.plan
    judged = losses.get(loss, problem, true_states(experiment) if loss == "state" else None)
    roll, units = rollout_fit.motions(problem, plan.initial), plan.unknown.units(problem.parameters)
    limits = problem.parameters.free_bounds

    def best_about(values: Array, reach: float) -> rollout_fit.RolloutFit:
        starts = _starts_about(experiment, problem, judged, values, reach)
        return rollout_fit.solve(roll, judged, starts, units, limits=limits)

    found = best_about(problem.parameters.free_vector(), plan.reach)
    if plan.looked_at > 1:  # contacts make kinks, which catch a descent within a step of the looks of the best
        found = best_about(found.values, 2.0 * plan.reach / (plan.looked_at - 1))
    if loss == "keypoint":
        for _ in range(_ROUNDS):
            whole = ClipResiduals.about(problem, found.states)
            found = rollout_fit.solve(roll, whole, found.values[None], units, limits=limits)
    return _in_papers_units(experiment, problem, found.values)


def _starts_about(experiment: Experiment, problem: Problem, loss: losses.Loss, values: Array, reach: float) -> Array:
    """Return the starts of a fit [B, U] that are within `reach` of the given one. Of several unknowns these are one:
    the best of each unknown in turn.
    """
    plan, parameters = experiment.plan, problem.parameters
    if plan.looked_at == 1:
        return values[None]
    steps = np.linspace(-reach, reach, plan.looked_at)[:, None] * plan.unknown.units(parameters)
    if len(values) == 1:
        return np.asarray(values + steps)
    roll = rollout_fit.motions(problem, plan.initial)
    return rollout_fit.scan_unknowns(roll, loss, values, steps, parameters.free_bounds)[None]


def _by_descent(case: Case, loss: str, network: Network) -> Array:
    """Descend by the papers' optimiser, steps in the paper's units, from the best of the starts that our fit has."""
    experiment, plan = case.experiment, case.experiment.plan
    problem = plan.problem(case.start, experiment.no_observation, pose_of(case))
    evidence = true_states(experiment) if loss == "state" else images_of(case, network)
    judged, parameters = losses.get(loss, problem, evidence), problem.parameters
    starts = _starts_about(experiment, problem, judged, parameters.free_vector(), plan.reach)
    roll = rollout_fit.motions(problem, plan.initial)
    best = rollout_fit.best_start(roll, judged, starts, parameters.free_bounds)
    descent = gradient.solve(
        problem,
        judged,
        [gradient.Start(plan.initial, parameters.with_free_vector(best))],
        iterations=case.iterations,
        known_state=True,
        units=plan.unknown.units(problem.parameters),
    )
    found = descent.attempts[descent.best].end.parameters
    return _in_papers_units(experiment, problem, found.free_vector())


def _in_papers_units(experiment: Experiment, problem: Problem, free: Array) -> Array:
    unknown = experiment.plan.unknown
    found = problem.parameters.with_free_vector(free)
    return unknown.from_si(np.array([found[name].value for name in unknown.names]))


def true_states(experiment: Experiment) -> Evidence:
    """Return the oracle's evidence: positions and angles of the frames that are shown, no velocities."""
    names = experiment.plan.system.tangent_names
    std = np.full((len(experiment.states), len(names)), np.inf)
    std[experiment.shown] = [_size(name.split(" of ")[0], experiment.radius_m) for name in names]
    return Evidence(states=experiment.states, std=std)


def _size(name: str, radius_m: float) -> float:
    if name.endswith(("_m_s", "_rad_s")):
        return np.inf
    return radius_m if name.endswith("_m") else _ANGLE_RAD


def images_of(case: Case, network: Network) -> Evidence:
    """Return the video in views, and the network that looks at them, if there is one."""
    assert case.footage is not None
    reader, size = None, case.experiment.adapter.view_size
    if network is not None:
        reader = of_model(network) if isinstance(network, Model) else of_state_model(network)
        size = reader.view_size
    views = views_of(case.experiment, case.footage, size, case.seed)
    return Evidence(scene=scene_of(case.experiment, views), reader=reader)


def pose_of(case: Case) -> Array:
    """Return the pose of the camera in the world, [4, 4]."""
    return np.asarray(case.experiment.camera.camera_to_world)


def bound_of(experiment: Experiment, seen: Observation) -> Array:
    """Return least deviations [U] of unbiased estimates, in the paper's units, by the error model of what was seen."""
    problem = experiment.plan.problem(experiment.truth, seen, np.asarray(experiment.camera.camera_to_world))
    values, units = problem.parameters.free_vector(), experiment.plan.unknown.units(problem.parameters)
    roll = rollout_fit.motions(problem, experiment.plan.initial)
    return np.asarray(np.sqrt(np.diag(cramer_rao(problem, roll, values, units))) / units)


def repeated(experiment: Experiment, seen: Observation, count: int, seed: int) -> Array:
    """Return the errors [count, U] of our fit to the true motion with errors drawn from the error model of what was
    seen.
    """
    camera, errors = np.asarray(experiment.camera.camera_to_world), []
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        problem = experiment.plan.problem(experiment.plan.unknown.draw(rng), seen, camera)
        drawn = noisy(problem, experiment.states, rng)
        try:
            errors.append(by_newton(experiment, drawn, "keypoint") - experiment.truth)
        except Vid2PhysError:
            errors.append(np.full(len(experiment.truth), np.nan))
    return np.array(errors)

"""Fit a body on a known base (joints or modes) to its track of configurations, by shooting.

Method: one rollout for each clip is fitted to keypoints and measured configurations
(`solvers.configuration_shooting`). Frames may then be detected again from the fitted motion (`reinitialise`).

Limits: shooting is the only solver. The system states the pose of the base, which is not estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.commands.identify import soft_bodies
from vid2phys.commands.identify.config import BOOTSTRAP, FitOptions
from vid2phys.commands.identify.fit import SURE_QUALITY, enough
from vid2phys.commands.identify.hinges import begin_swing, unlike_mesh
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.commands.identify.measured_motion import is_measured, measured_motion, unlike
from vid2phys.commands.identify.reinitialise import Shown, reinitialise
from vid2phys.commands.progress import Progress, silent
from vid2phys.commands.system_choice import remedies
from vid2phys.notes import is_doubtful, ordered, warning

if TYPE_CHECKING:
    from vid2phys.engine.movable.body import ArticulatedBody
    from vid2phys.solvers.configuration_shooting import ConfigurationSolution
    from vid2phys.solvers.problem import Problem
    from vid2phys.tracking.articulated.tracker import ConfigurationTrack
    from vid2phys.types import Array, Result

HELD = "no --actions: nothing but what holds the body at rest is taken to drive it"
PASSIVE = "no --actions: the robot is taken to swing freely, no motor drives or brakes it"
UNFIT = "the motion is not what the system would do"  # begins the warning of a large misfit
_WELL = 1.5  # misfit up to which the model explains the measurements


def initialise(inputs: Inputs, tracked: ConfigurationTrack) -> Array | None:
    """Return configuration and rates at the first frame, [2 D]; None for a clip that was lost."""
    if not enough(tracked):
        return None
    assert inputs.body is not None
    configuration, rates = first_configuration(tracked.observation.times_s, tracked)
    return np.concatenate([np.clip(configuration, inputs.body.lower, inputs.body.upper), rates])


def estimate(
    several: Sequence[Inputs],
    tracks: Sequence[ConfigurationTrack],
    starts: Sequence[Array | None],
    options: FitOptions,
    progress: Progress = silent,
) -> list[Result]:
    """Fit one or more clips that share the parameters, each from its own start.

    Clips without a start are left out, and their results state so. A robot of which nothing is asked has no dynamics
    to fit (`measured_motion`). With `options.refine`, frames are detected again from the fitted motion
    (`reinitialise`), unless the body was tracked without a model.
    """
    from vid2phys.engine.movable.clamped import ClampedBody
    from vid2phys.solvers import configuration_shooting, measurements
    from vid2phys.solvers.configuration_shooting import SHARES

    body = several[0].body
    assert body is not None
    problems = [_problem(inputs, track) for inputs, track in zip(several, tracks, strict=True)]
    tracks = list(tracks)
    begun = {g: start for g, start in enumerate(starts) if start is not None}
    shares: Sequence[float] = SHARES
    if several[0].on_hinge is not None:
        started = {g: begin_swing(problems[g], tracks[g]) for g in begun}
        problems = [started[g][0] if g in started else problem for g, problem in enumerate(problems)]
        begun, shares = {g: start for g, (_, start) in started.items()}, SHARES[-1:]
    remarks: list[str] = []
    if isinstance(body, ClampedBody):
        found = {g: soft_bodies.begin(problems[g], body, tracks[g]) for g in begun}
        problems = [found[g][0] if g in found else problem for g, problem in enumerate(problems)]
        begun, shares = {g: start for g, (_, start, _) in found.items()}, SHARES[-2:]
        remarks = [line for _, _, lines in found.values() for line in lines]
    results = {g: _lost(problems[g], tracks[g]) for g in range(len(problems)) if g not in begun}
    if is_measured(several):
        results |= {g: measured_motion(several[g], tracks[g]) for g in begun}
        begun = {}
    if begun:
        progress("fitting")
        solutions = configuration_shooting.solve_clips(
            [problems[g] for g in begun], body, list(begun.values()), shares=shares
        )
        if isinstance(body, ClampedBody):
            solutions, lines = soft_bodies.checked([problems[g] for g in begun], body, solutions, progress)
            remarks += lines
        if options.refine and several[0].model is not None:
            progress("re-initialising")
            shown = [Shown.of(several[g], body) for g in begun]
            again, solutions = reinitialise(shown, [problems[g] for g in begun], [tracks[g] for g in begun], solutions)
            for g, track in zip(begun, again, strict=True):
                tracks[g], problems[g] = track, replace(problems[g], observation=track.observation)
        seen = sum(float(measurements.Errors.of(problems[g].observation).used.sum()) for g in begun)
        unknowns = sum(len(start) for start in begun.values()) + len(problems[0].parameters.free_names)
        freedom = max(1.0, seen - unknowns)
        for g, solution in zip(begun, solutions, strict=True):
            noted = replace(tracks[g], notes=(*tracks[g].notes, *remarks))
            results[g] = _result(several[g], problems[g], noted, solution, freedom)
        if options.intervals == BOOTSTRAP:
            results |= _resampled({g: problems[g] for g in begun}, body, solutions, results, options, progress)
    return [results[g] for g in range(len(problems))]


def _resampled(
    problems: dict[int, Problem],
    body: ArticulatedBody,
    solutions: Sequence[ConfigurationSolution],
    results: dict[int, Result],
    options: FitOptions,
    progress: Progress,
) -> dict[int, Result]:
    """Return the results of the clips of these problems with bootstrap intervals."""
    from vid2phys.commands.identify.resampling import resample_configurations, with_resampled

    resampled = resample_configurations(list(problems.values()), body, solutions, options, progress)
    return {
        g: with_resampled(results[g], solution.parameters, resampled, solution.theta_parts)
        for g, solution in zip(problems, solutions, strict=True)
    }


def _problem(inputs: Inputs, tracked: ConfigurationTrack) -> Problem:
    """Return the problem that a fit solves. Without recorded actions, nothing or what holds the body drives it."""
    from vid2phys.commands.simulation_inputs import constant_actions
    from vid2phys.solvers.problem import Problem

    return Problem(
        *(inputs.system, inputs.known.parameters, tracked.observation, inputs.camera_to_world),
        actions=inputs.actions
        or constant_actions(inputs.system, inputs.known.parameters, hold=inputs.system.capabilities.balanced),
        priors=inputs.known.priors,
        body=inputs.body,
    )


def first_configuration(times_s: Array, tracked: ConfigurationTrack) -> tuple[Array, Array]:
    """Return the configuration at the first frame [D] and its rates [D], by a local fit to the first tracked frames."""
    from vid2phys.solvers.initialise import local_fit, tricube, window

    seen = tracked.tracked
    times = times_s[seen]
    near = window(times, float(times_s[0]))
    return local_fit(
        times[near] - times_s[0], tracked.configurations[seen][near], tricube(times[near], float(times_s[0]))
    )


def _result(
    inputs: Inputs,
    problem: Problem,
    tracked: ConfigurationTrack,
    solution: ConfigurationSolution,
    freedom: float,
) -> Result:
    from vid2phys.engine.observe import bearing_jacobian_to_pixels
    from vid2phys.solvers import intervals
    from vid2phys.solvers.solution import innovations, residual_bearings
    from vid2phys.solvers.whiteness import whiteness
    from vid2phys.types import Result, Status, Trajectory

    problem = replace(problem, parameters=solution.parameters)
    seen, names = problem.observation, problem.parameters.free_names
    covariance, null = solution.theta_covariance, solution.null_directions
    found = intervals.estimates(
        solution.parameters, names, covariance, null, freedom, problem.priors, solution.theta_parts
    )
    lines = intervals.identifiability(
        names, solution.null_directions, found, solution.parameters, remedies(inputs.system)
    )
    asked = [estimate for estimate in found if estimate.name in names]
    judged = whiteness(innovations(problem, solution.states))
    misfit = [] if judged is None or judged.white else [warning(str(judged.warning()))]
    residual = residual_bearings(problem, solution.states)
    pixels = (bearing_jacobian_to_pixels(inputs.camera, seen.bearings) @ residual[..., None])[..., 0]
    diagnostics: dict[str, Any] = {
        "identifiability": lines,
        "notes": ordered(
            [
                *inputs.notes,
                *_driven_by(inputs),
                *tracked.notes,
                *_fit_notes(tracked, solution),
                *unlike(inputs, tracked, solution.states),
                *unlike_mesh(inputs, found),
                *misfit,
            ]
        ),
        "residuals_last_frames": None if judged is None else judged.frames,
        "lost_frames": tracked.lost_frames,
        "rms_px": float(np.sqrt(np.nanmean((pixels**2).sum(axis=-1)))),
        "residual_px": pixels,
        "loss": solution.loss,
        "misfit": solution.misfit,
        "iterations": solution.iterations,
    }
    status = Status.CONVERGED if solution.converged else Status.NOT_CONVERGED
    if asked and not any(estimate.identifiable for estimate in asked):
        status = Status.NOT_IDENTIFIABLE
    elif solution.converged and is_doubtful(diagnostics["notes"]):
        status = Status.DOUBTFUL
    trajectory = Trajectory(
        seen.times_s, solution.states, inputs.system.state_names, solution.controls, solution.state_covariance
    )
    message = "; ".join(lines)
    joint = intervals.posterior(solution.parameters, found, covariance)
    name, actions = inputs.system.name, inputs.actions
    derived = intervals.derived(inputs.system.derived, solution.parameters, covariance, freedom)
    if inputs.on_hinge is not None and inputs.on_hinge.fitted is not None:
        derived = (*derived, *inputs.on_hinge.fitted.derived())
    return Result(status, message, name, found, trajectory, actions, None, seen, diagnostics, joint, derived=derived)


def _driven_by(inputs: Inputs) -> list[str]:
    """Return a note on what drives a body that might be driven, where no actions were recorded."""
    if inputs.actions or not inputs.system.action_names:
        return []
    return [HELD if inputs.system.capabilities.balanced else PASSIVE]


def _fit_notes(tracked: ConfigurationTrack, solution: ConfigurationSolution) -> list[str]:
    notes: list[str] = []
    if float(np.median(tracked.quality[tracked.tracked])) < SURE_QUALITY:
        notes.append(warning("the body is hardly recognised: check camera_to_world and look at the overlay"))
    if solution.misfit > _WELL:
        notes.append(
            warning(
                f"{UNFIT} (misfit {solution.misfit:.1f}, 1 is good): the intervals are "
                "widened by as much; are all --actions and the other parameters right?"
            )
        )
    return notes


def _lost(problem: Problem, tracked: ConfigurationTrack) -> Result:
    from vid2phys.types import Result, Status, Trajectory

    times = problem.observation.times_s
    states = np.full((len(times), len(problem.system.state_names)), np.nan)
    message = f"tracked in {int(tracked.tracked.sum())} of {len(times)} frames"
    trajectory = Trajectory(times, states, problem.system.state_names)
    nothing = {"rms_px": None, "loss": None, "iterations": 0, "notes": ordered(tracked.notes)}
    diagnostics: dict[str, object] = {"lost_frames": tracked.lost_frames, **nothing}
    name = problem.system.name
    return Result(Status.LOST, message, name, (), trajectory, None, None, problem.observation, diagnostics)

"""Fit a rigid body to its track: initialise by a first fit and the choice of a hypothesis, then estimate.

A body that looks alike in several orientations (its symmetry elements) has one hypothesis for each. Pixels choose among
the hypotheses. Where pixels leave the choice open, recorded actions choose. Every fit begins with smoothing; another
solver starts from its result.

Limits: one clip. `multi_clip` joins the clips of a multi-clip fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.commands.identify.config import BOOTSTRAP, FitOptions
from vid2phys.commands.identify.fit_impacts import (
    fit_impacts,
    fit_notes,
    fits_contact,
    impacts_report,
    impacts_solution,
    with_bound,
    without_contact,
)
from vid2phys.commands.identify.fit_springs import fit_springs, fits_springs
from vid2phys.commands.identify.gradient_fit import LEFT, descend, keypoint_misfit, report
from vid2phys.commands.identify.inputs import LEAST_FRAMES, LEAST_TRACKED, Inputs
from vid2phys.commands.identify.plausibility import distance_notes, flights_of, plausibility_notes
from vid2phys.commands.identify.silhouette_doubts import (
    likely_reason,
    proportion_doubts,
    silhouette_doubts,
    training_notes,
)
from vid2phys.commands.identify.unknown_torques import without_opposed
from vid2phys.commands.progress import Progress, silent
from vid2phys.commands.system_choice import remedies
from vid2phys.notes import doubt, is_doubtful, ordered, warning

if TYPE_CHECKING:
    from collections.abc import Callable

    from vid2phys.engine.system import System
    from vid2phys.geometry import Pose
    from vid2phys.solvers.gradient import Descent
    from vid2phys.solvers.impacts import Fitted
    from vid2phys.solvers.problem import Problem
    from vid2phys.solvers.smoothing import Smoothed
    from vid2phys.solvers.solution import Solution
    from vid2phys.tracking.articulated.tracker import ConfigurationTrack
    from vid2phys.tracking.cues.photometric import Stage
    from vid2phys.tracking.track import Track
    from vid2phys.types import Actions, Array, Observation, Result, Status

CLOSE_NATS = 30.0  # recorded actions help to choose between hypotheses whose evidence by pixels differs by less
DOUBTFUL_SHARE = 0.15  # share of frames without support of the image from which on the result is doubtful
SURE_QUALITY = 0.5  # detections of a lower quality may be of something else
SURE_NATS = 10.0  # a warning names a hypothesis that leads by less
RAN_AWAY = warning(
    "the simulated motion is not the one that was seen (look at the overlay): a rollout from one state runs away from "
    "a real flight within a second or two; use --solver smoothing, a shorter clip, or --starts"
)
CARRIED = (
    "a hand or the ground carries the body's weight all the time, so that the fit expects forces about the weight; the "
    "forces in actions.csv hold the weight, too"
)
UNREFINED = warning("the object hardly moved against its background: pixels could not refine the network's keypoints")


@dataclass(frozen=True)
class Initialised:
    """A clip with a chosen hypothesis, refined measurements and a fit by smoothing.

    detected: [F, N] states as the network detected them. stage: returns mesh, camera and background for comparisons by
    pixels. evidence: log-likelihoods [G] of the hypotheses, the best first, nats. notes: remarks for the user.
    """

    problem: Problem
    fitted: Smoothed
    detected: Array
    stage: Callable[[], Stage]
    evidence: Array
    notes: tuple[str, ...]


def initialise(inputs: Inputs, tracked: Track, *, refine: bool, progress: Progress = silent) -> Initialised | None:
    """Fit a first time, choose the hypothesis, refine by pixels and fit again.

    refine: align the mesh to the pixels. This has no effect where the user gave keypoints, where the camera moves, or
    on a body with a texture, of its mesh or learned, to which its track is already aligned. Returns None for a clip in
    which the body was lost.
    """
    from vid2phys.solvers import smoothing
    from vid2phys.solvers.initialise import first_inputs, rigid_states, with_mass_by_pushes

    if not enough(tracked):
        return None
    problem = problem_of(inputs, tracked)
    shape, static = inputs.shape, not inputs.camera.moves
    textured = inputs.mesh.texture is not None or tracked.learned_texture
    refine = refine and static and shape is not None and not textured
    progress("fitting")
    detected = rigid_states(problem, tracked.poses.rotation, tracked.poses.translation)
    problem = with_mass_by_pushes(problem, detected)
    first = smoothing.fit(problem, detected, first_inputs(problem, detected), rounds=1)
    evidence, stage = tracked.branch_log_likelihood, None
    if refine or (static and len(evidence) > 1 and shape is not None and not shape.exact):
        progress("choosing the hypothesis")
        solution = smoothing.solution(first)
        stage = _stage(inputs, tracked, problem, solution)
        evidence = evidence + _pixel_evidence(inputs, stage, tracked, problem, solution)
    tried, unrefined = _tried(inputs, problem, first, evidence, stage if refine else None, progress)
    evidence = _with_dynamics(evidence, {g: fitted.log_evidence for g, (_, fitted) in tried.items()})
    chosen = max(tried, key=lambda g: float(evidence[g]))
    chosen_problem, fitted = tried[chosen]
    if chosen != next(iter(tried)):
        fitted = smoothing.fit(chosen_problem, fitted.point.states, hyperparameters=fitted.hyperparameters)
    notes: list[str] = [UNREFINED] if unrefined else []
    carried = _carried(inputs, chosen_problem, fitted)
    if carried is not None:
        chosen_problem, fitted = carried
        notes.append(CARRIED)
    if inputs.is_ambiguous:
        notes.append(f"the body looks the same in {len(evidence)} orientations: the one given is as good as the others")
    return Initialised(
        chosen_problem,
        fitted,
        _in_hypothesis(inputs, chosen_problem, detected, chosen)[1][first.layout.knots.frame_knot],
        lambda: stage or _stage(inputs, tracked, chosen_problem, smoothing.solution(fitted)),
        np.sort(evidence)[::-1],
        tuple(notes),
    )


def _carried(inputs: Inputs, problem: Problem, fitted: Smoothed) -> tuple[Problem, Smoothed] | None:
    """Return the problem and the fit of a body whose weight is carried; None where the clip shows otherwise.

    Unknown forces vary about zero on a thrown body, and about the weight on one that a hand holds. The evidence of both
    fits decides. There is no second fit of a body that flies for a while, or whose parameters are asked for.
    """
    from vid2phys.solvers import smoothing
    from vid2phys.solvers.problem import flies_free

    asked = set(inputs.known.parameters.free_names) - set(inputs.known.nuisance)
    if inputs.actions is not None or not flies_free(inputs.system) or asked:
        return None
    if flights_of(problem, smoothing.solution(fitted), inputs.mesh.radius_m):
        return None
    carried = replace(problem, carried=True)
    found = smoothing.fit(carried, fitted.point.states)
    return (carried, found) if found.log_evidence > fitted.log_evidence else None


def estimate(
    inputs: Inputs, tracked: Track, start: Initialised | None, options: FitOptions, progress: Progress = silent
) -> Result:
    """Estimate motion and parameters of a single clip; the result's status states whether the fit succeeded."""
    from vid2phys.solvers import smoothing

    if start is None:
        return lost(inputs, tracked)
    solution, descent = smoothing.solution(start.fitted), None
    if fits_springs(inputs, options):
        springs = fit_springs(inputs, start.problem, solution, options, progress)
        start = replace(start, problem=springs.problem, notes=(*start.notes, *springs.notes))
        result = conclude(inputs, tracked, start, springs.solution, options, smoothed=solution)
        return replace(result, parameters=with_bound(result.parameters, [springs.least_friction]))
    if fits_contact(inputs, options):
        problem, fitted = fit_impacts(inputs, start.problem, solution, options, progress)
        return conclude_impacts(inputs, tracked, replace(start, problem=problem), fitted, options)
    if options.method != "smoothing":
        descent = descend(
            *(inputs, tracked, start.stage, start.problem, solution, start.detected), options=options, progress=progress
        )
        solution = descent.solution
    result = conclude(inputs, tracked, start, solution, options, descent)
    if options.intervals != BOOTSTRAP:
        return result
    from vid2phys.commands.identify.resampling import resample_flight, with_resampled

    resampled = resample_flight(start.problem, start.fitted, solution, options, progress)
    return with_resampled(result, solution.parameters, resampled, solution.theta_parts)


def conclude_impacts(inputs: Inputs, tracked: Track, start: Initialised, fitted: Fitted, options: FitOptions) -> Result:
    """Return the result of a fit of impacts; start: of the clip, with the problem that was fitted."""
    from vid2phys.solvers import smoothing

    smoothed = smoothing.solution(start.fitted)
    start = replace(start, notes=(*start.notes, *fit_notes(fitted)))
    result = conclude(inputs, tracked, start, impacts_solution(smoothed, fitted), options, smoothed=smoothed)
    diagnostics = result.diagnostics | impacts_report(fitted, start.problem.observation.times_s)
    return replace(result, parameters=with_bound(result.parameters, [fitted.least_friction]), diagnostics=diagnostics)


def _tried(
    inputs: Inputs, problem: Problem, first: Smoothed, evidence: Array, stage: Stage | None, progress: Progress
) -> tuple[dict[int, tuple[Problem, Smoothed]], bool]:
    """Return the problem and fit of each hypothesis worth a fit, and whether pixels failed to refine one of them.

    The hypothesis with the best evidence comes first. stage: None leaves the measurements as they are.
    """
    from vid2phys.solvers import smoothing

    tried: dict[int, tuple[Problem, Smoothed]] = {}
    unrefined = False
    for g in _open_hypotheses(evidence, known_torques=inputs.actions is not None):
        chosen, states = _in_hypothesis(inputs, problem, first.point.states, g)
        if stage is not None:
            progress("aligning to the pixels")
            refined = _refined(inputs, stage, chosen, states[first.layout.knots.frame_knot])
            chosen = chosen if refined is None else replace(chosen, observation=refined)
            unrefined |= refined is None
        progress("fitting again")
        best = next(iter(tried.values()), None)  # evidences compare only under the same hyperparameters
        hyperparameters = first.hyperparameters if best is None else best[1].hyperparameters
        rounds = 0 if best else smoothing.ROUNDS
        tried[g] = (chosen, smoothing.fit(chosen, states, hyperparameters=hyperparameters, rounds=rounds))
    return tried, unrefined


def problem_of(inputs: Inputs, tracked: Track) -> Problem:
    """Return the problem that a fit to a clip solves."""
    from vid2phys.commands.fit_parameters import size_std
    from vid2phys.engine.pose_geometry import diameter_px
    from vid2phys.solvers.camera_parameters import SCALE
    from vid2phys.solvers.problem import Problem

    known, pose = inputs.known, inputs.camera_to_world
    parameters = without_contact(known.parameters, inputs.system.capabilities.of_impacts)
    priors = known.priors
    if SCALE.name in known.nuisance:
        places = tracked.poses.pose.translation[tracked.tracked]
        width_px = diameter_px(float(inputs.camera.K[0, 0]), inputs.mesh.radius_m, places)
        priors = {SCALE.name: (0.0, size_std(width_px)), **priors}
    return Problem(*(inputs.system, parameters, tracked.observation, pose, inputs.actions, priors, known.nuisance))


def enough(tracked: Track | ConfigurationTrack) -> bool:
    """Return whether the body was found in enough frames for a fit."""
    return bool(tracked.tracked.sum() >= max(LEAST_FRAMES, LEAST_TRACKED * len(tracked.tracked)))


def _open_hypotheses(evidence: Array, *, known_torques: bool) -> list[int]:
    """Return the hypotheses that are worth a fit, best first.

    Without recorded torques only the best hypothesis is. With them, those within CLOSE_NATS of the best are, too.
    """
    order = np.argsort(-evidence, kind="stable")
    return [int(g) for g in order if known_torques and evidence[g] > evidence[order[0]] - CLOSE_NATS] or [int(order[0])]


def _with_dynamics(evidence: Array, of_dynamics: dict[int, float]) -> Array:
    """Return the evidence [G] of the hypotheses, plus the evidence of the dynamics for each fitted hypothesis."""
    evidence, best = evidence.copy(), max(of_dynamics.values())
    for g, value in of_dynamics.items():
        evidence[g] += value - best
    return evidence


def _stage(inputs: Inputs, tracked: Track, problem: Problem, solution: Solution) -> Stage:
    """Return mesh, camera and background, from the fitted poses of the tracked frames."""
    from vid2phys.geometry import Pose
    from vid2phys.tracking.cues.photometric import stage_of

    pose = poses_in_camera(problem.system, problem.camera_to_world, solution.states)
    pose = Pose(pose.rotation, np.where(tracked.tracked[:, None], pose.translation, np.nan))
    return stage_of(inputs.clip, inputs.camera, inputs.mesh, pose)


def _pixel_evidence(inputs: Inputs, stage: Stage, tracked: Track, problem: Problem, solution: Solution) -> Array:
    """Return the log-likelihood [G] of each hypothesis by the clip's pixels at the fitted poses, nats."""
    from vid2phys.tracking.photometric_evidence import branch_evidence

    shape = inputs.shape
    if len(tracked.branch_log_likelihood) < 2 or shape is None or shape.exact:
        return np.zeros(len(tracked.branch_log_likelihood))
    frames = np.flatnonzero(tracked.tracked)
    poses = poses_in_camera(problem.system, problem.camera_to_world, solution.states)[frames]
    return branch_evidence(inputs.clip, stage, poses, frames, shape.rotations, shape.center)


def poses_in_camera(system: System, camera_to_world: Array, states: Array) -> Pose:
    """Return the poses camera_from_body [F] of states [F, N]. camera_to_world: [4, 4], or of each frame [F, 4, 4]."""
    from vid2phys.geometry import Pose, invert_transform, make_transform, matrix_from_quat

    positions, quats = system.body_pose(states)
    pose = invert_transform(camera_to_world) @ make_transform(matrix_from_quat(quats), positions)
    return Pose(pose[:, :3, :3], pose[:, :3, 3])


def _in_hypothesis(inputs: Inputs, problem: Problem, states: Array, element: int) -> tuple[Problem, Array]:
    """Return problem and states [T, N] under a symmetry element: orientations R become R @ rotations[element]^T.

    Element 0 is the identity and changes nothing.
    """
    from vid2phys.geometry import quat_conjugate, quat_from_matrix, quat_multiply, rotate
    from vid2phys.risp.shape.rotation_groups import offsets
    from vid2phys.tracking.hypotheses import relabelled

    if element == 0:
        return problem, states
    shape = inputs.shape
    assert shape is not None  # keypoints that the user gave have one hypothesis
    rotation = quat_from_matrix(shape.rotations[element])
    # the place to which the element moves the body's origin
    aside = offsets(shape.rotations[element], shape.center)
    states = states.copy()
    states[:, 3:7] = quat_multiply(states[:, 3:7], quat_conjugate(rotation))
    states[:, 10:13] = rotate(rotation, states[:, 10:13])
    states[:, :3] -= rotate(states[:, 3:7], np.broadcast_to(aside, (len(states), 3)))
    states[:, 7:10] -= rotate(states[:, 3:7], np.cross(states[:, 10:13], aside))
    observation = relabelled(*(problem.observation, shape.permutation[element], shape.rotations[element], shape.center))
    return replace(problem, observation=observation), states


def _refined(inputs: Inputs, stage: Stage, problem: Problem, states: Array) -> Observation | None:
    """Return the observation with poses measured by pixels near states [F, N]; None where pixels measure none."""
    from vid2phys.tracking.photometric_refinement import refined
    from vid2phys.tracking.rolling_shutter import meshes_of_frames

    pose, seen = poses_in_camera(problem.system, problem.camera_to_world, states), problem.observation
    meshes = meshes_of_frames(inputs.camera, inputs.mesh, pose, seen.times_s)
    return refined(inputs.clip, stage, inputs.calibration, seen, pose, meshes)


def conclude(
    inputs: Inputs,
    tracked: Track,
    start: Initialised,
    solution: Solution,
    options: FitOptions,
    descent: Descent | None = None,
    *,
    degrees: float | None = None,
    smoothed: Solution | None = None,
) -> Result:
    """Return the result of a solution: estimates with intervals, status and notes.

    descent: what `descend` returned, or None. degrees: degrees of freedom of the fit (default:
    those of this clip). smoothed: by which it is judged whether the motion is plausible (default: the solution).
    """
    from vid2phys.solvers import intervals
    from vid2phys.solvers.solution import degrees_of_freedom
    from vid2phys.types import Result, Trajectory

    problem, notes = replace(start.problem, parameters=solution.parameters), list(start.notes)
    if solution.residuals is not None and keypoint_misfit(problem, solution) > LEFT:
        solution = replace(solution, converged=False)
        notes.append(RAN_AWAY)
    if descent is None:
        notes += plausibility_notes(problem, smoothed or solution, inputs.mesh.radius_m)
        notes += distance_notes(_distance_m(tracked), inputs.mesh.radius_m)
    elif not descent.has_intervals:
        notes.append(f"the loss '{options.loss}' has no error model: there are no intervals")
    found = intervals.estimates(
        solution.parameters,
        options.fit,
        solution.theta_covariance,
        solution.null_directions,
        degrees or degrees_of_freedom(problem, len(solution.theta_names)),
        problem.priors,
        solution.theta_parts,
        solution.theta_quantiles,
    )
    known = remedies(inputs.system)
    lines = intervals.identifiability(solution.theta_names, solution.null_directions, found, solution.parameters, known)
    found, more = without_opposed(problem, solution, found, options.fit)
    lines += more
    covariance: Array | None = solution.covariance
    joint = intervals.posterior(solution.parameters, found, solution.theta_covariance)
    if descent is not None and not descent.has_intervals:
        joint = None
        found, covariance = tuple(replace(estimate, identifiable=True) for estimate in found), None
    diagnostics = _diagnostics(inputs, tracked, problem, solution, lines, start.evidence, notes)
    status, message = _status(solution, found, options.fit, lines, diagnostics["notes"])
    if descent is not None:
        diagnostics["starts"] = report(descent.attempts)
    times = problem.observation.times_s
    actions, std = _actions(inputs, solution, times)
    return Result(
        status,
        message,
        inputs.system.name,
        found,
        Trajectory(times, solution.states, inputs.system.state_names, solution.controls, covariance),
        actions,
        std,
        problem.observation,
        diagnostics,
        joint,
    )


def _status(
    solution: Solution, found: tuple[Any, ...], fit: tuple[str, ...], lines: list[str], notes: list[str]
) -> tuple[Status, str]:
    from vid2phys.types import Status

    asked = [estimate for estimate in found if estimate.name in fit]
    if asked and not any(estimate.identifiable for estimate in asked):
        return Status.NOT_IDENTIFIABLE, "; ".join(lines)
    if not solution.converged:
        return Status.NOT_CONVERGED, "; ".join(lines)
    if is_doubtful(notes):
        return Status.DOUBTFUL, "; ".join(lines)
    return Status.CONVERGED, "; ".join(lines)


def _actions(inputs: Inputs, solution: Solution, times_s: Array) -> tuple[Actions, Array | None]:
    from vid2phys.types import Actions

    count = len(inputs.system.action_names)
    kind = inputs.actions.kind if inputs.actions is not None else "wrench"
    names, units = inputs.system.action_names, inputs.system.action_units
    per_kilogram = inputs.known.per_kilogram
    return Actions(times_s[:-1], solution.controls[:, :count], kind, names, units, per_kilogram), solution.action_std


def _diagnostics(
    inputs: Inputs,
    tracked: Track,
    problem: Problem,
    solution: Solution,
    lines: list[str],
    evidence: Array,
    notes: list[str],
) -> dict[str, Any]:
    from vid2phys.commands.identify.external_doubts import doubts_of_motion
    from vid2phys.engine.observe import bearing_jacobian_to_pixels
    from vid2phys.solvers.solution import residual_bearings
    from vid2phys.solvers.whiteness import whiteness

    judged = None if solution.residuals is None else whiteness(solution.residuals)
    misfit = [] if judged is None or judged.white else [warning(str(judged.warning()))]
    ratio = float(evidence[0] - evidence[1]) if len(evidence) > 1 and not inputs.is_ambiguous else None
    residual = residual_bearings(problem, solution.states)
    to_pixels = bearing_jacobian_to_pixels(inputs.camera, problem.observation.bearings)
    pixels = (to_pixels @ residual[..., None])[..., 0]
    return {
        "identifiability": lines,
        "notes": ordered(
            [
                *inputs.notes,
                *_support_notes(tracked),
                *_quality_notes(inputs, tracked),
                *_hypothesis_notes(ratio),
                *(doubts_of_motion(problem.observation, residual) if inputs.shape is None else ()),
                *misfit,
                *notes,
            ]
        ),
        "residuals_last_frames": None if judged is None else judged.frames,
        "branch_log_ratio": ratio,
        "lost_frames": tracked.lost_frames,
        "rms_px": float(np.sqrt(np.nanmean((pixels**2).sum(axis=-1)))),
        "residual_px": pixels,
        "loss": solution.loss,
        "iterations": solution.iterations,
        "levels": solution.extra,
    }


def _support_notes(tracked: Track) -> list[str]:
    """Return a note on frames that the tracker refused as not the object; many such frames make the note a doubt."""
    refused, frames = len(tracked.unsupported), len(tracked.tracked)
    if not refused:
        return []
    text = (
        f"in {refused} of {frames} frames what was found is probably not the object, since the image does not support "
        "its pose: these frames count as lost"
    )
    if refused < DOUBTFUL_SHARE * frames:
        return [text]
    return [doubt(f"{text}; check the mesh and its model, or select the part that shows the object with --from, --to")]


def _lost_notes(inputs: Inputs, tracked: Track) -> list[str]:
    """Return what may be the reason that a body without a model was found in too few frames."""
    if inputs.untrained is None:
        return []
    usual = "check that the body is that of the mesh, and at least 20 pixels wide; a --hint shows where it is"
    reason = likely_reason(tracked.visibility) or usual
    few = doubt(f"the mesh '{inputs.mesh.name}' explains what moves in too few frames: {reason}")
    return [few, *training_notes(inputs, tracked)]


def _quality_notes(inputs: Inputs, tracked: Track) -> list[str]:
    quality = float(np.median(tracked.quality[tracked.tracked]))
    if inputs.untrained is not None:
        doubts = silhouette_doubts(inputs, tracked)
        return [*doubts, *training_notes(inputs, tracked, doubts)]
    notes = list(proportion_doubts(inputs, tracked))
    if quality > SURE_QUALITY:
        return notes
    return [
        *notes,
        warning(
            f"the network hardly recognised the object (median quality {quality:.2f} of 1): check the mesh and its "
            "units, look at the overlay, or film closer"
        ),
    ]


def _distance_m(tracked: Track) -> float:
    """Return the distance of the body from the camera, median of the clip, m."""
    return float(np.median(np.linalg.norm(tracked.poses.pose.translation[tracked.tracked], axis=-1)))


def _hypothesis_notes(ratio: float | None) -> list[str]:
    if ratio is None or ratio > SURE_NATS:
        return []
    return [
        warning(
            "the body looks almost the same after part of a turn and the clip hardly tells which "
            f"(log ratio {ratio:.1f}): the heading may be off by that turn; mark the front, or film closer"
        )
    ]


def lost(inputs: Inputs, tracked: Track) -> Result:
    """Return the result of a clip in which the body was found in too few frames."""
    from vid2phys.types import Result, Status, Trajectory

    problem = problem_of(inputs, tracked)
    times = problem.observation.times_s
    states = np.full((len(times), len(problem.system.state_names)), np.nan)
    message = f"tracked in {int(tracked.tracked.sum())} of {len(times)} frames"
    return Result(
        Status.LOST,
        message,
        problem.system.name,
        (),
        Trajectory(times, states, problem.system.state_names),
        None,
        None,
        problem.observation,
        {
            "lost_frames": tracked.lost_frames,
            "rms_px": None,
            "loss": None,
            "iterations": 0,
            "notes": ordered([*inputs.notes, *_support_notes(tracked), *_lost_notes(inputs, tracked)]),
        },
    )

"""The last step of `identify` when it is not smoothing: a deterministic rollout by any loss, from several starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.commands.progress import Progress, silent
from vid2phys.errors import InputError, SimulationError, UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from vid2phys.commands.identify import Inputs
    from vid2phys.solvers.gradient import Attempt, Descent, Start
    from vid2phys.solvers.losses import Evidence
    from vid2phys.solvers.problem import Problem
    from vid2phys.solvers.rendering import Views
    from vid2phys.solvers.solution import Solution
    from vid2phys.tracking.cues.photometric import Stage
    from vid2phys.tracking.track import Track
    from vid2phys.types import Array

SOLVERS = ("smoothing", "shooting", "rmsprop", "adam")
OF_ANY_LOSS = ("rmsprop", "adam")
LOOKS = ("shading", "texture")  # what losses of images may draw without
LEFT = 3.0  # misfit of keypoints from which on the motion is not the one that was seen
MOST_VIEWS = 24  # of a clip, evenly spread: each is drawn in every iteration


def check_options(
    solver: str,
    loss: str,
    starts: int,
    *,
    actions: bool,
    rigid: bool,
    thrown: bool = False,
    clips: int = 1,
    of_image: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> None:
    """Raises UsageError for unknown names and for combinations that do not exist, before anything is read.

    thrown: a body that flies free without actions. of_image: what is fitted of the image (`solvers.camera_parameters`).
    without: what a loss of images is not to draw, of `LOOKS`.
    """
    if solver not in SOLVERS:
        raise unknown_name("solver", solver, SOLVERS)
    drawn = False
    if loss != "keypoint":
        from vid2phys.solvers.losses import kind

        drawn = "scene" in kind(loss).needs
    for look in without:
        if look not in LOOKS:
            raise unknown_name("look", look, LOOKS)
    if without and not drawn:
        got = f"--without {','.join(without)} with --loss {loss}, which draws nothing"
        raise UsageError(got, "--loss pixel, perceptual or risp_image", "leave one of them out")
    if starts < 1:
        raise UsageError(f"--starts {starts}", "1 or more", "leave it out for one")
    if loss != "keypoint" and solver not in OF_ANY_LOSS:
        raise UsageError(f"--loss {loss} with --solver {solver}", "--loss keypoint", "or use --solver rmsprop or adam")
    if starts > 1 and solver == "smoothing":
        raise UsageError(f"--starts {starts} with --solver smoothing", "one start", "use shooting, rmsprop or adam")
    if not rigid and (solver != "smoothing" or loss != "keypoint" or starts > 1):
        got = f"--solver {solver}, --loss {loss} and --starts {starts} for a body on a known base"
        raise UsageError(got, "the defaults", "leave them out: configurations are fitted by shooting already")
    if clips > 1 and (solver in OF_ANY_LOSS or starts > 1):
        got = f"{clips} clips with --solver {solver} and --starts {starts}"
        raise UsageError(got, "--solver smoothing or shooting, from one start", "or fit the clips one by one")
    if of_image and solver in OF_ANY_LOSS:
        got = f"--fit {','.join(of_image)} with --solver {solver}"
        raise UsageError(got, "--solver smoothing or shooting", "leave --solver out")
    if rigid and solver != "smoothing" and not actions and not thrown:
        raise UsageError(f"--solver {solver} without --actions", "recorded actions", "use --solver smoothing")


def descend(
    inputs: Inputs,
    tracked: Track,
    stage: Callable[[], Stage],
    problem: Problem,
    smoothed: Solution,
    read: Array,
    *,
    solver: str,
    loss: str,
    starts: int,
    without: tuple[str, ...] = (),
    seed: int = 0,
    progress: Progress = silent,
) -> Descent:
    """Fit a deterministic rollout, starting from what shooting found, and from parameters drawn about it.

    Shooting's Levenberg-Marquardt, by keypoints, comes first: from a state that is only nearly right a whole flight
    runs away from its images, and steps of fixed length do not bring it back.

    stage: makes the scene behind the body, for losses of images, which draw `without` these of `LOOKS`. read: [F, N]
    states as the network read them.
    Raises Vid2PhysError where the loss has nothing to go by.
    """
    from vid2phys.solvers import gradient, losses

    rng = np.random.default_rng(seed)
    first = gradient.Start(smoothed.knot_states[0], problem.parameters)
    if solver == "shooting":
        return _shoot(problem, smoothed.knot_states, gradient.random_starts(first, starts, rng), progress)
    try:
        first = _shoot(problem, smoothed.knot_states, [first], progress).attempts[0].end
    except SimulationError:
        first = replace(first, parameters=smoothed.parameters)
    evidence = _evidence(inputs, tracked, stage, smoothed, read, losses.kind(loss).needs, without)
    return gradient.solve(
        problem,
        losses.get(loss, problem, evidence),
        gradient.random_starts(first, starts, rng),
        optimizer=solver,
        progress=lambda done, total: progress(f"{solver} by {loss}", done, total),
    )


def keypoint_misfit(problem: Problem, solution: Solution) -> float:
    """Root mean square of robust normalised residuals of the keypoints along the motion found, 1 where it is right."""
    import torch

    from vid2phys.solvers import camera_parameters, losses

    values = {p.name: p.value for p in solution.parameters}
    if set(camera_parameters.NAMES) <= set(values):
        pose = camera_parameters.camera_pose(problem.camera_to_world, values)
        observation = camera_parameters.observation_as_fitted(problem.observation, values)
        problem = replace(problem, observation=observation, camera_to_world=pose)
    residuals = losses.get("keypoint", problem).residuals(torch.from_numpy(solution.states)).numpy()
    return float(np.sqrt(np.mean(np.square(residuals[residuals != 0.0]))))


def report(attempts: tuple[Attempt, ...]) -> list[dict[str, object]]:
    """All starts for result.json: values of the free parameters at both ends, loss, iterations, why one failed."""
    rows: list[dict[str, object]] = []
    for attempt in attempts:
        ends = {
            when: {p.name: p.value for p in point.parameters if p.free}
            for when, point in (("start", attempt.start), ("end", attempt.end))
        }
        rows.append(
            {**ends, "loss": attempt.loss, "iterations": len(attempt.losses), "settled": attempt.converged,
             "failure": attempt.failure}
        )  # fmt: skip
    return rows


def _shoot(problem: Problem, states: Array, starts: list[Start], progress: Progress) -> Descent:
    """Levenberg-Marquardt from every start; the best is kept."""
    from vid2phys.solvers import shooting
    from vid2phys.solvers.gradient import Attempt, Descent, Start

    found: list[Solution | None] = []
    attempts = []
    for number, start in enumerate(starts):
        progress("shooting", number, len(starts))
        try:
            solution = shooting.solve(replace(problem, parameters=start.parameters), states)
        except SimulationError as error:
            if len(starts) == 1:
                raise
            found.append(None)
            attempts.append(Attempt(start, start, np.zeros(0), str(error)))
            continue
        found.append(solution)
        end = Start(solution.states[0], solution.parameters)
        attempts.append(Attempt(start, end, np.full(max(1, solution.iterations), solution.loss)))
    best = int(np.argmin([attempt.loss for attempt in attempts]))
    chosen = found[best]
    if chosen is None:
        raise SimulationError(f"none of {len(starts)} starts could be simulated ({attempts[best].failure})")
    return Descent(chosen, tuple(attempts), best, has_intervals=True)


def _evidence(
    inputs: Inputs,
    tracked: Track,
    stage: Callable[[], Stage],
    smoothed: Solution,
    read: Array,
    needs: tuple[str, ...],
    without: tuple[str, ...],
) -> Evidence:
    """What the loss asks for."""
    import torch

    from vid2phys.solvers.losses import Evidence
    from vid2phys.solvers.network_outputs import of_model
    from vid2phys.solvers.rendering import fit_light

    evidence = Evidence()
    if "states" in needs:
        evidence = replace(evidence, states=read, std=_reading_std(inputs, tracked, read))
    if "reader" in needs:
        evidence = replace(evidence, reader=of_model(inputs.network))
    if "scene" in needs:
        views = clip_views(inputs, stage(), smoothed.states, tracked.tracked)
        looks = {look: look not in without for look in LOOKS}
        scene = fit_light(inputs.system, inputs.mesh, views, torch.from_numpy(smoothed.states), **looks)
        evidence = replace(evidence, scene=scene)
    return evidence


def _reading_std(inputs: Inputs, tracked: Track, read: Array) -> Array:
    """Standard deviations [F, D] of positions (world) and rotations (body) as read; velocities are not read."""
    from vid2phys.geometry import matrix_from_quat

    std = np.full((len(read), len(inputs.system.tangent_names)), np.inf)
    to_world = inputs.camera_to_world[:3, :3]
    in_body = np.swapaxes(matrix_from_quat(read[:, 3:7]), 1, 2) @ to_world
    for columns, turn, block in ((slice(0, 3), to_world, slice(3, 6)), (slice(3, 6), in_body, slice(0, 3))):
        covariance = turn @ tracked.poses.covariance[:, block, block] @ np.swapaxes(turn, -1, -2)
        found = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 1e-12))
        std[:, columns] = np.where(tracked.tracked[:, None] & np.isfinite(found), found, np.inf)
    return std


def clip_views(inputs: Inputs, stage: Stage, states: Array, tracked: NDArray[np.bool_]) -> Views:
    """Views of at most MOST_VIEWS of the frames in which the body was found, about where states [F, N] put it.

    Raises InputError when the background is known nowhere: then nothing tells the body from what is behind it.
    """
    from vid2phys.engine.virtual_camera import make_view, resample
    from vid2phys.geometry import invert_transform
    from vid2phys.indices import evenly
    from vid2phys.solvers.rendering import Views
    from vid2phys.tracking.detectors.network import direction_and_size

    found = np.flatnonzero(tracked)
    frames = found[evenly(len(found), MOST_VIEWS)]
    to_camera = invert_transform(inputs.camera_to_world)
    middles = inputs.system.body_pose(states[frames])[0] @ to_camera[:3, :3].T + to_camera[:3, 3]
    size, camera = inputs.network.view_size, replace(inputs.camera, camera_to_world=inputs.camera_to_world)
    places = [direction_and_size(middle, inputs.network.radius_m) for middle in middles]
    views = [make_view(camera, center, float(radius), size) for center, radius in places]
    images = inputs.clip.frames.at(frames)
    behind, unknown = stage.backdrop.image, np.where(stage.backdrop.known, 255, 0).astype(np.uint8)
    if not stage.backdrop.known.any():
        raise InputError(
            "the clip shows nothing but the body", "frames that show what is behind it", "use --loss keypoint"
        )
    known = [resample(np.repeat(unknown[..., None], 3, axis=-1), camera, view)[..., 0] == 255 for view in views]
    return Views.through(views, camera, frames, images, behind, np.stack(known))

"""Fit a deterministic rollout by any loss, from several starts: the solvers of `identify` other than smoothing.

Method: shooting by Levenberg-Marquardt, or its result improved by RMSProp or Adam (`solvers.gradient`).

Limits: one clip, recorded actions (or a body that flies free). RMSProp and Adam fit no parameters of the camera.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.commands.identify.config import APPEARANCE, FitOptions
from vid2phys.commands.progress import Progress, silent
from vid2phys.errors import InputError, SimulationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from vid2phys.commands.identify.inputs import Inputs
    from vid2phys.solvers.gradient import Attempt, Descent, Start
    from vid2phys.solvers.losses import Evidence
    from vid2phys.solvers.problem import Problem
    from vid2phys.solvers.rendering import Views
    from vid2phys.solvers.solution import Solution
    from vid2phys.tracking.cues.photometric import Stage
    from vid2phys.tracking.track import Track
    from vid2phys.types import Array

LEFT = 3.0  # misfit of keypoints above which the fitted motion is not that of the clip
MOST_VIEWS = 24  # frames of a clip, evenly spread, that every iteration draws


def descend(
    inputs: Inputs,
    tracked: Track,
    stage: Callable[[], Stage],
    problem: Problem,
    smoothed: Solution,
    detected: Array,
    *,
    options: FitOptions,
    progress: Progress = silent,
) -> Descent:
    """Fit a deterministic rollout, starting from the result of shooting, and from random parameters around it.

    Shooting by keypoints comes first. From a start that is only nearly right, the rollout of a whole flight runs away
    from its images. Steps of fixed length do not bring it back.

    stage: returns mesh, camera and background, for losses of images. smoothed: solution of smoothing. detected: [F, N]
    states as the network detected them. options: solver, loss, number of starts, seed, and parts of the appearance that
    losses of images leave out. Raises Vid2PhysError where the clip lacks what the loss needs.
    """
    from vid2phys.solvers import gradient, losses

    rng, solver, loss = np.random.default_rng(options.seed), options.method, options.loss
    first = gradient.Start(smoothed.knot_states[0], problem.parameters)
    if solver == "shooting":
        return _shoot(problem, smoothed.knot_states, gradient.random_starts(first, options.starts, rng), progress)
    try:
        first = _shoot(problem, smoothed.knot_states, [first], progress).attempts[0].end
    except SimulationError:
        first = replace(first, parameters=smoothed.parameters)
    evidence = _evidence(inputs, tracked, stage, smoothed, detected, options)
    return gradient.solve(
        problem,
        losses.get(loss, problem, evidence),
        gradient.random_starts(first, options.starts, rng),
        optimizer=solver,
        progress=lambda done, total: progress(f"{solver} by {loss}", done, total),
    )


def keypoint_misfit(problem: Problem, solution: Solution) -> float:
    """Return the root mean square of the keypoints' robust normalised residuals; it is about 1 for a right motion."""
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
    """Return a row of result.json for each start: free parameters at both ends, loss, iterations, cause of failure."""
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
    """Fit by Levenberg-Marquardt from every start, and return the descent with the least loss.

    Raises SimulationError where no start can be simulated.
    """
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
    detected: Array,
    options: FitOptions,
) -> Evidence:
    """Return the evidence that the loss needs: detected states, the network, or the images of the clip."""
    import torch

    from vid2phys.solvers import losses
    from vid2phys.solvers.network_outputs import of_model
    from vid2phys.solvers.rendering import fit_light

    evidence, needs = losses.Evidence(), losses.kind(options.loss).needs
    if "states" in needs:
        evidence = replace(evidence, states=detected, std=_detection_std(inputs, tracked, detected))
    if "reader" in needs:
        evidence = replace(evidence, reader=of_model(inputs.network))
    if "scene" in needs:
        views = clip_views(inputs, stage(), smoothed.states, tracked.tracked)
        drawn = {name: name not in options.undrawn for name in APPEARANCE}
        scene = fit_light(inputs.system, inputs.mesh, views, torch.from_numpy(smoothed.states), **drawn)
        evidence = replace(evidence, scene=scene)
    return evidence


def _detection_std(inputs: Inputs, tracked: Track, detected: Array) -> Array:
    """Return standard deviations [F, D] of detected states: of positions in the world, and of rotations in the body.

    Velocities are not detected; their standard deviations are infinite.
    """
    from vid2phys.geometry import matrix_from_quat

    std = np.full((len(detected), len(inputs.system.tangent_names)), np.inf)
    to_world = inputs.camera_to_world[..., :3, :3]
    in_body = np.swapaxes(matrix_from_quat(detected[:, 3:7]), 1, 2) @ to_world
    for columns, axes, block in ((slice(0, 3), to_world, slice(3, 6)), (slice(3, 6), in_body, slice(0, 3))):
        covariance = axes @ tracked.poses.covariance[:, block, block] @ np.swapaxes(axes, -1, -2)
        found = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 1e-12))
        std[:, columns] = np.where(tracked.tracked[:, None] & np.isfinite(found), found, np.inf)
    return std


def clip_views(inputs: Inputs, stage: Stage, states: Array, tracked: NDArray[np.bool_]) -> Views:
    """Return virtual cameras' images of at most MOST_VIEWS tracked frames, centred on the body at states [F, N].

    Raises InputError when the background is known nowhere: then nothing separates the body from the background.
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

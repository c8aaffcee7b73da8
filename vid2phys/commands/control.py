"""`vid2phys control`: actions that bring the body to the state in an image."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.commands.progress import Progress, silent
from vid2phys.commands.system_choice import DEFAULT_SYSTEM
from vid2phys.errors import InputError, UsageError, unknown_name

if TYPE_CHECKING:
    from vid2phys.commands.identify import Inputs
    from vid2phys.engine.system import System
    from vid2phys.solvers.optimal_control import Reached
    from vid2phys.types import Actions, Array, Camera, Clip, Trajectory

SCHEMA = "vid2phys.control/1"
FPS = 25.0  # of overlay.mp4
_SURE_QUALITY = 0.5


@dataclass(frozen=True)
class Target:
    """What the network read in the image.

    points_body: [K, 3] m; goal: [K, 3] m, where they are in the world. described: the pose or configuration by name,
    and how well it is known. std_m: of the points, root mean square. size_m: of the body. notes: what to tell the user.
    """

    points_body: Array
    goal: Array
    described: dict[str, Any]
    std_m: float
    size_m: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Controlled:
    """What was found: status `reached` or `missed`, with a message, and the motion."""

    status: str
    message: str
    target: Target
    reached: Reached
    trajectory: Trajectory
    actions: Actions
    notes: tuple[str, ...]


def control(
    target: str | Path,
    *,
    camera: str | Path,
    system: str = DEFAULT_SYSTEM,
    mesh: str | Path | None = None,
    camera_pose: str | Path | None = None,
    set_values: dict[str, float] | None = None,
    params: str | Path | None = None,
    initial: dict[str, float] | None = None,
    limits: dict[str, tuple[float, float]] | None = None,
    seconds: float = 1.0,
    rate: float = 25.0,
    moving: bool = False,
    mesh_units: str = "m",
    mesh_move: str | None = None,
    model: str | Path | None = None,
    out: str | Path | None = None,
    overlay: bool = True,
    progress: Progress = silent,
) -> tuple[Controlled, Path]:
    """Find actions that bring a body from `initial` (default: at rest at the origin) to where `target` shows it.

    Paths as on the command line; mesh: None for a system on a known base, which has its own. set_values, params: of the
    system, SI. limits: of actions by name. seconds: when it is to be there; rate: actions a second. moving: it may pass
    its goal instead of coming to rest there. A rigid body touches nothing. Returns what was found and the run folder:
    result.json, actions.csv, trajectory.csv, overlay.mp4. Raises InputError for an image in which the body is not
    visible, and Vid2PhysError for anything else a user can mend; a goal that is not reached has the status `missed`.
    """
    options: dict[str, Any] = {key: value for key, value in locals().items() if key != "progress"}
    from vid2phys.commands.config import write_config
    from vid2phys.commands.identify import read_inputs
    from vid2phys.io.run import new_run

    started = time.perf_counter()
    for name in ("seconds", "rate"):
        if not (np.isfinite(options[name]) and options[name] > 0.0):
            raise UsageError(f"--{name} {options[name]:g}", "a positive number", f"for example --{name} 1")
    progress("reading inputs")
    given = {"clip": target, "fit": (), "actions": None, "priors": None, "bounds": None, "observation": None}
    inputs = read_inputs(options | given, images=_images)
    lower, upper = _limits(inputs.system, limits or {})
    progress("reading the target")
    aimed = read_target(inputs)
    progress("looking for actions")
    found = _found(inputs, aimed, options, lower, upper)
    with new_run("control", out) as folder:
        write_config(folder / "config.yaml", "control", options | {"out": None})
        if overlay:
            _draw(folder, inputs, found, progress)
        _write(folder, inputs, found, options, time.perf_counter() - started)
    return found, folder


def _images(options: dict[str, Any], _actions: Actions | None) -> tuple[Camera, Array, Clip]:
    """Camera, its pose and the image."""
    from vid2phys.io.array_clip import load_image_clip
    from vid2phys.io.camera import load_camera, require_pose, require_resolution

    clip = load_image_clip(options["clip"], 1, FPS)
    camera = load_camera(options["camera"], options["camera_pose"], size=(clip.width, clip.height))
    pose = require_pose(camera, options["camera_pose"] or options["camera"])
    require_resolution(camera, clip, options["camera"])
    return camera, pose, clip


def _limits(system: System, given: dict[str, tuple[float, float]]) -> tuple[Array, Array]:
    """Of all actions, [A] each; a rotor does not pull. Raises UsageError for unknown names and contradictions."""
    names = system.action_names
    lower, upper = np.full(len(names), -np.inf), np.full(len(names), np.inf)
    for index, name in enumerate(names):
        if name.startswith("thrust"):
            lower[index] = 0.0
    for name, (low, high) in given.items():
        if name not in names:
            raise unknown_name("action", name, names)
        if not low < high:
            raise UsageError(f"--limit {name}={low:g}..{high:g}", "a lower end below the upper", f"{name}=LOW..HIGH")
        lower[names.index(name)], upper[names.index(name)] = low, high
    return lower, upper


def read_target(inputs: Inputs) -> Target:
    """Where the body is in the image. Raises InputError where it is not visible."""
    try:
        return _configuration(inputs) if inputs.network.shape.kind != "rigid" else _pose(inputs)
    except InputError as error:
        raise InputError(
            f"the body is not seen in the target '{inputs.clip.name}' ({error.got})",
            "an image that shows it",
            "check --camera and --model, or film closer",
        ) from None


def _pose(inputs: Inputs) -> Target:
    from vid2phys.commands.identify import track_clip
    from vid2phys.geometry import invert_transform, make_transform, quat_from_matrix

    tracked = track_clip(inputs)
    seen = np.flatnonzero(tracked.tracked & np.isfinite(tracked.poses.translation).all(axis=1))
    if not len(seen):
        raise InputError("it could not be read", "a pose")
    at = int(seen[len(seen) // 2])
    in_camera = make_transform(tracked.poses.rotation[at], tracked.poses.translation[at])
    pose = inputs.camera_to_world @ in_camera
    points = tracked.observation.points_body
    std = np.sqrt(np.maximum(np.diagonal(tracked.poses.covariance[at]), 0.0))
    quat = quat_from_matrix(pose[:3, :3])
    quality = float(tracked.quality[at])
    described = {
        **{f"position_{axis}_m": float(value) for axis, value in zip("xyz", pose[:3, 3], strict=True)},
        **{f"orientation_quat_{axis}": float(value) for axis, value in zip("wxyz", quat, strict=True)},
        "depth_m": float(invert_transform(inputs.camera_to_world)[2] @ pose[:, 3]),
        "std_depth_m": float(std[5]),
        "quality": quality,
    }
    notes = []
    turns = len(inputs.network.rotations)
    if inputs.network.shape.exact or turns > 1:
        notes.append(f"the body looks the same, or nearly, in {turns} orientations: the one read "
                     "in a single image may be off by such a turn")  # fmt: skip
    goal = points @ pose[:3, :3].T + pose[:3, 3]
    known = float(np.linalg.norm(std[3:]))
    return Target(points, goal, described, known, inputs.network.radius_m, (*notes, *_doubts(quality)))


def _configuration(inputs: Inputs) -> Target:
    from vid2phys.commands.identify import track_configuration
    from vid2phys.risp.networks.articulated_bodies import body_of_model

    body = body_of_model(inputs.network, inputs.system)
    tracked = track_configuration(inputs, body)
    at = int(np.flatnonzero(tracked.tracked)[0])
    configuration, std = tracked.configurations[at], np.sqrt(np.diagonal(tracked.covariance[at]))
    quality = float(tracked.quality[at])
    described = {
        "configuration": dict(zip(body.names, map(float, configuration), strict=True)),
        "configuration_std": dict(zip(body.names, map(float, std), strict=True)),
        "quality": quality,
    }
    notes = (*tracked.notes, *_doubts(quality))
    slope = body.points_jacobian(configuration)
    known = float(np.sqrt(np.einsum("kxd,de,kxe->k", slope, tracked.covariance[at], slope).mean()))
    return Target(body.points_body, body.points(configuration), described, known, body.radius_m, notes)


def _doubts(quality: float) -> list[str]:
    if quality > _SURE_QUALITY:
        return []
    return [f"the network hardly recognised the body (quality {quality:.2f} of 1): look at the overlay"]


def _found(inputs: Inputs, aimed: Target, options: dict[str, Any], lower: Array, upper: Array) -> Controlled:
    from vid2phys.commands.simulation_inputs import initial_state
    from vid2phys.solvers import optimal_control
    from vid2phys.types import Actions, Trajectory

    system, parameters = inputs.system, inputs.known.parameters.vector
    steps = max(2, round(options["seconds"] * options["rate"]))
    step_s = np.full(steps, options["seconds"] / steps)
    hold = system.hover_controls(parameters)[: len(system.action_names)]
    start = initial_state(system, options["initial"] or {})
    aim = optimal_control.Aim(
        *(system, parameters, start, step_s, hold, lower, upper, aimed.points_body, aimed.goal, aimed.size_m),
        at_rest=not options["moving"],
    )
    reached = optimal_control.solve(aim)
    times = np.concatenate([[0.0], np.cumsum(step_s)])
    controls = np.zeros((steps, len(system.control_names)))
    controls[:, : len(hold)] = reached.actions
    actions = Actions(
        times[:-1], reached.actions, system.input, system.action_names, system.action_units, inputs.known.per_kilogram
    )
    trajectory = Trajectory(times, reached.states, system.state_names, controls)
    notes = [*inputs.known.notes, *inputs.warnings, *aimed.notes]
    change = float(
        np.abs(_points(aim, optimal_control.refined(aim, reached.actions)[-1]) - _points(aim, reached.states[-1])).max()
    )
    if change > 0.02 * aimed.size_m:
        notes.append(f"half the time step moves the end by {change:.2g} m: raise --rate")
    status = "reached" if reached.at_goal(aimed.std_m) else "missed"
    return Controlled(status, _message(reached, status), aimed, reached, trajectory, actions, tuple(notes))


def _points(aim: Any, state: Array) -> Array:
    return np.asarray(aim.system.keypoints(state[None], aim.points_body)[0], dtype=float)


def _message(reached: Reached, status: str) -> str:
    off = f"{reached.miss_m:.3g} m off on the mean, from {reached.before_m:.3g} m at the start"
    if status == "reached":
        return off
    cause = (
        f"{reached.at_limit:.0%} of the actions are at their limits: widen --limit, or give more --seconds"
        if reached.at_limit > 0.0
        else "these actions do not bring the body there: give more --seconds, --moving, or a target that it can take"
    )
    return f"the target is missed: {off}, {reached.miss_m / reached.size_m:.0%} of the body's size; {cause}"


def _draw(folder: Path, inputs: Inputs, found: Controlled, progress: Progress) -> None:
    """overlay.mp4: the target, and beside it the motion drawn over it, which ends where the image shows the body."""
    from vid2phys.commands.film import states_at
    from vid2phys.io.array_clip import image_clip
    from vid2phys.report.overlay import write_overlay
    from vid2phys.types import Trajectory

    seconds = float(found.trajectory.times_s[-1])
    frames = max(2, int(np.ceil(seconds * FPS - 1e-6)) + 1)
    times = np.minimum(np.arange(frames) / FPS, seconds)
    states = states_at(inputs.system, found.trajectory, times)
    image = next(iter(inputs.clip.frames))
    write_overlay(
        folder / "overlay.mp4",
        image_clip(image, frames, FPS, inputs.clip.name),
        replace(inputs.camera, camera_to_world=inputs.camera_to_world),
        inputs.mesh,
        inputs.system,
        Trajectory(np.arange(frames) / FPS, states, inputs.system.state_names),
        np.zeros(frames, dtype=bool),
        progress=lambda stage, done, total: progress("drawing overlay.mp4", done, total),
    )


def _write(folder: Path, inputs: Inputs, found: Controlled, options: dict[str, Any], seconds: float) -> None:
    from vid2phys.io.actions import save_actions
    from vid2phys.io.files import sha256
    from vid2phys.io.recordings import save_trajectory
    from vid2phys.io.run import versions, write_json

    save_trajectory(found.trajectory, folder / "trajectory.csv")
    save_actions(found.actions, folder / "actions.csv")
    paths = {name: options[name] for name in ("target", "mesh", "camera", "camera_pose", "params") if options[name]}
    files = ("trajectory.csv", "actions.csv", "config.yaml", "overlay.mp4")
    reached = found.reached
    data = {
        "schema": SCHEMA,
        "status": found.status,
        "message": found.message,
        "system": inputs.system.name,
        "target": found.target.described | {"std_m": found.target.std_m},
        "miss": {
            "rms_m": reached.miss_m,
            "share_of_size": reached.miss_m / reached.size_m,
            "at_start_m": reached.before_m,
            "speed": reached.speed,
        },
        "end": dict(zip(inputs.system.state_names, reached.states[-1], strict=True))
        if len(reached.states[-1]) < 100
        else {},
        "actions_at_limit": reached.at_limit,
        "iterations": reached.iterations,
        "notes": list(found.notes),
        "seconds": round(seconds, 2),
        "files": {name.split(".")[0]: name for name in files if (folder / name).exists()},
        "inputs": {name: {"path": str(path), "sha256": sha256(Path(path))} for name, path in paths.items()},
        "versions": versions(),
    }
    write_json(folder / "result.json", data)

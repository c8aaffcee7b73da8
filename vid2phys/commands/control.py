"""`vid2phys control`: actions that bring the body to the state in an image."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vid2phys.commands.configs import ControlConfig
from vid2phys.commands.control_contact import in_mesh_axes, on_ground
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.options import taking
from vid2phys.commands.progress import Progress, silent
from vid2phys.commands.system_choice import AUTO, SYSTEM_WITH_ACTIONS, system_of_body
from vid2phys.errors import InputError, UsageError, unknown_name
from vid2phys.notes import doubt, is_doubtful

if TYPE_CHECKING:
    from vid2phys.commands.identify.inputs import Filmed, Inputs
    from vid2phys.engine.system import System
    from vid2phys.solvers.optimal_control import Reached
    from vid2phys.tracking.track import Track
    from vid2phys.types import Actions, Array, Trajectory

SCHEMA = "vid2phys.control/1"
FPS = 25.0  # of overlay.mp4
_SURE_QUALITY = 0.5
_CHANCE = 0.05  # of errors alone that look like the way from the start to the goal, from which on they may be it


@dataclass(frozen=True)
class Target:
    """What the network detected in the image.

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
    """What was found: status `reached`, `missed` or `doubtful` (the goal), with a message, and the motion."""

    status: str
    message: str
    target: Target
    reached: Reached
    trajectory: Trajectory
    actions: Actions
    notes: tuple[str, ...]


@taking(ControlConfig, "target")
def control(config: ControlConfig, progress: Progress = silent) -> tuple[Controlled, Path]:
    """Find actions that bring a body from `initial` (default: at rest at the origin) to where `target` shows it.

    The options are those of `ControlConfig`: a config, or its fields as arguments. A rigid body touches nothing, unless
    its stiffness of contact is given (`control_contact`).

    Returns:
        What was found and the run folder: result.json, actions.csv, trajectory.csv, overlay.mp4. A goal that is not
        reached has the status `missed`. Where the image may not show the body as it was found, it is `doubtful`.

    Raises:
        InputError: for an image in which the body is not visible.
        Vid2PhysError: for anything else that a user can mend.
    """
    from vid2phys.commands.config import write_config
    from vid2phys.commands.identify.inputs import read_inputs
    from vid2phys.io.run import new_run

    started = time.perf_counter()
    for name, value in (("seconds", config.seconds), ("rate", config.rate)):
        if not (np.isfinite(value) and value > 0.0):
            raise UsageError(f"--{name} {value:g}", "a positive number", f"for example --{name} 1")
    progress("reading inputs")
    asked = _identify_config(config)
    asked.check_hints()
    inputs = read_inputs(asked, _read_image)
    found = solve(inputs, config, progress)
    with new_run("control", config.out) as folder:
        write_config(folder / "config.yaml", replace(config, out=None))
        if config.overlay:
            _draw(folder, inputs, found, progress)
        _write(folder, inputs, found, config, time.perf_counter() - started)
    return found, folder


def solve(inputs: Inputs, config: ControlConfig, progress: Progress = silent) -> Controlled:
    """Find actions for the inputs of one image, by the options of `config` but for its files. Raises as `control`."""
    from vid2phys.commands.simulation_inputs import initial_state

    lower, upper = _limits(inputs.system, config.limits)
    start = initial_state(inputs.system, config.initial)
    progress("estimating the target")
    aimed = read_target(inputs, start, config)
    progress("looking for actions")
    return _found(inputs, aimed, start, config, (lower, upper))


def _identify_config(config: ControlConfig) -> IdentifyConfig:
    """Return the config by which `identify` reads body, system, camera and the image, as a clip of one frame."""
    if config.camera is None:
        raise UsageError("no camera given", "--camera", "see `vid2phys control --help`")
    return IdentifyConfig(
        clip=config.target,
        mesh=config.mesh,
        body=config.body,
        camera=config.camera,
        camera_pose=config.camera_pose,
        system=_system(config),
        set_values=config.set_values,
        params=config.params,
        mesh_units=config.mesh_units,
        mesh_move=config.mesh_move,
        model=config.model,
        hint_box=None if config.hint_box is None else f"frame 0:{config.hint_box}",
    )


def _system(config: ControlConfig) -> str:
    """Return the name of the system: where the user names none, that of a robot, or one that takes actions."""
    if config.system != AUTO:
        return config.system
    return SYSTEM_WITH_ACTIONS if config.robot is None else system_of_body(config.body)


def _read_image(config: IdentifyConfig, _actions: Actions | None) -> Filmed:
    """Read the image, its camera and the camera's pose."""
    from vid2phys.commands.fit_parameters import listen
    from vid2phys.commands.identify.inputs import with_camera
    from vid2phys.io.array_clip import load_image_clip

    filmed, notes = listen(lambda: with_camera(config, load_image_clip(config.clips[0], 1, FPS)))
    return replace(filmed, notes=tuple(notes))


def _limits(system: System, given: dict[str, tuple[float, float]]) -> tuple[Array, Array]:
    """Return the limits of all actions, [A] each; a rotor does not pull.

    Raises UsageError for unknown names and contradictions.
    """
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


def read_target(inputs: Inputs, start: Array, config: ControlConfig) -> Target:
    """Return where the body is in the image. start: the state [N] from which it is to come.

    Raises InputError where it is not visible.
    """
    try:
        return _pose(inputs, start, config) if inputs.body is None else _configuration(inputs, start)
    except InputError as error:
        raise InputError(
            f"the body is not seen in the target '{inputs.clip.name}' ({error.got})",
            "an image that shows it",
            "check --camera and --model, show it by --hint-box, or film closer",
        ) from None


def _pose(inputs: Inputs, start: Array, config: ControlConfig) -> Target:
    from vid2phys.commands.identify.pipeline import track_frames
    from vid2phys.commands.identify.silhouette_doubts import silhouette_doubts
    from vid2phys.geometry import invert_transform, make_transform, quat_from_matrix

    before = inputs.warnings
    inputs, found = track_frames(inputs, _identify_config(config))
    tracked = cast("Track", found)
    seen = np.flatnonzero(tracked.tracked & np.isfinite(tracked.poses.translation).all(axis=1))
    if not len(seen):
        raise InputError("no pose was estimated", "a pose")
    at = int(seen[len(seen) // 2])
    in_camera = make_transform(tracked.poses.rotation[at], tracked.poses.translation[at])
    pose, alike = as_at_start(inputs, inputs.camera_to_world @ in_camera, tracked.branch_log_likelihood, start)
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
    goal = points @ pose[:3, :3].T + pose[:3, 3]
    known = float(np.linalg.norm(std[3:]))
    notes = [note for note in inputs.warnings if note not in before] + alike
    doubts = _doubts(quality) if inputs.untrained is None else silhouette_doubts(inputs, tracked)
    return Target(points, goal, described, known, inputs.mesh.radius_m, (*notes, *doubts))


def as_at_start(inputs: Inputs, pose: Array, evidence: Array, start: Array) -> tuple[Array, list[str]]:
    """Return the pose [4, 4] of a body in the world, and notes on its symmetry.

    Of the orientations that the image hardly tells apart, the one that is nearest to that of the start counts.
    evidence: log-likelihoods [G] of the symmetry elements, nats.
    """
    from vid2phys.commands.identify.fit import SURE_NATS
    from vid2phys.geometry import make_transform, matrix_from_quat
    from vid2phys.risp.shape.rotation_groups import offsets

    shape = inputs.shape
    assert shape is not None  # `control` takes no keypoints of the user
    if len(evidence) == 1:
        return pose, []
    elements = np.swapaxes(shape.rotations, -1, -2)  # as `identify` applies them to a pose
    poses = pose @ make_transform(elements, offsets(elements, shape.center))
    begin = matrix_from_quat(inputs.system.body_pose(start)[1])
    alike = np.einsum("ij,gij->g", begin, poses[:, :3, :3])
    open_ones = evidence > evidence.max() - SURE_NATS
    nearest = int(np.where(open_ones, alike, -np.inf).argmax())
    if open_ones.sum() == 1:
        return poses[nearest], []
    got = f"the body looks the same, or nearly, in {int(open_ones.sum())} orientations"
    return poses[nearest], [f"{got}: the one nearest to the start is the goal"]


def _configuration(inputs: Inputs, start: Array) -> Target:
    from vid2phys.commands.identify.pipeline import track_configuration

    body, tracked = inputs.body, track_configuration(inputs)
    assert body is not None
    at = int(np.flatnonzero(tracked.tracked)[0])
    configuration, std = tracked.configurations[at], np.sqrt(np.diagonal(tracked.covariance[at]))
    quality = float(tracked.quality[at])
    described = {
        "configuration": dict(zip(body.names, map(float, configuration), strict=True)),
        "configuration_std": dict(zip(body.names, map(float, std), strict=True)),
        "quality": quality,
    }
    change = body.difference(body.configurations(start), configuration)
    notes = (*tracked.notes, *_doubts(quality), *change_doubts(change, tracked.covariance[at]))
    slope = body.points_jacobian(configuration)
    known = float(np.sqrt(np.einsum("kxd,de,kxe->k", slope, tracked.covariance[at], slope).mean()))
    return Target(body.points_body, body.points(configuration), described, known, body.radius_m, notes)


def change_doubts(change: Array, covariance: Array) -> list[str]:
    """Return a doubt where a change of coordinates [D] is not larger than errors with a covariance [D, D] make it."""
    from scipy.stats import chi2

    if chi2.sf(float(change @ np.linalg.solve(covariance, change)), len(change)) < _CHANCE:
        return []
    return [doubt("the image hardly tells the goal from the start: all of the way may be an error of the estimate")]


def _doubts(quality: float) -> list[str]:
    if quality > _SURE_QUALITY:
        return []
    return [f"the network hardly recognised the body (quality {quality:.2f} of 1): look at the overlay"]


def _found(
    inputs: Inputs, aimed: Target, start: Array, config: ControlConfig, limits: tuple[Array, Array]
) -> Controlled:
    from vid2phys.solvers import optimal_control
    from vid2phys.types import Actions, Trajectory

    system, parameters = inputs.system, inputs.known.parameters.vector
    steps = max(2, round(config.seconds * config.rate))
    step_s = np.full(steps, config.seconds / steps)
    hold = system.hover_controls(parameters)[: len(system.action_names)]
    aim = optimal_control.Aim(
        *(system, parameters, start, step_s, hold, *limits, aimed.points_body, aimed.goal, aimed.size_m),
        at_rest=not config.moving,
    )
    aim = on_ground(inputs, aim)
    reached = optimal_control.solve(aim)
    change = float(
        np.abs(_points(aim, optimal_control.refined(aim, reached.actions)[-1]) - _points(aim, reached.states[-1])).max()
    )
    reached = in_mesh_axes(inputs, aim, reached)
    times = np.concatenate([[0.0], np.cumsum(step_s)])
    controls = np.zeros((steps, len(system.control_names)))
    controls[:, : len(hold)] = reached.actions
    actions = Actions(
        times[:-1], reached.actions, system.input, system.action_names, system.action_units, inputs.known.per_kilogram
    )
    trajectory = Trajectory(times, reached.states, system.state_names, controls)
    notes = [*inputs.known.notes, *inputs.warnings, *aimed.notes]
    if change > 0.02 * aimed.size_m:
        notes.append(f"half the time step moves the end by {change:.2g} m: raise --rate")
    sure = "doubtful" if is_doubtful(notes) else "reached"
    status = sure if reached.at_goal(aimed.std_m) else "missed"
    return Controlled(status, _message(reached, status), aimed, reached, trajectory, actions, tuple(notes))


def _points(aim: Any, state: Array) -> Array:
    return np.asarray(aim.system.keypoints(state[None], aim.points_body)[0], dtype=float)


def _message(reached: Reached, status: str) -> str:
    off = f"{reached.miss_m:.3g} m off on the mean, from {reached.before_m:.3g} m at the start"
    if status != "missed":
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


def _write(folder: Path, inputs: Inputs, found: Controlled, config: ControlConfig, seconds: float) -> None:
    from vid2phys.io.actions import save_actions
    from vid2phys.io.files import sha256
    from vid2phys.io.recordings import save_trajectory
    from vid2phys.io.run import versions, write_json

    save_trajectory(found.trajectory, folder / "trajectory.csv", inputs.system.control_names)
    save_actions(found.actions, folder / "actions.csv")
    named = ("target", "mesh", "camera", "camera_pose", "params")
    paths = {name: getattr(config, name) for name in named if getattr(config, name) is not None}
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
        "inputs": {name: {"path": str(path), "sha256": sha256(path)} for name, path in paths.items()},
        "versions": versions(),
    }
    write_json(folder / "result.json", data)

"""`vid2phys identify`: from a clip, a mesh and a camera to actions, trajectory and parameters with intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.commands.external_keypoints import check_given, given_track
from vid2phys.commands.fit import LEAST_FRAMES, solve
from vid2phys.commands.gradient_fit import check_options
from vid2phys.commands.multi_clip import PART, fit_several, joined, read_several, spread, write_several
from vid2phys.commands.progress import Progress, silent
from vid2phys.commands.system_choice import DEFAULT_SYSTEM, filmed_system, require_mesh, takes_actions
from vid2phys.errors import InputError

if TYPE_CHECKING:
    from vid2phys.commands.fit_parameters import Known
    from vid2phys.commands.priors import Priors
    from vid2phys.engine.movable.body import ArticulatedBody
    from vid2phys.engine.system import System
    from vid2phys.risp.networks.model import Model
    from vid2phys.tracking.articulated.tracker import ConfigurationTrack
    from vid2phys.tracking.track import Track
    from vid2phys.types import Actions, Array, Camera, Clip, Mesh, Result


@dataclass(frozen=True)
class Inputs:
    """Everything the user gave, read and checked. model: None where keypoints are given in its place.

    warnings: notes of everything but the clip, which has its own.
    """

    clip: Clip
    mesh: Mesh
    camera: Camera
    camera_to_world: Array
    system: System
    actions: Actions | None
    model: Model | None
    known: Known
    warnings: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader of a result is to know of the inputs."""
        return (*self.known.notes, *self.clip.notes, *self.warnings)

    @property
    def network(self) -> Model:
        """The model, for what cannot do without one."""
        assert self.model is not None
        return self.model

    @property
    def turns_alike(self) -> bool:
        """Whether nothing, neither shape nor paint, tells the body's look-alike orientations apart."""
        return self.model is not None and self.model.shape.exact and self.mesh.texture is None


def identify(
    clip: str | Path | Sequence[str | Path],
    mesh: str | Path | None,
    camera: str | Path | Sequence[str | Path],
    *,
    camera_pose: str | Path | Sequence[str | Path] | None = None,
    system: str = DEFAULT_SYSTEM,
    actions: str | Path | Sequence[str | Path] | None = None,
    fit: tuple[str, ...] = (),
    set_values: dict[str, float] | None = None,
    params: str | Path | None = None,
    priors: dict[str, tuple[float, float]] | None = None,
    bounds: dict[str, tuple[float, float]] | None = None,
    mesh_units: str = "m",
    mesh_move: str | None = None,
    model: str | Path | None = None,
    observation: str | Path | None = None,
    body_points: str | Path | None = None,
    method: str = "smoothing",
    loss: str = "keypoint",
    starts: int = 1,
    without: tuple[str, ...] = (),
    fps: float | Sequence[float] | None = None,
    stream: int | Sequence[int] | None = None,
    from_s: float | Sequence[float] | None = None,
    to_s: float | Sequence[float] | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    refine: bool = True,
    overlay: bool = True,
    progress: Progress = silent,
) -> tuple[Result, Path]:
    """Fit a physical system to a clip and write a run folder.

    Paths as on the command line; several clips of one body are fitted together, with a camera, a pose and actions that
    are one for all or one a clip. A clip may be a folder or a pattern of images, `fps` a second; `stream`, `from_s` and
    `to_s` select a part of a clip (`io.video.read_clip`); these four, too, are one for all or one a clip. mesh: None
    for a system on a known base (a hand, a rod), which has its own; `set_values` and `params` are known values in SI,
    `fit` names the parameters wanted, `priors` (mean and standard deviation) and `bounds` say what is held of them.
    `method` is the solver (smoothing, shooting, rmsprop, adam); the last two take any `loss`, all but smoothing several
    `starts`. Losses of images draw the body lit and in its mesh's colours, but for what is named in `without`
    (shading, texture). Without `actions` they are fitted, one for each frame interval. `observation` takes the place of
    the network: keypoints of another tracker (`io/keypoints.py`) with the file of the `body_points` that they show, or
    an earlier run's observation.npz; nothing is refined then. Returns the result and the folder. Raises Vid2PhysError
    for anything a user can mend; a fit that fails returns a Result whose status says so.
    """
    options: dict[str, Any] = {key: value for key, value in locals().items() if key != "progress"}
    from vid2phys.commands.config import write_config
    from vid2phys.io.run import new_run
    from vid2phys.memory import return_large_blocks
    from vid2phys.solvers import camera_parameters

    started = time.perf_counter()
    return_large_blocks()
    options["fit"] = fit = camera_parameters.expand_groups(tuple(fit))
    each = spread(options)
    check_options(
        *(method, loss, starts),
        actions=actions is not None,
        rigid=mesh is not None,
        thrown=not takes_actions(system),
        clips=len(each),
        of_image=tuple(name for name in fit if name in camera_parameters.NAMES),
        without=tuple(without),
    )
    check_given(observation, body_points, rigid=mesh is not None, loss=loss, clips=len(each))
    progress("reading inputs")
    several = read_several(each)
    require_frames(several)
    inputs = several[0]
    with new_run("identify", out) as folder:
        if len(several) > 1:
            result = joined(fit_several(several, options, progress))
        elif inputs.model is not None and inputs.model.shape.kind != "rigid":
            result = _identify_articulated(inputs, fit, refine, progress)
        else:
            if observation is None:
                tracked = track_clip(inputs, progress)
            else:
                tracked, notes = given_track(observation, body_points, inputs.clip, inputs.camera, inputs.mesh)
                inputs = replace(inputs, warnings=(*inputs.warnings, *notes))
            result = solve(
                *(inputs, tracked),
                fit=fit,
                method=method,
                loss=loss,
                starts=starts,
                without=tuple(without),
                seed=seed,
                refine=refine and observation is None,
                progress=progress,
            )
        result = with_cameras(result, several)
        write_config(folder / "config.yaml", "identify", options | {"out": None})
        seconds = time.perf_counter() - started
        if len(several) > 1:
            write_several(folder, result, several, each, seconds, progress)
        else:
            if overlay:
                draw_overlay(folder, result, inputs, progress)
            write_run(folder, result, inputs, each[0], seconds)
    return result, folder


def with_cameras(result: Result, several: Sequence[Inputs]) -> Result:
    """Add to the diagnostics, of each clip, what was read from its camera file."""
    from vid2phys.io.camera import describe

    lines = [{"camera": describe(inputs.camera)} for inputs in several]
    clips = [replace(one, diagnostics=line | one.diagnostics) for one, line in zip(result.clips, lines, strict=False)]
    return replace(result, diagnostics=lines[0] | result.diagnostics, clips=tuple(clips))


def read_inputs(
    options: dict[str, Any],
    images: Callable[[dict[str, Any], Actions | None], tuple[Camera, Array, Clip]] | None = None,
) -> Inputs:
    """Read and check all inputs, the cheap ones first. images: how camera, pose and clip are read, if not as a clip.

    Raises Vid2PhysError.
    """
    images = images or read_images
    from vid2phys.commands.fit_parameters import known_values, listen, read_parameters
    from vid2phys.engine import systems
    from vid2phys.io.mesh import load_mesh, mass_properties
    from vid2phys.io.simplify import simplified
    from vid2phys.risp.networks.model_lookup import find_model

    if require_mesh(systems.get(options["system"]), "identify", given=options["mesh"] is not None):
        return _read_articulated(options, images)
    given = (read_parameters(options["params"]) if options["params"] else {}) | (options["set_values"] or {})
    actions = _actions(options)
    mesh, warned = listen(lambda: load_mesh(options["mesh"], options["mesh_units"], move=options.get("mesh_move")))
    system = filmed_system(options["system"], mesh, actions, tuple(options["fit"]))
    properties, warned_of_mass = listen(lambda: mass_properties(mesh))
    mesh, warned_of_size = listen(lambda: simplified(mesh))  # to draw: the mass is that of the whole
    known = known_values(system, properties, given, tuple(options["fit"]), actions, _beliefs(options))
    (camera, pose, clip), warned_of_images = listen(lambda: images(options, actions))
    model = None
    if options["observation"] is None:
        read = {"mesh_path": options["mesh"], "units": options["mesh_units"], "move": options.get("mesh_move")}
        model = find_model(mesh, options["model"], system=options["system"], **read)
    notes = (*warned, *warned_of_mass, *warned_of_size, *warned_of_images)
    return Inputs(clip, mesh, camera, pose, system, actions, model, known, notes)


def _beliefs(options: dict[str, Any]) -> Priors:
    from vid2phys.commands.priors import Priors

    pairs = (
        {name: (float(a), float(b)) for name, (a, b) in (options[key] or {}).items()} for key in ("priors", "bounds")
    )
    return Priors(*pairs)


def _actions(options: dict[str, Any]) -> Actions | None:
    from vid2phys.io.actions import load_actions

    return load_actions(options["actions"]) if options["actions"] else None


def read_actions_of(system: System, options: dict[str, Any]) -> Actions | None:
    """The recorded actions of a further clip of a body that was read before."""
    if options["mesh"] is not None:
        return _actions(options)
    from vid2phys.commands.simulation_inputs import read_actions

    return read_actions(system, options["actions"], None)[1] if options["actions"] else None


def require_frames(several: Sequence[Inputs]) -> None:
    """Raises InputError when there are fewer frames than unknown parameters."""
    frames = sum(len(inputs.clip.times_s) for inputs in several)
    unknown = several[0].known.parameters.free_names
    if frames < len(unknown):
        raise InputError(f"{frames} frames and {len(unknown)} unknowns", "more frames than unknowns", "--fit fewer")


def read_images(options: dict[str, Any], actions: Actions | None) -> tuple[Camera, Array, Clip]:
    """Camera, its pose and the clip, which the actions have to cover."""
    from vid2phys.io.actions import require_cover
    from vid2phys.io.camera import load_camera, require_pose, require_resolution
    from vid2phys.io.video import read_clip

    clip = read_clip(options["clip"], **{name: options.get(name) for name in PART})
    camera = load_camera(options["camera"], options["camera_pose"], size=(clip.width, clip.height))
    pose = require_pose(camera, options["camera_pose"] or options["camera"])
    require_resolution(camera, clip, options["camera"])
    if len(clip.times_s) < LEAST_FRAMES:
        raise InputError(f"the clip has {len(clip.times_s)} frames", f"at least {LEAST_FRAMES}", "film longer")
    if actions is not None:
        require_cover(actions, clip, options["actions"])
    return camera, pose, clip


def _read_articulated(
    options: dict[str, Any], images: Callable[[dict[str, Any], Actions | None], tuple[Camera, Array, Clip]]
) -> Inputs:
    """Inputs for a system on a known base, whose mesh is its own. Raises Vid2PhysError."""
    from vid2phys.commands.fit_articulated import articulated_parameters
    from vid2phys.commands.fit_parameters import listen, read_parameters
    from vid2phys.engine import systems
    from vid2phys.risp.networks.model_lookup import find_model

    given = (read_parameters(options["params"]) if options["params"] else {}) | (options["set_values"] or {})
    system = systems.get(options["system"])
    assert system.surface is not None  # `require_mesh` says so
    actions = read_actions_of(system, options)
    known = articulated_parameters(system, given, tuple(options["fit"]), _beliefs(options))
    (camera, pose, clip), notes = listen(lambda: images(options, actions))
    model = find_model(system.surface, options["model"], system=options["system"])
    return Inputs(clip, system.surface, camera, pose, system, actions, model, known, tuple(notes))


def _identify_articulated(inputs: Inputs, fit: tuple[str, ...], refine: bool, progress: Progress) -> Result:
    from vid2phys.commands.fit_articulated import fit_articulated
    from vid2phys.risp.networks.articulated_bodies import body_of_model

    body = body_of_model(inputs.network, inputs.system)
    tracked = track_configuration(inputs, body, progress)
    return fit_articulated(inputs, body, tracked, fit=fit, refine=refine, progress=progress)


def track_configuration(inputs: Inputs, body: ArticulatedBody, progress: Progress = silent) -> ConfigurationTrack:
    """Read the configurations of a body on a known base through the clip."""
    from vid2phys.tracking.articulated.tracker import track_configurations

    share = lambda done: progress("tracking", round(100 * done), 100)  # noqa: E731
    return track_configurations(inputs.clip, inputs.camera, inputs.network, body, progress=share)


def track_clip(inputs: Inputs, progress: Progress = silent) -> Track:
    """Track the object through the clip. Raises InputError when it is found in no frame."""
    from vid2phys.risp.renders.viewpoints import tilt_spread
    from vid2phys.tracking.cues.texture import Paint
    from vid2phys.tracking.tracker import track

    return track(
        inputs.clip,
        inputs.camera,
        inputs.network,
        inputs.network.radius_m,
        tilt_std_rad=tilt_spread(inputs.system),
        mesh=inputs.mesh,
        paint=Paint.of(inputs.mesh, inputs.network.rotations, inputs.network.center),
        progress=lambda share: progress("tracking", round(100 * share), 100),
    )


def draw_overlay(folder: Path, result: Result, inputs: Inputs, progress: Progress = silent) -> None:
    """Write overlay.mp4 into the run folder."""
    from vid2phys.report.overlay import write_overlay

    lost = np.logical_not(result.observation.visible.any(axis=1))
    camera, mesh = _as_fitted(result, inputs)
    write_overlay(
        folder / "overlay.mp4",
        inputs.clip,
        camera,
        mesh,
        inputs.system,
        result.trajectory,
        lost,
        progress=lambda stage, done, total: progress("drawing overlay.mp4", done, total),
    )


def _as_fitted(result: Result, inputs: Inputs) -> tuple[Camera, Mesh]:
    """Camera and mesh, as the fit has them where it fitted them."""
    from vid2phys.solvers.camera_parameters import as_fitted

    camera = replace(inputs.camera, camera_to_world=inputs.camera_to_world)
    return as_fitted(camera, inputs.mesh, {p.name: p.value for p in result.parameters})


def write_run(
    folder: Path,
    result: Result,
    inputs: Inputs,
    options: dict[str, Any],
    seconds: float,
    *,
    config: str = "config.yaml",
) -> dict[str, Any]:
    """Write trajectory, actions, observation, result.json and the report into the run folder.

    A camera that was fitted is written too. config: where the run's config.yaml is, from the folder. Returns what
    result.json holds.
    """
    from vid2phys.io.actions import save_actions
    from vid2phys.io.camera import save_camera
    from vid2phys.io.recordings import save_observation, save_trajectory
    from vid2phys.io.run import validate_result, write_json
    from vid2phys.report.html import write_report
    from vid2phys.solvers.camera_parameters import observation_as_fitted

    files = {"trajectory": "trajectory.csv", "observation": "observation.npz", "config": config}
    save_trajectory(result.trajectory, folder / "trajectory.csv")
    save_observation(result.observation, folder / "observation.npz")
    if result.actions is not None:
        save_actions(result.actions, folder / "actions.csv", result.actions_std)
        files["actions"] = "actions.csv"
    if (folder / "overlay.mp4").exists():
        files["overlay"] = "overlay.mp4"
    files["report"] = "report.html"
    camera, _ = _as_fitted(result, inputs)
    values = {p.name: p.value for p in result.parameters}
    if any(p.source == "fitted" and p.name.startswith(("camera_", "focal")) for p in result.parameters):
        save_camera(camera, folder / "camera.yaml", ("as fitted by `vid2phys identify`",))
        files["camera"] = "camera.yaml"
    data = result_of(result, inputs, options, seconds, files)
    validate_result(data)
    overlay = folder / "overlay.mp4"
    write_report(
        folder / "report.html",
        replace(result, observation=observation_as_fitted(result.observation, values)),
        data,
        inputs.system,
        camera,
        overlay=overlay if overlay.exists() else None,
        title=inputs.clip.name,
    )
    write_json(folder / "result.json", data)
    return data


def result_of(
    result: Result, inputs: Inputs, options: dict[str, Any], seconds: float, files: dict[str, str]
) -> dict[str, Any]:
    """What result.json holds."""
    from vid2phys.io.run import result_to_json

    fit = {
        **{name: result.diagnostics.get(name) for name in ("loss", "rms_px", "iterations")},
        "seconds": round(seconds, 2),
        "frames_used": len(result.trajectory.times_s) - result.observation.frames_lost,
        "frames_lost": result.observation.frames_lost,
    }
    data = result_to_json(result, _input_files(options, inputs), fit, files, options["seed"])
    data["diagnostics"].pop("residual_px", None)
    return data


def _input_files(options: dict[str, Any], inputs: Inputs) -> dict[str, Any]:
    names = ("clip", "mesh", "camera", "camera_pose", "actions", "params", "observation", "body_points")
    paths = {name: Path(options[name]) for name in names if options[name] is not None}
    plain = {name: options[name] for name in ("system", "fit", "set_values", "mesh_units", "method", "loss", "starts")}
    plain["image_size"] = f"{inputs.clip.width}x{inputs.clip.height}"
    plain |= {name: options[name] for name in ("priors", "bounds", "without", "mesh_move") if options.get(name)}
    plain |= {name: options[name] for name in PART if options.get(name) is not None}
    return paths | {"model": None if inputs.model is None else inputs.model.folder} | plain

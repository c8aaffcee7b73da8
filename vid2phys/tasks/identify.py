"""`vid2phys identify`: from a clip, a mesh and a camera to actions, trajectory and parameters with intervals."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.errors import InputError, UsageError
from vid2phys.tasks.descend import check_options
from vid2phys.tasks.fit import LEAST_FRAMES, solve
from vid2phys.tasks.given_points import check_given, given_track
from vid2phys.tasks.progress import Progress, silent

if TYPE_CHECKING:
    from vid2phys.engine.system import System
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.tracking.tracked import Track
    from vid2phys.tasks.known_values import Known
    from vid2phys.types import Actions, Array, Camera, Clip, Mesh, Result


@dataclass(frozen=True)
class Inputs:
    """Everything the user gave, read and checked. model: None where keypoints are given in its place."""

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
    def network(self) -> Model:
        """The model, for what cannot do without one."""
        assert self.model is not None
        return self.model

    @property
    def turns_alike(self) -> bool:
        """Whether nothing, neither shape nor paint, tells the body's look-alike orientations apart."""
        return self.model is not None and self.model.shape.exact and self.mesh.texture is None


def identify(
    clip: str | Path,
    mesh: str | Path | None,
    camera: str | Path,
    *,
    camera_pose: str | Path | None = None,
    system: str = "quadrotor",
    actions: str | Path | None = None,
    fit: tuple[str, ...] = (),
    set_values: dict[str, float] | None = None,
    params: str | Path | None = None,
    mesh_units: str = "m",
    model: str | Path | None = None,
    observation: str | Path | None = None,
    body_points: str | Path | None = None,
    method: str = "smoothing",
    loss: str = "keypoint",
    starts: int = 1,
    out: str | Path | None = None,
    seed: int = 0,
    refine: bool = True,
    overlay: bool = True,
    progress: Progress = silent,
) -> tuple[Result, Path]:
    """Fit a physical system to a clip and write a run folder.

    Paths as on the command line; mesh: None for a system on a known base (a hand, a rod), which has its own;
    `set_values` and `params` are known values in SI, `fit` names the parameters wanted. `method` is the solver
    (smoothing, shooting, rmsprop, adam); the last two take any `loss`, all but smoothing several `starts`. Without
    `actions` they are fitted, one for each frame interval. `observation` takes the place of the network: keypoints of
    another tracker (`io/keypoints.py`) with the file of the `body_points` that they show, or an earlier run's
    observation.npz; nothing is refined then. Returns the result and the folder. Raises Vid2PhysError for
    anything a user can mend; a fit that fails returns a Result whose status says so.
    """
    from vid2phys.io.run import new_run
    from vid2phys.tasks.config import write_config

    options = {key: value for key, value in locals().items() if key not in ("progress", "new_run", "write_config")}
    started = time.perf_counter()
    check_options(method, loss, starts, actions=actions is not None, rigid=mesh is not None)
    check_given(observation, body_points, rigid=mesh is not None, loss=loss)
    progress("reading inputs")
    inputs = read_inputs(options)
    if inputs.model is not None and inputs.model.shape.kind != "rigid":
        result = _identify_posed(inputs, tuple(fit), progress)
    else:
        if observation is None:
            tracked = track_clip(inputs, progress)
        else:
            tracked, notes = given_track(observation, body_points, inputs.clip, inputs.camera, inputs.mesh)
            inputs = replace(inputs, warnings=(*inputs.warnings, *notes))
        result = solve(
            *(inputs, tracked),
            fit=tuple(fit),
            method=method,
            loss=loss,
            starts=starts,
            seed=seed,
            refine=refine and observation is None,
            progress=progress,
        )
    with new_run("identify", out) as folder:
        write_config(folder / "config.yaml", "identify", options | {"out": None})
        if overlay:
            draw_overlay(folder, result, inputs, progress)
        write_run(folder, result, inputs, options, time.perf_counter() - started)
    return result, folder


def read_inputs(options: dict[str, Any]) -> Inputs:
    """Read and check all inputs, the cheap ones first. Raises Vid2PhysError."""
    from vid2phys.io.actions import load_actions
    from vid2phys.io.mesh import load_mesh, mass_properties
    from vid2phys.io.simplify import simplified
    from vid2phys.risp.networks.find import find_model
    from vid2phys.tasks.known_values import known_values, listen, read_parameters

    if options["mesh"] is None:
        return _read_posed(options)
    given = (read_parameters(options["params"]) if options["params"] else {}) | (options["set_values"] or {})
    actions = load_actions(options["actions"]) if options["actions"] else None
    mesh, warned = listen(lambda: load_mesh(options["mesh"], options["mesh_units"]))
    system = _system(options["system"], mesh, actions)
    properties, warned_of_mass = listen(lambda: mass_properties(mesh))
    mesh, warned_of_size = listen(lambda: simplified(mesh))  # to draw: the mass is that of the whole
    known = known_values(system, properties, given, tuple(options["fit"]), actions)
    camera, pose, clip = _read_pictures(options, actions)
    model = None
    if options["observation"] is None:
        model = find_model(mesh, options["model"], mesh_path=options["mesh"], system=options["system"])
    return Inputs(clip, mesh, camera, pose, system, actions, model, known, (*warned, *warned_of_mass, *warned_of_size))


def _read_pictures(options: dict[str, Any], actions: Actions | None) -> tuple[Camera, Array, Clip]:
    """Camera, its pose and the clip, which the actions have to cover."""
    from vid2phys.io.actions import require_cover
    from vid2phys.io.camera import load_camera, require_pose, require_resolution
    from vid2phys.io.video import read_clip

    camera = load_camera(options["camera"], options["camera_pose"])
    pose = require_pose(camera, options["camera_pose"] or options["camera"])
    clip = read_clip(options["clip"])
    require_resolution(camera, clip, options["camera"])
    if len(clip.times_s) < LEAST_FRAMES:
        raise InputError(f"the clip has {len(clip.times_s)} frames", f"at least {LEAST_FRAMES}", "film longer")
    if actions is not None:
        require_cover(actions, clip, options["actions"])
    return camera, pose, clip


def _system(name: str, mesh: Mesh, actions: Actions | None) -> System:
    """The system as it is fitted to a clip. Raises UsageError for an unknown name and actions that it does not take.

    A rigid body is fitted free, with an unknown force and torque on it: contacts come out as forces.
    """
    from vid2phys.engine import systems
    from vid2phys.engine.systems.rigid_contact import RigidContact, Sphere

    if name == RigidContact.name:
        if actions is not None:
            raise UsageError(
                f"--actions for the system '{name}'", "no recorded actions", "leave them out: forces are fitted"
            )
        # without planes its shape touches nothing; inertia is set from the mesh, whose axes and origin are the state's
        return RigidContact((Sphere(float(np.linalg.norm(mesh.vertices, axis=1).max())),), planes=())
    return systems.get(name, **({"input": actions.kind} if actions is not None else {}))


def _read_posed(options: dict[str, Any]) -> Inputs:
    """Inputs for a system on a known base, whose mesh is its own. Raises Vid2PhysError."""
    from vid2phys.engine import systems
    from vid2phys.risp.networks.find import find_model
    from vid2phys.risp.posed.bodies import posed_kind
    from vid2phys.tasks.fit_posed import known_of_posed
    from vid2phys.tasks.known_values import read_parameters
    from vid2phys.tasks.simulation_inputs import read_actions

    given = (read_parameters(options["params"]) if options["params"] else {}) | (options["set_values"] or {})
    system = systems.get(options["system"])
    if posed_kind(system) == "rigid" or system.surface is None:
        raise UsageError(f"no --mesh for '{system.name}'", "the mesh of the body", "give --mesh")
    actions = read_actions(system, options["actions"], None)[1] if options["actions"] else None
    known = known_of_posed(system, given, tuple(options["fit"]), driven=actions is not None)
    camera, pose, clip = _read_pictures(options, actions)
    model = find_model(system.surface, options["model"], system=options["system"])
    return Inputs(clip, system.surface, camera, pose, system, actions, model, known, ())


def _identify_posed(inputs: Inputs, fit: tuple[str, ...], progress: Progress) -> Result:
    from vid2phys.risp.posed.bodies import body_of_model
    from vid2phys.risp.posed.track import track_postures
    from vid2phys.tasks.fit_posed import solve_posed

    body = body_of_model(inputs.network, inputs.system)
    share = lambda done: progress("tracking", round(100 * done), 100)  # noqa: E731
    tracked = track_postures(inputs.clip, inputs.camera, inputs.network, body, progress=share)
    return solve_posed(inputs, body, tracked, fit=fit, progress=progress)


def track_clip(inputs: Inputs, progress: Progress = silent) -> Track:
    """Track the object through the clip. Raises InputError when it is found in no frame."""
    from vid2phys.risp.pixels.paint import Paint
    from vid2phys.risp.renders.viewpoints import tilt_spread
    from vid2phys.risp.tracking.track import track

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
    write_overlay(
        folder / "overlay.mp4",
        inputs.clip,
        inputs.camera,
        inputs.mesh,
        inputs.system,
        result.trajectory,
        lost,
        progress=lambda stage, done, total: progress("drawing overlay.mp4", done, total),
    )


def write_run(folder: Path, result: Result, inputs: Inputs, options: dict[str, Any], seconds: float) -> None:
    """Write trajectory, actions, observation, result.json and the report into the run folder."""
    from vid2phys.io.actions import save_actions
    from vid2phys.io.recordings import save_observation, save_trajectory
    from vid2phys.io.run import result_to_json, validate_result, write_json
    from vid2phys.report.html import write_report

    files = {"trajectory": "trajectory.csv", "observation": "observation.npz", "config": "config.yaml"}
    save_trajectory(result.trajectory, folder / "trajectory.csv")
    save_observation(result.observation, folder / "observation.npz")
    if result.actions is not None:
        save_actions(result.actions, folder / "actions.csv", result.actions_std)
        files["actions"] = "actions.csv"
    if (folder / "overlay.mp4").exists():
        files["overlay"] = "overlay.mp4"
    files["report"] = "report.html"
    fit = {
        "loss": result.diagnostics["loss"],
        "rms_px": result.diagnostics["rms_px"],
        "iterations": result.diagnostics["iterations"],
        "seconds": round(seconds, 2),
        "frames_used": len(result.trajectory.times_s) - result.observation.frames_lost,
        "frames_lost": result.observation.frames_lost,
    }
    data = result_to_json(result, _input_files(options, inputs), fit, files, options["seed"])
    data["diagnostics"].pop("residual_px", None)
    validate_result(data)
    overlay = folder / "overlay.mp4"
    write_report(
        folder / "report.html",
        result,
        data,
        inputs.system,
        inputs.camera,
        overlay=overlay if overlay.exists() else None,
        title=inputs.clip.name,
    )
    write_json(folder / "result.json", data)


def _input_files(options: dict[str, Any], inputs: Inputs) -> dict[str, Any]:
    names = ("clip", "mesh", "camera", "camera_pose", "actions", "params", "observation", "body_points")
    paths = {name: Path(options[name]) for name in names if options[name] is not None}
    plain = {name: options[name] for name in ("system", "fit", "set_values", "mesh_units", "method", "loss", "starts")}
    return paths | {"model": None if inputs.model is None else inputs.model.folder} | plain

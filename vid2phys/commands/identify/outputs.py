"""Write the run folder of `identify`: trajectory, actions, observation, overlay, report and result.json.

A multi-clip run has a folder for each clip, in the form of a single run, and one result.json beside these folders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vid2phys.commands.configs import is_auto
from vid2phys.commands.identify.config import PART, IdentifyConfig
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.commands.progress import Progress, of_clip, silent

if TYPE_CHECKING:
    from vid2phys.types import Array, Camera, Mesh, Result

TRACKED_BY = "camera_of_observation.yaml"
_FILES = ("clip", "mesh", "camera", "camera_pose", "actions", "params", "observation", "body_points")
_ALWAYS = ("system", "fit", "set_values", "mesh_units", "method", "loss", "starts")
_WHERE_GIVEN = (
    *("priors", "bounds", "without", "undrawn", "body", "mesh_move", "base", "clamp", "load"),
    *("readout", "readout_from"),
)


def write(
    folder: Path,
    several: Sequence[Inputs],
    configs: Sequence[IdentifyConfig],
    result: Result,
    seconds: float,
    progress: Progress = silent,
) -> None:
    """Write the run folder; for several clips, write one folder a clip in it.

    seconds: duration of the fit.
    """
    if len(several) > 1:
        _write_several(folder, several, configs, result, seconds, progress)
        return
    if configs[0].overlay:
        draw_overlay(folder, result, several[0], progress)
    write_run(folder, result, several[0], configs[0], seconds)


def with_cameras(result: Result, several: Sequence[Inputs]) -> Result:
    """Return the result with a description of the camera among the diagnostics of each clip."""
    from vid2phys.io.camera import describe

    lines = [{"camera": describe(inputs.camera)} for inputs in several]
    clips = [replace(one, diagnostics=line | one.diagnostics) for one, line in zip(result.clips, lines, strict=False)]
    return replace(result, diagnostics=lines[0] | result.diagnostics, clips=tuple(clips))


def draw_overlay(folder: Path, result: Result, inputs: Inputs, progress: Progress = silent) -> None:
    """Write overlay.mp4 into the run folder."""
    from vid2phys.report.overlay import write_overlay

    lost = ~result.observation.seen
    camera, mesh = _as_fitted(result, inputs)
    write_overlay(
        folder / "overlay.mp4",
        inputs.clip,
        camera,
        mesh,
        inputs.system,
        result.trajectory,
        lost,
        mesh_of=_shown_meshes(result, inputs, camera, mesh),
        ground=_ground(result, inputs),
        progress=lambda stage, done, total: progress("drawing overlay.mp4", done, total),
    )


def _ground(result: Result, inputs: Inputs) -> Array | None:
    """Return lines [N, P, 3] m of the ground that impacts were fitted on, None where none were."""
    from vid2phys.engine.systems.rigid_contact import OF_GROUND, plane
    from vid2phys.report.ground_grid import ground_grid

    values = {p.name: p.value for p in result.parameters if p.name in OF_GROUND}
    if "impacts" not in result.diagnostics or len(values) < len(OF_GROUND):
        return None
    normal, offset = plane(values)
    places, _ = inputs.system.body_pose(result.trajectory.states)
    return ground_grid(normal, float(offset), places, inputs.mesh.radius_m)


def _shown_meshes(result: Result, inputs: Inputs, camera: Camera, mesh: Mesh) -> Callable[[int], Mesh] | None:
    """Return a function that gives the mesh as a frame of a rolling shutter shows it; None for other cameras."""
    from vid2phys.commands.identify.fit import poses_in_camera
    from vid2phys.tracking.rolling_shutter import meshes_of_frames

    if not camera.readout_s or camera.camera_to_world is None or inputs.body is not None:
        return None
    pose = poses_in_camera(inputs.system, camera.camera_to_world, result.trajectory.states)
    return meshes_of_frames(camera, mesh, pose, result.trajectory.times_s)


def _as_fitted(result: Result, inputs: Inputs) -> tuple[Camera, Mesh]:
    """Return camera and mesh with the fitted values of camera parameters and scale."""
    from vid2phys.solvers.camera_parameters import as_fitted

    camera = replace(inputs.camera, camera_to_world=inputs.camera_to_world)
    return as_fitted(camera, inputs.mesh, {p.name: p.value for p in result.parameters})


def write_run(
    folder: Path,
    result: Result,
    inputs: Inputs,
    asked: IdentifyConfig,
    seconds: float,
    *,
    config: str = "config.yaml",
) -> dict[str, Any]:
    """Write trajectory, actions, observation, result.json and the report into the run folder.

    A fitted camera and the poses of a camera that moves are written, too. config: path of the run's config.yaml,
    relative to the folder. Returns the content of result.json.
    """
    from vid2phys.io.actions import save_actions
    from vid2phys.io.camera import save_camera
    from vid2phys.io.camera_trajectory import tum
    from vid2phys.io.recordings import save_observation, save_trajectory
    from vid2phys.io.run import validate_result, write_json
    from vid2phys.report.html import write_report
    from vid2phys.solvers.camera_parameters import observation_as_fitted

    files = {"trajectory": "trajectory.csv", "observation": "observation.npz", "config": config}
    save_trajectory(result.trajectory, folder / "trajectory.csv", inputs.system.control_names)
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
        static = replace(camera, camera_to_world=None) if camera.moves else camera
        save_camera(static, folder / "camera.yaml", ("as fitted by `vid2phys identify`",))
        files["camera"] = "camera.yaml"
    if inputs.camera_estimate is not None:
        estimated = inputs.camera_estimate.with_errors(camera)
        save_camera(estimated, folder / "camera.yaml", ("as `vid2phys identify` estimated it from the motion",))
        tracked_by = ("by which observation.npz was measured, with the first estimate of its pose",)
        save_camera(inputs.camera, folder / TRACKED_BY, tracked_by)
        files |= {"camera": "camera.yaml", "camera_of_observation": TRACKED_BY}
    if camera.moves and camera.camera_to_world is not None:
        tum.save(folder / "camera_poses.txt", result.trajectory.times_s, camera.camera_to_world)
        files["camera_poses"] = "camera_poses.txt"
    data = result_of(result, inputs, asked, seconds, files, folder)
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
    result: Result, inputs: Inputs, asked: IdentifyConfig, seconds: float, files: dict[str, str], folder: Path
) -> dict[str, Any]:
    """Return the content of result.json. folder: of the run."""
    from vid2phys.io.run import result_to_json

    fit = {
        **{name: result.diagnostics.get(name) for name in ("loss", "rms_px", "iterations")},
        "seconds": round(seconds, 2),
        "frames_used": len(result.trajectory.times_s) - result.observation.frames_lost,
        "frames_lost": result.observation.frames_lost,
    }
    data = result_to_json(result, _inputs_of(asked, inputs, folder), fit, files, asked.seed)
    data["diagnostics"].pop("residual_px", None)
    return data


def _inputs_of(asked: IdentifyConfig, inputs: Inputs, folder: Path) -> dict[str, Any]:
    """Return the inputs as result.json names them: files as paths, the rest as they are.

    What the user did not give of the camera stands in a file of the run.
    """
    files = {name: getattr(asked, name) for name in _FILES if getattr(asked, name) is not None}
    if inputs.focal is not None:
        place = folder / TRACKED_BY if (folder / TRACKED_BY).exists() else None
        files["camera" if is_auto(asked.camera) else "camera_pose"] = place
    files |= {"model": None if inputs.model is None else inputs.model.folder}
    plain = {name: getattr(asked, name) for name in _ALWAYS}
    plain["image_size"] = f"{inputs.clip.width}x{inputs.clip.height}"
    plain |= {name: getattr(asked, name) for name in _WHERE_GIVEN if getattr(asked, name)}
    return files | plain | {name: value for name in PART if (value := getattr(asked, name)) is not None}


def _write_several(
    folder: Path,
    several: Sequence[Inputs],
    configs: Sequence[IdentifyConfig],
    result: Result,
    seconds: float,
    progress: Progress,
) -> None:
    """Write one folder a clip, and beside the folders a result.json of all clips."""
    from vid2phys.io.run import validate_result, write_json

    parts = []
    for g, (one, inputs, config) in enumerate(zip(result.clips, several, configs, strict=True)):
        place = folder / f"clip_{g + 1}"
        place.mkdir()
        if config.overlay:
            draw_overlay(place, one, inputs, of_clip(g, len(several), progress))
        data = write_run(place, one, inputs, config, seconds, config="../config.yaml")
        parts.append(
            {"clip": inputs.clip.name, "folder": place.name}
            | {name: data[name] for name in ("status", "message", "diagnostics", "fit", "files")}
        )
    data = result_of(result, several[0], configs[0], seconds, {"config": "config.yaml"}, folder)
    data["inputs"] |= {"clips": [str(config.clip) for config in configs]}
    data["fit"] |= {name: sum(part["fit"][name] for part in parts) for name in ("frames_used", "frames_lost")}
    data["clips"] = parts
    validate_result(data)
    write_json(folder / "result.json", data)

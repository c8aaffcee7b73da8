"""`vid2phys evaluate`: judge a run of identify against motion capture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vid2phys.commands.configs import EvaluateConfig
from vid2phys.commands.log_doubts import doubts_of_log
from vid2phys.commands.options import taking
from vid2phys.errors import InputError, UsageError, unknown_name
from vid2phys.io.camera import load_camera, parse_size
from vid2phys.io.mocap import load_mocap
from vid2phys.io.primitives import load_body
from vid2phys.io.run import load_observation, load_trajectory, newest_run, read_result, to_json, write_json
from vid2phys.io.yaml_files import read_yaml
from vid2phys.notes import ordered, warning
from vid2phys.report.alignment import Alignment, apply, find_time_offset, fit_transforms
from vid2phys.report.metrics import SymmetryGroup, summarize, symmetry_of
from vid2phys.types import Array, PoseLog

ALIGNMENTS = {"time": "time", "marker": "time+marker", "world": "time+marker+world"}
_MIN_FRAMES = 5
_BETTER = 5.0  # times: another alignment is named
_NEAR_M = 0.03  # errors below this need no other alignment
_NUMBERS = (
    "position_rmse_m",
    "lateral_rmse_m",
    "depth_rmse_m",
    "rotation_median_deg",
    "rotation_median_deg_up_to_symmetry",
    "rotation_rmse_deg",
    "rotation_rmse_deg_up_to_symmetry",
    "symmetry_turns",
    "within_5cm_5deg_fraction",
    "rpe_1s_m",
    "interval_coverage",
)


@dataclass(frozen=True)
class RunPoses:
    """What a run of identify says about the pose of the body, and the inputs that judging it needs.

    std: [T, 6] standard deviations, position [m] in the world and rotation [rad] in the body, or None.
    camera_position: [3] m, or None. symmetry: of the mesh, or None where it cannot be read.
    """

    poses: PoseLog
    std: Array | None
    tracked_fraction: float | None
    camera_position: Array | None
    symmetry: SymmetryGroup | None


@taking(EvaluateConfig, "run")
def evaluate(config: EvaluateConfig) -> tuple[dict[str, Any], Path]:
    """Compare a run (default: the newest of identify) with a motion capture log.

    The options are those of `EvaluateConfig`: a config, or its fields as arguments. `align`: `time` aligns the clocks
    alone; `marker` also the marker frame with the body's, `world` also the worlds. Rows in which the tracker had lost
    the body are skipped and counted; notes name options that fit the log better.

    Returns:
        The metrics (schema vid2phys.metrics/1) and the run's folder, into which metrics.json and evaluation.png go.

    Raises:
        InputError: when the logs do not overlap in time, or when the marker transform is asked for and the body turned
            by less than 20 degrees.
    """
    asked = _alignment_name(config.align)
    folder = newest_run() if config.run is None else config.run
    if (folder / "clip_1" / "result.json").is_file():
        raise UsageError(
            f"'{folder}' is a fit of several clips", "the folder of one", f"for example {folder / 'clip_1'}"
        )
    log = _load_log(config)
    estimate = load_run(folder)
    offset = find_time_offset(estimate.poses, log, world=asked == ALIGNMENTS["world"])
    _require_overlap(estimate, log, offset)
    columns: dict[str, dict[str, Any]] = {}
    alignments: dict[str, Alignment] = {}
    for name in ALIGNMENTS.values():
        try:
            alignments[name] = _align(estimate.poses, log, offset, name)
        except InputError as error:
            if name == asked:
                raise
            columns[name] = _refused(name, offset, estimate, str(error))
            continue
        columns[name] = _column(name, estimate, log, alignments[name])
    notes = doubts_of_log(estimate.poses, log, offset, _load_log, config)
    notes = notes or _better_alignment(asked, columns)
    of_log = {
        "log_rows": len(log.times_s),
        "log_rows_lost": sum(log.lost.values()),
        "notes": ordered([*_lost(log), *notes]),
    }
    metrics = to_json({"schema": "vid2phys.metrics/1", **columns.pop(asked), **of_log, "also": columns})
    write_json(folder / "metrics.json", metrics)
    if config.plots:
        from vid2phys.report.evaluation_plots import plot_evaluation

        truths = {name: apply(alignment, log, estimate.poses.times_s) for name, alignment in alignments.items()}
        plot_evaluation(folder / "evaluation.png", estimate.poses, truths, asked, estimate.camera_position)
    return metrics, folder


def _load_log(config: EvaluateConfig) -> PoseLog:
    """Read the motion capture log."""
    return load_mocap(
        config.mocap,
        body=config.body,
        units=config.units,
        up_axis=config.up_axis,
        euler=config.euler,
        angle_units=config.angle_units,
    )


def _lost(log: PoseLog) -> list[str]:
    """Return a note on the rows in which the tracker had lost the body."""
    if not log.lost:
        return []
    parts = ", ".join(f"{count} {what}" for what, count in log.lost.items())
    return [f"{sum(log.lost.values())} of {len(log.times_s)} rows of the log are lost and skipped: {parts}"]


def _better_alignment(asked: str, columns: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    """Return a note that names another alignment, where the log fits far better with it."""
    found = {name: column["position_rmse_m"] for name, column in columns.items() if "refused" not in column}
    for option, name in ALIGNMENTS.items():
        if name in found and found[name] < found[asked] / _BETTER and found[asked] > _NEAR_M:
            numbers = f"{1e3 * found[name]:.1f} mm instead of {1e3 * found[asked]:.1f} mm"
            frames = "its world is not the camera's" if option == "world" else "its marker is not at the body's origin"
            return (warning(f"with --align {option} the log fits to {numbers}: {frames}"),)
    return ()


def load_run(folder: Path) -> RunPoses:
    """The poses of a run of identify. Raises InputError when the folder holds no such run, or one without poses."""
    from vid2phys.engine import systems

    result = read_result(folder)
    system, trajectory = systems.get(result["system"]), load_trajectory(folder / "trajectory.csv")
    if "orientation_quat_w" not in system.state_names:
        got = f"a run of '{system.name}', whose states are no pose of a body"
        raise InputError(got, "a run of a free body", "compare the columns of trajectory.csv with the log")
    if trajectory.state_names != system.state_names:
        got = f"'{folder / 'trajectory.csv'}' has other columns than the states of '{system.name}'"
        raise InputError(got, "the two files of one run", "run identify again")
    positions, quats = system.body_pose(trajectory.states)
    std = None
    if trajectory.covariance is not None:
        std = np.sqrt(np.diagonal(trajectory.covariance, axis1=1, axis2=2))[:, :6]
    tracked = None
    if (folder / "observation.npz").is_file():
        tracked = float(load_observation(folder / "observation.npz").seen.mean())
    inputs = _inputs(folder, result)
    return RunPoses(
        PoseLog(trajectory.times_s, positions, quats, folder.name),
        std,
        tracked,
        _camera_position(inputs),
        _symmetry(inputs),
    )


def _alignment_name(align: str) -> str:
    if align in ALIGNMENTS:
        return ALIGNMENTS[align]
    if align in ALIGNMENTS.values():
        return align
    raise unknown_name("alignment", align, tuple(ALIGNMENTS))


def _inputs(folder: Path, result: dict[str, Any]) -> dict[str, str]:
    """Paths and other texts among the options of a run, from its config.yaml, else from result.json."""
    inputs = {
        name: value["path"] if isinstance(value, dict) and "path" in value else value
        for name, value in result["inputs"].items()
    }
    if (folder / "config.yaml").is_file():
        options = read_yaml(folder / "config.yaml", "the config.yaml of a run of identify")
        inputs |= options if isinstance(options, dict) else {}
    return {str(name): value for name, value in inputs.items() if isinstance(value, str)}


def _camera_position(inputs: dict[str, str]) -> Array | None:
    """Where the camera is; None when its file is no longer there."""
    from vid2phys.commands.fit_parameters import listen

    size = parse_size(inputs["image_size"]) if "image_size" in inputs else None
    try:
        camera, _ = listen(lambda: load_camera(inputs["camera"], inputs.get("camera_pose"), size=size))
    except (InputError, KeyError):
        return None
    return None if camera.camera_to_world is None else camera.camera_to_world[:3, 3]


def _symmetry(inputs: dict[str, str]) -> SymmetryGroup | None:
    """The turns that leave the mesh as it looks; None when its file is no longer there."""
    from vid2phys.commands.fit_parameters import listen

    units, move = inputs.get("mesh_units") or "m", inputs.get("mesh_move")
    try:
        mesh, _ = listen(lambda: load_body(inputs.get("mesh"), inputs.get("body"), units, move))  # identify has said it
    except (InputError, UsageError):
        return None
    return symmetry_of(mesh)


def _require_overlap(estimate: RunPoses, log: PoseLog, offset_s: float) -> None:
    _, _, seen = apply(Alignment(offset_s), log, estimate.poses.times_s)
    if seen.sum() < _MIN_FRAMES:
        raise InputError(
            f"the log covers {int(seen.sum())} of {len(seen)} frames",
            f"at least {_MIN_FRAMES}",
            "check that the log belongs to this clip",
        )


def _align(estimate: PoseLog, log: PoseLog, offset_s: float, name: str) -> Alignment:
    return fit_transforms(estimate, log, offset_s, marker="marker" in name, world="world" in name)


def _column(name: str, estimate: RunPoses, log: PoseLog, alignment: Alignment) -> dict[str, Any]:
    truth = apply(alignment, log, estimate.poses.times_s)
    numbers = summarize(
        estimate.poses,
        truth,
        std=estimate.std,
        camera_position=estimate.camera_position,
        symmetry=estimate.symmetry,
    )
    column: dict[str, Any] = {
        **numbers,
        "frames_tracked_fraction": estimate.tracked_fraction,
        "time_offset_s": alignment.time_offset_s,
        "alignment": name,
        "frames": int(truth[2].sum()),
    }
    if alignment.marker_covariance is not None:
        column["marker_in_body"] = {
            "rotation_vector_rad": alignment.marker_in_body[:3],
            "translation_m": alignment.marker_in_body[3:],
            "covariance": alignment.marker_covariance,
        }
    if "world" in name:
        rotation, translation = alignment.mocap_to_world[:3], alignment.mocap_to_world[3:]
        column["mocap_to_world"] = {"rotation_vector_rad": rotation, "translation_m": translation}
    return column


def _refused(name: str, offset_s: float, estimate: RunPoses, reason: str) -> dict[str, Any]:
    """The column of an alignment that this motion does not determine: no numbers, and why."""
    return {
        **dict.fromkeys(_NUMBERS),
        "frames_tracked_fraction": estimate.tracked_fraction,
        "time_offset_s": offset_s,
        "alignment": name,
        "frames": 0,
        "refused": reason,
    }

"""The Python API: the commands as functions, with what they find as dataclasses of arrays, and plots for notebooks.

    import vid2phys

    run = vid2phys.identify("clip.mp4", "quad.obj", "cam.yaml", actions="thrust.csv", fit=("mass",))
    run["mass"].value, run["mass"].ci95
    run.trajectory.times_s, run.positions_m
    run.plot_trajectory()

Errors that a user can mend are `vid2phys.Vid2PhysError`s, and say how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, wraps
from html import escape
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from vid2phys.commands import evaluate as _evaluate
from vid2phys.commands.batch import Outcome, batch
from vid2phys.commands.calibrate import calibrate
from vid2phys.commands.configs import CalibrateConfig, EvaluateConfig, FitRecordingConfig, SimulateConfig, TrainConfig
from vid2phys.commands.fit_recording import fit_recording
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.pipeline import identify as _identify
from vid2phys.commands.simulate import simulate
from vid2phys.commands.train_risp import train_risp
from vid2phys.errors import InputError
from vid2phys.types import Actions, Array, Camera, Estimate, Observation, Result, Trajectory

if TYPE_CHECKING:
    from vid2phys.engine.system import System
    from vid2phys.report.figures import Plot

P = ParamSpec("P")

__all__ = [
    "CalibrateConfig",
    "EvaluateConfig",
    "Evaluation",
    "FitRecordingConfig",
    "IdentifyConfig",
    "Outcome",
    "Run",
    "SimulateConfig",
    "TrainConfig",
    "batch",
    "calibrate",
    "evaluate",
    "fit_recording",
    "identify",
    "load_run",
    "simulate",
    "train_risp",
]


@dataclass(frozen=True)
class Evaluation:
    """How a run compares with motion capture: errors in metres and degrees for the alignment that was asked for.

    interval_coverage: share of the true poses within their 95 % intervals. also: the same numbers, by name, for the
    other alignments. folder: where metrics.json and evaluation.png are. A number that the motion does not determine is
    None.
    """

    alignment: str
    position_rmse_m: float | None
    lateral_rmse_m: float | None
    depth_rmse_m: float | None
    rotation_median_deg: float | None
    rotation_median_deg_up_to_symmetry: float | None
    rpe_1s_m: float | None
    interval_coverage: float | None
    time_offset_s: float
    frames: int
    also: dict[str, dict[str, Any]] = field(repr=False)
    folder: Path


@dataclass(frozen=True)
class Run:
    """A run of identify: what was found, and the folder that holds it. `run["mass"]` is an `Estimate`.

    In a notebook it shows itself as its table of parameters.
    """

    folder: Path
    result: Result

    def __getitem__(self, name: str) -> Estimate:
        for estimate in self.result.parameters:
            if estimate.name == name:
                return estimate
        raise KeyError(f"{name}: one of {', '.join(estimate.name for estimate in self.result.parameters)}")

    @property
    def converged(self) -> bool:
        """Whether the fit succeeded; else `message` says what to do."""
        return self.result.status.key == "converged"

    @property
    def message(self) -> str:
        """How the fit ended, in words."""
        return ": ".join(text for text in (self.result.status.value, self.result.message) if text)

    @property
    def trajectory(self) -> Trajectory:
        """States [T, N] at the frames, with their covariances."""
        return self.result.trajectory

    @property
    def actions(self) -> Actions | None:
        """Actions [T - 1, M], recorded or fitted."""
        return self.result.actions

    @property
    def observation(self) -> Observation:
        """What was seen: bearings [T, K, 2] of keypoints and their errors."""
        return self.result.observation

    @property
    def positions_m(self) -> Array:
        """Where the body's origin is in the world, [T, 3] m."""
        return self.system.body_pose(self.trajectory.states)[0]

    @property
    def orientation_quat_wxyz(self) -> Array:
        """Body to world, [T, 4]."""
        return self.system.body_pose(self.trajectory.states)[1]

    @cached_property
    def system(self) -> System:
        """The physical system. Raises InputError where it follows from a file of the body that is no longer there, and
        for soft bodies, whose states are modes of one fit.
        """
        from vid2phys.engine import systems
        from vid2phys.io.run import read_result

        name, states = self.result.system, self.trajectory.state_names
        if (usual := systems.get(name)).state_names == states:
            return usual
        body = read_result(self.folder)["inputs"].get("body")
        path = body["path"] if isinstance(body, dict) else body
        if path is not None and Path(path).is_file() and systems.file_reader(name) is not None:
            own = systems.from_file(name, path)
            if own.state_names == states:
                return own
        got = f"a run of '{name}' with the states {', '.join(states[:3])}"
        raise InputError(got, f"the states of the body in '{path}'", "use trajectory and result, which need no body")

    @cached_property
    def camera(self) -> Camera:
        """The camera that the run was made with. Raises InputError when its file is no longer there."""
        from vid2phys.io.camera import load_camera, parse_size
        from vid2phys.io.camera._parse import read_source
        from vid2phys.io.camera_trajectory import tum
        from vid2phys.io.run import read_result

        data = read_result(self.folder)
        inputs, poses = data["inputs"], data["files"].get("camera_poses")
        pose, size = None if poses else inputs.get("camera_pose"), inputs.get("image_size")
        camera = load_camera(inputs["camera"]["path"], pose and pose["path"], size=parse_size(size) if size else None)
        if poses is None:
            return camera
        return replace(camera, camera_to_world=tum.load(read_source(self.folder / poses)).poses)

    def plot_trajectory(self) -> Plot:
        """Position and rotation, or joints, over time, with 95 % bands."""
        from vid2phys.engine import systems
        from vid2phys.report.figures import Plot
        from vid2phys.report.fit_charts import trajectory_chart

        return Plot(trajectory_chart(self.result, systems.get(self.result.system)))

    def plot_actions(self) -> Plot:
        """Actions over time, with 95 % bands where they were fitted. Raises ValueError when there are none."""
        from vid2phys.report.figures import Plot
        from vid2phys.report.fit_charts import actions_chart

        if self.result.actions is None:
            raise ValueError("this run has no actions")
        return Plot(actions_chart(self.result.actions, self.result.actions_std))

    def plot_residuals(self) -> Plot:
        """What is left between measurement and fit, over time. Raises ValueError when nothing was measured."""
        from vid2phys.report.figures import Plot
        from vid2phys.report.fit_charts import residual_chart

        chart = residual_chart(self.result, self.system, self.camera)
        if chart is None:
            raise ValueError("no frame of this run shows the body")
        return Plot(chart)

    def plot_posterior(self) -> Plot:
        """Density of each fitted parameter, and where pairs lie together. Raises ValueError when none was fitted."""
        from vid2phys.report.figures import Plot
        from vid2phys.report.fit_charts import posterior_chart

        if self.result.posterior is None:
            raise ValueError("this run has no fitted parameters that the clip determines")
        return Plot(posterior_chart(self.result.posterior, self.result.priors))

    def evaluate(self, mocap: str | Path, **options: Any) -> Evaluation:
        """Compare with a motion capture log; options as those of `vid2phys.evaluate`."""
        return evaluate(self.folder, mocap=Path(mocap), **options)

    def save_keypoints(self, path: str | Path, body_points: str | Path) -> None:
        """Write what was seen as the two CSVs that `identify(observation=..., body_points=...)` takes."""
        from vid2phys.commands.identify.external_keypoints import to_keypoints
        from vid2phys.io.keypoints import save_keypoints
        from vid2phys.io.points import save_body_points

        keypoints = to_keypoints(self.observation, self.camera)
        save_keypoints(keypoints, self.observation.times_s, path)
        save_body_points(dict(zip(keypoints.names, self.observation.points_body, strict=True)), body_points)

    def _repr_html_(self) -> str:
        from vid2phys.commands.show import format_interval, format_value, note

        cells = [(e.name, format_value(e.value), e.unit, format_interval(e), note(e)) for e in self.result.parameters]
        rows = ["".join(f"<td>{escape(text)}</td>" for text in row) for row in cells]
        head = "<th>parameter</th><th>value</th><th>unit</th><th>95 % interval</th><th></th>"
        table = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<p>{escape(self.message)}</p><table><tr>{head}</tr>{table}</table><p>{escape(str(self.folder))}</p>"


def _as_run(function: Callable[P, tuple[Result, Path]]) -> Callable[P, Run]:
    """The same function, giving a `Run`."""

    @wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> Run:
        result, folder = function(*arguments, **options)
        return Run(folder, result)

    run.__signature__ = signature(function).replace(return_annotation="Run")  # type: ignore[attr-defined]
    return run


identify = _as_run(_identify)


def load_run(folder: str | Path) -> Run:
    """A run of identify from its folder. Correlations between coordinates of a state are not kept on disk.

    Raises InputError when the folder holds no such run.
    """
    from vid2phys.io.recordings import load_observation
    from vid2phys.io.run import load_trajectory, read_result, result_of_json

    folder = Path(folder)
    data, trajectory = read_result(folder), load_trajectory(folder / "trajectory.csv")
    actions, std = _load_actions(folder / "actions.csv", data["system"])
    return Run(folder, result_of_json(data, trajectory, actions, std, load_observation(folder / "observation.npz")))


def evaluate(run: Run | str | Path | None = None, *, mocap: str | Path, **options: Any) -> Evaluation:
    """Compare a run (default: the newest in ./runs) with a motion capture log; see `vid2phys.commands.evaluate`.

    Options: align (time, marker, world), body, units, up_axis, euler, angle_units, plots.
    """
    folder = run.folder if isinstance(run, Run) else None if run is None else Path(run)
    metrics, folder = _evaluate.evaluate(folder, mocap=Path(mocap), **options)
    return Evaluation(**{f.name: metrics[f.name] for f in fields(Evaluation) if f.name != "folder"}, folder=folder)


def _load_actions(path: Path, system: str) -> tuple[Actions | None, Array | None]:
    """Actions that a run wrote and their standard deviations; None for what it did not write."""
    from vid2phys.engine import systems
    from vid2phys.io.actions import load_actions, load_actions_std, written_units

    if not path.is_file():
        return None, None
    actions = load_actions(path, None if systems.get(system).capabilities.inputs else written_units(path))
    return actions, load_actions_std(path, actions)

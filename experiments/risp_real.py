"""RISP's real-world experiment (Ma, Du et al., ICLR 2022, figures 4 and 5): the actions behind a flight that was flown.

144 frames at 10 Hz of a recorded flight, each method's motion judged by motion capture and drawn as a film strip. The
motion is real and its pixels are path-traced with a look never trained on (`test_renderer`), since no video was
recorded.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments import footage
from experiments.bodies import RIGID_DETECTION, RIGID_TRACKING, Entry
from experiments.body_adapter import RenderPlan
from experiments.experiments import nothing_seen
from experiments.flight_clip import FlightClip
from experiments.flights import load_flight, recorded
from experiments.identification import attempt
from experiments.methods import QUICK_RENDERS, Learnt, Recipe, effort, train, with_learning_rate
from experiments.panels import draw_strips
from experiments.result_cache import Cell, Rows, assembled, missing_row
from experiments.rigid import RigidAdapter, at_plausible_place, estimate_pose
from experiments.risp_table1 import recipes
from experiments.smooth_reference import smooth_reference
from experiments.table import Setting, Table, row
from experiments.weights import state_model
from vid2phys.engine.control import tracking_actions
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.errors import InputError
from vid2phys.geometry import matrix_from_quat
from vid2phys.io.files import sha256, write_bytes
from vid2phys.risp.networks.model import Model
from vid2phys.risp.networks.model_lookup import find_model
from vid2phys.solvers import input_estimation, losses
from vid2phys.solvers.gradient import ITERATIONS
from vid2phys.solvers.input_estimation import InputProblem, Numbers
from vid2phys.solvers.losses import Evidence
from vid2phys.solvers.network_outputs import of_state_model
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array, Parameters

NAME, BODY, BODIES = "risp-real", "crazyflie", ("crazyflie",)
METHODS = ("controller", "controller-mocap", "risp", "gradsim", "gradsim-enhanced", "ours")
VERSION = 1  # raise when rows are made in another way
LOG, MESH = "data/crazyflie_flights/log183.csv", "clips/quad_log203/mesh.obj"
RATE_HZ, FRAMES, QUICK_FRAMES = 10.0, 144, 24
IMAGES, HELD_OUT = 10_000, 0.2  # of RISP's network: renders, and the share of them that it is judged by
_VIEW_PX = 96  # of methods that compare pixels
_THRUST, _TURN_RAD_S2 = 4.0, 500.0  # limits: in weights, and of angular acceleration
_QUICK_ITERATIONS = 10
_UNITS = {
    **{"position_error": "mm", "sideways_error": "mm", "depth_error": "mm"},
    **{"rotation_error": "deg", "rotation_error_up_to_symmetry": "deg", "pixel_difference": "1"},
    **{"thrust_error": "N", "torque_error": "N m", "fit": "s"},
}
_NOTES = [
    f"Flight log183 of a Crazyflie 2.1 (crazyswarm2-tools), {FRAMES} frames at {RATE_HZ:g} Hz; a quick run takes the "
    f"first {QUICK_FRAMES}. Motion, attitude and commands are recorded. The pixels are not: frames are path-traced "
    "along the recorded motion with a look that no network was trained on, because RISP's own clip is not published.",
    "Errors are root mean squares over all frames, against the motion capture on the clip's clock; sideways and in "
    "depth as the camera sees it. `rotation_error_up_to_symmetry`: by the best of the mesh's turns for the clip, which "
    "is nearly the same after a quarter turn.",
    "`pixel_difference`: mean absolute difference (of 1) between the clip and the motion drawn into it, in colours "
    "that explain the clip at the recorded poses, the same for all methods, over views twice as wide as usual. The "
    "film strips show these drawings.",
    "`controller`: a handcrafted tracking controller (Lee et al., CDC 2010) along the places and headings that RISP's "
    "network reads frame by frame, smoothed by splines with cross-validation; its actions are where `risp` and "
    "`gradsim` start. `controller-mocap` follows motion capture, and is where `gradsim-enhanced` starts.",
    f"`risp` compares what its network reads in the clip and in the rendered simulation. The network is `paper` of "
    f"`risp-table1` (width 32, 64 px), trained on {IMAGES} renders of this mesh, {HELD_OUT:.0%} of them held out. "
    "`gradsim` compares pixels. Both draw a grey body, and know nothing of the true look. `gradsim-enhanced` compares "
    "pixels of a body in colours that explain the clip best at the recorded poses, which is more than tuning by hand "
    "can reach. All three know the background, and move the actions of all frames by RMSProp, as `pixel` and `paper` "
    "of `risp-table3`. A step moves the body by about as much whenever it acts: an action of the first frame would "
    "else carry it metres away.",
    "`ours`: tracker and smoothing as in `vid2phys identify` without actions, by the project's model of the mesh; it "
    "is told neither the background nor where the body is. The other methods look where a tracker would, a few per "
    "cent off. Mass (by the flight's settings) and inertia are known to all.",
    "`thrust_error`, `torque_error`: of mean actions of frames against what the flight's controller asked for. The "
    "thrust of this log is not calibrated, so that what was asked for is scaled to carry the weight in the mean; "
    "torques are as they were asked for: some ten times those that the motion takes, against disturbances that no "
    "video shows.",
]


@dataclass(frozen=True)
class Estimate:
    """What a method estimates of the clip. states: [F, 13]. actions: [F - 1, 4], thrust [N] and torques [N m].

    seconds: of a search. failure: why it ended at its start, or None.
    """

    states: Array
    actions: Array
    seconds: float | None = None
    failure: str | None = None


def run(setting: Setting) -> Table:
    """Fills the cells that are asked for and makes the table of all that are filled; the others are named.

    Raises InputError when the recorded flights are not there.
    """
    began = time.monotonic()
    bench = Bench(setting)
    cells = {method: bench.cell(method) for method in METHODS}
    reasons: dict[str, str] = {}
    for method, cell in cells.items():
        if cell.is_asked and cell.rows() is None:
            setting.progress.note(cell.name)
            try:
                bench.fill(cell)
            except InputError as error:
                reasons[method] = str(error)
    shown = {method: states for method, cell in cells.items() if (states := kept(cell)) is not None}
    return assembled(
        list(cells.values()),
        _NOTES,
        lambda cell: missing_row(cell, "position_error", reasons.get(cell.method)),
        lambda rows, path: draw_strips(*bench.clip.strips(shown), path),
        began,
    )


class Bench:
    """The flight, its clip, and what methods do with it. A quick one has fewer frames and a network hardly trained."""

    def __init__(self, setting: Setting) -> None:
        from vid2phys.io.mesh import load_mesh

        self.setting, self.log = setting, recorded(LOG)
        mesh = load_mesh(recorded(MESH), "m")
        self.flight = load_flight(self.log, QUICK_FRAMES if setting.quick else FRAMES, RATE_HZ)
        self.folder, spp = setting.work / BODY, 8 if setting.quick else 64

        def report(done: int, total: int) -> None:
            setting.progress.step("video of the flight", done, total)

        self.clip = FlightClip(self.flight, mesh, self.folder, spp, setting.seed, report)
        self.system, self.parameters = self.clip.system, self.clip.parameters
        self.adapter = RigidAdapter(BODY, mesh, self.system, np.nan, "")
        self.recipe = recipe(setting.quick)

    def cell(self, method: str) -> Cell:
        """Where the rows of a method are kept."""
        entry = Entry(BODY, BODY, "", _VIEW_PX, lambda folder: self.adapter, RIGID_DETECTION, RIGID_TRACKING)
        facts = [VERSION, footage.VERSION, self.recipe.digest, sha256(self.log), sha256(recorded(MESH))]
        model = self.model.folder if method == "ours" and self.model is not None else None
        return Cell(NAME, entry, method, None, self.setting, model=model, version=" ".join(map(str, facts)))

    def fill(self, cell: Cell) -> None:
        """Does what a method does and keeps it. Raises InputError when that comes to nothing."""
        from safetensors.numpy import save

        found, reported = self.found(cell.method)
        cell.keep(self.rows(cell.method, found, reported))
        arrays = {"states": found.states, "actions": found.actions}
        write_bytes(_motion_of(cell), save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))

    def found(self, method: str) -> tuple[Estimate, dict[str, Any]]:
        """What a method finds, and what its rows say of how it came to see."""
        if method == "ours":
            return self._ours(), {}
        mocap = method in ("controller-mocap", "gradsim-enhanced")
        reported = {} if mocap else self._reported
        start = self.follow(*(_places(self.flight.states) if mocap else self._read))
        if method.startswith("controller"):
            return self._flown(start, start.numbers.start), reported
        evidence, loss = self._evidence(method)
        iterations = _QUICK_ITERATIONS if self.setting.quick else ITERATIONS
        judged = losses.get(loss, start.problem, evidence)
        outcome = attempt(lambda: input_estimation.descend(start, judged, iterations=iterations), start.numbers.start)
        found = self._flown(start, outcome.values)
        return replace(found, seconds=outcome.seconds, failure=outcome.failure), reported

    def follow(self, positions: Array, headings: Array) -> InputProblem:
        """The motion of a handcrafted controller along places [F, 3] m and headings [F] rad, from the first of them.

        Its actions are the start of a search, in units by which each moves the body alike.
        """
        times, camera = self.flight.times_s, np.asarray(self.clip.camera_to_world)
        points = self.adapter.known.points
        problem = Problem(self.system, self.parameters, nothing_seen(times, points[:1]), camera)
        gravity = self.parameters["gravity"].value
        states = smooth_reference(times, positions, headings, gravity, axes=camera[:3, :3])
        return sought(problem, states, points)

    def rows(self, method: str, found: Estimate, reported: dict[str, Any]) -> Rows:
        """All rows of a method."""
        more = {
            "n": 1,
            "frames": len(found.states),
            **({"failure": found.failure} if found.failure else {}),
            **reported,
        }
        values = {**self.clip.errors(found.states), **self.clip.action_errors(found.actions), "fit": found.seconds}
        known = {metric: value for metric, value in values.items() if value is not None}
        return [row(BODY, method, metric, value, _UNITS[metric], **more) for metric, value in known.items()]

    @cached_property
    def model(self) -> Model | None:
        """The project's model of the mesh, None where there is none."""
        try:
            return find_model(self.adapter.mesh)
        except InputError:
            return None

    @cached_property
    def _learnt(self) -> tuple[Learnt, dict[str, Any]]:
        """RISP's network, on its own renders and split."""
        setting, samples = self.setting, self.recipe.samples
        plan = RenderPlan(self.folder, samples, samples, 0, setting.seed, self.recipe.view_size, by_color=True)
        data = self.adapter.training_data(plan, setting.progress)
        data = replace(data, renders=samples, held_out=round(HELD_OUT * samples))
        chosen, rate = with_learning_rate(self.adapter, self.recipe, setting, data)
        return train(self.adapter, chosen, setting, data=data), rate

    @property
    def _reported(self) -> dict[str, Any]:
        learnt, rate = self._learnt
        reported = effort(self.adapter, learnt)
        return {**reported, "training_seconds": reported.pop("seconds"), **rate}

    @cached_property
    def _read(self) -> tuple[Array, Array]:
        """Places [F, 3] m and headings [F] rad that RISP's network reads, one frame at a time."""
        learnt, camera = self._learnt[0], self.clip.film_set.camera
        poses: list[Array] = []
        for image, center, radius in zip(self.clip.footage.frames, *self.clip.looked, strict=True):
            pose = estimate_pose(learnt, camera, image, center, float(radius))
            pose = at_plausible_place(pose, center, float(radius), self.adapter.radius_m)
            equal = np.asarray(camera.camera_to_world) @ pose @ self.adapter.known.symmetry_transforms
            poses.append(equal[0] if not poses else nearest(poses[-1], equal))
        found = np.array(poses)
        return found[:, :3, 3], np.arctan2(found[:, 1, 0], found[:, 0, 0])

    def _evidence(self, method: str) -> tuple[Evidence, str]:
        """What a method compares, and the loss by which it does."""
        if method == "risp":
            reader = of_state_model(state_model(self.adapter, self._learnt[0]))
            return Evidence(scene=self.clip.grey(self.clip.views(reader.view_size)), reader=reader), "risp_image"
        views = self.clip.views(_VIEW_PX)
        return Evidence(scene=self.clip.grey(views) if method == "gradsim" else self.clip.lit(views)), "pixel"

    def _flown(self, start: InputProblem, numbers: Array) -> Estimate:
        actions = start.numbers.actions(torch.from_numpy(numbers)).numpy()
        return Estimate(start.roll(numbers[None])[0], actions)

    def _ours(self) -> Estimate:
        """As `vid2phys identify` without actions. Raises InputError when the body is lost."""
        from vid2phys.commands.fit_parameters import INERTIA, fixed_parameters, listen
        from vid2phys.commands.identify import pipeline
        from vid2phys.commands.identify.config import FitOptions
        from vid2phys.commands.identify.inputs import Inputs
        from vid2phys.io.mesh import mass_properties

        mesh, camera = self.adapter.mesh, self.clip.film_set.camera
        given = {name: self.parameters[name].value for name in ("mass", *INERTIA)}
        properties, _ = listen(lambda: mass_properties(mesh))
        known = fixed_parameters(self.system, properties, given, (), None)
        clip, model = self.clip.footage.clip(self.flight.times_s), self.model or find_model(mesh)
        pose = np.asarray(camera.camera_to_world)
        inputs = Inputs(clip, mesh, camera, pose, self.system, None, model, known, ())
        began = time.monotonic()
        result = pipeline.solve([inputs], [pipeline.track(inputs)], FitOptions())
        if result.actions is None:
            raise InputError(result.message, "a clip in which the body is tracked")
        return Estimate(result.trajectory.states, result.actions.values, time.monotonic() - began)


def recipe(quick: bool) -> Recipe:
    """Of RISP's network: that of table 1, on the experiment's own number of renders."""
    return replace(recipes(quick)["paper"], samples=QUICK_RENDERS if quick else IMAGES)


def sought(problem: Problem, states: Array, points: Array) -> InputProblem:
    """The motion whose actions are sought, one wrench a frame, from those of the controller along states [F, 13].

    Units: those by which a number moves points [K, 3] of the body by their own size, over the root of the number of
    frames, since all move at once. With true states, 12 times less hardly moves, 3 times more overshoots.
    """
    assert isinstance(problem.system, Quadrotor)
    times = problem.observation.times_s
    actions = tracking_actions(problem.system, problem.parameters.vector, times, states)[:, :4]
    steps, limits = len(actions), _limits(problem.parameters)

    def in_si(numbers: Tensor) -> Tensor:
        return numbers.unflatten(-1, (steps, 4))

    upper, hover = np.tile(limits, steps), problem.system.hover_controls(problem.parameters.vector)[:4]
    lower = np.tile(limits * [0.0, -1.0, -1.0, -1.0], steps)
    numbers = Numbers(np.clip(actions.ravel(), lower, upper), np.tile(hover, steps), upper, lower, upper, in_si)
    start = InputProblem(problem, states[0], float(times[1] - times[0]), numbers)
    return replace(
        start, numbers=replace(numbers, units=input_estimation.balanced_units(start, points) / np.sqrt(steps))
    )


def _limits(parameters: Parameters) -> Array:
    """The largest thrust [N] and torques [N m], [4]."""
    values = {parameter.name: parameter.value for parameter in parameters}
    inertia = np.array([values[f"inertia_{axis}"] for axis in ("xx", "yy", "zz")])
    return np.array([_THRUST * values["mass"] * values["gravity"], *(_TURN_RAD_S2 * inertia)])


def nearest(pose: Array, equal: Array) -> Array:
    """Of poses [G, 4, 4] that look alike, the one that is turned least from another."""
    return np.asarray(equal[np.argmax(np.einsum("ij,gij->g", pose[:3, :3], equal[:, :3, :3]))])


def kept(cell: Cell) -> Array | None:
    """The motion [F, 13] that a method found, if its cell is filled."""
    from safetensors.numpy import load_file

    path = _motion_of(cell)
    if cell.rows() is None or not path.exists():
        return None
    return np.asarray(load_file(path)["states"])


def _motion_of(cell: Cell) -> Path:
    return cell.path.with_suffix(".safetensors")


def _places(states: Array) -> tuple[Array, Array]:
    """Places [F, 3] m and headings [F] rad of states [F, 13]."""
    rotation = matrix_from_quat(states[:, 3:7])
    return states[:, :3], np.arctan2(rotation[:, 1, 0], rotation[:, 0, 0])

"""Side by side on known states: MuJoCo's own system identification and the fit of `vid2phys fit-recording`.

    python -m benchmarks.recorded.mujoco_sysid [--clips DIR] [--only NAME ...] [--markdown]

Clips are folders with truth.json and states.csv (500 Hz, exact); recorded cubes have mocap.csv alone. Both methods are
given mass, inertia and size. Seconds are processor time, from states to intervals, with imports.

What differs: `mujoco.sysid` gets all rows, and each piece of 0.1 s starts from the file's state, velocities too (of
cubes: from `twists`). Our fit of impacts takes poses alone, at 75 Hz or less, and fits the ground as well. MuJoCo gets
three starts for a contact, whose cost is rugged, and one for joints. It has no restitution: the table shows that of
the fitted model in a head-on drop (`sysid_bodies.restitution`), with the interval of models drawn from the covariance.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recorded import sysid_bodies, sysid_fit
from benchmarks.recorded.sysid_fit import Fitted, Motion
from vid2phys import geometry
from vid2phys.commands.fit_recording import fit_recording
from vid2phys.geometry import Pose
from vid2phys.io.mesh import load_mesh
from vid2phys.io.mocap import load_mocap
from vid2phys.io.recordings import load_trajectory, save_trajectory
from vid2phys.tracking.rolling_shutter import twists
from vid2phys.types import Array, Estimate, Trajectory

CLIPS = Path(__file__).resolve().parents[2].parent / "shared" / "clips"
NAMES = (
    *("box_throw_a", "box_slide_a", "ball_bounce_a", "pendulum_a", "arm_a"),
    *("cube_toss0", "cube_toss1", "cube_toss10"),
)
HEADER = ("clip", "parameter", "truth", "MuJoCo sysid", "seconds", "vid2phys", "seconds")
PIECE_S, STARTS = 0.1, 3  # of a contact
_CONTACT_STEP_S, _JOINT_STEP_S = 2e-4, 1e-3
_DRAWS = 200
_POSE = ("x", "y", "z", "qw", "qx", "qy", "qz")
_RATES = ("vx", "vy", "vz", "wx", "wy", "wz")


@dataclass(frozen=True)
class Question:
    """What both methods are asked of a clip. truth: by parameter, as it is known. options: of `fit_recording`."""

    truth: dict[str, str]
    system: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A parameter of a clip: the truth, and both methods' estimates and processor seconds."""

    clip: str
    truth: str
    theirs: Estimate
    their_seconds: float
    ours: Estimate
    our_seconds: float

    @property
    def cells(self) -> list[str]:
        """Return the cells of the table's row."""
        unit = "" if self.ours.unit == "1" else f" {self.ours.unit}"
        return [
            *(self.clip, f"`{self.ours.name}`{unit}", self.truth),
            *(shown(self.theirs), f"{self.their_seconds:.1f}"),
            *(shown(self.ours), f"{self.our_seconds:.1f}"),
        ]


def shown(estimate: Estimate) -> str:
    """Return a value with its interval, or that the data do not tell it."""
    if not estimate.identifiable:
        return "not identifiable"
    low, high = estimate.ci95
    return f"{estimate.value:.4g} ({low:.4g} to {high:.4g})"


def states_of(folder: Path) -> Trajectory:
    """Return the states of states.csv, or poses and velocities from mocap.csv, both in world axes."""
    if (folder / "states.csv").is_file():
        return load_trajectory(folder / "states.csv")
    log = load_mocap(folder / "mocap.csv")
    pose = Pose(geometry.matrix_from_quat(log.orientation_quat_wxyz), log.positions_m)
    moving = twists(pose, log.times_s)
    columns = (log.positions_m, log.orientation_quat_wxyz, moving.linear, moving.angular)
    return Trajectory(log.times_s, np.concatenate(columns, axis=1), (*_POSE, *_RATES))


def rows_of(folder: Path) -> list[Row]:
    """Return the rows of a clip."""
    truth = json.loads((folder / "truth.json").read_text())
    states = states_of(folder)
    if (folder / "arm.urdf").is_file():
        question, fit = _arm(folder, truth), _fit_arm
    elif "hinge" in truth:
        question, fit = _hinge(truth), _fit_hinge
    else:
        question, fit = _thrown(folder, truth), _fit_thrown
    began = time.process_time()
    theirs = fit(folder, truth, states)
    between = time.process_time()
    ours = _ours(question, states)
    ended = time.process_time()
    return [
        Row(folder.name, known, theirs[name], between - began, ours[name], ended - between)
        for name, known in question.truth.items()
    ]


def _ours(question: Question, states: Trajectory) -> dict[str, Estimate]:
    """Return the estimates of `vid2phys fit-recording` from the same states."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "states.csv"
        save_trajectory(states, path)
        found, _ = fit_recording(question.system, [path], out=Path(folder) / "run", **question.options)
    return {each.name: each for each in found.estimates}


def _estimates(fitted: Fitted) -> dict[str, Estimate]:
    units = {each.name: each.unit for each in fitted.unknowns}
    return {n: Estimate(n, units[n], fitted.value(n), fitted.interval(n), True) for n in fitted.names}


def _thrown(folder: Path, truth: dict[str, Any]) -> Question:
    """Return the question of a thrown body; recorded cubes have published values."""
    friction, mass, inertia = truth["friction"], *_body(truth)
    known = {f"inertia_{axis}": float(each) for axis, each in zip(("xx", "yy", "zz"), inertia, strict=True)}
    mu = f"{friction['mu']:g}" if "mu" in friction else f"{friction['urdf_mu']:g} to {friction['contact_nets_mu']:g}"
    options = {
        "body": folder / "mesh.obj",
        "fit": ("mu", "restitution"),
        "set_values": {"mass": mass, **known},
    }
    return Question({"mu": mu, "restitution": f"{truth['restitution']['value']:g}"}, "rigid_contact", options)


def _fit_thrown(folder: Path, truth: dict[str, Any], states: Trajectory) -> dict[str, Estimate]:
    half = np.abs(load_mesh(folder / "mesh.obj").vertices).max(axis=0)
    spec, unknowns = sysid_bodies.thrown(truth.get("shape", "box"), half, *_body(truth))
    pose = _columns(states, _POSE)
    rates = _columns(states, _RATES)
    rates[:, 3:] = geometry.rotate(geometry.quat_conjugate(pose[:, 3:]), rates[:, 3:])  # MuJoCo: in body axes
    motion = Motion(states.times_s, pose, rates)
    found = sysid_fit.fit(spec, unknowns, motion, longest_step_s=_CONTACT_STEP_S, piece_s=PIECE_S, starts=STARTS)
    value = sysid_bodies.restitution(found.model(found.best))
    drawn = [sysid_bodies.restitution(found.model(each)) for each in found.drawn(_DRAWS)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {**_estimates(found), "restitution": Estimate("restitution", "1", value, (float(low), float(high)), True)}


def _body(truth: dict[str, Any]) -> tuple[float, Array]:
    """Return mass and principal moments of inertia."""
    if "inertia_kgm2" in truth:
        return truth["mass_kg"], np.array(truth["inertia_kgm2"])
    return truth["mass_kg"], np.diag(truth["inertia_kgm2_about_com_body_axes"]).copy()


def _hinge(truth: dict[str, Any]) -> Question:
    """Return the question of a bar. Two lengths have the same period, so both begin at half the bar's own length."""
    mass, inertia = _body(truth)
    known = truth["hinge"]
    options = {
        "fit": ("length", "damping"),
        "set_values": {"mass": mass, "inertia": float(inertia[1]), "length": _half_bar(truth)},
    }
    true = {"length": f"{known['length_hinge_to_com_m']:g}", "damping": f"{known['damping_Nms_per_rad']:g}"}
    return Question(true, "pendulum", options)


def _half_bar(truth: dict[str, Any]) -> float:
    return 0.5 * max(truth["side_m"])


def _fit_hinge(folder: Path, truth: dict[str, Any], states: Trajectory) -> dict[str, Estimate]:
    spec, unknowns = sysid_bodies.hinge(*_body(truth), _half_bar(truth))
    return _of_joints(spec, unknowns, states, ("hinge",))


def _arm(folder: Path, truth: dict[str, Any]) -> Question:
    true = {f"damping_{joint}": f"{value:g}" for joint, value in truth["joint_damping_Nms_per_rad"].items()}
    true["payload_mass"] = f"{truth['payload_mass_kg']:g}"
    return Question(true, "articulated", {"body": folder / "arm.urdf", "fit": ("joint_damping", "payload")})


def _fit_arm(folder: Path, truth: dict[str, Any], states: Trajectory) -> dict[str, Estimate]:
    spec, unknowns = sysid_bodies.arm(folder / "arm.urdf")
    return _of_joints(spec, unknowns, states, tuple(truth["joint_damping_Nms_per_rad"]))


def _of_joints(spec: Any, unknowns: Sequence[Any], states: Trajectory, joints: Sequence[str]) -> dict[str, Estimate]:
    angles = _columns(states, [f"{joint}_angle_rad" for joint in joints])
    motion = Motion(states.times_s, angles, _columns(states, [f"{joint}_rate_rad_s" for joint in joints]))
    return _estimates(sysid_fit.fit(spec, unknowns, motion, longest_step_s=_JOINT_STEP_S))


def _columns(states: Trajectory, names: Sequence[str]) -> Array:
    return states.states[:, [states.state_names.index(name) for name in names]]


def lines(found: Iterator[Row], *, in_markdown: bool) -> Iterator[str]:
    """Yield the table's lines, each as soon as it is known."""
    ends, between = ("| ", " |") if in_markdown else ("", ""), " | " if in_markdown else "\t"
    yield ends[0] + between.join(HEADER) + ends[1]
    if in_markdown:
        yield "|" + "---|" * len(HEADER)
    for row in found:
        yield ends[0] + between.join(row.cells) + ends[1]


def main() -> None:
    """Fit the clips by both methods and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path, default=CLIPS, help="folder of the clips' folders")
    parser.add_argument("--only", nargs="+", default=NAMES, help="clips")
    parser.add_argument("--markdown", action="store_true", help="print a table in Markdown")
    options = parser.parse_args()
    if absent := sysid_fit.missing():
        sys.exit(f"mujoco.sysid needs {', '.join(absent)}: pip install {' '.join(absent)}")
    folders = [options.clips / name for name in options.only]
    for folder in folders:
        if not folder.is_dir():
            print(f"'{folder}' is not there", file=sys.stderr)
    found = (row for folder in folders if folder.is_dir() for row in rows_of(folder))
    for line in lines(found, in_markdown=options.markdown):
        print(line, flush=True)


if __name__ == "__main__":
    main()

"""`simulate`: motions with closed forms, actions as recorded, films held against OpenCV, and input that is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import cv2
import meshio
import numpy as np
import pytest
import trimesh
from scipy.special import ellipk
from typer.testing import CliRunner

from vid2phys.cli import app
from vid2phys.commands.film import frame_times, states_at
from vid2phys.commands.simulate import Simulation, simulate
from vid2phys.commands.simulation_inputs import initial_state
from vid2phys.engine import systems
from vid2phys.engine.systems.cloth import sheet
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.tets import box_tets
from vid2phys.errors import Vid2PhysError
from vid2phys.io.camera import load_camera
from vid2phys.io.mesh import load_mesh
from vid2phys.io.mocap import load_mocap
from vid2phys.io.recordings import load_trajectory
from vid2phys.io.video import read_clip
from vid2phys.types import Array, Camera, Trajectory

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "quadrotor"
MESH, CAMERA, ACTIONS = SAMPLE / "quad.obj", SAMPLE / "camera.yaml", SAMPLE / "actions.csv"
WRENCH = "time_s,thrust_N,torque_x_Nm,torque_y_Nm,torque_z_Nm\n"


def run(folder: Path, system: str, **options: Any) -> Simulation:
    simulation, written = simulate(system, out=folder / "run", **options)
    assert written == folder / "run"
    return simulation


def actions_file(folder: Path, text: str) -> Path:
    path = folder / "a.csv"
    path.write_text(text)
    return path


def test_a_quadrotor_hovers(tmp_path: Path) -> None:
    values = {"mass": 0.4, "thrust_scale": 0.9}
    simulation = run(tmp_path, "quadrotor", set_values=values, initial={"position_z_m": 1}, hold=True)
    trajectory = load_trajectory(tmp_path / "run" / "trajectory.csv")
    np.testing.assert_allclose(trajectory.times_s, np.arange(201) / 100, atol=1e-12)
    np.testing.assert_allclose(trajectory.states, [[0, 0, 1, 1, *[0] * 9]] * 201, atol=1e-13)
    np.testing.assert_allclose(simulation.actions.values, [[0.4 * 9.81 / 0.9, 0, 0, 0]] * 200)
    assert simulation.notes == (
        "--hold: the actions that hold the system at rest are applied",
        "inertia_xx, inertia_yy, inertia_zz are defaults, of another mass; give them with --set",
    )


@pytest.mark.parametrize(
    ("system", "initial", "moves"),
    [
        ("quadrotor", {"position_z_m": 1.0}, "position_z_m"),
        ("articulated", {}, "shoulder_rad"),
        ("hand", {}, "finger1_0_rad"),
    ],
)
def test_nothing_holds_a_system_unless_it_is_asked_for(
    tmp_path: Path, system: str, initial: dict[str, float], moves: str
) -> None:
    motion = {}
    for hold in (False, True):
        done = run(tmp_path / str(hold), system, initial=initial, seconds=0.3, hold=hold)
        column = done.trajectory.states[:, done.trajectory.state_names.index(moves)]
        motion[hold] = float(np.ptp(column))
        assert ("nothing drives the system" in done.notes[0]) is not hold
        assert done.actions.values.any() == hold
    assert motion[True] < 1e-6
    assert motion[False] > 1e-3


def test_a_system_that_nothing_has_to_hold_has_no_note(tmp_path: Path) -> None:
    assert not any("--hold" in note for note in run(tmp_path, "pendulum", seconds=0.1).notes)


def test_a_config_from_before_hold_repeats_its_run(tmp_path: Path) -> None:
    """Then, systems were held where no actions were given. With actions they were not, and are not."""
    first = run(tmp_path, "articulated", seconds=0.2, hold=True)
    config = tmp_path / "run" / "config.yaml"
    text = config.read_text()
    assert "hold: true" in text
    config.write_text(text.replace("hold: true\n", ""))
    path = ["--config", str(config)]
    done = CliRunner().invoke(app, ["simulate", *path, "--out", str(tmp_path / "again")])
    assert done.exit_code == 0
    assert "--hold: the actions that hold" in done.output
    again = load_trajectory(tmp_path / "again" / "trajectory.csv")
    np.testing.assert_allclose(again.states, first.trajectory.states, atol=1e-9)
    driven = ["--actions", str(tmp_path / "run" / "actions.csv"), "--out", str(tmp_path / "driven")]
    assert CliRunner().invoke(app, ["simulate", *path, *driven]).exit_code == 0
    written = (tmp_path / "driven" / "config.yaml").read_text()
    assert "hold: false" in written


def test_free_fall(tmp_path: Path) -> None:
    path = actions_file(tmp_path, WRENCH + "0,0,0,0,0\n")
    start = {"position_z_m": 2.0, "velocity_x_m_s": 3.0, "angular_velocity_z_rad_s": 1.0}
    run(tmp_path, "quadrotor", actions=path, initial=start, seconds=1.5, set_values={"gravity": 9.8})
    trajectory = load_trajectory(tmp_path / "run" / "trajectory.csv")
    t = trajectory.times_s
    np.testing.assert_allclose(trajectory.states[:, 0], 3.0 * t, atol=1e-11)
    np.testing.assert_allclose(trajectory.states[:, 2], 2.0 - 4.9 * t**2, atol=1e-11)
    np.testing.assert_allclose(trajectory.states[:, 3], np.cos(0.5 * t), atol=1e-9)


def test_actions_change_between_rows(tmp_path: Path) -> None:
    """Twice the weight from 0.105 s on, between two rows at 100 Hz, as in grams and milliseconds."""
    path = actions_file(tmp_path, "time_ms,thrust_gf,torque_x_Nm,torque_y_Nm,torque_z_Nm\n0,400,0,0,0\n105,800,0,0,0\n")
    run(tmp_path, "quadrotor", actions=path, seconds=0.2, set_values={"mass": 0.4, "gravity": 9.80665})
    trajectory = load_trajectory(tmp_path / "run" / "trajectory.csv")
    t = trajectory.times_s
    assert 0.105 in t
    np.testing.assert_allclose(trajectory.states[:, 2], 0.5 * 9.80665 * np.clip(t - 0.105, 0, None) ** 2, atol=1e-12)


def test_rotor_thrusts_and_actions_per_kilogram(tmp_path: Path) -> None:
    header = "time_s,rotor_0_N_per_kg,rotor_1_N_per_kg,rotor_2_N_per_kg,rotor_3_N_per_kg\n"
    path = actions_file(tmp_path, header + "0,5,5,5,5\n")
    simulation = run(tmp_path, "quadrotor", actions=path, set_values={"mass": 0.3}, seconds=0.5)
    assert simulation.actions.kind == "rotors"
    np.testing.assert_allclose(simulation.actions.values[0], [1.5] * 4)
    np.testing.assert_allclose(simulation.trajectory.states[-1, 2], 0.5 * (20 - 9.81) * 0.25, atol=1e-12)


def test_a_pendulum_swings(tmp_path: Path) -> None:
    """Its period at 2 rad by the complete elliptic integral; rk4 at 0.01 s is good to 1e-7 of it."""
    period = 4.0 * np.sqrt(0.7 / 9.81) * ellipk(np.sin(1.0) ** 2)
    options = {"initial": {"angle_rad": 2.0}, "set_values": {"length": 0.7}, "seconds": period}
    simulation = run(tmp_path, "pendulum", **options)
    np.testing.assert_allclose(simulation.trajectory.times_s[-1], period)
    np.testing.assert_allclose(simulation.trajectory.states[-1], [2.0, 0.0], atol=1e-5)
    assert simulation.step_change is not None
    assert 1e-9 < simulation.step_change < 1e-6


def test_other_systems_take_their_actions_by_name(tmp_path: Path) -> None:
    path = actions_file(tmp_path, "time_s,torque_mNm\n0,250\n")
    simulation = run(tmp_path, "pendulum", actions=path, set_values={"gravity": 0.0}, seconds=1.0)
    np.testing.assert_allclose(simulation.trajectory.states[-1], [0.125, 0.25], atol=1e-12)
    assert (tmp_path / "run" / "actions.csv").read_text().splitlines()[:2] == ["time_s,torque_Nm", "0,0.25"]


@pytest.mark.parametrize("name", systems.available())
def test_every_system_moves_from_rest(tmp_path: Path, name: str) -> None:
    """Without options: from a shape that exists, in steps that are stable."""
    simulation = run(tmp_path, name, seconds=0.05)
    trajectory = load_trajectory(tmp_path / "run" / "trajectory.csv")
    assert trajectory.state_names == systems.get(name).state_names
    assert np.isfinite(trajectory.states).all()
    assert (tmp_path / "run" / "actions.csv").exists() == bool(simulation.system.action_names)


def test_steps_are_as_short_as_is_stable(tmp_path: Path) -> None:
    values = {"gravity": 0.0, "young_modulus": 1e7}
    simulation = run(tmp_path, "soft_body", set_values=values, seconds=0.05, initial={"velocity_x_m_s": 2.0})
    longest = simulation.system.longest_step_s(simulation.parameters.vector)
    assert simulation.substeps == int(np.ceil(0.01 / (0.5 * longest)))
    body = simulation.system
    moved = body.vertices(simulation.trajectory.states[-1], body.rest_m) - body.rest_m  # type: ignore[attr-defined]
    np.testing.assert_allclose(moved, [[0.1, 0.0, 0.0]] * len(moved), atol=1e-9)


def test_coarse_steps_are_noted(tmp_path: Path) -> None:
    options = {"initial": {"angle_rad": 2.0}, "integrator": "semi_implicit_euler", "step": 0.1, "rate": 10}
    simulation = run(tmp_path, "pendulum", **options)
    assert simulation.substeps == 1
    assert simulation.notes[0].startswith("halving the step changes the motion by up to")
    assert simulation.notes[0].endswith("try --step 0.01")


def test_the_sample_flies_as_it_was_recorded(tmp_path: Path) -> None:
    """True parameters, start and actions give the motion capture of the sample, which is 0.35 s ahead."""
    truth = json.loads((SAMPLE / "truth.json").read_text())
    start = dict(zip(truth["state_names"], truth["first_state"], strict=True))
    simulation = run(tmp_path, "quadrotor", set_values=truth["parameters"], initial=start, actions=ACTIONS, seconds=4.5)
    log = load_mocap(SAMPLE / "mocap.csv")
    times_s = log.times_s - truth["time_offset_s"]
    kept = (times_s > 0.0) & (times_s < 4.5) & np.isfinite(log.positions_m[:, 0])
    positions = states_at(simulation.system, simulation.trajectory, times_s[kept])[:, :3]
    assert kept.sum() > 400
    np.testing.assert_allclose(positions, log.positions_m[kept], atol=2e-4)  # rows 0.01 s apart, straight in between


def test_inertia_is_that_of_the_mesh(tmp_path: Path) -> None:
    film = {"mesh": MESH, "camera": CAMERA, "fps": 2, "seconds": 0.5}
    simulation = run(tmp_path, "quadrotor", set_values={"mass": 0.72, "inertia_yy": 0.004}, **film)
    assert 0.002 < simulation.parameters["inertia_xx"].value < 0.006
    assert simulation.parameters["inertia_yy"].value == 0.004
    assert any(note.startswith("inertia_xx, inertia_zz of the mesh") for note in simulation.notes)
    assert simulation.frames_in_view == 0
    assert "in no frame" in simulation.notes[-1]


def silhouette_center(vertices: Array) -> Array:
    """Centroid (x, y) of what the mesh covers, by OpenCV's projection and polygons at 8 times the size."""
    mesh, camera = load_mesh(MESH), load_camera(CAMERA)
    assert camera.camera_to_world is not None
    to_camera = np.linalg.inv(camera.camera_to_world)
    turn = cv2.Rodrigues(to_camera[:3, :3])[0]
    pixels = cv2.projectPoints(vertices, turn, to_camera[:3, 3], camera.K, camera.distortion)[0][:, 0]
    scale = 8
    canvas = np.zeros((scale * camera.height, scale * camera.width), np.uint8)
    for face in mesh.faces:
        cv2.fillConvexPoly(canvas, np.round((pixels[face] + 0.5) * scale - 0.5).astype(np.int32), 1)
    rows, columns = np.nonzero(canvas)
    return (np.array([columns.mean(), rows.mean()]) + 0.5) / scale - 0.5


def test_the_film_shows_the_mesh_where_it_is(tmp_path: Path) -> None:
    start = {
        "position_x_m": -0.44,
        "position_y_m": 0.41,
        "position_z_m": 1.2,
    }  # to the right, by its length in 6 frames
    start |= {"velocity_x_m_s": 1.46, "velocity_y_m_s": -1.37}
    film = {"mesh": MESH, "camera": CAMERA, "fps": 25, "hold": True}
    simulation = run(tmp_path, "quadrotor", set_values={"mass": 0.72}, initial=start, seconds=0.6, **film)
    clip = read_clip(tmp_path / "run" / "clip.mp4")
    frames = np.array(list(clip.frames), dtype=float)
    assert frames.shape == (15, 480, 640, 3)
    assert (simulation.frames, simulation.frames_in_view) == (15, 15)
    np.testing.assert_allclose(clip.times_s, np.arange(15) / 25, atol=1e-4)
    background = np.median(frames, axis=0)
    states = states_at(simulation.system, simulation.trajectory, clip.times_s)
    for index in (0, 7, 14):
        rows, columns = np.nonzero(np.abs(frames[index] - background).max(axis=-1) > 25)
        expected = silhouette_center(simulation.system.vertices(states[index], load_mesh(MESH).vertices))
        assert len(rows) > 500
        # 0.64 px off at most: the luma is where it should be, the video's colours are at half its size
        np.testing.assert_allclose([columns.mean(), rows.mean()], expected, rtol=0, atol=1.0)


def test_frames_and_states_between_rows() -> None:
    np.testing.assert_allclose(frame_times(np.array([0.0, 0.5, 1.0]), 4.0), [0, 0.25, 0.5, 0.75])
    np.testing.assert_allclose(frame_times(np.array([0.0, 0.01]), 30.0), [0.0])
    system = systems.get("quadrotor")
    start = initial_state(system, {})
    turned = initial_state(system, {"orientation_quat_w": np.cos(0.5), "orientation_quat_z": np.sin(0.5)})
    trajectory = Trajectory(np.array([0.0, 1.0]), np.array([start, turned]), system.state_names)
    half = states_at(system, trajectory, np.array([0.5]))[0]
    np.testing.assert_allclose(half[3:7], [np.cos(0.25), 0, 0, np.sin(0.25)], atol=1e-12)


NEAR_CAMERA = """image_width: 320
image_height: 240
camera_matrix: {rows: 3, cols: 3, data: [400, 0, 160, 0, 400, 120, 0, 0, 1]}
distortion_model: plumb_bob
distortion_coefficients: {rows: 1, cols: 5, data: [0.1, 0, 0, 0, 0]}
camera_to_world: {rows: 4, cols: 4, data: [1, 0, 0, 0, 0, -0.28, 0.96, -1.2, 0, -0.96, -0.28, 0.45, 0, 0, 0, 1]}
"""
URDF = """<robot name="arm"><link name="base"/>
<link name="rod"><inertial><origin xyz="0 0 -0.1"/><mass value="0.5"/>
<inertia ixx="1e-3" iyy="1e-3" izz="1e-4" ixy="0" ixz="0" iyz="0"/></inertial>
<visual><origin xyz="0 0 -0.1"/><geometry>SHAPE</geometry></visual></link>
<joint name="pivot" type="continuous"><parent link="base"/><child link="rod"/><origin xyz="0 0 0.3"/><axis xyz="0 1 0"/>
</joint></robot>"""


def near_camera(folder: Path) -> Path:
    (folder / "camera.yaml").write_text(NEAR_CAMERA)
    return folder / "camera.yaml"


def box_file(folder: Path) -> Path:
    """A flat box in mm, 80 x 60 x 20, off its origin, in triangles of 10 mm."""
    solid = trimesh.creation.box([80.0, 60.0, 20.0]).subdivide().subdivide().subdivide()
    solid.apply_translation([300.0, -40.0, 1000.0])
    solid.export(folder / "box.stl")
    return folder / "box.stl"


def bar_file(folder: Path) -> Path:
    """Tets of 0.3 x 0.1 x 0.1 m, half in the ground."""
    vertices, tets = box_tets((0.3, 0.1, 0.1), (3, 1, 1))
    meshio.Mesh(vertices - [0.15, 0.05, 0.05], [("tetra", tets)]).write(folder / "bar.msh", file_format="gmsh")
    return folder / "bar.msh"


def sheet_file(folder: Path) -> Path:
    vertices, triangles = sheet(0.4, 0.4, 4, 4, bottom_m=-0.2)
    trimesh.Trimesh(vertices[:, [0, 2, 1]] + [0.0, 0.0, 0.3], triangles).export(folder / "sheet.obj")
    return folder / "sheet.obj"


def robot_file(folder: Path, shape: str = '<box size="0.04 0.04 0.2"/>') -> Path:
    (folder / "arm.urdf").write_text(URDF.replace("SHAPE", shape))
    return folder / "arm.urdf"


def filmed_box(frame: Array) -> Array:
    """Left, right, top, bottom [px] of what is colourful."""
    rows, columns = np.nonzero(np.ptp(frame, axis=-1) > 60.0)
    return np.array([columns.min(), columns.max(), rows.min(), rows.max()])


OWN_BODIES = [("rigid_contact", box_file, "mm"), ("soft_body", bar_file, "m"), ("cloth", sheet_file, "m")]
OWN_BODIES += [("articulated", robot_file, "m")]


@pytest.mark.parametrize(("name", "write", "units"), OWN_BODIES, ids=[name for name, *_ in OWN_BODIES])
def test_a_body_from_a_file_moves_and_is_filmed_where_it_is(tmp_path: Path, name: str, write: Any, units: str) -> None:
    options = {"body": write(tmp_path), "body_units": units, "camera": near_camera(tmp_path), "fps": 10}
    simulation = run(tmp_path, name, seconds=0.2, **options)
    assert np.isfinite(simulation.trajectory.states).all()
    assert (simulation.frames, simulation.frames_in_view) == (2, 2)
    clip, camera = read_clip(tmp_path / "run" / "clip.mp4"), load_camera(tmp_path / "camera.yaml")
    surface = simulation.system.surface
    assert camera.camera_to_world is not None
    assert surface is not None
    to_camera = np.linalg.inv(camera.camera_to_world)
    turn, last = cv2.Rodrigues(to_camera[:3, :3])[0], np.array(list(clip.frames), dtype=float)[-1]
    vertices = simulation.system.vertices(
        states_at(simulation.system, simulation.trajectory, np.array([0.1]))[0], surface.vertices
    )
    pixels = cv2.projectPoints(vertices, turn, to_camera[:3, 3], camera.K, camera.distortion)[0][:, 0]
    expected = np.stack([pixels.min(axis=0), pixels.max(axis=0)]).T.ravel()
    np.testing.assert_allclose(filmed_box(last), expected, rtol=0, atol=2.0)  # the video's colours: at half its size


def test_a_rigid_body_from_a_file_lies_still(tmp_path: Path) -> None:
    """On its four lower corners, sunk in by its weight over their springs; a given mass takes the inertia along."""
    values = {"mass": 0.3, "k_d": 10.0}  # about critical
    simulation = run(
        tmp_path, "rigid_contact", body=box_file(tmp_path), body_units="mm", seconds=1.0, set_values=values
    )
    p = simulation.parameters
    sides = np.array([0.08, 0.06, 0.02])
    inertia = 0.3 / 12.0 * (np.square(sides).sum() - np.square(sides))
    np.testing.assert_allclose([p[f"inertia_{axis}"].value for axis in ("xx", "yy", "zz")], inertia, rtol=1e-5)
    assert simulation.notes[-1].startswith("inertia_xx, inertia_yy, inertia_zz of the mesh")
    sunk = 0.3 * p["gravity"].value / (4.0 * p["k_e"].value)
    assert sunk < 0.1 * sides[2]
    heights = simulation.trajectory.states[:, 2]
    assert heights[0] == pytest.approx(0.5 * sides[2], rel=1e-6)
    assert heights[-1] == pytest.approx(0.5 * sides[2] - sunk, abs=1e-3 * sunk)


def test_a_soft_body_from_a_file_comes_to_rest_on_the_ground(tmp_path: Path) -> None:
    simulation = run(tmp_path, "soft_body", body=bar_file(tmp_path), seconds=1.0, set_values={"damping": 100.0})
    body = simulation.system
    assert isinstance(body, SoftBody)
    start, end = body.positions(simulation.trajectory.states)[[0, -1]]
    np.testing.assert_allclose(start - body.rest_m, np.tile([0.0, 0.0, 0.05], (len(start), 1)), atol=1e-12)
    p, lowest = simulation.parameters, end[:, 2] < 0.0
    weight = float(body.masses(p.vector).sum()) * p["gravity"].value
    assert p["k_e"].value * -end[lowest, 2].sum() == pytest.approx(weight, rel=0.1)
    assert -end[:, 2].min() < 0.01  # a tenth of its height


def test_what_reading_a_body_brings_up_is_noted(tmp_path: Path) -> None:
    solid = trimesh.creation.box([0.1, 0.1, 0.1])
    trimesh.Trimesh(solid.vertices, solid.faces[:-1]).export(tmp_path / "open.obj")
    notes = run(tmp_path, "rigid_contact", body=tmp_path / "open.obj", seconds=0.02).notes
    assert "mesh 'open' is not watertight" in notes[0]
    assert any("the mass of 0.3 kg is that of a density nobody gave" in note for note in notes)


WRONG_BODIES: list[tuple[str, Any, dict[str, Any], int, str]] = [
    ("soft_body", box_file, {"body_units": "mm"}, 3, "is a surface"),
    ("soft_body", sheet_file, {}, 3, "use cloth for a sheet"),
    ("rigid_contact", box_file, {}, 3, "if it is in millimetres give --body-units mm"),
    ("rigid_contact", sheet_file, {}, 2, "that span no volume"),
    ("articulated", lambda f: robot_file(f, '<mesh filename="rod.stl"/>'), {}, 3, "mesh 'rod.stl' of"),
    ("articulated", robot_file, {"body_units": "mm"}, 2, "URDF and MJCF are in SI"),
    ("articulated", box_file, {}, 3, "is not a text file"),
    ("cloth", robot_file, {}, 3, "is a robot description, which is not supported"),
    ("cloth", lambda f: f / "none.obj", {}, 3, "none.obj' does not exist"),
    ("pendulum", box_file, {}, 2, "one of articulated, cloth, mass_spring, rigid_contact, soft_body"),
    ("quadcopter", box_file, {}, 2, "unknown system 'quadcopter'"),
    ("cloth", lambda f: None, {"body_units": "mm"}, 2, "--body-units without --body"),
]


@pytest.mark.parametrize(
    ("name", "write", "options", "code", "text"), WRONG_BODIES, ids=[f"{w[0]}-{w[-1]}" for w in WRONG_BODIES]
)
def test_files_that_make_no_body_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, write: Any, options: Any, code: int, text: str
) -> None:
    monkeypatch.setitem(sys.modules, "pytetwild", None)
    with pytest.raises(Vid2PhysError) as caught:
        run(tmp_path, name, body=write(tmp_path), **options)
    assert text in str(caught.value)
    assert caught.value.exit_code == code
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"system": "quadcopter"}, 2, "unknown system 'quadcopter'; expected one of"),
    ({"initial": {"position_m": 1.0}}, 2, "unknown state 'position_m'"),
    ({"system": "soft_body", "initial": {"height": 1.0}}, 2, "in all"),
    ({"initial": {"position_x_m": np.nan}}, 2, "--initial position_x_m=nan"),
    ({"initial": {"orientation_quat_x": 0.5}}, 2, "quaternion of length 0.5"),
    ({"set_values": {"weight": 1.0}}, 2, "unknown parameter 'weight'"),
    ({"set_values": {"mass": -1.0}}, 2, "mass = -1 kg; expected between 0.001 and 100 kg"),
    ({"set_values": {"mass": np.nan}}, 2, "mass = nan"),
    ({"seconds": 0.0}, 2, "--seconds 0"),
    ({"rate": np.inf}, 2, "--rate inf"),
    ({"step": -1.0}, 2, "--step -1"),
    ({"seconds": 1e9}, 2, "lower --seconds or --rate"),
    ({"integrator": "implicit_euler"}, 2, "unknown integrator 'implicit_euler'"),
    ({"system": "pendulum", "step": 5.0, "rate": 0.5}, 2, "at most 0.639 s with rk4"),
    ({"mesh": MESH}, 2, "--mesh without --camera"),
    ({"camera": CAMERA}, 2, "--camera without --mesh"),
    ({"camera_pose": CAMERA}, 2, "--camera-pose without --camera"),
    ({"mesh": MESH, "camera": CAMERA, "fps": 0}, 2, "--fps 0"),
    ({"mesh": MESH, "camera": CAMERA, "fps": 1e6}, 2, "lower --seconds or --fps"),
    ({"mesh": MESH, "camera": CAMERA, "mesh_units": "parsec"}, 2, "unknown mesh unit"),
    ({"actions": ACTIONS, "seconds": 60}, 3, "expected 0 to 60 s"),
    ({"system": "pendulum", "actions": ACTIONS}, 3, "write it as torque_Nm"),
    ({"system": "smoke", "actions": ACTIONS}, 2, "has no inputs"),
    ({"actions": "nowhere.csv"}, 3, "nowhere.csv"),
    ({"text": WRENCH + "0,1,nan,0,0\n"}, 3, "torque_x_Nm"),
    ({"text": WRENCH + "0.5,1,0,0,0\n0.6,1,0,0,0\n"}, 3, "the motion begins at 0"),
    ({"text": WRENCH.replace("_N,", "_lbf,", 1) + "0,1,0,0,0\n"}, 3, "unit 'lbf'"),
    ({"text": WRENCH.replace("_Nm", "_Nm_per_kg").replace("_N,", "_N_per_kg,") + "0,1,0,0,0\n"}, 2, "--set mass=VALUE"),
    ({"text": WRENCH + "0,1e308,0,0,0\n"}, 3, "not a finite number"),
]


@pytest.mark.parametrize(("options", "code", "text"), REFUSED, ids=[text for *_, text in REFUSED])
def test_bad_input_is_refused(tmp_path: Path, options: dict[str, Any], code: int, text: str) -> None:
    options = dict(options)
    if "text" in options:
        options["actions"] = actions_file(tmp_path, options.pop("text"))
    with pytest.raises(Vid2PhysError) as caught:
        run(tmp_path, options.pop("system", "quadrotor"), **options)
    assert text in str(caught.value)
    assert caught.value.exit_code == code
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_the_film_shows_the_texture(tmp_path: Path) -> None:
    """Seen from straight above, each texel is where the image has it, and a missing image is a note."""
    from tests.painted_mesh import texel_centers, write_obj
    from vid2phys.commands.film import draw
    from vid2phys.io.texture import SurfaceColors

    mesh = load_mesh(write_obj(tmp_path))
    pose = np.diag([1.0, -1.0, -1.0, 1.0])
    pose[:3, 3] = [0.2, 0.15, 1.0]
    camera = Camera(np.array([[150.0, 0.0, 39.5], [0.0, 150.0, 29.5], [0.0, 0.0, 1.0]]), 80, 60, camera_to_world=pose)
    dark = np.zeros((60, 80, 3))
    frame, seen = draw(mesh.vertices, mesh, camera, dark, dark.astype(np.uint8), SurfaceColors(mesh))
    assert seen
    points, colors = texel_centers()
    u, v = (
        np.round(39.5 + 150 * (points[:, 0] - 0.2)).astype(int),
        np.round(29.5 - 150 * (points[:, 1] - 0.15)).astype(int),
    )
    found = (frame[v, u] / 255.0) ** 2.2
    light = found.max() / colors.max()  # one face, one light
    np.testing.assert_allclose(found / light, colors, atol=0.06)
    (tmp_path / "map.png").unlink()
    film = {"mesh": tmp_path / "square.obj", "camera": CAMERA, "fps": 2, "seconds": 0.5}
    known = dict.fromkeys(("inertia_xx", "inertia_yy", "inertia_zz"), 0.004)
    simulation = run(tmp_path, "quadrotor", set_values={"mass": 0.72} | known, **film)
    assert any("'map.png' is not in" in note for note in simulation.notes)

"""RISP's real-world experiment: the recorded flight, the controller's start, the strips and the table's form."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from experiments import available, flight_clip, reproduce, risp_real
from experiments.experiments import nothing_seen
from experiments.flight_clip import HEIGHT, WIDTH, FilmSet, FlightClip
from experiments.flights import Flight, load_flight, recorded
from experiments.footage import Footage, Shot
from experiments.panels import draw_strips
from experiments.rigid import project
from experiments.risp_real import METHODS, nearest, sought
from experiments.smooth_reference import smooth_reference
from experiments.test_renderer import FLOOR
from vid2phys.engine.render.differentiable import draw, normals_of
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.errors import InputError
from vid2phys.geometry import angle_between, invert_transform, make_transform, matrix_from_rotvec
from vid2phys.io.mesh import load_mesh
from vid2phys.solvers.input_estimation import InputProblem
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.rendering import encode_srgb
from vid2phys.types import Actions, Array

ROOT = Path(__file__).resolve().parents[2]
LOG = ROOT.parent / "shared" / risp_real.LOG
needs_flights = pytest.mark.skipif(not LOG.is_file(), reason="../shared/data/crazyflie_flights is not there")
GRAVITY, RATE_HZ, MASS_KG = 9.81, 10.0, 0.032
POINTS = 0.04 * np.array([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.2], [-1.0, -1.0, 0.0], [1.0, -1.0, 0.2]])
LEVEL = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])  # axes of a camera that looks along x


def plank(path: Path) -> Path:
    """A mesh of few faces, 8 x 5 x 2 cm."""
    around = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    corners = 0.5 * np.array([0.08, 0.05, 0.02]) * [[x, y, z] for z in (-1, 1) for x, y in around]
    quads = [(4, 3, 2, 1), (5, 6, 7, 8), (1, 2, 6, 5), (2, 3, 7, 6), (3, 4, 8, 7), (4, 1, 5, 8)]
    lines = [*(f"v {x} {y} {z}" for x, y, z in corners), *(f"f {a} {b} {c} {d}" for a, b, c, d in quads)]
    path.write_text("\n".join(lines) + "\n")
    return path


def eight(times_s: Array) -> tuple[Array, Array]:
    """Places [T, 3] m and accelerations of a figure of eight, a metre wide."""
    w = np.array([0.8, 1.6, 0.5])
    size, phase = np.array([0.8, 0.4, 0.05]), np.array([0.0, 0.3, 1.0])
    along = size * np.sin(np.outer(times_s, w) + phase)
    return along + np.array([0.0, 0.0, 1.0]), -(w**2) * along


def write_log(folder: Path, *, gap_s: float = 1.5, seconds: float = 5.0) -> Path:
    """A log of the figure after a gap, in millimetres, 80 places a second, the commanded thrust twice too large."""
    times = np.concatenate([[0.0], gap_s + np.arange(0.0, seconds, 0.004)])
    held = np.concatenate([[0.0], gap_s + np.floor((times[1:] - gap_s) * 80.0) / 80.0])
    places, accelerations = np.round(eight(held)[0], 3), eight(times)[1] + [0.0, 0.0, GRAVITY]
    roll, pitch = (
        np.arcsin(-accelerations[:, 1] / np.linalg.norm(accelerations, axis=1)),
        np.arctan2(accelerations[:, 0], accelerations[:, 2]),
    )
    thrust = 2.0 * MASS_KG * np.linalg.norm(accelerations, axis=1)
    columns = {
        **{"t_s": times, "locSrv.x": places[:, 0], "locSrv.y": places[:, 1], "locSrv.z": places[:, 2]},
        **{"ctrlLee.rpyx": roll, "ctrlLee.rpyy": pitch, "ctrlLee.rpyz": 0.0 * times, "ctrlLee.thrustSI": thrust},
        **{f"ctrlLee.torque{axis}": 1e-5 * (i + 1) + 0.0 * times for i, axis in enumerate("xyz")},
    }
    lines = [",".join(f"{value:.6f}" for value in row) for row in zip(*columns.values(), strict=True)]
    (folder / "log7.csv").write_text("\n".join([",".join(columns), *lines]) + "\n")
    (folder / "info7.yaml").write_text(f"experiment: 7\nmass: {MASS_KG}\n")
    return folder / "log7.csv"


def test_a_log_becomes_a_flight(tmp_path: Path) -> None:
    flight = load_flight(write_log(tmp_path), 40, RATE_HZ)
    assert flight.times_s == pytest.approx(np.arange(40) / RATE_HZ)
    true = eight(1.55 + flight.times_s)[0]  # a twentieth of a second after the gap
    lag = 0.5 / 80.0 * np.abs(np.diff(true, axis=0)).max() * RATE_HZ  # places are held until the next
    assert np.abs(flight.states[:, :3] - true).max() < 1.5e-3 + 2.0 * lag
    speeds = (eight(1.551 + flight.times_s)[0] - eight(1.549 + flight.times_s)[0]) / 2e-3
    assert flight.states[2:-2, 7:10] == pytest.approx(speeds[2:-2], abs=0.03)
    upward = Rotation.from_quat(flight.states[:, 3:7], scalar_first=True).apply([0.0, 0.0, 1.0])
    lifted = eight(1.55 + flight.times_s)[1] + [0.0, 0.0, GRAVITY]
    assert upward == pytest.approx(lifted / np.linalg.norm(lifted, axis=1, keepdims=True), abs=1e-4)
    assert flight.mass_kg == MASS_KG
    assert flight.asked_for.shape == (39, 4)
    assert flight.asked_for[:, 1:] == pytest.approx(np.tile([1e-5, 2e-5, 3e-5], (39, 1)), rel=1e-6)


def test_rates_are_those_of_the_attitude(tmp_path: Path) -> None:
    flight = load_flight(write_log(tmp_path), 40, RATE_HZ)
    turns = Rotation.from_quat(flight.states[:, 3:7], scalar_first=True)
    mean = RATE_HZ * (turns[:-1].inv() * turns[1:]).as_rotvec()
    assert mean == pytest.approx(0.5 * (flight.states[:-1, 10:] + flight.states[1:, 10:]), abs=0.01)


def test_logs_that_do_not_serve_are_refused(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    with pytest.raises(InputError, match=r"goes on for 5.0 s without a gap; expected 60 frames at 10 Hz"):
        load_flight(log, 60, RATE_HZ)
    (tmp_path / "info7.yaml").write_text("experiment: 7\n")
    with pytest.raises(InputError, match="names no mass"):
        load_flight(log, 10, RATE_HZ)
    log.write_text("t_s,locSrv.x\n0,1\n")
    with pytest.raises(InputError, match=r"has no locSrv\.y, locSrv\.z"):
        load_flight(log, 10, RATE_HZ)


def test_recordings_that_are_missing_are_named() -> None:
    with pytest.raises(InputError, match=r"'\.\./shared/data/none\.csv' is not here; .* put the folder 'shared'"):
        recorded("data/none.csv")


def followed(positions: Array, headings: Array, axes: Array) -> InputProblem:
    """The motion of the controller along these places at 10 Hz."""
    system, times = Quadrotor(), np.arange(len(positions)) / RATE_HZ
    parameters = system.parameters().with_values({"mass": MASS_KG})
    problem = Problem(system, parameters, nothing_seen(times, POINTS[:1]), make_transform(axes, np.zeros(3)))
    return sought(problem, smooth_reference(times, positions, headings, GRAVITY, axes=axes), POINTS)


def test_the_controllers_actions_fly_a_known_flight() -> None:
    times = np.arange(60) / RATE_HZ
    places, lifted = eight(times)[0], eight(times)[1] + [0.0, 0.0, GRAVITY]
    start = followed(places, 0.5 + 0.1 * times, LEVEL)
    flown = start.roll(start.numbers.start[None])[0]
    assert np.linalg.norm(flown[:, :3] - places, axis=1).max() < 0.04
    upward = Rotation.from_quat(flown[:, 3:7], scalar_first=True).apply([0.0, 0.0, 1.0])
    off = np.degrees(np.arccos(np.einsum("ti,ti->t", upward, lifted) / np.linalg.norm(lifted, axis=1)))
    assert off[5:-5].max() < 1.5
    turned = Rotation.from_quat(flown[:, 3:7], scalar_first=True).as_euler("zyx")[:, 0]
    assert turned == pytest.approx(0.5 + 0.1 * times, abs=0.02)


def test_the_controller_flies_noisy_places_smoothly() -> None:
    times, rng = np.arange(60) / RATE_HZ, np.random.default_rng(0)
    places = eight(times)[0]
    noise = rng.normal(size=places.shape) * [0.003, 0.003, 0.08]  # in depth 8 cm
    start = followed(places + noise @ LEVEL.T, 0.2 * rng.normal(size=60), LEVEL)
    flown = start.roll(start.numbers.start[None])[0]
    errors = (flown[:, :3] - places) @ LEVEL
    assert np.sqrt(np.mean(errors[:, 2] ** 2)) < 0.05
    assert np.sqrt(np.mean(errors[:, :2] ** 2)) < 0.03


def test_units_move_the_body_alike() -> None:
    start = followed(eight(np.arange(12) / RATE_HZ)[0], np.zeros(12), LEVEL)
    numbers, steps = start.numbers, 11
    size = np.sqrt(np.square(POINTS - POINTS.mean(axis=0)).sum(axis=-1).mean())
    share = 1e-4
    states = start.roll(
        np.concatenate([numbers.start[None], numbers.start + share * np.sqrt(steps) * np.diag(numbers.units)])
    )
    placed = start.problem.system.keypoints(states, POINTS)
    moves = np.sqrt(np.square(placed[1:] - placed[:1]).sum(axis=-1).mean(axis=(1, 2)))
    assert moves == pytest.approx(share * size, rel=0.01)
    by_time = numbers.units.reshape(steps, 4)
    assert (by_time[0, :3] < 0.2 * by_time[-1, :3]).all()


def test_equivalent_poses_follow_on_each_other() -> None:
    quarter = [make_transform(matrix_from_rotvec(np.array([0.0, 0.0, 0.5 * np.pi * i])), np.zeros(3)) for i in range(4)]
    before, now = (make_transform(matrix_from_rotvec(np.array([0.0, 0.1, a])), np.ones(3)) for a in (0.3, 2.0))
    assert nearest(before, now @ np.array(quarter)) == pytest.approx(now @ quarter[3])


def test_the_camera_sees_the_flight_above_the_floor_of_the_stage() -> None:
    places = eight(np.arange(100) / RATE_HZ)[0]
    there = FilmSet.about(places)
    px = project(there.camera, places)
    assert (px > 20.0).all()
    assert (px < [WIDTH - 20.0, HEIGHT - 20.0]).all()
    assert np.ptp(px[:, 0]) > 0.4 * WIDTH
    ground = there.stage_from_world[:3, :3] @ [0.3, 0.2, 0.0] + there.stage_from_world[:3, 3]
    assert ground[2] == pytest.approx(FLOOR * there.unit_m)


def drawn(shot: Shot, *_: object) -> Footage:
    """Footage without a path tracer: the mesh in shades of red before a striped wall."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    behind = torch.from_numpy(0.2 + 0.1 * np.stack([np.sin(columns / 9.0), np.cos(rows / 7.0), 0.0 * rows], axis=-1))
    pose = invert_transform(np.asarray(shot.camera.camera_to_world))
    frames = []
    for vertices in shot.vertices:
        there = torch.from_numpy(vertices @ pose[:3, :3].T + pose[:3, 3])[None]
        normals = normals_of(there, shot.mesh.faces)
        colors = torch.stack([0.5 + 0.2 * normals[..., 1].abs(), *[0.1 + 0.0 * normals[..., 0]] * 2], dim=-1)
        image, covered = draw(there, shot.mesh.faces, colors, torch.from_numpy(shot.camera.K)[None], WIDTH, HEIGHT)
        frames.append(np.round(255.0 * encode_srgb(image + (1.0 - covered[..., None]) * behind)[0].numpy()))
    backdrop = np.round(255.0 * encode_srgb(behind).numpy())
    return Footage(np.array(frames, dtype=np.uint8), backdrop.astype(np.uint8))


@pytest.fixture
def clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FlightClip:
    monkeypatch.setattr(flight_clip, "film", drawn)
    flight = load_flight(write_log(tmp_path), 10, RATE_HZ)
    mesh = load_mesh(plank(tmp_path / "plank.obj"), "m")
    return FlightClip(flight, mesh, tmp_path, 1, 0, lambda done, total: None)


def test_strips_show_the_frames_and_the_motion(clip: FlightClip, tmp_path: Path) -> None:
    flown = clip.flight.states
    aside = flown.copy()
    aside[:, 0] += 0.05
    strips, times = clip.strips({"true": flown, "aside": aside})
    assert times == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.9])
    assert list(strips) == ["clip", "true", "aside"]
    assert strips["clip"].shape == strips["aside"].shape == (8, 128, 128, 3)
    off = {name: np.abs(strips[name].astype(float) - strips["clip"]).mean(axis=(1, 2, 3)) for name in ("true", "aside")}
    assert (off["true"] < 0.5 * off["aside"]).all()
    draw_strips(strips, times, tmp_path / "strips.png")
    assert (tmp_path / "strips.png").stat().st_size > 20_000


def test_errors_are_those_of_a_motion_that_is_known(clip: FlightClip) -> None:
    flown = clip.flight.states
    exact = clip.errors(flown)
    assert exact["position_error"] == pytest.approx(0.0, abs=1e-9)
    farther = flown.copy()
    sight = flown[:, :3] - clip.camera_to_world[:3, 3]
    farther[:, :3] += 0.05 * sight / np.linalg.norm(sight, axis=1, keepdims=True)
    off = clip.errors(farther)
    assert off["depth_error"] == pytest.approx(50.0)
    assert off["sideways_error"] == pytest.approx(0.0, abs=1e-4)
    assert off["rotation_error"] == pytest.approx(0.0, abs=1e-4)
    assert isinstance(off["pixel_difference"], float)
    assert isinstance(exact["pixel_difference"], float)
    assert off["pixel_difference"] > exact["pixel_difference"]
    assert clip.action_errors(clip.wanted) == {"thrust_error": 0.0, "torque_error": 0.0}
    hover = MASS_KG * GRAVITY
    assert clip.wanted[:, 0].mean() == pytest.approx(hover, rel=0.02)  # although twice as much was asked for


@pytest.mark.slow
def test_cells_are_filled_resumed_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, mesh = write_log(tmp_path), plank(tmp_path / "plank.obj")
    monkeypatch.setattr(flight_clip, "film", drawn)
    monkeypatch.setattr(risp_real, "recorded", lambda path: mesh if path == risp_real.MESH else log)
    monkeypatch.setattr(risp_real, "QUICK_FRAMES", 8)
    monkeypatch.setattr(risp_real, "_QUICK_ITERATIONS", 2)
    arguments = {"quick": True, "out": tmp_path, "work": tmp_path / "work", "quiet": True}
    methods = ("controller-mocap", "gradsim-enhanced")
    files = reproduce("risp-real", methods=methods, **arguments)  # type: ignore[arg-type]
    rows = json.loads(files[0].read_text())["rows"]
    mine = {(row["method"], row["metric"]): row for row in rows}
    for method in methods:
        assert mine[method, "position_error"]["value"] < 20.0
        assert {unit for (of, _), row in mine.items() if of == method for unit in [row["unit"]]} >= {
            "mm",
            "deg",
            "N",
            "N m",
        }
        assert mine[method, "thrust_error"]["frames"] == 8
    assert mine["gradsim-enhanced", "fit"]["unit"] == "s"
    assert ("controller-mocap", "fit") not in mine
    assert mine["ours", "position_error"]["value"] is None
    assert {row["method"] for row in rows} == set(METHODS)
    assert {row["paper"] for row in rows} == {None}
    assert "crazyflie, ours" in files[1].read_text()
    assert files[2].stat().st_size > 20_000
    monkeypatch.setattr(risp_real.Bench, "fill", lambda *_: pytest.fail("it is there already"))
    again = reproduce("risp-real", methods=methods, **arguments)  # type: ignore[arg-type]
    assert json.loads(again[0].read_text())["rows"] == rows


def test_the_network_is_the_papers_on_ten_thousand_renders() -> None:
    full = risp_real.recipe(quick=False)
    assert (full.head, full.samples, full.gamma) == ("state@w32", 10_000, 1.0)
    assert round(risp_real.HELD_OUT * full.samples) == 2_000
    assert "risp-real" in available()


@needs_flights
def test_a_real_flight_is_flown_by_the_controllers_actions() -> None:
    flight: Flight = load_flight(LOG, risp_real.FRAMES, risp_real.RATE_HZ)
    assert flight.times_s[-1] == pytest.approx(14.3)
    headings = Rotation.from_quat(flight.states[:, 3:7], scalar_first=True).as_euler("zyx")[:, 0]
    start = followed(flight.states[:, :3], headings, LEVEL)
    flown = start.roll(start.numbers.start[None])[0]
    assert np.linalg.norm(flown[:, :3] - flight.states[:, :3], axis=1).max() < 0.03
    assert np.degrees(np.median(angle_between(flown[:, 3:7], flight.states[:, 3:7]))) < 2.0
    assert isinstance(flight.commands, Actions)

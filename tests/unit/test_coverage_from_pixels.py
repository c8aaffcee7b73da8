"""Coverage from pixels: what clips show, what the command is given, and which rows and cases are kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import meshio
import numpy as np
import pytest
import trimesh
from numpy.typing import NDArray

from benchmarks.clips.bodies import Body, build
from benchmarks.coverage import __main__ as command
from benchmarks.coverage import (
    arms,
    bars,
    filmed,
    filmed_arms,
    filmed_bars,
    filmed_blurred_falls,
    filmed_falls,
    filmed_flights,
    filmed_swings,
    filmed_throws,
    flights,
)
from benchmarks.coverage.cases import Case
from benchmarks.sweep_clips import Cell, frame_path_px
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.engine.systems.articulated import Articulated
from vid2phys.errors import InputError
from vid2phys.geometry import invert_transform, matrix_from_quat, transform_points
from vid2phys.io.actions import load_actions
from vid2phys.io.camera import load_camera
from vid2phys.io.robot import parse_robot
from vid2phys.io.video import read_clip
from vid2phys.types import Array, Camera, Estimate, Status

GRAVITY = Estimate("gravity", "m/s^2", 9.9, (9.7, 10.1), True)


def _gravity(true: float, status: Status = Status.CONVERGED) -> Case:
    return Case({"gravity": true}, {"gravity": GRAVITY}, status)


def _instead_of_identify(monkeypatch: pytest.MonkeyPatch) -> list[IdentifyConfig]:
    """Return a list that receives what `identify` is given."""
    given = list[IdentifyConfig]()

    def identify(config: IdentifyConfig) -> tuple[Any, Path]:
        config.check()
        given.append(config)
        return SimpleNamespace(parameters=(GRAVITY,), status=Status.DOUBTFUL), Path()

    monkeypatch.setattr(filmed, "identify", identify)
    return given


def test_a_fall_is_drawn_and_its_clip_goes_through_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = _instead_of_identify(monkeypatch)
    case = filmed_falls.case(0, tmp_path / "0")
    (config,) = given
    assert (config.model, config.fit, config.system) == (Path("none"), ("gravity",), "rigid_contact")
    assert isinstance(config.clip, Path)
    frames = np.stack(list(read_clip(config.clip).frames)).astype(float)
    assert 20 <= len(frames) <= 50
    moving = np.abs(frames - np.median(frames, axis=0)).max(axis=-1) > 60.0
    assert 100 < moving[0].sum() < 0.2 * moving[0].size
    assert case.converged
    assert case.found == {"gravity": GRAVITY}
    assert 8.8 < case.truth["gravity"] < 10.8


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_body_of_a_blurred_fall_moves_far_in_an_exposure(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (given, made) = _instead_of_identify(monkeypatch), list[tuple[Cell, Body]]()
    monkeypatch.setattr(filmed_falls, "make", lambda cell, body, *_: made.append((cell, body)))
    case = filmed_blurred_falls.case(seed, tmp_path)
    ((cell, body),) = made
    assert 24.0 <= cell.fps <= 60.0
    assert cell.blur_px <= 0.3 * cell.size_px
    assert cell.blur_px <= 0.85 * frame_path_px(cell, body, seed) + 1e-9
    assert cell.blur_px >= min(0.08 * cell.size_px, 0.85 * frame_path_px(cell, body, seed)) - 1e-9
    assert case.truth == {"gravity": cell.gravity}
    assert given[0].fit == ("gravity",)


def test_an_arm_is_drawn_where_the_models_kinematics_place_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = _instead_of_identify(monkeypatch)
    monkeypatch.setattr(filmed_arms, "FRAMES", 6)
    case = filmed_arms.case(1, tmp_path / "1")  # without motion blur
    (config,) = given
    assert (config.body, config.mesh) == (str(tmp_path / "1" / "arm.xml"), None)
    assert config.fit == ("joint_damping", "payload")
    assert set(case.truth) == {"damping_joint1", "damping_joint2", "damping_joint3", "payload_mass"}
    arm = arms.random_arm(np.random.default_rng([1, 84]))
    assert case.truth == arm.values
    body = JointBody(Articulated(parse_robot(arm.given, Path("arm.xml"))))
    camera, frames = _camera_and_frames(config)
    shapes = body.all_vertices(arms.motion(arm)[[0, 5]])
    masks = np.stack([_covered(each, body.mesh.faces, camera) for each in shapes])
    moved = np.abs(frames[5] - frames[0]).max(axis=-1) > 40.0
    either = masks[0] | masks[1]
    assert len(frames) == 6
    assert (moved & either).sum() > 0.97 * moved.sum() > 100
    assert moved[masks[0] ^ masks[1]].mean() > 0.5


def test_a_bar_begins_in_the_shape_of_the_users_mesh_at_the_pose_of_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = _instead_of_identify(monkeypatch)
    monkeypatch.setattr(bars, "FRAMES", 7)
    case = filmed_bars.case(3, tmp_path / "3")
    (config,) = given
    assert (config.system, config.clamp, config.fit) == ("soft_body", ("x<0.0001",), ("young_modulus", "damping"))
    assert set(config.set_values) == {"poisson_ratio", "density"}
    assert set(case.truth) == set(config.fit)
    assert isinstance(config.body, str)
    assert config.base is not None
    mesh = meshio.read(config.body)
    tilt = np.radians(float(config.base.removeprefix("y:")))
    about_y = np.array([[np.cos(tilt), 0.0, np.sin(tilt)], [0.0, 1.0, 0.0], [-np.sin(tilt), 0.0, np.cos(tilt)]])
    hull = trimesh.convex.convex_hull(mesh.points @ about_y.T)
    camera, frames = _camera_and_frames(config)
    covered = _covered(np.asarray(hull.vertices), np.asarray(hull.faces), camera)
    body = frames[0][cv2.erode(covered.astype(np.uint8), np.ones((5, 5), np.uint8)) > 0]
    moved = np.abs(frames[6] - frames[0]).max(axis=-1) > 40.0
    assert np.median(np.abs(body - np.median(body, axis=0))) < 12.0  # one colour, but for light and noise
    assert 0.2 < (moved & covered).sum() / covered.sum() < 1.0
    assert (moved & covered).sum() > 0.4 * moved.sum()  # the rest is where the bar goes


def test_a_flight_is_seen_and_its_actions_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = _instead_of_identify(monkeypatch)
    monkeypatch.setattr(flights, "FRAMES", 8)
    case = filmed_flights.case(0, tmp_path / "0")
    (config,) = given
    assert (config.system, config.fit) == ("quadrotor", ("mass", "drag"))
    assert set(case.truth) == {"mass", "drag"}
    assert isinstance(config.actions, Path)
    thrust = load_actions(config.actions).values[:, 0]
    assert thrust.mean() / case.truth["mass"] == pytest.approx(9.81, rel=0.2)
    _, frames = _camera_and_frames(config)
    moved = np.abs(frames[7] - frames[0]).max(axis=-1) > 40.0
    rows, columns = np.nonzero(moved)
    assert len(frames) == 8
    assert len(rows) > 100
    assert np.ptp(columns) < 0.9 * frames.shape[2]


def _camera_and_frames(config: IdentifyConfig) -> tuple[Camera, Array]:
    assert isinstance(config.camera, Path)
    assert isinstance(config.clip, Path)
    return load_camera(config.camera), np.stack(list(read_clip(config.clip).frames)).astype(float)


def _covered(vertices: Array, faces: NDArray[np.int64], camera: Camera) -> NDArray[np.bool_]:
    """Return where a mesh in the world covers the image [H, W], with a border of a pixel."""
    assert camera.camera_to_world is not None
    cover = rasterize_camera(transform_points(invert_transform(camera.camera_to_world), vertices), faces, camera)
    return np.asarray(cv2.dilate(cover.coverage.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0)


def test_an_error_of_the_command_counts_as_not_converged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def identify(config: IdentifyConfig) -> None:
        raise InputError("the body is found in no frame", "a clip that shows it", "use --hint")

    monkeypatch.setattr(filmed, "identify", identify)
    case = filmed.identified(tmp_path, {"mu": 0.3}, system="rigid_contact")
    assert (case.found, case.converged) == ({}, False)


def test_a_throw_reaches_the_floor_inside_of_the_image() -> None:
    truth = {"mu": 0.3, "restitution": 0.4}
    solid, motion, frames, lens = filmed_throws._thrown(np.random.default_rng(3), truth, 60.0)
    position, quats = motion.at(np.arange(frames) / 60.0)
    points = np.einsum("tij,vj->tvi", matrix_from_quat(quats), solid.hull) + position[:, None]
    assert points[..., 2].min() == pytest.approx(0.0, abs=2e-3)
    pixels, depth = lens.project(points)
    assert ((pixels > 0.0) & (pixels < np.array(lens.size_px))).all()
    assert depth.min() > 0.0


def test_swings_hang_from_a_point_of_the_body_far_from_its_centre_of_mass() -> None:
    for seed in range(20):
        swing = filmed_swings.random_swing(np.random.default_rng(seed))
        solid = build(swing.body)
        low, high = solid.vertices.min(axis=0), solid.vertices.max(axis=0)
        assert (low <= swing.point_m).all()
        assert (swing.point_m <= high).all()
        assert np.hypot(*swing.point_m[:2]) > 0.02


def test_the_mass_of_a_swing_is_given_and_its_truth_is_that_of_the_clip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, known = _instead_of_identify(monkeypatch), {"length": 0.1, "damping": 1e-3, "mass": 0.2, "inertia": 1e-3}
    (tmp_path / "clip.mp4").touch()
    (tmp_path / "truth.json").write_text(json.dumps({"parameters": known}))
    case = filmed_swings.case(0, tmp_path)
    (config,) = given
    assert (config.system, config.fit, config.set_values) == ("pendulum", ("length", "damping"), {"mass": 0.2})
    assert case.truth == {"length": 0.1, "damping": 1e-3}


def test_both_sources_of_errors_stay_in_the_file_and_cases_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = list[int]()

    def case(seed: int, folder: Path | None = None) -> Case:
        calls.append(seed)
        return _gravity(9.8 + 0.1 * seed, Status.DOUBTFUL if seed == 2 else Status.CONVERGED)

    modules = {f"benchmarks.coverage.{kind}": SimpleNamespace(case=case) for kind in ("falls", "filmed_falls")}
    monkeypatch.setattr(command.importlib, "import_module", modules.__getitem__)
    for kind in ("falls", "filmed_falls", "filmed_falls"):
        options = [kind, "--count", "3", "--json", str(tmp_path / "rows.json"), "--work", str(tmp_path / "work")]
        monkeypatch.setattr(sys, "argv", ["coverage", *options])
        command.main()
    assert calls == [0, 1, 2, 0, 1, 2]
    kept = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["errors"], row["motions"], row["doubtful"]) for row in kept] == [
        ("drawn", 3, 1),
        ("from pixels", 3, 1),
        ("from pixels, no doubts", 2, 0),
    ]
    assert "filmed_falls, doubtful: 2" in capsys.readouterr().out


def test_a_case_is_kept_as_it_was() -> None:
    case = _gravity(9.8)
    assert Case.of_json(json.loads(json.dumps(case.to_json()))) == case

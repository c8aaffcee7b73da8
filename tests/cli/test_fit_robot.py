"""`vid2phys identify --fit` of a robot that swings freely, from images: MuJoCo moves it, own kinematics draw it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import cv2
import mujoco
import numpy as np
import pytest

from tests.moving_arm import FPS, SWING, arm_clip, camera_of, urdf
from vid2phys import cli
from vid2phys.io.camera import save_camera
from vid2phys.types import Array

FRAMES = 40
TRUTH = {"damping_joint1": 0.02, "damping_joint2": 0.008, "payload_mass": 0.3}


def swinging() -> Array:
    """Return joint angles [FRAMES, 2] by MuJoCo, of the arm with the true damping and mass of the last link."""
    spec = mujoco.MjSpec.from_string(urdf(SWING))
    for name in ("joint1", "joint2"):
        spec.joint(name).damping[0] = TRUTH[f"damping_{name}"]
    last = spec.body("link2")
    last.mass, last.fullinertia = TRUTH["payload_mass"], [1.5e-3, 1.5e-3, 1.5e-3, 0.0, 0.0, 0.0]
    model = spec.compile()
    model.opt.timestep, model.opt.integrator = 1.0 / (60 * FPS), mujoco.mjtIntegrator.mjINT_RK4
    data = mujoco.MjData(model)
    data.qpos[:] = 1.2, -0.9
    found = []
    for _ in range(FRAMES):
        found.append(data.qpos.copy())
        mujoco.mj_step(model, data, 60)
    return np.array(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Array]:
    """Return a folder with images, camera and robot, and the joint angles [T, 2]."""
    place, motion = tmp_path_factory.mktemp("swing"), swinging()
    camera = camera_of((0.25, -1.1, 0.0), (0.0, 0.0, -0.08), 480, 570.0)
    (place / "images").mkdir()
    for i, image in enumerate(arm_clip(SWING, camera, motion).frames):
        cv2.imwrite(str(place / "images" / f"{i:04d}.png"), np.ascontiguousarray(image[..., ::-1]))
    save_camera(camera, place / "cam.yaml")
    (place / "arm.urdf").write_text(urdf(SWING))
    rows = [[i, i / FPS, *each] for i, each in enumerate(motion)]
    header = "frame,time_s,joint1_position_rad,joint2_position_rad"
    np.savetxt(place / "joint_states.csv", rows, delimiter=",", header=header, comments="")
    return place, motion


def identified(monkeypatch: pytest.MonkeyPatch, place: Path, out: str, *more: str) -> dict[str, Any]:
    given = ["identify", str(place / "images"), "--fps", f"{FPS:g}", "--body", str(place / "arm.urdf"), "--no-overlay"]
    monkeypatch.setattr(
        "sys.argv", ["vid2phys", *given, "--camera", str(place / "cam.yaml"), "--out", str(place / out), *more]
    )
    assert cli._run() == 0
    result: dict[str, Any] = json.loads((place / out / "result.json").read_text())
    return result


def test_damping_and_payload_of_a_swinging_arm(folder: tuple[Path, Array], monkeypatch: pytest.MonkeyPatch) -> None:
    place, motion = folder
    result = identified(monkeypatch, place, "run", "--fit", "joint_damping,payload")
    assert result["status"] == "converged"
    for name, true in TRUTH.items():
        found = result["parameters"][name]
        assert found["ci95"][0] < true < found["ci95"][1]
        assert found["value"] == pytest.approx(true, rel=0.2)
    table = np.genfromtxt(place / "run" / "trajectory.csv", delimiter=",", names=True)
    off = np.stack([table["joint1_rad"], table["joint2_rad"]], axis=1) - motion
    assert np.degrees(np.sqrt((off**2).mean(axis=0))).max() < 0.7


@pytest.mark.slow
def test_a_base_that_is_off_is_fitted(folder: tuple[Path, Array], monkeypatch: pytest.MonkeyPatch) -> None:
    place, motion = folder
    result = identified(monkeypatch, place, "base", "--base", "shift:0.1:0:0.05", "--fit", "base")
    assert result["parameters"]["base_move_x"]["value"] == pytest.approx(-0.1, abs=0.006)
    assert result["parameters"]["base_move_z"]["value"] == pytest.approx(-0.05, abs=0.004)
    assert any("the same by --base shift:0.1:0:0.05," in note for note in result["diagnostics"]["notes"])
    table = np.genfromtxt(place / "base" / "trajectory.csv", delimiter=",", names=True)
    assert np.degrees(np.abs(np.median(table["joint1_rad"] - motion[:, 0]))) < 1.0


@pytest.mark.slow
def test_a_base_that_is_off_is_reported(
    folder: tuple[Path, Array], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place, _ = folder
    given = ["identify", str(place / "images"), "--fps", f"{FPS:g}", "--body", str(place / "arm.urdf"), "--base"]
    given += ["shift:0.2:0:0", "--camera", str(place / "cam.yaml"), "--out", str(place / "off")]
    monkeypatch.setattr("sys.argv", ["vid2phys", *given])
    assert cli._run() == 3
    assert re.search(r"is not where its base is given, but -(19|20)\.\d, ", capsys.readouterr().err)


def test_true_joint_angles_are_fitted_by_the_same_model(
    folder: tuple[Path, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, _ = folder
    states, body = str(place / "joint_states.csv"), str(place / "arm.urdf")
    more = ["--body", body, "--fit", "joint_damping,payload", "--out", str(place / "states")]
    monkeypatch.setattr("sys.argv", ["vid2phys", "fit-recording", "articulated", states, *more])
    assert cli._run() == 0
    found = json.loads((place / "states" / "result.json").read_text())["parameters"]
    assert {name: found[name]["value"] for name in TRUTH} == pytest.approx(TRUTH, rel=1e-3)

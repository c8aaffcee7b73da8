"""`vid2phys identify` of a robot's file: a drawn arm of two boxes, driven by motors, from images to the run folder."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.moving_arm import SWING, arm_clip, camera_of, swings, urdf
from vid2phys import cli
from vid2phys.io.camera import save_camera
from vid2phys.types import Array


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["vid2phys", *arguments])
    return cli._run()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Array]:
    """Return a folder with images, camera and robot, and the joint angles [T, 2]."""
    place = tmp_path_factory.mktemp("arm")
    camera, motion = camera_of((0.25, -1.1, 0.1), (0.0, 0.0, -0.05), 320, 400.0), swings(SWING, 24, seed=3)
    (place / "images").mkdir()
    for i, image in enumerate(arm_clip(SWING, camera, motion).frames):
        cv2.imwrite(str(place / "images" / f"{i:04d}.png"), np.ascontiguousarray(image[..., ::-1]))
    save_camera(camera, place / "cam.yaml")
    (place / "arm.urdf").write_text(urdf(SWING))
    return place, motion


def options(place: Path, robot: str, out: str) -> list[str]:
    given = ["identify", str(place / "images"), "--fps", "60", "--body", str(place / robot), "--model", "none"]
    return [*given, "--camera", str(place / "cam.yaml"), "--out", str(place / out)]


def test_joint_angles_of_every_frame_are_written(folder: tuple[Path, Array], monkeypatch: pytest.MonkeyPatch) -> None:
    place, motion = folder
    assert run_cli(monkeypatch, *options(place, "arm.urdf", "run")) == 0
    header, *rows = (place / "run" / "trajectory.csv").read_text().splitlines()
    assert header.split(",")[:7] == [
        *("time_s", "joint1_rad", "joint2_rad", "joint1_rad_s", "joint2_rad_s", "std_joint1_rad", "std_joint2_rad"),
    ]
    table = np.array([[float(cell) for cell in row.split(",")] for row in rows])
    assert np.degrees(np.sqrt(((table[:, 1:3] - motion) ** 2).mean(axis=0))).max() < 0.7
    assert (np.abs(table[:, 1:3] - motion) < 4.0 * table[:, 5:7]).mean() > 0.95
    result = json.loads((place / "run" / "result.json").read_text())
    assert result["status"] == "converged"
    assert result["fit"]["frames_lost"] == 0
    assert {"overlay.mp4", "preview.jpg", "report.html"} <= {path.name for path in (place / "run").iterdir()}


def test_joint_that_mimics_another_ends_with_one_line(
    folder: tuple[Path, Array], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place, _ = folder
    mimic = '<axis xyz="0 1 0"/><mimic joint="joint1"/>'
    first, _, second = urdf(SWING).rpartition('<axis xyz="0 1 0"/>')
    (place / "mimic.urdf").write_text(first + mimic + second)
    assert run_cli(monkeypatch, *options(place, "mimic.urdf", "none")) == 3
    assert "joint 'joint2'" in capsys.readouterr().err
    assert not (place / "none").exists()

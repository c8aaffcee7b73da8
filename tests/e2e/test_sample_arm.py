"""The arm's files agree with each other, and the clip gives the true damping and payload."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from vid2phys.commands.fit_recording import fit_recording
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.pipeline import identify
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.engine.systems.articulated import Articulated
from vid2phys.geometry import invert_transform
from vid2phys.io.camera import load_camera
from vid2phys.io.video import read_clip

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "arm"
FIT = ("joint_damping", "payload")


@pytest.fixture(scope="module")
def truth() -> dict[str, float]:
    return dict(json.loads((SAMPLE / "truth.json").read_text())["parameters"])


def test_the_true_joint_angles_give_the_true_parameters(truth: dict[str, float], tmp_path: Path) -> None:
    states, body = [SAMPLE / "joint_states.csv"], SAMPLE / "arm.urdf"
    fitted, _ = fit_recording("articulated", states, body=body, fit=FIT, out=tmp_path / "run")
    assert {each.name: each.value for each in fitted.estimates} == pytest.approx(truth, rel=1e-3)


def test_the_clip_shows_the_arm_where_its_joint_angles_place_it() -> None:
    clip, camera = read_clip(SAMPLE / "clip.mp4"), load_camera(SAMPLE / "camera.yaml")
    assert (SAMPLE / "clip.mp4").stat().st_size < 400_000
    body = JointBody(Articulated(SAMPLE / "arm.urdf"))
    table = np.genfromtxt(SAMPLE / "joint_states.csv", delimiter=",", names=True)
    assert len(table) == len(clip.times_s)
    np.testing.assert_allclose(clip.times_s, table["time_s"], atol=1e-4)
    frames = list(clip.frames)
    assert camera.camera_to_world is not None
    to_camera = invert_transform(camera.camera_to_world)
    for row in (0, len(table) // 2, len(table) - 1):
        at = np.array([table["shoulder_position_rad"][row], table["elbow_position_rad"][row]])
        # the payload is the last box of the file
        middle = body.vertices(at)[-8:].mean(axis=0) @ to_camera[:3, :3].T + to_camera[:3, 3]
        x, y = np.round(bearings_to_pixels(camera, middle[None, :2] / middle[2])[0]).astype(int)
        red, _, blue = frames[row][y - 2 : y + 3, x - 2 : x + 3].reshape(-1, 3).mean(axis=0)
        assert blue > 1.5 * red  # the payload is the only thing of its colour


@pytest.mark.slow
def test_the_clip_gives_the_true_parameters(truth: dict[str, float], tmp_path: Path) -> None:
    result, _ = identify(
        IdentifyConfig(
            clip=SAMPLE / "clip.mp4",
            camera=SAMPLE / "camera.yaml",
            body=str(SAMPLE / "arm.urdf"),
            fit=FIT,
            overlay=False,
            out=tmp_path / "run",
        )
    )
    found = {each.name: each for each in result.parameters}
    for name, true in truth.items():
        assert found[name].ci95[0] < true < found[name].ci95[1]
        assert found[name].value == pytest.approx(true, rel=0.1)

"""`vid2phys control`: from an image, through the shipped network, to actions; judged by the log of the flight."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experiments.experiments import nothing_seen
from tests.cli.test_cli import run_cli
from vid2phys.commands import control as task
from vid2phys.commands.control import Target, control
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems import get
from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import look_at
from vid2phys.io.actions import load_actions
from vid2phys.io.array_clip import load_image_clip
from vid2phys.io.camera import save_camera
from vid2phys.io.mocap import load_mocap
from vid2phys.io.run import load_trajectory
from vid2phys.io.video import read_clip
from vid2phys.report.alignment import Alignment, apply
from vid2phys.tracking.articulated.tracker import ConfigurationTrack
from vid2phys.types import Camera

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "quadrotor"
FRAME = 20
GIVEN: dict[str, Any] = {
    "mesh": SAMPLE / "quad.obj", "camera": SAMPLE / "camera.yaml", "model": ROOT / "models" / "quadrotor",
    "set_values": {"mass": 0.72, "inertia_xx": 0.0034, "inertia_yy": 0.0037, "inertia_zz": 0.0061},
}  # fmt: skip


def image(path: Path, frame: int) -> Path:
    Image.fromarray(next(read_clip(SAMPLE / "clip.mp4").frames.at([frame]))).save(path)
    return path


def test_actions_bring_the_quadrotor_to_where_the_log_has_it(tmp_path: Path) -> None:
    target = image(tmp_path / "target.png", FRAME)
    found, folder = control(
        target, **GIVEN, initial={"position_z_m": 1.0}, seconds=0.8, rate=10.0, out=tmp_path / "run"
    )
    assert found.status == "reached"
    truth = json.loads((SAMPLE / "truth.json").read_text())
    log = load_mocap(SAMPLE / "mocap.csv")
    position, _, _ = apply(Alignment(truth["time_offset_s"]), log, np.array([FRAME / 30.0]))
    trajectory = load_trajectory(folder / "trajectory.csv")
    end = trajectory.states[-1]
    assert np.linalg.norm(end[:3] - position[0]) < 0.08  # depth of a single image
    assert np.abs(end[7:10]).max() < 0.02
    actions = load_actions(folder / "actions.csv")
    assert actions.values[:, 0].min() >= 0.0
    system = get("quadrotor")
    controls = np.zeros((1, len(actions.values), 10))
    controls[0, :, :4] = actions.values
    parameters = system.parameters().with_values(GIVEN["set_values"]).vector
    again = simulate(system, trajectory.states[:1], controls, parameters, 0.1, substeps=100)[0, -1]
    np.testing.assert_allclose(again[:3], end[:3], atol=2e-3)
    data = json.loads((folder / "result.json").read_text())
    assert (data["schema"], data["status"]) == ("vid2phys.control/1", "reached")
    assert data["miss"]["rms_m"] < 0.01
    assert set(data["files"]) == {"trajectory", "actions", "config", "overlay"}
    assert len(read_clip(folder / "overlay.mp4").times_s) == 21


def test_a_image_that_does_not_show_the_body_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = read_clip(SAMPLE / "clip.mp4")
    empty = np.median(list(clip.frames.at(range(0, 144, 16))), axis=0).astype(np.uint8)
    Image.fromarray(empty).save(tmp_path / "empty.png")
    options = ("--mesh", str(GIVEN["mesh"]), "--camera", str(GIVEN["camera"]), "--model", str(GIVEN["model"]))
    target = str(tmp_path / "empty.png")
    assert run_cli(monkeypatch, "control", "--target", target, *options, "--out", str(tmp_path / "run")) == 3
    err = capsys.readouterr().err.splitlines()[-1]
    assert err.startswith("vid2phys: the body is not seen in the target 'empty'")
    assert "expected an image that shows it" in err
    assert not (tmp_path / "run").exists()


@pytest.fixture
def aimed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A target a metre aside, read without a network."""
    points = 0.1 * np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0.3]])
    target = Target(points, points + np.array([1.0, 0.0, 0.0]), {"quality": 1.0}, 0.01, 0.15, ())
    monkeypatch.setattr(task, "read_target", lambda *_: target)
    return image(tmp_path / "target.png", 0)


def test_a_target_out_of_reach_says_by_how_much_it_is_missed(
    aimed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--mesh", str(GIVEN["mesh"]), "--camera", str(GIVEN["camera"]), "--model", str(GIVEN["model"]))
    limits = [f"--limit=torque_{axis}=-0.01..0.01" for axis in "xyz"]  # 3 rad/s^2: in 0.2 s it comes millimetres aside
    code = run_cli(
        monkeypatch, "control", "--target", str(aimed), *options, "--set", "mass=0.7", *limits, "--rate", "40",
        "--seconds", "0.2", "--no-overlay", "--out", str(tmp_path / "run"),
    )  # fmt: skip
    assert code == 4
    out = capsys.readouterr().out
    missed = re.match(
        r"the target is missed: (\S+) m off on the mean, from 1 m at the start, (\d+)% of the body's", out
    )
    assert missed is not None
    assert 0.9 < float(missed[1]) < 1.0
    assert float(missed[2]) == pytest.approx(100.0 * float(missed[1]) / 0.15, abs=1.0)
    assert "widen --limit" in out
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "missed"


def test_a_body_on_a_base_takes_a_imaged_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hand from a track of its own configuration, its camera where the image was taken."""
    body = JointBody(get("hand"))
    pose = look_at(body.center_m + np.array([0.6, 0.1, 0.5]), body.center_m)
    save_camera(
        Camera(np.array([[700.0, 0, 320], [0, 700, 240], [0, 0, 1]]), 640, 480, camera_to_world=pose),
        tmp_path / "c.yaml",
    )
    configuration = np.zeros(13)
    configuration[[1, 5]] = 0.3, -0.2
    nothing = nothing_seen(np.zeros(1), np.zeros((1, 3)))
    seen = ConfigurationTrack(nothing, configuration[None], 1e-4 * np.eye(13)[None], np.ones(1, bool), np.ones(1), ())
    monkeypatch.setattr("vid2phys.commands.identify.pipeline.track_configuration", lambda *_: seen)
    found, folder = control(
        image(tmp_path / "t.png", 0), camera=tmp_path / "c.yaml", system="hand", model=ROOT / "models" / "hand",
        seconds=0.2, rate=20.0, out=tmp_path / "run", overlay=False,
    )  # fmt: skip
    assert found.status == "reached"
    data = json.loads((folder / "result.json").read_text())
    assert data["target"]["configuration"]["finger1_0"] == pytest.approx(0.3)
    assert data["end"]["finger1_0_rad"] == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"limits": {"lift": (0.0, 1.0)}}, "unknown action 'lift'; expected one of thrust, torque_x"),
        ({"limits": {"thrust": (2.0, 1.0)}}, "--limit thrust=2..1; expected a lower end below the upper"),
        ({"seconds": 0.0}, "--seconds 0; expected a positive number"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as raised:
        control(image(tmp_path / "t.png", 0), **(GIVEN | options), out=tmp_path / "run")
    assert text in str(raised.value)


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.png").write_text("no image")
    with pytest.raises(InputError, match="is not an image"):
        load_image_clip(tmp_path / "t.png", 3, 25.0)
    with pytest.raises(InputError, match="does not exist"):
        load_image_clip(tmp_path / "none.png", 3, 25.0)

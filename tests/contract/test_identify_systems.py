"""Each registered system, and that of the documentation, is identified from its own motion or refused in one line.

Rigid bodies go through the command, with keypoints of their simulated motion as `--observation`. Joints and modes go
through their solver, with keypoints of their simulated motion. `tests/e2e` films the sample and reads its pixels.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import trimesh

from tests.recovery.test_posed_fit import check, problem_of, small_rod
from vid2phys import cli
from vid2phys.commands.identify import identify
from vid2phys.engine import systems
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.observe import bearings_to_pixels, observe
from vid2phys.engine.rollout import simulate
from vid2phys.engine.system import System
from vid2phys.engine.systems._joint_tree import JointTree
from vid2phys.engine.systems._rigid import RigidBodies
from vid2phys.errors import UsageError
from vid2phys.geometry import look_at
from vid2phys.io.actions import save_actions
from vid2phys.io.camera import save_camera
from vid2phys.io.mesh import load_mesh
from vid2phys.io.points import save_body_points
from vid2phys.io.video import VideoWriter
from vid2phys.types import Actions, Array, Camera

ROOT = Path(__file__).resolve().parents[2]
FRAMES, FPS, NOISE_PX = 40, 40.0, 0.3
SIDE_M = 0.05
CORNERS = SIDE_M * np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
CAMERA = Camera(np.array([[400.0, 0.0, 320.0], [0.0, 400.0, 240.0], [0.0, 0.0, 1.0]]), 640, 480,
                camera_to_world=look_at(np.array([-2.0, -0.6, 0.3]), np.zeros(3)))  # fmt: skip
OWN = "slider"
# whose options, or files, change their parameters
PER_OPTION = ("articulated", "cloth", "gear", "hand", "mass_spring", "rod", "soft_body", "walker")


def named(observed_as: str | None) -> list[str]:
    return [name for name in systems.available() if systems.get(name).capabilities.observed_as == observed_as]


@pytest.fixture
def documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the documentation's own system, in a folder that `VID2PHYS_SYSTEMS` might name."""
    text = (ROOT / "docs" / "your-system.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    (tmp_path / f"{OWN}.py").write_text(found[1])
    monkeypatch.setattr(systems, "__path__", [*systems.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"{systems.__name__}.{OWN}", raising=False)
    return OWN


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["vid2phys", *arguments])
    return cli._run()


def film(system: System, folder: Path) -> dict[str, Path]:
    """Simulate a short motion; write a clip, the camera, keypoints with noise, and actions where they are recorded."""
    rng = np.random.default_rng(4)
    parameters = system.parameters().vector
    controls = np.zeros((1, FRAMES - 1, len(system.control_names)))
    driven = bool(system.capabilities.inputs)
    time = np.arange(FRAMES - 1) / FPS
    if driven:
        controls[0] = system.carrying_controls(parameters) * (1.0 + 0.4 * np.sin(2.0 * np.pi * 2.0 * time))[:, None]
    state = system.rest_state()
    state[:3] = 0.0, 0.0, 0.0 if driven else -0.6
    state[7:13] = [0.0, 0.2, 0.0 if driven else 4.9, *((0.0,) * 3 if driven else (1.0, 2.0, 0.5))]
    states = simulate(system, state[None], controls, parameters, 1.0 / FPS, substeps=20)[0]
    pixels = bearings_to_pixels(CAMERA, observe(system, states, CORNERS, CAMERA.camera_to_world)[0])
    pixels += NOISE_PX * rng.normal(size=pixels.shape)
    files = {name: folder / name for name in ("clip.mp4", "camera.yaml", "seen.csv", "points.csv", "actions.csv")}
    with VideoWriter(files["clip.mp4"], CAMERA.width, CAMERA.height, FPS) as video:
        for _ in range(FRAMES):
            video.write(np.zeros((CAMERA.height, CAMERA.width, 3), dtype=np.uint8))
    save_camera(CAMERA, files["camera.yaml"])
    rows = [f"{t},p{k},{x:.4f},{y:.4f},{NOISE_PX},0.001\n" for t, frame in enumerate(pixels)
            for k, (x, y) in enumerate(frame)]  # fmt: skip
    files["seen.csv"].write_text("frame,point,x_px,y_px,sigma_px,shared_px\n" + "".join(rows))
    save_body_points({f"p{k}": point for k, point in enumerate(CORNERS)}, files["points.csv"])
    if driven:
        count = len(system.action_names)
        kind = system.input
        save_actions(Actions(time, controls[0, :, :count], kind, system.action_names, system.action_units),
                     files["actions.csv"], None)  # fmt: skip
    return files


def test_every_system_declares_its_purpose() -> None:
    for name in systems.available():
        system = systems.get(name)
        can, parameters = system.capabilities, system.parameters().names
        assert can.purpose, name
        assert "\n" not in can.purpose
        assert all(can.needed_for(parameter) for parameter in parameters), name
        for declared in (*can.inertial, *can.scene):
            assert any(p == declared or p.startswith(f"{declared}_") for p in parameters) or name in PER_OPTION, (
                declared
            )


@pytest.mark.parametrize("name", named("rigid"))
def test_a_rigid_body_is_identified_from_its_own_motion(name: str, tmp_path: Path) -> None:
    system = systems.get(name)
    mesh = tmp_path / "body.obj"
    trimesh.creation.box((2 * SIDE_M,) * 3).export(mesh)
    filmed = system.for_clip(load_mesh(mesh))
    files = film(filmed, tmp_path)
    driven = bool(system.capabilities.inputs)
    fit = "mass" if driven else "scale"
    truth = filmed.parameters()["mass"].value if driven else 1.0
    result, _ = identify(
        *(files["clip.mp4"], mesh, files["camera.yaml"]), system=name, fit=(fit,), observation=files["seen.csv"],
        body_points=files["points.csv"], actions=files["actions.csv"] if driven else None, overlay=False,
        out=tmp_path / "run",
    )  # fmt: skip
    assert result.status.key == "converged", (result.message, result.diagnostics["notes"], result.parameters)
    found = next(estimate for estimate in result.parameters if estimate.name == fit)
    assert found.ci95[0] < truth < found.ci95[1]
    assert found.value == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize("name", named("joints"))
def test_joints_are_identified_from_their_own_motion(name: str) -> None:
    system = systems.get(name)
    assert isinstance(system, JointTree)
    body = JointBody(system)
    parameter = next(p for p in system.parameters() if p.name.startswith("damping_"))
    truth = system.parameters().with_values({parameter.name: 2.0 * parameter.value})
    moved: Array = np.full(len(body.names), 0.3) * np.where(body.upper - body.lower > 1.0, 1.0, 0.1)
    start = body.states(moved, np.zeros(len(moved)))
    problem = problem_of(system, body.points_body, truth, start, (parameter.name,), 16)
    check(problem, body, 0.9 * moved, np.zeros(len(moved)), truth, 0.2)


@pytest.mark.parametrize("name", named("modes"))
def test_modes_are_identified_from_their_own_motion(name: str) -> None:
    system, body = small_rod()
    assert system.name == name
    truth = system.parameters().with_values({"young_modulus": 6e5})
    start = body.states(np.array([0.0, 0.03, 0.0, 0.0]), np.array([0.3, 0.0, 0.0, 0.0]))
    problem = problem_of(system, body.points_body, truth, start, ("young_modulus",), 2)
    check(problem, body, np.array([0.0, 0.02, 0.0, 0.0]), np.zeros(4), truth, 0.05)


@pytest.mark.parametrize("command", ["identify", "control", "train-risp"])
@pytest.mark.parametrize("name", [*named(None), OWN])
def test_what_no_camera_follows_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], documented: str, name: str, command: str
) -> None:
    words = {"identify": ["clip.mp4"], "control": ["--target", "image.png"], "train-risp": []}[command]
    camera = [] if command == "train-risp" else ["--camera", "c.yaml"]
    assert run(monkeypatch, command, *words, "--mesh", "m.obj", *camera, "--system", name) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    for words_said in (systems.get(name).capabilities.purpose, f"vid2phys fit-recording {name}", "a camera follows"):
        assert words_said in error


@pytest.mark.parametrize("name", [*named("joints"), *named("modes")])
def test_a_mesh_too_many_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words = ("identify", "clip.mp4", "--mesh", "m.obj", "--camera", "c.yaml", "--system", name)
    assert run(monkeypatch, *words) == 2
    assert "which has a mesh of its own; expected no mesh" in capsys.readouterr().err


def test_what_a_free_body_does_not_show_is_refused_with_what_would(tmp_path: Path) -> None:
    cube = ROOT / "samples" / "cube" / "cube.obj"
    files = film(systems.get("quadrotor"), tmp_path)
    inputs = files["clip.mp4"], cube, files["camera.yaml"]
    with pytest.raises(UsageError, match=r"--fit arm_length: no effect .* arm_length needs"):
        identify(*inputs, system="quadrotor", fit=("arm_length",), out=tmp_path / "run")


def test_a_subclass_of_rigid_bodies_is_seen_by_default() -> None:
    one = systems.get("quadrotor")
    assert isinstance(one, RigidBodies)
    assert super(type(one), one).capabilities.observed_as == "rigid"

"""`--body`: what commands make of a primitive, from the options up to the inputs and the film."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh

from vid2phys.commands import evaluate, train_risp
from vid2phys.commands.config import read_config, write_config
from vid2phys.commands.configs import ControlConfig, FitRecordingConfig, SimulateConfig, TrainConfig
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.default_system import with_system
from vid2phys.commands.identify.inputs import Filmed, read_inputs
from vid2phys.commands.options import built
from vid2phys.commands.simulate import simulate
from vid2phys.commands.simulation_inputs import read_system
from vid2phys.engine.constants import RISP_CUBE
from vid2phys.errors import UsageError
from vid2phys.io.primitives import load_body
from vid2phys.risp.networks.model_lookup import train_command
from vid2phys.types import Camera, Clip

ROOT = Path(__file__).resolve().parents[2]
CAMERA = ROOT / "samples" / "quadrotor" / "camera.yaml"
CLIP = {"clip": "c.mp4", "camera": "c.yaml", "system": "rigid_contact", "model": "models/any"}
BALL, CAN, BOX = "ball:d=66mm", "cylinder:d=40mm,h=100mm", "box:120x80x50mm"
UNSEEN_SPIN = "a plain ball shows its position only: its rotation is not seen; spin shows with a pattern or in bounces"


def filmed(_config: IdentifyConfig, _actions: object) -> Filmed:
    """Stand for a clip, which nothing of these tests needs."""
    camera = Camera(np.eye(3), 64, 48)
    clip = Clip((), np.zeros(0), 64, 48)  # type: ignore[arg-type]
    return Filmed(clip, camera, np.eye(4), ("of the clip",))


@pytest.fixture
def any_model(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Let any shape have a model; return what is asked of the search for it."""
    asked: dict[str, Any] = {}

    def find(_mesh: object, _model: object, **given: Any) -> object:
        asked.update(given)
        return object()

    monkeypatch.setattr("vid2phys.risp.networks.model_lookup.find_model", find)
    return asked


@pytest.mark.parametrize(("body", "words"), [(BALL, UNSEEN_SPIN), (CAN, "its rotation about its axis"), (BOX, None)])
def test_identify_reports_what_an_image_does_not_show(any_model: dict[str, Any], body: str, words: str | None) -> None:
    inputs = read_inputs(built(IdentifyConfig, {**CLIP, "body": body}), filmed)
    np.testing.assert_array_equal(inputs.mesh.vertices, load_body(body=body).vertices)
    assert any_model["mesh_path"] == body
    found = [note for note in inputs.notes if "shows" in note]
    assert len(found) == (words is not None)
    assert words is None or words in found[0]
    assert "of the clip" in inputs.warnings


def test_a_ball_in_a_file_gets_the_same_note(any_model: dict[str, Any], tmp_path: Path) -> None:
    trimesh.creation.icosphere(3, 33.0).export(tmp_path / "thing.obj")
    config = built(IdentifyConfig, {**CLIP, "mesh": tmp_path / "thing.obj", "mesh_units": "mm"})
    assert UNSEEN_SPIN in read_inputs(config, filmed).warnings
    assert any_model["units"] == "mm"


def test_inertia_is_that_of_the_primitive(any_model: dict[str, Any]) -> None:
    parameters = read_inputs(built(IdentifyConfig, {**CLIP, "body": BALL}), filmed).known.parameters
    moments = np.array([parameters[f"inertia_{axis}"].value for axis in ("xx", "yy", "zz")])
    np.testing.assert_allclose(moments, 0.4 * 0.033**2 * parameters["mass"].value, rtol=2e-3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"body": "ball:d=66"}, "for example ball:d=66mm"),
        ({"body": BALL, "mesh": "m.obj"}, "--mesh m.obj beside --body"),
        ({"body": BALL, "mesh_units": "mm"}, "leave --mesh-units out"),
        ({"body": BALL, "mesh_move": "x:90"}, "leave --mesh-move out"),
        ({"body": BALL, "system": "hand"}, "a mesh for 'hand', which has a mesh of its own"),
        ({}, "no --mesh for 'rigid_contact'.*or a primitive by --body"),
    ],
)
def test_identify_refuses(any_model: dict[str, Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_inputs(built(IdentifyConfig, CLIP | given), filmed)


def test_a_config_file_keeps_the_primitive(tmp_path: Path) -> None:
    for kind, given in (
        (IdentifyConfig, CLIP),
        (ControlConfig, {"target": "t.png"}),
        (SimulateConfig, {"system": "rigid_contact"}),
        (FitRecordingConfig, {"system": "rigid_contact", "recordings": ("a.csv",), "fit": ("mass",)}),
    ):
        write_config(tmp_path / "config.yaml", built(kind, {**given, "body": BALL}))
        assert str(read_config(tmp_path / "config.yaml", kind)["body"]) == BALL
    write_config(tmp_path / "config.yaml", built(SimulateConfig, {"system": "cloth", "body": "sheet.obj"}))
    assert read_config(tmp_path / "config.yaml", SimulateConfig)["body"] == Path("sheet.obj").resolve()


def test_a_training_is_of_a_primitive_or_of_a_robot() -> None:
    ball, robot = TrainConfig(body=BALL), TrainConfig(body="arms/robot.urdf", system="articulated")
    assert (ball.shape, ball.robot, robot.shape, robot.robot) == (BALL, None, None, "arms/robot.urdf")
    assert train_risp.default_folder(ball) == Path("models/ball_66mm")
    assert train_risp.default_folder(robot) == Path("models/robot")
    assert train_command(load_body(body=BALL), BALL, "rigid_contact") == (
        "vid2phys train-risp --body ball:d=66mm --system rigid_contact --out models/ball_66mm"
    )
    for given, message in (
        ({"body": "ball:d=66"}, "for example ball:d=66mm"),
        ({"body": BALL, "mesh": "m.obj"}, "--mesh m.obj beside --body"),
        ({"body": BALL, "system": "hand"}, "a mesh for 'hand'"),
    ):
        with pytest.raises(UsageError, match=message):
            train_risp.train_risp(**{"system": "rigid_contact"} | given)


def test_a_bouncing_ball_is_filmed(tmp_path: Path) -> None:
    given = {"initial": {"position_z_m": 0.4}, "seconds": 0.2, "camera": CAMERA, "body": BALL}
    made, _ = simulate("rigid_contact", out=tmp_path / "made", **given)
    assert made.frames_in_view == made.frames > 0
    assert made.system.surface is not None
    assert made.trajectory.states[-1, 2] == pytest.approx(
        0.4 - 0.5 * 9.81 * 0.2**2, abs=5e-3
    )  # first order in the step
    # A quadrotor is not made of a body: the primitive is filmed, and gives the inertia.
    seen, _ = simulate("quadrotor", out=tmp_path / "seen", **given | {"body": BOX})
    assert seen.frames_in_view == seen.frames > 0
    per_mass = [seen.parameters[f"inertia_{axis}"].value / seen.parameters["mass"].value for axis in ("xx", "yy", "zz")]
    sides = np.array([0.12, 0.08, 0.05])
    np.testing.assert_allclose(per_mass, (np.square(sides).sum() - sides**2) / 12)


@pytest.mark.parametrize(
    ("system", "given", "message"),
    [
        ("rigid_contact", {"body": "ball:d=66"}, "for example ball:d=66mm"),
        ("rigid_contact", {"body": BALL, "body_units": "mm"}, "leave --body-units out"),
        ("quadrotor", {"body": BALL, "camera": CAMERA, "body_units": "mm"}, "--body-units without --body"),
        ("quadrotor", {"body": BALL, "camera": CAMERA, "mesh": "m.obj"}, "--mesh m.obj beside --body"),
        ("quadrotor", {"body": BALL}, "--body without --camera"),
        ("quadrotor", {"body": "sphere:d=6mm", "camera": CAMERA}, "unknown primitive 'sphere'"),
        ("quadcopter", {"body": BALL}, "unknown system 'quadcopter'"),
    ],
)
def test_simulate_refuses(tmp_path: Path, system: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        simulate(system, out=tmp_path / "run", seconds=0.1, **given)
    assert not (tmp_path / "run").exists()


def test_recordings_are_fitted_to_primitives() -> None:
    config = FitRecordingConfig(system="rigid_contact", recordings=("a.csv",), fit=("mass",), body=BALL)  # type: ignore[arg-type]
    system, notes = read_system(config)
    assert system.parameters()["mass"].value == pytest.approx(RISP_CUBE.density_kg_m3 * np.pi * 0.066**3 / 6)
    assert notes == ()


def test_evaluate_finds_the_symmetry_of_a_primitive() -> None:
    symmetry = evaluate._symmetry({"body": BOX})
    assert symmetry is not None
    assert len(symmetry.quats) == 4
    assert evaluate._symmetry({}) is None


def test_the_system_follows_from_the_body_unless_told() -> None:
    ball = IdentifyConfig(clip=Path("a.mp4"), camera=Path("c.yaml"), body="ball:d=66mm")
    assert with_system(ball).system == "rigid_contact"
    assert with_system(replace(ball, body="arm.urdf")).system == "articulated"
    assert with_system(replace(ball, body="bar.msh")).system == "soft_body"
    assert with_system(replace(ball, system="quadrotor")).system == "quadrotor"


def test_the_ground_is_fitted_as_its_height_and_tilts() -> None:
    ball = IdentifyConfig(clip=Path("a.mp4"), camera=Path("c.yaml"), body="ball:d=66mm", fit=("mu", "ground"))
    assert with_system(ball).fit == ("mu", "ground_height", "ground_tilt_x", "ground_tilt_y")
    assert with_system(replace(ball, system="quadrotor")).fit == ball.fit


def test_the_choice_of_a_system_leaves_warnings_of_the_mesh_to_the_fit(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    box = trimesh.creation.box((0.1, 0.07, 0.045))
    trimesh.Trimesh(box.vertices, box.faces[:-1], process=False).export(tmp_path / "open.obj")
    assert with_system(IdentifyConfig(clip=Path("a.mp4"), camera=Path("c.yaml"), mesh=tmp_path / "open.obj")).system
    assert not recwarn.list


def test_the_system_of_a_mesh_follows_from_actions_parameters_and_model(tmp_path: Path) -> None:
    box = tmp_path / "box.obj"
    trimesh.creation.box((0.1, 0.07, 0.045)).export(box)
    alone = IdentifyConfig(clip=Path("a.mp4"), camera=Path("c.yaml"), mesh=box)
    assert with_system(alone).system == "rigid_contact"
    assert with_system(replace(alone, fit=("drag",))).system == "quadrotor"
    assert with_system(replace(alone, actions=Path("actions.csv"))).system == "quadrotor"
    push = tmp_path / "push.csv"
    push.write_text("time_s,force_x_N,force_y_N,force_z_N\n0,1,2,3\n")
    assert with_system(replace(alone, actions=push)).system == "rigid_contact"
    assert with_system(replace(alone, actions=(push,))).system == "rigid_contact"
    sample = replace(alone, mesh=ROOT / "samples" / "quadrotor" / "quad.obj")
    assert with_system(sample).system == "quadrotor"
    assert with_system(replace(sample, fit=("mu",))).system == "rigid_contact"
    assert with_system(replace(sample, system="pendulum")).fit == ("length", "damping")

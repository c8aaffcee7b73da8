"""The command line: exit codes, one line on stderr, interruption, the split of stdout and stderr."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import trimesh

from vid2phys import cli
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.errors import InputError


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["vid2phys", *arguments])
    return cli._run()


def fake_task(monkeypatch: pytest.MonkeyPatch, name: str, function: object) -> None:
    place = "vid2phys.commands.identify.pipeline" if name == "identify" else f"vid2phys.commands.{name}"
    module = ModuleType(place)
    setattr(module, name, function)
    monkeypatch.setitem(__import__("sys").modules, place, module)


IDENTIFY = ("identify", "clip.mp4", "--mesh", "m.obj", "--camera", "c.yaml")


def raising(error: BaseException) -> object:
    def task(*_: object, **__: object) -> None:
        raise error

    return task


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InputError("got a cat", "a dog", "bring a dog"), 3, "got a cat; expected a dog; bring a dog"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(errno.ENOSPC, "No space left on device", "runs/x"), 3, "runs/x: No space left on device; free some"),
    ],
)
def test_known_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, text: str
) -> None:
    fake_task(monkeypatch, "identify", raising(error))
    assert run_cli(monkeypatch, *IDENTIFY) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"vid2phys: {text}")
    assert err.count("\n") == 1


def test_an_interruption_of_compiled_code_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compiled functions turn it into another error."""
    error = SystemError("returned a result with an exception set")
    error.__cause__ = KeyboardInterrupt()
    fake_task(monkeypatch, "identify", raising(error))
    assert run_cli(monkeypatch, *IDENTIFY) == 130
    assert capsys.readouterr().err == "vid2phys: interrupted\n"


def test_a_bug_leaves_a_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake_task(monkeypatch, "identify", raising(ZeroDivisionError("oops")))
    assert run_cli(monkeypatch, *IDENTIFY) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    log = Path(err.strip().rsplit(" ", 1)[1])
    assert "ZeroDivisionError" in log.read_text()
    log.unlink()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["identify"], "no clip given"),
        (["identify", "c.mp4"], "no mesh given"),
        (["identify", "c.mp4", "--set", "mass"], "--set mass"),
        (["identify", "--nonsense"], "nonsense"),
        ([*IDENTIFY, "--solver", "adam", "--loss", "ssim"], "one of keypoint, perceptual, pixel, risp_image, state"),
        ([*IDENTIFY, "--solver", "newton"], "one of adam, rmsprop, shooting, smoothing"),
        ([*IDENTIFY, "--loss", "pixel"], "--loss pixel with --solver smoothing; expected --loss keypoint"),
        (
            [*IDENTIFY, "--system", "quadrotor", "--method", "shooting"],
            "--solver shooting without --actions; expected recorded actions",
        ),
        ([*IDENTIFY, "--prior", "mass=0.4"], "--prior mass=0.4; expected name=NUMBER+-NUMBER in SI units"),
        ([*IDENTIFY, "--bounds", "mass=1..2", "--bounds", "mass=3..4"], "--bounds mass=3..4 beside another one"),
        ([*IDENTIFY, "--body", "ball:d=66mm"], "--mesh m.obj beside --body ball:d=66mm; expected one of them"),
        (["identify", "c.mp4", "--body", "ball:d=66", "--camera", "c.yaml"], "for example ball:d=66mm"),
        (["nonsense"], "nonsense"),
        (["evaluate"], "no mocap given; expected --mocap"),
        (["train-risp", "--epochs", "many"], "--epochs"),
        (["simulate"], "no system given"),
        (["simulate", "quadcopter"], "unknown system 'quadcopter'"),
        (["simulate", "rigid_contact", "--body", "box:120x80x50"], "for example box:120x80x50mm"),
        (
            ["train-risp", "--body", "cube:5cm"],
            "unknown primitive 'cube'; expected one of ball, box, cylinder",
        ),
        (
            ["simulate", "pendulum", "--body", "box.stl"],
            "one of articulated, cloth, mass_spring, rigid_contact, soft_body",
        ),
        (["simulate", "pendulum", "--initial", "angle_rad"], "--initial angle_rad; expected name=value"),
        (["systems", "quadcopter"], "unknown system 'quadcopter'"),
    ],
)
def test_usage_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert run_cli(monkeypatch, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err
    assert err.count("\n") == 1


def test_options_reach_the_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: dict[str, object] = {}

    def task(config: IdentifyConfig, **_: object) -> None:
        seen.update(vars(config))
        raise InputError("stop here")

    fake_task(monkeypatch, "identify", task)
    options = ("--fit", "mass, drag", "--set", "mass=0.04", "--set", "gravity=9.8", "--no-overlay", "--seed", "3",
               "--solver", "adam", "--loss", "pixel", "--starts", "4", "--prior", "mass=0.04+-5e-3",
               "--bounds", "drag=-1..2.5")  # fmt: skip
    assert run_cli(monkeypatch, *IDENTIFY, *options) == 3
    assert seen["clip"] == Path("clip.mp4")
    assert seen["fit"] == ("mass", "drag")
    assert seen["set_values"] == {"mass": 0.04, "gravity": 9.8}
    assert (seen["overlay"], seen["seed"], seen["system"]) == (False, 3, "auto")
    assert (seen["method"], seen["loss"], seen["starts"]) == ("adam", "pixel", 4)
    assert (seen["priors"], seen["bounds"]) == ({"mass": (0.04, 5e-3)}, {"drag": (-1.0, 2.5)})


def test_config_repeats_a_run_and_options_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from vid2phys.commands.config import write_config

    seen: dict[str, object] = {}

    def task(config: IdentifyConfig, **_: object) -> None:
        seen.update(vars(config))
        raise InputError("stop here")

    fake_task(monkeypatch, "identify", task)
    path = tmp_path / "config.yaml"
    config = IdentifyConfig(
        clip=Path("/a/clip.mp4"), mesh=Path("/a/m.obj"), camera=Path("/a/c.yaml"), fit=("mass",),
        priors={"mass": (0.4, 0.05)}, out=Path("/a/old"), seed=5, set_values={"drag": 0.1},
    )  # fmt: skip
    write_config(path, config)
    assert run_cli(monkeypatch, "identify", "--config", str(path), "--seed", "7") == 3
    assert (seen["clip"], seen["fit"], seen["seed"]) == (Path("/a/clip.mp4"), ("mass",), 7)
    assert seen["set_values"] == {"drag": 0.1}
    assert seen["priors"] == {"mass": (0.4, 0.05)}
    assert seen["out"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("command: evaluate\n", "written by 'evaluate'"),
        ("colour: red\n", "unknown option 'colour'"),
        ("[", "not YAML"),
        ("seed: many\n", "'seed' of '.*' is 'many'; expected a valid integer"),
        ("priors: {mass: 0.4}\n", "'priors' of '.*' is {'mass': 0.4}; expected a valid tuple"),
        ("clip: [a.mp4, {}]\n", "'clip' of '.*' is \\['a.mp4', {}\\]"),
        (
            "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + "".join(f"{k}: &{k} [" + ",".join(["*" + chr(ord(k) - 1)] * 10) + "]\n" for k in "bcdefghi"),
            "aliases",
        ),
        ("a: &a [*a]\n", "aliases"),
        ("day: 2026-13-45\n", "not YAML"),
        ("[" * 5000, "not YAML"),
    ],
)
def test_bad_config(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    assert run_cli(monkeypatch, "identify", "--config", str(path)) == 3
    assert re.search(message, capsys.readouterr().err)


def test_json_goes_to_stdout_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    metrics = {"schema": "vid2phys.metrics/1", "position_rmse_m": 0.01, "alignment": "time", "frames": 3, "also": {}}
    fake_task(monkeypatch, "evaluate", lambda *_, **__: (metrics, tmp_path))
    assert run_cli(monkeypatch, "evaluate", "--mocap", "log.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out) == metrics


def test_simulate_writes_and_repeats(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    options = ("--set", "length=0.5", "--initial", "angle_rad=1", "--seconds", "0.1", "--integrator", "rk4")
    assert run_cli(monkeypatch, "simulate", "pendulum", *options, "--out", str(first), "--json") == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert (result["system"], result["rows"], result["integrator"]) == ("pendulum", 11, "rk4")
    assert result["parameters"]["length"] == 0.5
    assert result["files"]["trajectory"] == str(first / "trajectory.csv")
    assert "simulating, 10 steps" in err
    config = ("--config", str(first / "config.yaml"))
    assert run_cli(monkeypatch, "simulate", *config, "--out", str(again)) == 0
    assert (again / "trajectory.csv").read_bytes() == (first / "trajectory.csv").read_bytes()
    out = capsys.readouterr().out
    assert out.startswith("pendulum: 0.1 s, rk4, steps of 0.01 s\n")
    assert f"trajectory: {again / 'trajectory.csv'}\n" in out
    assert run_cli(monkeypatch, "simulate", "pendulum", "--out", str(again)) == 3
    assert "is not an empty folder" in capsys.readouterr().err


def test_simulate_repeats_a_body_from_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    monkeypatch.chdir(tmp_path)
    trimesh.creation.box([100.0, 100.0, 100.0]).export("box.stl")
    options = ("--body", "box.stl", "--body-units", "mm", "--seconds", "0.05")
    assert run_cli(monkeypatch, "simulate", "rigid_contact", *options, "--out", str(first), "--json") == 0
    assert json.loads(capsys.readouterr().out)["parameters"]["mass"] == pytest.approx(0.3)
    monkeypatch.chdir(first)
    assert run_cli(monkeypatch, "simulate", "--config", "config.yaml", "--out", str(again)) == 0
    assert (again / "trajectory.csv").read_bytes() == (first / "trajectory.csv").read_bytes()
    assert run_cli(monkeypatch, "simulate", "soft_body", "--body", str(tmp_path / "none.msh")) == 3
    assert "none.msh' does not exist; expected a mesh of tets" in capsys.readouterr().err


def test_systems_tells_what_each_takes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(monkeypatch, "systems") == 0
    table = capsys.readouterr().out
    for text in (
        "mass           kg       0.027      0.001 to 100",
        "thrust (N)",
        "rk4 (default)",
        "limits: no motor lag",
        "axes: position, velocity: world; orientation_quat: body to world, quaternion wxyz; angular_velocity: body",
        "axes: shoulder, elbow, slide: the joint's axis",
        "--body: A sheet by a triangle mesh (OBJ, STL, PLY ...)",
    ):
        assert text in table
    assert "position_x_m of vertex i (" in table
    assert "vertex 7" not in table
    assert run_cli(monkeypatch, "systems", "pendulum", "--json") == 0
    (pendulum,) = json.loads(capsys.readouterr().out)
    assert pendulum["state"] == ["angle_rad", "angular_velocity_rad_s"]
    assert pendulum["state_frames"]["angle"] == "about +y of the world, from hanging"
    assert pendulum["actions"] == [{"name": "torque", "unit": "N m"}]
    assert pendulum["parameters"][0] == {"name": "length", "unit": "m", "default": 1.0, "lower": 0.001, "upper": 100.0}
    assert pendulum["limits"].startswith("the pivot is fixed")
    assert pendulum["clip_parameters"] == []
    assert run_cli(monkeypatch, "systems", "rigid_contact") == 0
    assert "in a clip, too: restitution, rolling_friction, ground_height m" in capsys.readouterr().out


def test_reproduce_lists_its_tables_and_refuses_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "reproduce") == 0
    assert {"risp-fig6a", "risp-table1"} <= set(capsys.readouterr().out.split())
    assert run_cli(monkeypatch, "reproduce", "table-9") == 2
    refused = capsys.readouterr().err
    assert "unknown table 'table-9'; expected one of" in refused
    assert "risp-fig6a" in refused

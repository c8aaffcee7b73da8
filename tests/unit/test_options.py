"""Options: one dataclass a command, from which help, YAML files and keyword arguments are built; and former names."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from vid2phys import cli
from vid2phys.commands import configs
from vid2phys.commands.config import read_config, write_config
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.options import Options, built, field_types, flag_names, help_texts, taking
from vid2phys.commands.retired import RetiredName
from vid2phys.errors import InputError, UsageError

ALL = [
    IdentifyConfig,
    configs.SimulateConfig,
    configs.FitRecordingConfig,
    configs.ControlConfig,
    configs.EvaluateConfig,
    configs.CalibrateConfig,
    configs.TrainConfig,
]
RIGID = {"clip": "c.mp4", "mesh": "m.obj", "camera": "c.yaml"}


@pytest.mark.parametrize("options", ALL, ids=lambda options: options.command)
def test_each_field_has_help_and_one_flag(options: type[Options]) -> None:
    texts, taken = help_texts(options), [flag for field in fields(options) for flag in flag_names(field)]
    assert [field.name for field in fields(options) if not texts.get(field.name)] == []
    assert len(taken) == len(set(taken))


def test_texts_become_paths_and_lists_become_tuples() -> None:
    config = built(IdentifyConfig, {**RIGID, "clip": ["a.mp4", "b.mp4"], "fit": ["mass"], "set_values": None})
    assert config.clips == (Path("a.mp4"), Path("b.mp4"))
    assert (config.mesh, config.fit, config.set_values) == (Path("m.obj"), ("mass",), {})
    assert field_types(IdentifyConfig)["seed"] is int


def test_a_function_takes_a_config_or_its_fields() -> None:
    @taking(IdentifyConfig, "clip", "mesh", "camera")
    def names(config: IdentifyConfig, mark: str = "") -> str:
        return f"{config.mesh}{mark}"

    assert names(IdentifyConfig(clip="c.mp4", mesh="m.obj", camera="c.yaml")) == "m.obj"  # type: ignore[arg-type]
    assert names("c.mp4", "m.obj", "c.yaml", mark="!") == "m.obj!"
    assert list(inspect.signature(names).parameters)[:3] == ["clip", "mesh", "camera"]
    with pytest.raises(TypeError, match="speed"):
        names("c.mp4", "m.obj", "c.yaml", speed=3)


def test_what_losses_leave_undrawn_keeps_its_former_name_for_a_release() -> None:
    with pytest.warns(RetiredName, match=r"is now --undrawn shading; --without is for cues"):
        config = built(IdentifyConfig, {**RIGID, "method": "adam", "loss": "pixel", "without": ("shading", "contour")})
    assert (config.undrawn, config.without) == (("shading",), ("contour",))


def test_the_config_of_an_older_run_works(tmp_path: Path) -> None:
    """A file of version 0.1: `without` of a loss of images, and null where nothing was given."""
    path = tmp_path / "config.yaml"
    path.write_text(
        "command: identify\nclip: c.mp4\nmesh: m.obj\ncamera: c.yaml\ncamera_pose: null\nmethod: adam\nloss: pixel\n"
        "actions: a.csv\nwithout: [texture]\nfit: [mass]\nmesh_units: m\nstarts: 1\n"
    )
    with pytest.warns(RetiredName):
        config = built(IdentifyConfig, read_config(path, IdentifyConfig))
    assert (config.undrawn, config.without, config.fit) == (("texture",), (), ("mass",))
    config.check()


def test_an_option_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("command: identify\nspeed: 3\n")
    with pytest.raises(InputError, match="unknown option 'speed'"):
        read_config(tmp_path / "config.yaml", IdentifyConfig)


def test_a_former_name_beside_its_new_one_is_refused() -> None:
    with pytest.warns(RetiredName, match="'pictures' of calibrate is now 'images'"):
        assert built(configs.CalibrateConfig, {"pictures": "a"}).images == Path("a")
    with pytest.raises(UsageError, match="'images' alone"):
        built(configs.CalibrateConfig, {"pictures": "a", "images": "b"})


def test_a_warning_for_the_user_is_one_line_without_a_place_in_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    cli._show_notice("the mesh is open", UserWarning, "mesh.py", 12)
    cli._show_notice("old function", DeprecationWarning, "mesh.py", 12)
    first, second = capsys.readouterr().err.splitlines()[:2]
    assert first == "warning: the mesh is open"
    assert second == "mesh.py:12: DeprecationWarning: old function"


def test_a_former_name_is_one_line_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--mesh", "m.obj", "--camera", "c.yaml", "--solver", "adam", "--loss", "pixel", "--without", "shading")
    monkeypatch.setattr("sys.argv", ["vid2phys", "identify", "no.mp4", *given, "--actions", "no.csv"])
    assert cli._run() == 3
    notice, error = capsys.readouterr().err.splitlines()[:2]
    assert notice.startswith("notice: ")
    assert "no.csv" in error


def test_null_in_a_file_means_none(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("command: identify\nclip: c.mp4\ncamera: c.yaml\nset: null\nfit:\n")
    read = read_config(tmp_path / "config.yaml", IdentifyConfig)
    assert (read["set_values"], read["fit"]) == ({}, ())


def test_a_file_of_today_keeps_the_cues_that_it_switches_off(tmp_path: Path) -> None:
    config = built(IdentifyConfig, {**RIGID, "loss": "pixel", "method": "adam", "undrawn": (), "without": ("texture",)})
    write_config(tmp_path / "config.yaml", config)
    again = built(IdentifyConfig, read_config(tmp_path / "config.yaml", IdentifyConfig))
    assert (again.without, again.undrawn) == (("texture",), ())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"set_values": {"mass": "1"}}, "expected numbers by name"),
        ({"set_values": {"mass": True}}, "expected numbers by name"),
        ({"set_values": ["mass"]}, "expected numbers by name"),
        ({"priors": {"mass": (1.0,)}}, "expected pairs of numbers by name"),
    ],
)
def test_other_things_than_numbers_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        built(IdentifyConfig, {**RIGID, **given})


def test_empty_texts_and_single_paths() -> None:
    config = configs.FitRecordingConfig(system="pendulum", recordings="a.csv", fit=("length",), params="")  # type: ignore[arg-type]
    assert (config.recordings, config.params) == ((Path("a.csv"),), None)


def test_no_clip_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="no clip given"):
        built(IdentifyConfig, {**RIGID, "clip": []}).of_each_clip()


def test_a_function_names_itself_and_its_options() -> None:
    @taking(IdentifyConfig, "clip", "mesh", "camera")
    def names(config: IdentifyConfig, mark: str = "") -> str:
        """Return the mesh."""
        return f"{config.mesh}{mark}"

    config = built(IdentifyConfig, RIGID)
    assert names(config=config, mark="!") == "m.obj!"
    with pytest.raises(TypeError, match=r"names\(\) missing a required argument: 'camera'"):
        names("c.mp4", "m.obj")
    with pytest.raises(TypeError):
        names(config, "m.obj")
    assert "seed: Seed of everything random." in str(names.__doc__)

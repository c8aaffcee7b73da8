"""Notes: severity, order, and what the terminal shows of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.flight import fly
from tests.synthetic import noisy_result
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.inputs import read_filmed
from vid2phys.commands.identify.outputs import with_cameras
from vid2phys.commands.show import print_result
from vid2phys.notes import Note, Severity, doubt, is_doubtful, ordered, severity_of, warning
from vid2phys.types import Camera

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "quadrotor"


def test_the_most_serious_note_comes_first_and_nothing_is_repeated() -> None:
    notes = ordered(["assumed", warning("wide"), doubt("lost"), "assumed", warning("late")])
    assert notes == ["lost", "wide", "late", "assumed"]


def test_a_plain_string_is_information_and_a_note_is_written_as_its_text() -> None:
    assert severity_of("plain") is Severity.INFORMATION
    assert json.dumps([doubt("lost"), Note("said")]) == '["lost", "said"]'


def test_only_a_doubt_makes_a_result_doubtful() -> None:
    assert is_doubtful(["plain", doubt("lost")])
    assert not is_doubtful(["plain", warning("wide")])


def test_the_terminal_shows_the_notes_the_most_serious_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = ordered(["the mass is not known", warning("the model does not fit"), doubt("probably not seen")])
    result = noisy_result(fly())
    print_result(replace(result, diagnostics=result.diagnostics | {"notes": notes}), tmp_path)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("doubt", "warning", "note"))]
    assert lines == ["doubt: probably not seen", "warning: the model does not fit", "note: the mass is not known"]


def test_the_terminal_shows_what_was_read_from_each_camera(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cameras = [Camera(np.diag([600.0, 610.0, 1.0]), 640, 480, np.array([k1, 0.0, 0.0, 0.0])) for k1 in (-0.35, 0.1)]
    inputs = [SimpleNamespace(camera=camera) for camera in cameras]
    result = noisy_result(fly())
    print_result(with_cameras(result, inputs[:1]), tmp_path)  # type: ignore[arg-type]
    assert "camera: plumb_bob, fx 600, fy 610, cx 0, cy 0, k1 -0.35, 640x480" in capsys.readouterr().out
    print_result(with_cameras(replace(result, clips=(result, result)), inputs), tmp_path)  # type: ignore[arg-type]
    lines = [line for line in capsys.readouterr().out.splitlines() if "camera: " in line]
    assert [line.split(", ")[0] for line in lines] == ["clip 1", "clip 2"]
    assert ["k1 0.1" in line for line in lines] == [False, True]


def test_the_size_of_the_clip_serves_a_camera_without_one(tmp_path: Path) -> None:
    (tmp_path / "cam_K.txt").write_text("815 0 322.7\n0 815 236.4\n0 0 1\n")
    options = {"clip": SAMPLE / "clip.mp4", "camera": tmp_path / "cam_K.txt", "camera_pose": SAMPLE / "camera.yaml"}
    config = IdentifyConfig(**options, system="quadrotor")
    filmed = read_filmed(config, None)
    camera, clip = filmed.camera, filmed.clip
    assert (camera.width, camera.height) == (clip.width, clip.height) == (640, 480)
    np.testing.assert_array_equal(camera.camera_to_world, filmed.camera_to_world)
    assert [note for note in filmed.notes if "has no image size: 640x480 is taken" in note]


def test_the_terminal_shows_camera_parameters_only_where_they_were_fitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = noisy_result(fly())
    own = replace(result.parameters[0], name="drag_x", source="default")
    focal = replace(own, name="focal")
    shown = {}
    for source in ("default", "fitted"):
        print_result(replace(result, parameters=(own, replace(focal, source=source))), tmp_path)
        out = capsys.readouterr().out
        shown[source] = ("drag_x" in out, "focal" in out)
    assert shown == {"default": (True, False), "fitted": (True, True)}

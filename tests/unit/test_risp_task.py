from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from vid2phys.commands import train_articulated, training
from vid2phys.commands import train_risp as task
from vid2phys.commands.training_progress import TrainingProgress, _duration
from vid2phys.errors import InputError, UsageError
from vid2phys.risp.networks.model import Model
from vid2phys.risp.networks.model_lookup import find_model

TETRAHEDRON = "v 0.1 0 0\nv 0 0.08 0\nv 0 0 0.06\nv -0.05 -0.05 -0.05\nf 1 2 3\nf 1 4 2\nf 2 4 3\nf 1 3 4\n"


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    path = tmp_path / "thing.obj"
    path.write_text(TETRAHEDRON)
    return path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 10}, "--samples 10; expected at least 64"),
        ({"epochs": 0}, "--epochs 0; expected at least 1"),
        ({"gamma": -1.0}, "--gamma -1.0; expected 0"),
        ({"gamma": float("nan")}, "--gamma nan; expected 0"),
        ({"device": "tpu"}, "--device tpu; expected auto, cpu or cuda"),
        ({"system": "kite"}, "kite"),
        ({"head": "pose"}, "unknown head 'pose'; expected one of keypoint"),
        ({"head": "state@32"}, "head 'state@32'; expected NAME or NAME@wWIDTH"),
        ({"loss": "l2"}, "unknown loss 'l2'; expected one of error-gradient"),
        ({"head": "state", "start": "models/x"}, "--start with --head state; expected --head keypoint"),
        ({"minutes": 1.0}, "--minutes 1; expected 4 to 34"),
        ({"minutes": 5.0, "samples": 100}, "--minutes beside --samples or --epochs; expected one of them"),
        ({"minutes": 5.0, "head": "state"}, "--minutes for a body that is not rigid, or another head"),
        ({"start": "models/nothing"}, "'models/nothing' holds no features; expected a model folder"),
        ({"without": ("shadows", "smells")}, "unknown randomisation 'smells'.*shadows"),
    ],
)
def test_options_out_of_range(mesh: Path, tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises((UsageError, InputError), match=message.replace("(", r"\(")):
        task.train_risp(mesh, out=tmp_path / "model", work=tmp_path / "work", quiet=True, **options)
    assert not (tmp_path / "model").exists()
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("system", "given", "message"),
    [
        ("hand", True, "a mesh for 'hand', which has a mesh of its own; expected no mesh"),
        ("cloth", False, "`train-risp` of 'cloth' \\(a sheet that stretches, bends and feels the wind\\)"),
    ],
)
def test_a_mesh_too_many_or_missing(mesh: Path, tmp_path: Path, system: str, given: bool, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        task.train_risp(mesh if given else None, system, tmp_path / "model", work=tmp_path / "work", quiet=True)
    assert not (tmp_path / "model").exists()


def test_missing_mesh_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        task.train_risp(tmp_path / "no.obj", out=tmp_path / "model", work=tmp_path / "work", quiet=True)
    assert not (tmp_path / "model").exists()


def test_starting_again_removes_only_our_files(tmp_path: Path) -> None:
    for name in ("data/dataset.json", "notes/keep.txt", "fine.checkpoint.safetensors", "mine.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    task._empty(tmp_path)
    assert {p.name for p in tmp_path.rglob("*") if p.is_file()} == {"keep.txt", "mine.txt"}


def test_progress_says_how_much_time_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 100.0, 200.0])
    monkeypatch.setattr("vid2phys.commands.training_progress.time.monotonic", lambda: next(clock))
    progress = TrainingProgress()
    for done in (0, 10, 20):
        progress.step("fine network, epoch 1 of 1", done, 30)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("10 of 30, 3 min 20 s left")
    assert lines[1].endswith("20 of 30, 1 min 40 s left")
    assert _duration(59.4) == "59 s"


@pytest.mark.slow
@pytest.mark.mitsuba
def test_train_risp_makes_a_usable_model(mesh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vid2phys.engine.render.llvm import find_llvm
    from vid2phys.io.mesh import load_mesh

    if find_llvm() is None:
        pytest.skip("no LLVM on this machine")
    monkeypatch.setattr(training, "CALIBRATION_SAMPLES", 64)
    arguments = {"samples": 96, "epochs": 1, "work": tmp_path / "work", "quiet": True}
    model = task.train_risp(mesh, out=tmp_path / "models" / "thing", **arguments)
    score = json.loads((tmp_path / "models" / "thing" / "score.json").read_text())
    assert {"command", "seed", "data", "seconds", "machine", "validation"} <= set(score)
    assert model.calibration is not None
    monkeypatch.chdir(tmp_path)
    found = find_model(load_mesh(mesh))
    assert np.array_equal(found.points_body, model.points_body)
    assert sum(p.stat().st_size for p in (tmp_path / "models" / "thing").iterdir()) < 6_000_000
    again = task.train_risp(mesh, out=tmp_path / "models" / "thing", **arguments)  # everything is there already
    assert np.array_equal(again.points_body, model.points_body)


@pytest.mark.slow
@pytest.mark.mitsuba
def test_train_risp_makes_a_state_model_of_configurations(tmp_path: Path) -> None:
    from vid2phys.engine.render.llvm import find_llvm
    from vid2phys.risp.networks.state_model import StateModel

    if find_llvm() is None:
        pytest.skip("no LLVM on this machine")
    arguments = {"samples": 64, "epochs": 1, "head": "state@w8", "work": tmp_path / "work", "quiet": True}
    model = task.train_risp(system="hand", out=tmp_path / "hand-state", **arguments)
    assert isinstance(model, StateModel)
    assert model.predict_configurations(np.zeros((1, model.view_size, model.view_size, 3), np.uint8)).shape == (1, 13)


@pytest.mark.slow
@pytest.mark.mitsuba
def test_train_risp_makes_a_state_model(mesh: Path, tmp_path: Path) -> None:
    from vid2phys.engine.render.llvm import find_llvm
    from vid2phys.risp.networks.state_model import StateModel

    if find_llvm() is None:
        pytest.skip("no LLVM on this machine")
    out = tmp_path / "models" / "thing-state"
    arguments = {"samples": 64, "epochs": 1, "head": "state@w8", "work": tmp_path / "work", "quiet": True}
    model = task.train_risp(mesh, out=out, **arguments)
    assert isinstance(model, StateModel)
    assert StateModel.load(out).width == 8
    score = json.loads((out / "score.json").read_text())
    assert "--head state@w8 --loss error-gradient" in score["command"]
    assert "val_error" in score["validation"]["fine"]
    assert not (out / "config.json").exists()  # never found as a model to track with


@pytest.mark.slow
@pytest.mark.mitsuba
def test_train_risp_makes_a_model_of_a_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vid2phys.engine.render.llvm import find_llvm

    if find_llvm() is None:
        pytest.skip("no LLVM on this machine")
    monkeypatch.setattr(train_articulated, "CALIBRATION_SAMPLES", 96)
    out = tmp_path / "models" / "hand"
    model = task.train_risp(system="hand", out=out, samples=96, epochs=1, work=tmp_path / "work", quiet=True)
    assert isinstance(model, Model)
    assert model.coarse is None
    assert Model.load(out).calibration is not None
    score = json.loads((out / "score.json").read_text())
    assert score["command"].startswith("vid2phys train-risp --system hand")
    assert "posture" in score["validation"]["fine"]

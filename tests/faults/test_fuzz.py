"""Whatever lies at a door: a value, or one line that can be read; no traceback, no hang, no more than 4 GB."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from vid2phys import cli
from vid2phys.commands.batch_workers import Ended
from vid2phys.errors import InputError
from vid2phys.types import Camera

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.faults import doors
from tests.faults.mutations import spoiled

STAGE = r"\[ *[\d.]+ s\] |note: "
ROOT = Path(__file__).resolve().parents[2]


def fuzz(examples: int) -> None:
    """Through the readers, in a process that may take little memory."""
    command = [sys.executable, "-m", "tests.faults.fuzz", "--examples", str(examples)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:] + done.stdout
    found = json.loads(done.stdout.splitlines()[-1])["doors"]
    assert set(found) == {door.name for door in doors.DOORS}
    assert all(row["refused"] for row in found.values())
    assert sum(row["read"] + row["refused"] for row in found.values()) >= 0.9 * examples  # small files have few faults


def test_spoiled_files_are_refused_in_one_line() -> None:
    fuzz(480)


@pytest.mark.slow
def test_ten_thousand_spoiled_files_are_refused_in_one_line() -> None:
    fuzz(10_000)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the commands below take, as the current folder; a body is not tracked and no clip of a batch identified."""
    from tests.obj_files import save_obj
    from tests.unit.test_risp_model import box
    from vid2phys.io.camera import save_camera

    for make in (doors.make_videos, doors.make_actions, doors.make_options, doors.make_models, doors.make_run):
        make(tmp_path)
    save_obj(box(0.1, 0.1, 0.03), tmp_path / "box.obj")
    K = np.array([[60.0, 0.0, 31.5], [0.0, 60.0, 23.5], [0.0, 0.0, 1.0]])
    pose = np.array([[1.0, 0, 0, 0], [0, 0, 1, -1], [0, -1, 0, 1], [0, 0, 0, 1]])
    save_camera(Camera(K, *doors.SIZE, np.zeros(5), camera_to_world=pose), tmp_path / "cam.yaml")

    def stop(*_: object, **__: object) -> object:
        raise InputError("all was read")

    monkeypatch.setattr("vid2phys.commands.identify.pipeline.track_pose", stop)
    ended = Ended(3, "all was read", 0.0)
    monkeypatch.setattr("vid2phys.commands.batch.on_this_machine", lambda jobs, *_: ((job, ended) for job in jobs))
    monkeypatch.chdir(tmp_path)
    return tmp_path


IDENTIFY = (
    *("identify", "a.mp4", "--mesh", "box.obj", "--camera", "cam.yaml", "--model", "rigid", "--params", "params.yaml"),
    *("--actions", "wrench.csv", "--out", "new"),
)
COMMANDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("a.mp4", "box.obj", "cam.yaml", "wrench.csv", "params.yaml", "rigid/config.json"), IDENTIFY),
    "rigid/fine.safetensors": IDENTIFY,
    "clips.yaml": ("batch", "clips.yaml", "--out", "new"),
    "config.yaml": ("identify", "--config", "config.yaml", "--out", "new"),
    "simulate.yaml": ("simulate", "--config", "simulate.yaml", "--out", "new"),
    "pendulum.csv": ("simulate", "pendulum", "--actions", "pendulum.csv", "--rate", "10", "--out", "new"),
    **dict.fromkeys((*doors.RUNS, "log.txt"), ("evaluate", "run", "--mocap", "log.txt", "--json")),
}


def through_the_commands(
    files: Path, capfd: pytest.CaptureFixture[str], patch: Callable[[str, object], None], examples: int
) -> None:
    """Exit code 0, or 2, 3 or 4 with one line, and nothing else that a library may have said."""
    import shutil

    whole = {name: (files / name).read_bytes() for name in COMMANDS}
    ended: set[int] = set()

    def one(drawn: tuple[str, bytes]) -> None:
        name, data = drawn
        (files / name).write_bytes(data)
        patch("sys.argv", ["vid2phys", *COMMANDS[name]])
        code = cli._run()
        out, said = capfd.readouterr()
        (files / name).write_bytes(whole[name])
        shutil.rmtree(files / "new", ignore_errors=True)
        lines = [line for line in said.splitlines() if not re.match(STAGE, line)]
        assert code in (0, 2, 3, 4), said
        assert "Traceback" not in out + said
        assert "arning" not in said, said
        assert len(lines) == (code in (2, 3)), said
        ended.add(code)

    drawn = st.sampled_from(sorted(COMMANDS)).flatmap(
        lambda name: st.tuples(st.just(name), spoiled(whole[name], doors.steps_of(name)))
    )
    phases, quiet = (Phase.generate,), list(HealthCheck)
    rules = settings(max_examples=examples, database=None, deadline=None, suppress_health_check=quiet, phases=phases)
    seed(0)(rules(given(drawn)(one)))()
    assert {0, 3} <= ended


def test_commands_end_in_one_line(
    files: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    through_the_commands(files, capfd, monkeypatch.setattr, 60)


@pytest.mark.slow
def test_commands_end_in_one_line_hundreds_of_times(
    files: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    through_the_commands(files, capfd, monkeypatch.setattr, 500)

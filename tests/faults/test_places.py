"""Where nothing can be written, or another one writes: one line, and nothing half-written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from vid2phys import cli
from vid2phys.errors import InputError
from vid2phys.io.files import exclusive_lock, write_text
from vid2phys.io.run import new_run
from vid2phys.io.video import VideoWriter

SIMULATE = ("simulate", "pendulum", "--seconds", "10", "--rate", "1000", "--out")


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["vid2phys", *arguments])
    return cli._run()


def mounted(folder: Path, options: str) -> bool:
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not mounted(disk, "size=64k"):
        pytest.skip("no disk can be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A folder that may be read and not written; for root, who may write everywhere, a disk of that kind."""
    folder = tmp_path / "locked"
    folder.mkdir()
    disk = mounted(folder, "ro")
    if not disk:
        folder.chmod(0o555)
    if os.access(folder, os.W_OK):
        pytest.skip("root may write everywhere")
    yield folder
    if disk:
        subprocess.run(["umount", str(folder)], check=True)
    else:
        folder.chmod(0o755)


def require_a_line(capsys: pytest.CaptureFixture[str], text: str) -> None:
    *stages, last = capsys.readouterr().err.splitlines()
    assert text in last
    assert not [line for line in stages if line.startswith("vid2phys:") or "Traceback" in line]


def write_noise(path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (120, 160, 3), dtype=np.uint8)
    with VideoWriter(path, 160, 120, 30) as video:
        for shift in range(60):
            video.write(np.roll(noise, 7 * shift, axis=0))


def test_a_full_disk_is_said_and_left_as_it_was(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, *SIMULATE, str(small_disk / "run")) == 3
    require_a_line(capsys, "the disk is full: ")
    assert not (small_disk / "run").exists()
    write_text(small_disk / "a.txt", "kept")
    with pytest.raises(InputError, match="the disk is full"):
        write_text(small_disk / "a.txt", "x" * 100_000)
    with pytest.raises(InputError, match="the disk is full"):
        write_noise(small_disk / "a.mp4")
    assert [(path.name, path.read_text()) for path in small_disk.iterdir()] == [("a.txt", "kept")]


@pytest.mark.parametrize("command", [SIMULATE, ("batch", "clips.yaml", "--out")])
def test_a_folder_that_may_not_be_written_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    locked: Path,
    command: tuple[str, ...],
) -> None:
    (tmp_path / "clips.yaml").write_text("clips: [a.mp4]\n")
    monkeypatch.chdir(tmp_path)
    for out in (locked, locked / "new"):
        assert run_cli(monkeypatch, *command, str(out)) == 3
        require_a_line(capsys, "' may not be written; write elsewhere with --out")
    assert not list(locked.iterdir())


def test_one_run_a_folder(tmp_path: Path) -> None:
    with new_run("simulate", tmp_path / "run") as folder:
        (folder / "trajectory.csv").write_text("half")
        with pytest.raises(InputError, match="another run is at work in"), new_run("simulate", tmp_path / "run"):
            pass
        assert (folder / "trajectory.csv").exists()
    assert [path.name for path in folder.iterdir()] == ["trajectory.csv"]
    with pytest.raises(InputError, match="not an empty folder"), new_run("simulate", tmp_path / "run"):
        pass


def test_what_a_killed_run_left_is_not_in_the_way(tmp_path: Path) -> None:
    out = tmp_path / "run"
    (out / "clip_1").mkdir(parents=True)
    for name in (".lock", "overlay.mp4", "clip_1/overlay.mp4"):
        (out / name).write_text("half")
    with new_run("identify", out) as folder:
        assert [path.name for path in folder.iterdir()] == [".lock"]
        (folder / "result.json").write_text("{}")
    assert [path.name for path in folder.iterdir()] == ["result.json"]
    (out / ".lock").touch()  # killed after its last file
    with pytest.raises(InputError, match="not an empty folder"), new_run("identify", out):
        pass


def test_one_training_a_folder(tmp_path: Path) -> None:
    from tests.unit.test_risp_task import TETRAHEDRON
    from vid2phys.commands.train_risp import train_risp

    (tmp_path / "thing.obj").write_text(TETRAHEDRON)
    with (
        exclusive_lock(tmp_path / "work" / ".lock", "training"),
        pytest.raises(InputError, match="another training is at work"),
    ):
        train_risp(tmp_path / "thing.obj", out=tmp_path / "model", work=tmp_path / "work", quiet=True)

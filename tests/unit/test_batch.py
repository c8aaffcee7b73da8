"""A batch of clips: its file, what is kept, what one bad clip does to the others, and runs that repeat bit for bit."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from tests.synthetic import noisy_result, save_run, short_flight
from tests.unit.test_given_points import write_sample_keypoints
from vid2phys.commands import batch_workers
from vid2phys.commands.batch import batch, read_jobs
from vid2phys.commands.config import read_config
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.errors import InputError, UsageError
from vid2phys.io.run import load_observation

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "quadrotor"
ACTIONS = f"  actions: {SAMPLE}/actions.csv\n  fit: mass\n"


@pytest.fixture
def keypoints(tmp_path: Path) -> Path:
    """A folder with keypoints of the sample, k.csv and body.csv, so that no network is needed."""
    write_sample_keypoints(tmp_path)
    return tmp_path


def write_batch(folder: Path, clips: str, extra: str = "") -> Path:
    path = folder / "clips.yaml"
    path.write_text(
        f"defaults:\n  mesh: {SAMPLE}/quad.obj\n  camera: {SAMPLE}/camera.yaml\n  observation: k.csv\n"
        f"  body-points: body.csv\n  overlay: false\n{extra}clips:\n{clips}"
    )
    return path


def test_options_paths_and_patterns_of_a_file(tmp_path: Path) -> None:
    for name in ("b.mp4", "a.mp4"):
        (tmp_path / "videos").mkdir(exist_ok=True)
        (tmp_path / "videos" / name).touch()
    entries = "  - videos/*.mp4\n  - {clip: ../c.mov, name: third, set: {drag: 0.1}, fit: []}\n"
    path = write_batch(tmp_path, entries, "  actions: logs/{stem}.csv\n  fit: mass, drag\n")
    jobs = read_jobs(path, tmp_path / "out")
    assert [job.name for job in jobs] == ["a", "b", "third"]
    read = []
    for job in jobs:
        job.config.parent.mkdir(parents=True, exist_ok=True)
        job.config.write_text(job.text)
        read.append(read_config(job.config, IdentifyConfig))
    assert read[0]["clip"] == (tmp_path / "videos/a.mp4").resolve()
    assert read[0]["actions"] == (tmp_path / "logs/a.csv").resolve()
    assert read[0]["fit"] == ("mass", "drag")
    assert read[0]["camera"] == SAMPLE / "camera.yaml"
    assert read[2]["clip"] == (tmp_path / "../c.mov").resolve()
    assert (read[2]["fit"], read[2]["set_values"]) == ((), {"drag": 0.1})
    assert read[2]["actions"] == (tmp_path / "logs/c.csv").resolve()


def test_words_in_place_of_files_are_no_paths(tmp_path: Path) -> None:
    path = tmp_path / "clips.yaml"
    path.write_text("clips:\n  - {clip: a.mp4, body: 'ball:d=66mm', camera: auto, model: none}\n")
    (job,) = read_jobs(path, tmp_path / "out")
    job.config.parent.mkdir(parents=True)
    job.config.write_text(job.text)
    config = read_config(job.config, IdentifyConfig)
    assert [str(config[name]) for name in ("body", "camera", "model")] == ["ball:d=66mm", "auto", "none"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clips: [", "is not YAML"),
        ("videos: [a.mp4]", "has no list of clips"),
        ("clips: []", "has no list of clips"),
        ("clips: ['*.mp4']", "no file is named like '\\*.mp4'"),
        ("clips: [{mesh: a.obj}]", "clip 1 of '.*' names no `clip`"),
        ("clips: [{clip: a.mp4, speed: 3}]", "unknown option 'speed'; expected some of actions"),
        ("clips: [{clip: a.mp4, out: b}]", "unknown option 'out'"),
        ("clips: [{clip: a.mp4, seed: x}]", "'seed' of clip 1 of '.*' is 'x'; expected a valid integer"),
        ("defaults: {set: {drag: much}}\nclips: [a.mp4]", "'set_values' of defaults of '.*' is {'drag': 'much'}"),
        ("clips: [a.mp4, x/a.avi]", "two clips named 'a'"),
        ("clips: [{clip: a.mp4, name: ../a}]", "has the name '../a'"),
        ("clips: [{clip: a.mp4, name: .lock}]", "has the name '.lock'"),
        ("clips: [{clip: a.mp4, name: jobs}]", "has the name 'jobs'"),
        ("clips: [3]", "clip 1 of '.*' is 3"),
        ("defaults: [mesh]\nclips: [a.mp4]", "defaults of '.*' is"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "clips.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        batch(tmp_path / "clips.yaml", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_workers_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--workers 0"):
        batch(write_batch(tmp_path, "  - a.mp4\n"), out=tmp_path / "out", workers=0)


@pytest.mark.slow
def test_a_batch_goes_on_after_a_bad_clip_and_repeats_bit_for_bit(keypoints: Path) -> None:
    clips = "  - {clip: clip.mp4, name: good}\n  - {clip: missing.mp4, name: bad}\n"
    path, out = write_batch(keypoints, clips, ACTIONS), keypoints / "out"
    command = [sys.executable, "-m", "vid2phys", "batch", str(path), "--out", str(out), "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 4, done.stderr
    assert "clips: 1 of 2 converged" in done.stdout
    summary = json.loads((out / "summary.json").read_text())
    assert [clip["status"] for clip in summary["clips"]] == ["converged", "failed"]
    assert "missing.mp4' does not exist" in summary["clips"][1]["message"]
    low, high = (summary["clips"][0]["parameters"]["mass"][i] for i in (1, 2))
    assert low < 0.72 < high
    rows = list(csv.DictReader((out / "summary.csv").open()))
    assert [(row["clip"], row["frames"]) for row in rows] == [("good", "30"), ("bad", "0")]
    again = [sys.executable, "-m", "vid2phys", "identify", "--config", str(out / "good" / "config.yaml"), "--out"]
    done = subprocess.run([*again, str(keypoints / "again")], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    require_same_runs(out / "good", keypoints / "again")

    before = (out / "good" / "result.json").stat().st_mtime_ns
    outcomes, _ = batch(path, out=out)  # the good one is kept, the bad one tried again
    assert (out / "good" / "result.json").stat().st_mtime_ns == before
    assert [outcome.status for outcome in outcomes] == ["converged", "failed"]
    assert [outcome.seconds is None for outcome in outcomes] == [True, False]
    write_batch(keypoints, clips, ACTIONS + "  set: {drag: 0.2}\n")
    with pytest.raises(InputError, match="good' was run with other options"):
        batch(path, out=out)


def require_same_runs(first: Path, second: Path) -> None:
    """Everything but the time that it took and the names of the folders is the same, to the bit."""
    for name in ("trajectory.csv", "actions.csv", "config.yaml"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    one, two = (load_observation(folder / "observation.npz") for folder in (first, second))
    for name in vars(one):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    results = [json.loads((folder / "result.json").read_text()) for folder in (first, second)]
    for result in results:
        result["fit"].pop("seconds")
    assert results[0] == results[1]


def test_one_batch_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another batch is at work"):
            batch(write_batch(tmp_path, "  - a.mp4\n"), out=out)


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out" / "a").mkdir(parents=True)
    (tmp_path / "out" / "a" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="a' is in the way"):
        batch(write_batch(tmp_path, "  - a.mp4\n"), out=tmp_path / "out")
    assert (tmp_path / "out" / "a" / "thesis.txt").exists()


def test_what_is_done_is_kept_and_what_was_left_half_written_is_done_again(tmp_path: Path) -> None:
    path, out = write_batch(tmp_path, "  - a.mp4\n  - b.mp4\n"), tmp_path / "out"
    flight = short_flight()
    for job in read_jobs(path, out):
        job.config.parent.mkdir(parents=True, exist_ok=True)
        job.config.write_text(job.text)
        job.folder.mkdir()
    save_run(out / "a", flight, noisy_result(flight))
    (out / "b" / "trajectory.csv").write_text("time_s")
    (kept, failed), _ = batch(path, out=out)
    assert (kept.status, kept.seconds, kept.parameters["mass"]) == ("converged", None, (0.72, 0.71, 0.73))
    assert kept.parameters["drag"][1:] == (None, None)
    assert failed.status == "failed"
    assert "b.mp4' does not exist" in failed.message
    assert not (out / "b").exists()
    rows = list(csv.DictReader((out / "summary.csv").open()))
    assert [(row["clip"], row["mass"], row["drag_high"]) for row in rows] == [("a", "0.72", ""), ("b", "", "")]
    assert len(json.loads((out / "summary.json").read_text())["clips"]) == 2
    text = path.read_text()
    path.write_text(text.replace("overlay: false", "overlay: false\n  seed: 3"))
    with pytest.raises(InputError, match="a' was run with other options"):
        batch(path, out=out)


def test_an_interrupted_batch_ends_its_processes_and_can_go_on(keypoints: Path) -> None:
    # 20 s, so that it does not come to its end while a process that missed its first signal is waited for
    long = f"actions: {SAMPLE}/actions.csv, fit: mass, solver: rmsprop, starts: 64"
    path, out = write_batch(keypoints, f"  - {{clip: clip.mp4, name: good, {long}}}\n"), keypoints / "out"
    command = [sys.executable, "-m", "vid2phys", "batch", str(path), "--out", str(out)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # what runs the tests may ignore it
    )
    while not (out / "jobs" / "good.yaml").exists():
        assert process.poll() is None, process.stderr
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "vid2phys: interrupted"
    with (out / ".lock").open("w") as lock:  # no process of it is alive
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not (out / "good").exists()


def test_what_was_ended_by_force_is_cleared_away_by_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = tmp_path / "killed"  # in place of Python: fills the last argument's folder, and is killed
    killed.write_text(
        '#!/bin/sh\nfor folder; do :; done\nmkdir "$folder"\ntouch "$folder/trajectory.csv"\n'
        'case "$folder" in */a) echo {} > "$folder/result.json" ;; esac\nkill -9 $$\n'
    )
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    outcomes, out = batch(write_batch(tmp_path, "  - a.mp4\n  - b.mp4\n"), out=tmp_path / "out")
    assert [outcome.status for outcome in outcomes] == ["failed", "failed"]
    assert outcomes[1].message == "killed by signal 9"
    assert (out / "a" / "result.json").exists()
    assert not (out / "b").exists()


@pytest.mark.parametrize(("deaf", "code"), [(1, 0), (9, -signal.SIGKILL)], ids=["to the first", "to all"])
def test_a_process_that_misses_its_signal_is_ended_all_the_same(
    deaf: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_workers, "_GRACE_S", 0.3)
    script = (
        "import signal, sys, time\nheard = []\n"
        f"signal.signal(signal.SIGTERM, lambda *_: heard.append(1) if len(heard) < {deaf} else sys.exit(0))\n"
        "print(flush=True)\nwhile True: time.sleep(0.01)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it listens
        running = batch_workers._Running()
        running.add(process)
        running.stop()
        assert process.wait(10.0) == code


def test_an_interruption_while_jobs_are_submitted_ends_those_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"  # in place of Python: makes the last argument's folder, and its result after 20 s
    slow.write_text(
        f"#!{sys.executable}\nimport pathlib, sys, time\nfolder = pathlib.Path(sys.argv[-1])\n"
        'folder.mkdir()\ntime.sleep(20)\n(folder / "result.json").write_text("{}")\n'
    )
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    path, folder = write_batch(tmp_path, "  - a.mp4\n  - b.mp4\n"), tmp_path / "out"

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *args: Any, **kwargs: Any) -> NoReturn:
            super().submit(*args, **kwargs)
            while not (folder / "a").exists():
                time.sleep(0.01)
            raise KeyboardInterrupt

    monkeypatch.setattr(batch_workers, "ThreadPoolExecutor", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        batch(path, out=folder)
    assert not (folder / "a").exists()


@pytest.mark.slow
def test_ray_runs_a_batch_with_two_workers(keypoints: Path) -> None:
    pytest.importorskip("ray")
    clips = "".join(f"  - {{clip: clip.mp4, name: good{i}}}\n" for i in range(2))
    path = write_batch(keypoints, clips + "  - {clip: missing.mp4}\n", ACTIONS)
    outcomes, out = batch(path, out=keypoints / "ray", ray="local")
    assert [outcome.status for outcome in outcomes] == ["converged", "converged", "failed"]
    assert os.listdir(out / "good0") == os.listdir(out / "good1")


@pytest.mark.slow
def test_a_batch_that_is_killed_goes_on_to_the_same_result(keypoints: Path) -> None:
    """kill -9, of the batch alone and of its processes too, at moments from the first to the last second of a clip."""
    path = write_batch(keypoints, "  - {clip: clip.mp4, name: good}\n", ACTIONS)
    (whole,), folder = batch(path, out=keypoints / "whole")
    assert whole.converged
    assert whole.seconds is not None
    out = keypoints / "killed"
    command = [sys.executable, "-m", "vid2phys", "batch", str(path), "--out", str(out)]
    for share in np.random.default_rng(0).uniform(0.0, 1.1, 4):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        time.sleep(share * whole.seconds)
        children = [
            pid for path in Path(f"/proc/{process.pid}/task").glob("*/children") for pid in path.read_text().split()
        ]
        process.kill()
        process.wait()
        for pid in children if share > 0.5 else []:
            os.kill(int(pid), signal.SIGKILL)
        out.mkdir(exist_ok=True)
        with (out / ".lock").open("w") as lock:  # what the batch left behind ends by itself, and its clip counts
            fcntl.flock(lock, fcntl.LOCK_EX)
    (again,), _ = batch(path, out=out)
    assert again.converged
    require_same_runs(folder / "good", out / "good")
    assert sorted(os.listdir(out)) == [".lock", "good", "jobs", "summary.csv", "summary.json"]
    assert os.listdir(out / "jobs") == ["good.yaml"]

"""kill -9 at random moments, of a command alone or of its processes too: what goes on ends as if undisturbed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.unit.test_batch import ACTIONS, require_same_runs, write_batch
from tests.unit.test_given_points import write_sample_keypoints
from tests.unit.test_risp_task import TETRAHEDRON

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "quadrotor"
MOMENTS = 7  # of each command: 21 together


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """What a process has used of a core, whatever else the machine does."""
    user, system = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def killed_again_and_again(command: list[str], seconds: float, seed: int, *, cpu: bool = False) -> int:
    """Starts a command MOMENTS times and kills it within the `seconds` that it takes; how often it was still at it.

    cpu: these are of its own process on a core, not of the clock.
    """
    rng, alive = np.random.default_rng(seed), 0
    for moment in range(MOMENTS):
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        moment_s = rng.uniform(0.0, seconds)
        if not cpu:
            time.sleep(moment_s)
        while cpu and process.poll() is None and cpu_seconds(process) < moment_s:
            time.sleep(0.02)
        alive += process.poll() is None
        if moment % 2:
            os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.kill()
        process.wait()
    return alive


def finish(command: list[str]) -> float:
    """Runs a command to its end; how long that took, in seconds."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return time.monotonic() - began


@pytest.mark.slow
def test_identify_killed_and_repeated(tmp_path: Path) -> None:
    write_sample_keypoints(tmp_path)
    inputs = ["--mesh", f"{SAMPLE}/quad.obj", "--camera", f"{SAMPLE}/camera.yaml", "--observation", f"{tmp_path}/k.csv"]
    inputs += ["--body-points", f"{tmp_path}/body.csv", "--actions", f"{SAMPLE}/actions.csv", "--fit", "mass"]
    command = [sys.executable, "-m", "vid2phys", "identify", f"{tmp_path}/clip.mp4", *inputs, "--no-overlay", "--out"]
    before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    finish([*command, str(tmp_path / "whole")])
    seconds = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before
    out = tmp_path / "killed"
    assert killed_again_and_again([*command, str(out)], 0.9 * seconds, seed=1, cpu=True)
    if not (out / "result.json").exists():
        finish([*command, str(out)])
    require_same_runs(tmp_path / "whole", out)
    assert sorted(os.listdir(out)) == sorted(os.listdir(tmp_path / "whole"))


@pytest.mark.slow
def test_batch_killed_and_gone_on_with(tmp_path: Path) -> None:
    write_sample_keypoints(tmp_path)
    clips = "".join(f"  - {{clip: clip.mp4, name: good{i}, seed: {i}}}\n" for i in range(2))
    path = write_batch(tmp_path, clips, ACTIONS)
    command = [sys.executable, "-m", "vid2phys", "batch", str(path), "--workers", "1", "--out"]
    seconds = finish([*command, str(tmp_path / "whole")])
    out = tmp_path / "killed"
    killed_again_and_again([*command, str(out)], 0.6 * seconds, seed=2)
    while True:  # what a batch that was killed alone left behind ends by itself
        done = subprocess.run([*command, str(out)], cwd=ROOT, capture_output=True, text=True)
        if "another batch is at work" not in done.stderr:
            break
        time.sleep(1.0)
    assert done.returncode == 0, done.stderr
    for name in ("good0", "good1"):
        require_same_runs(tmp_path / "whole" / name, out / name)
    assert sorted(os.listdir(out)) == sorted(os.listdir(tmp_path / "whole"))


@pytest.mark.slow
@pytest.mark.mitsuba
def test_training_killed_and_gone_on_with(tmp_path: Path) -> None:
    from vid2phys.engine.render.llvm import find_llvm

    if find_llvm() is None:
        pytest.skip("no LLVM on this machine")
    (tmp_path / "thing.obj").write_text(TETRAHEDRON)
    options = ["--samples", "64", "--epochs", "3", "--head", "state@w8", "--device", "cpu"]
    command = [sys.executable, "-m", "vid2phys", "train-risp", "--mesh", f"{tmp_path}/thing.obj", *options]

    def into(name: str) -> list[str]:
        return [*command, "--out", str(tmp_path / name), "--work", str(tmp_path / f"{name}-work")]

    seconds = finish(into("whole"))
    killed_again_and_again(into("killed"), 0.6 * seconds, seed=3)
    finish(into("killed"))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for name in ("state.json", "state.safetensors"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name
    scores = [json.loads((folder / "score.json").read_text()) for folder in (whole, killed)]
    assert scores[0]["validation"] == scores[1]["validation"]
    renders = sorted((tmp_path / "whole-work" / "data").glob("*.safetensors"))
    assert renders
    for path in renders:
        assert path.read_bytes() == (tmp_path / "killed-work" / "data" / path.name).read_bytes(), path.name

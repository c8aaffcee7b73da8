"""`vid2phys identify` of a clamped bar: a drawn beam that vibrates, from images to the run folder."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests import bending_bar
from tests.bending_bar import DECAY, RATE, YOUNG
from vid2phys import cli


def run_cli(monkeypatch: pytest.MonkeyPatch, folder: Path, *more: str) -> int:
    given = ["identify", str(folder / "images"), "--fps", "60", "--system", "soft_body", "--clamp", "x<0.001"]
    given += ["--body", str(folder / "bar.msh"), "--camera", str(folder / "cam.yaml"), "--out", str(folder / "run")]
    monkeypatch.setattr("sys.argv", ["vid2phys", *given, "--set", "density=1000", "--set", "poisson_ratio=0", *more])
    return cli._run()


@pytest.mark.slow
def test_modulus_and_damping_of_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bending_bar.write(tmp_path, 45)
    assert run_cli(monkeypatch, tmp_path) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["status"] == "converged"
    found = result["parameters"]
    assert found["young_modulus"]["value"] == pytest.approx(YOUNG, rel=0.015)  # the beam is linear
    assert found["damping"]["value"] == pytest.approx(DECAY * YOUNG / RATE**2, rel=0.1)
    header = (tmp_path / "run" / "trajectory.csv").read_text().splitlines()[0]
    assert header.startswith("time_s,mode_1_m,mode_2_m")
    assert {"overlay.mp4", "preview.jpg", "report.html"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_a_clip_in_which_nothing_moves_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bending_bar.write(tmp_path, 1)
    first = cv2.imread(str(tmp_path / "images" / "0000.png"))
    rng = np.random.default_rng(1)
    for i in range(10):
        noisy = first + rng.normal(0.0, 1.5, first.shape)
        cv2.imwrite(str(tmp_path / "images" / f"{i:04d}.png"), np.clip(noisy, 0, 255).astype(np.uint8))
    assert run_cli(monkeypatch, tmp_path) == 3
    error = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("[")]
    assert len(error) == 1
    assert "nothing" in error[0]

"""`vid2phys identify` of a drawn sheet: its parameters, with truth from a finer mesh, and one line for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests import hanging_sheet
from tests.hanging_sheet import CLAMP, KNOWN, TRUTH
from vid2phys import cli


def run_cli(monkeypatch: pytest.MonkeyPatch, folder: Path, clamp: str = CLAMP, *more: str) -> int:
    given = ["identify", str(folder / "images"), "--fps", "60", "--system", "cloth", "--clamp", clamp]
    given += ["--body", str(folder / "sheet.obj"), "--camera", str(folder / "cam.yaml"), "--out", str(folder / "run")]
    known = [text for name, value in KNOWN.items() for text in ("--set", f"{name}={value}")]
    monkeypatch.setattr("sys.argv", ["vid2phys", *given, *known, *more])
    return cli._run()


def error(capsys: pytest.CaptureFixture[str]) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("[")]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.slow
def test_bending_stiffness_and_drag_of_a_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging_sheet.write(tmp_path, 24)
    assert run_cli(monkeypatch, tmp_path, CLAMP, "--fit", "start_velocity,bending_stiffness,drag") == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["status"] == "converged"
    for name, off in (("bending_stiffness", 0.1), ("drag", 0.2), ("start_velocity_y", 0.03)):
        found = result["parameters"][name]
        low, high = found["ci95"]
        assert low < TRUTH[name] < high
        assert 1e-4 * TRUTH[name] < high - low < TRUTH[name]
        assert found["value"] == pytest.approx(TRUTH[name], rel=off)
    assert {"overlay.mp4", "report.html", "trajectory.csv"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_a_clamp_that_holds_nothing_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hanging_sheet.write(tmp_path, 10, moving=False)
    assert run_cli(monkeypatch, tmp_path, "z>0.5") == 3
    assert "holds no vertices" in error(capsys)


def test_a_clip_in_which_nothing_moves_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hanging_sheet.write(tmp_path, 10, moving=False)
    assert run_cli(monkeypatch, tmp_path) == 3
    assert "nothing moves" in error(capsys)


def test_a_sheet_that_is_elsewhere_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hanging_sheet.write(tmp_path, 12)
    assert run_cli(monkeypatch, tmp_path, CLAMP, "--base", "shift:0.25:0:0") == 3
    assert "not where" in error(capsys)


def test_regions_of_a_clamp_meet() -> None:
    from vid2phys.commands.clamps import clamped
    from vid2phys.engine.systems.cloth import Cloth, sheet

    body = clamped(Cloth(*sheet(0.2, 0.2, 4, 4)), ("z>0.199&x<-0.09", "z>0.199&x>0.09"), None)
    np.testing.assert_array_equal(body.pinned, [20, 24])  # type: ignore[attr-defined]
    finer = body.refined()  # type: ignore[attr-defined]
    np.testing.assert_array_equal(finer.pinned, [20, 24])
    np.testing.assert_allclose(finer.rest_m[:25], body.rest_m)  # type: ignore[attr-defined]

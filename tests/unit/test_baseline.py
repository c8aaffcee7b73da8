"""The baseline collects the numbers of benchmarks from their JSON files, and compares two collections."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import baseline
from benchmarks.summary import TASKS


def table(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"command": f"python -m benchmarks.{path.stem}", "rows": rows}))
    return path


def numbers(folder: Path, fps: float) -> list[str]:
    """Arguments that name small files of all benchmarks."""
    common = {"method": "ours", "std": None, "n": 1, "paper": None}
    error = {"system": "quadrotor", "case": "sample", "metric": "position_rmse_m", "value": 0.01, "unit": "m"}
    rate = {"system": "soft_body", "tets": 96, "metric": "forward_hz", "value": 188444.8, "unit": "Hz"}
    frames = {"system": "sample", "metric": "fps", "value": fps, "unit": "1/s"}
    for task in TASKS:
        table(folder / f"{task.table}.json")
    ours = {"system": "rod", "metric": "final_l1", "value": 0.2, "unit": "1"}
    table(folder / "risp-table4.json", {**ours, **common})
    files = {"identify": error, "engine": rate, "tracking": frames}
    named = [(f"--{name}", str(table(folder / f"{name}.json", {**row, **common}))) for name, row in files.items()]
    return ["--results", str(folder), *(word for pair in named for word in pair)]


def test_two_collections_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(baseline, "count_tests", lambda: 2000)
    for name, fps in (("old", 20.0), ("new", 15.0)):
        monkeypatch.setattr(sys, "argv", ["baseline", "--json", str(tmp_path / name), *numbers(tmp_path, fps)])
        baseline.main()
    kept = json.loads((tmp_path / "new").read_text())
    assert kept["commands"]["engine"] == "python -m benchmarks.engine"
    assert set(kept["commands"]) == {"identify", "engine", "tracking", "summary", "tests"}
    monkeypatch.setattr(sys, "argv", ["baseline", "--compare", str(tmp_path / "old"), str(tmp_path / "new")])
    baseline.main()
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| identify | quadrotor sample ours | position_rmse_m | m | 0.01 | 0.01 | 1 |",
        "| engine | soft_body 96 ours | forward_hz | Hz | 188445 | 188445 | 1 |",
        "| tracking | sample ours | fps | 1/s | 20 | 15 | 0.75 |",
        "| summary | risp-table4 rod | final_l1 | 1 | 0.2 | 0.2 | 1 |",
        "| tests | all | tests | 1 | 2000 | 2000 | 1 |",
    ]


def test_a_number_that_is_missing_is_a_dash() -> None:
    row = {"benchmark": "engine", "system": "rod", "metric": "forward_hz", "unit": "Hz", "value": 2.0}
    assert list(baseline.compare([row], []))[2:] == ["| engine | rod | forward_hz | Hz | 2 | - | - |"]
    assert list(baseline.compare([], [row]))[2:] == ["| engine | rod | forward_hz | Hz | - | 2 | - |"]

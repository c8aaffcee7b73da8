"""The table of RISP's tables in docs/results.md is what `benchmarks.summary` prints of the results that are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.summary import RESULTS, TASKS, summary

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results.md"


def test_the_page_shows_it() -> None:
    shown = PAGE.read_text(encoding="utf-8").split("<!-- tables -->\n")[1].split("\n<!-- /tables -->")[0]
    assert shown == summary(RESULTS)


def _cells(folder: Path, rows: list[dict[str, Any]], title: str) -> list[str]:
    """Cells of the summary's line of this title, of results that hold rows of table 2 alone."""
    for task in TASKS:
        (folder / f"{task.table}.json").write_text('{"rows": []}')
    (folder / "risp-table2.json").write_text(json.dumps({"rows": rows}))
    (line,) = [line for line in summary(folder).splitlines() if line.startswith(f"| [{title}]")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def _row(method: str, metric: str, value: float, **more: Any) -> dict[str, Any]:
    return {"system": "rod", "method": method, "metric": metric, "value": value, **more}


@pytest.mark.parametrize(("ours", "bound", "met"), [(0.9, 0.1, "yes"), (1.1, 0.1, "no"), (1.1, 0.8, "yes")])
def test_identification_is_aimed_at_a_tenth_or_the_bound(tmp_path: Path, ours: float, bound: float, met: str) -> None:
    """The bound is that of a known first state, of the command's line too."""
    rows = [
        _row("ours", "log10_E_error", 7.0, configuration="sun"),  # of some images only
        _row("ours", "log10_E_error", ours),
        _row("ours-known-start", "log10_E_error", 0.5, bound=bound),
        _row("paper", "log10_E_error", 10.0, network_converged=False),
        _row("pixel", "log10_E_error", 20.0),
    ]
    aim = f"{max(1.0, 1.5 * bound):.2g}"
    others = ["", "", "20", "", "10*", ""]
    assert _cells(tmp_path, rows, "identification")[1:] == ["rod", "log10 E", f"{ours:.2g}", *others, aim, met]
    known = _cells(tmp_path, rows, "the same from a known first state")
    assert known[1:] == ["rod", "log10 E", "0.5", *others, aim, "yes"]


@pytest.mark.parametrize("best", ["average", "random", "pixel", "perceptual", "paper", "paper-no-grad"])
def test_identification_is_aimed_at_a_tenth_of_the_best_other_method(tmp_path: Path, best: str) -> None:
    methods = ("average", "random", "pixel", "perceptual", "paper", "paper-no-grad")
    rows = [_row(method, "log10_E_error", 1.0 if method == best else 5.0) for method in methods]
    rows += [_row("ours", "log10_E_error", 0.11), _row("oracle", "log10_E_error", 0.001)]
    assert _cells(tmp_path, rows, "identification")[-2:] == ["0.1", "no"]


def test_wall_times_are_aimed_at_a_tenth_of_those_by_pixels(tmp_path: Path) -> None:
    rows = [_row(method, "identification_s", value) for method, value in (("ours", 3), ("paper", 7), ("pixel", 138))]
    assert _cells(tmp_path, rows, "wall time of it")[1:] == ["rod", "s", "3", "", "", "138", "", "7", "", "14", "yes"]

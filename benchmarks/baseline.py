"""Collect the numbers that must not get worse, and compare two such collections.

    python -m benchmarks.baseline --json FILE [--identify FILE] [--engine FILE] [--tracking FILE]
    python -m benchmarks.baseline --compare OLD NEW

The first command takes the numbers of a benchmark from the JSON file that is given, and runs the benchmark where none
is given (`identify` takes an hour, the others minutes). The summary of RISP's tables comes from docs/results, and the
number of tests from pytest. FILE keeps the command of each benchmark. The second command prints old and new values
side by side, as Markdown. Limit: the reader judges which change is noise, and times count on one idle machine only.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.summary import RESULTS, main_figures
from benchmarks.tables import write_table

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ("identify", "engine", "tracking")
NOT_A_NAME = ("metric", "value", "std", "n", "unit", "paper", "benchmark")  # fields that tell no case from another
TESTS = ("-m", "pytest", "-m", "", "--collect-only", "-q", "-q")  # a line "FILE: NUMBER" for each file
Rows = list[dict[str, Any]]


def collect(files: dict[str, Path], results: Path) -> tuple[Rows, dict[str, str]]:
    """Return all rows, and the command that made those of each benchmark. files: JSON file by benchmark's name."""
    rows, commands = list[dict[str, Any]](), dict[str, str]()
    for name in BENCHMARKS:
        document = json.loads((files[name] if name in files else run(name)).read_text(encoding="utf-8"))
        rows += [{"benchmark": name, **row} for row in document["rows"]]
        commands[name] = document["command"]
    rows += [{"benchmark": "summary", **row} for row in main_figures(results)]
    rows.append({"benchmark": "tests", "system": "all", "metric": "tests", "value": count_tests(), "unit": "1"})
    return rows, {**commands, "summary": "python -m benchmarks.summary", "tests": f"python {shlex.join(TESTS)}"}


def run(name: str) -> Path:
    """Run a benchmark in a process of its own and return the JSON file that it wrote."""
    path = Path(tempfile.mkdtemp()) / f"{name}.json"
    subprocess.run([sys.executable, "-m", f"benchmarks.{name}", "--json", str(path)], cwd=ROOT, check=True)
    return path


def count_tests() -> int:
    """Return how many tests pytest finds, the slow ones included."""
    found = subprocess.run([sys.executable, *TESTS], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sum(int(line.rpartition(":")[2]) for line in found.splitlines() if line.startswith("tests/"))


def case_of(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the benchmark, the case in words, the metric and the unit: what a number is found again by."""
    told = (str(value) for name, value in row.items() if name not in NOT_A_NAME and isinstance(value, str | int))
    return row["benchmark"], " ".join(told), row["metric"], row["unit"]


def compare(old: Rows, new: Rows) -> Iterator[str]:
    """Yield the lines of a table in Markdown: old and new value and their ratio; a dash where a number is missing."""
    before, after = ({case_of(row): row["value"] for row in rows} for rows in (old, new))
    yield "| benchmark | case | metric | unit | old | new | new / old |"
    yield "|---|---|---|---|---|---|---|"
    for case in dict.fromkeys([*before, *after]):
        a, b = before.get(case), after.get(case)
        ratio = f"{b / a:.3g}" if a and b is not None else "-"
        yield f"| {' | '.join(case)} | {_number(a)} | {_number(b)} | {ratio} |"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def main() -> None:
    """Collect into a file, or compare two files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--json", type=Path, help="file to write")
    what.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="files to compare")
    for name in BENCHMARKS:
        parser.add_argument(f"--{name}", type=Path, help=f"JSON file of `python -m benchmarks.{name}` to take")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the papers' tables")
    options = parser.parse_args()
    if options.compare:
        print("\n".join(compare(*(json.loads(path.read_text(encoding="utf-8"))["rows"] for path in options.compare))))
        return
    began = time.monotonic()
    files = {name: getattr(options, name) for name in BENCHMARKS if getattr(options, name) is not None}
    rows, commands = collect(files, options.results)
    write_table(options.json, "baseline", rows, time.monotonic() - began, commands=commands)


if __name__ == "__main__":
    main()

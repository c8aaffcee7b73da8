"""Fits to recorded data: parameters with 95 % intervals, and recordings foretold that nothing was fitted to.

    python -m benchmarks.recorded --json FILE [--quick] [--markdown] [--only pendulum tosses] [--data FOLDER]

The recordings are looked for in ../shared/data; a kind that is not there is left out, with a word on stderr. `--quick`
searches less, and leaves out what only adds numbers. FILE is written after each kind, and one that is there keeps the
rows of the kinds that are not run.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.recorded.rows import markdown
from benchmarks.tables import write_table
from vid2phys.io.run import read_json

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
KINDS = ("pendulum", "crazyflie", "beam", "tosses")


def main() -> None:
    """Fit, print a table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--quick", action="store_true", help="search less")
    parser.add_argument("--markdown", action="store_true", help="print a table in Markdown")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="kinds of recordings")
    parser.add_argument("--data", type=Path, default=DATA, help="where the recordings are")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for kind in options.only:
        module = importlib.import_module(f"benchmarks.recorded.{kind}")
        folder = options.data / module.SOURCE
        if not folder.is_dir():
            print(f"{kind}: '{folder}' is not there", file=sys.stderr)
            continue
        began = time.monotonic()
        found = [{"kind": kind, **row} for row in module.rows(folder, quick=options.quick)]
        seconds = time.monotonic() - began
        print(f"{kind}: {seconds:.0f} s", file=sys.stderr, flush=True)
        rows += found
        if options.json is not None:
            _write(options.json, kind, found, seconds, quick=options.quick)
    if options.markdown:
        print(markdown(rows))
    for row in [] if options.markdown else rows:
        print(f"{row['case']:18} {row['method']:36} {row['metric']:48} {row['value']:>11} {row['unit']}")


def _write(path: Path, kind: str, rows: list[dict[str, Any]], seconds: float, *, quick: bool) -> None:
    """Put a kind's rows into the table; a quick table and a full one are not mixed."""
    before = read_json(path) if path.is_file() else {}
    kept = before if before.get("quick") == quick else {}
    others = [row for row in kept.get("rows", []) if row.get("kind") not in (kind, None)]
    spent = {**kept.get("seconds_of", {}), kind: round(seconds, 1)}
    rows = sorted([*others, *rows], key=lambda row: KINDS.index(row["kind"]))
    write_table(path, "recorded", rows, sum(spent.values()), quick=quick, seconds_of=spent)


if __name__ == "__main__":
    main()

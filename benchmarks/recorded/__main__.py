"""Fits to recorded data: parameters with 95 % intervals, and recordings foretold that nothing was fitted to.

    python -m benchmarks.recorded --json FILE [--quick] [--markdown] [--only pendulum tosses] [--data FOLDER]

The recordings are looked for in ../shared/data; a kind that is not there is left out, with a word on stderr. `--quick`
searches less, and leaves out what only adds numbers.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.recorded.rows import markdown
from vid2phys.io.files import write_text
from vid2phys.reproduce.table import SCHEMA, machine

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
    start, rows = time.monotonic(), list[dict[str, Any]]()
    for kind in options.only:
        module = importlib.import_module(f"benchmarks.recorded.{kind}")
        folder = options.data / module.SOURCE
        if not folder.is_dir():
            print(f"{kind}: '{folder}' is not there", file=sys.stderr)
            continue
        began = time.monotonic()
        rows += module.rows(folder, quick=options.quick)
        print(f"{kind}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if options.json is not None:  # what took long is kept if the next kind fails
            _write(options, rows, time.monotonic() - start)
    if options.markdown:
        print(markdown(rows))
    for row in [] if options.markdown else rows:
        print(f"{row['case']:18} {row['method']:36} {row['metric']:48} {row['value']:>11} {row['unit']}")


def _write(options: argparse.Namespace, rows: list[dict[str, Any]], seconds: float) -> None:
    only = [] if tuple(options.only) == KINDS else ["--only", *options.only]
    document = {
        "schema": SCHEMA,
        "name": "recorded",
        "command": " ".join(["python -m benchmarks.recorded", *only, *(["--quick"] if options.quick else [])]),
        "seconds": round(seconds, 1),
        "machine": machine("cpu"),
        "quick": options.quick,
        "rows": rows,
    }
    write_text(options.json, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""The file that a benchmark writes, in the form that all tables share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.table import SCHEMA, machine
from vid2phys.io.run import write_json


def write_table(
    path: Path,
    name: str,
    rows: list[dict[str, Any]],
    seconds: float,
    *,
    quick: bool = False,
    options: str = "",
    **more: Any,
) -> None:
    """Write the rows of `python -m benchmarks.NAME` and what it took to make them. options: of the command."""
    document = {
        "schema": SCHEMA,
        "name": name,
        "command": " ".join(filter(None, [f"python -m benchmarks.{name}", "--quick" if quick else "", options])),
        "seconds": round(seconds, 1),
        "machine": machine("cpu"),
        "quick": quick,
        **more,
        "rows": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, document)

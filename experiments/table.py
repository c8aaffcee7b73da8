"""A table of results in the form that all tables and benchmarks share.

Limits: a row holds one number of one method on one system.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.io.files import atomic_path, write_text

SCHEMA = "vid2phys.table/1"


@dataclass(frozen=True)
class Setting:
    """How a table is made. out: folder of the results. work: of what is kept between calls. bodies, methods: names of
    those that this sitting is for, all if there are none. device: torch's name."""

    quick: bool
    out: Path
    work: Path
    progress: TrainingProgress
    bodies: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    device: str = "cpu"
    seed: int = 0

    def command(self, name: str) -> str:
        """Return the command that fills the table of this name."""
        return f"vid2phys reproduce {name}" + (" --quick" if self.quick else "")

    def stem(self, name: str) -> str:
        """Return the files' name without its ending: quick tables lie beside full ones."""
        return f"{name}.quick" if self.quick else name


@dataclass
class Table:
    """rows: flat dictionaries with system, method, metric, value, std, n, unit, paper and more. notes: what a reader
    has to know. draw, film: write an image (PNG) or a video (MP4) to a path. quick: what a quick run lacks."""

    name: str
    command: str
    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    draw: Callable[[Path], None] | None = None
    film: Callable[[Path], None] | None = None
    quick: str = "far too little training for these numbers to mean anything"

    def write(self, setting: Setting) -> list[Path]:
        """Write JSON, Markdown and, if there are any, PNG and MP4."""
        stem = setting.stem(self.name)
        document = {
            "schema": SCHEMA,
            "name": self.name,
            "command": self.command,
            "seconds": round(self.seconds, 1),
            "machine": machine(setting.device),
            "quick": setting.quick,
            "notes": self.notes,
            "rows": self.rows,
        }
        files = [setting.out / f"{stem}{ending}" for ending in (".json", ".md")]
        write_text(files[0], json.dumps(document, indent=1) + "\n")
        write_text(files[1], markdown(document, self.quick))
        for ending, make in ((".png", self.draw), (".mp4", self.film)):
            if make is not None:
                files.append(setting.out / f"{stem}{ending}")
                with atomic_path(files[-1]) as temporary:
                    make(temporary)
        return files


def row(system: str, method: str, metric: str, value: float | None, unit: str, **more: Any) -> dict[str, Any]:
    """Return the row of one number. value None: there is none, and `reason` says why."""
    return {
        "system": system,
        "method": method,
        "metric": metric,
        "value": None if value is None else short(value, 5),
        "std": None,
        "n": None,
        "unit": unit,
        "paper": None,
        **more,
    }


def short(value: float, digits: int = 4) -> float:
    """Return a number with so many significant digits."""
    return float(f"{value:.{digits}g}")


def machine(device: str) -> str:
    """Return the machine in words."""
    gpu = ""
    if device == "cuda":
        import torch

        gpu = f", {torch.cuda.get_device_name(0)}"
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}{gpu}"


def markdown(document: dict[str, Any], quick: str = Table.quick) -> str:
    """Return the table for people: a line for each system and method, a column for each metric. quick: see `Table`."""
    rows = [row for row in document["rows"] if "configuration" not in row and "epoch" not in row]
    lines = [f"# {document['name']}", ""]
    if document["quick"]:
        lines += [f"**A quick run: {quick}.**", ""]
    lines += [f"`{document['command']}`, the last sitting {document['seconds']:.0f} s on {document['machine']}.", ""]
    metrics = list(dict.fromkeys((row["metric"], row["unit"]) for row in rows if row["value"] is not None))
    lines.append("| system | method | " + " | ".join(f"{m} [{u}]" if u != "1" else m for m, u in metrics) + " |")
    lines.append("|" + "---|" * (2 + len(metrics)))
    keys = list(dict.fromkeys((row["system"], row["method"]) for row in rows))
    for system, method in keys:
        mine = [row for row in rows if (row["system"], row["method"]) == (system, method)]
        if mine[0].get("reason") and mine[0]["value"] is None:
            lines.append(f"| {system} | {method} | {mine[0]['reason']} |" + " |" * (len(metrics) - 1))
            continue
        cells = [_cell(mine, metric) for metric, _ in metrics]
        doubt = "" if mine[0].get("network_converged", True) else " (network not converged)"
        doubt = doubt if mine[0].get("converged", True) else " (not converged)"
        lines.append(f"| {system} | {method}{doubt} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in document["notes"]), ""])


def _cell(rows: list[dict[str, Any]], metric: str) -> str:
    found = next((row for row in rows if row["metric"] == metric and row["value"] is not None), None)
    if found is None:
        return ""
    paper = f" (paper {found['paper']:g})" if found["paper"] is not None else ""
    half_width = f" +- {found['half_width']:.2g}" if found.get("half_width") is not None else ""
    return f"{found['value']:.3g}{half_width}{paper}"

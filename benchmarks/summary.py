"""Print RISP's four tables in one: errors and times of all methods, with the aim.

    python -m benchmarks.summary [--results FOLDER]

docs/results.md shows this table. Nothing is measured here: docs/results holds what `vid2phys reproduce risp-table1` ...
`risp-table4` measured.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
_BOUND = 1.5  # times the Cramer-Rao bound
Rows = list[dict[str, Any]]


OTHERS = ("average", "random", "pixel", "perceptual", "paper", "paper-no-grad")
_TITLES = {
    "average": "average",
    "random": "random",
    "pixel": "pixels",
    "perceptual": "perceptual",
    "paper": "RISP's network",
    "paper-no-grad": "RISP's, without gradients",
}


@dataclass(frozen=True)
class Task:
    """A table's main figures. metrics: a line for each that a body has. share: of what the best of the methods
    `against` needs or is off that is aimed at. method: whose figures they are."""

    table: str
    title: str
    metrics: tuple[str, ...]
    share: float
    against: tuple[str, ...] = OTHERS
    method: str = "ours"


KNOWN_PLACE, KNOWN_START = "ours-known-place", "ours-known-start"
_OF_STATES = ("state_error", "state_error_up_to_symmetry")
_OF_PARAMETERS = ("mass_error", "log10_k_n_error", "stiffness_error", "log10_E_error")
TASKS = (
    Task("risp-table1", "state estimation", _OF_STATES, 0.2),
    Task("risp-table1", "the same by our own steps", _OF_STATES, 0.2, method=KNOWN_PLACE),
    Task("risp-table2", "identification", _OF_PARAMETERS, 0.1),
    Task("risp-table2", "the same from a known first state", _OF_PARAMETERS, 0.1, method=KNOWN_START),
    Task("risp-table2", "wall time of it", ("identification_s",), 0.1, ("pixel",)),
    Task("risp-table3", "imitation", ("state_discrepancy",), 0.2),
    Task("risp-table3", "the same from a known first state", ("state_discrepancy",), 0.2, method=KNOWN_START),
    Task("risp-table4", "control to an image", ("final_l1",), 0.2),
    Task("risp-table4", "the same by our own steps", ("final_l1",), 0.2, method=KNOWN_START),
)
_BODIES = {
    "quadrotor": "quadrotor",
    "cube": "textured cube",
    "cube-plain": "plain cube",
    "hand": "hand",
    "rod": "rod",
}
_UNITS = {
    "state_error": "state error",
    "state_error_up_to_symmetry": "state error up to symmetry",
    "mass_error": "mass, kg",
    "log10_k_n_error": "log10 k_n",
    "stiffness_error": "joint stiffness",
    "log10_E_error": "log10 E",
    "identification_s": "s",
    "state_discrepancy": "body radii",
    "final_l1": "L1",
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    print(summary(parser.parse_args().results))


def summary(results: Path) -> str:
    """Return the table in Markdown, from the folder of the results."""
    titles = ["task", "body", "measured in", "ours", *(_TITLES[method] for method in OTHERS), "aim", "met"]
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for task in TASKS:
        rows = json.loads((results / f"{task.table}.json").read_text())["rows"]
        for body, name in _BODIES.items():
            of_body = [row for row in rows if row["system"] == body]
            lines += [
                _line(task, of_body, name, metric) for metric in task.metrics if _row(of_body, task.method, metric)
            ]
    return "\n".join(lines)


def main_figures(results: Path) -> Iterator[dict[str, Any]]:
    """Yield our row for each line of the summary."""
    for task in TASKS:
        rows = json.loads((results / f"{task.table}.json").read_text())["rows"]
        for body in _BODIES:
            for metric in task.metrics:
                row = _row([row for row in rows if row["system"] == body], task.method, metric)
                if row is not None:
                    named = {"table": task.table, "system": body, "metric": metric}
                    named |= {"method": task.method} if task.method != "ours" else {}
                    yield {**named, "value": row["value"], "unit": row["unit"]}


def _line(task: Task, rows: Rows, name: str, metric: str) -> str:
    ours, *others = (_row(rows, method, metric) for method in (task.method, *OTHERS))
    known = [row["value"] for row in others if row is not None and row["method"] in task.against]
    aim = task.share * min(known) if known else None
    bound = (_row(rows, KNOWN_START, metric) or {}).get("bound")
    if aim is not None and bound is not None:
        aim = max(aim, _BOUND * bound)
    met = "" if ours is None or aim is None else "yes" if ours["value"] <= aim else "no"
    link = f"[{task.title}](results/{task.table}.md)"
    wanted = "" if aim is None else _short(aim)
    cells = [link, name, _UNITS[metric], *(_shown(row) for row in (ours, *others)), wanted, met]
    return f"| {' | '.join(cells)} |"


def _row(rows: Rows, method: str, metric: str) -> dict[str, Any] | None:
    """Return the row of a method and metric over all configurations of images, None without a value."""
    found = (row for row in rows if (row["method"], row["metric"]) == (method, metric) and "configuration" not in row)
    return next((row for row in found if row["value"] is not None), None)


def _shown(row: dict[str, Any] | None) -> str:
    """Return a value; a star marks a method whose network was not trained to its end."""
    if row is None:
        return ""
    trained = row.get("converged", True) and row.get("network_converged", True)
    return _short(row["value"]) + ("" if trained else "*")


def _short(value: float) -> str:
    return f"{value:.2g}" if value < 100.0 else f"{value:.0f}"


if __name__ == "__main__":
    main()

"""gradSim's figure 7 (Jatavallabhula, Macklin et al., ICLR 2021): what shading and texture add to estimating a mass."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch

from experiments.gradsim.filmed import by_pixels
from experiments.gradsim.pushed import APPEARANCES, name_of, pushed
from experiments.gradsim.result_cache import Cell, Outcome, rng_of, tabulated
from experiments.panels import figure_at
from experiments.result_cache import Rows
from experiments.table import Setting, Table, row, short

NAME = "gradsim-shading"
BODIES = ("rigid",)
METHODS = APPEARANCES
TEST, QUICK = 50, 4
VERSION = 1  # raise when outcomes are made in another way
_TESTED = 1  # stream of random numbers
_ITERATIONS, _RATE = 80, 0.15
_CLOSE = 0.01  # relative error from which on a mass counts as found
_NOTES = [
    "The same objects, pushes and starts as each other, filmed three ways: `color` (one colour a body, no light), "
    "`shading` (one colour, lit) and `texture` (waves of three colours through the body, lit). Pixels are descended by "
    "Adam with one schedule.",
    f"`mass_error`: relative, at the end. `iterations`: until the error stays below {100 * _CLOSE:g} %; `found`: share "
    "of the objects of which it does. Those that are caught on their way decide the mean.",
]


def run(setting: Setting) -> Table:
    """Fill the cells that are asked for and make the table of all that are filled."""
    count = QUICK if setting.quick else TEST
    cells = [Cell(NAME, BODIES[0], method, count, setting, VERSION) for method in METHODS]
    quick = f"{QUICK} objects instead of {TEST}"
    return tabulated(cells, lambda cell: partial(_outcome, setting, cell.method), _rows, _NOTES, draw, quick)


def _rows(cell: Cell) -> Rows:
    rows = [
        cell.row(metric, metric.removeprefix("mass_"), "1") for metric in ("mass_error", "start_error", "iterations")
    ]
    errors = [outcome["error"] for outcome in cell.outcomes()]
    if errors:
        rows.append(
            row(cell.body, cell.method, "found", float(np.mean(np.array(errors) <= _CLOSE)), "1", n=len(errors))
        )
    return rows


def _outcome(setting: Setting, appearance: str, index: int) -> Outcome:
    body = pushed(rng_of(setting, _TESTED, index), name_of(3 * index + 2), appearance=appearance)
    found = by_pixels(body, rate=_RATE, iterations=_ITERATIONS)
    off = np.abs(body.values(torch.from_numpy(found.path)).numpy()[:, 0] / body.truth[0] - 1.0)
    far = np.flatnonzero(off > _CLOSE)
    (error,) = body.errors(np.exp(found.values)).values()
    return {
        "error": error,
        "start_error": float(off[0]),
        "iterations": int(far[-1]) + 1 if len(far) else 0,
        "curve": [short(value) for value in off],
    }


def draw(cells: list[Cell], path: Path) -> None:
    """Draw the median error over the iterations."""
    with figure_at(path, 5.2, 3.4) as figure:
        axis = figure.subplots()
        for color, cell in zip(("tab:gray", "tab:blue", "tab:orange"), cells, strict=True):
            curves = [outcome["curve"] for outcome in cell.outcomes()]
            for curve in curves:
                axis.plot(curve, color=color, linewidth=0.5, alpha=0.4)
            if curves:
                axis.plot(np.median(curves, axis=0), color=color, linewidth=2.0, label=cell.method)
        axis.set(yscale="log", xlabel="iteration", ylabel="relative error of the mass")
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)

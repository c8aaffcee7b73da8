"""gradSim's table 2 (Jatavallabhula, Macklin et al., ICLR 2021): mass and contact from videos of sliding bodies.

Mass, damping k_d and stiffness k_e of a contact, friction k_f and mu are unknown together.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.gradsim.by_command import springs_by_command
from experiments.gradsim.filmed import outcome_of
from experiments.gradsim.newton import SIGMA
from experiments.gradsim.plots import scattered
from experiments.gradsim.result_cache import Cell, Outcome, rng_of, tabulated
from experiments.gradsim.sliding import RANGES, SHAPES, sliding
from experiments.identification import COMMAND, KNOWN_START
from experiments.result_cache import Rows
from experiments.table import Setting, Table, row

NAME = "gradsim-table2"
BODIES = ("contact",)
METHODS = ("random", "diffphysics", "pixel", KNOWN_START, COMMAND)
TEST, QUICK = 200, 2
FILMED, QUICK_FILMED = 7, 1  # objects of the command: one of each shape
PAPER_PIXEL = {"mass": 2.9e-4, "k_d": 0.4, "k_e": 0.0026, "k_f": 0.0017, "mu": 0.0073}
"""gradSim's table 2."""
VERSION = 5  # raise when outcomes are made in another way
_TESTED, _NOISE, _GUESS, _STARTS, _MOVES, _FILMED = 1, 2, 3, 4, 5, 6  # streams of random numbers
_ITERATIONS, _RATE = 150, 0.05
_MOVED = np.repeat([0.2, 0.5], [6, 14])  # how far away a descent that is caught begins again, in logarithms
_CANDIDATES = 24  # starts of ours, drawn about the given one
_STARTED = [("start_error_{}", "start_error_{}")]
_INTERVALS = [("interval_coverage_{}", "holds_{}"), ("interval_width_{}", "width_{}")]
_COLUMNS = {  # metrics and names in outcomes, of each unknown
    "random": [],
    "diffphysics": _STARTED,
    "pixel": _STARTED,
    KNOWN_START: [*_STARTED, ("noisy_error_{}", "noisy_error_{}"), *_INTERVALS],
    COMMAND: [*_INTERVALS, ("determined_{}", "determined_{}")],
}
_LAST = {"diffphysics": "starts", "pixel": "starts", COMMAND: "sure"}
_NOTES = [
    "Errors relative to the true values, means over objects, all five unknown at once; seven shapes that lie flat, "
    "dropped from a few centimetres and pushed along the ground by a known force for 50 ms. Contact is that of one "
    "point of eight. What the paper's figures are relative to its text does not say; motions and shapes are ours.",
    "Starts are drawn up to a factor of 1.5 either way (`start_error_...`). `diffphysics` is given the true places of "
    "all vertices, `pixel` and `ours-known-start` the images (64 x 64, 13 of 36 frames; physics at 480 Hz). "
    "First-order methods are a quasi-Newton descent of the loss (L-BFGS-B); where it is caught on its way, so that "
    f"more than rounding is left, it begins again from the best point so far, moved by up to {_MOVED[0]:g}, later "
    f"{_MOVED[-1]:g} of a "
    f"logarithm, and then from about the given start, {len(_MOVED)} times at most (`starts`: how often it began). "
    f"`ours-known-start` goes on from the best three of {_CANDIDATES} starts drawn about the given one, and from more "
    "until the least optimum was come to twice. `random` draws from the ranges of the truths.",
    "A few motions decide the means: those at whose end the body still slides show nothing of k_f, which then stays "
    "where it began (`ours-known-start` says so), and some descents are caught for good: `..._median` is what the "
    "others come to.",
    "Without the known push mass, k_d, k_e and k_f would show as ratios only: all of them are forces per mass.",
    f"`ours` is the user's command, `identify --actions push.csv --fit {','.join(RANGES)}`, on the first {FILMED} "
    "objects. It has a clip of 40 frames of 320 px with noise, compressed, which shows the body rise for 50 ms before "
    "the push, and mesh, camera and push. Nobody tells it place, orientation, velocity or moments of inertia, which "
    "all other methods know, nor a start. Its bodies touch with all corners of their hulls, and move in steps of "
    "0.26 ms. `sure`: share of objects with the status `converged` and all five determined, "
    "`determined_...`: of those whose parameter is. Its errors and widths are of parameters that are determined: some "
    "bodies slide too slowly for an upper bound of mu.",
    f"`noisy_error_...`: `ours-known-start` from images with noise of {SIGMA:g} of full light, for which its intervals "
    "are made; `interval_coverage_...`: the share of 95 % intervals that hold the truth, `interval_width_...`: their "
    "mean width, relative.",
]


def run(setting: Setting) -> Table:
    """Fill the cells that are asked for and make the table of all that are filled."""
    cells = [Cell(NAME, BODIES[0], method, _count(method, setting), setting, VERSION) for method in METHODS]
    quick = f"{QUICK} objects instead of {TEST}"
    return tabulated(cells, lambda cell: partial(_outcome, setting, cell.method), _rows, _NOTES, draw, quick)


def _count(method: str, setting: Setting) -> int:
    """Return the number of objects that a method is tried on."""
    if method == COMMAND:
        return QUICK_FILMED if setting.quick else FILMED
    return QUICK if setting.quick else TEST


def _rows(cell: Cell) -> Rows:
    rows = []
    for name in RANGES:
        paper = {"paper": PAPER_PIXEL[name]} if cell.method == "pixel" else {}
        rows.append(cell.row(f"{name}_error", f"error_{name}", "1", **paper))
        errors = _errors(cell, name)
        if errors:
            rows.append(
                row(cell.body, cell.method, f"{name}_error_median", float(np.median(errors)), "1", n=len(errors))
            )
        rows += [cell.row(metric.format(name), key.format(name), "1") for metric, key in _COLUMNS[cell.method]]
    if cell.method == "random":
        return rows
    rows.append(cell.row("seconds", "seconds", "s"))
    if cell.method in _LAST:
        rows.append(cell.row(_LAST[cell.method], _LAST[cell.method], "1"))
    return rows


def _outcome(setting: Setting, method: str, index: int) -> Outcome:
    if method == COMMAND:
        rng, noise = rng_of(setting, _TESTED, index), rng_of(setting, _FILMED, index)
        return springs_by_command(rng, noise, SHAPES[index % len(SHAPES)])
    body = sliding(rng_of(setting, _TESTED, index), SHAPES[index % len(SHAPES)])
    if method == "random":
        rng = rng_of(setting, _GUESS, index)
        guess = [np.exp(rng.uniform(np.log(low), np.log(high))) for _, low, high in RANGES.values()]
        return {f"error_{name}": float(abs(g / t - 1.0)) for name, g, t in zip(RANGES, guess, body.truth, strict=True)}
    drawn = rng_of(setting, _STARTS, index).uniform(-1.0, 1.0, (_CANDIDATES, len(RANGES))) * np.log(1.5)
    starts = body.start + drawn
    moves = _MOVED[:, None] * rng_of(setting, _MOVES, index).uniform(-1.0, 1.0, (len(_MOVED), len(RANGES)))
    how: dict[str, Any] = {"rate": _RATE, "iterations": _ITERATIONS, "optimizer": "lbfgs", "moves": moves}
    return outcome_of(body, method, rng_of(setting, _NOISE, index), starts, **how)


def draw(cells: list[Cell], path: Path) -> None:
    """Draw the errors of every object, by unknown and method."""
    scattered(path, {name: {cell.method: _errors(cell, name) for cell in cells} for name in RANGES}, PAPER_PIXEL)


def _errors(cell: Cell, name: str) -> list[float]:
    return [outcome[f"error_{name}"] for outcome in cell.outcomes() if f"error_{name}" in outcome]

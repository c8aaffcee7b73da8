"""gradSim's table 1 (Jatavallabhula, Macklin et al., ICLR 2021): the mass of rigid bodies from videos.

Fourteen shapes, densities of 2 to 12, a known impulse, 60 frames; 800 objects to learn from and 200 to be judged on.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vid2phys.reproduce.cells import Rows
from vid2phys.reproduce.gradsim.cells import Cell, Outcome, rng_of, tabulated
from vid2phys.reproduce.gradsim.filmed import outcome_of
from vid2phys.reproduce.gradsim.newton import SIGMA
from vid2phys.reproduce.gradsim.plots import scattered
from vid2phys.reproduce.gradsim.pushed import DENSITIES, mass_of, name_of, pushed, volume_of
from vid2phys.reproduce.table import Setting, Table

NAME = "gradsim-table1"
BODIES = ("rigid",)
METHODS = ("average", "random", "diffphysics", "pixel", "ours")
TRAINING, TEST, QUICK = 800, 200, 6
PAPER_PIXEL = 9.0e-5  # relative, gradSim's table 1
VERSION = 1  # raise when outcomes are made in another way
_TRAINED, _TESTED, _NOISE, _GUESS = 1, 2, 3, 4  # streams of random numbers
_ITERATIONS, _RATE = 80, 0.15
_CANDIDATES = 17  # starts of ours, evenly between those bounds
_NOTES = [
    f"Errors of the mass relative to the true one, means over objects; densities {DENSITIES[0]:g} to {DENSITIES[1]:g} "
    "kg/m^3 in shapes of 0.2 m radius are 5 to 390 g. Motions and shapes are ours: the paper publishes neither its "
    "impulses nor its meshes.",
    "No weight acts: gravity moves all masses alike, so that a mass shows by the known impulse alone.",
    "Methods that descend begin at a density drawn evenly from the whole range. `diffphysics` is given the true places "
    "of all vertices in space, `pixel` the pictures (64 x 64, 16 of the 60 frames), `ours` the same pictures, by "
    f"Levenberg and Marquardt, from the best of {_CANDIDATES} densities. `average` says the mean mass of {TRAINING} "
    "other objects, `random` that of a density drawn evenly.",
    f"`mass_error_noisy`: ours from pictures with noise of {SIGMA:g} of full light, for which its 95 % intervals are "
    "made; `interval_coverage` is the share of them that hold the truth, `interval_width` their mean width, relative.",
    "`seconds`: of one estimate, by the clock of a machine that was not idle.",
]


def run(setting: Setting) -> Table:
    """Fills the cells that are asked for and makes the table of all that are filled."""
    count = QUICK if setting.quick else TEST
    cells = [Cell(NAME, BODIES[0], method, count, setting, VERSION) for method in METHODS]
    quick = f"{QUICK} objects instead of {TEST}"
    return tabulated(cells, lambda cell: partial(_outcome, setting, cell.method), _rows, _NOTES, draw, quick)


def _rows(cell: Cell) -> Rows:
    paper: dict[str, Any] = {"paper": PAPER_PIXEL} if cell.method == "pixel" else {}
    rows = [cell.row("mass_error", "error_density", "1", **paper)]
    if cell.method in ("average", "random"):
        return rows
    rows += [cell.row("start_error", "start_error_density", "1"), cell.row("seconds", "seconds", "s")]
    if cell.method == "ours":
        rows += [
            cell.row("mass_error_noisy", "noisy_error_density", "1"),
            cell.row("interval_coverage", "holds_density", "1"),
            cell.row("interval_width", "width_density", "1"),
        ]
    return rows


def _outcome(setting: Setting, method: str, index: int) -> Outcome:
    body = pushed(rng_of(setting, _TESTED, index), name_of(index))
    if method in ("average", "random"):
        density = float(rng_of(setting, _GUESS, index).uniform(*DENSITIES))
        if method == "average":
            masses = [mass_of(rng_of(setting, _TRAINED, i), name_of(i)) for i in range(TRAINING)]
            density = float(np.mean(masses)) / volume_of(name_of(index))
        return {"error_density": abs(density / body.truth[0] - 1.0)}
    low, high = (float(end[0]) for end in body.bounds)
    starts = np.linspace(low, high, _CANDIDATES)[:, None]
    return outcome_of(body, method, rng_of(setting, _NOISE, index), starts, rate=_RATE, iterations=_ITERATIONS)


def draw(cells: list[Cell], path: Path) -> None:
    """The error of every object, by method."""
    errors = {cell.method: [outcome["error_density"] for outcome in cell.outcomes()] for cell in cells}
    scattered(path, {"mass": errors}, {"mass": PAPER_PIXEL})

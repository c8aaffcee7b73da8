"""gradSim's loss landscapes (Jatavallabhula, Macklin et al., ICLR 2021, Fig. 4, 11, 12): pixels' error by parameters.

Cuts through the truth: the mass of pushed bodies, the contact of a sliding one, the moduli of a beam and a ball.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.gradsim.filmed import Filmed
from experiments.gradsim.pushed import pushed
from experiments.gradsim.result_cache import Cell, Outcome, rng_of, tabulated
from experiments.gradsim.sliding import RANGES, sliding
from experiments.gradsim.soft import ball, beam
from experiments.panels import figure_at
from experiments.result_cache import Rows
from experiments.table import Setting, Table, row
from vid2phys.types import Array

NAME = "gradsim-landscapes"
SHAPES = ("cone", "torus", "angle")
BODIES = (*(f"mass-{name}" for name in SHAPES), *(f"contact-{name}" for name in RANGES), "beam-moduli", "ball-moduli")
METHODS = ("pixel",)
VERSION = 1  # raise when outcomes are made in another way
_SPAN, _SPAN_OF_TWO = float(np.log(4.0)), float(np.log(2.0))  # either way about the truth
_POINTS, _QUICK = (61, 21), (17, 7)  # of a line, of a side of a square; odd, so that the truth is one of them
_SCENE = 7  # stream of random numbers
_NOTES = [
    "Mean squared error of pixels on a grid evenly spaced in the logarithm, up to a factor of 4 (moduli: 2) about the "
    "truth, which is a point of it. `minima`: points of the grid lower than all their neighbours (1: nothing to get "
    "caught in). `basin`: share of the grid from which steps to the lowest neighbour lead to the truth.",
    "`flatness` of two unknowns: the lowest error on the border of the grid beside the highest there: how much less "
    "one combination shows than another. Near 0 the two can hardly be told apart.",
]


def run(setting: Setting) -> Table:
    """Fill the cells that are asked for and draw all that are filled."""
    cells = [Cell(NAME, body, METHODS[0], 1, setting, VERSION) for body in BODIES]
    quick = "grids of fewer points"
    return tabulated(cells, lambda cell: partial(_outcome, setting, cell.body), _rows, _NOTES, draw, quick)


def _rows(cell: Cell) -> Rows:
    found = cell.outcomes()
    if not found:
        return [row(cell.body, cell.method, "minima", None, "1", reason="not run yet")]
    return [row(cell.body, cell.method, metric, value, "1") for metric, value in described(found[0]).items()]


def _outcome(setting: Setting, body: str, index: int) -> Outcome:
    rng, (kind, _, which) = rng_of(setting, _SCENE, index), body.partition("-")
    if kind == "mass":
        filmed = pushed(rng, which)
    elif kind == "contact":
        filmed = sliding(rng, unknown=(which,))
    else:
        filmed = (beam if kind == "beam" else ball)(rng, "moduli")
    span = _SPAN if len(filmed.truth) == 1 else _SPAN_OF_TWO
    line, side = _QUICK if setting.quick else _POINTS
    axes = [np.linspace(-span, span, line if len(filmed.truth) == 1 else side)] * len(filmed.truth)
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    losses = _losses(filmed, grid.reshape(-1, len(axes)))
    return {
        "names": list(filmed.unknown.names),
        "offsets": axes[0].tolist(),
        "losses": losses.reshape(grid.shape[:-1]).tolist(),
    }


def _losses(filmed: Filmed, offsets: Array) -> Array:
    """Return the errors [G] of the images at offsets [G, U] of the unknowns' logarithms."""
    with torch.no_grad():
        images = (filmed.images(torch.from_numpy(filmed.true_free + offset)) for offset in offsets)
        return np.array([float(filmed.target.error(image)) for image in images])


def described(outcome: dict[str, Any]) -> dict[str, float]:
    """Return how good a landscape is to descend: see the table's notes."""
    losses = np.array(outcome["losses"])
    lowest = _lowest_neighbours(losses)
    minima = lowest == np.arange(losses.size)
    ends = lowest
    for _ in range(losses.size):
        ends = lowest[ends]
    middle = losses.size // 2
    found = {"minima": float(minima.sum()), "basin": float((ends == middle).mean())}
    if losses.ndim == 2:
        border = np.concatenate([losses[0], losses[-1], losses[:, 0], losses[:, -1]])
        found["flatness"] = float(border.min() / border.max())
    return found


def _lowest_neighbours(losses: Array) -> Array:
    """Return for each point of a grid the flat index of the lowest point around it, itself included."""
    padded = np.pad(losses, 1, constant_values=np.inf)
    index = np.pad(np.arange(losses.size).reshape(losses.shape), 1)
    windows = (3,) * losses.ndim
    around = np.lib.stride_tricks.sliding_window_view(padded, windows).reshape(losses.size, -1)
    of = np.lib.stride_tricks.sliding_window_view(index, windows).reshape(losses.size, -1)
    return of[np.arange(losses.size), around.argmin(axis=1)]


def _by_factors(axis: Any, set_scale: Any, most: float) -> None:
    """Make an axis logarithmic, with the truth and both ends named."""
    set_scale("log")
    axis.set_ticks([1.0 / most, 1.0, most], [f"{value:.3g}" for value in (1.0 / most, 1.0, most)])
    axis.set_ticks([], minor=True)


def draw(cells: list[Cell], path: Path) -> None:
    """Draw lines of one unknown, squares of two."""
    with figure_at(path, 13.0, 5.0, dpi=90) as figure:
        axes = figure.subplots(2, 5)
        for axis, cell in zip(axes.flat, cells, strict=True):
            axis.set_title(cell.body, fontsize=9)
            for outcome in cell.outcomes():
                ratio, losses = np.exp(outcome["offsets"]), np.array(outcome["losses"])
                if losses.ndim == 1:
                    axis.plot(ratio, losses, color="tab:blue")
                    axis.set_xlabel(f"{outcome['names'][0]} / truth", fontsize=8)
                else:
                    axis.contourf(ratio, ratio, np.log10(losses.T + 1e-9), levels=20)
                    _by_factors(axis.yaxis, axis.set_yscale, max(ratio))
                    axis.set_xlabel(f"{outcome['names'][0]} / truth", fontsize=8)
                    axis.set_ylabel(f"{outcome['names'][1]} / truth", fontsize=8)
                axis.axvline(1.0, color="tab:red", linewidth=0.8, linestyle="--")
                _by_factors(axis.xaxis, axis.set_xscale, max(ratio))

"""gradSim's timing (Jatavallabhula, Macklin et al., ICLR 2021): steps of physics and images a second, and backward.

A block of stable neo-Hookean tets under its weight, of a hundred to ten thousand tets, on the machine's processor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from experiments.gradsim.pixels import Actor, Shot, Stage, looking_at
from experiments.gradsim.result_cache import Cell, Outcome, tabulated
from experiments.panels import figure_at
from experiments.result_cache import Rows
from experiments.table import Setting, Table
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.tets import box_tets

NAME = "gradsim-timing"
CELLS = {"100": (4, 2, 2), "1000": (11, 4, 4), "5000": (20, 7, 6), "10000": (24, 9, 8)}
BODIES = tuple(CELLS)
METHODS = ("physics", "physics-single", "rendering")
REPEATS, QUICK = 7, 2
VERSION = 2  # raise when outcomes are made in another way
_LENGTH_M, _STEPS, _FRAMES, _SIZE_PX = 0.4, 64, 4, 128
_NOTES = [
    "`forward_hz`: explicit steps of physics, or images of 128 x 128, a second; `backward_hz`: the same of the way "
    "back through them. Means over repeats after a first one that compiles; `std` is theirs.",
    "`physics` computes in double precision, `physics-single` in single; rendering always in double. Blocks of "
    + ", ".join(f"{6 * int(np.prod(cells)):,}" for cells in CELLS.values())
    + " tets.",
    "`load`: how many processes wanted each core in the minute before (Unix's load average over cores). Beside others, "
    "above 1, rates are what was left for these; they say little of the code.",
]


def run(setting: Setting) -> Table:
    """Fill the cells that are asked for and make the table of all that are filled."""
    count = QUICK if setting.quick else REPEATS
    cells = [Cell(NAME, body, method, count, setting, VERSION) for body in BODIES for method in METHODS]
    quick = f"{QUICK} repeats instead of {REPEATS}"
    return tabulated(cells, lambda cell: partial(_outcome, cell), _rows, _NOTES, draw, quick)


def _rows(cell: Cell) -> Rows:
    return [*(cell.row(f"{way}_hz", way, "1/s") for way in ("forward", "backward")), cell.row("load", "load", "1")]


def _outcome(cell: Cell, index: int) -> Outcome:
    """Time one repeat. The first is made twice: it compiles."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    work = _rendering(cell.body) if cell.method == "rendering" else _physics(cell.body, cell.method)
    for _ in range(2 if index == 0 else 1):
        began = time.perf_counter()
        out, inputs = work()
        half = time.perf_counter()
        torch.autograd.grad(out.square().sum(), inputs)
        end = time.perf_counter()
    times = _FRAMES if cell.method == "rendering" else _STEPS
    return {"forward": times / (half - began), "backward": times / (end - half), "load": load}


Work = Callable[[], tuple[torch.Tensor, list[torch.Tensor]]]


def _shot(body: str, method: str = "physics") -> Shot:
    cells = CELLS[body]
    edge = _LENGTH_M / cells[0]
    vertices, tets = box_tets((_LENGTH_M, edge * cells[1], edge * cells[2]), cells)
    system = SoftBody(vertices, tets, elements="linear", pinned=np.flatnonzero(vertices[:, 0] == 0.0))
    camera = looking_at((0.5, -1.1, 0.4), (0.2, 0.07, 0.07), 0.26, _SIZE_PX)
    step_s = 0.5 * system.longest_step_s(system.parameters().vector)
    precision = "single" if method == "physics-single" else "double"
    return Shot(system, Stage((Actor.of(system),), camera), step_s, _STEPS, precision=precision)  # type: ignore[arg-type]


def _physics(body: str, method: str) -> Work:
    shot = _shot(body, method)

    def work() -> tuple[torch.Tensor, list[torch.Tensor]]:
        initial = torch.from_numpy(shot.system.rest_state()).requires_grad_()
        parameters = torch.from_numpy(shot.system.parameters().vector).requires_grad_()
        return shot.states(initial, None, parameters)[-1], [initial, parameters]

    return work


def _rendering(body: str) -> Work:
    shot = _shot(body)

    def work() -> tuple[torch.Tensor, list[torch.Tensor]]:
        states = torch.from_numpy(np.tile(shot.system.rest_state(), (_FRAMES, 1))).requires_grad_()
        return shot.stage.images(states), [states]

    return work


def draw(cells: list[Cell], path: Path) -> None:
    """Draw the rates over the number of tets."""
    with figure_at(path, 6.6, 3.6) as figure:
        axis = figure.subplots()
        for color, method in zip(("tab:blue", "tab:cyan", "tab:orange"), METHODS, strict=True):
            mine = [cell for cell in cells if cell.method == method and cell.outcomes()]
            tets = [6 * int(np.prod(CELLS[cell.body])) for cell in mine]
            for way, style in (("forward", "-"), ("backward", "--")):
                rates = [np.mean([outcome[way] for outcome in cell.outcomes()]) for cell in mine]
                axis.plot(tets, rates, style, color=color, marker="o", markersize=3, label=f"{method}, {way}")
        axis.set(xscale="log", yscale="log", xlabel="tets", ylabel="steps or images a second")
        figure.legend(fontsize=7, loc="outside right upper")
        axis.grid(alpha=0.3)

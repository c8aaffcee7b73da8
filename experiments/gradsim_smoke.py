"""gradSim's smoke (Jatavallabhula, Macklin et al., ICLR 2021): the wind that a puff began in, from its images.

Sought are the velocities of all cells at the beginning. `goal`: those that carry a puff into the shape of one image.
`film`: those behind a film of smoke, of which the truth is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments.gradsim.goals import curves_of
from experiments.gradsim.reach import Loss, descended, drawn_best
from experiments.gradsim.result_cache import Cell, Outcome, rng_of, tabulated
from experiments.panels import figure_at
from experiments.result_cache import Rows
from experiments.table import Setting, Table, row
from vid2phys.engine.rollout import rollout, simulate
from vid2phys.engine.systems.smoke import GRADSIM, Smoke
from vid2phys.types import Array

NAME, BODIES, METHODS = "gradsim-smoke", ("goal", "film"), ("random", "diffphysics", "pixel")
VERSION = 2  # raise when outcomes are made in another way
_SPAN_S, _SIDE_M = 1.0, 1.0  # of the motion, and of the grid
_SMOOTHED = 0.05  # of the side: over which gradients are smoothed
_WIND_M_S, _BEGUN = 0.3, 0.2  # of eddies; the share of random ones that descents begin with
_TRUTH, _GUESS, _DRAWS = 1, 2, 3  # streams of random numbers
_NOTES = [
    "`goal`: velocities at the beginning that carry a square puff into a ring, of which one image is shown, the last "
    "frame's. `film`: velocities behind a film of a puff in eddies, images of all frames; `velocity_error` is the "
    "RMS difference from the true ones where the smoke passes, beside their RMS.",
    "Images are the density itself, on gradSim's periodic grid of 110 x 110 cells, 99 steps, six of Jacobi's "
    "iterations a step. `diffphysics` is given densities and velocities of all frames (of the film; the ring has "
    "none), `pixel` the images; both go the way of L-BFGS as in `gradsim-walker`, from a fifth of random "
    "eddies, for in still air derivatives are one-sided. `random`: the best of as many eddies as a step rolls out.",
]


@dataclass(frozen=True)
class Plume:
    """Smoke that is to look like images, by the velocities it begins with: a `reach.Motion`.

    density: [n, n] at the beginning, rows upwards. seen: [K, n, n] of the last K frames. true: states [S + 1, N] of a
    film, None where there is none.
    """

    steps: int
    density: Array
    seen: Array
    true: Array | None = None

    @property
    def cells(self) -> int:
        """Return n, the cells a side."""
        return len(self.density)

    @cached_property
    def smoke(self) -> Smoke:
        """Return the system."""
        return Smoke(self.cells, GRADSIM["projection"], GRADSIM["iterations"])

    def states(self, unknowns: Tensor) -> Tensor:
        """See `reach.Motion`; unknowns [B, 2 n^2]."""
        count, step_s = len(unknowns), _SPAN_S / self.steps
        puff = torch.from_numpy(self.density.ravel()).expand(count, -1)
        initial = torch.cat([self._velocities(unknowns).flatten(1), puff], dim=1)
        controls = torch.zeros((count, self.steps, 2), dtype=torch.float64)
        parameters = self.smoke.parameters().with_values({"cell_size": _SIDE_M / self.cells}).vector
        if unknowns.requires_grad:
            return rollout(self.smoke, initial, controls, torch.from_numpy(parameters), step_s)
        return torch.from_numpy(simulate(self.smoke, initial.numpy(), controls.numpy(), parameters, step_s))

    def densities(self, states: Tensor) -> Tensor:
        """Return densities [..., n, n] of states [..., N]."""
        return states[..., 2 * self.cells**2 :].unflatten(-1, (self.cells, self.cells))

    def loss(self, method: str) -> Loss:
        """See `reach.Motion`."""
        return self.image_error if method == "pixel" else self._state_error

    def image_error(self, states: Tensor) -> Tensor:
        """Return the mean squared difference of densities from the images."""
        seen = torch.from_numpy(self.seen)
        return (self.densities(states[-len(seen) :]) - seen).square().mean()

    def measured(self, states: Tensor) -> dict[str, float]:
        """See `reach.Motion`."""
        states = states.detach()
        reported = {"image_error": float(self.image_error(states))}
        if self.true is not None:
            true = torch.from_numpy(self.true)
            passed = self.densities(true).amax(dim=0).flatten().repeat(2)
            size, off = (each[0, : len(passed)].square() @ passed for each in (true, states - true))
            reported["velocity_error"] = float((off / size).sqrt())
        return reported

    def drawn(self, rng: np.random.Generator) -> Array:
        """See `reach.Motion`: those of eddies."""
        return np.asarray(np.fft.irfft2(np.fft.rfft2(eddies(self.cells, rng)) * self._roughness).ravel())

    def _velocities(self, unknowns: Tensor) -> Tensor:
        """Return the velocities of all cells [B, 2, n, n] m/s: unknowns, smoothed so that gradients are
        (`gradsim_cloth` says why).
        """
        waves = torch.fft.rfft2(unknowns.reshape(-1, 2, self.cells, self.cells))
        return torch.fft.irfft2(waves / torch.from_numpy(self._roughness), s=(self.cells, self.cells))

    @cached_property
    def _roughness(self) -> Array:
        """Return 1 + l^2 k^2 of all waves of the grid, [n, n // 2 + 1]."""
        up, along = np.fft.fftfreq(self.cells, 1.0 / self.cells), np.fft.rfftfreq(self.cells, 1.0 / self.cells)
        return 1.0 + (2.0 * np.pi * _SMOOTHED) ** 2 * (up[:, None] ** 2 + along**2)

    def _state_error(self, states: Tensor) -> Tensor:
        assert self.true is not None
        return (states - torch.from_numpy(self.true)).square().mean()


def run(setting: Setting) -> Table:
    """Make the table. Quick: a coarser grid and fewer steps."""
    cells = [
        Cell(NAME, body, method, 1 if body == "goal" or setting.quick else 3, setting, VERSION)
        for body in BODIES
        for method in METHODS
        if (body, method) != ("goal", "diffphysics")
    ]
    quick = "a grid of 32 x 32 cells, 40 steps of the smoke and 15 of descent instead of 60"
    return tabulated(cells, _work, _rows, _NOTES, draw, quick, film=_film)


def _film(cells: list[Cell]) -> Callable[[Path], None] | None:
    return partial(film, cells[1]) if cells[1].outcomes() else None


def plume(body: str, rng: np.random.Generator, *, cells: int, steps: int) -> Plume:
    """Return the task: the ring, or a film of a puff in random eddies."""
    up, along = np.meshgrid(*((np.arange(cells) + 0.5) / cells - 0.5,) * 2, indexing="ij")
    if body == "goal":
        square = _soft(0.22 - np.maximum(abs(up), abs(along)), cells)
        ring = _soft(0.07 - abs(np.hypot(up, along) - 0.25), cells)
        return Plume(steps, square, (ring * square.sum() / ring.sum())[None])
    puff = _soft(0.2 - np.hypot(up + 0.05, along - 0.05), cells)
    hidden = Plume(steps, puff, puff[None])
    true = hidden.states(torch.from_numpy(hidden.drawn(rng)[None]))[0]
    return Plume(steps, puff, hidden.densities(true).numpy(), true.numpy())


def eddies(cells: int, rng: np.random.Generator) -> Array:
    """Return the velocities [2, n, n] m/s without divergence: differences of a stream function of a few long waves."""
    corners = 2.0 * np.pi * np.arange(cells) / cells
    stream = np.zeros((cells, cells))
    for up in range(1, 3):
        for along in range(1, 3):
            phase = rng.uniform(0.0, 2.0 * np.pi, 2)
            stream += rng.normal() * np.cos(up * corners + phase[0])[:, None] * np.cos(along * corners + phase[1])
    wind = np.stack([np.roll(stream, -1, axis=0) - stream, stream - np.roll(stream, -1, axis=1)])
    return np.asarray(_WIND_M_S * wind / np.sqrt(np.square(wind).mean()))


def _soft(inside: Array, cells: int) -> Array:
    """Return 1 where `inside` (of the side) is positive, 0 elsewhere, over two cells."""
    return np.asarray(np.clip(0.5 + 0.5 * inside * cells, 0.0, 1.0))


def _plume(cell: Cell, index: int) -> Plume:
    size = {"cells": 32, "steps": 40} if cell.setting.quick else {"cells": GRADSIM["cells"], "steps": 99}
    return plume(cell.body, rng_of(cell.setting, _TRUTH, index), **size)


def _work(cell: Cell) -> Callable[[int], Outcome]:
    def outcome(index: int) -> Outcome:
        task, steps = _plume(cell, index), 15 if cell.setting.quick else 60
        start = _BEGUN * task.drawn(rng_of(cell.setting, _GUESS, index))
        if cell.method == "random":
            got = drawn_best(task, start, steps, rng_of(cell.setting, _DRAWS, index))
        else:
            got = descended(task, cell.method, start, steps)
        last = {name: value for name, value in got.curve[-1].items() if name != "loss"}
        return {**last, "start_error": got.curve[0]["image_error"], "seconds": round(got.seconds, 1),
                "curve": got.curve, "ended": got.ended, "unknowns": np.round(got.unknowns, 5).tolist()}  # fmt: skip

    return outcome


def _rows(cell: Cell) -> Rows:
    names = ("image_error", "start_error", *(("velocity_error",) if cell.body == "film" else ()))
    rows = [cell.row(name, name, "1") for name in names]
    rows.append(cell.row("wall_s", "seconds", "s"))
    if cell.outcomes():
        for step, values in enumerate(curves_of(cell.outcomes(), "image_error").T):
            rows.append(row(cell.body, cell.method, "image_error", float(values.mean()), "1", epoch=step))
    return rows


def draw(cells: list[Cell], path: Path) -> None:
    """Draw the curves of each body, and its last images: the beginning, what is to be seen, and what each method ends
    at.
    """
    with figure_at(path, 10.0, 3.8, dpi=90) as figure:
        axes = figure.subplots(2, 6, width_ratios=[1.6, 1, 1, 1, 1, 1])
        for (curves, *images), body in zip(axes, BODIES, strict=True):
            mine = [cell for cell in cells if cell.body == body]
            task = _plume(mine[0], 0)
            shown = {"beginning": task.density, "asked for": task.seen[-1]}
            for cell in (each for each in mine if each.outcomes()):
                curves.semilogy(curves_of(cell.outcomes(), "image_error").mean(axis=0), label=cell.method)
                states = task.states(torch.tensor([cell.outcomes()[0]["unknowns"]], dtype=torch.float64))
                shown[cell.method] = task.densities(states)[0, -1].numpy()
            curves.set_title(f"{body}: image error", fontsize=8)
            curves.legend(fontsize=6)
            curves.grid(alpha=0.3)
            for axis in images:
                axis.set_axis_off()
            for axis, (title, density) in zip(images, shown.items(), strict=False):
                axis.imshow(density, origin="lower", cmap="gray", vmin=0.0, vmax=1.0)
                axis.set_title(title, fontsize=8)


def film(cell: Cell, path: Path) -> None:
    """Return the film of the motion that `pixel` found for the ring."""
    from vid2phys.io.video import VideoWriter

    task = _plume(cell, 0)
    states = task.states(torch.tensor([cell.outcomes()[0]["unknowns"]], dtype=torch.float64))[0]
    grey = np.round(255.0 * task.densities(states).clamp(0.0, 1.0).numpy()).astype(np.uint8)[:, ::-1]
    factor = max(1, round(220 / task.cells))
    frames = np.repeat(grey.repeat(factor, axis=1).repeat(factor, axis=2)[..., None], 3, axis=-1)
    with VideoWriter(path, frames.shape[2], frames.shape[1], 25, crf=28) as video:
        for frame in [*frames, *frames[-1:].repeat(15, axis=0)]:
            video.write(np.ascontiguousarray(frame))

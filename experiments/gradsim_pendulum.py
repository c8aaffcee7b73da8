"""gradSim's pendulums (Jatavallabhula, Macklin et al., ICLR 2021): lengths, damping, gravity, starts from images."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.gradsim.descent import descend
from experiments.gradsim.discs import Swing
from experiments.gradsim.newton import SIGMA, ImageJudge
from experiments.gradsim.result_cache import Cell, Outcome, rng_of, tabulated
from experiments.panels import figure_at
from experiments.result_cache import Rows
from experiments.table import Setting, Table
from vid2phys.engine.systems.double_pendulum import DoublePendulum
from vid2phys.engine.systems.pendulum import Pendulum
from vid2phys.solvers import arrow, rollout_fit
from vid2phys.types import Array

NAME, BODIES = "gradsim-pendulum", ("pendulum", "double_pendulum")
METHODS = ("random", "diffphysics", "pixel", "ours")
COUNT, QUICK = 10, 2
FRAMES, FRAME_S = 50, 0.1  # the paper's code's
VERSION = 2  # raise when outcomes are made in another way
_TRUTH, _GUESS, _NOISE = 1, 2, 3  # streams of random numbers
_PARTS = {"pendulum": (8, 20, 50), "double_pendulum": (6, 12, 20)}  # frames that are fitted one after the other
_ITERATIONS, _RATE = 60, 0.05
_STARTS = 64  # of ours
_AWAY, _TURNED, _SPUN = np.log(1.3), 0.2, 0.3  # how far starts are off: a factor, rad, rad/s
_NOTES = [
    "Means over motions. `error`: the mean over a motion's unknowns, of a parameter relative to its truth, of an angle "
    "or a rate in rad or rad/s. Sought of a pendulum: length, gravity, damping, first angle and rate; of a double one: "
    "both lengths, the second mass beside the first, both dampings and first angles, from 3/7 and 3/4 of half a turn.",
    f"Images are flat: a bright disc a mass, 40 x 40, {FRAMES} frames {FRAME_S:g} s apart of a pendulum; of a double "
    f"one the first {_PARTS['double_pendulum'][-1]}: beyond, its motion is chaotic. Starts are off by up to a factor "
    f"of 1.3, {_TURNED:g} rad and {_SPUN:g} rad/s. All fit the first frames first, then more.",
    "`diffphysics` is given where the masses are in all frames, `pixel` the images (both Adam); `ours` the same "
    f"images, by Levenberg and Marquardt from the best of {_STARTS} starts. `error_noisy`: ours with noise of "
    f"{SIGMA:g} of full light, for which its 95 % intervals are made; `interval_coverage`: the share of them that hold "
    "the truth.",
]


def run(setting: Setting) -> Table:
    """Fill what this sitting is for."""
    count = QUICK if setting.quick else COUNT
    cells = [Cell(NAME, body, method, count, setting, VERSION) for body in BODIES for method in METHODS]
    return tabulated(cells, _work, _rows, _NOTES, draw, f"{QUICK} motions instead of {COUNT}")


def swing(body: str, rng: np.random.Generator) -> Swing:
    """Return a motion whose unknowns are at their truth."""
    if body == "pendulum":
        system = Pendulum()
        values = {"length": rng.uniform(0.8, 1.2), "gravity": rng.uniform(8.0, 11.0), "damping": rng.uniform(0.3, 0.7)}
        start, moving, span = np.array([rng.uniform(0.5, 1.3), rng.uniform(-1.0, 1.0)]), (0, 1), 3.2
        parameters = system.parameters().with_free(("length", "gravity", "damping"))
        return Swing(system, parameters.with_values(values), start, moving, FRAMES, FRAME_S, span)
    double = DoublePendulum()
    free = ("length_1", "length_2", "mass_2", "damping_1", "damping_2")
    values = {name: rng.uniform(0.8, 1.2) for name in free[:3]} | {name: rng.uniform(0.1, 0.4) for name in free[3:]}
    parameters = double.parameters().with_free(free).with_values(values)
    start = np.array([3.0 * np.pi / 7.0, 3.0 * np.pi / 4.0, 0.0, 0.0])
    return Swing(double, parameters, start, (0, 1), _PARTS[body][-1], FRAME_S, 5.6)


def guessed(truth: Swing, rng: np.random.Generator, count: int) -> Array:
    """Return the unknowns [count, U] that are off."""
    start = [_TURNED if truth.system.state_names[i].startswith("angle") else _SPUN for i in truth.moving]
    reach = np.array([*(_AWAY * truth.parameters.free_units), *start])
    low, high = truth.bounds()
    return np.clip(truth.unknowns() + rng.uniform(-1.0, 1.0, (count, len(reach))) * reach, low, high)


def _work(cell: Cell) -> Callable[[int], Outcome]:
    def outcome(index: int) -> Outcome:
        body = BODIES.index(cell.body)
        truth = swing(cell.body, rng_of(cell.setting, _TRUTH, body, index))
        starts = guessed(truth, rng_of(cell.setting, _GUESS, body, index), _STARTS)
        began, reported = time.monotonic(), dict[str, Any]()
        at = starts[0]
        if cell.method == "ours":
            images = _images(truth)
            found = fitted(truth, starts, images)
            noise = SIGMA * rng_of(cell.setting, _NOISE, body, index).normal(size=tuple(images.shape))
            noisy = fitted(truth, starts, images + torch.from_numpy(noise))
            holds = np.abs(noisy.values - truth.unknowns()) <= _widths(noisy.information)
            at, reported = found.values, {"noisy": _error(truth, noisy.values), "holds": float(holds.mean())}
        elif cell.method != "random":
            at = descended(truth, at, places=cell.method == "diffphysics")
        values = dict(zip(truth.names, np.round(truth.values(at), 6).tolist(), strict=True))
        off = np.abs(_off(truth, at)).tolist()
        return {
            "error": _error(truth, at),
            "start_error": _error(truth, starts[0]),
            "seconds": round(time.monotonic() - began, 1),
            "values": values,
            "off": dict(zip(truth.names, off, strict=True)),
            **reported,
        }

    return outcome


def _widths(information: Array) -> Array:
    """Return half of the 95 % intervals [U]; infinite for what images do not tell, as of an unknown that is at its
    bound.
    """
    null = arrow.parameter_covariance(information, reference=np.diagonal(information))
    untold = np.abs(null.directions).max(axis=0, initial=0.0) > 0.0
    return np.where(untold, np.inf, 1.96 * np.sqrt(np.diag(null.covariance)))


def descended(
    truth: Swing, start: Array, *, places: bool, parts: tuple[int, ...] = (), iterations: int = _ITERATIONS
) -> Array:
    """Descend as gradSim does: Adam on the error of images, or of the masses' places, of the first frames and then
    more.
    """
    at, bounds = start, truth.bounds()
    for frames in parts or _PARTS[truth.system.name]:
        part = truth.shortened(frames)
        aim = torch.from_numpy(part.unknowns()[None])
        with torch.no_grad():
            target = part.centres(aim) if places else part.drawn(part.centres(aim))

        def loss(unknowns: Tensor, part: Swing = part, target: Tensor = target) -> Tensor:
            centres = part.centres(unknowns[None])
            return ((centres if places else part.drawn(centres)) - target).square().mean()

        at = descend(loss, at, rate=_RATE, iterations=iterations, bounds=bounds).values
    return at


def fitted(truth: Swing, starts: Array, images: Tensor) -> rollout_fit.RolloutFit:
    """Fit by our method: from the best starts on the first frames, and on from there with more."""
    units, bounds = np.array([*truth.parameters.free_units, *np.ones(len(truth.moving))]), truth.bounds()
    for frames in _PARTS[truth.system.name]:
        part = truth.shortened(frames)

        def roll(unknowns: Array, part: Swing = part) -> Array:
            return part.centres(torch.from_numpy(np.clip(unknowns, *bounds))).numpy()

        def differences(centres_m: Tensor, part: Swing = part, seen: Tensor = images[:frames]) -> Tensor:
            return (part.drawn(centres_m) - seen).flatten()

        found = rollout_fit.solve(roll, ImageJudge(differences), starts, units, limits=bounds)
        starts = found.values[None]
    return found


def _images(truth: Swing) -> Tensor:
    return truth.drawn(truth.centres(torch.from_numpy(truth.unknowns()[None])))[0]


def _off(truth: Swing, unknowns: Array) -> Array:
    """Return the errors of parameters relative to the truth, of angles and rates as they are."""
    values, true = truth.values(unknowns), truth.values(truth.unknowns())
    count = len(truth.parameters.free_names)
    return (values - true) / np.concatenate([true[:count], np.ones(len(true) - count)])


def _error(truth: Swing, unknowns: Array) -> float:
    return float(np.abs(_off(truth, unknowns)).mean())


def _rows(cell: Cell) -> Rows:
    rows = [cell.row("error", "error", "1"), cell.row("start_error", "start_error", "1")]
    if cell.method == "ours":
        rows += [cell.row("error_noisy", "noisy", "1"), cell.row("interval_coverage", "holds", "1")]
    return [*rows, cell.row("seconds", "seconds", "s")]


def draw(cells: list[Cell], path: Path) -> None:
    """Draw the errors of each unknown by method, then a few frames of the first motion of each body laid over each
    other.
    """
    with figure_at(path, 8.5, 5.2, dpi=90) as figure:
        axes = figure.subplots(2, 2, width_ratios=[2.4, 1.0])
        for (errors, image), body in zip(axes, BODIES, strict=True):
            for cell in (each for each in cells if each.body == body):
                found = cell.outcomes()
                if found:
                    means = {name: np.mean([each["off"][name] for each in found]) for name in found[0]["off"]}
                    errors.plot(list(means.values()), range(len(means)), "o-", label=cell.method)
                    errors.set_yticks(range(len(means)), list(means), fontsize=7)
            errors.set(xscale="log", title=f"{body}: mean error of each unknown")
            errors.legend(fontsize=7)
            errors.grid(alpha=0.3)
            truth = replace(swing(body, rng_of(cells[0].setting, _TRUTH, BODIES.index(body), 0)), size_px=120)
            image.imshow(_images(truth)[:20:2].max(dim=0).values.numpy(), cmap="gray")
            image.set_axis_off()

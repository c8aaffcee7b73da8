"""gradSim's table 1 (Jatavallabhula, Macklin et al., ICLR 2021): the mass of rigid bodies from videos.

Fourteen shapes, densities of 2 to 12, a known impulse, 60 frames; 800 objects to learn from and 200 to be judged on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.gradsim.by_command import mass_by_command
from experiments.gradsim.convlstm import ConvLSTM
from experiments.gradsim.efficientnet import EfficientNetOverFrames
from experiments.gradsim.filmed import Filmed, outcome_of, outcome_of_descent
from experiments.gradsim.learning import Recipe, learnt
from experiments.gradsim.newton import SIGMA
from experiments.gradsim.plots import scattered
from experiments.gradsim.pushed import DENSITIES, mass_of, name_of, pushed, volume_of
from experiments.gradsim.reinforce import by_score
from experiments.gradsim.result_cache import Cell, Outcome, rng_of, tabulated
from experiments.identification import COMMAND, KNOWN_START
from experiments.methods import FLAT
from experiments.result_cache import Rows
from experiments.table import Setting, Table

NAME = "gradsim-table1"
BODIES = ("rigid",)
LEARNT = ("convlstm", "efficientnet")
METHODS = ("average", "random", *LEARNT, "reinforce", "diffphysics", "pixel", KNOWN_START, COMMAND)
TRAINING, TEST, QUICK = 800, 200, 6
FILMED, QUICK_FILMED = 14, 1  # objects of the command: one of each shape
PAPER_PIXEL = 9.0e-5  # relative, gradSim's table 1
PAPER = {"convlstm": 0.0094, "efficientnet": 0.0094, "reinforce": 0.3668, "pixel": PAPER_PIXEL}
VERSION, _DESCENTS = 1, 3  # raise when outcomes are made in another way; of methods that descend gradients
_TRAINED, _TESTED, _NOISE, _GUESS, _SAMPLED, _FILMED = 1, 2, 3, 4, 5, 6  # streams of random numbers
_RATE, _ITERATIONS = 0.15, 40
_MOVES = np.log(2.0) * np.array([[1.0], [-1.0], [0.5], [-0.5]])  # of descents that are caught on their way
_CANDIDATES = 17  # starts of ours, evenly between the bounds
_SAMPLES, _DEVIATIONS, _STEPS, _QUICK_STEPS = 8, (0.2, 2e-3), 80, 20  # of reinforce
_SETTLED = 0.95  # share of objects
# objects, every so manieth of the frames, epochs: about an hour each on an idle core (1.2 and 9.5 ms an image)
_TRAININGS = {"convlstm": (TRAINING, 2, 100), "efficientnet": (TRAINING, 6, 40)}
_QUICK_TRAININGS = {"convlstm": (64, 4, 8), "efficientnet": (64, 12, 5)}
_NOTES = [
    f"Errors of the mass relative to the true one, means over objects; densities {DENSITIES[0]:g} to {DENSITIES[1]:g} "
    "kg/m^3 in shapes of 0.2 m radius are 5 to 390 g. Motions and shapes are ours: the paper publishes neither its "
    "impulses nor its meshes.",
    "No weight acts: gravity moves all masses alike, so that a mass shows by the known impulse alone.",
    "Methods that descend begin at a density drawn evenly from the whole range. `diffphysics` is given the true places "
    "of all vertices in space, `pixel` the images (64 x 64, 16 of the 60 frames); both by quasi-Newton steps "
    "(L-BFGS-B), and from two densities about the best so far and two about the first where they are caught on their "
    "way, so that more than rounding is left (`starts`: how often they began). `ours-known-start` has the same images "
    f"and goes by Levenberg and Marquardt from the best of {_CANDIDATES} densities. `average` says the mean mass of "
    f"{TRAINING} other objects, `random` that of a density drawn evenly.",
    "`convlstm` and `efficientnet` are trained here, from random weights, on exact renders of those other objects, one "
    "in eleven of them held out; `convlstm` sees every second frame, `efficientnet` every sixth (in quick runs every "
    "fourth, every twelfth). Both are given the way of the known impulse with the images. The paper's ConvLSTM row, "
    "beside both, is of the second kind of network: EfficientNet-B0 on every frame, maps of 4 x 4 x 32, four linear "
    "layers. 'Not converged': the error on held-out objects was not flat at the end, or too few images were seen.",
    "`reinforce`: the score function's gradient of the same error of images, through MuJoCo, as a black box; "
    f"{_SAMPLES} samples a step, whose deviation goes from {_DEVIATIONS[0]:g} to {_DEVIATIONS[1]:g} of the density in "
    f"{_STEPS} steps ({_QUICK_STEPS} in a quick run). These settings are ours, not the paper's. `settled`: "
    f"share of objects whose last quarter of steps moved the density by at most {FLAT:.0%}; 'not converged' where that "
    f"is less than {_SETTLED:.0%}.",
    "`images_seen`: by the network in its training, or for one estimate.",
    f"`ours` is the user's command, `identify --actions push.csv --fit mass`, on the first {FILMED} objects. It has a "
    "clip of 81 frames of 320 px with noise, compressed, which shows the body at rest before the push. Nobody tells it "
    "place, orientation or velocity, which all other methods know. `sure`: share of objects with the status "
    "`converged`; its errors are of all objects that it found, widths of intervals of those whose mass is determined.",
    f"`mass_error_noisy`: `ours-known-start` from images with noise of {SIGMA:g} of full light, for which its 95 % "
    "intervals are made; `interval_coverage` is the share of them that hold the truth, `interval_width` their mean "
    "width, relative.",
    "`seconds`: of one estimate, by the clock of a machine that was not idle; `training_seconds` likewise.",
]


def run(setting: Setting) -> Table:
    """Fill the cells that are asked for and make the table of all that are filled."""
    cells = [Cell(NAME, BODIES[0], each, _count(each, setting), setting, _version(each, setting)) for each in METHODS]
    quick = f"{QUICK} objects instead of {TEST}, networks hardly trained"
    return tabulated(cells, lambda cell: _work(setting, cell.method), _rows, _NOTES, draw, quick)


def recipe_of(method: str, setting: Setting) -> Recipe:
    """Return how a network is trained."""
    network = EfficientNetOverFrames if method == "efficientnet" else ConvLSTM
    objects, every, epochs = (_QUICK_TRAININGS if setting.quick else _TRAININGS)[method]
    return Recipe(method, network, objects, every, epochs, seed=setting.seed)


def _count(method: str, setting: Setting) -> int:
    """Return the number of objects that a method is tried on."""
    if method == COMMAND:
        return QUICK_FILMED if setting.quick else FILMED
    return QUICK if setting.quick else TEST


def _version(method: str, setting: Setting) -> int | str:
    if method in LEARNT:
        return f"{VERSION}-{recipe_of(method, setting).digest}"
    return _DESCENTS if method in ("diffphysics", "pixel") else VERSION


def _work(setting: Setting, method: str) -> Callable[[int], Outcome]:
    """Return the function from the number of an object to its outcome; networks are trained first."""
    if method not in LEARNT:
        return partial(_outcome, setting, method)
    recipe = recipe_of(method, setting)
    network = learnt(recipe, setting, _TRAINED, setting.work / NAME)
    return lambda index: network.outcome(pushed(rng_of(setting, _TESTED, index), name_of(index), every=recipe.every))


def _rows(cell: Cell) -> Rows:
    more: dict[str, Any] = {"paper": PAPER[cell.method]} if cell.method in PAPER else {}
    outcomes = cell.outcomes()
    if outcomes and cell.method in LEARNT:
        trained = outcomes[0]
        more |= {key: trained[key] for key in ("network", "images_seen", "converged", "recipe", "weights_sha256")}
        more["seconds"] = trained["training_seconds"]  # as in rows of all trained methods
    if outcomes and cell.method == "reinforce":
        more["converged"] = float(np.mean([outcome["settled"] for outcome in outcomes])) >= _SETTLED
    rows = [cell.row("mass_error", "error_density", "1", **more)]
    return rows + [cell.row(*column) for column in _columns(cell.method)]


def _columns(method: str) -> list[tuple[str, str, str]]:
    """Return the metric, name in outcomes and unit of all but the error."""
    seconds, seen = ("seconds", "seconds", "s"), ("images_seen", "images_seen", "1")
    if method in ("average", "random"):
        return []
    if method in LEARNT:
        return [seconds, seen, ("training_seconds", "training_seconds", "s")]
    if method == COMMAND:
        intervals = ("interval_coverage", "holds_density", "1"), ("interval_width", "width_density", "1")
        return [seconds, *intervals, ("sure", "sure", "1")]
    columns = [("start_error", "start_error_density", "1"), seconds]
    if method in ("diffphysics", "pixel"):
        return [*columns, ("starts", "starts", "1")]
    if method == "reinforce":
        return [*columns, seen, ("settled", "settled", "1")]
    noisy = (
        ("mass_error_noisy", "noisy_error_density"),
        ("interval_coverage", "holds_density"),
        ("interval_width", "width_density"),
    )
    return columns + [(metric, key, "1") for metric, key in noisy]


def _outcome(setting: Setting, method: str, index: int) -> Outcome:
    if method == COMMAND:
        rng, noise = rng_of(setting, _TESTED, index), rng_of(setting, _FILMED, index)
        return mass_by_command(rng, noise, name_of(index))
    body = pushed(rng_of(setting, _TESTED, index), name_of(index))
    if method in ("average", "random"):
        density = float(rng_of(setting, _GUESS, index).uniform(*DENSITIES))
        if method == "average":
            masses = [mass_of(rng_of(setting, _TRAINED, i), name_of(i)) for i in range(TRAINING)]
            density = float(np.mean(masses)) / volume_of(name_of(index))
        return {"error_density": abs(density / body.truth[0] - 1.0)}
    if method == "reinforce":
        return _by_score(setting, body, index)
    low, high = (float(end[0]) for end in body.bounds)
    starts = np.linspace(low, high, _CANDIDATES)[:, None]
    how = {"rate": _RATE, "iterations": _ITERATIONS, "optimizer": "lbfgs", "moves": _MOVES}
    return outcome_of(body, method, rng_of(setting, _NOISE, index), starts, **how)


def _by_score(setting: Setting, body: Filmed, index: int) -> Outcome:
    iterations = _QUICK_STEPS if setting.quick else _STEPS
    rng = rng_of(setting, _SAMPLED, index)
    descended = by_score(body, rng, samples=_SAMPLES, iterations=iterations, rate=_RATE, deviations=_DEVIATIONS)
    last = descended.path[-(iterations // 4) :]
    images = len(descended.losses) * _SAMPLES * len(body.target.images)
    converged = bool(np.ptp(last) <= np.log1p(FLAT))  # logarithms
    return outcome_of_descent(body, descended) | {"images_seen": images, "settled": float(converged)}


def draw(cells: list[Cell], path: Path) -> None:
    """Draw the error of every object, by method."""
    errors = {
        cell.method: [each["error_density"] for each in cell.outcomes() if "error_density" in each] for cell in cells
    }
    scattered(path, {"mass": errors}, {"mass": PAPER_PIXEL})

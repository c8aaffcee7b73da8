"""RISP's table 1 (Ma, Du et al., ICLR 2022): states from single images with held-out appearances.

Frames have four rendering configurations from another renderer set-up (`test_renderer`), 200 each. `state_error` is the
mean absolute error over the paper's state vector (`rigid`, `articulated`); beside it are mm, degrees and pixels. All
networks learn from the same renders and get the same views. Limits: the place of a body is known up to small errors.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.bodies import Entry, entries
from experiments.body_adapter import BodyAdapter, Estimates, Frames, Score
from experiments.convergence import NETWORK_OF, PRESET_IMAGES, with_presets
from experiments.identification import COMMAND
from experiments.image_alignment import VERSION, judged_frames
from experiments.methods import QUICK_RENDERS, RATES, RENDERS, Recipe, effort, load_model, train, with_learning_rate
from experiments.panels import figure_at
from experiments.result_cache import Cell, Rows, filled_by_body, missing_row, model_of_command, usable_model
from experiments.state_by_command import CommandEstimator
from experiments.table import Setting, Table, row
from experiments.test_renderer import CONFIGURATIONS

NAME = "risp-table1"
KNOWN_PLACE = "ours-known-place"
LEARN_NOTHING = ("average", "random")
METHODS = (*LEARN_NOTHING, "paper-no-grad", "paper", "ours-no-grad", KNOWN_PLACE, COMMAND)
COMMAND_VERSION = 1  # raise when its rows are made in another way
PAPER_NETWORK, PAPER_VIEW_PX, PAPER_EPOCHS = "state@w32", 64, 16
_LOSS = "error-gradient"
_PRIOR = 20_000  # states that `average` averages
_GUESS = 4  # stream of random numbers
_NOTES = [
    "`state_error`: mean absolute error over the paper's state vector: of rigid bodies position / half its range and "
    "sines and cosines of roll, pitch and yaw (`..._up_to_symmetry`: against the nearest of the body's equivalent "
    "poses), of the hand thirteen joint angles [rad], of the rod ten heights / half their range.",
    "The paper's numbers are of its own images and its own ranges: they are given to be compared by ratio.",
    "`average` and `random` know nothing of the image. All others are shown the same views: of rigid bodies where a "
    "tracker would look, on the true place with errors of 3 % of the view sideways and 6 % in size; of hand and rod "
    "the known camera's view of the known base.",
    "`paper` is RISP's network, losses and schedule on our renders at a stated smaller size, with its learning rate or "
    "a tenth of it, whichever does better on held-out looks; its loss takes the nearest of equivalent poses, as ours. "
    "It says what it sees in the view: camera and base are not told to it.",
    "A place outside its view, or 30 % off the distance it was looked for at, is put there, whatever the method.",
    "A method counts as converged when it has seen 100,000 images and the last quarter of its validation curve "
    "(`curve` in the rows) brings at most 3 % more. RISP's network must also have seen the images of its own preset "
    f"({PRESET_IMAGES:,}), since a rate that falls to zero flattens any curve.",
    "`state_error_hidden`: of joints that the frame does not show: both keypoints of the link that the joint moves lie "
    "more than 1.5 finger radii behind the surface of another link, at the true configuration.",
    f"`{COMMAND}` is the target of `vid2phys control --target` (`experiments/state_by_command.py`), which is given the "
    "image, the camera and, of rigid bodies, a box where the others look (`--hint-box`). It takes the model that it "
    "finds by the mesh: of the textured cube that of the plain one. Of poses that look the same it takes the one that "
    "is least rotated. `found_share` in the rows: of images in which it finds the body; in the others the body counts "
    "as not rotated.",
    f"`{KNOWN_PLACE}` and `ours-no-grad` detect keypoints, then edges (contour and creases): of hand and rod from the "
    "configuration that was read, of rigid bodies of at least 28 px from the pose that was read and from those it may "
    "be mistaken for, of which the one is taken that explains most edges; then the symmetry element by front map and "
    "texture. The pose of a body with a texture comes from shape and texture together; a rod's configuration from its "
    "shading, too.",
    f"`{KNOWN_PLACE}` has the model that `vid2phys train-risp` makes by default, where there is one (its `recipe` is "
    "that command), else trained here by the same recipe.",
]


def recipes(quick: bool) -> dict[str, Recipe]:
    """Return how each network is trained."""
    samples, ours, paper, network = RENDERS, 12, PAPER_EPOCHS, PAPER_NETWORK
    if quick:
        samples, ours, paper, network = QUICK_RENDERS, 3, 3, "state@w16"

    def papers(gamma: float) -> Recipe:
        rate = RATES[0] if quick else 0.0  # nothing to choose by
        return Recipe(network, _LOSS, gamma, samples, paper, view_size=PAPER_VIEW_PX, learning_rate=rate)

    return {
        "paper-no-grad": papers(0.0),
        "paper": papers(1.0),
        "ours-no-grad": Recipe("keypoint", _LOSS, 0.0, samples, ours),
        "ours": Recipe("keypoint", _LOSS, 1.0, samples, ours),
    }


def run(setting: Setting) -> Table:
    """Fill the cells that are asked for and make the table of all that are filled; the others are named."""
    table = filled_by_body(
        _cells(setting),
        lambda cell: _JudgedBody.of(cell, setting),
        lambda judged, cell: judged.rows(cell),
        _NOTES,
        lambda cell, reason: missing_row(cell, "state_error", reason),
        draw,
    )
    return replace(table, rows=with_presets(table.rows))


def _cells(setting: Setting) -> list[Cell]:
    learning = recipes(setting.quick)
    return [
        Cell(
            *(NAME, entry, method, _recipe(method, learning), setting),
            model=_model(entry, method, setting),
            version=COMMAND_VERSION if method == COMMAND else VERSION,
            reads="images",
        )
        for entry in entries()
        for method in METHODS
        if method in (*LEARN_NOTHING, COMMAND) or _recipe(method, learning) is not None
    ]


def _recipe(method: str, learning: dict[str, Recipe]) -> Recipe | None:
    """Return how the method's network is trained here; None for the command, which takes models as they are."""
    return None if method == COMMAND else learning.get(NETWORK_OF.get(method, method))


def _model(entry: Entry, method: str, setting: Setting) -> Path | None:
    """Return the folder of the model that a method takes, if any."""
    if method == COMMAND:
        return model_of_command(entry)
    return usable_model(entry, setting) if method == KNOWN_PLACE else None


class _JudgedBody:
    """A body with the frames that it is judged on."""

    def __init__(self, adapter: BodyAdapter, frames: Frames, setting: Setting) -> None:
        self.adapter, self.frames, self.setting = adapter, frames, setting

    @staticmethod
    def of(cell: Cell, setting: Setting) -> _JudgedBody:
        """Render what is missing."""
        adapter = cell.entry.make(setting.work / cell.entry.name)
        return _JudgedBody(adapter, judged_frames(adapter, setting), setting)

    def rows(self, cell: Cell) -> Rows:
        """Return all rows of a method."""
        estimates, reported = self._estimates(cell)
        scores = self.adapter.scores(estimates, self.frames)
        paper = self.adapter.paper if cell.method == "paper" else None
        rows = []
        for index, (metric, score) in enumerate(scores.items()):
            more = (
                {"paper": paper, **reported}
                if index == 0
                else {k: v for k, v in reported.items() if k not in ("curve", "rates_tried")}
            )
            rows.append(_row(cell, metric, score, **more))
        first, judged = next(iter(scores.items()))
        for index, configuration in enumerate(CONFIGURATIONS):
            here = Score(judged.values[self.frames.configuration == index], judged.unit)
            rows.append(_row(cell, first, here, configuration=configuration.name))
        return rows

    def _by_command(self, cell: Cell) -> tuple[Estimates, dict[str, Any]]:
        """Return what the user's command estimates, the share of images in which it finds the body, and whether its
        model was trained to its end.
        """
        estimator = CommandEstimator.of(self.adapter, cell.model)
        estimates = estimator.estimate(self.frames, self.setting.seed)
        reported: dict[str, Any] = {"found_share": round(float(np.mean(estimator.found)), 4)}
        if cell.model is not None:
            _, network = load_model(self.adapter, cell.model, recipes(self.setting.quick)["ours"])
            reported |= {"network_converged": network["converged"]}
        return estimates, reported

    def _estimates(self, cell: Cell) -> tuple[Estimates, dict[str, Any]]:
        """Return a method's estimates in the frames, and what its rows report of the network."""
        adapter, frames, seed = self.adapter, self.frames, self.setting.seed
        if cell.method == COMMAND:
            return self._by_command(cell)
        if cell.recipe is None:
            rng = np.random.default_rng([seed, _GUESS, int(cell.method == "average")])
            nothing: dict[str, Any] = {"images_seen": 0, "seconds": 0.0}
            if cell.method == "average":
                mean = adapter.vectors(adapter.sample(rng, _PRIOR)).mean(axis=0)
                return Estimates(np.tile(mean, (len(frames.pieces), 1))), nothing
            guess = adapter.sample(rng, len(frames.pieces))
            return Estimates(adapter.vectors(guess), guess), nothing
        if cell.model is not None:
            model, reported = load_model(adapter, cell.model, cell.recipe)
            return adapter.estimate_by_keypoints(model, frames, seed), reported
        recipe, rate = with_learning_rate(adapter, cell.recipe, self.setting)
        learnt = train(adapter, recipe, self.setting)
        reported = {**effort(adapter, learnt), **rate, "curve": [round(e["state_error"], 5) for e in learnt.history]}
        if cell.recipe.is_paper:
            return adapter.estimate_by_state(learnt, frames, seed), reported
        return adapter.estimate_by_keypoints(adapter.model(learnt), frames, seed), reported


def _row(cell: Cell, metric: str, score: Score, **more: Any) -> dict[str, Any]:
    values = score.values[np.isfinite(score.values)]
    if not len(values):
        return row(cell.entry.name, cell.method, metric, None, score.unit, n=0, **more)
    value = float(np.median(values) if score.median else np.mean(values))
    spread = {"std": round(float(np.std(values)), 5), "n": len(values)}
    return row(cell.entry.name, cell.method, metric, value, score.unit, **spread, **more)


def draw(rows: Rows, path: Path) -> None:
    """Draw the state errors as bars, one panel a body, the paper's own as a line."""
    systems = list(dict.fromkeys(row["system"] for row in rows))
    with figure_at(path, 2.6 * len(systems), 3.4, dpi=120) as figure:
        axes = figure.subplots(1, len(systems))
        for axis, system in zip(np.atleast_1d(axes), systems, strict=True):
            first = {
                row["method"]: row
                for row in reversed(rows)
                if row["system"] == system and row["metric"].startswith("state_error") and "configuration" not in row
            }
            values = [first[method]["value"] if method in first else None for method in METHODS]
            shown = [(i, value) for i, value in enumerate(values) if value is not None]
            axis.bar([i for i, _ in shown], [value for _, value in shown], color="tab:blue")
            paper = first.get("paper", {}).get("paper")
            if paper is not None:
                axis.axhline(paper, color="tab:red", linestyle="--", linewidth=1.0, label="the paper's own")
                axis.legend(fontsize=7)
            axis.set(title=system, yscale="log", xticks=range(len(METHODS)))
            axis.set_xticklabels(METHODS, rotation=75, fontsize=8)
            axis.grid(axis="y", alpha=0.3)
        np.atleast_1d(axes)[0].set_ylabel("state error on unseen looks")

"""Measure what each kind of randomisation is worth: keypoint networks are trained without it, one kind at a time.

All networks are trained alike and briefly, without rendering gradients, on renders in the same poses. They are judged
on held-out renders with all of the randomisation, and on the frames of `risp-table1`, which another renderer set-up
made. There the network alone is judged, since edges mend wrong detections.

Limits: short trainings; one seed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from experiments.bodies import entries
from experiments.body_adapter import BodyAdapter, Frames, Score
from experiments.image_alignment import judged_frames
from experiments.methods import QUICK_RENDERS, Recipe, effort, train
from experiments.panels import figure_at
from experiments.result_cache import Cell, Rows, filled_by_body, missing_row
from experiments.table import Setting, Table, row
from vid2phys.risp.appearance.randomisation import Randomisation
from vid2phys.types import Array

NAME = "risp-ablation"
ALL, *_SWITCHES = ("all", *(field.name for field in fields(Randomisation)))
METHODS = (ALL, *(f"without {name}" for name in _SWITCHES))
_NOTES = [
    "One training a row, of 3,000 renders and 6 epochs without rendering gradients: differences between rows hold what "
    "chance does to a training, too. Textures matter to bodies that have one.",
    "`held_out_px`: mean distance of keypoints on held-out renders with all of the randomisation, view pixels. The "
    "others: on 800 frames of four looks of another renderer set-up, the network alone. `change`: of a frame's state "
    "error against `all`, mean and (std in the JSON) its standard error over frames; above zero the switch has earned "
    "its place.",
]


def recipe(method: str, quick: bool) -> Recipe:
    """Return how the network of a method is trained."""
    off = () if method == ALL else (method.removeprefix("without "),)
    samples, epochs = (QUICK_RENDERS, 1) if quick else (3_000, 6)
    return Recipe("keypoint", "error-gradient", 0.0, samples, epochs, without=off)


def run(setting: Setting) -> Table:
    """Train what is asked for and make the table of all that is there; the others are named."""
    cells = [
        Cell(NAME, entry, method, recipe(method, setting.quick), setting) for entry in entries() for method in METHODS
    ]
    return filled_by_body(
        cells,
        lambda cell: _JudgedBody.of(cell, setting),
        lambda judged, cell: judged.rows(cell.method),
        _NOTES,
        lambda cell, reason: missing_row(cell, "held_out_px", reason),
        draw,
    )


@dataclass(frozen=True)
class _JudgedBody:
    """A body with the frames that it is judged on."""

    adapter: BodyAdapter
    frames: Frames
    setting: Setting

    @staticmethod
    def of(cell: Cell, setting: Setting) -> _JudgedBody:
        """Render what is missing."""
        adapter = cell.entry.make(setting.work / cell.entry.name)
        return _JudgedBody(adapter, judged_frames(adapter, setting), setting)

    def rows(self, method: str) -> Rows:
        """Return the rows of a method's network, compared with the network of all."""
        name = self.adapter.name
        scores, reported, held_out_px = self._judged(method)
        rows = [row(name, method, "held_out_px", held_out_px, "px", **reported)]
        for metric, score in scores.items():
            value = float(np.median(score.values) if score.median else np.mean(score.values))
            rows.append(row(name, method, metric, value, score.unit, n=len(score.values)))
        if method != ALL:
            change = _first(scores) - _first(self._judged(ALL)[0])
            spread = {"std": round(float(change.std() / len(change) ** 0.5), 6), "n": len(change)}
            rows.append(row(name, method, "change", float(change.mean()), "1", **spread))
        return rows

    def _judged(self, method: str) -> tuple[dict[str, Score], dict[str, Any], float]:
        """Return the scores on the frames, what a row says of the training, and the error on held-out renders, px."""
        learnt = train(self.adapter, recipe(method, self.setting.quick), self.setting)
        estimates = self.adapter.estimate_by_keypoints(
            self.adapter.model(learnt), self.frames, self.setting.seed, edges=False
        )
        scores = self.adapter.scores(estimates, self.frames)
        return scores, effort(self.adapter, learnt), learnt.history[-1]["px"]


def _first(scores: dict[str, Score]) -> Array:
    """Return a frame's state error: where a body looks alike from several sides, up to that."""
    return scores.get("state_error_up_to_symmetry", next(iter(scores.values()))).values


def draw(rows: Rows, path: Path) -> None:
    """Change of the state error with its 95 % interval, a panel a body."""
    changes = [row for row in rows if row["metric"] == "change"]
    systems = list(dict.fromkeys(row["system"] for row in changes)) or [""]
    with figure_at(path, 3.2 * len(systems) + 1.0, 4.2) as figure:
        axes = figure.subplots(1, len(systems), sharey=True, squeeze=False)[0]
        for axis, system in zip(axes, systems, strict=True):
            here = [row for row in changes if row["system"] == system]
            names = [row["method"] for row in here]
            axis.errorbar(
                [row["value"] for row in here], names, xerr=[1.96 * row["std"] for row in here], fmt="o", capsize=3
            )
            axis.axvline(0.0, color="0.6", lw=1)
            axis.set(title=system, xlabel="change of the state error")
            axis.grid(axis="x", alpha=0.3)
        axes[0].invert_yaxis()

"""Measure whether intervals hold: what `vid2phys identify` states of random motions, against their truths.

One method draws errors from the error model of detections in clips, which tests the fit and its intervals. The other
starts from pixels of held-out appearances, which tests the error model too. Both use every frame, every second and
every fourth: neither choice should change a result by more than its interval.

Limits: the unknowns of table 2, and one camera a clip.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments import footage
from experiments.bodies import Entry, entries
from experiments.by_identify import Clip, intervals_of, is_unfit
from experiments.experiments import unknown_of
from experiments.methods import model_in
from experiments.panels import draw_panels
from experiments.random_experiments import BODIES, random_experiment
from experiments.result_cache import Cell, Rows, assembled, missing_row
from experiments.table import Setting, Table, row, short
from experiments.test_renderer import CONFIGURATIONS
from experiments.weights import source_of
from vid2phys.errors import InputError, Vid2PhysError
from vid2phys.io.files import sha256
from vid2phys.types import Array, Result, Status

NAME = "risp-coverage"
METHODS = INJECTED, PIXELS = "ours-injected", "ours-pixels"
EVERY = {"every frame": 1, "every 2nd": 2, "every 4th": 4}
CLIPS = {"quadrotor": 40, "cube-plain": 40, "hand": 20, "rod": 12}
REPEATS, FEWER_REPEATS = 200, 50  # of injected errors: from every frame, and from fewer
READ = 4  # clips that errors are drawn for, one a look
VERSION = 1  # raise when rows are made in another way
_MOTION, _ERRORS = 31, 32  # streams of random numbers
_STATED = 1.96  # standard deviations to an end of an interval
_NOTES = [
    "Truths, motions, first states and cameras are drawn anew for each clip (`experiments/random_experiments.py`), "
    "materials too, in the four looks of `risp-table1`. Estimates and intervals are those of `vid2phys identify` with "
    "recorded actions: where the body is and how it starts is not known. Of the cube, which is thrown, forces and "
    "motion are fitted, no parameter.",
    f"`{INJECTED}`: {REPEATS} repeats ({FEWER_REPEATS} from fewer frames) in which the true motion is read with errors "
    f"drawn from the error model of {READ} clips, one of each look, in turn. `{PIXELS}`: a clip of its own each time.",
    "`held_share`: of 95 % intervals of parameters that hold the truth; `poses_held_share`: of coordinates of poses, "
    "each up to a turn that the body looks alike in (frames of a clip err alike: `std` is over clips). `..._rms`: of "
    "errors, in the paper's units, with their `bias` (mean), `spread` (deviation about it) and what was `stated` "
    "(median). `over_stated`: median of errors over their stated deviations; 0.67 where these are right.",
    "`warned_share`: of fits whose reader is told that the model does not explain the clip, which is false here. "
    "`failed`: fits that came to nothing; they are not counted.",
]


@dataclass(frozen=True)
class Trial:
    """One identification. errors, stated: [U] of estimates, and their standard deviations, in the paper's units; stated
    is infinite where the clip was said to tell nothing. poses_held: share of coordinates. warned: that the model does
    not explain the clip. failure: why there is nothing, or None."""

    errors: tuple[float, ...] = ()
    stated: tuple[float, ...] = ()
    contained: tuple[bool, ...] = ()
    poses_held: float | None = None
    warned: bool = False
    failure: str | None = None


def run(setting: Setting) -> Table:
    """Fill the cells that are asked for and make the table of all that are filled; the others are named."""
    began = time.monotonic()
    cells, reasons = [_cell(entry, method, label, setting) for entry, method, label in _all()], dict[Path, str]()
    for cell in cells:
        if cell.is_asked and cell.rows() is None:
            setting.progress.note(cell.name)
            try:
                cell.keep(Bench(cell).rows())
            except InputError as error:
                reasons[cell.path] = str(error)

    def empty(cell: Cell) -> dict[str, Any]:
        missing = missing_row(cell, "held_share", reasons.get(cell.path), frames=cell.label)
        return {**missing, "method": _title(cell)}

    return assembled(cells, _NOTES, empty, draw, began)


def _all() -> Iterator[tuple[Entry, str, str]]:
    for entry in entries(BODIES):
        for method in METHODS:
            for label in EVERY:
                yield entry, method, label


def _cell(entry: Entry, method: str, label: str, setting: Setting) -> Cell:
    folder = _model_folder(entry, setting)
    weights = None if folder is None else sha256(folder / "fine.safetensors")
    return Cell(NAME, entry, method, None, setting, label, version=f"{VERSION} {footage.VERSION} {weights}")


def _model_folder(entry: Entry, setting: Setting) -> Path | None:
    return source_of("ours", entry, replace(setting, quick=False)).folder


def _title(cell: Cell) -> str:
    return f"{cell.method}, {cell.label}"


class Bench:
    """The clips of a cell. A quick one has a clip or two, of few samples a pixel."""

    def __init__(self, cell: Cell) -> None:
        self.cell, self.setting, self.entry = cell, cell.setting, cell.entry
        self.folder, self.every = cell.setting.work / cell.entry.name, EVERY[cell.label]
        self.spp = 8 if self.setting.quick else 32
        folder = _model_folder(self.entry, self.setting)
        if folder is None:
            raise InputError("there is no model of this body", self.entry.training_command, "train one")
        self._model = model_in(folder, self.entry.make(self.folder))
        self._read: dict[int, tuple[Clip, Any]] = {}

    def rows(self) -> Rows:
        """Return all rows of the cell. Trials that are kept from an earlier sitting are not made again."""
        done = self._kept()
        total, trial = self._plan()
        for index in range(total):
            if index not in done:
                done[index] = trial(index)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"index": index, **vars(done[index])}) + "\n")
            self.setting.progress.step(f"{self.cell.name}", index + 1, total)
        return self._scored([done[index] for index in range(total)])

    def _plan(self) -> tuple[int, Callable[[int], Trial]]:
        """Return how many trials there are, and what makes them."""
        if self.cell.method == PIXELS:
            return (1 if self.setting.quick else CLIPS[self.entry.name]), self._from_pixels
        count = 2 if self.setting.quick else (REPEATS if self.every == 1 else FEWER_REPEATS)
        return count, self._from_drawn_errors

    def _from_pixels(self, index: int) -> Trial:
        def found() -> tuple[Clip, Result]:
            clip = self._clip(index)
            return clip, clip.solved()

        return _judged(found)

    def _from_drawn_errors(self, index: int) -> Trial:
        which = index % (1 if self.setting.quick else READ)
        if which not in self._read:
            clip = self._clip(which)
            self._read[which] = clip, clip.tracked()
        clip, tracked = self._read[which]
        rng = np.random.default_rng([self.setting.seed, _ERRORS, index])
        return _judged(lambda: (clip, clip.identified(clip.with_drawn_errors(tracked, rng), refine=False)))

    def _clip(self, index: int) -> Clip:
        """Return the clip of this number, which is filmed or taken from the work folder."""
        rng = np.random.default_rng([self.setting.seed, _MOTION, index])
        experiment = random_experiment(self.entry, self.folder, rng)
        experiment = replace(experiment, only=tuple(range(0, len(experiment.plan.times_s), self.every)))
        filmed = experiment.footage(
            index % len(CONFIGURATIONS),
            self.spp,
            self.setting.seed + index,
            self.folder,
            self.setting.progress,
            variant=1 + index,
        )
        return Clip.of(experiment, filmed, self._model)

    @property
    def _path(self) -> Path:
        return self.cell.path.with_suffix(".jsonl")

    def _kept(self) -> dict[int, Trial]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        return {each.pop("index"): Trial(**each) for each in map(json.loads, lines)}

    def _scored(self, trials: list[Trial]) -> Rows:
        """Return the rows of all trials."""
        good = [trial for trial in trials if trial.failure is None]
        failures = sorted({trial.failure for trial in trials if trial.failure})
        reported = {"n": len(good), "frames": self.cell.label, "failed": len(trials) - len(good), "failures": failures}
        unknown, rows = unknown_of(self.entry.name), Rows()

        def add(metric: str, value: float | None, unit: str = "1", **more: Any) -> None:
            rows.append(row(self.entry.name, _title(self.cell), metric, value, unit, **{**reported, **more}))

        errors, stated = (np.array([getattr(t, name) for t in good], dtype=float) for name in ("errors", "stated"))
        if errors.size:
            contained, finite = np.array([trial.contained for trial in good]), np.isfinite(stated)
            add("held_share", float(contained.mean()), n=contained.size, told_nothing=int((~finite).sum()))
            if finite.any():
                off, size = errors[finite], stated[finite]
                shares = {"bias": short(off.mean()), "spread": short(off.std()), "stated": short(np.median(size))}
                add(unknown.metric + "_rms", float(np.sqrt(np.mean(off**2))), unknown.unit, **shares)
                add("over_stated", float(np.median(np.abs(off) / size)))
        poses = np.array([trial.poses_held for trial in good if trial.poses_held is not None])
        if poses.size:
            add("poses_held_share", float(poses.mean()), std=short(float(poses.std())))
        if good:
            add("warned_share", float(np.mean([trial.warned for trial in good])))
        else:
            add("held_share", None, reason="; ".join(failures))
        return rows


def _judged(work: Callable[[], tuple[Clip, Result]]) -> Trial:
    """Return the trial of an identification."""
    try:
        clip, result = work()
    except Vid2PhysError as error:
        return Trial(failure=str(error))
    if result.status is Status.LOST:
        return Trial(failure=result.message)
    truth = clip.experiment.truth
    values, ends = intervals_of(clip, result)
    errors, stated = values - truth[: len(values)], (ends[:, 1] - ends[:, 0]) / (2.0 * _STATED)
    contained = (ends[:, 0] <= truth[: len(values)]) & (truth[: len(values)] <= ends[:, 1])
    return Trial(
        _listed(errors), _listed(stated), tuple(contained.tolist()), clip.pose_coverage(result), is_unfit(result)
    )


def _listed(values: Array) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def draw(rows: Rows, path: Path) -> None:
    """Draw the shares of intervals that hold, with their own 95 % intervals: of parameters, and of coordinates of
    poses.
    """
    titles = tuple(f"{method}, {label}" for method in METHODS for label in EVERY)

    def panel(axis: Any, system: str, mine: Rows) -> None:
        for metric, shift, mark in (("held_share", -0.12, "o"), ("poses_held_share", 0.12, "s")):
            shown = [row for row in mine if row["metric"] == metric]
            places = [titles.index(row["method"]) + shift for row in shown]
            ends = np.array([_wilson(row["value"], row["n"]) for row in shown]).reshape(-1, 2)
            values = np.array([row["value"] for row in shown])
            spread = np.abs(ends - values[:, None]).T if metric == "held_share" else None
            name = "parameters" if metric == "held_share" else "poses"
            axis.errorbar(places, values, yerr=spread, fmt=mark, capsize=3, label=name)
        axis.axhline(0.95, color="tab:green", linestyle="--", linewidth=1.0)
        axis.set(ylim=(0.4, 1.02))

    draw_panels(rows, path, titles, panel, legend=2)


def _wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    z = _STATED
    middle = (share + z**2 / (2.0 * count)) / (1.0 + z**2 / count)
    half = z / (1.0 + z**2 / count) * np.sqrt(share * (1.0 - share) / count + z**2 / (4.0 * count**2))
    return float(middle - half), float(middle + half)

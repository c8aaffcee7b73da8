"""What tables 3 and 4 share: bodies moved by unknown actions, their films, and the rows made of them.

Limits: a quick run has one motion of few frames.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments import weights
from experiments.bodies import Entry
from experiments.control_parametrisation import Parametrisation, parametrisation_of
from experiments.experiments import Experiment
from experiments.filling import Form, fill
from experiments.identification import COMMAND, KNOWN_START, Case, Network, Outcome, versions
from experiments.imitation import Followed, followed
from experiments.panels import draw_panels
from experiments.result_cache import Cell, Rows
from experiments.table import Setting, Table, row, short
from experiments.test_renderer import CONFIGURATIONS
from experiments.weights import Source, source_for
from vid2phys.solvers.gradient import ITERATIONS
from vid2phys.types import Array, Status

METHODS = (
    *("average", "random", "pixel", "perceptual", "paper-no-grad", "paper"),
    *("ours-no-grad", KNOWN_START, COMMAND, "oracle", "oracle-newton"),
)
_BLIND = ("average", "random", "oracle", "oracle-newton")  # methods that do not look
_DRAWS = 100  # of `random`
_QUICK_FRAMES = 8
_REFERENCE, _STARTS = 10, 11  # streams of random numbers


@dataclass(frozen=True)
class Task:
    """What is asked of methods.

    act: does it. judge: how good a motion with states [F, N] is: metrics with their values. units: of the metrics, the
    first for the image. label: of its axis. seconds: name of wall times. command_version: raise when rows of the user's
    command are made in another way. sure: status of its results that it does not doubt. ends_only: whether methods are
    shown the first frame and the last alone, so that many actions do it.
    """

    act: Callable[[Case, Parametrisation, str, Network], Outcome]
    judge: Callable[[Experiment, Array], dict[str, float]]
    units: dict[str, str]
    label: str
    seconds: str
    command_version: int
    sure: str = Status.CONVERGED.key
    ends_only: bool = False

    @property
    def metric(self) -> str:
        """Return the metric for the image."""
        return next(iter(self.units))


class Bench:
    """The motions and starts of a body, the same for all methods. A quick one has one motion, of few frames."""

    def __init__(self, task: Task, entry: Entry, setting: Setting) -> None:
        self.task, self.entry, self.setting = task, entry, setting
        self.count = 1 if setting.quick else len(CONFIGURATIONS)
        self.parametrisation = parametrisation_of(entry.name, _QUICK_FRAMES if setting.quick else None)
        self.folder = setting.work / entry.name

    def rows(self, method: str, source: Source) -> Rows:
        """Return all rows of a method."""
        references = [self.parametrisation.draw(self._rng(_REFERENCE, index)) for index in range(self.count)]
        motions = [self._filmed(numbers) for numbers in references]
        if method in ("average", "random"):
            count = self.count if method == "average" else _DRAWS
            rng = self._rng(_STARTS)
            middle, draw = self.parametrisation.numbers.middle, self.parametrisation.draw
            found = [Outcome(middle if method == "average" else draw(rng), 0.0) for _ in range(count)]
            return self._scored(method, found, motions, references)
        network = self._network(source)
        cases = [self._case(index, motion, with_images=method not in _BLIND) for index, motion in enumerate(motions)]
        self.task.act(
            replace(cases[0], iterations=1), self.parametrisation, method, network
        )  # compiles: no part of wall times
        found = []
        for index, case in enumerate(cases):
            found.append(self.task.act(case, self.parametrisation, method, network))
            self.setting.progress.step(f"{self.entry.name} {method}", index + 1, self.count)
        return self._scored(method, found, motions, references)

    def _filmed(self, numbers: Array) -> Experiment:
        experiment = self.parametrisation.experiment(self.entry, self.folder, numbers)
        return replace(experiment, only=(0, len(experiment.plan.times_s) - 1) if self.task.ends_only else None)

    def _network(self, source: Source) -> Network:
        return weights.load(source, self.entry.make(self.folder), self.setting)

    def _case(self, index: int, experiment: Experiment, *, with_images: bool) -> Case:
        setting, spp = self.setting, 8 if self.setting.quick else 64
        seen = experiment.footage(index, spp, setting.seed, self.folder, setting.progress) if with_images else None
        start = self.parametrisation.draw(self._rng(_STARTS, index))
        return Case(experiment, seen, start, setting.seed + index, 3 if setting.quick else ITERATIONS)

    def _rng(self, *stream: int) -> np.random.Generator:
        return np.random.default_rng([self.setting.seed, zlib.crc32(self.entry.name.encode()), *stream])

    def _scored(
        self, method: str, found: list[Outcome], motions: Sequence[Experiment], references: Sequence[Array]
    ) -> Rows:
        """Return what the task judges by, how far actions are off, and wall times."""
        name, seconds = self.entry.name, np.array([o.seconds for o in found])
        ends: list[Followed] = []
        judged: list[dict[str, float]] = []
        for index, outcome in enumerate(found):
            motion = motions[index % len(motions)]
            if outcome.states is None:
                ends.append(followed(motion, self.parametrisation, outcome.values))
            else:
                ends.append(Followed(outcome.states))
            judged.append(self.task.judge(motion, ends[-1].states))
        failures = [o.failure or end.reason for o, end in zip(found, ends, strict=True) if o.failure or end.reason]
        reported = {
            **{"n": len(found), "seconds": short(seconds.mean()), "failed": len(failures)},
            "failures": sorted({str(failure) for failure in failures}),
        }
        rows = []
        for metric, unit in self.task.units.items():
            values = np.array([each[metric] for each in judged])
            rows.append(
                row(name, method, metric, float(values.mean()), unit, **{**reported, "std": short(values.std())})
            )
        if not self.task.ends_only:
            off = [o.values - references[i % len(references)] for i, o in enumerate(found)]
            values = np.array([np.sqrt(np.mean(each**2)) for each in off if np.isfinite(each).all()])
            if len(values):
                more = {**reported, "n": len(values), "std": short(values.std())}
                rows.append(row(name, method, "action_error", float(values.mean()), "1", **more))
        if method not in ("average", "random"):
            rows.append(row(name, method, self.task.seconds, float(seconds.mean()), "s", **reported))
        return rows + (self._stated(found) if method == COMMAND else [])

    def _stated(self, found: list[Outcome]) -> Rows:
        """Return the rows of what the command states of its results: how often intervals hold, and what it doubts."""
        sure = self.task.sure
        shares = {f"{sure}_share": [float(outcome.status == sure) for outcome in found]}
        for metric in dict.fromkeys(name for outcome in found for name in outcome.shares):
            shares[metric] = [outcome.shares[metric] for outcome in found if metric in outcome.shares]
        statuses = [outcome.status or "failed" for outcome in found]
        return [
            row(self.entry.name, COMMAND, metric, float(np.mean(each)), "1", n=len(each), statuses=statuses)
            for metric, each in shares.items()
        ]


def tabulated(task: Task, name: str, version: int, notes: list[str], setting: Setting) -> Table:
    """Fill the cells that are asked for; make the table of all that are filled, with the names of the others."""

    def rows(cell: Cell, source: Source) -> Rows:
        return Bench(task, cell.entry, setting).rows(cell.method, source)

    of_rows = versions(task.command_version, version)
    form = Form(
        *(name, METHODS, ("",), of_rows, notes, rows, lambda cell: task.metric, partial(_draw, task)),
        source=source_for,
    )
    return fill(form, setting)


def _draw(task: Task, rows: Rows, path: Path) -> None:
    """Draw a panel a body: the task's first metric as bars, with deviations over motions."""

    def panel(axis: Any, _: str, mine: Rows) -> None:
        shown = [row for row in mine if row["metric"] == task.metric]
        places = [METHODS.index(row["method"]) for row in shown]
        colors = ["tab:green" if row["method"].startswith("ours") else "tab:blue" for row in shown]
        values = [max(row["value"], 1e-9) for row in shown]
        axis.bar(places, values, 0.7, yerr=[row["std"] or 0.0 for row in shown], color=colors, capsize=2)
        axis.set_ylabel(task.label, fontsize=8)

    draw_panels(rows, path, METHODS, panel)

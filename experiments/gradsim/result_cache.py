"""What is finished of an experiment, kept beside its table object by object: it goes on where it was interrupted.

Outcomes are small, and images and films of a table are made from them: they are part of the results.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.gradsim import newton
from experiments.result_cache import Rows
from experiments.table import Setting, Table, row, short
from vid2phys.engine.parallel import one_thread
from vid2phys.io.files import write_text

Outcome = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One method on one body of an experiment. count: objects it is tried on. version: of how outcomes are made.
    lacking: why it cannot be filled here, if so."""

    table: str
    body: str
    method: str
    count: int
    setting: Setting
    version: int | str = 1
    lacking: str | None = None

    @property
    def path(self) -> Path:
        """Return where its outcomes are kept; those of fewer objects are the first of more."""
        return self.setting.out / "outcomes" / self.setting.stem(self.table) / f"{self.body}-{self.method}.json"

    @property
    def _facts(self) -> dict[str, Any]:
        """Return what outcomes follow from: those of other facts are not taken for its own."""
        facts = {"seed": self.setting.seed, "version": self.version}
        return facts | {"newton": newton.VERSION} if self.method.startswith("ours") else facts

    @property
    def name(self) -> str:
        """Return the name for a reader."""
        return f"{self.body}, {self.method}"

    @property
    def is_asked(self) -> bool:
        """Return whether this sitting is for the cell."""
        bodies, methods = self.setting.bodies, self.setting.methods
        return not self.lacking and (not bodies or self.body in bodies) and (not methods or self.method in methods)

    def outcomes(self) -> list[Outcome]:
        """Return the kept outcomes of the first objects."""
        try:
            kept = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        found: list[Outcome] = kept["outcomes"] if kept["facts"] == self._facts else []
        return found[: self.count]

    @one_thread()
    def fill(self, work: Callable[[int], Outcome]) -> list[Outcome]:
        """Return all outcomes; those that are missing are made by `work`, given the number of the object.

        On one thread: graphs of small images wait for threads more than they gain, most of all where others compute.
        """
        found = self.outcomes()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while len(found) < self.count:
            self.setting.progress.step(self.name, len(found), self.count)
            found.append(work(len(found)))
            write_text(self.path, json.dumps({"facts": self._facts, "outcomes": found}) + "\n")
        return found

    def row(self, metric: str, key: str, unit: str, **more: Any) -> dict[str, Any]:
        """Return the mean and spread of one number over the objects; without a value where nothing is finished."""
        values = [outcome[key] for outcome in self.outcomes() if outcome.get(key) is not None]
        if not values:
            return row(self.body, self.method, metric, None, unit, reason=self.lacking or "not run yet", **more)
        spread = {"std": short(float(np.std(values))), "n": len(values), **more}
        return row(self.body, self.method, metric, float(np.mean(values)), unit, **spread)


def rng_of(setting: Setting, *stream: int) -> np.random.Generator:
    """Return random numbers of one object of an experiment, the same for all methods."""
    return np.random.default_rng([setting.seed, *stream])


def missing_note(cells: Sequence[Cell]) -> list[str]:
    """Return which cells are not finished, and how to finish them; nothing where all are."""
    empty = [
        f"{cell.name} ({len(cell.outcomes())} of {cell.count})"
        for cell in cells
        if len(cell.outcomes()) < cell.count and not cell.lacking
    ]
    if not empty:
        return []
    command = f"`vid2phys reproduce {cells[0].table} --body BODY --method METHOD`"
    return [f"Not finished: {'; '.join(empty)}. {command} fills a cell."]


def tabulated(
    cells: list[Cell],
    work: Callable[[Cell], Callable[[int], Outcome]],
    rows: Callable[[Cell], Rows],
    notes: Sequence[str],
    draw: Callable[[list[Cell], Path], None],
    quick: str,
    *,
    reported: Callable[[list[Cell]], list[str]] = lambda cells: [],
    film: Callable[[list[Cell]], Callable[[Path], None] | None] = lambda cells: None,
) -> Table:
    """Make what is missing of the cells that this sitting is for, and the table of all that are filled.

    work: of a cell, from the number of an object to its outcome. quick: what a quick run does not do. said: further
    notes, that follow from the outcomes. film: what writes one, where there is one.
    """
    began, setting, name = time.monotonic(), cells[0].setting, cells[0].table
    filled(cells, work)
    return Table(
        name=name,
        command=setting.command(name),
        rows=[each for cell in cells for each in rows(cell)],
        notes=[*notes, *reported(cells), *missing_note(cells)],
        seconds=time.monotonic() - began,
        draw=lambda path: draw(cells, path),
        film=film(cells),
        quick=quick,
    )


def filled(cells: Sequence[Cell], work: Callable[[Cell], Callable[[int], Outcome]]) -> None:
    """Make what is missing of the cells that this sitting is for."""
    for cell in cells:
        if cell.is_asked and len(cell.outcomes()) < cell.count:
            cell.setting.progress.note(cell.name)
            cell.fill(work(cell))

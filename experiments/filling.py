"""Fill tables 2 to 4 and figure 6b: cells of all bodies and methods.

A network that is missing is trained first. Limits: a body whose mesh is missing has empty cells with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments import footage
from experiments.bodies import Entry, entries
from experiments.convergence import NETWORK_OF, with_marks
from experiments.result_cache import Cell, Rows, assembled, duration, missing_row, read_json
from experiments.table import Setting, Table
from experiments.weights import Source, source_of
from vid2phys.errors import InputError, UsageError


@dataclass(frozen=True)
class Form:
    """A table before it is filled.

    methods, labels: a cell for each of them and each body. version: of the rows of a method and a body. rows:
    those of a cell; raises InputError where there can be none. metric: of the row of a cell that is empty. draw: all
    rows as an image. label_key: what rows call the label. title: what the row of an empty cell calls its method.
    source: of a method's network.
    """

    name: str
    methods: tuple[str, ...]
    labels: tuple[str, ...]
    version: Callable[[str, str], int]
    notes: list[str]
    rows: Callable[[Cell, Source], Rows]
    metric: Callable[[Cell], str]
    draw: Callable[[Rows, Path], None]
    label_key: str = "label"
    title: Callable[[Cell], str] = lambda cell: cell.method
    source: Callable[[str, Entry, Setting], Source] = source_of


def fill(form: Form, setting: Setting) -> Table:
    """Fill the cells that are asked for; make the table of all that are filled, with the names of the others."""
    began = time.monotonic()
    cells = _cells(form, setting)
    reasons = {cell.path: f"not run yet ({_first_trains(source)})" for cell, source in cells if source.training_s}
    for cell, source in cells:
        if not cell.is_asked or cell.rows() is not None:
            continue
        setting.progress.note(cell.name)
        if form.source(cell.method, cell.entry, setting).training_s:  # no cell before has trained it
            setting.progress.note(_first_trains(source))
        try:
            cell.keep(form.rows(cell, source))
        except (InputError, UsageError) as error:
            reasons[cell.path] = str(error)

    before = _reasons_before(setting.out / f"{setting.stem(form.name)}.json")

    def empty(cell: Cell) -> dict[str, Any]:
        reported = {form.label_key: cell.label} if cell.label else {}
        reason = reasons.get(cell.path) or before.get((cell.entry.name, form.title(cell)))
        return {**missing_row(cell, form.metric(cell), reason, **reported), "method": form.title(cell)}

    table = assembled([cell for cell, _ in cells], form.notes, empty, form.draw, began)
    networks = {
        (cell.entry.name, form.title(cell)): NETWORK_OF.get(cell.method, cell.method)
        for cell, source in cells
        if source.recipe is not None or source.folder is not None
    }
    return replace(table, rows=with_marks(table.rows, networks, setting))


def _reasons_before(table: Path) -> dict[tuple[str, str], str]:
    """Return the reasons of empty cells in the table as it stands, by body and method."""
    rows = (read_json(table) or {}).get("rows", [])
    return {(row["system"], row["method"]): row["reason"] for row in rows if row["value"] is None}


def _first_trains(source: Source) -> str:
    return f"its network is trained first, about {duration(source.training_s)} on two cores after its renders"


def _cells(form: Form, setting: Setting) -> list[tuple[Cell, Source]]:
    """Return the cells of all bodies, labels and methods, each with the source of its network."""
    found = []
    for entry in entries():
        for label in form.labels:
            for method in form.methods:
                source = form.source(method, entry, setting)
                version = f"{form.version(method, entry.name)} {footage.VERSION} {source.digest}"
                found.append((Cell(form.name, entry, method, None, setting, label, version=version), source))
    return found

"""The result cache: finished rows of a table, kept in the work folder, so that a table may be filled in many sittings.

A cell is one method of one body. Rows are kept under a hash of everything that they follow from, and carry the hash. So
a table keeps its rows when a work folder is lost. Limits: renders and weights are lost with the work folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from experiments.bodies import Entry, mesh_at
from experiments.image_alignment import VERSION
from experiments.methods import (
    MODEL_PLACES,
    QUICK_RENDERS,
    RENDER_MS,
    RENDERS,
    Recipe,
    digest_of,
    model_folder,
    training_seconds,
)
from experiments.table import Setting, Table, row
from vid2phys.errors import InputError
from vid2phys.io.files import sha256, write_text

Rows = list[dict[str, Any]]
S = TypeVar("S")


@dataclass(frozen=True)
class Cell:
    """table: its name. method: as rows have it. label: tells cells of one method apart. recipe: None for methods that
    learn nothing. model: folder of a model that is taken instead of training one. version: of how rows are made. reads:
    what is read by more than a network alone, clips, images or nothing."""

    table: str
    entry: Entry
    method: str
    recipe: Recipe | None
    setting: Setting
    label: str = ""
    model: Path | None = None
    version: int | str = VERSION
    reads: Literal["clips", "images", ""] = "clips"

    @property
    def key(self) -> str:
        """Return the body, and a hash of what its rows follow from."""
        shipped = self.model is not None and self.model.parent.resolve() == MODEL_PLACES[0]  # others may change
        facts = {
            "table": self.table,
            "method": self.method,
            "label": self.label,
            "recipe": None if self.recipe is None or shipped else self.recipe.facts,
            "model": sha256(self.model / "fine.safetensors") if self.model is not None and shipped else None,
            "quick": self.setting.quick,
            "seed": self.setting.seed,
            "version": self.version,
            **(self._detection_facts if self.method.startswith("ours") else {}),
        }
        return f"{self.entry.name}-{digest_of(facts)}"

    @property
    def _detection_facts(self) -> dict[str, int]:
        """Return the versions of detection, as far as rows follow from it."""
        tracks = self.reads == "clips" and self.entry.tracking > 0
        return {
            **({"reading": self.entry.detection} if self.reads else {}),
            **({"tracking": self.entry.tracking} if tracks else {}),
            **({"alone": self.entry.single_image} if self.reads == "images" and self.entry.single_image > 0 else {}),
        }

    @property
    def path(self) -> Path:
        """Return where its rows are kept."""
        digest = self.key.rpartition("-")[2]
        return self.setting.work / self.entry.name / "rows" / f"{self.table}-{self.method}-{digest}.json"

    @property
    def name(self) -> str:
        """Return the name for a reader."""
        return f"{self.entry.name}, {self.method}" + (f", {self.label}" if self.label else "")

    def rows(self) -> Rows | None:
        """Return the rows that are kept, in the work folder or in the table as it stands; or None."""
        kept: Rows | None = read_json(self.path)
        if kept is not None:
            return kept
        table, key = read_json(self.setting.out / f"{self.setting.stem(self.table)}.json") or {}, self.key
        return [row for row in table.get("rows", []) if row.get("cell") == key] or None

    def keep(self, rows: Rows) -> None:
        """Write the rows, each with the key of the cell."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        key = self.key
        write_text(self.path, json.dumps([row | {"cell": key} for row in rows]) + "\n")

    @property
    def seconds(self) -> float:
        """Return about how long it takes to train what it needs, on two cores."""
        if self.recipe is None or self.model is not None:
            return 0.0
        return training_seconds(self.recipe, self.entry.view_size)

    @property
    def is_asked(self) -> bool:
        """Return whether this sitting is for the cell."""
        bodies, methods = self.setting.bodies, self.setting.methods
        return (not bodies or self.entry.name in bodies) and (not methods or self.method in methods)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, None where no file can be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def usable_model(entry: Entry, setting: Setting) -> Path | None:
    """Return the folder of the body's own model, if it was trained by the default command."""
    return None if setting.quick or setting.seed else model_folder(entry.model, entry.training_command)


def own_model(entry: Entry) -> Path | None:
    """Return the folder of the body's own model, however it was trained, None where there is none."""
    folders = (place / entry.model for place in MODEL_PLACES)
    return next((folder for folder in folders if (folder / "fine.safetensors").is_file()), None)


def model_of_command(entry: Entry) -> Path | None:
    """Return the folder of the model that the user's command takes: the body's own, else one of the mesh's shape."""
    from vid2phys.risp.networks.model_lookup import fitting_model

    folder = own_model(entry)
    if folder is not None or entry.mesh is None:
        return folder
    found = fitting_model(mesh_at(entry.mesh))
    return None if found is None else found.folder


def report_estimate(cells: list[Cell]) -> None:
    """Report what this sitting is about to do, and for how long."""
    setting = cells[0].setting
    todo = [cell for cell in cells if cell.is_asked and cell.rows() is None]
    if not todo:
        setting.progress.note("everything asked for is finished")
        return
    for cell in todo:
        setting.progress.note(f"to do: {cell.name}" + (f", about {duration(cell.seconds)}" if cell.seconds else ""))
    renders = _render_seconds(todo, setting)
    total = renders + sum(cell.seconds for cell in todo)
    rendering = f", {duration(renders)} of them rendering" if renders else ""
    setting.progress.note(f"about {duration(total)} in all on two idle cores without a GPU{rendering}")


def filled_by_body(
    cells: list[Cell],
    judged_of: Callable[[Cell], S],
    rows: Callable[[S, Cell], Rows],
    notes: Sequence[str],
    empty: Callable[[Cell, str | None], dict[str, Any]],
    draw: Callable[[Rows, Path], None],
) -> Table:
    """Fill the cells that are asked for, body by body, and make the table of all.

    empty: as of `assembled`, with the reason why a body cannot be judged, if there is one.
    """
    began, setting = time.monotonic(), cells[0].setting
    report_estimate(cells)
    judged: S | None = None
    there, reasons = "", dict[str, str]()
    for cell in cells:
        if not cell.is_asked or cell.rows() is not None or cell.entry.name in reasons:
            continue
        try:
            if judged is None or there != cell.entry.name:
                judged, there = judged_of(cell), cell.entry.name
        except InputError as error:
            reasons[cell.entry.name] = str(error)
            continue
        setting.progress.note(cell.name)
        cell.keep(rows(judged, cell))
    return assembled(cells, notes, lambda cell: empty(cell, reasons.get(cell.entry.name)), draw, began)


def assembled(
    cells: list[Cell],
    notes: Sequence[str],
    empty: Callable[[Cell], dict[str, Any]],
    draw: Callable[[Rows, Path], None],
    began: float,
) -> Table:
    """Return the table of all cells of bodies that a sitting was for; `empty` makes the row of one that is not filled.
    began: time.monotonic() of the start.
    """
    name, setting = cells[0].table, cells[0].setting
    begun = {cell.entry.name for cell in cells if cell.is_asked or cell.rows() is not None}
    rows = [each for cell in cells if cell.entry.name in begun for each in cell.rows() or [empty(cell)]]
    seconds = time.monotonic() - began
    return Table(
        name, setting.command(name), rows, [*notes, *missing_note(cells, begun)], seconds, lambda path: draw(rows, path)
    )


def missing_row(cell: Cell, metric: str, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """Return the row of a cell that no sitting has filled."""
    about = f" (about {duration(cell.seconds)})" if cell.seconds else ""
    return row(cell.entry.name, cell.method, metric, None, "1", reason=reason or f"not run yet{about}", **more)


def missing_note(cells: list[Cell], begun: set[str]) -> list[str]:
    """Return which cells are still empty, and how to fill them, if any are; of bodies that no sitting was for, their
    names.
    """
    empty = [cell for cell in cells if cell.rows() is None]
    if not empty:
        return []
    names = [cell.name for cell in empty if cell.entry.name in begun]
    names += dict.fromkeys(f"all of {cell.entry.name}" for cell in empty if cell.entry.name not in begun)
    seconds = sum(cell.seconds for cell in empty)
    total = f", about {duration(seconds)} of training in all" if seconds else ""
    command = f"`vid2phys reproduce {cells[0].table} --body BODY --method METHOD`"
    return [f"Not run yet{total}: {'; '.join(names)}. {command} fills a cell."]


def _render_seconds(todo: list[Cell], setting: Setting) -> float:
    """Return the seconds for the renders that are not there yet."""
    made = QUICK_RENDERS if setting.quick else RENDERS
    sets = {
        (cell.entry.name, cell.recipe.appearances): made if not cell.recipe.appearances else cell.recipe.samples
        for cell in todo
        if cell.recipe is not None and cell.model is None
    }
    return sum(
        1e-3 * RENDER_MS * count
        for (name, appearances), count in sets.items()
        if not any((setting.work / name / f"data-{count}-{appearances}-{setting.seed}").glob("shard_*"))
    )


def duration(seconds: float) -> str:
    """Return a duration in words."""
    minutes = seconds / 60.0
    return f"{minutes / 60.0:.1f} h" if minutes >= 100.0 else f"{max(1, round(minutes))} min"

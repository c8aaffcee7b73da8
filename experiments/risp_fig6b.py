"""RISP's figure 6b (Ma, Du et al., ICLR 2022): table 2's identifications from fewer frames.

The choices are every frame, every fifth, the first and the last, the first and the middle one. Motions, appearances and
starts are those of `risp-table2` with the paper's truth. Limits: images of frames that are left out are not used.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.experiments import unknown_of
from experiments.filling import Form, fill
from experiments.identification import COMMAND, KNOWN_START, versions
from experiments.panels import draw_panels
from experiments.result_cache import Cell, Rows
from experiments.risp_table2 import COMMAND_VERSION, Bench, source_for
from experiments.table import Setting, Table
from experiments.weights import Source
from vid2phys.commands.identify.inputs import LEAST_FRAMES

NAME = "risp-fig6b"
METHODS = ("paper-no-grad", "paper", "ours-no-grad", KNOWN_START, COMMAND, "oracle", "oracle-newton")
FRAMES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "every frame": lambda count: tuple(range(count)),
    "every 5th": lambda count: tuple(range(0, count, 5)),
    "first + last": lambda count: (0, count - 1),
    "first + middle": lambda count: (0, count // 2),
}
VERSION = 2  # raise when rows are made in another way
_COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red")
_NOTES = [
    "Errors of `risp-table2` with the paper's truth, by which frames methods are shown (`frames`). The first state is "
    "given to all methods but `ours`, and the first frame tells what colours the body has. Oracles see true positions "
    f"and angles of the frames that are shown. `{COMMAND}` is `vid2phys identify`, which takes clips of {LEAST_FRAMES} "
    "frames or more.",
    "The motions are ours, since the paper publishes none: no figure of the paper's belongs beside these, and `paper` "
    "is empty. Which of its tasks the paper's own figure shows was not to be had for certain.",
    "Between two frames far apart a body that looks the same in several orientations may be taken for another of them.",
    "`failed`: identifications that came to nothing; they count with their start.",
]


def run(setting: Setting) -> Table:
    """Fill the cells that are asked for and draw all that are filled; the others are named."""

    def rows(cell: Cell, source: Source) -> Rows:
        bench = Bench(cell.entry, "paper", setting, FRAMES[cell.label])
        cases, outcomes = bench.identified(cell.method, bench.network(source))
        found = bench.scored(cell.method, outcomes, [case.experiment.truth for case in cases])
        return [{**row, "method": _title(cell), "frames": cell.label} for row in found]

    form = Form(
        *(NAME, METHODS, tuple(FRAMES), versions(COMMAND_VERSION, VERSION), _NOTES, rows),
        metric=lambda cell: unknown_of(cell.entry.name).metric,
        draw=draw,
        label_key="frames",
        title=_title,
        source=source_for,
    )
    return fill(form, setting)


def _title(cell: Cell) -> str:
    return f"{cell.method}, {cell.label}"


def draw(rows: Rows, path: Path) -> None:
    """Draw the errors as groups of bars, a group a method, a bar a choice of frames."""

    def panel(axis: Any, system: str, mine: Rows) -> None:
        unknown, width = unknown_of(system), 0.8 / len(FRAMES)
        for index, (label, color) in enumerate(zip(FRAMES, _COLORS, strict=True)):
            shown = [row for row in mine if (row["metric"], row["frames"]) == (unknown.metric, label)]
            places = [METHODS.index(row["method"].partition(",")[0]) + (index - 1.5) * width for row in shown]
            axis.bar(places, [max(row["value"], 1e-9) for row in shown], width, color=color, label=label)
        axis.set_ylabel(unknown.label, fontsize=8)

    draw_panels(rows, path, METHODS, panel, legend=len(FRAMES))

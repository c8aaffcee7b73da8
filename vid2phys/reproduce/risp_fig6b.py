"""RISP's figure 6b (Ma, Du et al., ICLR 2022): table 2's identifications from fewer frames.

Every frame, every fifth, the first and the last, the first and the middle one. Motions, looks and starts are those of
`risp-table2` with the paper's truth; pictures of frames that are left out are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from vid2phys.reproduce.cells import Cell, Rows
from vid2phys.reproduce.experiments import unknown_of
from vid2phys.reproduce.filling import Form, fill
from vid2phys.reproduce.risp_table2 import Bench
from vid2phys.reproduce.table import Setting, Table
from vid2phys.reproduce.weights import Source

NAME = "risp-fig6b"
METHODS = ("paper-no-grad", "paper", "ours-no-grad", "ours", "oracle", "oracle-newton")
FRAMES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "every frame": lambda count: tuple(range(count)),
    "every 5th": lambda count: tuple(range(0, count, 5)),
    "first + last": lambda count: (0, count - 1),
    "first + middle": lambda count: (0, count // 2),
}
VERSION = 1  # raise when rows are made in another way
_COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red")
_NOTES = [
    "Errors of `risp-table2` with the paper's truth, by which frames methods are shown (`frames`). The first state is "
    "known, and the first frame tells what colours the body has. Oracles see true positions and angles of the frames "
    "that are shown.",
    "The motions are ours, since the paper publishes none: no figure of the paper's belongs beside these, and `paper` "
    "is empty. Which of its tasks the paper's own figure shows was not to be had for certain.",
    "Between two frames far apart a body that looks the same in several orientations may be taken for another of them.",
    "`failed`: identifications that came to nothing; they count with their start.",
]


def run(setting: Setting) -> Table:
    """Fills the cells that are asked for and draws all that are filled; the others are named."""

    def rows(cell: Cell, source: Source) -> Rows:
        bench = Bench(cell.entry, "paper", setting, FRAMES[cell.label])
        cases, outcomes = bench.identified(cell.method, bench.network(source))
        found = bench.scored(cell.method, outcomes, [case.experiment.truth for case in cases])
        return [{**row, "method": _title(cell), "frames": cell.label} for row in found]

    form = Form(
        *(NAME, METHODS, tuple(FRAMES), VERSION, _NOTES, rows),
        metric=lambda cell: unknown_of(cell.entry.name).metric,
        draw=draw,
        label_key="frames",
        title=_title,
    )
    return fill(form, setting)


def _title(cell: Cell) -> str:
    return f"{cell.method}, {cell.label}"


def draw(rows: Rows, path: Path) -> None:
    """Errors as groups of bars, a panel a body, a group a method, a bar a choice of frames."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    systems = list(dict.fromkeys(row["system"] for row in rows))
    figure, axes = pyplot.subplots(1, len(systems), figsize=(2.9 * len(systems), 3.8), constrained_layout=True)
    width = 0.8 / len(FRAMES)
    for axis, system in zip(np.atleast_1d(axes), systems, strict=True):
        unknown = unknown_of(system)
        mine = [r for r in rows if (r["system"], r["metric"]) == (system, unknown.metric) and r["value"] is not None]
        for index, (label, color) in enumerate(zip(FRAMES, _COLORS, strict=True)):
            shown = {r["method"].split(",")[0]: max(r["value"], 1e-9) for r in mine if r["frames"] == label}
            places = [METHODS.index(method) + (index - 1.5) * width for method in shown]
            axis.bar(places, list(shown.values()), width, color=color, label=label)
        axis.set(title=system, xticks=range(len(METHODS)), xlim=(-0.6, len(METHODS) - 0.4))
        if mine:
            axis.set_yscale("log")
        axis.set_ylabel(f"{unknown.metric} [{unknown.unit}]".replace("_", " "), fontsize=8)
        axis.set_xticklabels(METHODS, rotation=75, fontsize=8)
        axis.grid(axis="y", alpha=0.3)
    handles, labels = np.atleast_1d(axes)[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(FRAMES), fontsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)

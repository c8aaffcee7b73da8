"""Pictures of tables: figures off screen; a panel a body, bars over methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.reproduce.cells import Rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def figure_at(path: Path, width_in: float, height_in: float, dpi: int = 110) -> Iterator[Figure]:
    """A figure to draw on, which is then written to `path`. No display and no global state is used."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    yield figure
    figure.savefig(path, dpi=dpi)


def draw_panels(
    rows: Rows, path: Path, methods: tuple[str, ...], panel: Callable[[Any, str, Rows], None], *, legend: int = 0
) -> None:
    """Writes the picture. panel: draws on an axis what the rows of a body with a value say, errors over methods in
    their order. legend: columns of one for all, 0 for none."""
    systems = list(dict.fromkeys(row["system"] for row in rows))
    with figure_at(path, 2.9 * len(systems), 3.8, dpi=120) as figure:
        axes = figure.subplots(1, len(systems))
        for axis, system in zip(np.atleast_1d(axes), systems, strict=True):
            panel(axis, system, [row for row in rows if row["system"] == system and row["value"] is not None])
            axis.set(title=system, xticks=range(len(methods)), xlim=(-0.6, len(methods) - 0.4))
            if axis.patches:
                axis.set_yscale("log")
            axis.set_xticklabels(methods, rotation=75, fontsize=8)
            axis.grid(axis="y", alpha=0.3)
        handles, labels = np.atleast_1d(axes)[0].get_legend_handles_labels()
        if legend:
            figure.legend(handles, labels, loc="outside lower center", ncols=legend, fontsize=8)

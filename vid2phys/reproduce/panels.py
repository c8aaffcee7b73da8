"""Pictures of tables: a panel a body, bars over methods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vid2phys.reproduce.cells import Rows


def draw_panels(
    rows: Rows, path: Path, methods: tuple[str, ...], panel: Callable[[Any, str, Rows], None], *, legend: int = 0
) -> None:
    """Writes the picture. panel: draws on an axis what the rows of a body with a value say, errors over methods in
    their order. legend: columns of one for all, 0 for none."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    systems = list(dict.fromkeys(row["system"] for row in rows))
    figure, axes = pyplot.subplots(1, len(systems), figsize=(2.9 * len(systems), 3.8), constrained_layout=True)
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
    figure.savefig(path, dpi=120)
    pyplot.close(figure)

"""Images of tables: figures off screen, a panel a body, bars over methods, film strips."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from experiments.result_cache import Rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def figure_at(
    path: Path,
    width_in: float,
    height_in: float,
    dpi: int = 110,
    layout: Literal["constrained", "compressed"] = "constrained",
) -> Iterator[Figure]:
    """Yield a figure to draw on, which is then written to `path`. No display and no global state is used."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout=layout)
    yield figure
    figure.savefig(path, dpi=dpi)


def draw_panels(
    rows: Rows, path: Path, methods: tuple[str, ...], panel: Callable[[Any, str, Rows], None], *, legend: int = 0
) -> None:
    """Write the image. panel: draws on an axis what the rows of a body with a value say, errors over methods in their
    order. legend: columns of one for all, 0 for none.
    """
    systems = list(dict.fromkeys(row["system"] for row in rows))
    with figure_at(path, 2.9 * len(systems), 3.8, dpi=120) as figure:
        axes = figure.subplots(1, len(systems))
        for axis, system in zip(np.atleast_1d(axes), systems, strict=True):
            panel(axis, system, [row for row in rows if row["system"] == system and row["value"] is not None])
            axis.set(title=system, xticks=range(len(methods)), xlim=(-0.6, len(methods) - 0.4))
            if axis.patches:
                axis.set_yscale("log")
            axis.set_xticklabels(methods, rotation=75, fontsize=8)
            axis.tick_params(axis="y", which="both", labelsize=8)
            axis.grid(axis="y", alpha=0.3)
        handles, labels = np.atleast_1d(axes)[0].get_legend_handles_labels()
        if legend:
            figure.legend(handles, labels, loc="outside lower center", ncols=legend, fontsize=8)


def draw_strips(strips: dict[str, NDArray[np.uint8]], times_s: Sequence[float], path: Path) -> None:
    """Write rows of images [n, V, V, 3], each with its name, beneath their times."""
    with figure_at(path, 1.3 * len(times_s) + 1.2, 1.3 * len(strips) + 0.3, dpi=120, layout="compressed") as figure:
        grid = figure.subplots(len(strips), len(times_s), squeeze=False)
        for axes, (name, images) in zip(grid, strips.items(), strict=True):
            for axis, image in zip(axes, images, strict=True):
                axis.imshow(image)
                axis.set(xticks=[], yticks=[])
            axes[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
        for axis, time in zip(grid[0], times_s, strict=True):
            axis.set_title(f"{time:.1f} s", fontsize=9)

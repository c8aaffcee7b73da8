"""Matplotlib figures off screen: made here, written to a temporary name, returned as SVG text, shown in notebooks."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vid2phys.io.files import atomic_path

WIDTH_IN = 8.0
COLORS = ("#1f6fb4", "#d9622b", "#3a8f4d", "#8a56a8")


@dataclass(frozen=True)
class Plot:
    """A matplotlib figure that shows itself in a notebook, without pyplot or a display."""

    figure: Any

    def save(self, path: str | Path) -> None:
        """Write a picture."""
        save_figure(self.figure, Path(path))

    def _repr_svg_(self) -> str:
        return svg_text(self.figure)


def figure(rows: int, x_label: str, height_in: float = 2.2) -> tuple[Any, list[Any]]:
    """A figure of `rows` plots over one x axis. No display and no global state is used."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(WIDTH_IN, height_in * rows + 0.4), layout="constrained")
    FigureCanvasAgg(fig)
    axes = fig.subplots(rows, 1, sharex=True, squeeze=False)[:, 0].tolist()
    for ax in axes:
        ax.grid(alpha=0.25)
        ax.set_prop_cycle(color=COLORS)
        ax.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel(x_label)
    return fig, axes


def save_figure(fig: Any, path: Path) -> None:
    """Write a PNG."""
    with atomic_path(path) as temporary:
        fig.savefig(temporary, dpi=110)


def svg_text(fig: Any) -> str:
    """The figure as an SVG element, to stand inside an HTML page."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vid2phys"}):
        fig.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]

"""Draw charts as matplotlib figures, off screen: written as images, returned as SVG text, shown in notebooks."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vid2phys.io.files import atomic_path
from vid2phys.report.charts import Chart, Curve, Panel

WIDTH_IN = 8.0
COLORS = ("#1f6fb4", "#d9622b", "#3a8f4d", "#8a56a8")
_LOST = "0.85"


@dataclass(frozen=True)
class Plot:
    """A chart that shows itself in a notebook, without pyplot or a display."""

    chart: Chart

    @property
    def figure(self) -> Any:
        """Return the matplotlib figure."""
        return draw(self.chart)

    def save(self, path: str | Path) -> None:
        """Write an image."""
        save_figure(self.figure, Path(path))

    def _repr_svg_(self) -> str:
        return svg_text(self.figure)


def draw(chart: Chart) -> Any:
    """Return the figure of a chart."""
    fig, axes = _grid(len(chart.rows), chart.columns, chart.panel_height_in, chart.over_time)
    for row, panels in zip(axes, chart.rows, strict=True):
        for ax, panel in zip(row, panels, strict=True):
            if panel is None:
                ax.set_visible(False)
                continue
            for begin, end in chart.absent:
                ax.axvspan(begin, end, color=_LOST, lw=0)
            _draw(ax, panel)
    return fig


def color_of(curve: Curve, index: int) -> str:
    """Return the colour of a panel's curve with the number `index`."""
    return COLORS[(index if curve.hue is None else curve.hue) % len(COLORS)]


def figure(rows: int, x_label: str, height_in: float = 2.2) -> tuple[Any, list[Any]]:
    """Return a figure of `rows` plots over one x axis, and its axes. It needs no display and no global state."""
    fig, axes = _grid(rows, 1, height_in, shared=True)
    axes[-1, 0].set_xlabel(x_label)
    return fig, axes[:, 0].tolist()


def legend_above(ax: Any) -> None:
    """Name the curves of axes above them, where the legend covers none."""
    count = len(ax.get_legend_handles_labels()[1])
    ax.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=min(count, 4), frameon=False)


def save_figure(fig: Any, path: Path) -> None:
    """Write a PNG."""
    with atomic_path(path) as temporary:
        fig.savefig(temporary, dpi=110)


def svg_text(fig: Any) -> str:
    """Return the figure as an SVG element for an HTML page."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vid2phys"}):
        fig.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _grid(rows: int, columns: int, height_in: float, shared: bool) -> tuple[Any, Any]:
    """Return a figure and its axes [rows, columns]. shared: whether they have one x axis."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(WIDTH_IN, height_in * rows + 0.4), layout="constrained")
    FigureCanvasAgg(fig)
    axes = fig.subplots(rows, columns, sharex=shared, squeeze=False)
    for ax in axes.flat:
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    return fig, axes


def _draw(ax: Any, panel: Panel) -> None:
    names = [curve.name for curve in panel.curves if curve.name]
    for index, curve in enumerate(panel.curves):
        color, label = color_of(curve, index), curve.name or None
        step = "post" if curve.style == "steps" else None
        if curve.style == "filled":
            ax.fill_between(curve.x, 0.0, curve.y, color=color, alpha=0.2, lw=0, label=label)
        else:
            thin = {"lw": 0.8, "alpha": 0.6} if curve.style == "thin" else {}
            ax.plot(
                *(curve.x, curve.y, "--" if curve.style == "dashed" else "-"),
                **{"color": color, "label": label, "drawstyle": "steps-post" if step else "default", **thin},
            )
        if curve.band is not None:
            ax.fill_between(curve.x, *curve.band, step=step, alpha=0.2, color=color, lw=0)
    ax.set_ylabel(panel.y_label, fontsize=9 if "\n" in panel.y_label else None)
    ax.set_xlabel(panel.x_label)
    if panel.from_zero:
        ax.set_ylim(bottom=0.0)
    if names:
        legend_above(ax)

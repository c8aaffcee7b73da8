"""Make charts for browsers: plotly.js specifications, and the script itself, packed, so that a page needs no network.

The specifications are written as JSON here; https://plotly.com/javascript/reference/ defines their keys.
"""

from __future__ import annotations

import base64
import gzip
from functools import cache
from html import escape
from typing import Any

import numpy as np

from vid2phys.report.charts import Chart, Curve, Panel
from vid2phys.report.figures import color_of
from vid2phys.types import Array

_DIGITS = 6  # of numbers
_PX_PER_INCH = 96
_MARGIN_PX = {"l": 70, "r": 10, "t": 56, "b": 45}  # at the top: plotly's buttons, and below them the legend
_GRAY, _GRID = "rgba(0,0,0,.12)", "rgba(0,0,0,.08)"


@cache
def plotly_js() -> str:
    """Return plotly.js, gzipped and in base 64."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode("ascii")


def specification(chart: Chart) -> dict[str, Any]:
    """Return data and layout of a chart. Panels below each other share the x axis of a chart over time."""
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "height": round(_PX_PER_INCH * chart.panel_height_in * len(chart.rows)) + _MARGIN_PX["b"] + _MARGIN_PX["t"],
        "margin": _MARGIN_PX,
        "hovermode": "x unified" if chart.over_time else "closest",
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "traceorder": "normal"},
        "showlegend": chart.over_time,
        "grid": {"rows": len(chart.rows), "columns": chart.columns, "pattern": "independent"},
        "shapes": [_span(begin, end) for begin, end in chart.absent],
        "template": "none",
    }
    subplots: list[list[str]] = []
    for row, panels in enumerate(chart.rows):
        subplots.append([])
        for column, panel in enumerate(panels):
            number = row * chart.columns + column + 1
            x, y = f"x{'' if chart.over_time else _key(number)}", f"y{_key(number)}"
            subplots[-1].append("" if panel is None else x + y)
            if panel is None:
                continue
            layout["yaxis" + y[1:]] = _axis(panel.y_label) | ({"rangemode": "tozero"} if panel.from_zero else {})
            layout["xaxis" + x[1:]] = _axis(panel.x_label) | {"anchor": y}
            data += _traces(panel, x, y)
    layout["grid"]["subplots"] = subplots
    return {"data": data, "layout": layout}


def _key(number: int) -> str:
    """Return the suffix of an axis by its number: the first has none."""
    return "" if number == 1 else str(number)


def _axis(label: str) -> dict[str, Any]:
    return {
        "title": {"text": escape(label).replace("\n", "<br>")},
        "gridcolor": _GRID,
        "zeroline": False,
        "automargin": True,
    }


def _span(begin: float, end: float) -> dict[str, Any]:
    """Return a grey rectangle from top to bottom."""
    sides = {"x0": begin, "x1": end, "y0": 0, "y1": 1}
    return (
        {"type": "rect", "xref": "x", "yref": "paper", "layer": "below", "fillcolor": _GRAY}
        | sides
        | {"line": {"width": 0}}
    )


def _traces(panel: Panel, x: str, y: str) -> list[dict[str, Any]]:
    traces: list[dict[str, Any]] = []
    for index, curve in enumerate(panel.curves):
        color = color_of(curve, index)
        common = {"type": "scatter", "mode": "lines", "xaxis": x, "yaxis": y, "x": _numbers(curve.x)}
        if curve.band is not None:
            quiet = {"hoverinfo": "skip", "showlegend": False, "line": {"width": 0, **_shape(curve)}}
            low, high = map(_numbers, curve.band)
            filled = {"fill": "tonexty", "fillcolor": _clear(color)}
            traces += [common | quiet | {"y": low}, common | quiet | filled | {"y": high}]
        line = {"color": color, "width": 1 if curve.style == "thin" else 1.8, **_shape(curve)}
        own = {"y": _numbers(curve.y), "name": escape(curve.name), "showlegend": bool(curve.name)}
        if curve.style == "filled":
            own |= {"fill": "tozeroy", "fillcolor": _clear(color), "hoverinfo": "skip"}
            line["width"] = 0
        traces.append(common | own | {"line": line, "opacity": 0.6 if curve.style == "thin" else 1.0})
    return traces


def _shape(curve: Curve) -> dict[str, Any]:
    return {"steps": {"shape": "hv"}, "dashed": {"dash": "dash"}}.get(curve.style, {})


def _clear(color: str) -> str:
    red, green, blue = (int(color[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},.2)"


def _numbers(values: Array) -> list[float | None]:
    """Return values for JSON: rounded, None for what is not finite."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values]

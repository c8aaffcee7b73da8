"""Describe charts as data: panels of curves with bands.

`figures` draws them for notebooks, and `interactive` for browsers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from vid2phys.indices import evenly
from vid2phys.types import Array

Style = Literal["line", "thin", "dashed", "steps", "filled"]
TIME = "time in the clip (s)"


@dataclass(frozen=True)
class Curve:
    """Points [N] joined by lines.

    steps: whether each y holds until the next x. band: from and to where, [N] each. hue: which of the colours (None:
    the next one of its panel).
    """

    x: Array
    y: Array
    name: str = ""
    band: tuple[Array, Array] | None = None
    style: Style = "line"
    hue: int | None = None

    def thinned(self, most: int) -> Curve:
        """Return the curve with at most `most` of its points, evenly spread."""
        some = evenly(len(self.x), most)
        band = None if self.band is None else (self.band[0][some], self.band[1][some])
        return replace(self, x=self.x[some], y=self.y[some], band=band)


@dataclass(frozen=True)
class Panel:
    """Curves over one pair of axes; labels may have two lines. from_zero: whether the y axis begins at zero."""

    curves: tuple[Curve, ...]
    y_label: str = ""
    x_label: str = ""
    from_zero: bool = False


@dataclass(frozen=True)
class Chart:
    """Rows of panels, None where one is left out.

    absent: spans (begin, end) in which the object was not detected [s]. over_time: whether the x axes are one, the
    clip's time.
    """

    title: str
    rows: tuple[tuple[Panel | None, ...], ...]
    over_time: bool = True
    absent: tuple[tuple[float, float], ...] = ()
    panel_height_in: float = 2.2

    def thinned(self, most: int) -> Chart:
        """Return the chart with at most `most` points a curve."""

        def of(panel: Panel | None) -> Panel | None:
            return panel and replace(panel, curves=tuple(curve.thinned(most) for curve in panel.curves))

        return replace(self, rows=tuple(tuple(map(of, row)) for row in self.rows))

    @property
    def columns(self) -> int:
        """Return the number of panels side by side."""
        return max(map(len, self.rows))

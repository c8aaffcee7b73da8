"""Write report.html: one file that opens offline, with numbers, intervals, plots and the overlay video."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vid2phys.engine.system import System
from vid2phys.io.files import write_text
from vid2phys.report.figures import draw, svg_text
from vid2phys.report.fit_charts import (
    BAND,
    actions_chart,
    impacts_chart,
    posterior_chart,
    residual_chart,
    trajectory_chart,
)
from vid2phys.report.interactive import plotly_js, specification
from vid2phys.types import Camera, Estimate, Result

_EMBEDDED_VIDEO_BYTES = 8_000_000
_PARTS = {
    "frame_noise": ("noise of single frames", "more frames, or a closer view"),
    "shared_error": ("errors that last from frame to frame", "a calibrated camera, a truer mesh, or a closer view"),
    "unknown_forces": ("unknown forces", "recorded actions"),
    "prior": ("priors", "a measured value (--set) or a narrower --prior"),
    "misfit": ("what the model leaves unexplained", "what the notes say"),
    "model_error": ("difference between two models of the body", "a finer mesh"),
    "law_of_impact": ("departures from the law of impact", "several throws in one run"),
    "other_minima": ("other motions that explain the clip", "more frames a second"),
}
"""Name of each part of a variance, and what makes it smaller."""
_SMALL_PART = 0.02  # of a variance: smaller parts are not named
_MOST_POINTS = 4000  # of a curve: trajectory.csv and actions.csv have all


@dataclass(frozen=True)
class Row:
    """A parameter as the report prints it."""

    name: str
    value: str
    unit: str
    interval: str
    note: str


def write_report(
    path: Path,
    result: Result,
    summary: dict[str, Any],
    system: System,
    camera: Camera,
    *,
    overlay: Path | None = None,
    title: str = "vid2phys",
) -> None:
    """Write the page. summary: what result.json holds. overlay: the video, embedded below 8 MB, else linked."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("vid2phys.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    charts = [trajectory_chart(result, system)]
    if result.impacts:
        charts.append(impacts_chart(result.impacts, result.trajectory.times_s))
    if result.actions is not None and result.actions.values.any():
        charts.append(actions_chart(result.actions, result.actions_std))
    if residuals := residual_chart(result, system, camera):
        charts.append(residuals)
    charts = [chart.thinned(_MOST_POINTS) for chart in charts]
    joint = [] if result.posterior is None else [posterior_chart(result.posterior, result.priors)]
    drawn = {chart.title: Markup(svg_text(draw(chart))) for chart in charts + joint}  # texts are escaped  # nosec
    sentences, facts = split_diagnostics(result.diagnostics)
    lost = np.flatnonzero(~result.observation.seen)
    page = environment.get_template("report.html.j2").render(
        title=title,
        result=result,
        rows=[_row(estimate) for estimate in result.parameters],
        widths=widths(result.parameters),
        impacts=_impact_rows(result.impacts),
        frames=len(result.trajectory.times_s),
        lost=_ranges(lost.tolist()),
        lost_count=len(lost),
        sentences=sentences,
        facts=[(name, text) for name, text in facts if name.replace(" ", "_") not in summary["fit"]],
        inputs=_inputs(summary["inputs"]),
        charts=charts,
        joint=joint,
        drawn=drawn,
        specifications={chart.title: specification(chart) for chart in charts + joint},
        plotly=plotly_js(),
        begin_s=float(result.trajectory.times_s[0]),
        video=_video(overlay),
        summary=summary,
        tables=[name for name in ("trajectory.csv", "actions.csv") if name in summary["files"].values()],
    )
    write_text(path, page)


def split_diagnostics(diagnostics: dict[str, object]) -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """Return the diagnostics of a fit: lists of sentences by heading, and single values as (name, text)."""
    sentences: dict[str, list[str]] = {}
    facts: list[tuple[str, str]] = []
    for name, value in diagnostics.items():
        heading = name.replace("_", " ")
        if isinstance(value, str):
            sentences.setdefault(heading, []).append(value)
        elif isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
            sentences[heading] = [str(item) for item in value]
        elif isinstance(value, dict):
            facts += [(f"{heading}: {key}", _text(item)) for key, item in value.items() if _is_plain(item)]
        elif _is_plain(value):
            facts.append((heading, _text(value)))
    return sentences, facts


def _inputs(inputs: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the inputs as (name, text): paths of files, and options that were set."""
    texts = []
    for name, value in inputs.items():
        if isinstance(value, dict) and "path" in value:
            value = value["path"]
        elif isinstance(value, dict):
            value = ", ".join(f"{key}={item}" for key, item in value.items())
        elif isinstance(value, list | tuple):
            value = ", ".join(map(str, value))
        if value not in ("", None):
            texts.append((name, str(value)))
    return texts


def _is_plain(value: object) -> bool:
    return isinstance(value, str | bool | int | float | np.number)


def _text(value: object) -> str:
    if isinstance(value, bool | str):
        return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else value
    number = float(value)  # type: ignore[arg-type]
    return f"{number:.4g}" if math.isfinite(number) else "unbounded"


def _row(estimate: Estimate) -> Row:
    note = estimate.source
    if not estimate.identifiable:
        note = "not identifiable from this clip"
    elif estimate.at_bound:
        note = "at its bound"
    if estimate.prior is not None:
        note += f"; prior {estimate.prior[0]:.4g} +- {estimate.prior[1]:.2g}"
    if estimate.bootstrap is not None:
        note += f"; bootstrap {estimate.bootstrap[0]:.4g} to {estimate.bootstrap[1]:.4g}"
    fitted = estimate.source in ("fitted", "nuisance")
    return Row(estimate.name, f"{estimate.value:.5g}", estimate.unit, estimate.interval if fitted else "", note)


def widths(parameters: Sequence[Estimate]) -> list[str]:
    """Return a line for each interval: the parts of its variance, the largest first, and what makes that one smaller.

    `correlation` may be below zero. It is added to `shared_error`, whose errors it belongs to.
    """
    lines = []
    for estimate in parameters:
        parts = dict(estimate.parts)
        if "correlation" in parts:
            parts["shared_error"] = parts.get("shared_error", 0.0) + parts.pop("correlation")
        ranked = [part for part in sorted(parts.items(), key=lambda part: -part[1]) if part[1] > _SMALL_PART]
        if ranked:
            named = ", ".join(f"{_text(round(100.0 * share))} % {_PARTS[name][0]}" for name, share in ranked)
            lines.append(f"{estimate.name}: {named}. Narrower by {_PARTS[ranked[0][0]][1]}.")
    return lines


def _impact_rows(impacts: Sequence[Mapping[str, float]]) -> list[tuple[str, ...]]:
    """Return the impacts that `result.json` lists as cells: time, approach, both impulses with 95 % bounds, count."""
    return [
        (
            f"{each['time_s']:.4f} ± {BAND * each['time_std_s']:.4f}",
            f"{each['approach_m_s']:.2f}",
            *(
                f"{each[f'{name}_impulse_m_s']:.3f} ± {BAND * each[f'{name}_impulse_std_m_s']:.3f}"
                for name in ("normal", "friction")
            ),
            str(each["count"]),
        )
        for each in impacts
    ]


def _ranges(indices: list[int]) -> str:
    """Return indices as text, 3, 4, 5, 9 as '3-5, 9'."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def _video(path: Path | None) -> dict[str, str] | None:
    """Return the video as a data address when it is small, else its name: the file is beside the report."""
    if path is None or not path.is_file():
        return None
    if path.stat().st_size > _EMBEDDED_VIDEO_BYTES:
        return {"source": path.name, "name": path.name}
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return {"source": f"data:video/mp4;base64,{data}", "name": path.name}

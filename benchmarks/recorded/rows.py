"""Rows of the table of recorded data, in the form that all tables share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.table import row
from vid2phys.solvers.recorded import RecordedFit
from vid2phys.types import Array, Estimate

Rows = list[dict[str, Any]]


def number(case: str, system: str, method: str, metric: str, value: float, unit: str, **more: Any) -> dict[str, Any]:
    """Return one number of a case."""
    return row(system, method, metric, value, unit, case=case, **more)


def estimate(case: str, system: str, method: str, found: Estimate, published: float | None = None) -> dict[str, Any]:
    """Return a fitted parameter with its interval, and whether that holds a published value."""
    more: dict[str, Any] = {"ci95": [_rounded(bound) for bound in found.ci95], "identifiable": found.identifiable}
    if published is not None:
        more |= {"published": published, "published_in_interval": found.ci95[0] <= published <= found.ci95[1]}
    return number(case, system, method, found.name, found.value, found.unit, **more)


def fitted(case: str, system: str, method: str, found: RecordedFit, published: dict[str, float] | None = None) -> Rows:
    """Return all that a fit found, how far off it stays, and how long its residuals last."""
    known = published or {}
    rows = [estimate(case, system, method, e, known.get(e.name)) for e in found.estimates if e.source == "fitted"]
    rows += [estimate(case, system, method, e) | {"metric": f"offset of {e.name}"} for e in found.offsets.values()]
    if found.whiteness is not None:
        lasting, warned = found.whiteness.frames, float(not found.whiteness.white)
        rows.append(number(case, system, method, "residuals_last", lasting, "frames", p_value=found.whiteness.p_value))
        rows.append(number(case, system, method, "warned_that_the_model_does_not_fit", warned, "1"))
    return rows


def median(
    case: str, system: str, method: str, metric: str, values: Array, unit: str, **more: Any
) -> dict[str, Any]:  # fmt: skip
    """Return a median with the 95 % interval of its bootstrap."""
    return number(case, system, method, metric, float(np.median(values)), unit, n=len(values),
                  ci95=_bootstrap(values), **more)  # fmt: skip


def _bootstrap(values: Array, repeats: int = 2000) -> list[float | None]:
    rng = np.random.default_rng(0)
    drawn = np.median(np.asarray(values)[rng.integers(0, len(values), (repeats, len(values)))], axis=1)
    return [_rounded(float(q)) for q in np.quantile(drawn, [0.025, 0.975])]


def _rounded(value: float) -> float | None:
    return float(f"{value:.5g}") if np.isfinite(value) else None


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return a line a number."""
    lines = ["| case | method | what | value | 95 % interval | published |", "|---|---|---|---|---|---|"]
    for r in rows:
        unit = "" if r["unit"] == "1" else f" {r['unit']}"
        value = f"{r['value']:.4g}{unit}" if r["value"] is not None else r.get("reason", "")
        low, high = r.get("ci95") or (None, None)
        known = low is not None or high is not None
        interval = f"{_cell(low)} to {_cell(high)}" if known else ""
        published = r.get("published")
        lines.append(f"| {r['case']} | {r['method']} | {r['metric']} | {value} | {interval} | {_cell(published)} |")
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"

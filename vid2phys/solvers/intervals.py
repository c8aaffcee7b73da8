"""From a fit's covariance to intervals, and to words: what the clip determines and what would settle the rest."""

from __future__ import annotations

import numpy as np
from scipy.stats import t as student_t

from vid2phys.types import Array, Estimate, Parameter, Parameters

WEAK_STD = 1.0  # in solver coordinates (natural logarithm): wider than a factor e either way says nothing
SETTLES = {
    "mass": "mass does not show in free flight: give recorded --actions, or a clip with contact",
    "thrust_scale": "give --set mass=..., or a clip with a known payload",
    "drag": "film faster motion: drag grows with speed",
    "gravity": "gravity is only seen relative to thrust: give --set mass=...",
}


def estimates(
    parameters: Parameters, asked: tuple[str, ...], covariance: Array, null_directions: Array, degrees: float
) -> tuple[Estimate, ...]:
    """Estimates of all parameters: fitted ones with 95 % t-intervals, the others as given.

    covariance [P, P] and null_directions [*, P] in solver coordinates, in the order of the free parameters (further
    columns are ignored); degrees: of freedom of the fit.
    """
    quantile = float(student_t.ppf(0.975, max(degrees, 1.0)))
    found: dict[str, Estimate] = {}
    free = [p for p in parameters if p.free]
    for j, parameter in enumerate(free):
        null = len(null_directions) > 0 and bool(np.abs(null_directions[:, j]).max() > 1e-3)
        found[parameter.name] = _estimate(parameter, float(covariance[j, j]) ** 0.5, null, quantile)
    rest = {p.name: Estimate(p.name, p.unit, p.value, (p.value, p.value), True, source=p.source) for p in parameters}
    return tuple(
        found[p.name] if p.name in asked else _as_nuisance(found.get(p.name, rest[p.name])) for p in parameters
    )


def _as_nuisance(estimate: Estimate) -> Estimate:
    if estimate.source != "fitted":
        return estimate
    return Estimate(
        estimate.name,
        estimate.unit,
        estimate.value,
        estimate.ci95,
        estimate.identifiable,
        estimate.at_bound,
        "nuisance",
    )


def _estimate(parameter: Parameter, std: float, null: bool, quantile: float) -> Estimate:
    centre = parameter.to_free(parameter.value)
    width = np.inf if null else quantile * std
    with np.errstate(over="ignore"):
        low, high = parameter.from_free(centre - width), parameter.from_free(centre + width)
    weak = parameter.transform == "log" and std > WEAK_STD
    span = abs(parameter.value) * 1e-6 + 1e-15
    at_bound = parameter.value - parameter.lower < span or parameter.upper - parameter.value < span
    return Estimate(
        parameter.name, parameter.unit, parameter.value, (low, high), not (null or weak), at_bound, "fitted"
    )


def identifiability(names: tuple[str, ...], null_directions: Array, found: tuple[Estimate, ...]) -> list[str]:
    """Sentences on what this clip cannot determine, and what would settle it."""
    lines = []
    for direction in null_directions:
        involved = [(n, d) for n, d in zip(names, direction, strict=False) if abs(d) > 1e-3]
        lines.append(_combination(involved))
    for estimate in found:
        if estimate.source == "fitted" and not estimate.identifiable and not len(null_directions):
            lines.append(
                f"{estimate.name} is determined to no better than a factor of e. {SETTLES.get(estimate.name, '')}"
            )
        if estimate.at_bound and estimate.source == "fitted":
            lines.append(f"{estimate.name} ended at a bound ({estimate.value:.4g} {estimate.unit})")
    return lines


def _combination(involved: list[tuple[str, float]]) -> str:
    names = [name for name, _ in involved]
    remedy = next((SETTLES[name] for name in names if name in SETTLES), "give one of them with --set")
    if len(involved) == 1:
        return f"{names[0]} is not determined by this clip. {remedy}"
    if len(involved) == 2 and abs(abs(involved[0][1]) - abs(involved[1][1])) < 1e-2:
        kind = "ratio" if involved[0][1] * involved[1][1] > 0 else "product"
        return f"{names[0]} and {names[1]} are determined only as a {kind}: give one of them with --set"
    powers = ", ".join(f"{name} x s^{weight / involved[0][1]:.2g}" for name, weight in involved)
    return f"the fit does not change when all of these are scaled together: {powers}. {remedy}"

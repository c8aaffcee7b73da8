"""From a fit's covariance to intervals, and to sentences: what the clip determines, and what would determine the rest.

Method: Student-t intervals in solver coordinates (logarithms where a parameter has one). Null directions of the
information are named by the products of parameters that a fit cannot tell apart.

Limits: intervals are those of the linear model at the optimum, cut at the bounds of the parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from scipy.stats import t as student_t

from vid2phys.solvers import interval_parts
from vid2phys.types import Array, Estimate, Parameter, Parameters, Posterior

NOTHING_NEW = 0.98  # width over that of the prior, above which the clip adds nothing
REMEDY = "give one of them with --set"
_INVOLVED = 1e-3  # least component of a unit direction along a parameter that counts
_SPELLED_OUT, _SHOWN = 6, 3  # most parameters of a direction that are named with powers; of more, how many are named
_STEP = 1e-5  # of derivatives, in solver coordinates
_OFF = 0.02  # tolerance of a power
WEAK_STD = 1.0  # in solver coordinates (natural logarithm): an interval beyond a factor of e is no result
REMEDIES = {
    "mass": "mass does not show in free flight: give recorded --actions, or a clip with contact",
    "thrust_scale": "give --set mass=..., or a clip with a known payload",
    "drag": "film faster motion: drag grows with speed",
    "gravity": "gravity is only seen relative to thrust: give --set mass=...",
    "scale": "scale and depth show only as a ratio unless something happens in metres: film free flight under gravity, "
    "give recorded --actions with --set mass=..., or --prior scale=1+-0.05",
    "focal": "focal length and distance cannot be told apart on a body that is far away: film closer, or give --prior "
    "focal=...",
    **{
        f"camera_{what}_{axis}": "where a camera stands and heads shows on a body at a known place alone: leave it "
        "out, or give a --prior"
        for what in ("turn", "move")
        for axis in "xyz"
    },
}


def estimates(
    parameters: Parameters,
    asked: tuple[str, ...],
    covariance: Array,
    null_directions: Array,
    degrees: float,
    priors: dict[str, tuple[float, float]] | None = None,
    parts: Mapping[str, Array] | None = None,
    quantiles: Array | None = None,
) -> tuple[Estimate, ...]:
    """Return estimates of all parameters: fitted ones with 95 % t-intervals, the others as given.

    covariance [P, P] and null_directions [*, P] are in solver coordinates, in the order of the free parameters; further
    columns are ignored. degrees: of freedom of the fit. priors: as those of a `Problem`. A parameter whose interval is
    as wide as its prior is not identifiable: the data add nothing. parts: what the diagonal of the covariance is made
    of, [P] each (`interval_parts`). quantiles: half widths [P] over standard deviations (`marginal_quantiles`); None
    for those of Student's t.
    """
    quantile = float(student_t.ppf(0.975, max(degrees, 1.0)))
    quantiles = np.full(len(covariance), quantile) if quantiles is None else quantiles
    found: dict[str, Estimate] = {}
    free = [p for p in parameters if p.free]
    for j, parameter in enumerate(free):
        null = len(null_directions) > 0 and bool(np.abs(null_directions[:, j]).max() > 1e-3)
        prior = (priors or {}).get(parameter.name)
        estimate = _estimate(parameter, float(covariance[j, j]) ** 0.5, null, float(quantiles[j]), prior)
        found[parameter.name] = estimate if null else replace(estimate, parts=interval_parts.shares(parts or {}, j))
    rest = {p.name: Estimate(p.name, p.unit, p.value, (p.value, p.value), True, source=p.source) for p in parameters}
    return tuple(
        found[p.name] if p.name in asked else _as_nuisance(found.get(p.name, rest[p.name])) for p in parameters
    )


def derived(
    function: Callable[[Array], dict[str, tuple[float, str]]], parameters: Parameters, covariance: Array, degrees: float
) -> tuple[Estimate, ...]:
    """Return what follows from fitted parameters, with 95 % intervals to first order.

    function: returns values and units by name, from a vector of all parameters [P]. The other arguments are those of
    `estimates`.
    """
    quantile = float(student_t.ppf(0.975, max(degrees, 1.0)))
    at = parameters.free_vector()
    ahead, behind = ([function(parameters.fitted_at(at + s * step).vector) for step in _STEP * np.eye(len(at))]
                     for s in (1.0, -1.0))  # fmt: skip
    found = []
    for name, (value, unit) in function(parameters.vector).items():
        slope = np.array([(a[name][0] - b[name][0]) / (2.0 * _STEP) for a, b in zip(ahead, behind, strict=True)])
        width = quantile * float(np.sqrt(max(slope @ covariance[: len(at), : len(at)] @ slope, 0.0)))
        found.append(Estimate(name, unit, value, (value - width, value + width), bool(np.isfinite(width))))
    return tuple(found)


def posterior(parameters: Parameters, found: tuple[Estimate, ...], covariance: Array) -> Posterior | None:
    """Return the joint distribution of the asked parameters that are identifiable, or None.

    Arguments are those of `estimates`, and what it returned.
    """
    known = {e.name for e in found if e.source == "fitted" and e.identifiable and np.isfinite(e.ci95).all()}
    free = [p for p in parameters if p.free]
    kept = [j for j, p in enumerate(free) if p.name in known]
    if not kept:
        return None
    return Posterior(
        tuple(free[j].name for j in kept),
        tuple(free[j].unit for j in kept),
        tuple(free[j].transform == "log" for j in kept),
        parameters.free_vector()[kept],
        covariance[np.ix_(kept, kept)],
    )


def between_ends(theta: Array, evidence: Array) -> Array:
    """Return the covariance [P, P] of the ends of several searches about the best one.

    Args:
        theta: [E, P] parameters of the ends.
        evidence: [E] of the ends, by which each counts, nats.
    """
    off, share = theta - theta[int(evidence.argmax())], np.exp(evidence - evidence.max())
    return np.asarray((share[:, None] * off).T @ off / share.sum())


def _as_nuisance(estimate: Estimate) -> Estimate:
    if estimate.source != "fitted":
        return estimate
    return replace(estimate, source="nuisance")


def _estimate(
    parameter: Parameter, std: float, null: bool, quantile: float, prior: tuple[float, float] | None
) -> Estimate:
    interval = parameter.interval(np.inf if null else quantile * std)
    weak = parameter.transform == "log" and std > WEAK_STD
    known = None
    if prior is not None:
        mean = parameter.from_free(prior[0])
        known = mean, parameter.spread_from_free(mean, prior[1])
        weak = std > NOTHING_NEW * prior[1]
    span = abs(parameter.value) * 1e-6 + 1e-15
    at_bound = parameter.value - parameter.lower < span or parameter.upper - parameter.value < span
    return Estimate(
        parameter.name, parameter.unit, parameter.value, interval, not (null or weak), at_bound, "fitted", known
    )


def identifiability(
    names: tuple[str, ...],
    null_directions: Array,
    found: tuple[Estimate, ...],
    parameters: Parameters | None = None,
    remedies: Mapping[str, str] = REMEDIES,
    source: str = "this clip",
) -> list[str]:
    """Return sentences on what a clip cannot determine, and what would determine it.

    null_directions: [*, P] in solver coordinates, of what is called `names`. parameters: which of them these are
    logarithms of (None: of all). remedies: what else determines a parameter, by name. source: what was fitted.
    """
    lines = []
    undetermined: dict[str, list[str]] = {}  # parameters without any information, by remedy
    crowds: list[list[str]] = []  # directions of many parameters
    for direction in null_directions:
        relative = np.array([_relative(n, d, parameters) for n, d in zip(names, direction, strict=False)])
        sizes = np.where(np.isfinite(relative), np.abs(relative), np.abs(direction[: len(relative)]))
        there = sizes > _INVOLVED * max(sizes.max(initial=0.0), _INVOLVED)
        involved = [(n, r) for n, r, involves in zip(names, relative, there, strict=False) if involves]
        changes = np.array([change for _, change in involved])
        if len(involved) > 1 and np.isfinite(changes).all() and np.ptp(changes) < _OFF * np.abs(changes).max():
            lines.append(_ratios([name for name, _ in involved]))
        elif len(involved) == 1:
            undetermined.setdefault(remedies.get(involved[0][0], REMEDY), []).append(involved[0][0])
        elif len(involved) > _SPELLED_OUT:
            crowds.append([name for name, _ in involved])
        elif involved:
            lines.append(_combination(involved, remedies))
    if crowds:
        lines.append(
            _crowded([name for name in names if any(name in crowd for crowd in crowds)], len(crowds), remedies)
        )
    for remedy, several in undetermined.items():
        lines.append(f"{_listed(sorted(several))} not determined by {source}. {remedy}")
    for estimate in found:
        if estimate.source != "fitted":
            continue
        more = remedies.get(estimate.name, "")
        if not estimate.identifiable and estimate.prior is not None:
            mean, std = estimate.prior
            prior = f"{mean:.4g} +- {std:.2g}"
            lines.append(f"{estimate.name} is known by its prior alone ({prior}): {source} adds nothing. {more}")
        elif not estimate.identifiable and not len(null_directions):
            lines.append(f"{estimate.name} is determined to no better than a factor of e. {more}")
        if estimate.at_bound:
            lines.append(f"{estimate.name} ended at a bound ({estimate.value:.4g} {estimate.unit})")
    return lines


def _listed(names: list[str]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} are"


def _remedy(names: list[str], remedies: Mapping[str, str]) -> str:
    return next((remedies[name] for name in names if name in remedies), REMEDY)


def _crowded(names: list[str], ways: int, remedies: Mapping[str, str]) -> str:
    some = f"{', '.join(names[:_SHOWN])} and {len(names) - _SHOWN} more"
    how = "one way" if ways == 1 else f"{ways} ways"
    return f"{some} can be changed together, in {how}, without changing the fit. {_remedy(names, remedies)}"


def _ratios(names: list[str]) -> str:
    if len(names) == 2:
        return f"{names[0]} and {names[1]} are determined only as a ratio: {REMEDY}"
    return f"only the ratios of {', '.join(names[:-1])} and {names[-1]} are determined: {REMEDY}"


def _combination(involved: list[tuple[str, float]], remedies: Mapping[str, str]) -> str:
    """Say of which parameters a direction is; each with its change in logarithm, infinite where it has none."""
    names, relative = [name for name, _ in involved], np.array([change for _, change in involved])
    remedy = _remedy(names, remedies)
    powers = relative / np.copysign(np.abs(relative).min(), relative[0]) if np.isfinite(relative).all() else relative
    if not _is_law(powers):
        return f"{', '.join(names[:-1])} and {names[-1]} can be changed together without changing the fit. {remedy}"
    if len(involved) == 2 and abs(abs(powers[1]) - abs(powers[0])) < _OFF:
        return f"{names[0]} and {names[1]} are determined only as a product: {REMEDY}"
    scaled = ", ".join(f"{name} x s^{power:.2g}" for name, power in zip(names, powers, strict=True))
    return f"the fit does not change when all of these are scaled together: {scaled}. {remedy}"


def _is_law(powers: Array) -> bool:
    """Return whether powers are those of a product that the fit depends on: halves or thirds of whole numbers.

    A direction is that of small changes. Of a sum, of angles and of places, it is no power beyond these.
    """
    if not np.isfinite(powers).all():
        return False
    off = [np.abs(parts * powers - np.round(parts * powers)) / parts for parts in (2, 3)]
    return bool((np.minimum(*off) < _OFF).all())


def _relative(name: str, change: float, parameters: Parameters | None) -> float:
    """Return a change in solver coordinates as one of the logarithm; infinite where there is none."""
    if parameters is None or name not in parameters.names or parameters[name].transform == "log":
        return change
    parameter = parameters[name]
    scales = parameter.value != 0.0 and parameter.unit != "rad" and parameter.lower >= 0.0
    return change / parameter.value if scales else np.inf if change != 0.0 else 0.0

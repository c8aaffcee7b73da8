"""Likelihood along one parameter, where its curvature at the best fit says too little.

Purpose: two parameters that exchange along a curve (friction and its viscous part, for a body that slides for a part of
its way) have intervals that a tangent at the best fit does not hold.

Method: the parameter is fixed at several values, and all others are fitted. The covariance is that of the mixture of
these fits, each weighted by its likelihood and by its share of the line. Values lie a standard deviation by curvature
apart about the best one, then farther and farther apart, until the likelihood has fallen or a bound is reached.

Limits: how well a fit determines the other unknowns does not count in its weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vid2phys.engine.parallel import in_processes
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.solution import Solution
from vid2phys.types import Array, Parameters

_PLACES = np.arange(1, 4)  # in spacings, on one side in one round
_SPACINGS = 0.02, 0.5  # least and largest one, in solver coordinates
_GROWTH, _ROUNDS = 2.0, 5  # of the spacing from round to round; so many rounds at most
_FALLEN = 3.0  # nats below the best: the end of what counts
_FEWEST = 3  # fits of a profile
_ONE_SIDED = 1.35  # nats below the best: a one-sided 95 % interval


@dataclass(frozen=True)
class Profile:
    """covariance: [P, P] of all free parameters. least: value of which larger ones explain the clip as well (95 %);
    None where the likelihood falls on both sides."""

    covariance: Array
    least: float | None


def along(problem: Problem, best: Solution, name: str, fit: Callable[[Parameters], Solution | None]) -> Profile | None:
    """Return the profile along a free parameter.

    Args:
        problem: whose fit `best` is.
        best: the best fit.
        name: of the parameter.
        fit: all other parameters from those given, the parameter fixed; None where there is no fit.

    Returns:
        The profile, None where too few values could be fitted.
    """
    parameters = best.parameters
    index = parameters.free_names.index(name)
    others = tuple(each for each in parameters.free_names if each != name)
    middle = float(parameters.free_vector()[index])
    spacing = float(np.clip(np.sqrt(best.theta_covariance[index, index]), *_SPACINGS))

    def fixed(value: float) -> Solution | None:
        return fit(parameters.with_values({name: value}, source="fitted").with_free(others))

    ends: dict[float, Solution] = {}
    new, reached = np.array([middle]), {-1.0: middle, 1.0: middle}  # by the side of the line
    for _ in range(_ROUNDS + 1):
        fits = in_processes(fixed, [parameters[name].from_free(place) for place in new])
        ends |= {place: end for place, end in zip(new.tolist(), fits, strict=True) if end is not None}
        costs = {place: _cost(problem, end) for place, end in ends.items()}
        least = min(costs.values(), default=np.inf)
        reached = {side: end for side, end in reached.items() if costs.get(end, np.inf) < least + _FALLEN}
        new = np.array([end + side * spacing * place for side, end in reached.items() for place in _PLACES])
        new = _within(parameters, name, new)
        reached = {side: side * max(side * place for place in (end, *new)) for side, end in reached.items()}
        spacing = min(_GROWTH * spacing, _SPACINGS[1])
    if len(ends) < _FEWEST:
        return None
    places = np.array(sorted(ends))
    rises = np.array([costs[place] for place in places]) - least
    reported = int(np.abs(places - middle).argmin())
    covariance = _covariance(index, places, rises, [ends[place] for place in places], about=reported)
    return Profile(covariance, _least(parameters, name, places, rises))


def _within(parameters: Parameters, name: str, places: Array) -> Array:
    """Return those of some solver coordinates that are within the bounds of a parameter."""
    p = parameters[name]
    values = np.array([p.from_free(place) for place in places])
    return places[(values >= p.lower) & (values <= p.upper)]


def _cost(problem: Problem, end: Solution) -> float:
    """Return the cost of a fit with that of its priors, nats."""
    off, _ = problem.prior(end.parameters.free_names, end.parameters.free_vector())
    return float(end.loss + 0.5 * off @ off)


def _covariance(index: int, places: Array, rises: Array, ends: Sequence[Solution], *, about: int) -> Array:
    """Return the covariance [P, P] of the mixture about the fit at one of the places [E]."""
    theta = np.array(
        [np.insert(end.parameters.free_vector(), index, place) for place, end in zip(places, ends, strict=True)]
    )
    weights = np.exp(-rises) * np.gradient(places)
    weights = weights / weights.sum()
    off = theta - theta[about]
    total = (weights[:, None] * off).T @ off
    rest = np.delete(np.arange(theta.shape[1]), index)
    total[np.ix_(rest, rest)] += np.einsum("e,epq->pq", weights, np.array([end.theta_covariance for end in ends]))
    return np.asarray(total)


def _least(parameters: Parameters, name: str, places: Array, rises: Array) -> float | None:
    """Return the value below which fits are unlikely (95 %); None where those of large values are, too."""
    if rises[-1] > _ONE_SIDED or rises[0] < _ONE_SIDED:
        return None
    first = int(np.flatnonzero(rises < _ONE_SIDED)[0])
    place = np.interp(-_ONE_SIDED, -rises[first - 1 : first + 1], places[first - 1 : first + 1])
    return float(parameters[name].from_free(float(place)))

"""Where a fit to recordings begins: the first state of a recording, by local fits of what was recorded.

A parabola is fitted to the first frames of each coordinate, as many as it explains within the noise. Its value at the
first time is the coordinate, and its slope the rate that was not recorded.

Limits: what was not recorded, and is no rate of anything recorded, stays where the caller has it.
"""

from __future__ import annotations

import numpy as np

from vid2phys.engine.layout import NO_RATE, rates
from vid2phys.engine.system import System
from vid2phys.types import Array

_DEGREE = 2
_FEWEST, _GROWTH = 5, 1.4  # frames of the shortest window, and how much longer the next one is
_WITHIN = 1.5  # standard deviations: a parabola with larger residuals does not explain its window


def first_state(system: System, times_s: Array, seen: Array, std: Array, known: Array) -> Array:
    """Return the state [N] at the first time.

    times_s: [T]. seen: states [T, N], NaN where nothing was seen. std: [D] of the noise, in the tangent space. known:
    the state [N] in what the recording does not say.
    """
    reference = reference_state(seen, known)
    moved = np.asarray(system.local(reference, seen), dtype=float)
    rate_of, tangent = rates(system.tangent_names), np.zeros(moved.shape[1])
    recorded = np.isfinite(moved).any(axis=0)
    for d in np.flatnonzero(recorded):
        value, slope = _at_first(times_s, moved[:, d], float(std[d]))
        tangent[d] = value
        rate = rate_of[d]
        if rate != NO_RATE and not recorded[rate]:
            tangent[rate] = slope - _rate_in(system, reference, int(rate))
    return np.asarray(system.retract(reference, tangent), dtype=float)


def reference_state(seen: Array, known: Array) -> Array:
    """Return the state [N] of the first values seen of each coordinate, `known` where there is none."""
    finite = np.isfinite(seen)
    first = seen[finite.argmax(axis=0), np.arange(seen.shape[1])]
    return np.where(finite.any(axis=0), first, known)


def _rate_in(system: System, state: Array, rate: int) -> float:
    """Return the value that a state has of the tangent coordinate `rate`, which is flat."""
    return float(state[system.state_names.index(system.tangent_names[rate])])


def _at_first(times_s: Array, values: Array, std: float) -> tuple[float, float]:
    """Return value and slope at the first time of a coordinate [T], from the longest window that a parabola fits."""
    finite = np.isfinite(values)
    times, values = (times_s - times_s[0])[finite], values[finite]
    if len(values) < _FEWEST:
        return float(values[0]), 0.0
    length, found = _FEWEST, _parabola(times[:_FEWEST], values[:_FEWEST])[0]
    while (length := int(np.ceil(_GROWTH * length))) <= len(values):
        longer, residual = _parabola(times[:length], values[:length])
        if residual > _WITHIN * std:
            break
        found = longer
    return float(found(0.0)), float(found.deriv()(0.0))


def _parabola(times: Array, values: Array) -> tuple[np.polynomial.Polynomial, float]:
    """Return the parabola nearest to the values, and the standard deviation of its residuals."""
    fit = np.polynomial.Polynomial.fit(times, values, _DEGREE)
    return fit, float(np.sqrt(np.sum((fit(times) - values) ** 2) / (len(times) - _DEGREE - 1)))

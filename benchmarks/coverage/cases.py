"""What the kinds of motions share: a case and its estimates, and errors that last, as a tracker's do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vid2phys.types import Array, Estimate, Result, Status


@dataclass(frozen=True)
class Case:
    """A fit of one random motion.

    Attributes:
        truth: true values by name of the parameter.
        found: estimates by name, with 95 % intervals; empty where the fit failed.
        status: of the fit.
    """

    truth: dict[str, float]
    found: dict[str, Estimate]
    status: Status

    @staticmethod
    def of(result: Result, truth: dict[str, float]) -> Case:
        """Return the case of a result of `identify`; a fit that did not converge has no estimates."""
        useful = result.status in (Status.CONVERGED, Status.DOUBTFUL)
        found = {each.name: each for each in result.parameters if each.name in truth and useful}
        return Case(truth, found, result.status)


def lasting_errors(rng: np.random.Generator, times_s: Array, correlation_s: Array) -> Array:
    """Draw Gauss-Markov processes [T, D] of unit variance. correlation_s: [D], s."""
    out = np.empty((len(times_s), len(correlation_s)))
    out[0] = rng.normal(size=len(correlation_s))
    for t in range(1, len(times_s)):
        keep = np.exp(-(times_s[t] - times_s[t - 1]) / correlation_s)
        out[t] = keep * out[t - 1] + np.sqrt(1.0 - keep**2) * rng.normal(size=len(correlation_s))
    return out

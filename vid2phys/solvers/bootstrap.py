"""The parametric bootstrap: how far a fit moves when its clip is measured again.

Purpose: an analytic interval is that of a linear model with known scales of its errors. Here measurements are drawn
from the error model about the fitted motion, and fitted again with all hyperparameters. Their spread shows what the
linear model leaves out.

Method: Efron and Tibshirani, "An introduction to the bootstrap", 1993, chapter 6.5. Forces stay as they were fitted:
a motion under other forces would be another motion. What they, priors and models add is taken from the analytic split.

Limits: an error model that is wrong stays so; nothing is rendered or tracked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t as student_t

from vid2phys.errors import SimulationError
from vid2phys.solvers.cramer_rao import noisy
from vid2phys.solvers.interval_parts import CORRELATION, FRAME_NOISE, SHARED_ERROR
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array, Observation

OF_MEASUREMENTS = (FRAME_NOISE, SHARED_ERROR, CORRELATION)


@dataclass(frozen=True)
class Resampled:
    """Fitted parameters [K, P] of K clips measured again, in solver coordinates, and how many fits came to nothing."""

    values: Array
    failed: int

    def half_widths(self, parts: Mapping[str, Array]) -> Array:
        """Return half widths [P] of 95 % intervals in solver coordinates; infinite without two fits.

        parts: analytic variances [*], of which those that no measurement changes are added (`interval_parts`).
        """
        count, unknowns = self.values.shape
        if count < 2:
            return np.full(unknowns, np.inf)
        rest = sum((part[:unknowns] for name, part in parts.items() if name not in OF_MEASUREMENTS), np.zeros(unknowns))
        return np.asarray(student_t.ppf(0.975, count - 1) * np.sqrt(self.values.var(axis=0, ddof=1) + rest))


def resample(
    problems: Sequence[Problem],
    states: Sequence[Array],
    refit: Callable[[list[Problem]], Array],
    count: int,
    *,
    scales: tuple[float, float] = (1.0, 1.0),
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Resampled:
    """Draw and fit the measurements of clips `count` times.

    Args:
        problems: of the clips, with fitted parameters.
        states: fitted states [F, N] of each clip.
        refit: returns the fitted parameters [P] in solver coordinates.
        count: number of resamples.
        scales: of the errors of single frames, and of those that last, over the stated ones.
        seed: of the drawn errors.
        progress: receives the number of fits done.
    """
    rng = np.random.default_rng(seed)
    rows: list[Array] = []
    for done in range(count):
        drawn = [_measured_again(problem, at, scales, rng) for problem, at in zip(problems, states, strict=True)]
        with suppress(SimulationError):  # a draw may have no fit; the others count
            rows.append(refit(drawn))
        if progress is not None:
            progress(done + 1)
    unknowns = len(problems[0].parameters.free_names)
    return Resampled(np.array(rows).reshape(len(rows), unknowns), count - len(rows))


def _measured_again(problem: Problem, states: Array, scales: tuple[float, float], rng: np.random.Generator) -> Problem:
    """Return the problem with other measurements along states, under the error model that it has."""
    seen = problem.observation
    drawn = noisy(replace(problem, observation=_scaled(seen, scales)), states, rng).observation
    measured = seen.configuration
    if measured is not None and drawn.configuration is not None:
        measured = replace(measured, configuration=drawn.configuration.configuration)
    return replace(problem, observation=replace(seen, bearings=drawn.bearings, configuration=measured))


def _scaled(seen: Observation, scales: tuple[float, float]) -> Observation:
    own, shared = scales
    measured = seen.configuration
    if measured is not None:
        basis = shared * measured.shared_basis
        measured = replace(measured, covariance=own**2 * measured.covariance, shared_basis=basis)
    basis = shared * seen.shared_basis
    return replace(seen, covariance=own**2 * seen.covariance, shared_basis=basis, configuration=measured)

"""The cross-entropy method: a search for rugged costs, with intervals from the same rollouts.

Purpose: a tiny change of a parameter may change where a body comes to rest after many impacts, so that derivatives say
nothing about the cost a little further on.

Method: samples of one batch are drawn about the best of the batch before (Rubinstein and Kroese, "The cross-entropy
method", 2004). The cost of each recording is kept apart. Intervals follow from drawing recordings again
(Efron's bootstrap), without a further rollout.

Limits: a few unknowns; the number of samples grows with each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vid2phys.types import Array

_ELITE = 0.25  # share of the samples about which the next ones are drawn
_MEMORY = 0.3  # weight of the former covariance
_WIDER = 2.0  # spread of the last samples, which intervals need, over that of the best ones
_AVERAGED = 8  # samples whose mean is the optimum


@dataclass(frozen=True)
class Found:
    """The result of a search. best: [P]. samples: [S, P]. costs: [S, G], of each recording."""

    best: Array
    samples: Array
    costs: Array

    def resampled(self, repeats: int, rng: np.random.Generator) -> Array:
        """Return the optima [repeats, P] for recordings drawn again."""
        count = self.costs.shape[1]
        drawn = rng.multinomial(count, np.full(count, 1.0 / count), repeats) / count
        # with n recordings the mean of n draws varies by sqrt((n - 1) / n) of what it should
        weights = 1.0 / count + np.sqrt(count / max(1.0, count - 1.0)) * (drawn - 1.0 / count)
        return np.array([_optimum(self.samples, self.costs @ w) for w in weights])


def search(
    costs: Callable[[Array], Array],
    centre: Array,
    spread: Array,
    lower: Array,
    upper: Array,
    rng: np.random.Generator,
    *,
    size: int = 40,
    generations: int = 8,
) -> Found:
    """Lower the mean over recordings of `costs`, [B, P] -> [B, G].

    centre, spread: [P], mean and standard deviation of the first samples. lower, upper: [P], to which samples are
    clipped. Costs that are not finite count as the worst.
    """
    mean, covariance = np.asarray(centre, dtype=float), np.diag(np.asarray(spread, dtype=float) ** 2)
    samples, found = np.zeros((0, len(mean))), np.zeros((0, 0))
    for generation in range(generations + 1):
        widened = covariance * (_WIDER**2 if generation == generations else 1.0)
        drawn = np.clip(rng.multivariate_normal(mean, widened, size), lower, upper)
        of_drawn = costs(drawn)
        worst = np.nanmax(np.where(np.isfinite(of_drawn), of_drawn, np.nan))
        of_drawn = np.where(np.isfinite(of_drawn), of_drawn, worst)
        samples = np.concatenate([samples, drawn])
        found = np.concatenate([found.reshape(-1, of_drawn.shape[1]), of_drawn])
        if generation < generations:
            elite = drawn[np.argsort(of_drawn.mean(axis=1))[: max(4, round(_ELITE * size))]]
            mean = elite.mean(axis=0)
            covariance = _MEMORY * covariance + (1.0 - _MEMORY) * np.cov(elite.T).reshape(covariance.shape)
            covariance += 1e-6 * np.diag(np.asarray(spread, dtype=float) ** 2)
    return Found(_optimum(samples, found.mean(axis=1)), samples, found)


def _optimum(samples: Array, cost: Array) -> Array:
    """Return the mean of the best samples: one alone is the luckiest of a rugged cost."""
    return np.asarray(samples[np.argsort(cost)[:_AVERAGED]].mean(axis=0), dtype=float)

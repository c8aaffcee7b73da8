"""The population search: rugged costs, limits, and the spread of the optimum over recordings drawn again."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.recorded.cross_entropy import search
from vid2phys.types import Array

WIDE = np.full(2, 10.0)


def test_the_optimum_of_a_rugged_cost_is_found() -> None:
    """A bowl with ripples, in whose hundred hollows a descent would end."""

    def costs(x: Array) -> Array:
        far = x - [1.5, -0.7]
        return ((far**2).sum(axis=1) + 0.5 * (1.0 - np.cos(12.0 * far)).sum(axis=1))[:, None].repeat(3, axis=1)

    found = search(costs, np.zeros(2), np.full(2, 1.5), -WIDE, WIDE, np.random.default_rng(0), size=80, generations=15)
    np.testing.assert_allclose(found.best, [1.5, -0.7], atol=0.1)


def test_the_spread_over_recordings_drawn_again_is_that_of_the_mean() -> None:
    """Each of 20 recordings has its optimum at random about the truth: their mean varies by spread / sqrt(20)."""
    rng, ratios = np.random.default_rng(1), []
    for _ in range(10):
        optima = rng.normal([0.3, -0.2], [0.5, 1.0], (20, 2))

        def costs(x: Array, optima: Array = optima) -> Array:
            return ((x[:, None] - optima) ** 2).sum(axis=-1)

        found = search(costs, np.zeros(2), np.ones(2), -WIDE, WIDE, rng)
        np.testing.assert_allclose(found.best, optima.mean(axis=0), atol=0.15)
        again = found.resampled(300, rng)
        ratios.append(again.std(axis=0) / (optima.std(axis=0, ddof=1) / np.sqrt(20.0)))
    np.testing.assert_allclose(np.mean(ratios, axis=0), 1.0, atol=0.25)


def test_samples_stay_within_limits_and_failures_cost_most() -> None:
    def costs(x: Array) -> Array:
        values = (x[:, :1] - 3.0) ** 2
        return np.where(x[:, 1:] > 0.5, np.nan, values)

    limit = np.array([1.0, 1.0])
    found = search(costs, np.zeros(2), np.ones(2), -limit, limit, np.random.default_rng(2))
    assert np.abs(found.samples).max() <= 1.0
    assert found.best[0] == pytest.approx(1.0, abs=0.02)
    assert found.best[1] <= 0.5
    assert np.isfinite(found.costs).all()

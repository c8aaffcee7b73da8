"""Recorded actions as a fit takes them: means over intervals between knots."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.solvers.problem import Knots, effective_actions
from vid2phys.types import Actions

DRAWN = np.random.default_rng(5)
TIMES_S = np.sort(DRAWN.uniform(0.0, 1.0, 40))
ACTIONS = Actions(TIMES_S, DRAWN.normal(size=(40, 2)), "other", ("a", "b"), ("N", "N"))
KNOTS = Knots.of(np.arange(25) / 30.0, np.inf)


def held_means(delay_s: float) -> np.ndarray:
    """Return the mean of the actions over each interval, summed in steps of 2 microseconds."""
    out = []
    for begin, end in zip(KNOTS.times_s, KNOTS.times_s[1:], strict=False):
        fine = begin + (np.arange(16000) + 0.5) / 16000 * (end - begin) - delay_s
        out.append(ACTIONS.values[np.maximum(np.searchsorted(TIMES_S, fine, side="right") - 1, 0)].mean(axis=0))
    return np.array(out)


@pytest.mark.parametrize("delay_s", [0.0, 0.013])
def test_means_of_held_actions_are_exact_without_a_lag(delay_s: float) -> None:
    np.testing.assert_allclose(effective_actions(ACTIONS, KNOTS, delay_s, 0.0), held_means(delay_s), atol=3e-4)

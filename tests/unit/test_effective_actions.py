"""Recorded actions as means over the intervals of a rollout, beside integrals by hand."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.solvers.problem import _hold_integral
from vid2phys.types import Actions


@pytest.mark.parametrize("times_s", [[0.5, 1.25, 1.75], [-2.0, 0.0, 5.0, 9.0], [1.0, 2.0]])
def test_each_action_holds_until_the_next_and_beyond_the_ends(times_s: list[float]) -> None:
    actions = Actions(np.array([0.0, 1.0, 1.5, 4.0]), np.array([[2.0], [-1.0], [3.0], [5.0]]), "other", ("a",), ("N",))

    def integral(time: float) -> float:
        """Of 2 until 1 s, then -1 until 1.5 s, then 3 until 4 s, then 5; zero at 1 s."""
        return (
            2.0 * (min(time, 1.0) - 1.0)
            - np.clip(time - 1.0, 0.0, 0.5)
            + 3.0 * np.clip(time - 1.5, 0.0, 2.5)
            + 5.0 * max(time - 4.0, 0.0)
        )

    found = np.diff(_hold_integral(actions, np.array(times_s))[:, 0])
    np.testing.assert_allclose(found, np.diff([integral(time) for time in times_s]), atol=1e-12)

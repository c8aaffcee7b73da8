"""The clock of errors runs as fast as a body turns."""

from __future__ import annotations

import numpy as np

from vid2phys.error_clock import TURN_RATE_RAD_S, error_clock
from vid2phys.geometry import matrix_from_rotvec

TIMES = np.arange(90) / 30.0


def test_it_runs_with_the_turning_and_slowly_at_rest() -> None:
    angle = 2.0 * TURN_RATE_RAD_S * np.minimum(TIMES, 1.5)
    jitter = np.random.default_rng(0).normal(0.0, np.radians(0.5), (90, 3))
    rotation = matrix_from_rotvec(angle[:, None] * np.array([0.6, 0.0, 0.8])) @ matrix_from_rotvec(jitter)
    clock = error_clock(TIMES, rotation)
    rate = np.diff(clock) / np.diff(TIMES)
    assert (rate > 0.0).all()
    np.testing.assert_allclose(rate[5:38], 2.0, rtol=0.15)
    assert rate[52:].max() < 0.2
    assert clock[0] == TIMES[0]


def test_frames_in_which_nothing_is_known_lie_between_the_others() -> None:
    rotation = matrix_from_rotvec(TURN_RATE_RAD_S * TIMES[:, None] * np.array([0.0, 0.0, 1.0]))
    gaps = rotation.copy()
    gaps[[0, 20, 21, 22, 60]] = np.nan
    np.testing.assert_allclose(error_clock(TIMES, gaps), TIMES, atol=1e-9)
    gaps[1:] = np.nan
    np.testing.assert_array_equal(error_clock(TIMES, gaps), TIMES)

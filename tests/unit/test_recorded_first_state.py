"""The first state of a recording, beside parabolas that are known."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.engine.systems import get
from vid2phys.solvers.recorded_start import _at_first, _parabola, first_state, reference_state

TIMES = 3.0 + np.arange(60) / 50.0


def test_the_first_values_seen_are_the_reference() -> None:
    seen = np.array([[np.nan, 1.0, np.nan], [2.0, 4.0, np.nan], [3.0, 5.0, np.nan]])
    np.testing.assert_array_equal(reference_state(seen, np.array([7.0, 8.0, 9.0])), [2.0, 1.0, 9.0])


def test_a_parabola_gives_value_and_slope_at_the_first_time() -> None:
    after = TIMES - TIMES[0]
    values = 0.7 - 1.2 * after + 0.9 * after**2
    assert _at_first(TIMES, values, 1e-3) == pytest.approx((0.7, -1.2), abs=1e-9)
    values[0] = values[3] = np.nan
    assert _at_first(TIMES, values, 1e-3) == pytest.approx((0.7, -1.2), abs=1e-9), "frames may be lost"


def test_few_values_have_no_slope() -> None:
    """Four are too few for a parabola with a residual, five are enough."""
    values = np.full(60, np.nan)
    values[[4, 5, 6, 7]] = [0.3, 0.4, 0.5, 0.6]
    assert _at_first(TIMES, values, 1e-3) == (0.3, 0.0)
    values[8] = 0.7
    assert _at_first(TIMES, values, 1e-3) == pytest.approx((-0.1, 5.0), abs=1e-9)


@pytest.mark.parametrize(("kink", "length"), [(20, 20), (14, 14), (9, 7), (5, 5), (60, 56)])
def test_a_window_is_the_longest_that_a_parabola_explains(kink: int, length: int) -> None:
    """Windows of 5, 7, 10, 14, 20, 28, 40 and 56 frames are tried; with noise a tenth of what is stated."""
    after = TIMES - TIMES[0]
    values = 1.0 + 2.0 * after + 1e-3 * np.random.default_rng(0).normal(size=60)
    values[kink:] -= 30.0 * (after[kink:] - after[kink - 1])
    known = np.polyfit(after[:length], values[:length], 2)
    assert _at_first(TIMES, values, 1e-2) == pytest.approx((known[2], known[1]), abs=1e-9)


@pytest.mark.parametrize(("size", "length"), [(1.4, 7), (1.6, 5)])
def test_a_parabola_explains_what_is_within_one_and_a_half_deviations(size: float, length: int) -> None:
    after = TIMES[:7] - TIMES[0]
    bent = after**3 - np.polyval(np.polyfit(after, after**3, 2), after)
    values = 0.5 + size * 0.01 * bent / np.sqrt((bent**2).sum() / 4.0)
    known = np.polyfit(after[:length], values[:length], 2)
    assert _at_first(TIMES[:7], values, 0.01) == pytest.approx((known[2], known[1]), abs=1e-9)


def test_a_window_that_is_not_explained_ends_the_search() -> None:
    """Seven frames are off by 1.6 deviations; all sixty, flat behind them, would be off by less than one."""
    after = TIMES - TIMES[0]
    bent = after[:7] ** 3 - np.polyval(np.polyfit(after[:7], after[:7] ** 3, 2), after[:7])
    values = np.full(60, 0.5)
    values[:7] += 1.6 * 0.01 * bent / np.sqrt((bent**2).sum() / 4.0)
    known = np.polyfit(after[:5], values[:5], 2)
    assert _at_first(TIMES, values, 0.01) == pytest.approx((known[2], known[1]), abs=1e-9)


def test_residuals_of_a_parabola_have_three_degrees_less() -> None:
    values = np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    times = np.arange(6.0)
    found, residual = _parabola(times, values)
    known = np.polyfit(times, values, 2)
    off = np.polyval(known, times) - values
    np.testing.assert_allclose(found(times), np.polyval(known, times), atol=1e-12)
    assert residual == pytest.approx(np.sqrt((off**2).sum() / 3.0))


def test_a_rate_that_was_not_recorded_is_the_slope_of_its_angle() -> None:
    pendulum, after = get("pendulum"), TIMES - TIMES[0]
    seen = np.stack([0.4 - 0.5 * after, np.full(60, np.nan)], axis=1)
    known = np.array([9.0, 3.0])
    found = first_state(pendulum, TIMES, seen, np.array([1e-3, 1e-3]), known)
    np.testing.assert_allclose(found, [0.4, -0.5], atol=1e-9)
    seen[:, 1] = 2.0
    both = first_state(pendulum, TIMES, seen, np.array([1e-3, 1e-3]), known)
    np.testing.assert_allclose(both, [0.4, 2.0], atol=1e-9)
    seen[:, 0] = np.nan
    rate_alone = first_state(pendulum, TIMES, seen, np.array([1e-3, 1e-3]), known)
    np.testing.assert_allclose(rate_alone, [9.0, 2.0], atol=1e-9)


def test_each_coordinate_has_its_own_noise() -> None:
    """A sine that a parabola explains within large noise alone; the second coordinate is that sine as well."""
    pendulum, after = get("pendulum"), TIMES - TIMES[0]
    seen = np.stack([0.3 * np.sin(9.0 * after)] * 2, axis=1)
    sure = first_state(pendulum, TIMES, seen, np.array([1e-3, 1e-3]), np.zeros(2))
    mixed = first_state(pendulum, TIMES, seen, np.array([1e-3, 1.0]), np.zeros(2))
    assert mixed[0] == sure[0] == pytest.approx(0.0, abs=0.01)
    assert abs(mixed[1]) > 0.1

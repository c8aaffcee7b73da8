"""The test for white residuals: how often it fires on noise, on noise that lasts, and on channels that err together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from vid2phys.solvers.whiteness import whiteness
from vid2phys.types import Array


def noise(rng: np.random.Generator, frames: int, channels: int, *, common: float = 0.0, keep: float = 0.0) -> Array:
    """First-order autoregressive noise of unit variance; `common` of its standard deviation is all channels'."""
    drive = common * rng.normal(size=(frames, 1)) + np.sqrt(1.0 - common**2) * rng.normal(size=(frames, channels))
    drive[1:] *= np.sqrt(1.0 - keep**2)
    return np.asarray(lfilter([1.0], [1.0, -keep], drive, axis=0))


@pytest.mark.parametrize(("channels", "common", "gaps"), [(1, 0.0, 0.0), (24, 0.9, 0.0), (6, 0.3, 0.3)])
def test_white_residuals_are_called_so_at_the_stated_rate(channels: int, common: float, gaps: float) -> None:
    """p is uniform: a twentieth of all tests are below 0.05, however alike the channels and however many gaps."""
    rng, p = np.random.default_rng(0), []
    for _ in range(300):
        residuals = noise(rng, 150, channels, common=common)
        residuals[rng.random(residuals.shape) < gaps] = np.nan
        found = whiteness(residuals)
        assert found is not None
        p.append(found.p_value)
        assert found.frames < 2.0
    assert 0.02 < np.mean(np.array(p) < 0.05) < 0.10
    assert 0.35 < np.mean(np.array(p) < 0.5) < 0.6  # the statistic is skewed at 150 frames


def test_one_channel_without_gaps_is_the_test_of_ljung_and_box() -> None:
    rng, lags = np.random.default_rng(1), 12
    e = noise(rng, 200, 1, keep=0.2)[:, 0]
    r = np.array([(e[k:] * e[:-k]).sum() / (e**2).sum() for k in range(1, lags + 1)])
    expected = 200 * 202 * (r**2 / (200 - np.arange(1, lags + 1))).sum()
    found = whiteness(e[:, None], lags)
    assert found is not None
    assert found.statistic == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("keep", [0.5, 0.8])
def test_residuals_that_last_are_found_and_so_is_how_long(keep: float) -> None:
    rng, lasting = np.random.default_rng(2), []
    for _ in range(30):
        found = whiteness(noise(rng, 400, 4, common=0.5, keep=keep))
        assert found is not None
        assert not found.white
        assert "does not fit" in (found.warning() or "")
        lasting.append(found.frames)
    assert np.median(lasting) == pytest.approx((1.0 + keep) / (1.0 - keep), rel=0.2)


def test_a_bias_is_no_noise() -> None:
    rng = np.random.default_rng(3)
    found = whiteness(noise(rng, 200, 2) + 1.5)
    assert found is not None
    assert not found.white


def test_residuals_that_turn_over_each_frame_are_no_reason_to_widen_intervals() -> None:
    found = whiteness(noise(np.random.default_rng(4), 300, 1, keep=-0.6))
    assert found is not None
    assert found.p_value < 1e-6
    assert found.frames == 1.0
    assert found.white
    assert found.warning() is None


def test_too_few_frames_tell_nothing() -> None:
    assert whiteness(np.zeros((5, 3))) is None
    assert whiteness(np.full((50, 3), np.nan)) is None


@pytest.mark.parametrize(("keep", "frames", "white"), [(0.25, 5.0 / 3.0, True), (0.42, 2.45, False)])
def test_correlations_that_last_for_less_than_two_frames_do_not_matter(keep: float, frames: float, white: bool) -> None:
    found = whiteness(noise(np.random.default_rng(5), 6000, 1, keep=keep))
    assert found is not None
    assert found.p_value < 1e-6
    assert found.frames == pytest.approx(frames, rel=0.1)
    assert found.white is white

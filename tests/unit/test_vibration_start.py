"""Starts by free vibration: one mode beside plain least squares, known vibrations, and which values are tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from vid2phys.solvers import vibration_start as module
from vid2phys.solvers.vibration_start import Known, _Mode, vibration_start
from vid2phys.types import Array

SAG, SQUARE, DECAY = -3e3, 0.004, 2e-5
TIMES = 5.0 + np.arange(40) / 50.0


@dataclass(frozen=True)
class Modes:
    """What a start asks of a body's vibration: for 1 Pa and 1 Pa s."""

    squares: Array
    decays: Array
    sag: Array


def seen(seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    amplitudes = 0.02 * rng.normal(size=len(TIMES))
    amplitudes[[0, 3, 11]] = np.nan
    return amplitudes, 1e-4 * rng.uniform(0.2, 2.0, len(TIMES))


def slow_fit(amplitudes: Array, variances: Array, young: float, eta: float, least: float) -> tuple[float, float, float]:
    """Cost, amplitude and rate by normal equations, frame by frame."""
    square, decay, rest = young * SQUARE, eta * DECAY, SAG / young
    rate = np.sqrt(max(square - decay * decay, 0.05 * square))
    normal, right, rows = np.zeros((3, 3)), np.zeros(3), list[tuple[Array, float, float]]()
    for time_s, y, variance in zip(TIMES, amplitudes, variances, strict=True):
        if np.isnan(y):
            continue
        t = time_s - 5.0
        fade = np.exp(-decay * t)
        rows.append((np.array([1.0, fade * np.cos(rate * t), fade * np.sin(rate * t)]), float(y), float(variance)))
    rows.append((np.array([1.0, 0.0, 0.0]), rest, (0.3 * abs(rest) + least) ** 2))
    for row, y, variance in rows:
        normal += np.outer(row, row) / variance
        right += row * y / variance
    found = np.linalg.solve(normal, right)
    cost = sum(0.5 * (y - row @ found) ** 2 / variance for row, y, variance in rows)
    return float(cost), float(found[0] + found[1]), float(rate * found[2] - decay * found[1])


@pytest.mark.parametrize(("young", "eta", "least"), [
    (2e5, 0.0, 1e-3), (2e5, 2e5, 1e-3), (4e5, 1e5, 0.02), (1e5, 9.9e5, 1e-3), (1e5, 3e6, 1e-5)
])  # fmt: skip
def test_a_mode_is_fitted_by_a_constant_and_a_decaying_oscillation(young: float, eta: float, least: float) -> None:
    """Also near critical damping and beyond, where the rate is no slower than a share of that without damping."""
    amplitudes, variances = seen(0)
    mode = _Mode(TIMES, amplitudes, variances, SQUARE, DECAY, SAG)
    np.testing.assert_allclose(
        mode.fit(young, eta, least), slow_fit(amplitudes, variances, young, eta, least), rtol=1e-5
    )


def test_a_body_that_does_not_move_leaves_the_scatter_about_its_mean() -> None:
    amplitudes, variances = seen(1)
    kept = ~np.isnan(amplitudes)
    mean = np.average(amplitudes[kept], weights=1.0 / variances[kept])
    expected = 0.5 * sum((y - mean) ** 2 / v for y, v in zip(amplitudes[kept], variances[kept], strict=True))
    mode = _Mode(TIMES, amplitudes, variances, SQUARE, DECAY, SAG)
    assert mode.still == pytest.approx(expected)


MODES: Any = Modes(np.array([0.004, 0.03]), np.array([2e-5, 9e-5]), np.array([-300.0, 40.0]))
YOUNG, ETA, GRAVITY = 2.3e5, 4e4, 9.8


def vibrating(start: Array, times_s: Array) -> Array:
    """Amplitudes [T, 2] of two modes from amplitudes and rates [4], by the closed form."""
    found = np.zeros((len(times_s), 2))
    for d in range(2):
        rest, decay = GRAVITY * MODES.sag[d] / YOUNG, ETA * MODES.decays[d]
        rate = np.sqrt(YOUNG * MODES.squares[d] - decay**2)
        t, away = times_s - times_s[0], start[d] - rest
        swing = away * np.cos(rate * t) + (start[2 + d] + decay * away) / rate * np.sin(rate * t)
        found[:, d] = rest + np.exp(-decay * t) * swing
    return found


START = np.array([0.02, -0.004, 0.3, 0.2])


def test_modulus_damping_and_first_state_of_a_vibration_come_back() -> None:
    amplitudes = vibrating(START, TIMES)
    amplitudes[4, 0], amplitudes[9, 1] = np.nan, np.nan
    variances = np.full(amplitudes.shape, 1e-8)
    found = vibration_start(TIMES, amplitudes, variances, MODES, GRAVITY)
    assert found.young_modulus == pytest.approx(YOUNG, rel=0.004)
    assert found.damping == pytest.approx(ETA, rel=0.3)
    np.testing.assert_allclose(found.state, START, atol=0.05)
    np.testing.assert_allclose(found.state[:2], START[:2], atol=1e-3)
    both = vibration_start(TIMES, amplitudes, variances, MODES, GRAVITY, Known(YOUNG, ETA))
    assert (both.young_modulus, both.damping) == (YOUNG, ETA)
    np.testing.assert_allclose(both.state, START, rtol=1e-5)
    assert both.cost == pytest.approx(0.0, abs=1e-3)
    scatter = [np.nanvar(amplitudes[:, d]) * (len(TIMES) - 1) / 1e-8 / 2.0 for d in (0, 1)]
    assert both.still == pytest.approx(sum(scatter))
    assert found.still == both.still
    assert 0.0 < found.cost < 0.01 * found.still


def test_what_is_known_is_not_sought() -> None:
    amplitudes, variances = vibrating(START, TIMES), np.full((len(TIMES), 2), 1e-8)
    damped = vibration_start(TIMES, amplitudes, variances, MODES, GRAVITY, Known(damping=ETA))
    assert damped.damping == ETA
    assert damped.young_modulus == pytest.approx(YOUNG, rel=0.003)
    stiff = vibration_start(TIMES, amplitudes, variances, MODES, GRAVITY, Known(young_modulus=YOUNG))
    assert stiff.young_modulus == YOUNG
    ratio = ETA * MODES.decays[0] / np.sqrt(YOUNG * MODES.squares[0])
    expected = min((0.0, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3), key=lambda each: abs(each - ratio))
    assert stiff.damping == pytest.approx(expected * np.sqrt(YOUNG * MODES.squares[0]) / MODES.decays[0])
    parts = [
        _Mode(TIMES, amplitudes[:, d], variances[:, d], MODES.squares[d], MODES.decays[d], GRAVITY * MODES.sag[d])
        for d in (0, 1)
    ]
    least = 1e-3 * np.abs(amplitudes).max()
    fits = [part.fit(YOUNG, stiff.damping, least) for part in parts]
    assert stiff.cost == pytest.approx(fits[0][0] + fits[1][0])
    np.testing.assert_allclose(stiff.state, [fits[0][1], fits[1][1], fits[0][2], fits[1][2]])


@pytest.mark.parametrize("best_ratio", [0.0, 0.04])
def test_periods_of_six_clips_to_three_frames_are_tried(best_ratio: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With shares of the critical damping of the lowest mode; then what is near the best of them."""
    tried, best_rate = list[tuple[float, float, float]](), 30.0

    def fit(self: _Mode, young: float, eta: float, least: float) -> tuple[float, float, float]:
        rate, ratio = np.sqrt(young * 0.004), eta * 2e-5 / np.sqrt(young * 0.004)
        tried.append((rate, ratio, least))
        return float(np.log(rate / best_rate) ** 2 + (ratio - best_ratio) ** 2), 1.0, 2.0

    monkeypatch.setattr(module._Mode, "fit", fit)
    times_s = np.concatenate([[1.0, 1.5], 1.5 + np.arange(1, 21) / 40.0])  # a gap, then 40 frames a second
    amplitudes = np.linspace(-0.03, 0.02, 44).reshape(22, 2)
    amplitudes[5, 1] = np.nan
    found = vibration_start(times_s, amplitudes, np.ones((22, 2)), MODES, GRAVITY)
    rates, ratios, leasts = (np.array(column) for column in zip(*tried, strict=True))
    np.testing.assert_allclose(leasts, 3e-5)
    first = 160 * 7 * 2
    step = np.log(6.0 * 1.0 / (3.0 / 40.0)) / 159.0
    lowest = 2.0 * np.pi / (6.0 * 1.0)
    np.testing.assert_allclose(rates[:first:14], lowest * np.exp(step * np.arange(160)))
    np.testing.assert_allclose(ratios[:14:2], [0.0, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3])
    np.testing.assert_allclose(ratios[:first].reshape(160, 7, 2), ratios[:14].reshape(1, 7, 2) * np.ones((160, 1, 1)))
    near = np.unique(np.round(rates[:first], 9))
    chosen = near[np.argmin(np.abs(np.log(near / best_rate)))]
    more = [best_ratio] if best_ratio == 0.0 else [0.7 * best_ratio, best_ratio, 1.4 * best_ratio]
    expected = np.sort([0.005, *more])
    second = rates[first:-2].reshape(40, len(expected), 2)
    np.testing.assert_allclose(second[:, 0, 0], chosen * np.sqrt(np.geomspace(0.9, 1.1, 40)), rtol=1e-8)
    np.testing.assert_allclose(ratios[first : first + 2 * len(expected) : 2], expected, atol=1e-12)
    assert np.sqrt(found.young_modulus * 0.004) == pytest.approx(best_rate, rel=0.0015)
    assert found.damping * 2e-5 / np.sqrt(found.young_modulus * 0.004) == pytest.approx(best_ratio)
    np.testing.assert_array_equal(found.state, [1.0, 1.0, 2.0, 2.0])
    for given in (Known(damping=3e4), Known(young_modulus=2e5), Known(2e5, 3e4)):
        tried.clear()
        vibration_start(times_s, amplitudes, np.ones((22, 2)), MODES, GRAVITY, given)
        values = {(round(rate**2 / 0.004, 3), round(ratio * rate / 2e-5, 3)) for rate, ratio, _ in tried}
        if given.damping is not None:
            assert {eta for _, eta in values} == {3e4}
        if given.young_modulus is not None:
            assert {young for young, _ in values} == {2e5}
        assert len(values) == {0: 1, 1: 7, 2: 200}[(given.young_modulus is None) * 2 + (given.damping is None)]

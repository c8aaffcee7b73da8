"""Fits of an error model are optima of likelihoods that are written out here, and count what they say they count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from vid2phys.error_model import Calibration
from vid2phys.tracking.uncertainty import fit_errors
from vid2phys.tracking.uncertainty.config import DEFAULTS, UncertaintyConfig
from vid2phys.tracking.uncertainty.fit_errors import (
    Residuals,
    Split,
    _fit_modes,
    _fit_points,
    _fit_process,
    _minimize,
    _mode_ratios,
    _whitened,
    fit,
    normalised,
    split,
    trim,
)
from vid2phys.types import Array

MODEL = Calibration(
    point_scale=0.8, point_floor_px=0.5, point_exponent=0.3, mode_std=(0.03, 0.02), mode_exponent=(0.5, 0.0),
    mode_doubt=(5.0, 3.0), correlation_time_s=(0.2, 0.1),
)  # fmt: skip
RANGE_S = DEFAULTS.correlation_range_s


def residuals(seed: int, count: int, points: int = 6) -> Residuals:
    """Residuals of frames in sequences of four, with errors as `MODEL` has them, all of whose points are used."""
    rng = np.random.default_rng(seed)
    modes = rng.normal(size=(count, points, 2, 2)) * [30.0, 50.0]
    raw = np.eye(2) * np.exp(rng.normal(0.0, 1.0, (count, points)))[..., None, None]
    diameter, quality = np.exp(rng.uniform(2.5, 4.5, count)), rng.uniform(0.6, 0.9, count)
    own = np.linalg.cholesky(MODEL.point_covariance(raw, diameter)) @ rng.normal(size=(count, points, 2, 1))
    pose = MODEL.mode_scale(diameter, quality) * rng.normal(size=(count, 2))
    error = own[..., 0] + np.einsum("nkim,nm->nki", modes, pose)
    used, times = np.ones((count, points), dtype=bool), np.tile(np.arange(4) / 30.0, count // 4)
    return Residuals(error, raw, used, modes, diameter, quality, np.repeat(np.arange(count // 4), 4), times)


def restricted_cost(data: Residuals, vector: Array) -> float:
    """Half of minus twice the restricted log likelihood a frame, with whole covariances, and a prior of the growth."""
    scale, floor, exponent = np.exp(vector[0]), np.exp(vector[1]), vector[2]
    total = 0.0
    for n in range(len(data.error)):
        size = 2 * data.error.shape[1]
        covariance = np.zeros((size, size))
        for k in range(size // 2):
            block = scale**2 * data.raw[n, k] + floor**2 * np.eye(2)
            covariance[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = block * (40.0 / data.diameter_px[n]) ** (2.0 * exponent)
        design, off = data.modes[n].reshape(size, 2), data.error[n].ravel()
        inverse = np.linalg.inv(covariance)
        normal = design.T @ inverse @ design
        left = off - design @ np.linalg.solve(normal, design.T @ inverse @ off)
        total += 0.5 * (left @ inverse @ left + np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(normal)[1])
    return float(total / len(data.error) + 0.01 * exponent**2)


def test_errors_of_points_are_of_greatest_restricted_likelihood() -> None:
    data = residuals(0, 24)
    start = replace(MODEL, point_scale=1.1, point_floor_px=0.7, point_exponent=0.0)
    found = _fit_points(data, start)
    best = minimize(
        lambda vector: restricted_cost(data, vector), np.array([np.log(0.8), np.log(0.5), 0.3]), method="BFGS"
    ).x
    assert np.log(found.point_scale) == pytest.approx(best[0], abs=0.02)
    assert np.log(found.point_floor_px) == pytest.approx(best[1], abs=0.02)
    assert found.point_exponent == pytest.approx(best[2], abs=0.02)
    assert found.mode_std == MODEL.mode_std


@pytest.mark.parametrize(("size", "name", "limit"), [(1e-6, "point_floor_px", -7.0), (1e6, "point_scale", 4.0)])
def test_errors_of_points_stay_within_what_can_be_computed(size: float, name: str, limit: float) -> None:
    data = residuals(1, 8)
    small = replace(data, error=size * data.error, modes=data.modes)
    found = _fit_points(small, replace(MODEL, point_scale=np.exp(-6.5), point_floor_px=np.exp(-6.5)) if size < 1.0
                        else replace(MODEL, point_scale=np.exp(3.9), point_floor_px=np.exp(3.9)))  # fmt: skip
    assert getattr(found, name) == pytest.approx(np.exp(limit), rel=1e-9)


def test_the_simplex_starts_half_a_unit_wide_and_ends_in_the_minimum() -> None:
    asked = list[Array]()

    def cost(vector: Array) -> float:
        asked.append(vector.copy())
        x, y, z = vector - [1.0, -2.0, 0.3]
        return float(3.0 * x**2 + x * y + y**2 + 0.5 * z**2)

    start = np.array([0.2, 0.1, -0.4])
    np.testing.assert_allclose(_minimize(cost, start), [1.0, -2.0, 0.3], atol=0.02)
    np.testing.assert_allclose(asked[:4], [start, *(start + 0.5 * np.eye(3))])


def process(seed: int, lengths: list[int], rate: float = 30.0) -> tuple[Any, ...]:
    """Sequence, values, variances, growth, doubt and times of a Gauss-Markov process, with sequences of any length."""
    rng = np.random.default_rng(seed)
    sequence = np.repeat(10 * np.arange(len(lengths)), lengths)
    times = np.concatenate([np.cumsum(rng.uniform(0.5, 1.5, n)) / rate for n in lengths])
    growth = np.repeat(rng.uniform(-0.5, 1.0, len(lengths)), lengths)
    doubt = np.repeat(rng.uniform(-0.15, 0.15, len(lengths)), lengths)
    scale, unit = 0.05 * np.exp(0.8 * growth + 5.0 * doubt), rng.normal(size=len(times))
    for n in range(1, len(times)):
        if sequence[n] == sequence[n - 1]:
            keep = np.exp(-(times[n] - times[n - 1]) / 0.25)
            unit[n] = keep * unit[n - 1] + np.sqrt(1.0 - keep**2) * unit[n]
    variance = rng.uniform(0.5, 2.0, len(times)) * 0.02**2
    values = scale * unit + np.sqrt(variance) * rng.normal(size=len(times))
    return sequence, values, variance, growth, doubt, times


@pytest.mark.parametrize(("lengths", "loose"), [([5, 9, 2, 7, 9, 4, 8, 1, 6, 9, 9, 5], 1.0), ([9, 7, 12, 11], 3.0)])
def test_a_process_is_of_greatest_likelihood_with_priors_of_its_growth(lengths: list[int], loose: float) -> None:
    """The same optimum as of normal distributions of each sequence by itself; few sequences lean on the priors."""
    sequence, values, variance, growth, doubt, times = process(0, lengths)
    names = np.unique(sequence)

    def cost(vector: Array) -> float:
        std, exponent, slope, tau = np.exp(vector[0]), vector[1], vector[2], np.exp(vector[3])
        total = 0.02 * (exponent - 0.5) ** 2 + 2e-4 * (slope - 4.0) ** 2
        for name in names:
            rows = sequence == name
            scale = std * np.exp(exponent * growth[rows] + slope * doubt[rows])
            lag = np.abs(np.subtract.outer(times[rows], times[rows]))
            covariance = np.outer(scale, scale) * np.exp(-lag / tau) + np.diag(variance[rows])
            total -= multivariate_normal.logpdf(values[rows], np.zeros(rows.sum()), covariance) / len(names)
        return float(total)

    best = minimize(cost, np.array([np.log(0.05), 0.8, 5.0, np.log(0.25)]), method="BFGS").x
    std, exponent, slope, tau = _fit_process(sequence, values, variance, growth, doubt, times, RANGE_S)
    assert np.log(std) == pytest.approx(best[0], abs=0.03 * loose)
    assert exponent == pytest.approx(best[1], abs=0.03 * loose)
    assert slope == pytest.approx(best[2], abs=0.15 * loose)
    assert np.log(tau) == pytest.approx(best[3], abs=0.04 * loose)


def test_growth_and_doubt_that_nothing_shows_are_those_of_the_priors() -> None:
    sequence, values, variance, growth, doubt, times = process(3, [6] * 8)
    found = _fit_process(sequence, values, variance, 0.0 * growth, 0.0 * doubt, times, RANGE_S)
    assert found[1] == pytest.approx(0.5, abs=0.1)
    assert found[2] == pytest.approx(4.0, abs=1.0)


@pytest.mark.parametrize(("range_s", "expected"), [((0.01, 0.1), 0.1), ((0.9, 5.0), 0.9)])
def test_correlation_times_stay_within_their_range(range_s: tuple[float, float], expected: float) -> None:
    sequence, values, variance, growth, doubt, times = process(1, [12] * 10)
    found = _fit_process(sequence, values, variance, growth, doubt, times, range_s)
    assert found[3] == pytest.approx(expected)


@pytest.mark.parametrize(("exponent", "slope", "expected"), [
    (12.0, 4.0, (3.0, None)), (-8.0, 4.0, (-2.0, None)), (0.5, 60.0, (None, 20.0)), (0.5, -40.0, (None, -2.0)),
])  # fmt: skip
def test_growth_and_doubt_stay_within_their_range(
    exponent: float, slope: float, expected: tuple[float | None, float | None]
) -> None:
    rng, count = np.random.default_rng(2), 400
    growth, doubt = rng.uniform(-0.5, 0.5, count), rng.uniform(-0.1, 0.1, count)
    values = 0.05 * np.exp(exponent * growth + slope * doubt) * rng.normal(size=count)
    found = _fit_process(np.arange(count), values, np.full(count, 1e-12), growth, doubt, np.zeros(count), RANGE_S)
    for got, limit in zip(found[1:3], expected, strict=True):
        if limit is not None:
            assert got == limit


def test_a_process_is_fitted_to_the_frames_that_inform_about_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that determine a coefficient well enough, without those beyond the core; sizes count up to 400 px."""
    data = residuals(3, 60)
    quality, diameter = data.quality.copy(), data.diameter_px.copy()
    diameter[:3] = [5.0, 500.0, 40.0]
    quality[2] = 0.8
    rng = np.random.default_rng(4)
    coefficients = 0.03 * rng.normal(size=(60, 2))
    coefficients[7, 0], coefficients[8, 1] = 9.0, -9.0
    variance = np.exp(rng.uniform(-12.0, -6.0, (60, 2)))
    variance[10:20, 0], variance[40:, 1] = 1e3, 1e3
    data = replace(data, quality=quality, diameter_px=diameter)
    pieces = Split(
        coefficients, np.stack([np.diag(each) for each in variance]), np.zeros(60), np.zeros(60), np.zeros(60)
    )
    given = list[tuple[Any, ...]]()

    def process(*arguments: Any) -> tuple[float, float, float, float]:
        given.append(arguments)
        return tuple(10.0 * len(given) + np.arange(4.0))  # type: ignore[return-value]

    monkeypatch.setattr(fit_errors, "split", lambda some, calibration: pieces)
    monkeypatch.setattr(fit_errors, "_fit_process", process)
    config = UncertaintyConfig(informative_sigma=30.0, core_sigma=3.0, min_informative_frames=40)
    found = _fit_modes(data, MODEL, config)
    prior = MODEL.mode_scale(diameter, quality) ** 2
    assert len(given) == 2, "forty are enough"
    for mode, (sequence, values, variances, growth, doubt, times, range_s) in enumerate(given):
        ratios = [coefficients[n, mode] ** 2 / (prior[n, mode] + variance[n, mode]) for n in range(60)]
        informs = [variance[n, mode] < 30.0**2 * prior[n, mode] for n in range(60)]
        assert sum(informs) == (50, 40)[mode]
        scale = np.median([r for r, i in zip(ratios, informs, strict=True) if i]) / 0.455
        kept = [n for n in range(60) if informs[n] and ratios[n] < 9.0 * scale]
        assert 7 + mode not in kept
        np.testing.assert_array_equal(sequence, data.sequence[kept])
        np.testing.assert_array_equal(values, coefficients[kept, mode])
        np.testing.assert_array_equal(variances, variance[kept, mode])
        np.testing.assert_array_equal(times, data.time_s[kept])
        np.testing.assert_allclose(doubt, 0.8 - quality[kept])
        np.testing.assert_allclose(growth, np.log(40.0 / np.minimum(np.maximum(diameter[kept], 8.0), 400.0)))
        assert range_s == RANGE_S
    assert found.mode_std == (10.0, 20.0)
    assert found.mode_exponent == (11.0, 21.0)
    assert found.mode_doubt == (12.0, 22.0)
    assert found.correlation_time_s == (13.0, 23.0)
    given.clear()
    found = _fit_modes(data, MODEL, replace(config, min_informative_frames=41))
    assert len(given) == 1
    assert found.mode_std == (10.0, 0.02)
    assert found.correlation_time_s == (13.0, 0.1)


def test_points_and_modes_are_fitted_in_turn_to_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    log = list[str]()

    def noted(name: str, step: float) -> Any:
        def change(data: str, calibration: Calibration, *more: Any) -> Calibration:
            log.append(f"{name} {data} {calibration.point_scale:.1f}")
            return replace(calibration, point_scale=calibration.point_scale + step)

        return change

    def trimmed(data: str, calibration: Calibration, config: Any) -> str:
        log.append(f"trim {data} {calibration.point_scale:.1f}")
        return "kept"

    monkeypatch.setattr(fit_errors, "trim", trimmed)
    monkeypatch.setattr(fit_errors, "_fit_points", noted("points", 1.0))
    monkeypatch.setattr(fit_errors, "_fit_modes", noted("modes", 0.1))
    unused: Any = "all"
    found = fit(unused, replace(MODEL, point_scale=0.0), replace(DEFAULTS, rounds=2))
    first = ["trim all 0.0", "points kept 0.0", "modes kept 1.0"]
    assert log == [*first, "trim all 1.1", "points kept 1.1", "modes kept 2.1"]
    assert found.point_scale == pytest.approx(2.2)
    log.clear()
    fit(unused, MODEL)
    assert len(log) == 9


def test_normalised_numbers_are_those_of_sound_frames() -> None:
    """One frame is grossly wrong in its second mode, some points are outliers, and some did not count before."""
    data = residuals(5, 40)
    error, used = data.error.copy(), data.used.copy()
    error[3] += data.modes[3, ..., 1] * 20.0
    std = MODEL.mode_scale(data.diameter_px, data.quality)
    error[5] = data.modes[5, ..., 0] * 4.2 * std[5, 0]  # far, but no outlier
    error[10, 2], error[11, 4] = 60.0, -40.0
    used[20, 1] = False
    data = replace(data, error=error, used=used)
    found = normalised(data, MODEL, ("a", "b"))
    kept = trim(data, MODEL)
    assert len(kept.error) < 40, "frames of five points do not count"
    ratios = _mode_ratios(kept, MODEL)
    sound: NDArray[np.bool_] = np.array([max(row) < DEFAULTS.trim_sigma**2 for row in ratios])
    assert 0 < (~sound).sum() < 3
    assert 12.0 < ratios[5, 0] < 23.0
    pieces = split(kept[sound], MODEL)
    expected = {
        "points": np.sqrt(sum(pieces.rest) / sum(pieces.freedom)),
        "a": np.sqrt(np.mean([row[0] for row, good in zip(ratios, sound, strict=True) if good])),
        "b": np.sqrt(np.mean([row[1] for row, good in zip(ratios, sound, strict=True) if good])),
        "frame": _whitened(kept[sound], MODEL, np.arange(int(sound.sum()))),
        "clip": _whitened(kept[sound], MODEL, kept[sound].sequence),
        "outlier_share": 1.0 - kept.used.sum() / used.sum(),
        "gross_share": (~sound).sum() / len(sound),
    }
    assert found == {name: round(float(value), 4) for name, value in expected.items()}
    assert _whitened(replace(data, used=np.zeros_like(used)), MODEL, data.sequence) == 0.0

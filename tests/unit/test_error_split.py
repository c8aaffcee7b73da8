"""The parts of the fit of an error model beside slow sums: the split into a pose and the rest, trimming, whitening."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vid2phys.error_model import Calibration
from vid2phys.tracking.uncertainty.config import DEFAULTS
from vid2phys.tracking.uncertainty.fit_errors import (
    Residuals,
    _fit_modes,
    _fit_process,
    _mode_ratios,
    _whitened,
    normalised,
    split,
    trim,
)
from vid2phys.types import Array

MODEL = Calibration(
    point_scale=0.8,
    point_floor_px=0.5,
    point_exponent=0.3,
    mode_std=(0.03, 0.02),
    mode_exponent=(0.5, 0.0),
    mode_doubt=(5.0, 3.0),
    correlation_time_s=(0.2, 0.1),
)
POINTS = 8


def data_of(seed: int, count: int, modes_std: float = 1.0) -> Residuals:
    """Residuals of frames in sequences of four, by two modes and by errors of the points."""
    rng = np.random.default_rng(seed)
    modes = rng.normal(size=(count, POINTS, 2, 2)) * [30.0, 50.0]
    root = rng.normal(size=(count, POINTS, 2, 2)) * 0.3
    raw = root @ np.swapaxes(root, -1, -2) + 0.5 * np.eye(2)
    diameter, quality = rng.uniform(30.0, 90.0, count), rng.uniform(0.6, 0.9, count)
    own = np.linalg.cholesky(MODEL.point_covariance(raw, diameter)) @ rng.normal(size=(count, POINTS, 2, 1))
    pose = modes_std * MODEL.mode_scale(diameter, quality) * rng.normal(size=(count, 2))
    used = rng.random((count, POINTS)) < 0.95
    times = np.tile(np.arange(4) / 30.0, count // 4 + 1)[:count]
    sequence = np.repeat(np.arange(count // 4 + 1), 4)[:count]
    error = own[..., 0] + np.einsum("nkim,nm->nki", modes, pose)
    return Residuals(error, raw, used, modes, diameter, quality, sequence, times)


def rows_of(data: Residuals, n: int) -> tuple[Array, Array, Array]:
    """Design, right side and log determinant of one frame's points, whitened one by one."""
    covariance = MODEL.point_covariance(data.raw, data.diameter_px)[n]
    rows, right, logdet = [], [], 0.0
    for k in np.flatnonzero(data.used[n]):
        factor = np.linalg.inv(np.linalg.cholesky(covariance[k]))
        rows.append(factor @ data.modes[n, k])
        right.append(factor @ data.error[n, k])
        logdet += np.linalg.slogdet(covariance[k])[1]
    return np.concatenate(rows), np.concatenate(right), np.array(logdet)


def test_residuals_are_split_by_weighted_least_squares() -> None:
    data = data_of(0, 6)
    found = split(data, MODEL)
    for n in range(6):
        rows, right, logdet = rows_of(data, n)
        solution, rest, _, _ = np.linalg.lstsq(rows, right, rcond=None)
        np.testing.assert_allclose(found.coefficients[n], solution, rtol=1e-6)
        np.testing.assert_allclose(found.covariance[n], np.linalg.inv(rows.T @ rows), rtol=1e-5)
        assert found.rest[n] == pytest.approx(float(rest[0]), rel=1e-6)
        assert found.freedom[n] == len(right) - 2
        assert found.log_det[n] == pytest.approx(logdet + np.linalg.slogdet(rows.T @ rows)[1], rel=1e-6)


def test_points_beyond_the_limit_and_frames_of_few_points_are_left_out() -> None:
    data = data_of(1, 8)
    used = np.ones_like(data.used)
    used[2, :3] = False
    used[3, :2] = False
    error = data.error.copy()
    error[0, 4] += 9.0
    data = replace(data, used=used, error=error)
    found = trim(data, MODEL)
    assert len(found.error) == 7, "five points are too few, six are enough"
    pieces = split(data, MODEL)
    kept = np.delete(np.arange(8), 2)
    for row, n in enumerate(kept):
        left = data.error[n] - data.modes[n] @ pieces.coefficients[n]
        covariance = MODEL.point_covariance(data.raw, data.diameter_px)[n]
        square = np.array([e @ np.linalg.solve(c, e) for e, c in zip(left, covariance, strict=True)])
        np.testing.assert_array_equal(found.used[row], used[n] & (square < DEFAULTS.trim_sigma**2))
    assert not found.used[0, 4]


def test_coefficients_are_compared_with_what_is_expected_of_them() -> None:
    data = data_of(2, 6)
    pieces, std = split(data, MODEL), MODEL.mode_scale(data.diameter_px, data.quality)
    found = _mode_ratios(data, MODEL)
    for n in range(6):
        for m in range(2):
            expected = pieces.coefficients[n, m] ** 2 / (pieces.covariance[n, m, m] + std[n, m] ** 2)
            assert found[n, m] == pytest.approx(expected)


def test_residuals_are_whitened_by_the_covariance_of_a_sequence() -> None:
    """The whole covariance of two sequences of four frames, entry by entry."""
    data = data_of(3, 8)
    std, tau = MODEL.mode_scale(data.diameter_px, data.quality), np.array(MODEL.correlation_time_s)
    own = MODEL.point_covariance(data.raw, data.diameter_px)
    for group in (data.sequence, np.arange(8)):
        total, count = 0.0, 0
        for g in np.unique(group):
            names = [
                (n, k, i) for n in np.flatnonzero(group == g) for k in np.flatnonzero(data.used[n]) for i in (0, 1)
            ]
            matrix = np.zeros((len(names),) * 2)
            for a, (n, k, i) in enumerate(names):
                for b, (m, q, j) in enumerate(names):
                    lag = abs(data.time_s[n] - data.time_s[m])
                    each = data.modes[n, k, i] * std[n] * data.modes[m, q, j] * std[m] * np.exp(-lag / tau)
                    matrix[a, b] = each.sum() + (own[n, k, i, j] if (n, k) == (m, q) else 0.0)
            values = np.array([data.error[name] for name in names])
            total += values @ np.linalg.solve(matrix, values)
            count += len(values)
        assert _whitened(data, MODEL, group) == pytest.approx(np.sqrt(total / count), rel=1e-6)


def test_numbers_of_an_honest_model_are_one_and_outliers_are_shares() -> None:
    data = data_of(4, 400)
    error = data.error.copy()
    wild = data.used & (np.random.default_rng(5).random(data.used.shape) < 0.03)
    error[wild] += 9.0
    found = normalised(replace(data, error=error), MODEL, ("first", "second"))
    assert set(found) == {"points", "first", "second", "frame", "clip", "outlier_share", "gross_share"}
    for name in ("points", "first", "second", "frame"):
        assert found[name] == pytest.approx(1.0, abs=0.1), name
    assert found["clip"] > 1.0, "poses of a sequence that are not correlated"
    assert 0.8 * wild.sum() / data.used.sum() < found["outlier_share"] < 3.0 * wild.sum() / data.used.sum()
    assert found["gross_share"] < 0.05
    spoilt = data.error.copy()
    spoilt[:100] += data.modes[:100, ..., 0] * 5.0
    assert normalised(replace(data, error=spoilt), MODEL, ("first", "second"))["gross_share"] == pytest.approx(
        0.25, abs=0.01
    )


def test_a_process_is_fitted_with_its_growth_its_doubt_and_its_time() -> None:
    rng = np.random.default_rng(6)
    sequences, frames = 150, 12
    sequence, times = np.repeat(np.arange(sequences), frames), np.tile(np.arange(frames) / 30.0, sequences)
    growth = np.repeat(rng.uniform(-0.5, 1.0, sequences), frames)
    doubt = np.repeat(rng.uniform(-0.15, 0.15, sequences), frames)
    scale = 0.05 * np.exp(0.8 * growth + 5.0 * doubt)
    unit, keep = rng.normal(size=len(times)), np.exp(-1.0 / 30.0 / 0.25)
    for n in range(len(times)):
        if n % frames:
            unit[n] = keep * unit[n - 1] + np.sqrt(1.0 - keep**2) * unit[n]
    noise = 0.01
    values = scale * unit + noise * rng.normal(size=len(times))
    std, exponent, slope, tau = _fit_process(
        sequence, values, np.full(len(times), noise**2), growth, doubt, times, DEFAULTS.correlation_range_s
    )
    assert std == pytest.approx(0.05, rel=0.12)
    assert exponent == pytest.approx(0.8, abs=0.15)
    assert slope == pytest.approx(5.0, abs=0.8)
    assert tau == pytest.approx(0.25, rel=0.3)


def test_modes_that_few_frames_show_keep_their_process() -> None:
    """A frame shows a mode where its points err by less than the mode's prior says it varies."""
    data = data_of(7, 240)
    found = _fit_modes(data, MODEL, DEFAULTS)
    np.testing.assert_allclose(found.mode_std, MODEL.mode_std, rtol=0.35)
    assert found.mode_std != MODEL.mode_std
    blind = replace(data, modes=data.modes * [1.0, 1e-4])
    kept = _fit_modes(blind, MODEL, DEFAULTS)
    assert kept.mode_std[0] != MODEL.mode_std[0]
    for name in ("mode_std", "mode_exponent", "mode_doubt", "correlation_time_s"):
        assert getattr(kept, name)[1] == getattr(MODEL, name)[1]


def test_parts_of_residuals_are_those_of_the_chosen_sequences() -> None:
    data = data_of(8, 12)
    found = data.of_sequences(np.array([0, 2]))
    np.testing.assert_array_equal(found.sequence, [0] * 4 + [2] * 4)
    np.testing.assert_array_equal(found.error, data.error[[0, 1, 2, 3, 8, 9, 10, 11]])

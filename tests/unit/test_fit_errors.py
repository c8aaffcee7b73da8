"""The error model is recovered from residuals that were drawn from a known one."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.engine.pose_geometry import pose_modes
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, matrix_from_quat, quat_normalize
from vid2phys.tracking.uncertainty.fit_errors import Residuals, _by_sequence, fit, normalised

TRUTH = Calibration(
    point_scale=0.8,
    point_floor_px=0.5,
    point_exponent=0.3,
    mode_std=(0.03, 0.03, 0.02, 0.02, 0.02, 0.05),
    mode_exponent=(0.5, 0.5, 0.5, 0.0, 0.0, 1.0),
    mode_doubt=(5.0, 5.0, 5.0, 3.0, 3.0, 4.0),
    correlation_time_s=(0.2, 0.2, 0.1, 0.3, 0.3, 0.2),
)


def draw(seed: int, sequences: int, *, outliers: float = 0.0) -> Residuals:
    """Residuals of a flat body with 12 points in sequences of 16 frames at 30 Hz."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(12, 3)) * np.array([0.5, 0.5, 0.15])
    count = sequences * 16
    sequence, time_s = np.repeat(np.arange(sequences), 16), np.tile(np.arange(16) / 30.0, sequences)
    rotation = np.repeat(matrix_from_quat(quat_normalize(rng.normal(size=(sequences, 4)))), 16, axis=0)
    translation = np.tile([0.0, 0.0, 20.0], (count, 1))
    modes = pose_modes(Pose(rotation, translation), points) * 20.0 * 32.0  # a sphere of radius 1 spans 64 view px
    modes[..., 3:5] /= 20.0  # sideways as a fraction of the radius
    diameter = np.repeat(np.exp(rng.uniform(np.log(20.0), np.log(100.0), sequences)), 16)
    raw = np.eye(2) * np.exp(rng.normal(0.0, 0.7, (count, 12)))[..., None, None]
    quality = np.clip(np.repeat(rng.normal(0.75, 0.1, sequences), 16) + rng.normal(0.0, 0.03, count), 0.3, 1.0)
    std, tau = TRUTH.mode_scale(diameter, quality), np.array(TRUTH.correlation_time_s)
    keep = np.exp(-1.0 / 30.0 / tau)
    coefficients = np.zeros((count, 6))
    for n in range(count):
        fresh = rng.normal(size=6)
        coefficients[n] = fresh if n % 16 == 0 else keep * coefficients[n - 1] + np.sqrt(1 - keep**2) * fresh
    noise = np.linalg.cholesky(TRUTH.point_covariance(raw, diameter)) @ rng.normal(size=(count, 12, 2, 1))
    error = (modes @ (std * coefficients)[:, None, :, None])[..., 0] + noise[..., 0]
    wild = rng.random((count, 12)) < outliers
    error[wild] += rng.normal(size=(wild.sum(), 2)) * 30.0
    return Residuals(error, raw, np.ones((count, 12), dtype=bool), modes, diameter, quality, sequence, time_s)


@pytest.fixture(scope="module")
def fitted() -> Calibration:
    return fit(draw(0, 50, outliers=0.02), Calibration())


def test_known_error_model_is_recovered(fitted: Calibration) -> None:
    assert fitted.point_scale == pytest.approx(TRUTH.point_scale, rel=0.1)
    assert fitted.point_floor_px == pytest.approx(TRUTH.point_floor_px, rel=0.2)
    assert fitted.point_exponent == pytest.approx(TRUTH.point_exponent, abs=0.08)
    np.testing.assert_allclose(fitted.mode_std, TRUTH.mode_std, rtol=0.3)
    np.testing.assert_allclose(fitted.mode_exponent, TRUTH.mode_exponent, atol=0.45)
    np.testing.assert_allclose(fitted.mode_doubt, TRUTH.mode_doubt, atol=2.0)
    np.testing.assert_allclose(np.log(fitted.correlation_time_s), np.log(TRUTH.correlation_time_s), atol=0.7)


def test_residuals_of_other_looks_are_as_large_as_expected(fitted: Calibration) -> None:
    numbers = normalised(draw(1, 40), fitted)
    shares = {k: v for k, v in numbers.items() if not k.endswith("_share")}
    assert set(shares) >= {"points", "frame", "clip", "log_depth"}
    for name, value in shares.items():
        assert 0.8 < value < 1.25, name


def test_a_model_that_is_too_sure_is_found_out() -> None:
    bold = Calibration(point_scale=0.8, point_floor_px=0.5, point_exponent=0.3, mode_std=(1e-4,) * 6)
    assert normalised(draw(2, 20), bold)["frame"] > 1.25


def test_calibration_survives_its_file_form() -> None:
    assert Calibration.from_dict(TRUTH.to_dict()) == TRUTH
    assert Calibration.from_dict(None) == Calibration()


def test_other_modes_than_those_of_a_pose_are_recovered() -> None:
    """Two modes, such as two joints: standard deviations and correlation times, and residuals as large as expected."""
    rng = np.random.default_rng(3)
    sequences, frames, points = 24, 16, 6
    count = sequences * frames
    modes = rng.normal(size=(count, points, 2, 2)) * [30.0, 60.0]
    std, tau = np.array([0.05, 0.01]), np.array([0.3, 0.1])
    keep, coefficients = np.exp(-1.0 / 30.0 / tau), np.zeros((count, 2))
    for n in range(count):
        fresh = rng.normal(size=2)
        coefficients[n] = fresh if n % frames == 0 else keep * coefficients[n - 1] + np.sqrt(1 - keep**2) * fresh
    error = (modes @ (std * coefficients)[:, None, :, None])[..., 0] + 0.5 * rng.normal(size=(count, points, 2))
    data = Residuals(
        error,
        np.zeros((count, points, 2, 2)),
        np.ones((count, points), dtype=bool),
        modes,
        np.full(count, 40.0),
        np.full(count, 0.8),
        np.repeat(np.arange(sequences), frames),
        np.tile(np.arange(frames) / 30.0, sequences),
    )
    two = Calibration(
        mode_std=(0.02,) * 2, mode_exponent=(0.0,) * 2, mode_doubt=(0.0,) * 2, correlation_time_s=(0.2,) * 2
    )
    found = fit(data, two)
    assert found.point_floor_px == pytest.approx(0.5, rel=0.05)
    np.testing.assert_allclose(found.mode_std, std, rtol=0.25)
    np.testing.assert_allclose(found.correlation_time_s, tau, rtol=0.5)
    numbers = normalised(data, found, ("first", "second"))
    assert {name: pytest.approx(1.0, abs=0.06) for name in ("first", "second", "points", "clip")} == {
        name: numbers[name] for name in ("first", "second", "points", "clip")
    }


def test_a_mode_that_no_frame_shows_stays_as_it_was() -> None:
    rng = np.random.default_rng(4)
    count = 6 * 16
    modes = rng.normal(size=(count, 6, 2, 2)) * [30.0, 0.0]
    error = modes[..., 0] * (0.05 * rng.normal(size=count))[:, None, None] + 0.5 * rng.normal(size=(count, 6, 2))
    looks, times = np.repeat(np.arange(6), 16), np.tile(np.arange(16) / 30.0, 6)
    sizes = np.full(count, 40.0), np.full(count, 0.8)
    data = Residuals(error, np.zeros((count, 6, 2, 2)), np.ones((count, 6), dtype=bool), modes, *sizes, looks, times)
    two = Calibration(
        mode_std=(0.02, 0.07), mode_exponent=(0.0,) * 2, mode_doubt=(0.0,) * 2, correlation_time_s=(0.2, 0.3)
    )
    found = fit(data, two)
    assert found.mode_std == (pytest.approx(0.05, rel=0.3), 0.07)
    assert found.correlation_time_s[1] == 0.3


@pytest.mark.parametrize(
    ("sequence", "expected"), [([2, 2, 2, 7], [[1, 2, 3], [4, -1, -1]]), ([2, 7, 7, 7], [[1, -1, -1], [2, 3, 4]])]
)
def test_each_sequence_is_a_row(sequence: list[int], expected: list[list[int]]) -> None:
    values = np.arange(1.0, 5.0)
    found, other = _by_sequence(np.array(sequence), (-1.0, values), (0.0, values))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(other, np.maximum(expected, 0))

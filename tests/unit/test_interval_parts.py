"""What an interval comes from: against closed forms, and the smoother's recursions against dense matrices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.flight import fly, watch
from tests.recovery.test_smoothing import mass_problem, start
from vid2phys.solvers import interval_parts, smoothing
from vid2phys.solvers.interval_parts import CORRELATION, FRAME_NOISE, SHARED_ERROR
from vid2phys.solvers.measurements import Errors
from vid2phys.solvers.smoothing_model import linearized, measurement_factors
from vid2phys.types import Array

FRAMES, NOISE, SHARED, KEPT = 12, 0.3, 0.5, 0.6


def errors() -> Errors:
    """Return the errors of a number that is measured in every frame: its own, and one that decays to KEPT a frame."""
    one = np.ones((FRAMES, 1, 1))
    clock, lasting = np.arange(FRAMES, dtype=float), -1.0 / np.log(KEPT)
    return Errors(one[..., 0] > 0.0, NOISE**2 * one, SHARED * one, np.array([lasting]), clock)


def test_parts_of_a_mean() -> None:
    parts = interval_parts.of_measurements(errors(), np.full((1, FRAMES, 1), 1.0 / FRAMES))
    assert parts[FRAME_NOISE] == pytest.approx(NOISE**2 / FRAMES)
    assert parts[SHARED_ERROR] == pytest.approx(SHARED**2 / FRAMES)
    lags = np.arange(1, FRAMES)
    expected = 2.0 * SHARED**2 / FRAMES**2 * ((FRAMES - lags) * KEPT**lags).sum()
    assert parts[CORRELATION] == pytest.approx(expected)


def test_lasting_errors_cancel_in_a_difference() -> None:
    gain = np.zeros((1, FRAMES, 1))
    gain[0, :2, 0] = 1.0, -1.0
    parts = interval_parts.of_measurements(errors(), gain)
    assert parts[SHARED_ERROR] == pytest.approx(2.0 * SHARED**2)
    assert parts[CORRELATION] == pytest.approx(-2.0 * KEPT * SHARED**2)


def test_smoothing_splits_its_covariance() -> None:
    seen = watch(fly())
    modes = np.zeros((*seen.bearings.shape, 2))
    modes[..., 0, 0] = modes[..., 1, 1] = 2e-3
    seen = replace(seen, shared_basis=modes, correlation_time_s=np.array([0.2, 0.4]))
    problem = mass_problem(seen)
    fit = smoothing.fit(problem, start(problem), rounds=1)
    assert sum(fit.theta_parts.values()) == pytest.approx(np.diagonal(fit.theta_covariance), rel=1e-5)

    gain, errors = _gain(fit, Errors.of(seen))
    dense = interval_parts.of_measurements(errors, gain)
    for name in (FRAME_NOISE, SHARED_ERROR, CORRELATION):
        assert fit.theta_parts[name] == pytest.approx(dense[name], rel=1e-4)
    shares = interval_parts.shares(fit.theta_parts, 0)
    assert sum(shares.values()) == pytest.approx(1.0)


def _gain(fit: smoothing.Smoothed, errors: Errors) -> tuple[Array, Errors]:
    """Return how far parameters move with the measurements [P, F, N], by dense algebra, and the errors as weighted."""
    hyperparameters = fit.hyperparameters[0]
    chain = smoothing.Chain(fit.layout, fit.point, hyperparameters)
    factor = smoothing._Normals([chain]).factored(0)[1]
    (keypoints,) = measurement_factors(fit.layout, fit.point)
    weights = linearized(fit.layout, fit.point, hyperparameters).weights / hyperparameters.point_scale**2
    unknowns = -factor.arrow_solution @ fit.theta_covariance  # [T, n, P]
    of_frames = unknowns[fit.layout.knots.frame_knot]
    slopes = np.concatenate([keypoints.by_state, keypoints.by_shared], axis=-1)
    size = fit.layout.tangent
    moved = np.concatenate([of_frames[:, :size], of_frames[:, fit.layout.shared]], axis=1)
    white = np.einsum("fkim,fmp->pfki", slopes, moved) * weights[..., None]
    root = np.linalg.inv(np.linalg.cholesky(fit.layout.problem.observation.covariance))
    gain = np.einsum("pfki,fkij->pfkj", white, root).reshape(len(fit.theta_covariance), *errors.used.shape)
    scale = np.repeat(weights, 2, axis=1)[:, :, None]
    return gain, replace(errors, covariance=errors.covariance / np.sqrt(scale * np.swapaxes(scale, 1, 2)))

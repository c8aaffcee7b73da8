"""Smoothing of measured coordinates, against motions in closed form and known errors."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.solvers.coordinate_smoothing import smooth_coordinates
from vid2phys.types import Array

TIMES = np.arange(84) / 60.0
TRUE = np.stack([np.sin(5.0 * TIMES), 0.4 * np.cos(9.0 * TIMES)], axis=1)
RATES = np.stack([5.0 * np.cos(5.0 * TIMES), -3.6 * np.sin(9.0 * TIMES)], axis=1)


def measured(std: float, seed: int = 0) -> tuple[Array, Array]:
    """Return coordinates with correlated errors, and their covariances."""
    covariance = std**2 * np.array([[1.0, -0.5], [-0.5, 2.0]])
    errors = np.random.default_rng(seed).multivariate_normal(np.zeros(2), covariance, len(TIMES))
    return TRUE + errors, np.tile(covariance, (len(TIMES), 1, 1))


def rms(errors: Array) -> float:
    return float(np.sqrt((errors**2).mean()))


@pytest.mark.parametrize("std", [0.003, 0.03])
def test_smoothed_motion_is_nearer_to_the_truth_and_its_errors_are_as_stated(std: float) -> None:
    found, normal = [], []
    for seed in range(5):
        noisy, covariance = measured(std, seed)
        states, errors = smooth_coordinates(TIMES, noisy, covariance)
        off = states - np.concatenate([TRUE, RATES], axis=1)
        found.append(rms(off[:, :2]) / rms(noisy - TRUE))
        normal.append(off / np.sqrt(np.einsum("tii->ti", errors)))
    assert max(found) < 0.9
    assert 0.6 < rms(np.array(normal)[..., :2]) < 1.3
    assert 0.3 < rms(np.array(normal)[..., 2:]) < 1.3


def test_wrong_frames_and_gaps_are_bridged() -> None:
    noisy, covariance = measured(0.003)
    noisy[20] += 0.5
    noisy[60:62] += [0.3, -0.2]
    noisy[48:51] = np.nan
    states, errors = smooth_coordinates(TIMES, noisy, covariance)
    assert np.abs(states[:, :2] - TRUE).max() < 0.02
    assert errors[49, 0, 0] > 4.0 * errors[40, 0, 0]


def test_a_coordinate_at_rest_stays_there() -> None:
    noisy, covariance = measured(0.01)
    states, _ = smooth_coordinates(TIMES, noisy - TRUE + [0.7, -0.2], covariance)
    assert np.abs(states[:, :2] - [0.7, -0.2]).max() < 0.01
    assert np.abs(states[:, 2:]).max() < 0.1


def test_clip_that_begins_and_ends_with_gaps() -> None:
    noisy, covariance = measured(0.003)
    noisy[:4] = noisy[-3:] = np.nan
    states, _ = smooth_coordinates(TIMES, noisy, covariance)
    assert np.isfinite(states).all()
    assert np.abs(states[:4, :2] - TRUE[:4]).max() < 0.1

"""Gauss-Markov priors: stationarity, spectrum and determinants against direct constructions."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.solvers import gauss_markov

STEPS = np.array([0.01, 0.03, 0.02, 0.05])


def covariance(chain: gauss_markov.Chain) -> np.ndarray:
    """Dense covariance of all states of a chain, built by propagating forward."""
    size = len(chain.initial)
    blocks = [np.linalg.inv(chain.initial)]
    rows = [[blocks[0]]]
    for k in range(len(chain.transition)):
        noise = np.linalg.inv(chain.precision[k])
        blocks.append(chain.transition[k] @ blocks[-1] @ chain.transition[k].T + noise)
        rows.append([*[chain.transition[k] @ c for c in rows[-1]], blocks[-1]])
    total = np.zeros((size * len(rows),) * 2)
    for i, row in enumerate(rows):
        for j, block in enumerate(row):
            total[i * size : (i + 1) * size, j * size : (j + 1) * size] = block
            total[j * size : (j + 1) * size, i * size : (i + 1) * size] = block.T
    return total


def test_first_order_has_exponential_covariance_and_right_determinant() -> None:
    chain = gauss_markov.first_order(STEPS, std=2.0, time_constant_s=0.04)
    times = np.concatenate([[0.0], np.cumsum(STEPS)])
    expected = 4.0 * np.exp(-np.abs(times[:, None] - times) / 0.04)
    np.testing.assert_allclose(covariance(chain), expected, rtol=1e-6)
    assert chain.logdet == pytest.approx(-np.linalg.slogdet(expected)[1], rel=1e-6)


def test_second_order_has_matern_covariance() -> None:
    chain = gauss_markov.second_order(STEPS, std=3.0, bandwidth_rad_s=20.0)
    times = np.concatenate([[0.0], np.cumsum(STEPS)])
    lag = 20.0 * np.abs(times[:, None] - times)
    got = covariance(chain)
    np.testing.assert_allclose(got[::2, ::2], 9.0 * (1.0 + lag) * np.exp(-lag), rtol=1e-6)
    assert chain.logdet == pytest.approx(-np.linalg.slogdet(got)[1], rel=1e-6)


def test_white_acceleration_matches_van_loan_integral() -> None:
    precision = gauss_markov.white_acceleration_precision(np.array([0.1]), density=np.array([2.0]))[0]
    grid = np.linspace(0.0, 0.1, 20001)
    flow = np.stack([0.1 - grid, np.ones_like(grid)])
    integral = 4.0 * np.trapezoid(flow[:, None] * flow[None], grid)
    np.testing.assert_allclose(np.linalg.inv(precision), integral, rtol=1e-6)

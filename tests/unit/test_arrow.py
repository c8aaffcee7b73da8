"""The block-tridiagonal-plus-arrow algebra against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.solvers import arrow


def dense(matrix: arrow.Arrow) -> np.ndarray:
    steps, size, _ = matrix.diagonal.shape
    count = matrix.corner.shape[0]
    full = np.zeros((steps * size + count,) * 2)
    for k in range(steps):
        here = slice(k * size, (k + 1) * size)
        full[here, here] = matrix.diagonal[k]
        full[here, steps * size :] = matrix.arrow[k]
        full[steps * size :, here] = matrix.arrow[k].T
        if k:
            before = slice((k - 1) * size, k * size)
            full[here, before] = matrix.lower[k - 1]
            full[before, here] = matrix.lower[k - 1].T
    full[steps * size :, steps * size :] = matrix.corner
    return full


@pytest.fixture
def matrix() -> arrow.Arrow:
    rng = np.random.default_rng(0)
    steps, size, count = 6, 4, 3
    diagonal, lower = np.zeros((steps, size, size)), np.zeros((steps - 1, size, size))
    side, corner = np.zeros((steps, size, count)), np.eye(count) * 1e-3
    for k in range(steps):
        rows = rng.normal(size=(7, 2 * size + count))
        here, after, parameters = rows[:, :size], rows[:, size : 2 * size], rows[:, 2 * size :]
        diagonal[k] += here.T @ here + 0.1 * np.eye(size)
        side[k] += here.T @ parameters
        corner += parameters.T @ parameters
        if k + 1 < steps:
            lower[k] += after.T @ here
            diagonal[k + 1] += after.T @ after
            side[k + 1] += after.T @ parameters
    return arrow.Arrow(diagonal, lower, side, corner)


def test_solution_determinant_and_marginals_match_dense(matrix: arrow.Arrow) -> None:
    full = dense(matrix)
    rng = np.random.default_rng(1)
    chain, corner = rng.normal(size=matrix.diagonal.shape[:2]), rng.normal(size=3)
    factor = arrow.factorize(matrix)
    covariance = arrow.parameter_covariance(factor.schur).covariance
    got_chain, got_corner = arrow.solve(factor, chain, corner, covariance)
    expected = np.linalg.solve(full, np.concatenate([chain.ravel(), corner]))
    np.testing.assert_allclose(np.concatenate([got_chain.ravel(), got_corner]), expected, rtol=1e-9, atol=1e-12)
    inverse = np.linalg.inv(full)
    np.testing.assert_allclose(covariance, inverse[-3:, -3:], rtol=1e-9, atol=1e-12)
    blocks, below = arrow.marginals(matrix, factor, covariance)
    for k in range(6):
        here, before = slice(4 * k, 4 * k + 4), slice(4 * k - 4, 4 * k)
        np.testing.assert_allclose(blocks[k], inverse[here, here], rtol=1e-9, atol=1e-12)
        if k:
            np.testing.assert_allclose(below[k - 1], inverse[here, before], rtol=1e-9, atol=1e-12)
    total = factor.chain_logdet + np.linalg.slogdet(factor.schur)[1]
    assert total == pytest.approx(np.linalg.slogdet(full)[1], rel=1e-12)


def test_null_direction_is_named_and_kept_out_of_the_inverse() -> None:
    direction = np.array([1.0, 1.0, 0.0]) / np.sqrt(2.0)
    information = 100.0 * (np.eye(3) - np.outer(direction, direction))
    null = arrow.parameter_covariance(information, reference=np.full(3, 100.0))
    assert null.directions.shape == (1, 3)
    assert abs(null.directions[0] @ direction) == pytest.approx(1.0, abs=1e-9)
    assert np.abs(null.covariance @ direction).max() < 1e-9


def test_indefinite_chain_is_refused(matrix: arrow.Arrow) -> None:
    broken = arrow.Arrow(-matrix.diagonal, matrix.lower, matrix.arrow, matrix.corner)
    with pytest.raises(np.linalg.LinAlgError, match="pivot 0"):
        arrow.factorize(broken)


def test_a_damped_step_is_that_of_raised_information() -> None:
    schur, reference = np.array([[4.0e6, 1.0e6], [1.0e6, 2.0e6]]), np.array([5.0e6, 8.0e6])
    damped = arrow.parameter_covariance(schur, reference=reference, damping=0.3).covariance
    np.testing.assert_allclose(damped, np.linalg.inv(schur + 0.3 * np.diag(reference)), rtol=1e-10)

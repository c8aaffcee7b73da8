"""Linear algebra of smoothing: symmetric block-tridiagonal matrices with an arrow.

Purpose: the normal equations of a chain of T unknown blocks (size n) that share P parameters are

    H = [ A    E ]     A: diagonal blocks D[k], blocks below the diagonal L[k] (row k + 1, column k)
        [ E^T  F ]     E: [T, n, P], F: [P, P]

Method: factor, solution, log-determinant and marginal covariances (diagonal blocks of H^-1) cost O(T n^3 + T n^2 P).
The recursions are those of Rauch, Tung and Striebel ("Maximum likelihood estimates of linear dynamic systems", 1965) in
block form, and Takahashi's selected inversion.

Limits: A has to be positive definite. Directions of the parameters that nothing determines are left out (`Null`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack, qr

from vid2phys.types import Array

NULL_TOLERANCE = 1e-9
_TOUCHED = 1e-6  # squared share of a null direction along parameters with priors, above which the priors determine it
_NEGLIGIBLE = 1e-4  # part of a direction along a parameter
_LEAST_REFERENCE = 1e5  # with the tolerance: a standard deviation above 100 in solver coordinates is null


@dataclass(frozen=True)
class Arrow:
    """The blocks of H. diagonal [T, n, n], lower [T - 1, n, n], arrow [T, n, P], corner [P, P]."""

    diagonal: Array
    lower: Array
    arrow: Array
    corner: Array


@dataclass(frozen=True)
class Factor:
    """Banded Cholesky factor of A (bandwidth 2 n - 1), and the Schur complement of the parameters.

    band: LAPACK lower band storage, [2 n, T n]. chain_logdet: log det A. arrow_solution: A^-1 E, [T, n, P].
    schur: F - E^T A^-1 E, [P, P].
    """

    band: Array
    chain_logdet: float
    arrow_solution: Array
    schur: Array


def factorize(matrix: Arrow) -> Factor:
    """Factor H. Raises numpy.linalg.LinAlgError when A is not positive definite."""
    band, info = lapack.dpbtrf(_to_band(matrix), lower=1, overwrite_ab=1)
    if info:
        size = matrix.diagonal.shape[1]
        raise np.linalg.LinAlgError(f"pivot {(info - 1) // size} of {len(matrix.diagonal)} is not positive definite")
    logdet = 2.0 * float(np.log(band[0]).sum())
    arrow_solution = _solve_chain(band, matrix.arrow)
    schur = matrix.corner - np.einsum("kip,kiq->pq", matrix.arrow, arrow_solution)
    return Factor(band, logdet, arrow_solution, 0.5 * (schur + schur.T))


def _to_band(matrix: Arrow) -> Array:
    steps, size, _ = matrix.diagonal.shape
    band = np.zeros((steps, size, 2 * size))  # its transpose is LAPACK's, in Fortran's order
    column = np.arange(size)
    for row in range(size):  # of a block; all knots at once
        below = column[: row + 1]
        band[:, below, row - below] = matrix.diagonal[:, row, : row + 1]
        band[: steps - 1, column, size + row - column] = matrix.lower[:, row]
    return band.reshape(steps * size, 2 * size).T


def _solve_chain(band: Array, right: Array) -> Array:
    """Return A^-1 right, [T, n, R], for a right-hand side [T, n, R]."""
    if right.shape[-1] == 0:
        return right.copy()
    solution, _ = lapack.dpbtrs(band, right.reshape(-1, right.shape[-1]), lower=1)
    return solution.reshape(right.shape)


@dataclass(frozen=True)
class Null:
    """Eigen-decomposition of the scaled Schur complement: which directions of the parameters the data determine.

    covariance: [P, P] pseudo-inverse. directions: [number null, P], each of unit length in solver coordinates.
    """

    covariance: Array
    directions: Array


def parameter_covariance(
    schur: Array,
    tolerance: float = NULL_TOLERANCE,
    reference: Array | None = None,
    prior: Array | None = None,
    damping: float = 0.0,
) -> Null:
    """Return the pseudo-inverse of the parameters' information and its null directions.

    Directions below `tolerance` of `reference` are null. reference: [P] information of each parameter with all else
    known (its diagonal in the corner block). prior: [P] the part of the diagonal of `schur` that is from priors, 0 for
    none. Where the data determine nothing but priors do, the priors count however small they are beside the reference.
    damping: share of `reference` that is added in all other directions, for a damped step.
    """
    if len(schur) == 0:
        return Null(np.zeros((0, 0)), np.zeros((0, 0)))
    scale = np.sqrt(np.maximum(np.diagonal(schur) if reference is None else reference, _LEAST_REFERENCE))
    values, vectors = np.linalg.eigh(schur / np.outer(scale, scale))
    null = values <= tolerance * max(1.0, float(values[-1]))
    inverse = np.where(null, 0.0, 1.0 / np.where(null, 1.0, values + damping))
    covariance = (vectors * inverse) @ vectors.T / np.outer(scale, scale)
    nowhere = np.linalg.qr(vectors[:, null] / scale[:, None])[0]
    if prior is not None and null.any():
        of_priors, rotation = np.linalg.eigh((nowhere.T * np.minimum(prior, 1.0)) @ nowhere)
        nowhere, by_priors = nowhere @ rotation[:, of_priors < _TOUCHED], nowhere @ rotation[:, of_priors >= _TOUCHED]
        covariance += by_priors @ np.linalg.inv((by_priors.T * prior) @ by_priors) @ by_priors.T
    return Null(covariance, _plain(nowhere.T))


def _plain(directions: Array) -> Array:
    """Return directions [m, P] of the same span, each of unit length and along as few parameters as possible."""
    if not len(directions):
        return directions
    _, triangle, order = qr(directions, mode="economic", pivoting=True)
    plain = np.empty_like(directions)
    plain[:, order] = np.linalg.solve(triangle[:, : len(triangle)], triangle)
    plain[np.abs(plain) < _NEGLIGIBLE] = 0.0
    return np.asarray(plain / np.linalg.norm(plain, axis=1, keepdims=True), dtype=float)


def reduced(factor: Factor, chain: Array, corner: Array) -> Array:
    """Return the parameters' right-hand side [P] once the chain is eliminated, from (chain [T, n], corner [P])."""
    return np.asarray(corner - np.einsum("kip,ki->p", factor.arrow_solution, chain), dtype=float)


def back(factor: Factor, chain: Array, parameters: Array) -> Array:
    """Return the chain's solution [T, n], given that of the parameters [P]."""
    base = _solve_chain(factor.band, chain[..., None])[..., 0]
    return np.asarray(base - factor.arrow_solution @ parameters, dtype=float)


def solve(factor: Factor, chain: Array, corner: Array, covariance: Array) -> tuple[Array, Array]:
    """Return H^-1 applied to (chain [T, n], corner [P]), with the parameters' covariance from
    `parameter_covariance`."""
    parameters = covariance @ reduced(factor, chain, corner)
    return back(factor, chain, parameters), parameters


def marginals(matrix: Arrow, factor: Factor, covariance: Array) -> tuple[Array, Array]:
    """Return blocks of H^-1 of the chain: on the diagonal [T, n, n], and below [T - 1, n, n].

    Both include the parameters' uncertainty. Blocks below are covariances of a knot with the one before it, row k + 1
    and column k.
    """
    steps = len(matrix.diagonal)
    blocks, gain = np.empty_like(matrix.diagonal), np.empty_like(matrix.lower)
    below = np.empty_like(matrix.lower)
    blocks[0] = np.linalg.inv(matrix.diagonal[0])
    for k in range(1, steps):
        gain[k - 1] = matrix.lower[k - 1] @ blocks[k - 1]
        blocks[k] = np.linalg.inv(matrix.diagonal[k] - gain[k - 1] @ matrix.lower[k - 1].T)
    for k in range(steps - 2, -1, -1):
        below[k] = -blocks[k + 1] @ gain[k]
        blocks[k] -= gain[k].T @ below[k]
    solution = factor.arrow_solution
    spread = solution @ covariance
    blocks += spread @ np.swapaxes(solution, 1, 2)
    return blocks, below + spread[1:] @ np.swapaxes(solution[:-1], 1, 2)


def squares(matrix: Arrow, chain: Array, parameters: Array) -> Array:
    """Return v' M v for each column v of (chain [T, n, Q], parameters [P, Q]) and a matrix M of these blocks: [Q]."""
    found = np.einsum("kiq,kij,kjq->q", chain, matrix.diagonal, chain, optimize=True)
    found += 2.0 * np.einsum("kiq,kij,kjq->q", chain[1:], matrix.lower, chain[:-1], optimize=True)
    found += 2.0 * np.einsum("kiq,kip,pq->q", chain, matrix.arrow, parameters, optimize=True)
    return np.asarray(found + np.einsum("pq,pr,rq->q", parameters, matrix.corner, parameters))

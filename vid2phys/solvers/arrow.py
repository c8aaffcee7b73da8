"""Linear algebra of smoothing: symmetric block-tridiagonal matrices with an arrow.

The normal equations of a chain of T unknown blocks (size n) that share P parameters are

    H = [ A    E ]     A: diagonal blocks D[k], blocks below the diagonal L[k] (row k + 1, column k)
        [ E^T  F ]     E: [T, n, P], F: [P, P]

Factor, solution, log-determinant and the marginal covariances (diagonal blocks of H^-1) cost O(T n^3 + T n^2 P).
Recursions: Rauch, Tung, Striebel (1965) in block form; Takahashi's selected inversion.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from vid2phys.types import Array

NULL_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Arrow:
    """The blocks of H. diagonal [T, n, n], lower [T - 1, n, n], arrow [T, n, P], corner [P, P]."""

    diagonal: Array
    lower: Array
    arrow: Array
    corner: Array


@dataclass(frozen=True)
class Factor:
    """Block LDL^T factor of A, and of the Schur complement of the parameters.

    pivot_inverse: inverses of the pivots S[k], [T, n, n]. gain: G[k] = L[k] S[k]^-1, [T - 1, n, n].
    chain_logdet: log det A. arrow_solution: A^-1 E, [T, n, P]. schur: F - E^T A^-1 E, [P, P].
    """

    pivot_inverse: Array
    gain: Array
    chain_logdet: float
    arrow_solution: Array
    schur: Array


def factorize(matrix: Arrow) -> Factor:
    """Factor H. Raises numpy.linalg.LinAlgError when A is not positive definite."""
    steps, size, _ = matrix.diagonal.shape
    pivot_inverse = np.empty_like(matrix.diagonal)
    gain = np.empty_like(matrix.lower)
    logdet = 0.0
    pivot = matrix.diagonal[0]
    for k in range(steps):
        if k:
            gain[k - 1] = matrix.lower[k - 1] @ pivot_inverse[k - 1]
            pivot = matrix.diagonal[k] - gain[k - 1] @ matrix.lower[k - 1].T
        cholesky, info = lapack.dpotrf(pivot, lower=1)
        if info:
            raise np.linalg.LinAlgError(f"pivot {k} of {steps} is not positive definite")
        logdet += 2.0 * float(np.log(np.diagonal(cholesky)).sum())
        inverse, _ = lapack.dpotri(cholesky, lower=1)
        pivot_inverse[k] = np.tril(inverse) + np.tril(inverse, -1).T
    partial = Factor(pivot_inverse, gain, logdet, np.zeros((steps, size, 0)), np.zeros((0, 0)))
    arrow_solution = _solve_chain(partial, matrix.arrow)
    schur = matrix.corner - np.einsum("kip,kiq->pq", matrix.arrow, arrow_solution)
    return Factor(pivot_inverse, gain, logdet, arrow_solution, 0.5 * (schur + schur.T))


def _solve_chain(factor: Factor, right: Array) -> Array:
    """A^-1 right, [T, n, R] -> [T, n, R]."""
    steps = len(right)
    solution = right.copy()
    for k in range(1, steps):
        solution[k] -= factor.gain[k - 1] @ solution[k - 1]
    solution = np.einsum("kij,kjr->kir", factor.pivot_inverse, solution)
    for k in range(steps - 2, -1, -1):
        solution[k] -= factor.gain[k].T @ solution[k + 1]
    return solution


@dataclass(frozen=True)
class Null:
    """Eigen-decomposition of the scaled Schur complement: which directions of the parameters the data determine.

    covariance: [P, P] pseudo-inverse. directions: [number null, P], each of unit length in solver coordinates.
    """

    covariance: Array
    directions: Array


def parameter_covariance(schur: Array, tolerance: float = NULL_TOLERANCE, reference: Array | None = None) -> Null:
    """Pseudo-inverse of the parameters' information; directions below `tolerance` of `reference` are null.

    reference: [P] information of each parameter alone, were all else known (its diagonal in the corner block).
    """
    if len(schur) == 0:
        return Null(np.zeros((0, 0)), np.zeros((0, 0)))
    scale = np.sqrt(np.maximum(np.diagonal(schur) if reference is None else reference, 1e-300))
    values, vectors = np.linalg.eigh(schur / np.outer(scale, scale))
    null = values <= tolerance * max(1.0, float(values[-1]))
    inverse = np.where(null, 0.0, 1.0 / np.where(null, 1.0, values))
    covariance = (vectors * inverse) @ vectors.T / np.outer(scale, scale)
    directions = (vectors[:, null] / scale[:, None]).T
    norms = np.linalg.norm(directions, axis=1, keepdims=True)
    return Null(covariance, directions / np.where(norms == 0.0, 1.0, norms))


def solve(factor: Factor, chain: Array, corner: Array, covariance: Array) -> tuple[Array, Array]:
    """H^-1 applied to (chain [T, n], corner [P]), with the parameters' covariance from `parameter_covariance`."""
    base = _solve_chain(factor, chain[..., None])[..., 0]
    parameters = covariance @ (corner - np.einsum("kip,ki->p", factor.arrow_solution, chain))
    return base - factor.arrow_solution @ parameters, parameters


def marginals(factor: Factor, covariance: Array) -> Array:
    """Diagonal blocks of H^-1 for the chain, [T, n, n], parameters' uncertainty included."""
    blocks = factor.pivot_inverse.copy()
    for k in range(len(blocks) - 2, -1, -1):
        blocks[k] += factor.gain[k].T @ blocks[k + 1] @ factor.gain[k]
    solution = factor.arrow_solution
    return blocks + np.einsum("kip,pq,kjq->kij", solution, covariance, solution)

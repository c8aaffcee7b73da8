"""Shapes of a body that bends far, by amplitudes of its modes: rotations and strains, not displacements, are linear.

Linear modes stretch a body that bends. Here the displacement gradient at each integration point, linear in the
amplitudes, is split into a rotation and a strain. Each point turns by the exponential of its rotation, and the vertices
follow by least squares, a Poisson equation (Huang, Tong, Zhou, Bao and Desbrun, "Interactive shape interpolation
through controllable dynamic deformation", 2011). A slender bar then keeps its length, and its bending energy stays a
quadratic form of the amplitudes.

The map from amplitudes to vertices is sampled once and replaced by polynomials (`BentShapes`), of which all
derivatives are exact.

Limits: amplitudes within `limits`; sections turn by up to about 90 degrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys import geometry
from vid2phys.types import Array

if TYPE_CHECKING:
    from collections.abc import Callable

    from vid2phys.engine.systems._tets import TetBody

DEGREE, DEGREE_OF_HIGHER = 5, 2
_SAMPLES_PER_TERM = 4
_LARGE = 0.5  # amplitudes above this share of the largest one have terms of all degrees


@dataclass(frozen=True)
class BentShapes:
    """Vertices as polynomials of amplitudes.

    Attributes:
        rest_m: [V, 3] shape at rest, m.
        powers: [Q, D] exponents of each term; the first D terms are the amplitudes themselves.
        coefficients: [Q, V, 3] of the terms, m.
        limits: [D] largest amplitudes.
        left_out_m: root mean square of what the polynomials leave out, within the limits, m.
    """

    rest_m: Array
    powers: NDArray[np.int64]
    coefficients: Array
    limits: Array
    left_out_m: float

    def terms(self, amplitudes: Array) -> Array:
        """Return the terms [..., Q] of amplitudes [..., D]."""
        return terms(self.powers, amplitudes)

    def slopes(self, amplitudes: Array) -> Array:
        """Return the derivatives [..., Q, D] of the terms by amplitudes [..., D]."""
        out = np.empty((*np.shape(amplitudes)[:-1], *self.powers.shape))
        for d in range(self.powers.shape[1]):
            lowered = self.powers.copy()
            lowered[:, d] = np.maximum(lowered[:, d] - 1, 0)
            out[..., d] = self.powers[:, d] * terms(lowered, amplitudes)
        return out

    def vertices(self, amplitudes: Array) -> Array:
        """Return vertices [..., V, 3] m of amplitudes [..., D]."""
        flat = self.terms(amplitudes) @ self.coefficients.reshape(len(self.powers), -1)
        return np.asarray(self.rest_m + flat.reshape(*flat.shape[:-1], -1, 3))

    def jacobian(self, amplitudes: Array, vertices: NDArray[np.int64] | slice = slice(None)) -> Array:
        """Return the derivatives [..., N, 3, D] of vertices by amplitudes [..., D]."""
        return np.einsum("...qd,qvx->...vxd", self.slopes(amplitudes), self.coefficients[:, vertices], optimize=True)

    def of_vertices(self, count: int) -> BentShapes:
        """Return the shapes of the first `count` vertices."""
        return BentShapes(self.rest_m[:count], self.powers, self.coefficients[:, :count], self.limits, self.left_out_m)


def terms(powers: NDArray[np.int64], amplitudes: Array) -> Array:
    """Return products of powers [..., Q] of amplitudes [..., D]; powers: [Q, D]."""
    q = np.asarray(amplitudes, dtype=float)
    highest = int(powers.max())
    table = np.stack([q**k for k in range(highest + 1)], axis=-1)  # [..., D, K]
    out = np.ones((*q.shape[:-1], len(powers)))
    for d in range(powers.shape[1]):
        out *= table[..., d, powers[:, d]]
    return out


def bent_shapes(body: TetBody, modes: Array, limits: Array) -> BentShapes:
    """Return the shapes of a clamped body with modes [D, V, 3], for amplitudes up to `limits` [D].

    Terms are of degree 5 at most, and of degree 2 in the amplitudes that are small by their limits.
    """
    from scipy.stats import qmc

    size = len(modes)
    powers = _powers(size, limits < _LARGE * limits.max())
    more = powers[size:]
    count = int(np.ceil(np.log2(_SAMPLES_PER_TERM * max(1, len(more)))))
    at = limits * (2.0 * qmc.Sobol(size, seed=0).random_base2(count) - 1.0)
    linear = modes.reshape(size, -1)
    shape = rotated_shapes(body, modes)
    off = np.stack([(shape(q) - body.rest_m).ravel() for q in at]) - at @ linear
    scale = np.prod(limits[None] ** more, axis=1)
    design = terms(more, at / limits)
    solved, *_ = np.linalg.lstsq(design, off, rcond=None)
    left = float(np.sqrt(((design @ solved - off) ** 2).mean() * 3.0))
    coefficients = np.concatenate([linear, solved / scale[:, None]]).reshape(len(powers), -1, 3)
    return BentShapes(body.rest_m, powers, coefficients, limits, left)


def rotated_shapes(body: TetBody, modes: Array) -> Callable[[Array], Array]:
    """Return a function that takes amplitudes [D] of modes [D, V, 3] to the vertices [V, 3], m."""
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import splu

    points = np.flatnonzero(body.central == 0.0)
    nodes, count = body.point_nodes[points], len(body.rest_m)
    gradients, volumes = body.gradients[points], body.volumes[points]
    of_modes = np.einsum("dtix,tij->dtxj", modes[:, nodes], gradients, optimize=True)
    entries = np.einsum("t,tix,tjx->tij", volumes, gradients, gradients, optimize=True)
    rows, columns = (np.broadcast_to(index, entries.shape).ravel() for index in (nodes[:, :, None], nodes[:, None]))
    laplacian = coo_array((entries.ravel(), (rows, columns)), shape=(count, count)).tocsr()
    free = np.flatnonzero(body.free)
    factor = splu(laplacian[free][:, free].tocsc(), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
    fixed = laplacian[free][:, body.pinned] @ body.rest_m[body.pinned]

    def shape(amplitudes: Array) -> Array:
        gradient = np.tensordot(amplitudes, of_modes, 1)
        skew = 0.5 * (gradient - np.swapaxes(gradient, 1, 2))
        strain = np.eye(3) + gradient - skew
        vector = np.stack([skew[:, 2, 1], skew[:, 0, 2], skew[:, 1, 0]], axis=1)
        deformed = geometry.matrix_from_rotvec(vector) @ strain
        parts = (gradients @ np.swapaxes(volumes[:, None, None] * deformed, 1, 2)).reshape(-1, 3)
        right = np.stack([np.bincount(nodes.ravel(), part, count) for part in parts.T], axis=1)
        out = body.rest_m.copy()
        out[free] = factor.solve(right[free] - fixed)
        return out

    return shape


def _powers(size: int, small: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the exponents [Q, D] of products of amplitudes, those of degree 1 first. small: [D] limited in degree."""
    rows = [
        np.bincount(np.array(chosen), minlength=size)
        for k in range(1, DEGREE + 1)
        for chosen in combinations_with_replacement(range(size), k)
    ]
    return np.array([row for row in rows if row[small].sum() <= DEGREE_OF_HIGHER], dtype=np.int64)

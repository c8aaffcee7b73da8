"""3 x 3 matrices as tuples of nine numbers, row by row, for Numba loops that the compiler turns into vector code."""

# Numba infers the types itself.
# mypy: ignore-errors

from __future__ import annotations

import numba

inlined = numba.njit(fastmath=True, error_model="numpy", forceinline=True)


@inlined
def add(a, b):
    """Return A + B."""
    return (
        *(a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4]),
        *(a[5] + b[5], a[6] + b[6], a[7] + b[7], a[8] + b[8]),
    )


@inlined
def scale(s, a):
    """Return s A."""
    return (s * a[0], s * a[1], s * a[2], s * a[3], s * a[4], s * a[5], s * a[6], s * a[7], s * a[8])


@inlined
def add_scaled(a, s, b):
    """Return A + s B."""
    return (
        *(a[0] + s * b[0], a[1] + s * b[1], a[2] + s * b[2], a[3] + s * b[3], a[4] + s * b[4]),
        *(a[5] + s * b[5], a[6] + s * b[6], a[7] + s * b[7], a[8] + s * b[8]),
    )


@inlined
def dot(a, b):
    """Return A : B."""
    first = a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3] + a[4] * b[4]
    return first + a[5] * b[5] + a[6] * b[6] + a[7] * b[7] + a[8] * b[8]


@inlined
def times(a, b):
    """Return A B."""
    return (
        a[0] * b[0] + a[1] * b[3] + a[2] * b[6],
        a[0] * b[1] + a[1] * b[4] + a[2] * b[7],
        a[0] * b[2] + a[1] * b[5] + a[2] * b[8],
        a[3] * b[0] + a[4] * b[3] + a[5] * b[6],
        a[3] * b[1] + a[4] * b[4] + a[5] * b[7],
        a[3] * b[2] + a[4] * b[5] + a[5] * b[8],
        a[6] * b[0] + a[7] * b[3] + a[8] * b[6],
        a[6] * b[1] + a[7] * b[4] + a[8] * b[7],
        a[6] * b[2] + a[7] * b[5] + a[8] * b[8],
    )


@inlined
def times_transposed(a, b):
    """Return A B^T."""
    return (
        a[0] * b[0] + a[1] * b[1] + a[2] * b[2],
        a[0] * b[3] + a[1] * b[4] + a[2] * b[5],
        a[0] * b[6] + a[1] * b[7] + a[2] * b[8],
        a[3] * b[0] + a[4] * b[1] + a[5] * b[2],
        a[3] * b[3] + a[4] * b[4] + a[5] * b[5],
        a[3] * b[6] + a[4] * b[7] + a[5] * b[8],
        a[6] * b[0] + a[7] * b[1] + a[8] * b[2],
        a[6] * b[3] + a[7] * b[4] + a[8] * b[5],
        a[6] * b[6] + a[7] * b[7] + a[8] * b[8],
    )


@inlined
def symmetric_product(a, b):
    """Return A^T B + B^T A."""
    xx = a[0] * b[0] + a[3] * b[3] + a[6] * b[6]
    yy = a[1] * b[1] + a[4] * b[4] + a[7] * b[7]
    zz = a[2] * b[2] + a[5] * b[5] + a[8] * b[8]
    xy = a[0] * b[1] + a[3] * b[4] + a[6] * b[7] + a[1] * b[0] + a[4] * b[3] + a[7] * b[6]
    xz = a[0] * b[2] + a[3] * b[5] + a[6] * b[8] + a[2] * b[0] + a[5] * b[3] + a[8] * b[6]
    yz = a[1] * b[2] + a[4] * b[5] + a[7] * b[8] + a[2] * b[1] + a[5] * b[4] + a[8] * b[7]
    return (xx + xx, xy, xz, xy, yy + yy, yz, xz, yz, zz + zz)


@inlined
def cofactor(a):
    """Return d det A / d A."""
    return (
        a[4] * a[8] - a[5] * a[7],
        a[5] * a[6] - a[3] * a[8],
        a[3] * a[7] - a[4] * a[6],
        a[2] * a[7] - a[1] * a[8],
        a[0] * a[8] - a[2] * a[6],
        a[1] * a[6] - a[0] * a[7],
        a[1] * a[5] - a[2] * a[4],
        a[2] * a[3] - a[0] * a[5],
        a[0] * a[4] - a[1] * a[3],
    )


@inlined
def cofactor_derivative(a, b):
    """Return the derivative of the cofactor of A along B; symmetric in both."""
    return (
        a[4] * b[8] + b[4] * a[8] - a[5] * b[7] - b[5] * a[7],
        a[5] * b[6] + b[5] * a[6] - a[3] * b[8] - b[3] * a[8],
        a[3] * b[7] + b[3] * a[7] - a[4] * b[6] - b[4] * a[6],
        a[2] * b[7] + b[2] * a[7] - a[1] * b[8] - b[1] * a[8],
        a[0] * b[8] + b[0] * a[8] - a[2] * b[6] - b[2] * a[6],
        a[1] * b[6] + b[1] * a[6] - a[0] * b[7] - b[0] * a[7],
        a[1] * b[5] + b[1] * a[5] - a[2] * b[4] - b[2] * a[4],
        a[2] * b[3] + b[2] * a[3] - a[0] * b[5] - b[0] * a[5],
        a[0] * b[4] + b[0] * a[4] - a[1] * b[3] - b[1] * a[3],
    )

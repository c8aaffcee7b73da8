"""Rollouts of a reduced body as Numba loops: Lagrange's equations for amplitudes of which vertices are polynomials.

With the terms p(q) of amplitudes q, y = B^T p and slopes Y = B^T dp/dq, the masses move as y, and

    Y^T M Y q'' + Y^T M B^T (d2p/dq2 : q' q') + eta C q' + E K q + g Y^T w = 0

for masses M = density M_volume + M_load, weights w alike, Young's modulus E and viscosity eta. Steps are those of the
classical Runge-Kutta method of fourth order.

Limits: a few amplitudes; in double precision.
"""

# Numba infers the types itself.
# mypy: ignore-errors

from __future__ import annotations

import numba
import numpy as np

_compiled = numba.njit(cache=True, fastmath=True, error_model="numpy")


@_compiled
def _jets(powers, q, rate, slopes, bends):
    """Compute the slopes [Q, D] of terms at q [D], and their second derivatives along the rate [D], [Q]."""
    count, size = powers.shape
    highest = powers.max()
    table = np.empty((size, highest + 1))
    for d in range(size):
        table[d, 0] = 1.0
        for k in range(highest):
            table[d, k + 1] = table[d, k] * q[d]
    for i in range(count):
        value, first, second = 1.0, 0.0, 0.0  # the term along q + t rate
        for d in range(size):
            k = powers[i, d]
            if k == 0:
                continue
            a = table[d, k]
            b = k * table[d, k - 1] * rate[d]
            c = k * (k - 1) * table[d, max(k - 2, 0)] * rate[d] * rate[d]
            second = second * a + 2.0 * first * b + value * c
            first = first * a + value * b
            value = value * a
        bends[i] = second
        for d in range(size):
            k = powers[i, d]
            slope = float(k)
            if k > 0:
                for e in range(size):
                    slope *= table[e, powers[i, e] - (1 if e == d else 0)]
            slopes[i, d] = slope


@_compiled
def _accelerate(x, parameters, body, work, out):
    """Compute the derivative [2 D] of a state [2 D]."""
    powers, basis, mass_volume, mass_load, weight_volume, weight_load, stiffness, viscosity = body
    slopes, bends, moved, pushed, matrix = work
    count, size, rank = powers.shape[0], powers.shape[1], basis.shape[1]
    young, eta, gravity, density = parameters[0], parameters[2], parameters[3], parameters[4]
    _jets(powers, x[:size], x[size:], slopes, bends)
    moved[:] = 0.0
    for i in range(count):
        for r in range(rank):
            share = basis[i, r]
            moved[r, size] += share * bends[i]
            for d in range(size):
                moved[r, d] += share * slopes[i, d]
    for r in range(rank):
        for d in range(size + 1):
            total = 0.0
            for s in range(rank):
                total += (density * mass_volume[r, s] + mass_load[r, s]) * moved[s, d]
            pushed[r, d] = total
    for d in range(size):
        for e in range(size):
            total = 0.0
            for r in range(rank):
                total += moved[r, d] * pushed[r, e]
            matrix[d, e] = total
        force = 0.0
        for r in range(rank):
            weight = gravity * (density * weight_volume[r] + weight_load[r])
            force -= moved[r, d] * (pushed[r, size] + weight)
        for e in range(size):
            force -= young * stiffness[d, e] * x[e] + eta * viscosity[d, e] * x[size + e]
        out[size + d] = force
        out[d] = x[size + d]
    out[size:] = np.linalg.solve(matrix, out[size:])


@_compiled
def roll_out(states, parameters, dt_s, substeps, body):
    """Fill states[1:] [S + 1, B, 2 D] from states[0]; parameters: [B, P]; dt_s: [B, S]."""
    powers, basis = body[0], body[1]
    size = powers.shape[1]
    work = (
        np.empty(powers.shape),
        np.empty(len(powers)),
        np.empty((basis.shape[1], size + 1)),
        np.empty((basis.shape[1], size + 1)),
        np.empty((size, size)),
    )
    rate, total, moved = np.empty(2 * size), np.empty(2 * size), np.empty(2 * size)
    for row in range(states.shape[1]):
        x = states[0, row].copy()
        for step in range(len(states) - 1):
            h = dt_s[row, step] / substeps
            for _ in range(substeps):
                total[:] = 0.0
                moved[:] = x
                for stage in range(4):
                    _accelerate(moved, parameters[row], body, work, rate)
                    total += (2.0 if stage in (1, 2) else 1.0) / 6.0 * rate
                    moved[:] = x + (0.5 if stage < 2 else 1.0) * h * rate
                x += h * total
            states[step + 1, row] = x

"""The matrix of an implicit step of elastic tets: derivatives of the forces of `kernels/fem.py`, tet by tet, in Numba.

Pressure averaged over nodes is an unknown of its own at every vertex, in units of velocity: e = pressure / c with the
impedance c = sqrt(shared m / V), V the volume of the vertex. Its equation is m (shared / c averaged ratio - e) = 0.
With row v of B being V d(averaged ratio)/dx, the matrix is [A_local, h (c B)^T; h c B, -m]. Without it A would reach
the neighbours' neighbours, and Newton's method take the change of volume of its linear steps for pressure.
"""

# Numba infers the types itself.
# mypy: ignore-errors

from __future__ import annotations

import numba
import numpy as np

_compiled = numba.njit(cache=True, fastmath=True, error_model="numpy")


@_compiled
def _cofactor(f, out):
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            out[a, i] = f[b, j] * f[c, k] - f[b, k] * f[c, j]


@_compiled
def _cofactor_derivative(f, d, out):
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            out[a, i] = d[b, j] * f[c, k] + f[b, j] * d[c, k] - d[b, k] * f[c, j] - f[b, k] * d[c, j]


@_compiled
def _product(a, b, out, transpose_a):
    for i in range(3):
        for j in range(3):
            total = 0.0
            for k in range(3):
                total += (a[k, i] if transpose_a else a[i, k]) * b[k, j]
            out[i, j] = total


@_compiled
def volume_ratios(x, tets, gradients):
    """Return J - 1 [T] of tets with vertices x [V, 3]."""
    out, f, c = np.empty(len(tets)), np.empty((3, 3)), np.empty((3, 3))
    for t in range(len(tets)):
        _gradient(x, tets[t], gradients[t], f)
        _cofactor(f, c)
        out[t] = f[0, 0] * c[0, 0] + f[0, 1] * c[0, 1] + f[0, 2] * c[0, 2] - 1.0
    return out


@_compiled
def _gradient(x, tet, gradients, out):
    for a in range(3):
        for c in range(3):
            total = 0.0
            for i in range(1, 4):
                total += (x[tet[i], a] - x[tet[0], a]) * gradients[i, c]
            out[a, c] = total


@_compiled
def add_tets(entries, places, x, v, tets, gradients, volumes, pressures, impedances, mu, lam, eta, h):
    """Add V (h^2 dP/dF + h dP/dF') of every tet to the entries of A, and B's where places say so.

    places: [T, 12 or 16, 12 or 16]. x, v: [V, 3]. pressures: [T], what of the pressure does not depend on the tet's own
    J: activation's and the nodes' parts. impedances: [V], c of the nodes.
    """
    nodal = places.shape[1] == 16
    f, rate, c, dc = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))
    s, ds, d, p, q = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))
    block = np.empty((12, 12))
    for t in range(len(tets)):
        g = gradients[t]
        _gradient(x, tets[t], g, f)
        _gradient(v, tets[t], g, rate)
        _cofactor(f, c)
        _product(f, rate, p, True)
        for a in range(3):
            for b in range(3):
                s[a, b] = p[a, b] + p[b, a]
        size = 1.0
        for a in range(3):
            for b in range(3):
                size += f[a, b] * f[a, b]
        ratio = f[0, 0] * c[0, 0] + f[0, 1] * c[0, 1] + f[0, 2] * c[0, 2] - 1.0
        pressure = lam * ratio + pressures[t] - 0.75 * mu
        for j in range(1, 4):
            for b in range(3):
                for a in range(3):
                    for k in range(3):
                        d[a, k] = g[j, k] if a == b else 0.0
                along, volume = 0.0, 0.0
                for k in range(3):
                    along += f[b, k] * g[j, k]
                    volume += c[b, k] * g[j, k]
                _cofactor_derivative(f, d, dc)
                stretched, turned = 2.0 * mu * along / (size * size), lam * volume
                for a in range(3):
                    for k in range(3):
                        p[a, k] = (
                            mu * (1.0 - 1.0 / size) * d[a, k]
                            + stretched * f[a, k]
                            + turned * c[a, k]
                            + pressure * dc[a, k]
                        )
                        # h d(F'-dependent stretch) by F, and by F' itself
                        ds[a, k] = (
                            h * (g[j, a] * rate[b, k] + rate[b, a] * g[j, k]) + g[j, a] * f[b, k] + f[b, a] * g[j, k]
                        )
                _product(f, ds, q, False)
                for k in range(3):
                    row = 0.0
                    for m in range(3):
                        row += g[j, m] * s[m, k]
                    q[b, k] += h * row
                for i in range(4):
                    for a in range(3):
                        total = 0.0
                        for k in range(3):
                            total += (h * p[a, k] + eta * q[a, k]) * g[i, k]
                        block[3 * i + a, 3 * j + b] = h * volumes[t] * total
        for row in range(12):
            for b in range(3):
                block[row, b] = -(block[row, 3 + b] + block[row, 6 + b] + block[row, 9 + b])
        for row in range(12):
            for column in range(12):
                entries[places[t, row, column]] += block[row, column]
        if nodal:
            for i in range(4):
                for a in range(3):
                    value = c[a, 0] * g[i, 0] + c[a, 1] * g[i, 1] + c[a, 2] * g[i, 2]
                    value *= 0.25 * h * volumes[t]
                    for k in range(4):
                        entries[places[t, 3 * i + a, 12 + k]] += value * impedances[tets[t, k]]
                        entries[places[t, 12 + k, 3 * i + a]] += value * impedances[tets[t, k]]


@_compiled
def add_contact(entries, places, x, v, law, h):
    """Subtract h^2 df/dx + h df/dv of the contact of every vertex with the plane z = 0; places: [V, 3, 3]."""
    k_e, k_d, k_f, mu = law
    for i in range(len(x)):
        if x[i, 2] >= 0.0:
            continue
        push = max(-k_e * x[i, 2] - k_d * max(v[i, 2], x[i, 2] / h), 0.0)
        rise = -(h * h * k_e + h * k_d) if push > 0.0 else 0.0  # of the push with the vertex's velocity
        entries[places[i, 2, 2]] -= rise
        speed = np.sqrt(v[i, 0] ** 2 + v[i, 1] ** 2)
        slides = k_f * speed > mu * push
        for a in range(2):
            if not slides:
                entries[places[i, a, a]] += h * k_f
                continue
            entries[places[i, a, 2]] += mu * rise * v[i, a] / speed
            for b in range(2):
                across = (1.0 if a == b else 0.0) - v[i, a] * v[i, b] / (speed * speed)
                entries[places[i, a, b]] += h * mu * push * across / speed

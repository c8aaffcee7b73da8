"""The matrix of an implicit step of elastic tets: derivatives of the forces of `kernels/fem.py`, in Numba, point by
integration point; and the forces of quadratic tets.

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
def volume_ratios(x, nodes, gradients):
    """Return J - 1 [P] of points with vertices x [V, 3]."""
    out, f, c = np.empty(len(nodes)), np.empty((3, 3)), np.empty((3, 3))
    for t in range(len(nodes)):
        _gradient(x, nodes[t], gradients[t], f)
        _cofactor(f, c)
        out[t] = f[0, 0] * c[0, 0] + f[0, 1] * c[0, 1] + f[0, 2] * c[0, 2] - 1.0
    return out


@_compiled
def _gradient(x, nodes, gradients, out):
    for a in range(3):
        for c in range(3):
            total = 0.0
            for i in range(1, len(nodes)):
                total += (x[nodes[i], a] - x[nodes[0], a]) * gradients[i, c]
            out[a, c] = total


@_compiled
def add_forces(forces, x, v, points, pressures, mu, lam, shared, eta):
    """Add the forces [V, 3] of all points; see `add_points`."""
    nodes, gradients, volumes, central = points
    f, rate, c = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))
    s, p = np.empty((3, 3)), np.empty((3, 3))
    for t in range(len(nodes)):
        _gradient(x, nodes[t], gradients[t], f)
        _gradient(v, nodes[t], gradients[t], rate)
        _cofactor(f, c)
        ratio = f[0, 0] * c[0, 0] + f[0, 1] * c[0, 1] + f[0, 2] * c[0, 2] - 1.0
        if central[t] > 0.0:
            k, viscous, pressure = 0.0, 0.0, shared * ratio + pressures[t]
        else:
            k, viscous, pressure = _shear(f, mu), eta, lam * ratio + pressures[t] - 0.75 * mu
        _strain_rate(f, rate, p, s)
        _product(f, s, p, False)
        for a in range(3):
            for b in range(3):
                p[a, b] = -volumes[t] * (k * f[a, b] + pressure * c[a, b] + viscous * p[a, b])
        for i in range(len(nodes[t])):
            for a in range(3):
                total = 0.0
                for b in range(3):
                    total += p[a, b] * gradients[t, i, b]
                forces[nodes[t, i], a] += total


@_compiled
def _shear(f, mu):
    size = 1.0
    for a in range(3):
        for b in range(3):
            size += f[a, b] * f[a, b]
    return mu * (1.0 - 1.0 / size)


@_compiled
def _strain_rate(f, rate, work, out):
    """Compute F^T F' + F'^T F."""
    _product(f, rate, work, True)
    for a in range(3):
        for b in range(3):
            out[a, b] = work[a, b] + work[b, a]


@_compiled
def add_points(entries, places, x, v, points, pressures, impedances, mu, lam, shared, eta, h):
    """Add V (h^2 dP/dF + h dP/dF') of every integration point to the entries of A, and B's where places say so.

    places: [T, 3 N, 3 N] of the tets, with averaged pressure [T, 16, 16]. x, v: [V, 3]. points: nodes [P, N], gradients
    [P, N, 3], volumes [P], 1 where central [P]; equally many of each tet, tet by tet. pressures: [P], what of the
    pressure does not depend on the point's own J: activation's and the nodes' parts. impedances: [V], c of the nodes.
    """
    nodes, gradients, volumes, central = points
    count, each = nodes.shape[1], len(nodes) // len(places)
    nodal = places.shape[1] > 3 * count
    f, rate, c, dc = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))
    s, ds, d, p, q = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))
    block = np.empty((3 * count, 3 * count))
    all_mu, all_lam, all_eta = mu, lam, eta
    for t in range(len(nodes)):
        g, place = gradients[t], places[t // each]
        mu, lam, eta = all_mu, all_lam, all_eta
        if central[t] > 0.0:
            mu, lam, eta = 0.0, shared, 0.0
        _gradient(x, nodes[t], g, f)
        _gradient(v, nodes[t], g, rate)
        _cofactor(f, c)
        _strain_rate(f, rate, p, s)
        size = 1.0
        for a in range(3):
            for b in range(3):
                size += f[a, b] * f[a, b]
        ratio = f[0, 0] * c[0, 0] + f[0, 1] * c[0, 1] + f[0, 2] * c[0, 2] - 1.0
        pressure = lam * ratio + pressures[t] - 0.75 * mu
        for j in range(1, count):
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
                for i in range(count):
                    for a in range(3):
                        total = 0.0
                        for k in range(3):
                            total += (h * p[a, k] + eta * q[a, k]) * g[i, k]
                        block[3 * i + a, 3 * j + b] = h * volumes[t] * total
        for row in range(3 * count):
            for b in range(3):
                block[row, b] = 0.0
                for j in range(1, count):
                    block[row, b] -= block[row, 3 * j + b]
            for column in range(3 * count):
                entries[place[row, column]] += block[row, column]
        if nodal:
            for i in range(4):
                for a in range(3):
                    value = c[a, 0] * g[i, 0] + c[a, 1] * g[i, 1] + c[a, 2] * g[i, 2]
                    value *= 0.25 * h * volumes[t]
                    for k in range(4):
                        entries[place[3 * i + a, 12 + k]] += value * impedances[nodes[t, k]]
                        entries[place[12 + k, 3 * i + a]] += value * impedances[nodes[t, k]]


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

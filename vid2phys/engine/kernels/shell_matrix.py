"""The matrix of an implicit step of cloth: derivatives of the forces of `kernels/shell.py`, in Numba.

Column by column: with positions moving at h d and velocities changing by d, d the direction of one corner's axis, an
element's forces change by h df/dx d + df/dv d, and -h times that is its column of A (see `engine/implicit.py`). The
derivatives are exact, or lack what makes the matrix indefinite:

- elastic=False: negative curvatures of compressed triangles and folded hinges; the sum of what is left of a triangle is
  positive where |tension| <= shear s_2 / s_1, s_1 >= s_2 the stretches.
- asymmetric=False: what is not symmetric of viscosity, air and friction.
"""

# Numba infers the types itself.
# mypy: ignore-errors

from __future__ import annotations

import numba
import numpy as np

_compiled = numba.njit(cache=True, error_model="numpy")
_NIL = (0.0, 0.0, 0.0)


@_compiled
def _row(array, i):
    return array[i, 0], array[i, 1], array[i, 2]


@_compiled
def _sum(s, a, t, b):
    return s * a[0] + t * b[0], s * a[1] + t * b[1], s * a[2] + t * b[2]


@_compiled
def _sub(a, b):
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


@_compiled
def _scaled(s, a):
    return s * a[0], s * a[1], s * a[2]


@_compiled
def _dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@_compiled
def _cross(a, b):
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@_compiled
def _axis(b):
    return (1.0 if b == 0 else 0.0), (1.0 if b == 1 else 0.0), (1.0 if b == 2 else 0.0)


@_compiled
def _add(entries, places, column, scale, forces):
    """Add scale times the corners' forces to a column of an element's block."""
    for k in range(len(forces)):
        for a in range(3):
            entries[places[3 * k + a, column]] += scale * forces[k][a]


@_compiled
def add_triangles(
    entries, places, x, v, corners, inverses, areas, wind, shear, stretch, viscosity, drag, lift, h, elastic, asymmetric
):
    """Subtract h^2 df/dx + h df/dv of the membrane and of the air.

    places: [T, 9, 9]. x, v: [V, 3]. corners: [T, 3]. inverses: [T, 2, 2]. areas: [T] at rest. wind: [3].
    """
    for t in range(len(corners)):
        i, j, k = corners[t]
        p, area = inverses[t], areas[t]
        e1, e2 = _sub(_row(x, j), _row(x, i)), _sub(_row(x, k), _row(x, i))
        r1, r2 = _sub(_row(v, j), _row(v, i)), _sub(_row(v, k), _row(v, i))
        across = _cross(e1, e2)
        size = np.sqrt(_dot(across, across))
        inverse_size = 1.0 / size if size > 0.0 else 0.0
        n = _scaled(inverse_size, across)
        f1, f2 = _sum(p[0, 0], e1, p[1, 0], e2), _sum(p[0, 1], e1, p[1, 1], e2)
        g1, g2 = _sum(p[0, 0], r1, p[1, 0], r2), _sum(p[0, 1], r1, p[1, 1], r2)
        s11, s22, s12 = _dot(f1, g1), _dot(f2, g2), 0.5 * (_dot(f1, g2) + _dot(f2, g1))
        tension = stretch * (0.5 * size / area - 1.0) - shear
        turned_1, turned_2 = _cross(e2, n), _cross(n, e1)
        u = (
            wind[0] - (v[i, 0] + v[j, 0] + v[k, 0]) / 3.0,
            wind[1] - (v[i, 1] + v[j, 1] + v[k, 1]) / 3.0,
            wind[2] - (v[i, 2] + v[j, 2] + v[k, 2]) / 3.0,
        )
        speed, through = np.sqrt(_dot(u, u)), 0.5 * _dot(across, u)
        if not elastic:
            half = 0.5 * (_dot(f1, f1) + _dot(f2, f2))
            ratio = 0.5 * size / area
            largest = half + np.sqrt(max(half * half - ratio * ratio, 0.0))  # s_1^2
            bound = shear * ratio / largest
            tension = min(max(tension, -bound), bound)
        if not asymmetric:
            s11, s22, s12 = 0.0, 0.0, 0.0
            g1, g2 = _NIL, _NIL
        for corner in range(3):
            on_1 = (1.0 if corner == 1 else 0.0) - (1.0 if corner == 0 else 0.0)
            on_2 = (1.0 if corner == 2 else 0.0) - (1.0 if corner == 0 else 0.0)
            by_1, by_2 = p[0, 0] * on_1 + p[1, 0] * on_2, p[0, 1] * on_1 + p[1, 1] * on_2
            for b in range(3):
                d = _axis(b)
                de1, de2 = _scaled(h * on_1, d), _scaled(h * on_2, d)
                d_across = _sum(1.0, _cross(de1, e2), 1.0, _cross(e1, de2))
                d_size = _dot(n, d_across)
                dn = _scaled(inverse_size, _sum(1.0, d_across, -d_size, n))
                df1, df2, dg1, dg2 = _scaled(h * by_1, d), _scaled(h * by_2, d), _scaled(by_1, d), _scaled(by_2, d)
                ds11, ds22 = _dot(df1, g1) + _dot(f1, dg1), _dot(df2, g2) + _dot(f2, dg2)
                ds12 = 0.5 * (_dot(df1, g2) + _dot(f1, dg2) + _dot(df2, g1) + _dot(f2, dg1))
                dp1 = _sum(shear + viscosity * s11, df1, viscosity * s12, df2)
                dp1 = _sum(1.0, dp1, viscosity, _sum(ds11, f1, ds12, f2))
                dp2 = _sum(shear + viscosity * s22, df2, viscosity * s12, df1)
                dp2 = _sum(1.0, dp2, viscosity, _sum(ds12, f1, ds22, f2))
                d_tension = 0.5 * stretch * d_size / area
                d_turned_1 = _sum(1.0, _cross(de2, n), 1.0, _cross(e2, dn))
                d_turned_2 = _sum(1.0, _cross(dn, e1), 1.0, _cross(n, de1))
                force_1 = _sum(-area * p[0, 0], dp1, -area * p[0, 1], dp2)
                force_1 = _sum(1.0, force_1, -0.5, _sum(d_tension, turned_1, tension, d_turned_1))
                force_2 = _sum(-area * p[1, 0], dp1, -area * p[1, 1], dp2)
                force_2 = _sum(1.0, force_2, -0.5, _sum(d_tension, turned_2, tension, d_turned_2))
                du = _scaled(-1.0 / 3.0, d)
                d_through = 0.5 * _dot(across, du)
                air = _sum(drag * abs(through), du, lift * speed * d_through, n)
                if asymmetric:
                    d_turned = 0.5 * _dot(d_across, u)
                    d_speed = _dot(u, du) / speed if speed > 0.0 else 0.0
                    air = _sum(1.0, air, drag * np.sign(through) * (d_through + d_turned), u)
                    air = _sum(1.0, air, lift * (d_speed * through + speed * d_turned), n)
                    air = _sum(1.0, air, lift * speed * through, dn)
                air = _scaled(1.0 / 3.0, air)
                force_0 = _sum(-1.0, force_1, -1.0, force_2)
                forces = (
                    _sum(1.0, air, 1.0, force_0),
                    _sum(1.0, air, 1.0, force_1),
                    _sum(1.0, air, 1.0, force_2),
                )
                _add(entries, places[t], 3 * corner + b, -h, forces)


@_compiled
def add_hinges(entries, places, x, v, vertices, shapes, angles, bending, damping, h, elastic, asymmetric):
    """Subtract h^2 df/dx + h df/dv of the hinges.

    places: [H, 12, 12]. vertices: [H, 4]. angles: [H] at rest.
    """
    for t in range(len(vertices)):
        q = vertices[t]
        x0, x1, x2, x3 = _row(x, q[0]), _row(x, q[1]), _row(x, q[2]), _row(x, q[3])
        v0, v1, v2, v3 = _row(v, q[0]), _row(v, q[1]), _row(v, q[2]), _row(v, q[3])
        edge, x02, x03, x12, x13 = _sub(x3, x2), _sub(x0, x2), _sub(x0, x3), _sub(x1, x2), _sub(x1, x3)
        length = np.sqrt(_dot(edge, edge))
        n1, n2 = _cross(x02, x03), _cross(x13, x12)
        square_1, square_2 = _dot(n1, n1), _dot(n2, n2)
        angle = np.arctan2(_dot(_cross(n1, n2), edge) / length, _dot(n1, n2))
        m1, m2 = _scaled(-1.0 / square_1, n1), _scaled(-1.0 / square_2, n2)
        at_1, at_2 = _dot(x03, edge) / length, _dot(x13, edge) / length
        g0, g1, g2 = _scaled(length, m1), _scaled(length, m2), _sum(at_1, m1, at_2, m2)
        g3 = _scaled(-1.0, _sum(1.0, _sum(1.0, g0, 1.0, g1), 1.0, g2))
        gradient = g0, g1, g2, g3
        rate = _dot(g0, v0) + _dot(g1, v1) + _dot(g2, v2) + _dot(g3, v3)
        half = 0.5 * (angle - angles[t])
        # what the curvature of the angle is weighted by
        moment = -shapes[t] * (
            (2.0 * bending * np.sin(half) if elastic else 0.0) + (damping * rate if asymmetric else 0.0)
        )
        stiffness = bending * np.cos(half)
        if not elastic:
            stiffness = max(stiffness, 0.0)
        for corner in range(4):
            for b in range(3):
                d = _scaled(h, _axis(b))
                d0, d1 = (d if corner == 0 else _NIL), (d if corner == 1 else _NIL)
                d2, d3 = (d if corner == 2 else _NIL), (d if corner == 3 else _NIL)
                d_edge = _sub(d3, d2)
                d_length = _dot(edge, d_edge) / length
                dn1 = _sum(1.0, _cross(_sub(d0, d2), x03), 1.0, _cross(x02, _sub(d0, d3)))
                dn2 = _sum(1.0, _cross(_sub(d1, d3), x12), 1.0, _cross(x13, _sub(d1, d2)))
                dm1 = _sum(-1.0 / square_1, dn1, 2.0 * _dot(n1, dn1) / square_1**2, n1)
                dm2 = _sum(-1.0 / square_2, dn2, 2.0 * _dot(n2, dn2) / square_2**2, n2)
                d_at_1 = (_dot(_sub(d0, d3), edge) + _dot(x03, d_edge) - at_1 * d_length) / length
                d_at_2 = (_dot(_sub(d1, d3), edge) + _dot(x13, d_edge) - at_2 * d_length) / length
                dg0, dg1 = _sum(d_length, m1, length, dm1), _sum(d_length, m2, length, dm2)
                dg2 = _sum(1.0, _sum(d_at_1, m1, at_1, dm1), 1.0, _sum(d_at_2, m2, at_2, dm2))
                dg3 = _scaled(-1.0, _sum(1.0, _sum(1.0, dg0, 1.0, dg1), 1.0, dg2))
                along = gradient[corner][b]
                d_rate = along
                if asymmetric:
                    d_rate += _dot(dg0, v0) + _dot(dg1, v1) + _dot(dg2, v2) + _dot(dg3, v3)
                d_moment = -shapes[t] * (stiffness * h * along + damping * d_rate)
                forces = (
                    _sum(d_moment, g0, moment, dg0),
                    _sum(d_moment, g1, moment, dg1),
                    _sum(d_moment, g2, moment, dg2),
                    _sum(d_moment, g3, moment, dg3),
                )
                _add(entries, places[t], 3 * corner + b, -h, forces)

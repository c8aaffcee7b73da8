"""Explicit neo-Hookean tets as one would write them in Warp, single precision: a competitor of `soft_body`.

One kernel for the forces (atomic additions to the vertices), one for the step; the force of `engine/kernels/fem.py`.
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from vid2phys.engine.kernels.runtime import wp


@wp.func
def cofactor(f: wp.mat33):
    a, b, c = f[0], f[1], f[2]
    return wp.matrix_from_rows(wp.cross(b, c), wp.cross(c, a), wp.cross(a, b))


@wp.kernel
def add_forces(
    x: wp.array(dtype=wp.vec3),
    v: wp.array(dtype=wp.vec3),
    tets: wp.array2d(dtype=int),
    inverse: wp.array(dtype=wp.mat33),
    volumes: wp.array(dtype=float),
    mu: float,
    lam: float,
    eta: float,
    forces: wp.array(dtype=wp.vec3),
):
    t = wp.tid()
    i, j, k, n = tets[t, 0], tets[t, 1], tets[t, 2], tets[t, 3]
    f = wp.matrix_from_cols(x[j] - x[i], x[k] - x[i], x[n] - x[i]) * inverse[t]
    rate = wp.matrix_from_cols(v[j] - v[i], v[k] - v[i], v[n] - v[i]) * inverse[t]
    stretch = wp.transpose(f) * rate
    stress = mu * (1.0 - 1.0 / (wp.ddot(f, f) + 1.0)) * f
    stress += (lam * (wp.determinant(f) - 1.0) - 0.75 * mu) * cofactor(f)
    stress += eta * (f * (stretch + wp.transpose(stretch)))
    h = -volumes[t] * (stress * wp.transpose(inverse[t]))
    a = wp.vec3(h[0, 0], h[1, 0], h[2, 0])
    b = wp.vec3(h[0, 1], h[1, 1], h[2, 1])
    c = wp.vec3(h[0, 2], h[1, 2], h[2, 2])
    wp.atomic_add(forces, i, -(a + b + c))
    wp.atomic_add(forces, j, a)
    wp.atomic_add(forces, k, b)
    wp.atomic_add(forces, n, c)


@wp.kernel
def step(
    x: wp.array(dtype=wp.vec3),
    v: wp.array(dtype=wp.vec3),
    forces: wp.array(dtype=wp.vec3),
    masses: wp.array(dtype=float),
    h: float,
    x_next: wp.array(dtype=wp.vec3),
    v_next: wp.array(dtype=wp.vec3),
):
    i = wp.tid()
    v_next[i] = v[i] + h * (forces[i] / masses[i] - wp.vec3(0.0, 0.0, 9.81))
    x_next[i] = x[i] + h * v_next[i]


class StraightWarp:
    """A body [V, 3] m of tets [T, 4] with moduli of the energy and masses [V] kg, stepped by h [s]."""

    def __init__(self, rest, tets, masses, material, h, device="cpu"):
        edges = np.swapaxes(rest[tets][:, 1:] - rest[tets][:, :1], 1, 2)
        self.device, self.material, self.h = device, material, h
        self.tets = wp.array(tets, dtype=int, device=device)
        self.inverse = wp.array(np.linalg.inv(edges), dtype=wp.mat33, device=device)
        self.volumes = wp.array(np.linalg.det(edges) / 6.0, dtype=float, device=device)
        self.masses = wp.array(masses, dtype=float, device=device)

    def points(self, values=None, gradient=False):
        """Return a fresh array of vectors [V]: values, or zeros."""
        if values is None:
            return wp.zeros(len(self.masses), dtype=wp.vec3, device=self.device, requires_grad=gradient)
        return wp.array(values, dtype=wp.vec3, device=self.device, requires_grad=gradient)

    def run(self, x, v, steps, gradient=False):
        """Return the positions and velocities after so many steps; with `gradient` into arrays of their own, for a
        tape.
        """
        spare = [(self.points(), self.points()) for _ in range(2)]
        forces = self.points()
        for n in range(steps):
            if gradient:
                forces, out = self.points(gradient=True), (self.points(gradient=True), self.points(gradient=True))
            else:
                forces.zero_()
                out = spare[n % 2]
            inputs = [x, v, self.tets, self.inverse, self.volumes, *self.material]
            wp.launch(add_forces, len(self.volumes), inputs, [forces], device=self.device)
            wp.launch(step, len(self.masses), [x, v, forces, self.masses, self.h], list(out), device=self.device)
            x, v = out
        return x, v

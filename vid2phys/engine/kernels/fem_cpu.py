"""The step of `kernels/fem.py` and its adjoint as Numba loops over blocks of tets, for the CPU.

Tets come in blocks of LANES. What a block needs is copied into a small tile, row by row, LANES numbers a row; the loop
over the lanes then touches rows at constant distances only, which is what lets the compiler turn it into vector code
(Warp's code for the CPU stays scalar). Corners' results are added to vertices from the tile. All arrays are flat.

The adjoint of the forces for cotangents w of the vertices is the gradient of g = sum w . f = - sum V P : A, where A is
the gradient of w over the tet: of the elastic part a product with the Hessian of the energy.
"""

# Numba infers the types itself.
# mypy: ignore-errors

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.kernels import matrices_cpu as m
from vid2phys.engine.kernels.matrices_cpu import inlined

Reals = NDArray[np.floating]
LANES = 16
# rows of the tile: positions, velocities and cotangents of the four corners; what comes out of a block by position and
# velocity; volume, extra pressure and what comes back to J; gradients by mu, lambda, eta (summed up) and extra pressure
_X, _V, _W, _BY_X, _BY_V, _VOLUME, _EXTRA, _BACK, _MU, _LAM, _ETA, _BY_EXTRA = 0, 12, 24, 36, 48, *range(60, 67)
TILE = 67 * LANES


class Mesh(NamedTuple):
    """Tets in blocks, `in_blocks` makes them: 3 times the vertex of each corner (row: corner), gradients of the shape
    functions of corners 1 to 3 (row: 3 corner + axis), volumes; volumes [V] of vertices.
    """

    corners: NDArray[np.uint32]
    gradients: Reals
    volumes: Reals
    nodal_volumes: Reals


class Scene(NamedTuple):
    """What holds over an interval: mu, lambda, eta of the energy [3], the part of lambda averaged over nodes, the
    law of contact; extra pressure of the tets; by number of the state's positions [3 V]: 0 where pinned, h / m, and
    the increment of velocity that gravity and the external force make.
    """

    material: Reals
    shared: float
    law: tuple[float, float, float, float]
    extra: Reals
    free: Reals
    over_mass: Reals
    push: Reals
    nodal: bool
    contact: bool


def in_blocks(rows):
    """Return [T, R] in blocks, flattened: tets filled up with zeros, which nothing comes from."""
    count = -(-len(rows) // LANES)
    padded = np.zeros((count * LANES, rows.shape[1]), rows.dtype)
    padded[: len(rows)] = rows
    return np.ascontiguousarray(padded.reshape(count, LANES, -1).swapaxes(1, 2)).ravel()


_compiled = numba.njit(fastmath=True, error_model="numpy", nogil=True, cache=True)


@inlined
def _at(a, row, lane):
    return a[row * LANES + lane]


@inlined
def _edges(a, r, i):
    """Return the edges from corner 0 as columns."""
    x, y, z = _at(a, r, i), _at(a, r + 1, i), _at(a, r + 2, i)
    return (
        *(_at(a, r + 3, i) - x, _at(a, r + 6, i) - x, _at(a, r + 9, i) - x),
        *(_at(a, r + 4, i) - y, _at(a, r + 7, i) - y, _at(a, r + 10, i) - y),
        *(_at(a, r + 5, i) - z, _at(a, r + 8, i) - z, _at(a, r + 11, i) - z),
    )


@inlined
def _matrix(a, i):
    return (
        *(_at(a, 0, i), _at(a, 1, i), _at(a, 2, i), _at(a, 3, i), _at(a, 4, i)),
        *(_at(a, 5, i), _at(a, 6, i), _at(a, 7, i), _at(a, 8, i)),
    )


@inlined
def _put(a, r, i, h):
    """Put the columns of H to corners 1 to 3, minus their sum to corner 0."""
    for axis in range(3):
        a[(r + 3 + axis) * LANES + i] = h[3 * axis]
        a[(r + 6 + axis) * LANES + i] = h[3 * axis + 1]
        a[(r + 9 + axis) * LANES + i] = h[3 * axis + 2]
        a[(r + axis) * LANES + i] = -h[3 * axis] - h[3 * axis + 1] - h[3 * axis + 2]


@inlined
def _fill(tile, r, values, corners):
    for i in range(LANES):
        for c in range(4):
            k, to = corners[c * LANES + i], (r + 3 * c) * LANES + i
            tile[to] = values[k]
            tile[to + LANES] = values[k + np.uint32(1)]
            tile[to + 2 * LANES] = values[k + np.uint32(2)]


@inlined
def _add(values, corners, tile, r):
    for i in range(LANES):
        for c in range(4):
            k, at = corners[c * LANES + i], (r + 3 * c) * LANES + i
            values[k] += tile[at]
            values[k + np.uint32(1)] += tile[at + LANES]
            values[k + np.uint32(2)] += tile[at + 2 * LANES]


@_compiled
def add_forces(x, v, tets, gradients_of, volumes_of, material, extra, tile, forces, first, last):
    """Add the forces of blocks first to last to `forces` [3 V]; extra: pressure of activation and neighbours."""
    mu, lam, eta = material[0], material[1], material[2]
    one = lam / lam  # of the arrays' precision: a literal would make everything double
    half = one / (one + one)
    rest = mu * half * (one + half)
    for block in range(first, last):
        corners = tets[block * 4 * LANES : (block + 1) * 4 * LANES]
        gradients = gradients_of[block * 9 * LANES : (block + 1) * 9 * LANES]
        volumes = volumes_of[block * LANES : (block + 1) * LANES]
        pressures = extra[block * LANES : (block + 1) * LANES]
        _fill(tile, _X, x, corners)
        if eta > 0.0:
            _fill(tile, _V, v, corners)
        for i in range(LANES):
            b = _matrix(gradients, i)
            f, rate = m.times(_edges(tile, _X, i), b), m.times(_edges(tile, _V, i), b)
            cof = m.cofactor(f)
            ratio = f[0] * cof[0] + f[1] * cof[1] + f[2] * cof[2] - one
            k = mu - mu / (m.dot(f, f) + one)
            stress = m.add_scaled(m.scale(k, f), lam * ratio - rest + pressures[i], cof)
            stress = m.add_scaled(stress, eta, m.times(f, m.symmetric_product(f, rate)))
            _put(tile, _BY_X, i, m.times_transposed(m.scale(-volumes[i], stress), b))
        _add(forces, corners, tile, _BY_X)


@_compiled
def add_adjoint(
    x, v, w, tets, gradients_of, volumes_of, material, extra, back, tile, x_bar, v_bar, extra_bar, first, last
):
    """Add the gradient of g by positions and velocities; by mu, lambda and eta to the tile; by `extra`, written.

    back: what comes to J of every tet from pressures averaged over nodes.
    """
    mu, lam, eta = material[0], material[1], material[2]
    one = lam / lam
    half = one / (one + one)
    rest = mu * half * (one + half)
    for block in range(first, last):
        corners = tets[block * 4 * LANES : (block + 1) * 4 * LANES]
        gradients = gradients_of[block * 9 * LANES : (block + 1) * 9 * LANES]
        _fill(tile, _X, x, corners)
        _fill(tile, _W, w, corners)
        if eta > 0.0:
            _fill(tile, _V, v, corners)
        for i in range(LANES):
            at = block * LANES + i
            tile[_VOLUME * LANES + i] = volumes_of[at]
            tile[_EXTRA * LANES + i] = extra[at]
            tile[_BACK * LANES + i] = back[at]
        for i in range(LANES):
            b = _matrix(gradients, i)
            f, rate = m.times(_edges(tile, _X, i), b), m.times(_edges(tile, _V, i), b)
            a = m.scale(-_at(tile, _VOLUME, i), m.times(_edges(tile, _W, i), b))
            cof = m.cofactor(f)
            ratio = f[0] * cof[0] + f[1] * cof[1] + f[2] * cof[2] - one
            pressure = lam * ratio - rest + _at(tile, _EXTRA, i)
            r = one / (m.dot(f, f) + one)
            by_f, by_cof = m.dot(f, a), m.dot(cof, a)
            strain_rate, q = m.symmetric_product(f, rate), m.symmetric_product(f, a)
            grad = m.scale(mu * (one - r), a)
            grad = m.add_scaled(grad, (mu + mu) * r * r * by_f, f)
            grad = m.add_scaled(grad, lam * by_cof + _at(tile, _BACK, i), cof)
            grad = m.add_scaled(grad, pressure, m.cofactor_derivative(f, a))
            grad = m.add_scaled(grad, eta, m.add(m.times(rate, q), m.times(a, strain_rate)))
            _put(tile, _BY_X, i, m.times_transposed(grad, b))
            _put(tile, _BY_V, i, m.times_transposed(m.scale(eta, m.times(f, q)), b))
            tile[_MU * LANES + i] += (one - r) * by_f - half * (one + half) * by_cof
            tile[_LAM * LANES + i] += ratio * by_cof
            tile[_ETA * LANES + i] += half * m.dot(strain_rate, q)
            tile[_BY_EXTRA * LANES + i] = by_cof
        for i in range(LANES):
            extra_bar[block * LANES + i] = _at(tile, _BY_EXTRA, i)
        _add(x_bar, corners, tile, _BY_X)
        if eta > 0.0:
            _add(v_bar, corners, tile, _BY_V)


@_compiled
def average_pressure(x, mesh, shared, base, tile, averaged, extra):
    """Compute extra = base + shared * mean over the corners of J - 1 averaged over nodes; `averaged` [V] is written."""
    quarter = (shared - shared) + 0.25
    averaged[:] = 0.0
    blocks = mesh.volumes.shape[0] // LANES
    for block in range(blocks):
        corners = mesh.corners[block * 4 * LANES : (block + 1) * 4 * LANES]
        gradients = mesh.gradients[block * 9 * LANES : (block + 1) * 9 * LANES]
        _fill(tile, _X, x, corners)
        for i in range(LANES):
            f = m.times(_edges(tile, _X, i), _matrix(gradients, i))
            cof = m.cofactor(f)
            tile[_EXTRA * LANES + i] = f[0] * cof[0] + f[1] * cof[1] + f[2] * cof[2] - 1.0
        for i in range(LANES):
            share = quarter * mesh.volumes[block * LANES + i] * _at(tile, _EXTRA, i)
            for c in range(4):
                averaged[corners[c * LANES + i] // np.uint32(3)] += share
    for n in range(averaged.shape[0]):
        averaged[n] /= mesh.nodal_volumes[n]
    for t in range(extra.shape[0]):
        total = shared - shared
        for c in range(4):
            total += averaged[mesh.corners[(t // LANES * 4 + c) * LANES + t % LANES] // np.uint32(3)]
        extra[t] = base[t] + quarter * shared * total


@_compiled
def average_pressure_adjoint(x, w, mesh, shared, averaged, tile, back):
    """Fill `back` of `add_adjoint`; return the gradient of g by `shared`, but for activation."""
    quarter = (shared - shared) + 0.25
    by_averaged = np.zeros_like(averaged)
    by_shared = shared - shared
    for block in range(mesh.volumes.shape[0] // LANES):
        corners = mesh.corners[block * 4 * LANES : (block + 1) * 4 * LANES]
        gradients = mesh.gradients[block * 9 * LANES : (block + 1) * 9 * LANES]
        _fill(tile, _X, x, corners)
        _fill(tile, _W, w, corners)
        for i in range(LANES):
            b = _matrix(gradients, i)
            by_cof = m.dot(m.cofactor(m.times(_edges(tile, _X, i), b)), m.times(_edges(tile, _W, i), b))
            part = -quarter * mesh.volumes[block * LANES + i] * by_cof
            for c in range(4):
                n = corners[c * LANES + i] // np.uint32(3)
                by_averaged[n] += shared * part
                by_shared += averaged[n] * part
    for n in range(averaged.shape[0]):
        by_averaged[n] /= mesh.nodal_volumes[n]
    for t in range(back.shape[0]):
        total = shared - shared
        for c in range(4):
            total += by_averaged[mesh.corners[(t // LANES * 4 + c) * LANES + t % LANES] // np.uint32(3)]
        back[t] = quarter * mesh.volumes[t] * total
    return by_shared


@_compiled
def add_contact(x, v, law, h, forces):
    """Add `contact.ground_force` of every vertex."""
    k_e, k_d, k_f, mu = law
    for k in range(0, x.shape[0], 3):
        push = -k_e * x[k + 2] - k_d * max(v[k + 2], x[k + 2] / h)
        if x[k + 2] < 0.0 and push > 0.0:
            slip, largest, grip = v[k] * v[k] + v[k + 1] * v[k + 1], mu * push, k_f
            if k_f * k_f * slip > largest * largest:
                grip = largest / np.sqrt(slip)
            forces[k] -= grip * v[k]
            forces[k + 1] -= grip * v[k + 1]
            forces[k + 2] += push


@_compiled
def add_contact_adjoint(x, v, w, law, h, x_bar, v_bar, sums):
    """Add the adjoint of `add_contact` for cotangents w of the forces; gradients by k_e, k_d, k_f, mu are added to
    `sums`.
    """
    k_e, k_d, k_f, mu = law
    for k in range(0, x.shape[0], 3):
        rate = max(v[k + 2], x[k + 2] / h)
        push = -k_e * x[k + 2] - k_d * rate
        if x[k + 2] < 0.0 and push > 0.0:
            slip, largest = v[k] * v[k] + v[k + 1] * v[k + 1], mu * push
            along = w[k] * v[k] + w[k + 1] * v[k + 1]
            by_push = w[k + 2]
            if k_f * k_f * slip > largest * largest:
                speed = np.sqrt(slip)
                by_push -= mu * along / speed
                sums[3] -= push * along / speed
                v_bar[k] -= largest / speed * (w[k] - along / slip * v[k])
                v_bar[k + 1] -= largest / speed * (w[k + 1] - along / slip * v[k + 1])
            else:
                sums[2] -= along
                v_bar[k] -= k_f * w[k]
                v_bar[k + 1] -= k_f * w[k + 1]
            x_bar[k + 2] -= k_e * by_push
            if rate > v[k + 2]:
                x_bar[k + 2] -= k_d / h * by_push
            else:
                v_bar[k + 2] -= k_d * by_push
            sums[0] -= x[k + 2] * by_push
            sums[1] -= rate * by_push


def _loops(parallel):
    """Return the loops over the substeps of an interval; the chunks that the tets are divided into in turn or on
    threads.

    Each chunk has sums of its own, so that results depend on the number of chunks and never on that of threads.
    """
    others = ("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil", "fusion")
    threads = {"prange": True, **dict.fromkeys(others, False)} if parallel else False

    def compiled(function):
        function.__qualname__ += " on threads" if parallel else ""  # what the cache on disk knows a function by
        return numba.njit(fastmath=True, error_model="numpy", nogil=True, cache=True, parallel=threads)(function)

    @compiled
    def forward(steps, chunks, x, v, path, mesh, scene, h):
        """Advance x, v [3 V] in place; rows of `path` [steps or 0, 6 V] take the states before each step."""
        count, blocks, size = chunks, mesh.volumes.shape[0] // LANES, x.shape[0]
        tile = np.zeros((count, TILE), x.dtype)
        tets, gradients, volumes, material = mesh.corners, mesh.gradients, mesh.volumes, scene.material
        forces = np.zeros((count, size), x.dtype)
        averaged, extra = np.zeros(size // 3, x.dtype), scene.extra.copy()
        for step in range(steps):
            if path.shape[0]:
                path[step, :size] = x
                path[step, size:] = v
            if scene.nodal:
                average_pressure(x, mesh, scene.shared, scene.extra, tile[0], averaged, extra)
            for c in numba.prange(count):
                first, last = blocks * c // count, blocks * (c + 1) // count
                add_forces(x, v, tets, gradients, volumes, material, extra, tile[c], forces[c], first, last)
            for c in range(1, count):
                for k in range(size):
                    forces[0, k] += forces[c, k]
                    forces[c, k] = 0.0
            if scene.contact:
                add_contact(x, v, scene.law, h, forces[0])
            for k in range(size):
                v[k] = scene.free[k] * v[k] + scene.over_mass[k] * forces[0, k] + scene.push[k]
                x[k] += h * v[k]
                forces[0, k] = 0.0

    @compiled
    def backward(steps, chunks, x_bar, v_bar, path, mesh, scene, h, extra_bar, by_dof, sums):
        """Turn the cotangents of the states after the interval into those before it, in place.

        path: [steps + 1, 6 V]. Added to: extra_bar [tets], the gradient by extra pressure; by_dof [3, 3 V], the
        cotangents of the accelerations' increments, of the forces, and those times the increments over h; sums [8] by
        mu, lambda, eta, shared and the law of contact.
        """
        count, blocks, size = chunks, mesh.volumes.shape[0] // LANES, x_bar.shape[0]
        tile = np.zeros((count, TILE), x_bar.dtype)
        tets, gradients, volumes, material = mesh.corners, mesh.gradients, mesh.volumes, scene.material
        by_x, by_v = np.zeros((count, size), x_bar.dtype), np.zeros((count, size), x_bar.dtype)
        w, extra_now = np.zeros_like(x_bar), np.zeros_like(extra_bar)
        averaged, extra = np.zeros(size // 3, x_bar.dtype), scene.extra.copy()
        back = np.zeros_like(extra_bar)
        for step in range(steps - 1, -1, -1):
            x, v, v_next = path[step, :size], path[step, size:], path[step + 1, size:]
            for k in range(size):
                v_bar[k] = scene.free[k] * (v_bar[k] + h * x_bar[k])
                w[k] = scene.over_mass[k] * v_bar[k]
                by_dof[0, k] += v_bar[k]
                by_dof[1, k] += w[k]
                by_dof[2, k] += w[k] * (v_next[k] - v[k])
            if scene.nodal:
                average_pressure(x, mesh, scene.shared, scene.extra, tile[0], averaged, extra)
                sums[3] += average_pressure_adjoint(x, w, mesh, scene.shared, averaged, tile[0], back)
            for c in numba.prange(count):
                first, last = blocks * c // count, blocks * (c + 1) // count
                add_adjoint(
                    *(
                        x,
                        v,
                        w,
                        tets,
                        gradients,
                        volumes,
                        material,
                        extra,
                        back,
                        tile[c],
                        by_x[c],
                        by_v[c],
                        extra_now,
                        first,
                        last,
                    )
                )
            for t in range(extra_bar.shape[0]):
                extra_bar[t] += extra_now[t]
            if scene.contact:
                add_contact_adjoint(x, v, w, scene.law, h, by_x[0], by_v[0], sums[4:])
            for c in range(count):
                for k in range(size):
                    x_bar[k] += by_x[c, k]
                    v_bar[k] += by_v[c, k]
                    by_x[c, k] = 0.0
                    by_v[c, k] = 0.0
        for c in range(count):
            for i in range(LANES):
                sums[0] += tile[c, _MU * LANES + i]
                sums[1] += tile[c, _LAM * LANES + i]
                sums[2] += tile[c, _ETA * LANES + i]

    return forward, backward


# by name and by whether chunks run on threads
LOOPS = {
    (name, threads): loop
    for threads in (False, True)
    for name, loop in zip(("forward", "backward"), _loops(threads), strict=True)
}

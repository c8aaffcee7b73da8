"""Elastic tets: forces on their corners and one semi-implicit Euler step. Layouts: `systems/soft_body.py`.

The energy of a tet is the stable neo-Hookean one (Smith, de Goes, Kim: Stable Neo-Hookean Flesh Simulation, 2018,
eq. 14), which gradSim's appendix uses too, with the full I_C = tr(F^T F). With k = 1 - 1 / (I_C + 1):

    P = mu k F + (lambda (J - 1 + a) - 3/4 mu + q) cof F + eta F (F^T F' + F'^T F)

is its first Piola-Kirchhoff stress; a the activation, q what neighbours add to the pressure when it is averaged over
nodes (zero otherwise), eta the viscosity: a stress in the rate of Green's strain, which no rigid motion has.

Each launch writes arrays never written before: Warp's adjoint is silently wrong on overwritten ones. Corners' forces
are written by tet and gathered by vertex, so that sums have one order on every machine.
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.contact import ContactLaw, ground_force
from vid2phys.engine.kernels.runtime import wp


@wp.struct
class Mesh:
    """Tets [T, 4], gradients [T, 4] of their shape functions, volumes [T], the muscle of each (-1: none); corners of
    vertex v are slots[starts[v] : starts[v + 1]], a slot being 4 tet + corner. By vertex: volume, 1 where it is free
    (0 where pinned), its share of the external force, activation's place among controls and parameters.
    """

    tets: wp.array2d(dtype=wp.int32)
    gradients: wp.array2d(dtype=wp.vec3d)
    volumes: wp.array(dtype=wp.float64)
    muscles: wp.array(dtype=wp.int32)
    starts: wp.array(dtype=wp.int32)
    slots: wp.array(dtype=wp.int32)
    nodal_volumes: wp.array(dtype=wp.float64)
    free: wp.array(dtype=wp.float64)
    load_shares: wp.array(dtype=wp.float64)


@wp.struct
class Layout:
    """Where parameters begin (-1: there are none), and options: 1 for masses by vertex instead of one density, for
    Lame's moduli instead of Young's and Poisson's, for pressure averaged over nodes.
    """

    contact: wp.int32
    muscle: wp.int32
    mass: wp.int32
    mass_by_vertex: wp.int32
    lame: wp.int32
    nodal: wp.int32


@wp.struct
class Material:
    """Constants of the energy [Pa] and viscosity [Pa s]; `shared` is the part of lambda whose pressure is averaged."""

    mu: wp.float64
    lam: wp.float64
    shared: wp.float64
    eta: wp.float64


@wp.func
def linear_moduli(first: wp.float64, second: wp.float64, layout: Layout) -> wp.vec2d:
    """Return Lame's mu and lambda, given or from Young's modulus and Poisson's ratio."""
    if layout.lame == 1:
        return wp.vec2d(first, second)
    one, two = wp.float64(1.0), wp.float64(2.0)
    mu = first / (two * (one + second))
    return wp.vec2d(mu, two * mu * second / (one - two * second))


@wp.func
def read_material(parameters: wp.array2d(dtype=wp.float64), i: int, layout: Layout) -> Material:
    """Read the moduli of the energy from those of linear elasticity (Smith et al. 2018, section 3.4): mu 4/3, lambda +
    5/6 mu.

    With `nodal` the volumetric part lambda is averaged over nodes and 5/6 mu left to each tet.
    """
    moduli = linear_moduli(parameters[i, 0], parameters[i, 1], layout)
    mu, lam = moduli[0], moduli[1]
    shared = wp.float64(layout.nodal) * lam
    third = wp.float64(1.0) / wp.float64(3.0)  # divided in double precision, unlike a quotient of literals
    return Material(wp.float64(4.0) * third * mu, lam - shared + wp.float64(2.5) * third * mu, shared, parameters[i, 2])


@wp.func
def read_vertex(states: wp.array2d(dtype=wp.float64), row: int, start: int, v: int) -> wp.vec3d:
    """Read the position (start = 0) or velocity (start = V) of vertex v."""
    k = 3 * (start + v)
    return wp.vec3d(states[row, k], states[row, k + 1], states[row, k + 2])


@wp.func
def gradient(states: wp.array2d(dtype=wp.float64), row: int, start: int, tet: int, mesh: Mesh) -> wp.mat33d:
    """Return the deformation gradient (start = 0) or its rate (start = V)."""
    a = read_vertex(states, row, start, mesh.tets[tet, 0])
    return (
        wp.outer(read_vertex(states, row, start, mesh.tets[tet, 1]) - a, mesh.gradients[tet, 1])
        + wp.outer(read_vertex(states, row, start, mesh.tets[tet, 2]) - a, mesh.gradients[tet, 2])
        + wp.outer(read_vertex(states, row, start, mesh.tets[tet, 3]) - a, mesh.gradients[tet, 3])
    )


@wp.func
def cofactor(f: wp.mat33d) -> wp.mat33d:
    """Return d det F / d F."""
    a, b, c = f[0], f[1], f[2]
    return wp.matrix_from_rows(wp.cross(b, c), wp.cross(c, a), wp.cross(a, b))


@wp.kernel
def volume_ratios(states: wp.array2d(dtype=wp.float64), mesh: Mesh, ratios: wp.array2d(dtype=wp.float64)) -> None:
    """Compute J - 1 of every tet."""
    row, tet = wp.tid()
    ratios[row, tet] = wp.determinant(gradient(states, row, 0, tet, mesh)) - wp.float64(1.0)


@wp.kernel
def nodal_ratios(ratios: wp.array2d(dtype=wp.float64), mesh: Mesh, averaged: wp.array2d(dtype=wp.float64)) -> None:
    """Compute J - 1 averaged over the tets of every vertex, by volume (Bonet & Burton, 1998, eq. 11)."""
    row, vertex = wp.tid()
    total = wp.float64(0.0)
    for k in range(mesh.starts[vertex], mesh.starts[vertex + 1]):
        tet = mesh.slots[k] // 4
        total += mesh.volumes[tet] * ratios[row, tet]
    averaged[row, vertex] = wp.float64(0.25) * total / mesh.nodal_volumes[vertex]


@wp.kernel
def tet_forces(
    states: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    averaged: wp.array2d(dtype=wp.float64),
    step: int,
    layout: Layout,
    mesh: Mesh,
    forces: wp.array3d(dtype=wp.vec3d),
) -> None:
    """Compute the force on the four corners of every tet, -V P grad N."""
    row, tet = wp.tid()
    i = wp.min(row, parameters.shape[0] - 1)
    m = read_material(parameters, i, layout)
    activation = wp.float64(0.0)
    if mesh.muscles[tet] >= 0:
        activation = controls[row, step, 3 + mesh.muscles[tet]] + parameters[i, layout.muscle + mesh.muscles[tet]]
    one = wp.float64(1.0)
    f = gradient(states, row, 0, tet, mesh)
    rate = gradient(states, row, mesh.free.shape[0], tet, mesh)
    pressure = m.lam * (wp.determinant(f) - one) + (m.lam + m.shared) * activation - wp.float64(0.75) * m.mu
    if layout.nodal == 1:
        neighbours = averaged[row, mesh.tets[tet, 0]] + averaged[row, mesh.tets[tet, 1]]
        neighbours += averaged[row, mesh.tets[tet, 2]] + averaged[row, mesh.tets[tet, 3]]
        pressure += wp.float64(0.25) * m.shared * neighbours
    stretch = wp.transpose(f) * rate
    viscous = m.eta * (f * (stretch + wp.transpose(stretch)))
    stress = m.mu * (one - one / (wp.ddot(f, f) + one)) * f + pressure * cofactor(f) + viscous
    stress = -mesh.volumes[tet] * stress
    f1, f2, f3 = stress * mesh.gradients[tet, 1], stress * mesh.gradients[tet, 2], stress * mesh.gradients[tet, 3]
    forces[row, tet, 0] = -(f1 + f2 + f3)
    forces[row, tet, 1] = f1
    forces[row, tet, 2] = f2
    forces[row, tet, 3] = f3


@wp.kernel
def nodal_forces(corner_forces: wp.array3d(dtype=wp.vec3d), mesh: Mesh, forces: wp.array2d(dtype=wp.vec3d)) -> None:
    """Sum of the forces on the corners at every vertex: a launch of its own, since what comes after a loop and is not
    linear in its result has a wrong adjoint.
    """
    row, vertex = wp.tid()
    total = wp.vec3d(wp.float64(0.0), wp.float64(0.0), wp.float64(0.0))
    for k in range(mesh.starts[vertex], mesh.starts[vertex + 1]):
        total += corner_forces[row, mesh.slots[k] // 4, mesh.slots[k] % 4]
    forces[row, vertex] = total


@wp.kernel
def step_semi_implicit_euler(
    states: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    forces: wp.array2d(dtype=wp.vec3d),
    step: int,
    fraction: wp.float64,
    layout: Layout,
    mesh: Mesh,
    next_states: wp.array2d(dtype=wp.float64),
) -> None:
    """Step velocities first, then positions with the new velocities; pinned vertices stay where they are, at rest."""
    row, vertex = wp.tid()
    i = wp.min(row, parameters.shape[0] - 1)
    count = mesh.free.shape[0]
    x, v = read_vertex(states, row, 0, vertex), read_vertex(states, row, count, vertex)
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    load = wp.vec3d(controls[row, step, 0], controls[row, step, 1], controls[row, step, 2])
    force = forces[row, vertex] + mesh.load_shares[vertex] * load
    if layout.contact >= 0:
        c = layout.contact
        law = ContactLaw(parameters[i, c], parameters[i, c + 1], parameters[i, c + 2], parameters[i, c + 3])
        force += ground_force(x, v, h, law)
    volume = wp.where(layout.mass_by_vertex == 1, wp.float64(1.0), mesh.nodal_volumes[vertex])
    mass = volume * parameters[i, layout.mass + layout.mass_by_vertex * vertex]
    acceleration = force / mass - wp.vec3d(wp.float64(0.0), wp.float64(0.0), parameters[i, 3])
    v_next = mesh.free[vertex] * (v + h * acceleration)
    for axis in range(3):
        next_states[row, 3 * vertex + axis] = x[axis] + h * v_next[axis]
        next_states[row, 3 * (count + vertex) + axis] = v_next[axis]

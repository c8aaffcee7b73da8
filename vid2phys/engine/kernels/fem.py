"""Elastic tets: forces on their nodes and one semi-implicit Euler step. Layouts: `systems/soft_body.py`.

Energy is summed over integration points: one of a linear tet, five of a quadratic tet (`tets.integration_points`).

The energy of a tet is the stable neo-Hookean one (Smith, de Goes, Kim: Stable Neo-Hookean Flesh Simulation, 2018,
eq. 14), which gradSim's appendix uses too, with the full I_C = tr(F^T F). With k = 1 - 1 / (I_C + 1):

    P = mu k F + (lambda (J - 1 + a) - 3/4 mu + q) cof F + eta F (F^T F' + F'^T F)

is its first Piola-Kirchhoff stress; a the activation, q what neighbours add to the pressure when it is averaged over
nodes (zero otherwise), eta the viscosity: a stress in the rate of Green's strain, which no rigid motion has. A central
point of a quadratic tet has the stress shared (J - 1 + a) cof F alone.

Each launch writes arrays never written before: Warp's adjoint is silently wrong on overwritten ones. Stresses are
written by point and gathered by vertex, so that sums have one order on every machine. What is summed in a loop is
written at once, since what comes after a loop and is not linear in its result has a wrong adjoint.
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.contact import ContactLaw, ground_force
from vid2phys.engine.kernels.runtime import wp


@wp.struct
class Mesh:
    """Nodes [P, N] of integration points, gradients [P, N] of their shape functions, volumes [P], 1 where a point is
    central [P], muscles [P] (-1: none); places of vertex v are slots[starts[v] : starts[v + 1]], a slot being N point +
    node. By vertex: volume, mass of a load, 1 where it is free (0 where pinned), its share of the external force.
    """

    nodes: wp.array2d(dtype=wp.int32)
    gradients: wp.array2d(dtype=wp.vec3d)
    volumes: wp.array(dtype=wp.float64)
    central: wp.array(dtype=wp.float64)
    muscles: wp.array(dtype=wp.int32)
    starts: wp.array(dtype=wp.int32)
    slots: wp.array(dtype=wp.int32)
    nodal_volumes: wp.array(dtype=wp.float64)
    added_kg: wp.array(dtype=wp.float64)
    free: wp.array(dtype=wp.float64)
    load_shares: wp.array(dtype=wp.float64)


@wp.struct
class Layout:
    """Where parameters begin (-1: there are none), and options: 1 for masses by vertex instead of one density, for
    Lame's moduli instead of Young's and Poisson's, for pressure averaged over nodes, for quadratic tets.
    """

    contact: wp.int32
    muscle: wp.int32
    mass: wp.int32
    mass_by_vertex: wp.int32
    lame: wp.int32
    nodal: wp.int32
    quadratic: wp.int32


@wp.struct
class Material:
    """Constants of the energy [Pa] and viscosity [Pa s]; `shared` is the part of lambda whose pressure is averaged over
    nodes, or acts at central points.
    """

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

    With `nodal` the volumetric part lambda is averaged over nodes and 5/6 mu left to each tet; `TetBody.shared` says
    which part central points of quadratic tets get.
    """
    moduli = linear_moduli(parameters[i, 0], parameters[i, 1], layout)
    mu, lam = moduli[0], moduli[1]
    shared = wp.float64(layout.nodal) * lam + wp.float64(layout.quadratic) * lam * lam / (lam + mu)
    third = wp.float64(1.0) / wp.float64(3.0)  # divided in double precision, unlike a quotient of literals
    return Material(wp.float64(4.0) * third * mu, lam - shared + wp.float64(2.5) * third * mu, shared, parameters[i, 2])


@wp.func
def read_vertex(states: wp.array2d(dtype=wp.float64), row: int, start: int, v: int) -> wp.vec3d:
    """Read the position (start = 0) or velocity (start = V) of vertex v."""
    k = 3 * (start + v)
    return wp.vec3d(states[row, k], states[row, k + 1], states[row, k + 2])


@wp.func
def cofactor(f: wp.mat33d) -> wp.mat33d:
    """Return d det F / d F."""
    a, b, c = f[0], f[1], f[2]
    return wp.matrix_from_rows(wp.cross(b, c), wp.cross(c, a), wp.cross(a, b))


@wp.kernel
def deformations(
    states: wp.array2d(dtype=wp.float64),
    mesh: Mesh,
    gradients: wp.array2d(dtype=wp.mat33d),
    rates: wp.array2d(dtype=wp.mat33d),
) -> None:
    """Compute the deformation gradient F of every point and its rate F'."""
    row, point = wp.tid()
    count = mesh.free.shape[0]
    zero = wp.float64(0.0)
    f = wp.mat33d(zero, zero, zero, zero, zero, zero, zero, zero, zero)
    rate = wp.mat33d(zero, zero, zero, zero, zero, zero, zero, zero, zero)
    first = mesh.nodes[point, 0]
    x, v = read_vertex(states, row, 0, first), read_vertex(states, row, count, first)
    for i in range(1, mesh.nodes.shape[1]):
        node = mesh.nodes[point, i]
        f += wp.outer(read_vertex(states, row, 0, node) - x, mesh.gradients[point, i])
        rate += wp.outer(read_vertex(states, row, count, node) - v, mesh.gradients[point, i])
    gradients[row, point] = f
    rates[row, point] = rate


@wp.kernel
def volume_ratios(gradients: wp.array2d(dtype=wp.mat33d), ratios: wp.array2d(dtype=wp.float64)) -> None:
    """Compute J - 1 of every point."""
    row, point = wp.tid()
    ratios[row, point] = wp.determinant(gradients[row, point]) - wp.float64(1.0)


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
def stresses(
    gradients: wp.array2d(dtype=wp.mat33d),
    rates: wp.array2d(dtype=wp.mat33d),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    averaged: wp.array2d(dtype=wp.float64),
    step: int,
    layout: Layout,
    mesh: Mesh,
    found: wp.array2d(dtype=wp.mat33d),
) -> None:
    """Compute -V P of every point."""
    row, point = wp.tid()
    i = wp.min(row, parameters.shape[0] - 1)
    m = read_material(parameters, i, layout)
    activation = wp.float64(0.0)
    if mesh.muscles[point] >= 0:
        activation = controls[row, step, 3 + mesh.muscles[point]] + parameters[i, layout.muscle + mesh.muscles[point]]
    one = wp.float64(1.0)
    f, rate, central = gradients[row, point], rates[row, point], mesh.central[point]
    local = one - central
    lam = local * m.lam + central * m.shared
    active = lam + wp.float64(layout.nodal) * m.shared
    pressure = lam * (wp.determinant(f) - one) + active * activation - wp.float64(0.75) * local * m.mu
    if layout.nodal == 1:
        neighbours = averaged[row, mesh.nodes[point, 0]] + averaged[row, mesh.nodes[point, 1]]
        neighbours += averaged[row, mesh.nodes[point, 2]] + averaged[row, mesh.nodes[point, 3]]
        pressure += wp.float64(0.25) * m.shared * neighbours
    stretch = wp.transpose(f) * rate
    viscous = local * m.eta * (f * (stretch + wp.transpose(stretch)))
    stress = local * m.mu * (one - one / (wp.ddot(f, f) + one)) * f + pressure * cofactor(f) + viscous
    found[row, point] = -mesh.volumes[point] * stress


@wp.kernel
def nodal_forces(found: wp.array2d(dtype=wp.mat33d), mesh: Mesh, forces: wp.array2d(dtype=wp.vec3d)) -> None:
    """Sum up the forces of the points' stresses at every vertex."""
    row, vertex = wp.tid()
    total = wp.vec3d(wp.float64(0.0), wp.float64(0.0), wp.float64(0.0))
    nodes = mesh.nodes.shape[1]
    for k in range(mesh.starts[vertex], mesh.starts[vertex + 1]):
        total += found[row, mesh.slots[k] // nodes] * mesh.gradients[mesh.slots[k] // nodes, mesh.slots[k] % nodes]
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
    mass = volume * parameters[i, layout.mass + layout.mass_by_vertex * vertex] + mesh.added_kg[vertex]
    acceleration = force / mass - wp.vec3d(wp.float64(0.0), wp.float64(0.0), parameters[i, 3])
    v_next = mesh.free[vertex] * (v + h * acceleration)
    for axis in range(3):
        next_states[row, 3 * vertex + axis] = x[axis] + h * v_next[axis]
        next_states[row, 3 * (count + vertex) + axis] = v_next[axis]


@wp.kernel
def mirror(
    states: wp.array2d(dtype=wp.float64), middle: wp.array2d(dtype=wp.float64), ends: wp.array2d(dtype=wp.float64)
) -> None:
    """Compute the ends of steps from their middles."""
    row, i = wp.tid()
    ends[row, i] = wp.float64(2.0) * middle[row, i] - states[row, i]

"""One integration step of sheets of triangles. Layouts: `systems/cloth.py`, `systems/walker.py`.

Four launches: the forces of every triangle on its corners, the forces of every hinge (inner edge) on its four
vertices, their sum at every vertex over a fixed table, the move. Nothing is added atomically, so that results do not
depend on the order of threads. As in `multirotor.py`, each launch writes what was never written before.

gradSim (Jatavallabhula et al., ICLR 2021), appendix: triangles of constant strain, bending moment
k_b sin(phi / 2 + alpha), activation and forces of air by triangle. What differs is said in `systems/cloth.py`.
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.contact import ContactLaw, ground_force
from vid2phys.engine.kernels.multirotor import read_vec3
from vid2phys.engine.kernels.runtime import wp


@wp.struct
class Triangles:
    """corners: [T]. inverse_edges: [T] inverse of the edges at rest in the triangle's plane [1/m]. areas: at rest."""

    corners: wp.array(dtype=wp.vec3i)
    inverse_edges: wp.array(dtype=wp.mat22d)
    areas: wp.array(dtype=wp.float64)


@wp.struct
class Hinges:
    """vertices: [H], two wings, then the edge. shape: edge^2 / area of both triangles. angles: at rest [rad].

    angle_column: where parameters hold the angles, -1 where they do not.
    """

    vertices: wp.array(dtype=wp.vec4i)
    shape: wp.array(dtype=wp.float64)
    angles: wp.array(dtype=wp.float64)
    angle_column: int


@wp.struct
class Points:
    """What the vertices are given.

    Forces on vertex i lie in `slots[first[i]]` to `slots[first[i + 1] - 1]`. areas: [V] m^2, a third of each triangle.
    free: [V], 1 for each axis that a vertex moves along, 0 for the others. load_shares: [V] of the disturbance force.
    Columns: of the parameters gravity, the first of k_e, k_d, k_f, mu (-1: no ground), density or the mass of vertex 0,
    of the controls the components of the force (-1: none). mass_by_vertex: 1 or 0.
    """

    first: wp.array(dtype=wp.int32)
    slots: wp.array(dtype=wp.int32)
    areas: wp.array(dtype=wp.float64)
    free: wp.array(dtype=wp.vec3d)
    load_shares: wp.array(dtype=wp.float64)
    gravity_column: int
    contact_column: int
    mass_column: int
    mass_by_vertex: int
    load_columns: wp.vec3i


@wp.struct
class CornerForces:
    """Forces on the second and third corner of a triangle [N]; the first takes what balances them."""

    on_1: wp.vec3d
    on_2: wp.vec3d


@wp.func
def membrane_forces(
    edge_1: wp.vec3d,
    edge_2: wp.vec3d,
    rate_1: wp.vec3d,
    rate_2: wp.vec3d,
    normal: wp.vec3d,
    inverse: wp.mat22d,
    area: wp.float64,
    shear: wp.float64,
    stretch: wp.float64,
    viscosity: wp.float64,
    activation: wp.float64,
) -> CornerForces:
    """Return the elastic and viscous forces of one triangle from its edges [m], their rates [m/s] and its unit normal.

    Energy by area at rest: shear / 2 (tr F^T F - 2 J) + stretch / 2 (J - 1 + activation)^2. Viscous stress:
    viscosity F E', E' the rate of Green's strain.
    """
    f1 = inverse[0, 0] * edge_1 + inverse[1, 0] * edge_2
    f2 = inverse[0, 1] * edge_1 + inverse[1, 1] * edge_2
    g1 = inverse[0, 0] * rate_1 + inverse[1, 0] * rate_2
    g2 = inverse[0, 1] * rate_1 + inverse[1, 1] * rate_2
    half, one = wp.float64(0.5), wp.float64(1.0)
    strain_11, strain_22 = wp.dot(f1, g1), wp.dot(f2, g2)
    strain_12 = half * (wp.dot(f1, g2) + wp.dot(f2, g1))
    ratio = half * wp.dot(wp.cross(edge_1, edge_2), normal) / area
    tension = stretch * (ratio - one + activation) - shear
    p1 = shear * f1 + viscosity * (strain_11 * f1 + strain_12 * f2)
    p2 = shear * f2 + viscosity * (strain_12 * f1 + strain_22 * f2)
    on_1 = -area * (inverse[0, 0] * p1 + inverse[0, 1] * p2) - half * tension * wp.cross(edge_2, normal)
    on_2 = -area * (inverse[1, 0] * p1 + inverse[1, 1] * p2) - half * tension * wp.cross(normal, edge_1)
    return CornerForces(on_1, on_2)


@wp.func
def air_force(area_normal: wp.vec3d, wind: wp.vec3d, drag: wp.float64, lift: wp.float64) -> wp.vec3d:
    """Return the force [N] of a wind relative to the triangle [m/s]; area_normal is its normal times its area [m^2]."""
    area = wp.length(area_normal)
    through = wp.dot(area_normal, wind)
    force = drag * wp.abs(through) * wind
    if area > wp.float64(0.0):
        force += (lift * wp.length(wind) * through / area) * area_normal
    return force


@wp.func
def store_corners(
    forces: wp.array2d(dtype=wp.vec3d), row: int, triangle: int, on_0: wp.vec3d, on_1: wp.vec3d, on_2: wp.vec3d
):
    """Store the three slots of a triangle."""
    forces[row, 3 * triangle] = on_0
    forces[row, 3 * triangle + 1] = on_1
    forces[row, 3 * triangle + 2] = on_2


@wp.kernel
def cloth_triangles(
    states: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    step: int,
    triangles: Triangles,
    forces: wp.array2d(dtype=wp.vec3d),
) -> None:
    """Compute forces of triangles. Parameters from column 0: shear, stretch and viscosity, drag and lift. Controls from
    column 0: the wind.
    """
    row, t = wp.tid()
    i = wp.min(row, parameters.shape[0] - 1)
    corners, size = triangles.corners[t], states.shape[1] // 2
    a, b, c = 3 * corners[0], 3 * corners[1], 3 * corners[2]
    x, v = read_vec3(states, row, a), read_vec3(states, row, size + a)
    v_b, v_c = read_vec3(states, row, size + b), read_vec3(states, row, size + c)
    edge_1, edge_2 = read_vec3(states, row, b) - x, read_vec3(states, row, c) - x
    across = wp.cross(edge_1, edge_2)
    normal = wp.normalize(across)
    elastic = membrane_forces(
        edge_1,
        edge_2,
        v_b - v,
        v_c - v,
        normal,
        triangles.inverse_edges[t],
        triangles.areas[t],
        parameters[i, 0],
        parameters[i, 1],
        parameters[i, 2],
        wp.float64(0.0),
    )
    third = wp.float64(1.0) / wp.float64(3.0)
    wind = read_vec3(controls[row], step, 0) - third * (v + v_b + v_c)
    air = third * air_force(wp.float64(0.5) * across, wind, parameters[i, 3], parameters[i, 4])
    store_corners(forces, row, t, air - elastic.on_1 - elastic.on_2, air + elastic.on_1, air + elastic.on_2)


@wp.func
def in_plane(x: wp.vec3d) -> wp.vec3d:
    """Return the part in the x-z plane."""
    return wp.vec3d(x[0], wp.float64(0.0), x[2])


@wp.kernel
def planar_triangles(
    states: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    step: int,
    triangles: Triangles,
    forces: wp.array2d(dtype=wp.vec3d),
) -> None:
    """Compute forces of triangles of the x-z plane, counter-clockwise about -y. Parameters from column 0: shear,
    stretch, viscosity.

    Controls from column 0: the activation of each triangle. A triangle turned inside out has a negative area.
    """
    row, t = wp.tid()
    i = wp.min(row, parameters.shape[0] - 1)
    corners, size = triangles.corners[t], states.shape[1] // 2
    a, b, c = 3 * corners[0], 3 * corners[1], 3 * corners[2]
    x, v = in_plane(read_vec3(states, row, a)), in_plane(read_vec3(states, row, size + a))
    elastic = membrane_forces(
        in_plane(read_vec3(states, row, b)) - x,
        in_plane(read_vec3(states, row, c)) - x,
        in_plane(read_vec3(states, row, size + b)) - v,
        in_plane(read_vec3(states, row, size + c)) - v,
        wp.vec3d(wp.float64(0.0), wp.float64(-1.0), wp.float64(0.0)),
        triangles.inverse_edges[t],
        triangles.areas[t],
        parameters[i, 0],
        parameters[i, 1],
        parameters[i, 2],
        controls[row, step, t],
    )
    store_corners(forces, row, t, -elastic.on_1 - elastic.on_2, elastic.on_1, elastic.on_2)


@wp.kernel
def hinges(
    states: wp.array2d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    edges: Hinges,
    start: int,
    forces: wp.array2d(dtype=wp.vec3d),
) -> None:
    """Write the bending forces into the slots from `start`. Parameters from column 5: bending stiffness and bending
    damping.
    """
    row, h = wp.tid()
    i = wp.min(row, parameters.shape[0] - 1)
    vertices, size = edges.vertices[h], states.shape[1] // 2
    a, b, c, d = 3 * vertices[0], 3 * vertices[1], 3 * vertices[2], 3 * vertices[3]
    x0, x1 = read_vec3(states, row, a), read_vec3(states, row, b)
    x2, x3 = read_vec3(states, row, c), read_vec3(states, row, d)
    edge = x3 - x2
    length = wp.length(edge)
    n1, n2 = wp.cross(x0 - x2, x0 - x3), wp.cross(x1 - x3, x1 - x2)
    angle = wp.atan2(wp.dot(wp.cross(n1, n2), edge) / length, wp.dot(n1, n2))
    # the gradient of the angle: Bridson, Marino, Fedkiw, "Simulation of clothing with folds and wrinkles", 2003,
    # for an angle of the other sign
    m1, m2 = -n1 / wp.length_sq(n1), -n2 / wp.length_sq(n2)
    d0, d1 = length * m1, length * m2
    d2 = (wp.dot(x0 - x3, edge) / length) * m1 + (wp.dot(x1 - x3, edge) / length) * m2
    d3 = -(d0 + d1 + d2)
    rate = wp.dot(d0, read_vec3(states, row, size + a)) + wp.dot(d1, read_vec3(states, row, size + b))
    rate += wp.dot(d2, read_vec3(states, row, size + c)) + wp.dot(d3, read_vec3(states, row, size + d))
    rest = edges.angles[h]
    if edges.angle_column >= 0:
        rest = parameters[i, edges.angle_column + h]
    elastic = wp.float64(2.0) * parameters[i, 5] * wp.sin(wp.float64(0.5) * (angle - rest))
    moment = -edges.shape[h] * (elastic + parameters[i, 6] * rate)
    slot = start + 4 * h
    forces[row, slot] = moment * d0
    forces[row, slot + 1] = moment * d1
    forces[row, slot + 2] = moment * d2
    forces[row, slot + 3] = moment * d3


@wp.func
def component(controls: wp.array2d(dtype=wp.float64), step: int, column: int) -> wp.float64:
    """Return one control, 0 for column -1."""
    value = wp.float64(0.0)
    if column >= 0:
        value = controls[step, column]
    return value


@wp.kernel
def total_forces(
    states: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    points: Points,
    forces: wp.array2d(dtype=wp.vec3d),
    total: wp.array2d(dtype=wp.vec3d),
) -> None:
    """Sum the forces on the vertices but for weight: of triangles and hinges, from outside, of the ground z = 0.

    A launch of its own: what is not linear in the result of a loop has a wrong adjoint.
    """
    row, vertex = wp.tid()
    i = wp.min(row, parameters.shape[0] - 1)
    load = wp.vec3d(
        component(controls[row], step, points.load_columns[0]),
        component(controls[row], step, points.load_columns[1]),
        component(controls[row], step, points.load_columns[2]),
    )
    force = points.load_shares[vertex] * load
    if points.contact_column >= 0:
        c, size = points.contact_column, states.shape[1] // 2
        law = ContactLaw(parameters[i, c], parameters[i, c + 1], parameters[i, c + 2], parameters[i, c + 3])
        x, v = read_vec3(states, row, 3 * vertex), read_vec3(states, row, size + 3 * vertex)
        h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
        force += ground_force(x, v, h, law)
    for k in range(points.first[vertex], points.first[vertex + 1]):
        force += forces[row, points.slots[k]]
    total[row, vertex] = force


@wp.kernel
def move_semi_implicit_euler(
    states: wp.array2d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    points: Points,
    total: wp.array2d(dtype=wp.vec3d),
    next_states: wp.array2d(dtype=wp.float64),
) -> None:
    """Step velocities first, then positions with the new velocities; first order."""
    row, vertex = wp.tid()
    i = wp.min(row, parameters.shape[0] - 1)
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    position, velocity = 3 * vertex, states.shape[1] // 2 + 3 * vertex
    area = wp.where(points.mass_by_vertex == 1, wp.float64(1.0), points.areas[vertex])
    mass = area * parameters[i, points.mass_column + points.mass_by_vertex * vertex]
    weight = wp.vec3d(wp.float64(0.0), wp.float64(0.0), -parameters[i, points.gravity_column])
    v = read_vec3(states, row, velocity) + h * (total[row, vertex] / mass + weight)
    v_next = wp.cw_mul(points.free[vertex], v)
    for axis in range(3):
        next_states[row, velocity + axis] = v_next[axis]
        next_states[row, position + axis] = states[row, position + axis] + h * v_next[axis]

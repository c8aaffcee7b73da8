"""One integration step of rigid bodies in contact, one thread a body of a row. Layouts: `systems/rigid_contact.py`.

A thread sums over the contacts of its body, so that a contact between two bodies is computed twice, and nothing is
added atomically: results do not depend on the order of threads. Sums have a launch of their own: Warp's adjoint does
not run loops again, so it is right where a loop's sum is only written, wrong where the sum is used any further. As in
`multirotor.py`, each launch writes arrays never written before.

A contact is a point of body a with a radius (0 for a corner) against a surface of body b or of the world. `kinds` holds
a row for each contact of each body, (kind, a, b, sign of the force on the body that the row is listed for), `shapes`
the point, its radius, and the surface: a plane (normal, offset), a sphere (radius) or a box (half extents) in b's axes.
Rows of body i are `first[i]` to `first[i + 1] - 1`.
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.contact import ContactLaw, contact_force, slowed_at_touch_down
from vid2phys.engine.kernels.multirotor import read_vec3, read_vec4
from vid2phys.engine.kernels.rigid_body import angular_acceleration, linear_acceleration
from vid2phys.engine.kernels.rotations import quat_derivative, quat_rotate
from vid2phys.engine.kernels.runtime import wp

PLANE = wp.constant(0)
SPHERE = wp.constant(1)
BOX = wp.constant(2)


@wp.struct
class Contacts:
    """The table of contacts of all bodies, see above."""

    kinds: wp.array2d(dtype=wp.int32)
    shapes: wp.array2d(dtype=wp.float64)
    first: wp.array(dtype=wp.int32)


@wp.struct
class Pose:
    """Position, orientation, velocity [world] and angular velocity [world] of one body."""

    p: wp.vec3d
    q: wp.vec4d
    v: wp.vec3d
    w: wp.vec3d


@wp.func
def read_pose(states: wp.array2d(dtype=wp.float64), row: int, body: int) -> Pose:
    """Read the pose of one body of a row."""
    q = read_vec4(states, row, 13 * body + 3)
    v, w = read_vec3(states, row, 13 * body + 7), read_vec3(states, row, 13 * body + 10)
    return Pose(read_vec3(states, row, 13 * body), q, v, quat_rotate(q, w))


@wp.func
def quat_conjugate(q: wp.vec4d) -> wp.vec4d:
    """Return the inverse rotation."""
    return wp.vec4d(q[0], -q[1], -q[2], -q[3])


@wp.func
def velocity_at(body: Pose, point: wp.vec3d) -> wp.vec3d:
    """Return the velocity of the body's matter at a point of the world."""
    return body.v + wp.cross(body.w, point - body.p)


@wp.func
def sphere_surface(y: wp.vec3d, radius: wp.float64) -> wp.vec4d:
    """Return the outward normal and signed distance of a point from a sphere at the origin."""
    n = wp.normalize(y)
    return wp.vec4d(n[0], n[1], n[2], wp.length(y) - radius)


@wp.func
def sign_of(x: wp.float64) -> wp.float64:
    """Return 1 or -1."""
    return wp.where(x < wp.float64(0.0), wp.float64(-1.0), wp.float64(1.0))


@wp.func
def box_surface(y: wp.vec3d, half: wp.vec3d) -> wp.vec4d:
    """Return the outward normal and signed distance of a point from a box about the origin; inside, of the nearest
    face.
    """
    zero = wp.float64(0.0)
    x0, x1, x2 = wp.abs(y[0]) - half[0], wp.abs(y[1]) - half[1], wp.abs(y[2]) - half[2]
    s0, s1, s2 = sign_of(y[0]), sign_of(y[1]), sign_of(y[2])
    out = wp.vec4d(zero, zero, zero, zero)
    if x0 <= zero and x1 <= zero and x2 <= zero:
        if x0 >= x1 and x0 >= x2:
            out = wp.vec4d(s0, zero, zero, x0)
        elif x1 >= x2:
            out = wp.vec4d(zero, s1, zero, x1)
        else:
            out = wp.vec4d(zero, zero, s2, x2)
    else:
        beyond = wp.vec3d(s0 * wp.max(x0, zero), s1 * wp.max(x1, zero), s2 * wp.max(x2, zero))
        n = wp.normalize(beyond)
        out = wp.vec4d(n[0], n[1], n[2], wp.length(beyond))
    return out


@wp.func
def touch(
    states: wp.array2d(dtype=wp.float64),
    row: int,
    contacts: Contacts,
    i: int,
    body: int,
    law: ContactLaw,
    step_s: wp.float64,
) -> wp.spatial_vectord:
    """Return the force and torque about the centre of `body`, both in the world, of contact i."""
    kind = contacts.kinds[i, 0]
    mover = read_pose(states, row, contacts.kinds[i, 1])
    radius = contacts.shapes[i, 3]
    centre = mover.p + quat_rotate(mover.q, read_vec3(contacts.shapes, i, 0))
    normal = read_vec3(contacts.shapes, i, 4)
    distance = wp.dot(normal, centre) - contacts.shapes[i, 7]
    moving = wp.vec3d()
    if kind != PLANE:
        other = read_pose(states, row, contacts.kinds[i, 2])
        local = quat_rotate(quat_conjugate(other.q), centre - other.p)
        surface = wp.vec4d()
        if kind == SPHERE:
            surface = sphere_surface(local, contacts.shapes[i, 4])
        else:
            surface = box_surface(local, read_vec3(contacts.shapes, i, 4))
        normal = quat_rotate(other.q, wp.vec3d(surface[0], surface[1], surface[2]))
        distance = surface[3]
        moving = velocity_at(other, centre - radius * normal)
    where, depth = centre - radius * normal, radius - distance
    velocity = slowed_at_touch_down(depth, velocity_at(mover, where) - moving, normal, step_s)
    force = wp.float64(contacts.kinds[i, 3]) * contact_force(depth, velocity, normal, law)
    moment = wp.cross(where - read_vec3(states, row, 13 * body), force)
    return wp.spatial_vectord(force[0], force[1], force[2], moment[0], moment[1], moment[2])


@wp.kernel
def contact_wrenches(
    states: wp.array2d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    contacts: Contacts,
    wrenches: wp.array2d(dtype=wp.float64),
) -> None:
    """Compute force and torque about the centre of each body, both in the world, [B, 6 a body]."""
    row, body = wp.tid()
    i = wp.min(row, parameters.shape[0] - 1)
    k = 4 * (contacts.first.shape[0] - 1)
    law = ContactLaw(parameters[i, k], parameters[i, k + 1], parameters[i, k + 2], parameters[i, k + 3])
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    wrench = wp.spatial_vectord()
    for contact in range(contacts.first[body], contacts.first[body + 1]):
        wrench += touch(states, row, contacts, contact, body, law, h)
    for j in range(6):
        wrenches[row, 6 * body + j] = wrench[j]


@wp.func
def accelerations(
    states: wp.array2d(dtype=wp.float64),
    wrenches: wp.array2d(dtype=wp.float64),
    controls: wp.array2d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    row: int,
    step: int,
    body: int,
    has_actions: wp.float64,
) -> wp.spatial_vectord:
    """Return dv/dt in the world [m/s^2], d omega/dt in the body [rad/s^2]; `has_actions`: 1 if actions come first."""
    i, start = wp.min(row, parameters.shape[0] - 1), 6 * body
    q, w = read_vec4(states, row, 13 * body + 3), read_vec3(states, row, 13 * body + 10)
    disturbance = controls.shape[1] - wrenches.shape[1] + start
    push = has_actions * read_vec3(controls, step, start) + read_vec3(controls, step, disturbance)
    moment = has_actions * read_vec3(controls, step, start + 3) + read_vec3(controls, step, disturbance + 3)
    force = push + read_vec3(wrenches, row, start)
    torque = moment + quat_rotate(quat_conjugate(q), read_vec3(wrenches, row, start + 3))
    gravity = parameters[i, parameters.shape[1] - 1]
    a = linear_acceleration(force, wp.vec3d(), parameters[i, 4 * body], wp.float64(0.0), gravity)
    b = angular_acceleration(torque, w, read_vec3(parameters, i, 4 * body + 1))
    return wp.spatial_vectord(a[0], a[1], a[2], b[0], b[1], b[2])


@wp.func
def write_body(
    out: wp.array2d(dtype=wp.float64), row: int, body: int, p: wp.vec3d, q: wp.vec4d, v: wp.vec3d, w: wp.vec3d
):
    """Store one body of a row."""
    start = 13 * body
    for i in range(3):
        out[row, start + i] = p[i]
        out[row, start + 7 + i] = v[i]
        out[row, start + 10 + i] = w[i]
    for i in range(4):
        out[row, start + 3 + i] = q[i]


@wp.kernel
def step_semi_implicit_euler(
    states: wp.array2d(dtype=wp.float64),
    wrenches: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    has_actions: wp.float64,
    next_states: wp.array2d(dtype=wp.float64),
) -> None:
    """Step velocities first, then positions with the new velocities; first order."""
    row, body = wp.tid()
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    rates = accelerations(states, wrenches, controls[row], parameters, row, step, body, has_actions)
    p, q = read_vec3(states, row, 13 * body), read_vec4(states, row, 13 * body + 3)
    v = read_vec3(states, row, 13 * body + 7) + h * wp.spatial_top(rates)
    w = read_vec3(states, row, 13 * body + 10) + h * wp.spatial_bottom(rates)
    write_body(next_states, row, body, p + h * v, wp.normalize(q + h * quat_derivative(q, w)), v, w)


@wp.kernel
def slope_at(
    states: wp.array2d(dtype=wp.float64),
    wrenches: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    step: int,
    has_actions: wp.float64,
    slope: wp.array2d(dtype=wp.float64),
) -> None:
    """Time derivative of all states."""
    row, body = wp.tid()
    rates = accelerations(states, wrenches, controls[row], parameters, row, step, body, has_actions)
    v, w = read_vec3(states, row, 13 * body + 7), read_vec3(states, row, 13 * body + 10)
    turning = quat_derivative(read_vec4(states, row, 13 * body + 3), w)
    write_body(slope, row, body, v, turning, wp.spatial_top(rates), wp.spatial_bottom(rates))


@wp.kernel
def advance(
    states: wp.array2d(dtype=wp.float64),
    slope: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    ahead: wp.array2d(dtype=wp.float64),
) -> None:
    """Compute the states `fraction` of an interval along a slope, quaternions as they come."""
    row, i = wp.tid()
    ahead[row, i] = states[row, i] + fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step] * slope[row, i]


@wp.kernel
def mean_slope_rk4(
    slope_1: wp.array2d(dtype=wp.float64),
    slope_2: wp.array2d(dtype=wp.float64),
    slope_3: wp.array2d(dtype=wp.float64),
    slope_4: wp.array2d(dtype=wp.float64),
    mean: wp.array2d(dtype=wp.float64),
) -> None:
    """Compute the slope of a classical Runge-Kutta step of fourth order."""
    row, i = wp.tid()
    two = wp.float64(2.0)
    total = slope_1[row, i] + two * slope_2[row, i] + two * slope_3[row, i] + slope_4[row, i]
    mean[row, i] = total / wp.float64(6.0)


@wp.kernel
def normalized(states: wp.array2d(dtype=wp.float64), next_states: wp.array2d(dtype=wp.float64)) -> None:
    """Compute the states with quaternions of unit length."""
    row, body = wp.tid()
    p, q = read_vec3(states, row, 13 * body), read_vec4(states, row, 13 * body + 3)
    v, w = read_vec3(states, row, 13 * body + 7), read_vec3(states, row, 13 * body + 10)
    write_body(next_states, row, body, p, wp.normalize(q), v, w)

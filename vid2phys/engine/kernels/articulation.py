"""Steps of a tree of revolute and prismatic joints, one thread a row. Layouts: `systems/articulated.py`.

Spatial vectors (angular part first) are in world axes about the base's origin, so that inertias and forces of a
subtree simply add up (Featherstone, "Rigid Body Dynamics Algorithms", 2008: composite-rigid-body algorithm, section
6.2, and the factorisation M = L^T D L that keeps the tree's zeros, section 6.5).

The adjoint is written by hand: Warp's is wrong for loops that carry state, and would differentiate the factorisation.
With qdd = M^-1 (tau - b), the adjoint mu = M^-1 lambda of the forces is one more solve with the same factor, and
everything else is the gradient of the scalar mu . tau - sum_i W_i . F_i at fixed qdd, in which W_i is the velocity that
mu as joint rates would give link i, and F_i = I_i A_i + V_i x* I_i V_i. Turning a joint moves all beyond it rigidly, so
that gradient is one pass inwards over sums of forces.
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.rotations import quat_derivative, quat_rotate
from vid2phys.engine.kernels.runtime import wp

wp.set_module_options({"enable_backward": False})

FRICTION_RATE = wp.constant(wp.float64(0.05))  # rad/s or m/s, below which dry friction grows linearly
ZERO = wp.constant(wp.float64(0.0))
TWO = wp.constant(wp.float64(2.0))


@wp.struct
class Tree:
    """Constants of an instance: L links, link 0 the base, link i carried by joint i - 1; V dofs; B parts with mass.

    The first `base` dofs are a free base's (6: velocity in the world, angular velocity in the body), else 0.
    `configuration` is how many numbers of a state are not velocities.
    """

    links: int
    parts: int
    base: int
    configuration: int
    groups: int
    parent: wp.array(dtype=int)  # [L]
    revolute: wp.array(dtype=int)  # [L]
    group: wp.array(dtype=int)  # [L] of stiffness, damping and friction
    offset: wp.array(dtype=wp.vec3d)  # [L] joint in the parent link
    turned: wp.array(dtype=wp.mat33d)  # [L] link axes in the parent link at rest
    axis: wp.array(dtype=wp.vec3d)  # [L] in the link
    reference: wp.array(dtype=wp.float64)  # [L] joint coordinate at rest
    spring_reference: wp.array(dtype=wp.float64)
    armature: wp.array(dtype=wp.float64)
    lower: wp.array(dtype=wp.float64)
    upper: wp.array(dtype=wp.float64)
    limit_stiffness: wp.array(dtype=wp.float64)
    dof_parent: wp.array(dtype=int)  # [V]
    dof_depth: wp.array(dtype=int)  # [V] number of ancestors
    part_link: wp.array(dtype=int)  # [B] the link that a part belongs to
    mass_column: wp.array(dtype=int)  # [B] in the parameters
    com: wp.array(dtype=wp.vec3d)  # [B] in the link
    inertia: wp.array(dtype=wp.mat33d)  # [B] per kilogram, about the centre of mass, in link axes
    row_start: wp.array(dtype=int)  # [V] of the packed factor: row d holds its ancestors, then itself


@wp.struct
class Link:
    """A link during one evaluation."""

    rotation: wp.mat33d
    position: wp.vec3d
    axis: wp.spatial_vectord  # of its joint
    velocity: wp.spatial_vectord
    acceleration: wp.spatial_vectord  # gravity's included
    mass: wp.float64
    com: wp.vec3d
    inertia: wp.mat33d  # about the centre of mass
    # of the link and all beyond it
    total_mass: wp.float64
    moment: wp.vec3d
    about_origin: wp.mat33d
    force: wp.spatial_vectord


@wp.struct
class Cotangent:
    """Adjoints of a link's motions, summed over all beyond it."""

    trial: wp.spatial_vectord  # W_i, not summed
    of_trial: wp.spatial_vectord
    of_velocity: wp.spatial_vectord
    of_acceleration: wp.spatial_vectord
    of_place: wp.spatial_vectord


@wp.func
def spatial(angular: wp.vec3d, linear: wp.vec3d) -> wp.spatial_vectord:
    """Return the spatial vector of two halves."""
    return wp.spatial_vectord(angular[0], angular[1], angular[2], linear[0], linear[1], linear[2])


@wp.func
def motion_cross(a: wp.spatial_vectord, b: wp.spatial_vectord) -> wp.spatial_vectord:
    """Return how fast motion b turns when it is carried along by a."""
    w = wp.spatial_top(a)
    angular = wp.cross(w, wp.spatial_top(b))
    return spatial(angular, wp.cross(w, wp.spatial_bottom(b)) + wp.cross(wp.spatial_bottom(a), wp.spatial_top(b)))


@wp.func
def force_cross(a: wp.spatial_vectord, f: wp.spatial_vectord) -> wp.spatial_vectord:
    """Return how fast force f turns when it is carried along by a."""
    w = wp.spatial_top(a)
    moment = wp.cross(w, wp.spatial_top(f)) + wp.cross(wp.spatial_bottom(a), wp.spatial_bottom(f))
    return spatial(moment, wp.cross(w, wp.spatial_bottom(f)))


@wp.func
def momentum(link: Link, motion: wp.spatial_vectord) -> wp.spatial_vectord:
    """Return the link's spatial inertia times a motion."""
    w = wp.spatial_top(motion)
    linear = link.mass * (wp.spatial_bottom(motion) + wp.cross(w, link.com))
    return spatial(link.inertia * w + wp.cross(link.com, linear), linear)


@wp.func
def link_force(link: Link, acceleration: wp.spatial_vectord) -> wp.spatial_vectord:
    """Return the force that moves the link so: I A + V x* I V."""
    return momentum(link, acceleration) + force_cross(link.velocity, momentum(link, link.velocity))


@wp.func
def total_momentum(link: Link, motion: wp.spatial_vectord) -> wp.spatial_vectord:
    """Return the spatial inertia of the link and all beyond it times a motion."""
    w, v = wp.spatial_top(motion), wp.spatial_bottom(motion)
    return spatial(link.about_origin * w + wp.cross(link.moment, v), link.total_mass * v + wp.cross(w, link.moment))


@wp.func
def about(mass: wp.float64, com: wp.vec3d, inertia: wp.mat33d) -> wp.mat33d:
    """Return the inertia about the origin."""
    eye = wp.identity(n=3, dtype=wp.float64)
    return inertia + mass * (wp.dot(com, com) * eye - wp.outer(com, com))


@wp.func
def axis_rotation(axis: wp.vec3d, angle: wp.float64) -> wp.mat33d:
    """Return the matrix that rotates by `angle` about a unit vector."""
    s, c = wp.sin(angle), wp.cos(angle)
    eye = wp.identity(n=3, dtype=wp.float64)
    return c * eye + s * wp.skew(axis) + (wp.float64(1.0) - c) * wp.outer(axis, axis)


@wp.func
def read_vec3(a: wp.array3d(dtype=wp.float64), row: int, stage: int, start: int) -> wp.vec3d:
    """Read three adjacent entries."""
    return wp.vec3d(a[row, stage, start], a[row, stage, start + 1], a[row, stage, start + 2])


@wp.func
def read_quat(a: wp.array3d(dtype=wp.float64), row: int, stage: int) -> wp.vec4d:
    """Read the orientation of a free base."""
    return wp.vec4d(a[row, stage, 3], a[row, stage, 4], a[row, stage, 5], a[row, stage, 6])


@wp.func
def rotation_of(q: wp.vec4d) -> wp.mat33d:
    """Return the rotation from body to world."""
    one = wp.float64(1.0)
    x, y = quat_rotate(q, wp.vec3d(one, ZERO, ZERO)), quat_rotate(q, wp.vec3d(ZERO, one, ZERO))
    z = wp.cross(x, y)
    return wp.matrix_from_cols(x, y, z)


@wp.func
def put_part(link: Link, mass: wp.float64, com: wp.vec3d, per_mass: wp.mat33d) -> Link:
    """Return the link with the mass and inertia of a part alone, in world axes; com and inertia in link axes."""
    link.mass = mass
    link.com = link.position + link.rotation * com
    link.inertia = mass * (link.rotation * per_mass * wp.transpose(link.rotation))
    return link


@wp.func
def joined(link: Link, part: Link) -> Link:
    """Return the link with the mass and inertia of a part in addition to its own."""
    total = link.mass + part.mass
    reduced = link.mass * part.mass / total
    link.inertia = link.inertia + about(reduced, part.com - link.com, part.inertia)
    link.com = (link.mass * link.com + part.mass * part.com) / total
    link.mass = total
    return link


@wp.func
def place_links(
    tree: Tree,
    memo: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    row: int,
    given: int,
    stage: int,
    links: wp.array2d(dtype=Link),
):
    """Work outwards: place the links, how they move, and their accelerations when no joint rate changes."""
    root = Link()
    root.rotation = wp.identity(n=3, dtype=wp.float64)
    if tree.base > 0:
        root.rotation = rotation_of(read_quat(memo, row, stage))
        omega = root.rotation * read_vec3(memo, row, stage, tree.configuration + 3)
        root.velocity = spatial(omega, read_vec3(memo, row, stage, tree.configuration))
    root.acceleration = spatial(wp.vec3d(), wp.vec3d(ZERO, ZERO, parameters[given, 0]))
    links[row, 0] = root
    first_angle = tree.configuration - (tree.links - 1) - 1
    first_rate = tree.configuration + tree.base - 1
    for i in range(1, tree.links):
        up = links[row, tree.parent[i]]
        link = Link()
        q, rate = memo[row, stage, first_angle + i] - tree.reference[i], memo[row, stage, first_rate + i]
        link.position = up.position + up.rotation * tree.offset[i]
        link.rotation = up.rotation * tree.turned[i]
        axis = link.rotation * tree.axis[i]
        if tree.revolute[i] == 1:
            link.rotation = link.rotation * axis_rotation(tree.axis[i], q)
            link.axis = spatial(axis, wp.cross(link.position, axis))
        else:
            link.position = link.position + q * axis
            link.axis = spatial(wp.vec3d(), axis)
        link.velocity = up.velocity + rate * link.axis
        link.acceleration = up.acceleration + rate * motion_cross(up.velocity, link.axis)
        links[row, i] = link
    for b in range(tree.parts):
        link = links[row, tree.part_link[b]]
        part = put_part(link, parameters[given, tree.mass_column[b]], tree.com[b], tree.inertia[b])
        links[row, tree.part_link[b]] = joined(link, part)


@wp.func
def limit_stiffness(tree: Tree, q: wp.float64, i: int) -> wp.float64:
    """Return the stiffness of the stop that joint i is beyond, 0 between the stops."""
    stiffness = ZERO
    if q < tree.lower[i] or q > tree.upper[i]:
        stiffness = tree.limit_stiffness[i]
    return stiffness


@wp.func
def passive_torque(
    tree: Tree, parameters: wp.array2d(dtype=wp.float64), given: int, q: wp.float64, rate: wp.float64, i: int
) -> wp.float64:
    """Return the torque of spring, damping, friction and stops of joint i [N m or N]."""
    column = 1 + tree.group[i]
    spring = parameters[given, column] * (q - tree.spring_reference[i])
    damping = parameters[given, column + tree.groups] * rate
    friction = parameters[given, column + 2 * tree.groups] * wp.tanh(rate / FRICTION_RATE)
    stop = limit_stiffness(tree, q, i) * (q - wp.clamp(q, tree.lower[i], tree.upper[i]))
    return -(spring + damping + friction + stop)


@wp.func
def solve(tree: Tree, memo: wp.array3d(dtype=wp.float64), row: int, stage: int, factor: int, at: int):
    """Replace memo[row, stage, at:] by M^-1 of it, with the factor that begins at `factor`."""
    count = tree.base + tree.links - 1
    for r in range(count):
        d = count - 1 - r
        x = memo[row, stage, at + d]
        start = factor + tree.row_start[d]
        other = tree.dof_parent[d]
        while other >= 0:
            memo[row, stage, at + other] = (
                memo[row, stage, at + other] - memo[row, stage, start + tree.dof_depth[other]] * x
            )
            other = tree.dof_parent[other]
    for d in range(count):
        start = factor + tree.row_start[d]
        x = memo[row, stage, at + d] / memo[row, stage, start + tree.dof_depth[d]]
        other = tree.dof_parent[d]
        while other >= 0:
            x -= memo[row, stage, start + tree.dof_depth[other]] * memo[row, stage, at + other]
            other = tree.dof_parent[other]
        memo[row, stage, at + d] = x


@wp.func
def factorise(tree: Tree, memo: wp.array3d(dtype=wp.float64), row: int, stage: int, factor: int):
    """Replace the packed mass matrix by its factors, M = L^T D L, D on the diagonal."""
    count = tree.base + tree.links - 1
    for r in range(count):
        d = count - 1 - r
        start = factor + tree.row_start[d]
        pivot = memo[row, stage, start + tree.dof_depth[d]]
        i = tree.dof_parent[d]
        while i >= 0:
            here, target = start + tree.dof_depth[i], factor + tree.row_start[i]
            share = memo[row, stage, here] / pivot
            j = i
            while j >= 0:
                k = tree.dof_depth[j]
                memo[row, stage, target + k] = memo[row, stage, target + k] - share * memo[row, stage, start + k]
                j = tree.dof_parent[j]
            memo[row, stage, here] = share
            i = tree.dof_parent[i]


@wp.func
def base_axis(root: Link, d: int) -> wp.spatial_vectord:
    """Return the motion of the free base's dof d: along a world axis, then about a body axis."""
    motion = wp.spatial_vectord()
    if d < 3:
        motion[3 + d] = wp.float64(1.0)
    else:
        for k in range(3):
            motion[k] = root.rotation[k, d - 3]
    return motion


@wp.func
def accelerate(
    tree: Tree,
    memo: wp.array3d(dtype=wp.float64),
    controls: wp.array2d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    row: int,
    given: int,
    step: int,
    stage: int,
    links: wp.array2d(dtype=Link),
):
    """Put accelerations of the stage's state, and the factor of its mass matrix, into memo."""
    place_links(tree, memo, parameters, row, given, stage, links)
    joints = tree.links - 1
    dofs = tree.base + joints
    at = tree.configuration + dofs
    factor = at + dofs
    for i in range(tree.links):
        link = links[row, i]
        link.total_mass = link.mass
        link.moment = link.mass * link.com
        link.about_origin = about(link.mass, link.com, link.inertia)
        link.force = link_force(link, link.acceleration)
        links[row, i] = link
    for r in range(joints):
        i = joints - r
        link = links[row, i]
        d = tree.base + i - 1
        q, rate = memo[row, stage, tree.configuration - joints + i - 1], memo[row, stage, tree.configuration + d]
        torque = (
            controls[step, i - 1] + controls[step, joints + i - 1] + passive_torque(tree, parameters, given, q, rate, i)
        )
        memo[row, stage, at + d] = torque - wp.dot(link.axis, link.force)
        inertial = total_momentum(link, link.axis)
        start = factor + tree.row_start[d]
        j = i
        while j > 0:
            other = tree.base + j - 1
            memo[row, stage, start + tree.dof_depth[other]] = wp.dot(links[row, j].axis, inertial)
            j = tree.parent[j]
        memo[row, stage, start + tree.dof_depth[d]] = memo[row, stage, start + tree.dof_depth[d]] + tree.armature[i]
        for k in range(tree.base):
            memo[row, stage, start + k] = wp.dot(base_axis(links[row, 0], k), inertial)
        up = links[row, tree.parent[i]]
        up.total_mass += link.total_mass
        up.moment += link.moment
        up.about_origin += link.about_origin
        up.force += link.force
        links[row, tree.parent[i]] = up
    root = links[row, 0]
    for d in range(tree.base):
        motion = base_axis(root, d)
        inertial = total_momentum(root, motion)
        for k in range(d + 1):
            memo[row, stage, factor + tree.row_start[d] + k] = wp.dot(base_axis(root, k), inertial)
        memo[row, stage, at + d] = controls[step, 2 * joints + d] - wp.dot(motion, root.force)
    factorise(tree, memo, row, stage, factor)
    solve(tree, memo, row, stage, factor, at)
    if tree.base > 0:  # from the spatial acceleration to the rate of the velocity
        turning = wp.cross(wp.spatial_top(root.velocity), wp.spatial_bottom(root.velocity))
        for k in range(3):
            memo[row, stage, at + k] = memo[row, stage, at + k] + turning[k]


@wp.func
def stage_from(tree: Tree, memo: wp.array3d(dtype=wp.float64), row: int, rates: int, h: wp.float64, stage: int):
    """Return the state of a stage: the first one's plus h times the rates at stage `rates`."""
    joints = tree.links - 1
    dofs = tree.base + joints
    nq = tree.configuration
    for k in range(dofs):
        memo[row, stage, nq + k] = memo[row, 0, nq + k] + h * memo[row, rates, nq + dofs + k]
    for j in range(joints):
        at = nq - joints + j
        memo[row, stage, at] = memo[row, 0, at] + h * memo[row, rates, nq + tree.base + j]
    if tree.base > 0:
        turning = quat_derivative(read_quat(memo, row, rates), read_vec3(memo, row, rates, nq + 3))
        for k in range(3):
            memo[row, stage, k] = memo[row, 0, k] + h * memo[row, rates, nq + k]
        for k in range(4):
            memo[row, stage, 3 + k] = memo[row, 0, 3 + k] + h * turning[k]


@wp.func
def load_state(tree: Tree, states: wp.array2d(dtype=wp.float64), row: int, memo: wp.array3d(dtype=wp.float64)):
    """Load the state into the first stage."""
    for k in range(states.shape[1]):
        memo[row, 0, k] = states[row, k]


@wp.func
def turned_quat(tree: Tree, memo: wp.array3d(dtype=wp.float64), row: int, h: wp.float64, stages: int) -> wp.vec4d:
    """Return the base's quaternion after a step, not yet normalised: of RK4 (4 stages), or with the next rate (1
    stage).
    """
    q = read_quat(memo, row, 0)
    nq = tree.configuration
    if stages == 1:
        dofs = tree.base + tree.links - 1
        omega = read_vec3(memo, row, 0, nq + 3) + h * read_vec3(memo, row, 0, nq + dofs + 3)
        return q + h * quat_derivative(q, omega)
    rate = quat_derivative(q, read_vec3(memo, row, 0, nq + 3))
    rate += TWO * quat_derivative(read_quat(memo, row, 1), read_vec3(memo, row, 1, nq + 3))
    rate += TWO * quat_derivative(read_quat(memo, row, 2), read_vec3(memo, row, 2, nq + 3))
    rate += quat_derivative(read_quat(memo, row, 3), read_vec3(memo, row, 3, nq + 3))
    return q + (h / wp.float64(6.0)) * rate


@wp.func
def write_quat(out: wp.array2d(dtype=wp.float64), row: int, q: wp.vec4d):
    """Store a quaternion, normalised."""
    unit = wp.normalize(q)
    for k in range(4):
        out[row, 3 + k] = unit[k]


@wp.kernel
def step_rk4(
    states: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    tree: Tree,
    links: wp.array2d(dtype=Link),
    memo: wp.array3d(dtype=wp.float64),
    next_states: wp.array2d(dtype=wp.float64),
):
    """Take the classical Runge-Kutta step of fourth order over `fraction` of an interval, controls held."""
    row = wp.tid()
    given = wp.min(row, parameters.shape[0] - 1)
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    load_state(tree, states, row, memo)
    for stage in range(4):
        if stage > 0:
            length = h / TWO
            if stage == 3:
                length = h
            stage_from(tree, memo, row, stage - 1, length, stage)
        accelerate(tree, memo, controls[row], parameters, row, given, step, stage, links)
    joints = tree.links - 1
    dofs = tree.base + joints
    nq = tree.configuration
    sixth = h / wp.float64(6.0)
    for k in range(dofs):
        at = nq + dofs + k
        rate = memo[row, 0, at] + TWO * memo[row, 1, at] + TWO * memo[row, 2, at] + memo[row, 3, at]
        next_states[row, nq + k] = memo[row, 0, nq + k] + sixth * rate
    for j in range(joints):
        at = nq + tree.base + j
        rate = memo[row, 0, at] + TWO * memo[row, 1, at] + TWO * memo[row, 2, at] + memo[row, 3, at]
        next_states[row, nq - joints + j] = memo[row, 0, nq - joints + j] + sixth * rate
    if tree.base > 0:
        for k in range(3):
            at = nq + k
            rate = memo[row, 0, at] + TWO * memo[row, 1, at] + TWO * memo[row, 2, at] + memo[row, 3, at]
            next_states[row, k] = memo[row, 0, k] + sixth * rate
        write_quat(next_states, row, turned_quat(tree, memo, row, h, 4))


@wp.kernel
def step_semi_implicit_euler(
    states: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    tree: Tree,
    links: wp.array2d(dtype=Link),
    memo: wp.array3d(dtype=wp.float64),
    next_states: wp.array2d(dtype=wp.float64),
):
    """Step velocities first, then positions with the new velocities; first order."""
    row = wp.tid()
    given = wp.min(row, parameters.shape[0] - 1)
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    load_state(tree, states, row, memo)
    accelerate(tree, memo, controls[row], parameters, row, given, step, 0, links)
    joints = tree.links - 1
    dofs = tree.base + joints
    nq = tree.configuration
    for k in range(dofs):
        next_states[row, nq + k] = memo[row, 0, nq + k] + h * memo[row, 0, nq + dofs + k]
    for j in range(joints):
        at = nq - joints + j
        next_states[row, at] = memo[row, 0, at] + h * (
            memo[row, 0, nq + tree.base + j] + h * memo[row, 0, nq + dofs + tree.base + j]
        )
    if tree.base > 0:
        for k in range(3):
            next_states[row, k] = memo[row, 0, k] + h * (memo[row, 0, nq + k] + h * memo[row, 0, nq + dofs + k])
        write_quat(next_states, row, turned_quat(tree, memo, row, h, 1))

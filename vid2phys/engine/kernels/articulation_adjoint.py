"""The adjoint of the steps in `articulation.py`, where it is derived. Rows of `work` [B, 3, N]: adjoints of the state
after the step (its quaternion before it is normalised), of a stage's rates of change, and of a stage's state."""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.articulation import (
    FRICTION_RATE,
    TWO,
    ZERO,
    Cotangent,
    Link,
    Tree,
    force_cross,
    limit_stiffness,
    link_force,
    momentum,
    motion_cross,
    place_links,
    put_part,
    read_quat,
    read_vec3,
    solve,
    spatial,
    turned_quat,
)
from vid2phys.engine.kernels.rotations import quat_derivative, quat_vector
from vid2phys.engine.kernels.runtime import wp

wp.set_module_options({"enable_backward": False})

AFTER, RATES, STATE = wp.constant(0), wp.constant(1), wp.constant(2)


@wp.func
def turning_adjoint(q: wp.vec4d, adjoint: wp.vec4d) -> wp.vec3d:
    """Return the adjoint of omega in q * (0, omega) / 2."""
    u, v = quat_vector(q), quat_vector(adjoint)
    return wp.float64(0.5) * (q[0] * v - adjoint[0] * u - wp.cross(u, v))


@wp.func
def cotangent(link: Link, trial: wp.spatial_vectord) -> Cotangent:
    """Return the derivatives of W . F of one link, by its motions and by a rigid displacement of it."""
    c = Cotangent()
    by_acceleration = momentum(link, link.acceleration)
    by_velocity = momentum(link, link.velocity)
    by_trial = momentum(link, trial)
    crossed = motion_cross(link.velocity, trial)
    by_crossed = momentum(link, crossed)
    c.trial = trial
    c.of_trial = by_acceleration + force_cross(link.velocity, by_velocity)
    c.of_acceleration = by_trial
    c.of_velocity = -by_crossed - force_cross(trial, by_velocity)
    place = force_cross(crossed, by_velocity) + force_cross(link.velocity, by_crossed)
    c.of_place = place - force_cross(trial, by_acceleration) - force_cross(link.acceleration, by_trial)
    return c


@wp.func
def add_mass_adjoint(
    tree: Tree, link: Link, trial: wp.spatial_vectord, given: int, b: int, adj_parameters: wp.array2d(dtype=wp.float64)
):
    """Add the adjoint of a part's mass: its force is proportional to its mass, since the inertia scales along."""
    part = put_part(link, wp.float64(1.0), tree.com[b], tree.inertia[b])
    wp.atomic_add(adj_parameters, given, tree.mass_column[b], -wp.dot(trial, link_force(part, part.acceleration)))


@wp.func
def base_outwards(tree: Tree, memo: wp.array3d(dtype=wp.float64), row: int, stage: int, mu: int, root: Link) -> Link:
    """Return base with its whole acceleration; its virtual velocity goes into `axis`, which a base has no use for."""
    if tree.base > 0:
        at = tree.configuration + tree.base + tree.links - 1
        turning = wp.cross(wp.spatial_top(root.velocity), wp.spatial_bottom(root.velocity))
        linear = read_vec3(memo, row, stage, at) - turning
        root.acceleration += spatial(root.rotation * read_vec3(memo, row, stage, at + 3), linear)
        angular = root.rotation * read_vec3(memo, row, stage, mu + 3)
        root.axis = spatial(angular, read_vec3(memo, row, stage, mu))
    return root


@wp.func
def joint_inwards(
    tree: Tree,
    memo: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    row: int,
    given: int,
    step: int,
    stage: int,
    i: int,
    links: wp.array2d(dtype=Link),
    cotangents: wp.array2d(dtype=Cotangent),
    work: wp.array3d(dtype=wp.float64),
    adj_controls: wp.array3d(dtype=wp.float64),
    adj_parameters: wp.array2d(dtype=wp.float64),
):
    """Add the adjoints of what joint i - 1 has, and of its parent link's motions."""
    joints = tree.links - 1
    dofs = tree.base + joints
    d, at = tree.base + i - 1, tree.configuration - joints + i - 1
    here = tree.configuration + d
    q, rate = memo[row, stage, at], memo[row, stage, here]
    acceleration = memo[row, stage, here + dofs]
    mu = memo[row, stage, tree.configuration + 2 * dofs + tree.row_start[dofs] + d]
    axis, motion = links[row, i].axis, links[row, tree.parent[i]].velocity
    c = cotangents[row, i]
    by_axis = mu * c.of_trial + rate * c.of_velocity + acceleration * c.of_acceleration
    by_axis -= rate * force_cross(motion, c.of_acceleration)
    c.of_place += force_cross(axis, by_axis)
    up = cotangents[row, tree.parent[i]]
    up.of_trial += c.of_trial
    up.of_acceleration += c.of_acceleration
    up.of_velocity += c.of_velocity + rate * force_cross(axis, c.of_acceleration)
    up.of_place += c.of_place
    cotangents[row, tree.parent[i]] = up
    column = 1 + tree.group[i]
    stiffness, damping = parameters[given, column], parameters[given, column + tree.groups]
    slipping = wp.tanh(rate / FRICTION_RATE)
    dry = parameters[given, column + 2 * tree.groups] * (wp.float64(1.0) - slipping * slipping) / FRICTION_RATE
    by_rate = wp.dot(axis, c.of_velocity) + wp.dot(motion_cross(motion, axis), c.of_acceleration)
    work[row, STATE, at] = (
        work[row, STATE, at] - wp.dot(axis, c.of_place) - mu * (stiffness + limit_stiffness(tree, q, i))
    )
    work[row, STATE, here] = work[row, STATE, here] - by_rate - mu * (damping + dry)
    adj_controls[row, step, i - 1] = adj_controls[row, step, i - 1] + mu
    adj_controls[row, step, joints + i - 1] = adj_controls[row, step, joints + i - 1] + mu
    wp.atomic_add(adj_parameters, given, column, -mu * (q - tree.spring_reference[i]))
    wp.atomic_add(adj_parameters, given, column + tree.groups, -mu * rate)
    wp.atomic_add(adj_parameters, given, column + 2 * tree.groups, -mu * slipping)


@wp.func
def base_inwards(
    tree: Tree,
    memo: wp.array3d(dtype=wp.float64),
    row: int,
    step: int,
    stage: int,
    root: Link,
    c: Cotangent,
    work: wp.array3d(dtype=wp.float64),
    adj_controls: wp.array3d(dtype=wp.float64),
):
    """Add the adjoints of a free base's orientation, velocities and disturbances."""
    nq = tree.configuration
    dofs = tree.base + tree.links - 1
    mu = nq + 2 * dofs + tree.row_start[dofs]
    omega, velocity = wp.spatial_top(root.velocity), wp.spatial_bottom(root.velocity)
    weight = read_vec3(work, row, RATES, nq)
    spin = root.rotation * read_vec3(memo, row, stage, nq + dofs + 3)
    # velocity' = spatial acceleration + omega x velocity
    by_omega = wp.cross(velocity, weight) - wp.spatial_top(c.of_velocity)
    by_velocity = wp.cross(weight, omega) - wp.spatial_bottom(c.of_velocity)
    by_rotation = wp.cross(omega, by_omega) - wp.spatial_top(c.of_place)
    by_rotation -= wp.cross(spin, wp.spatial_top(c.of_acceleration))
    by_rotation -= wp.cross(wp.spatial_top(root.axis), wp.spatial_top(c.of_trial))
    in_body = wp.transpose(root.rotation) * by_omega
    q = read_quat(memo, row, stage)
    scale = TWO / wp.dot(q, q)
    vector = q[0] * by_rotation + wp.cross(by_rotation, quat_vector(q))
    work[row, STATE, 3] = work[row, STATE, 3] - scale * wp.dot(by_rotation, quat_vector(q))
    for k in range(3):
        work[row, STATE, 4 + k] = work[row, STATE, 4 + k] + scale * vector[k]
        work[row, STATE, nq + k] = work[row, STATE, nq + k] + by_velocity[k]
        work[row, STATE, nq + 3 + k] = work[row, STATE, nq + 3 + k] + in_body[k]
    first = 2 * (tree.links - 1)
    for k in range(6):
        adj_controls[row, step, first + k] = adj_controls[row, step, first + k] + memo[row, stage, mu + k]


@wp.func
def stage_adjoint(
    tree: Tree,
    memo: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    row: int,
    given: int,
    step: int,
    stage: int,
    links: wp.array2d(dtype=Link),
    cotangents: wp.array2d(dtype=Cotangent),
    work: wp.array3d(dtype=wp.float64),
    adj_controls: wp.array3d(dtype=wp.float64),
    adj_parameters: wp.array2d(dtype=wp.float64),
):
    """Go from the adjoint of a stage's rates of change to that of its state, the controls and the parameters."""
    joints = tree.links - 1
    dofs = tree.base + joints
    nq = tree.configuration
    factor = nq + 2 * dofs
    mu = factor + tree.row_start[dofs]
    for k in range(nq):
        work[row, STATE, k] = ZERO
    for d in range(dofs):
        work[row, STATE, nq + d] = ZERO
        memo[row, stage, mu + d] = work[row, RATES, nq + d]
    for j in range(joints):
        work[row, STATE, nq + tree.base + j] = work[row, RATES, nq - joints + j]
    if tree.base > 0:
        q, rate = read_quat(memo, row, stage), read_quat(work, row, RATES)
        by_quat = quat_derivative(rate, -read_vec3(memo, row, stage, nq + 3))
        by_omega = turning_adjoint(q, rate)
        for k in range(4):
            work[row, STATE, 3 + k] = by_quat[k]
        for k in range(3):
            work[row, STATE, nq + k] = work[row, RATES, k]
            work[row, STATE, nq + 3 + k] = by_omega[k]
    solve(tree, memo, row, stage, factor, mu)
    place_links(tree, memo, parameters, row, given, stage, links)
    root = base_outwards(tree, memo, row, stage, mu, links[row, 0])
    links[row, 0] = root
    cotangents[row, 0] = cotangent(root, root.axis)
    for i in range(1, tree.links):
        link, up = links[row, i], links[row, tree.parent[i]]
        d = tree.base + i - 1
        turning = memo[row, stage, nq + d] * motion_cross(up.velocity, link.axis)
        link.acceleration = up.acceleration + memo[row, stage, nq + dofs + d] * link.axis + turning
        links[row, i] = link
        c = cotangent(link, cotangents[row, tree.parent[i]].trial + memo[row, stage, mu + d] * link.axis)
        cotangents[row, i] = c
    for b in range(tree.parts):
        i = tree.part_link[b]
        add_mass_adjoint(tree, links[row, i], cotangents[row, i].trial, given, b, adj_parameters)
    for r in range(joints):
        joint_inwards(
            tree,
            memo,
            parameters,
            row,
            given,
            step,
            stage,
            joints - r,
            links,
            cotangents,
            work,
            adj_controls,
            adj_parameters,
        )
    c = cotangents[row, 0]
    wp.atomic_add(adj_parameters, given, 0, -c.of_acceleration[5])
    if tree.base > 0:
        base_inwards(tree, memo, row, step, stage, root, c, work, adj_controls)


@wp.func
def load_adjoint(
    tree: Tree,
    memo: wp.array3d(dtype=wp.float64),
    row: int,
    h: wp.float64,
    stages: int,
    adj_next: wp.array2d(dtype=wp.float64),
    work: wp.array3d(dtype=wp.float64),
):
    """Load the adjoint of the state after the step, its quaternion not yet normalised."""
    for k in range(adj_next.shape[1]):
        work[row, AFTER, k] = adj_next[row, k]
    if tree.base > 0:
        q = turned_quat(tree, memo, row, h, stages)
        size = wp.length(q)
        unit = q / size
        given = wp.vec4d(adj_next[row, 3], adj_next[row, 4], adj_next[row, 5], adj_next[row, 6])
        along = (given - wp.dot(unit, given) * unit) / size
        for k in range(4):
            work[row, AFTER, 3 + k] = along[k]


@wp.kernel
def adjoint_rk4(
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    tree: Tree,
    links: wp.array2d(dtype=Link),
    cotangents: wp.array2d(dtype=Cotangent),
    memo: wp.array3d(dtype=wp.float64),
    work: wp.array3d(dtype=wp.float64),
    adj_next: wp.array2d(dtype=wp.float64),
    adj_states: wp.array2d(dtype=wp.float64),
    adj_controls: wp.array3d(dtype=wp.float64),
    adj_parameters: wp.array2d(dtype=wp.float64),
):
    """Add to the adjoints of states, controls and parameters of `step_rk4`."""
    row = wp.tid()
    given = wp.min(row, parameters.shape[0] - 1)
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    load_adjoint(tree, memo, row, h, 4, adj_next, work)
    for k in range(adj_next.shape[1]):
        adj_states[row, k] = adj_states[row, k] + work[row, AFTER, k]
        work[row, STATE, k] = ZERO
    for r in range(4):
        stage = 3 - r
        weight, carried = h / wp.float64(3.0), h / TWO
        if stage == 0 or stage == 3:
            weight = h / wp.float64(6.0)
        if stage == 2:
            carried = h
        for k in range(adj_next.shape[1]):
            work[row, RATES, k] = weight * work[row, AFTER, k] + carried * work[row, STATE, k]
        stage_adjoint(
            tree, memo, parameters, row, given, step, stage, links, cotangents, work, adj_controls, adj_parameters
        )
        for k in range(adj_next.shape[1]):
            adj_states[row, k] = adj_states[row, k] + work[row, STATE, k]


@wp.kernel
def adjoint_semi_implicit_euler(
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    tree: Tree,
    links: wp.array2d(dtype=Link),
    cotangents: wp.array2d(dtype=Cotangent),
    memo: wp.array3d(dtype=wp.float64),
    work: wp.array3d(dtype=wp.float64),
    adj_next: wp.array2d(dtype=wp.float64),
    adj_states: wp.array2d(dtype=wp.float64),
    adj_controls: wp.array3d(dtype=wp.float64),
    adj_parameters: wp.array2d(dtype=wp.float64),
):
    """Add to the adjoints of states, controls and parameters of `step_semi_implicit_euler`."""
    row = wp.tid()
    given = wp.min(row, parameters.shape[0] - 1)
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    joints = tree.links - 1
    dofs = tree.base + joints
    nq = tree.configuration
    load_adjoint(tree, memo, row, h, 1, adj_next, work)
    for j in range(joints):
        at = nq + tree.base + j
        work[row, AFTER, at] = work[row, AFTER, at] + h * work[row, AFTER, nq - joints + j]
    if tree.base > 0:
        q, after = read_quat(memo, row, 0), read_quat(work, row, AFTER)
        omega = read_vec3(memo, row, 0, nq + 3) + h * read_vec3(memo, row, 0, nq + dofs + 3)
        by_omega = h * turning_adjoint(q, after)
        by_quat = after + h * quat_derivative(after, -omega)
        for k in range(4):
            work[row, AFTER, 3 + k] = by_quat[k]
        for k in range(3):
            work[row, AFTER, nq + k] = work[row, AFTER, nq + k] + h * work[row, AFTER, k]
            work[row, AFTER, nq + 3 + k] = work[row, AFTER, nq + 3 + k] + by_omega[k]
    for k in range(nq):
        work[row, RATES, k] = ZERO
    for d in range(dofs):
        work[row, RATES, nq + d] = h * work[row, AFTER, nq + d]
    stage_adjoint(tree, memo, parameters, row, given, step, 0, links, cotangents, work, adj_controls, adj_parameters)
    for k in range(adj_next.shape[1]):
        adj_states[row, k] = adj_states[row, k] + work[row, AFTER, k] + work[row, STATE, k]

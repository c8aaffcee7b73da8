"""One integration step of points joined by springs, one thread a point and row. Layouts: `systems/mass_spring.py`.

Each launch writes an array never written before: Warp's adjoint is silently wrong on overwritten ones. A stage of RK4
is given the slopes of the one before it and moves the states along them as it reads, so that it takes one launch. A
point sums over its own springs, so that sums have one order on every machine.
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.runtime import wp


@wp.struct
class Net:
    """The springs of point v are springs[starts[v] : starts[v + 1]], their other ends neighbours[the same].

    lengths [S]: what the parameter of the rest length multiplies. By point: 1 where it is free (0 where pinned), its
    place among the masses and among the forces (meaningless where pinned).
    """

    starts: wp.array(dtype=wp.int32)
    springs: wp.array(dtype=wp.int32)
    neighbours: wp.array(dtype=wp.int32)
    lengths: wp.array(dtype=wp.float64)
    free: wp.array(dtype=wp.float64)
    masses: wp.array(dtype=wp.int32)
    forces: wp.array(dtype=wp.int32)
    stride: wp.int32  # of a spring among the parameters: 1 where each has its own, 0 where they are common
    rest: wp.int32  # where the parameters begin, after the stiffness
    damping: wp.int32
    mass: wp.int32
    drag: wp.int32


@wp.func
def read_moved(
    states: wp.array2d(dtype=wp.float64), slopes: wp.array2d(dtype=wp.float64), h: wp.float64, row: int, k: int
) -> wp.vec3d:
    """Read three adjacent entries in a row of states + h slopes."""
    return wp.vec3d(
        states[row, k] + h * slopes[row, k],
        states[row, k + 1] + h * slopes[row, k + 1],
        states[row, k + 2] + h * slopes[row, k + 2],
    )


@wp.func
def velocity(
    states: wp.array2d(dtype=wp.float64),
    slopes: wp.array2d(dtype=wp.float64),
    h: wp.float64,
    row: int,
    point: int,
    net: Net,
) -> wp.vec3d:
    """Return the velocity of a point, none where it is pinned."""
    return net.free[point] * read_moved(states, slopes, h, row, 3 * (net.free.shape[0] + point))


@wp.func
def acceleration(
    states: wp.array2d(dtype=wp.float64),
    slopes: wp.array2d(dtype=wp.float64),
    h: wp.float64,
    controls: wp.array2d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    row: int,
    step: int,
    point: int,
    net: Net,
) -> wp.vec3d:
    """Return the acceleration [m/s^2] of a point at states + h slopes, none where it is pinned."""
    i = wp.min(row, parameters.shape[0] - 1)
    x = read_moved(states, slopes, h, row, 3 * point)
    v = velocity(states, slopes, h, row, point, net)
    force = wp.vec3d(
        controls[step, net.forces[point]], controls[step, net.forces[point] + 1], controls[step, net.forces[point] + 2]
    )
    inverse_mass = wp.float64(1.0) / parameters[i, net.mass + net.masses[point]]
    gravity = wp.vec3d(wp.float64(0.0), wp.float64(0.0), parameters[i, net.drag + 1])
    # the loop only adds up: what follows it must not need the sum's value for its adjoint
    total = inverse_mass * (force - parameters[i, net.drag] * v) - gravity
    for k in range(net.starts[point], net.starts[point + 1]):
        s, other = net.springs[k], net.neighbours[k]
        along = read_moved(states, slopes, h, row, 3 * other) - x
        length = wp.length(along)
        direction = along / length
        rate = wp.dot(direction, velocity(states, slopes, h, row, other, net) - v)
        stretch = length - parameters[i, net.rest + net.stride * s] * net.lengths[s]
        tension = parameters[i, net.stride * s] * stretch + parameters[i, net.damping + net.stride * s] * rate
        total += (inverse_mass * tension) * direction
    return net.free[point] * total


@wp.kernel
def slopes_rk4(
    states: wp.array2d(dtype=wp.float64),
    slopes: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    net: Net,
    out: wp.array2d(dtype=wp.float64),
) -> None:
    """Time derivatives of the states after `fraction` of an interval along `slopes`."""
    row, point = wp.tid()
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    v = velocity(states, slopes, h, row, point, net)
    a = acceleration(states, slopes, h, controls[row], parameters, row, step, point, net)
    for axis in range(3):
        out[row, 3 * point + axis] = v[axis]
        out[row, 3 * (net.free.shape[0] + point) + axis] = a[axis]


@wp.kernel
def combine_rk4(
    states: wp.array2d(dtype=wp.float64),
    k1: wp.array2d(dtype=wp.float64),
    k2: wp.array2d(dtype=wp.float64),
    k3: wp.array2d(dtype=wp.float64),
    k4: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    net: Net,
    next_states: wp.array2d(dtype=wp.float64),
) -> None:
    """Take the classical Runge-Kutta step of fourth order from its four slopes."""
    row, point = wp.tid()
    sixth, two = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step] / wp.float64(6.0), wp.float64(2.0)
    for axis in range(3):
        x, v = 3 * point + axis, 3 * (net.free.shape[0] + point) + axis
        next_states[row, x] = states[row, x] + sixth * (k1[row, x] + two * k2[row, x] + two * k3[row, x] + k4[row, x])
        change = sixth * (k1[row, v] + two * k2[row, v] + two * k3[row, v] + k4[row, v])
        next_states[row, v] = net.free[point] * (states[row, v] + change)


@wp.kernel
def step_semi_implicit_euler(
    states: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    net: Net,
    next_states: wp.array2d(dtype=wp.float64),
) -> None:
    """Step velocities first, then positions with the new velocities; first order."""
    row, point = wp.tid()
    h, zero = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step], wp.float64(0.0)
    a = acceleration(states, states, zero, controls[row], parameters, row, step, point, net)
    v = velocity(states, states, zero, row, point, net) + h * a
    for axis in range(3):
        next_states[row, 3 * point + axis] = states[row, 3 * point + axis] + h * v[axis]
        next_states[row, 3 * (net.free.shape[0] + point) + axis] = v[axis]

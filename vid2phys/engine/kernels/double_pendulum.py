"""One integration step of a double pendulum, one thread a row of the batch. Layouts: `systems/double_pendulum.py`.

As in `multirotor.py`, each launch writes an array never written before, and the stages are written out.
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.runtime import wp


@wp.struct
class DoublePendulum:
    """Constants of one row over one interval; entry i belongs to link (or joint) i + 1."""

    lengths: wp.vec2d
    masses: wp.vec2d
    damping: wp.vec2d
    gravity: wp.float64
    torque: wp.vec2d


@wp.func
def read_pair(a: wp.array2d(dtype=wp.float64), row: int, start: int) -> wp.vec2d:
    """Read two adjacent entries in a row."""
    return wp.vec2d(a[row, start], a[row, start + 1])


@wp.func
def read_pendulum(
    parameters: wp.array2d(dtype=wp.float64), controls: wp.array2d(dtype=wp.float64), row: int, step: int
) -> DoublePendulum:
    """Read the parameters (their only row, or one a row of the batch) and the controls of one interval."""
    i = wp.min(row, parameters.shape[0] - 1)
    return DoublePendulum(
        read_pair(parameters, i, 0),
        read_pair(parameters, i, 2),
        read_pair(parameters, i, 4),
        parameters[i, 6],
        read_pair(controls, step, 0) + read_pair(controls, step, 2),
    )


@wp.func
def acceleration(x: wp.vec2d, v: wp.vec2d, p: DoublePendulum) -> wp.vec2d:
    """Return the angular accelerations [rad/s^2]: the two equations of motion, each over its link's length, by Cramer's
    rule.
    """
    m2, l1, l2 = p.masses[1], p.lengths[0], p.lengths[1]
    both = p.masses[0] + m2
    c, s = wp.cos(x[0] - x[1]), wp.sin(x[0] - x[1])
    elbow = p.torque[1] - p.damping[1] * (v[1] - v[0])
    pivot = p.torque[0] - p.damping[0] * v[0] - elbow
    f1 = pivot / l1 - m2 * l2 * s * v[1] * v[1] - both * p.gravity * wp.sin(x[0])
    f2 = elbow / l2 + m2 * l1 * s * v[0] * v[0] - m2 * p.gravity * wp.sin(x[1])
    determinant = p.masses[0] + m2 * s * s
    return wp.vec2d((f1 - c * f2) / (determinant * l1), (both / m2 * f2 - c * f1) / (determinant * l2))


@wp.func
def write_state(out: wp.array2d(dtype=wp.float64), row: int, x: wp.vec2d, v: wp.vec2d):
    """Store a state."""
    for i in range(2):
        out[row, i] = x[i]
        out[row, 2 + i] = v[i]


@wp.kernel
def step_rk4(
    states: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    next_states: wp.array2d(dtype=wp.float64),
) -> None:
    """Take the classical Runge-Kutta step of fourth order over `fraction` of an interval, controls held."""
    row = wp.tid()
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    half, sixth, two = h / wp.float64(2.0), h / wp.float64(6.0), wp.float64(2.0)
    p = read_pendulum(parameters, controls[row], row, step)
    x1, v1 = read_pair(states, row, 0), read_pair(states, row, 2)
    a1 = acceleration(x1, v1, p)
    x2, v2 = x1 + half * v1, v1 + half * a1
    a2 = acceleration(x2, v2, p)
    x3, v3 = x1 + half * v2, v1 + half * a2
    a3 = acceleration(x3, v3, p)
    x4, v4 = x1 + h * v3, v1 + h * a3
    a4 = acceleration(x4, v4, p)
    x_next = x1 + sixth * (v1 + two * v2 + two * v3 + v4)
    v_next = v1 + sixth * (a1 + two * a2 + two * a3 + a4)
    write_state(next_states, row, x_next, v_next)


@wp.kernel
def step_semi_implicit_euler(
    states: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    next_states: wp.array2d(dtype=wp.float64),
) -> None:
    """Step rates first, then angles with the new rates; first order."""
    row = wp.tid()
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    p = read_pendulum(parameters, controls[row], row, step)
    x, v = read_pair(states, row, 0), read_pair(states, row, 2)
    v_next = v + h * acceleration(x, v, p)
    write_state(next_states, row, x + h * v_next, v_next)

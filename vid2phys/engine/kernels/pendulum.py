"""One integration step of a pendulum, one thread a row of the batch. Layouts: `systems/pendulum.py`.

As in `multirotor.py`, each launch writes an array never written before, and the stages are written out.
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.runtime import wp

FRICTION_RATE_RAD_S = wp.constant(wp.float64(0.05))


@wp.struct
class Pendulum:
    """Constants of one row over one interval."""

    pivot_inertia: wp.float64
    weight_moment: wp.float64
    damping: wp.float64
    friction: wp.float64
    air_drag: wp.float64
    torque: wp.float64


@wp.func
def read_pendulum(
    parameters: wp.array2d(dtype=wp.float64), controls: wp.array2d(dtype=wp.float64), row: int, step: int
) -> Pendulum:
    """Read the parameters (their only row, or one a row of the batch) and the controls of one interval."""
    i = wp.min(row, parameters.shape[0] - 1)
    length, mass = parameters[i, 0], parameters[i, 1]
    return Pendulum(
        mass * length * length + parameters[i, 2],
        mass * parameters[i, 6] * wp.cos(parameters[i, 7]) * length,
        parameters[i, 3],
        parameters[i, 4],
        parameters[i, 5],
        controls[step, 0] + controls[step, 1],
    )


@wp.func
def acceleration(angle: wp.float64, rate: wp.float64, p: Pendulum) -> wp.float64:
    """Return the angular acceleration [rad/s^2]."""
    friction = p.damping * rate + p.friction * wp.tanh(rate / FRICTION_RATE_RAD_S)
    return (p.torque - friction - p.air_drag * rate * wp.abs(rate) - p.weight_moment * wp.sin(angle)) / p.pivot_inertia


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
    x1, v1 = states[row, 0], states[row, 1]
    a1 = acceleration(x1, v1, p)
    x2, v2 = x1 + half * v1, v1 + half * a1
    a2 = acceleration(x2, v2, p)
    x3, v3 = x1 + half * v2, v1 + half * a2
    a3 = acceleration(x3, v3, p)
    x4, v4 = x1 + h * v3, v1 + h * a3
    a4 = acceleration(x4, v4, p)
    next_states[row, 0] = x1 + sixth * (v1 + two * v2 + two * v3 + v4)
    next_states[row, 1] = v1 + sixth * (a1 + two * a2 + two * a3 + a4)


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
    """Step the rate first, then the angle with the new rate; first order."""
    row = wp.tid()
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    p = read_pendulum(parameters, controls[row], row, step)
    rate = states[row, 1] + h * acceleration(states[row, 0], states[row, 1], p)
    next_states[row, 0] = states[row, 0] + h * rate
    next_states[row, 1] = rate

"""One integration step of a quadrotor, one thread a row of the batch. Layouts: `systems/quadrotor.py`.

Each launch reads one array of states and writes another, never written before: Warp's adjoint is silently wrong on
overwritten arrays. The stages are written out, because loops that change local state do not differentiate.
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.rigid_body import angular_acceleration, linear_acceleration
from vid2phys.engine.kernels.rotations import quat_derivative, quat_rotate
from vid2phys.engine.kernels.runtime import wp


@wp.struct
class Body:
    """Constants of one row over one interval: inertial properties, and what acts whatever the state."""

    mass: wp.float64
    inertia: wp.vec3d
    drag: wp.float64
    gravity: wp.float64
    thrust: wp.float64
    torque: wp.vec3d
    force_world: wp.vec3d


@wp.func
def read_vec3(a: wp.array2d(dtype=wp.float64), row: int, start: int) -> wp.vec3d:
    """Read three adjacent entries in a row."""
    return wp.vec3d(a[row, start], a[row, start + 1], a[row, start + 2])


@wp.func
def read_vec4(a: wp.array2d(dtype=wp.float64), row: int, start: int) -> wp.vec4d:
    """Read four adjacent entries in a row."""
    return wp.vec4d(a[row, start], a[row, start + 1], a[row, start + 2], a[row, start + 3])


@wp.func
def actuator_torque(
    u: wp.vec4d, scale: wp.float64, arm: wp.float64, torque_ratio: wp.float64, rotors: wp.float64
) -> wp.vec3d:
    """Return the torque about the centre of mass, body axes [N m]; `rotors` is 1 when u holds rotor thrusts, 0 for a
    wrench.
    """
    lever = scale * arm * wp.sqrt(wp.float64(0.5))
    x = lever * (-u[0] - u[1] + u[2] + u[3])
    y = lever * (-u[0] + u[1] + u[2] - u[3])
    z = scale * torque_ratio * (-u[0] + u[1] - u[2] + u[3])
    return rotors * wp.vec3d(x, y, z) + (wp.float64(1.0) - rotors) * wp.vec3d(u[1], u[2], u[3])


@wp.func
def read_body(
    parameters: wp.array2d(dtype=wp.float64),
    controls: wp.array2d(dtype=wp.float64),
    row: int,
    step: int,
    rotors: wp.float64,
) -> Body:
    """Read the parameters (their only row, or one a row of the batch) and the controls of one interval."""
    i = wp.min(row, parameters.shape[0] - 1)
    u = read_vec4(controls, step, 0)
    scale = parameters[i, 4]
    torque = actuator_torque(u, scale, parameters[i, 6], parameters[i, 7], rotors)
    return Body(
        parameters[i, 0],
        read_vec3(parameters, i, 1),
        parameters[i, 5],
        parameters[i, 8],
        scale * (u[0] + rotors * (u[1] + u[2] + u[3])),
        torque + read_vec3(controls, step, 7),
        read_vec3(controls, step, 4),
    )


@wp.func
def acceleration(q: wp.vec4d, v: wp.vec3d, body: Body) -> wp.vec3d:
    """Return dv/dt in the world [m/s^2]."""
    force = quat_rotate(q, wp.vec3d(wp.float64(0.0), wp.float64(0.0), body.thrust)) + body.force_world
    return linear_acceleration(force, v, body.mass, body.drag, body.gravity)


@wp.func
def spin(w: wp.vec3d, body: Body) -> wp.vec3d:
    """Return d omega/dt in the body [rad/s^2]."""
    return angular_acceleration(body.torque, w, body.inertia)


@wp.func
def write_state(out: wp.array2d(dtype=wp.float64), row: int, p: wp.vec3d, quat: wp.vec4d, v: wp.vec3d, w: wp.vec3d):
    """Store a state, its quaternion normalised."""
    q = wp.normalize(quat)
    for i in range(3):
        out[row, i] = p[i]
        out[row, 7 + i] = v[i]
        out[row, 10 + i] = w[i]
    for i in range(4):
        out[row, 3 + i] = q[i]


@wp.kernel
def step_rk4(
    states: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    rotors: wp.float64,
    next_states: wp.array2d(dtype=wp.float64),
) -> None:
    """Take the classical Runge-Kutta step of fourth order over `fraction` of an interval, controls held."""
    row = wp.tid()
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    half, sixth, two = h / wp.float64(2.0), h / wp.float64(6.0), wp.float64(2.0)
    body = read_body(parameters, controls[row], row, step, rotors)
    p1, q1 = read_vec3(states, row, 0), read_vec4(states, row, 3)
    v1, w1 = read_vec3(states, row, 7), read_vec3(states, row, 10)
    dq1, dv1, dw1 = quat_derivative(q1, w1), acceleration(q1, v1, body), spin(w1, body)
    q2, v2, w2 = q1 + half * dq1, v1 + half * dv1, w1 + half * dw1
    dq2, dv2, dw2 = quat_derivative(q2, w2), acceleration(q2, v2, body), spin(w2, body)
    q3, v3, w3 = q1 + half * dq2, v1 + half * dv2, w1 + half * dw2
    dq3, dv3, dw3 = quat_derivative(q3, w3), acceleration(q3, v3, body), spin(w3, body)
    q4, v4, w4 = q1 + h * dq3, v1 + h * dv3, w1 + h * dw3
    dq4, dv4, dw4 = quat_derivative(q4, w4), acceleration(q4, v4, body), spin(w4, body)
    p_next = p1 + sixth * (v1 + two * v2 + two * v3 + v4)
    q_next = q1 + sixth * (dq1 + two * dq2 + two * dq3 + dq4)
    v_next = v1 + sixth * (dv1 + two * dv2 + two * dv3 + dv4)
    w_next = w1 + sixth * (dw1 + two * dw2 + two * dw3 + dw4)
    write_state(next_states, row, p_next, q_next, v_next, w_next)


@wp.kernel
def step_semi_implicit_euler(
    states: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    rotors: wp.float64,
    next_states: wp.array2d(dtype=wp.float64),
) -> None:
    """Step velocities first, then positions with the new velocities; first order."""
    row = wp.tid()
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    body = read_body(parameters, controls[row], row, step, rotors)
    p, q = read_vec3(states, row, 0), read_vec4(states, row, 3)
    v, w = read_vec3(states, row, 7), read_vec3(states, row, 10)
    v_next = v + h * acceleration(q, v, body)
    w_next = w + h * spin(w, body)
    write_state(next_states, row, p + h * v_next, q + h * quat_derivative(q, w_next), v_next, w_next)

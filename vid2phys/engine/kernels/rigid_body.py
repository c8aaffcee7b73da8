"""Newton-Euler equations of one rigid body about its centre of mass, for kernels, double precision.

Velocity and force are in the world, angular velocity and torque in the body; the body's axes are its principal axes.
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.runtime import wp


@wp.func
def linear_acceleration(
    force_world: wp.vec3d, velocity: wp.vec3d, mass: wp.float64, drag: wp.float64, gravity: wp.float64
) -> wp.vec3d:
    """Return the acceleration [m/s^2] under a force, linear isotropic drag [N s/m] and gravity along -z."""
    return (force_world - drag * velocity) / mass - wp.vec3d(wp.float64(0.0), wp.float64(0.0), gravity)


@wp.func
def angular_acceleration(torque_body: wp.vec3d, omega: wp.vec3d, inertia: wp.vec3d) -> wp.vec3d:
    """Return the angular acceleration [rad/s^2]: J^-1 (tau - omega x J omega)."""
    return wp.cw_div(torque_body - wp.cross(omega, wp.cw_mul(inertia, omega)), inertia)

"""Quaternion functions for kernels, double precision, the conventions of `vid2phys.geometry`.

A quaternion is a `vec4d` in the order wxyz (Warp's own `quatd` is xyzw and is not used).
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.runtime import wp


@wp.func
def quat_vector(q: wp.vec4d) -> wp.vec3d:
    """Return the vector part."""
    return wp.vec3d(q[1], q[2], q[3])


@wp.func
def quat_times_pure(q: wp.vec4d, v: wp.vec3d) -> wp.vec4d:
    """Return the Hamilton product q * (0, v)."""
    u = quat_vector(q)
    vector = q[0] * v + wp.cross(u, v)
    return wp.vec4d(-wp.dot(u, v), vector[0], vector[1], vector[2])


@wp.func
def quat_rotate(q: wp.vec4d, v: wp.vec3d) -> wp.vec3d:
    """Rotate a body vector to the world; a q that is not of unit length rotates like its normalised self."""
    u = quat_vector(q)
    twice = wp.float64(2.0) / wp.dot(q, q)
    return v + twice * (q[0] * wp.cross(u, v) + wp.cross(u, wp.cross(u, v)))


@wp.func
def quat_derivative(q: wp.vec4d, angular_velocity_body: wp.vec3d) -> wp.vec4d:
    """Time derivative q * (0, omega) / 2 of a body-to-world quaternion."""
    return wp.float64(0.5) * quat_times_pure(q, angular_velocity_body)

"""Compliant contact of a point against a surface, for kernels, double precision.

The law of gradSim's appendix (Jatavallabhula et al., ICLR 2021) and of RISP's simulator: a spring and a dashpot along
the normal, relaxed Coulomb friction across it.
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.runtime import wp


@wp.struct
class ContactLaw:
    """Stiffness k_e [N/m], damping k_d and friction k_f [N s/m], all of one contact point; friction coefficient mu."""

    k_e: wp.float64
    k_d: wp.float64
    k_f: wp.float64
    mu: wp.float64


@wp.func
def contact_force(depth: wp.float64, velocity: wp.vec3d, normal: wp.vec3d, law: ContactLaw) -> wp.vec3d:
    """Return the force [N] on a point `depth` [m] inside a surface with outward unit `normal`; zero outside.

    velocity: of the point relative to the surface [m/s]. Along the normal max(k_e d - k_d v_n, 0), which never pulls;
    across it min(k_f |v_t|, mu f_n) against v_t.
    """
    force = wp.vec3d(wp.float64(0.0), wp.float64(0.0), wp.float64(0.0))
    if depth > wp.float64(0.0):
        rate = wp.dot(velocity, normal)
        slip = velocity - rate * normal
        push = wp.max(law.k_e * depth - law.k_d * rate, wp.float64(0.0))
        largest = law.mu * push
        grip = law.k_f
        # squares: a point that does not slip has no direction, and no derivative of its speed
        if law.k_f * law.k_f * wp.length_sq(slip) > largest * largest:
            grip = largest / wp.length(slip)
        force = push * normal - grip * slip
    return force


@wp.func
def slowed_at_touch_down(depth: wp.float64, velocity: wp.vec3d, normal: wp.vec3d, step_s: wp.float64) -> wp.vec3d:
    """Return `velocity`, approaching no faster than what reaches `depth` in one step, for `contact_force`.

    A point that touched down within the last step felt the dashpot for a share of it, d / (|v_n| h). With that share
    the dashpot's force starts from zero, and derivatives of the steps know of the time of touch-down; after the first
    step nothing changes.
    """
    excess = -depth / step_s - wp.dot(velocity, normal)
    return velocity + wp.max(excess, wp.float64(0.0)) * normal


@wp.func
def ground_force(position: wp.vec3d, velocity: wp.vec3d, step_s: wp.float64, law: ContactLaw) -> wp.vec3d:
    """Return the force [N] of the ground z = 0 on a point at `position` [m] that moves at `velocity` [m/s].

    Without the share of `slowed_at_touch_down` an implicit step may have no solution: in the air the point falls, on
    the ground it is thrown back.
    """
    up = wp.vec3d(wp.float64(0.0), wp.float64(0.0), wp.float64(1.0))
    return contact_force(-position[2], slowed_at_touch_down(-position[2], velocity, up, step_s), up, law)

"""Constants of the tables of RISP (Ma et al., ICLR 2022), in SI: the quadrotor, and units of actions and lengths.

Limits: the paper does not state all units; the constants say which are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

DYN_PER_CM = 1e-3
"""A stiffness of 1 dyn/cm in N/m."""


@dataclass(frozen=True)
class QuadrotorBody:
    """A quadrotor with rotors in X layout. inertia_kg_m2: about its axes. torque_ratio_m: drag torque over thrust."""

    mass_kg: float
    inertia_kg_m2: tuple[float, float, float]
    arm_m: float
    torque_ratio_m: float
    gravity_m_s2: float


RISP_QUADROTOR = QuadrotorBody(
    mass_kg=3.0,
    inertia_kg_m2=(0.02, 0.02, 0.036),
    arm_m=0.13,
    torque_ratio_m=0.016,
    gravity_m_s2=9.81,
)
"""The quadrotor of RISP (Ma et al., ICLR 2022): its mass is 3, of which its system identification speaks.

That these are kilograms is an assumption: the paper names no unit, and no inertia, arm or size. They are ours, for a
body 0.31 m wide (`samples/quadrotor`).
"""


RISP_ACTION_LIMIT, RISP_FARTHEST = 500.0, 1000.0
"""RISP (Ma et al., ICLR 2022) clamps actions to between -500 and 500, and gives up a quadrotor that is 1000 away."""

RISP_ACTIONS = {"quadrotor": 0.05, "cube": 1e-3, "rod": 0.5}
"""What an action of 1 is in N. The paper names no unit; these are ours, for its bodies as they are here.

A rotor that pushes with 500 has 3.4 times what the quadrotor hovers by; 500 on the cube is 1.4 times its weight, on the
rod 3.3 times what moves one of 1e5 Pa by an eighth of its length. On the cube a torque of 1 is that of a force of 1 at
`RISP_LENGTH_M`.
"""

RISP_LENGTH_M = 0.01
"""What a length of 1 is in m, of torques and of how far a quadrotor may go: its simulator's unit is the centimetre."""

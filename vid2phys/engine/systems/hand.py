"""The hand of RISP: five fingers on a fixed palm, thirteen revolute joints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from vid2phys.engine.constants import RISP_HAND, HandBody
from vid2phys.engine.system import Capabilities
from vid2phys.engine.systems._joint_tree import JointTree
from vid2phys.io.robot import parse_robot


class Hand(JointTree):
    """Five fingers of capsules on a fixed palm, moved by torques against springs.

    State [26]: joint angles (rad, `finger0_0` ... `finger4_2`: finger, then joint from the palm outwards; 0 is
    straight, positive is towards the palm's underside, -z), then their rates. Controls [26]: torques (N m), then
    disturbances of them. The palm is a box about the world's origin, fingers point along +x, the thumb (finger 0, one
    joint) to the side; fingers 1 to 4 have three joints. Equations and points on links: `articulated.Articulated`.

    `stiffness_0` ... `stiffness_4` (N m/rad) are shared by the joints of a finger, as are `damping` and `friction`.
    Sizes, and what the paper's stiffness 1 and torque 1 are in SI: `RISP_HAND` in `engine/constants.py`.

    Limits: those of `articulated`; fingers pass through each other and the palm; the stops at +-pi/4 are soft springs.
    """

    name = "hand"

    def __init__(self) -> None:
        robot = parse_robot(hand_mjcf(RISP_HAND), Path("hand.xml"))
        super().__init__(robot, [finger_joints(RISP_HAND, finger) for finger in range(len(RISP_HAND.phalanges_m))])

    @property
    def capabilities(self) -> Capabilities:
        """See `System.capabilities`."""
        return replace(super().capabilities, purpose="the five-fingered hand of RISP: the stiffness of its joints")


def finger_joints(body: HandBody, finger: int) -> tuple[str, ...]:
    """Return the names of a finger's joints, from the palm outwards."""
    return tuple(f"finger{finger}_{joint}" for joint in range(len(body.phalanges_m[finger])))


def hand_mjcf(body: HandBody) -> str:
    """Return the hand as an MJCF file."""
    sides = " ".join(f"{0.5 * side:.9g}" for side in body.palm_m)
    fingers = "".join(_finger(body, finger) for finger in range(len(body.phalanges_m)))
    joint = f'axis="0 1 0" stiffness="{body.stiffness}" damping="{body.damping}"'
    limits = f'armature="{body.armature_kg_m2}" range="{-body.limit_rad} {body.limit_rad}"'
    return f"""<mujoco model="hand"><compiler angle="radian"/><option gravity="0 0 {-body.gravity_m_s2}"/>
    <default><joint {joint} {limits}/><geom density="{body.density_kg_m3}"/></default>
    <worldbody><geom type="box" size="{sides}"/>{fingers}</worldbody></mujoco>"""


def _finger(body: HandBody, finger: int) -> str:
    """Return the nested bodies, one a phalanx; a capsule's round ends reach over its joints."""
    half = 0.5 * body.directions_rad[finger]
    position = " ".join(f"{x:.9g}" for x in body.knuckles_m[finger])
    place = f'pos="{position}" quat="{np.cos(half):.12g} 0 0 {np.sin(half):.12g}"'
    text, lengths = "", body.phalanges_m[finger]
    for joint, name in enumerate(finger_joints(body, finger)):
        text += f'<body name="{name}" {place}><joint name="{name}"/>'
        text += f'<geom type="capsule" fromto="0 0 0 {lengths[joint]} 0 0" size="{body.radius_m}"/>'
        place = f'pos="{lengths[joint]} 0 0"'
    return text + "</body>" * len(lengths)

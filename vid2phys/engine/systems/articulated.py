"""A tree of revolute and prismatic joints from a URDF or MJCF file, on a fixed or free base."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from vid2phys.engine.system import Capabilities
from vid2phys.engine.systems._joint_tree import JointTree
from vid2phys.errors import UsageError
from vid2phys.io.robot import Robot, load_robot, parse_robot

_BASES = {"file": None, "fixed": False, "free": True}
_ARM = """
<mujoco model="arm">
  <compiler angle="radian"/>
  <worldbody>
    <body name="base">
      <geom type="box" size="0.06 0.08 0.04" pos="0.01 0 0.005" mass="2.0"/>
      <body name="upper" pos="0 0 0.04">
        <joint name="shoulder" axis="0 1 0.3" damping="0.02" frictionloss="0.002" range="-2.5 2.5"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" mass="1.0"/>
        <body name="lower" pos="0.3 0 0">
          <joint name="elbow" axis="0 1 0" damping="0.02" frictionloss="0.002" range="-2.5 2.5"/>
          <geom type="capsule" fromto="0 0 0 0.25 0.05 0" size="0.025" mass="0.7"/>
          <body name="slider" pos="0.25 0.05 0">
            <joint name="slide" type="slide" axis="1 0 0.2" stiffness="40" damping="0.5" frictionloss="0.005"
             range="-0.2 0.2"/>
            <geom type="box" size="0.06 0.02 0.03" pos="0.04 0.01 0" mass="0.4"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


class Articulated(JointTree):
    """Links on revolute and prismatic joints.

    A robot of n joints. On a fixed base the state [2 n] is the joint coordinates q (rad or m, as in the file) and their
    rates. A free base has before its joint coordinates a position (world, m) and quaternion wxyz (body to world), and
    before their rates a velocity (of its origin, world, m/s) and an angular velocity (body, rad/s), [13 + 2 n]; the
    tangent has a rotation (body, q * exp(dtheta)) instead of the quaternion. Controls: torques (N m) or forces (N) of
    the joints, then disturbances of them, then for a free base a disturbance force (world, N) at its origin and a
    torque (body, N m).

        M(q) q'' + C(q, q') q' + G(q) = tau + tau_d - k (q - q_s) - b q' - c tanh(q' / w_c) - stops

    `stiffness` k, `damping` b and dry `friction` c, smoothed over w_c = 0.05 rad/s or m/s, are each joint's own; a
    link's inertia scales with its `mass`. A joint beyond its limits meets a spring on which, with the others free,
    it would swing at 300 rad/s; between its limits it feels nothing. q_s and the inertia of drives (`armature`)
    are the file's. Composite-rigid-body algorithm (Featherstone, "Rigid Body Dynamics Algorithms", 2008).

    Points and meshes are given in the base's axes (on a fixed base: the world's) with every joint as the file draws it,
    and belong to the link whose surface is nearest (`links_of`; `keypoints_on` takes links by index).

    Limits: no contact of links with each other or the ground, no closed loops, tendons or ball joints; actuators of the
    file are ignored; joints are rigid, friction does not depend on load and has no stiction (below w_c it creeps).
    Limits are soft and give energy back.
    """

    name = "articulated"

    def __init__(
        self, robot: Robot | str | Path | None = None, base: Literal["file", "fixed", "free"] = "file"
    ) -> None:
        """`robot`: a file, or one that was loaded; None: an arm of three joints. `base`: as the file says, or so."""
        if base not in _BASES:
            raise UsageError(f"base '{base}' of an articulated body", "file, fixed or free", "choose one of them")
        if robot is None:
            robot = parse_robot(_ARM, Path("arm.xml"), free_base=_BASES[base])
        if not isinstance(robot, Robot):
            robot = load_robot(robot, free_base=_BASES[base])
        super().__init__(robot)

    @property
    def capabilities(self) -> Capabilities:
        """See `System.capabilities`."""
        purpose = "a robot of revolute and prismatic joints, from URDF or MJCF"
        return replace(super().capabilities, purpose=purpose, balanced=False)


def from_file(path: str | Path, units: str = "m") -> Articulated:
    """Return a robot by its URDF or MJCF file, on the base that the file gives it."""
    if units != "m":
        raise UsageError(f"a robot in '{units}'", "m: URDF and MJCF are in SI", "scale its meshes in the file")
    return Articulated(path)

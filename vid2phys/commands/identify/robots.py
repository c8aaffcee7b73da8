"""Read the robot of `identify --body arm.urdf`, and place its base.

Limits: the base is fixed in the world, and its pose is given; what a camera cannot see of a robot is refused here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.errors import InputError, UsageError

if TYPE_CHECKING:
    from vid2phys.engine.systems._joint_tree import JointTree

_TAKES = "articulated"  # the system that is made of a robot's file


def read_robot(config: IdentifyConfig) -> tuple[JointTree, list[str]]:
    """Return the system of the robot `config.robot` with its base placed, and notes for the reader.

    Raises UsageError for another system and for a pose that is none, InputError for a file that does not serve.
    """
    from vid2phys.commands.fit_parameters import listen
    from vid2phys.engine.systems.articulated import Articulated
    from vid2phys.io.move import parse_move
    from vid2phys.io.robot import load_robot

    assert config.robot is not None
    if config.system != _TAKES:
        got = f"the robot '{config.robot}' for --system {config.system}"
        raise UsageError(got, f"--system {_TAKES}", "leave --system out")
    path = Path(config.robot)
    robot, notes = listen(lambda: load_robot(path))
    if robot.free_base:
        remedy = "remove its free joint, and give the base's pose by --base"
        raise InputError(f"the base of '{path}' moves", "a robot on a fixed base", remedy)
    if not robot.has_geometry:
        expected = "links with <visual> geometry (URDF) or geoms (MJCF)"
        raise InputError(f"'{path}' has no geometry: a camera sees nothing of it", expected, "add meshes or primitives")
    if config.base is not None:
        robot = robot.moved(*parse_move(config.base, "--base"))
    endless = [
        name
        for name, low, high in zip(robot.joint_names, robot.lower, robot.upper, strict=True)
        if not (np.isfinite(low) and np.isfinite(high))
    ]
    if endless:
        notes = [*notes, f"without limits, so that revolute joints are searched over +-180 deg: {', '.join(endless)}"]
    return Articulated(robot), notes

"""RISP's table 4 (Ma, Du et al., ICLR 2022): visuomotor control, actions that bring a body to where an image shows it.

The target is the last frame of one of table 3's motions, so that it can be reached. All methods see the same two
images, of the start and of the target; `ours`, the user's command, sees the target alone. Limits: parameters, first
state and camera are known.
"""

from __future__ import annotations

from experiments.aiming import bring, final_distance_mm, final_l1
from experiments.driving import METHODS as METHODS
from experiments.driving import Task, tabulated
from experiments.experiments import Experiment
from experiments.identification import COMMAND, KNOWN_START
from experiments.table import Setting, Table
from vid2phys.types import Array

NAME = "risp-table4"
VERSION, COMMAND_VERSION = 2, 4  # raise when rows are made in another way
_NOTES = [
    "`final_l1`: sum of the absolute differences between desired and final state, of positions in radii of the body, "
    "of orientations as a rotation vector in rad, of the hand's joints in rad, of the rod's ten sensors' heights in "
    "radii of what it moves in; speeds do not count, since an image does not show them. `final_distance_mm`: root "
    "mean square distance of the mesh's vertices from the target. Of the plain cube both are those from the nearest of "
    "the poses that look alike, and ours aim at the least rotated. Each is the mean over four targets of four looks "
    "never trained on; `std` is theirs.",
    "Targets are the ends of the motions of `risp-table3`, which has units, limits and starts of the actions. They are "
    "ours, since the paper publishes none, and so are the units: no figure of the paper's belongs beside these, and "
    "`paper` is empty.",
    "Methods of the papers use RMSProp from the starts of `risp-table3`, along the loss of the last frame; of the "
    "first one, whose state is known, the simulated body has its colours. "
    f"`{KNOWN_START}`, `ours-no-grad` and `oracle-newton` (which sees the true target) find gentle actions by the "
    "solver of `vid2phys control`, and fit the ten numbers "
    "of the hand as in `risp-table3`, what is read wrongly of its start, which is known, being taken to be read so "
    "of the target.",
    f"`{COMMAND}` is `vid2phys control --moving` (`experiments/control_by_command.py`), which is given the image of "
    "the target, parameters, first state, limits and, of rigid bodies, a `--hint-box` where the others look, with "
    "the same errors. A cube of given stiffness touches the ground. The command sets the wrench of the quadrotor, "
    "and torques of all joints of the hand in all steps. The table's physics carries its actions out. "
    "`reached_share`: of its results that are at their goal without a doubt (`statuses`). The textured cube "
    "has the model of the plain one, which the command finds by the shape.",
    "`failed`: as in `risp-table3`. `seconds` (`control_s`): of one search.",
]


def run(setting: Setting) -> Table:
    """Fill the cells that are asked for and make the table of all that are filled; the others are named."""
    return tabulated(_TASK, NAME, VERSION, _NOTES, setting)


def _judge(experiment: Experiment, states: Array) -> dict[str, float]:
    l1, distance = final_l1(experiment, states), final_distance_mm(experiment, states)
    return {"final_l1": l1, "final_distance_mm": distance}


_UNITS = {"final_l1": "1", "final_distance_mm": "mm"}
_TASK = Task(
    *(bring, _judge, _UNITS, "L1 between desired and final state", "control_s", COMMAND_VERSION),
    sure="reached",
    ends_only=True,
)

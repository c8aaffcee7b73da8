"""RISP's table 3 (Ma, Du et al., ICLR 2022): imitation, the actions behind a video with a held-out appearance.

Four random motions a body, each filmed with another appearance and sought from another start. Parameters and camera
are known, the first state to all methods but `ours`, the user's command. All methods see the same videos.
"""

from __future__ import annotations

from experiments.control_parametrisation import Parametrisation
from experiments.driving import METHODS as METHODS
from experiments.driving import Task, tabulated
from experiments.experiments import Experiment
from experiments.identification import COMMAND, GIVEN_START_ALONE, KNOWN_START, Case, Network, Outcome
from experiments.imitation import imitate, state_discrepancy
from experiments.imitation_by_command import imitate_by_command
from experiments.table import Setting, Table
from vid2phys.risp.networks.model import Model
from vid2phys.solvers.gradient import ITERATIONS, MOMENTUM, RATES
from vid2phys.types import Array

NAME = "risp-table3"
VERSION, COMMAND_VERSION = 1, 2  # raise when rows are made in another way
_NOTES = [
    "`state_discrepancy`: root mean square distance of the mesh's vertices from where they are in the video, over all "
    "frames after the first, as a share of the body's radius (of what it moves in, for hand and rod). The paper does "
    "not say how its own is defined; this definition is ours. Each is the mean over four motions of four looks never "
    "trained on; `std` is theirs.",
    "The motions are ours, since the paper publishes none: its figures are those of other scenes and another measure, "
    "and `paper` is empty.",
    "Actions are clamped to [-500, 500]: N of a rotor, force and torque on the cube, force on the middle of the rod, "
    "by the units of `experiments/constants.py` (RISP_ACTIONS), one action for each frame. A finger's torque is "
    "m sin(2 pi clip((t - d) / 40, 0, 1)) with m in [0, 1] and d in [0, 40]. `action_error`: their root mean square "
    "error, in these units.",
    "Motions and starts are drawn from one distribution; `random` draws a hundred times from it, and `average` is its "
    "middle: hovering, no force, m = 0.5 and d = 20.",
    f"Methods of the papers use RMSProp: rate {RATES['rmsprop']:g}, momentum {MOMENTUM:g}, {ITERATIONS} iterations. "
    "In which unit RISP's steps are is not known; for quadrotor, cube and hand it is one that served `oracle` best "
    f"of several on one motion, for the rod one as large beside its limits. `{KNOWN_START}` and `ours-no-grad` detect"
    " keypoints, correct them by contours and descend by Levenberg and Marquardt, actions of frames with a "
    "Gauss-Markov prior about rest whose level and bandwidth are those of the largest evidence, the hand's numbers "
    "with one as wide as their range. Both kinds begin at the best of the same starts, each by its own loss: the given "
    f"one and rest, of cubes 16 starts, of the hand 128. {GIVEN_START_ALONE} `oracle` sees true positions and angles "
    "and uses the papers' optimiser, `oracle-newton` sees them and uses ours without a prior.",
    f"`{COMMAND}` is `vid2phys identify` without `--actions` (`experiments/imitation_by_command.py`), with all "
    "parameters given. It has neither the first state nor the place of the body. Its own motion is judged, in the "
    "best of the orientations that look alike. Its actions are the wrench of the quadrotor, put on the rotors, and the "
    "force and torque on a cube, in which contact with the ground is included: no other method has it in the error. "
    "Of hand and rod it measures the motion and states no actions. `held_share`: of its 95 % intervals of actions that "
    "hold the truth; `poses_held_share`: of those of poses, joints and modes. `converged_share`: of its results that "
    "the command itself does not doubt (`statuses`). The textured cube has the model of the plain one, which the "
    "command finds by the shape.",
    "To all other methods first state, parameters, camera and, for `pixel`, `perceptual` and `paper`, what is behind "
    "the body are known. Views and networks are as in `risp-table2`.",
    "`failed`: motions of a quadrotor that went 1000 away (10 m), which count as far off as they are, and searches "
    "that came to nothing, which count with their start. `seconds` (`imitation_s`): of one search.",
]


def run(setting: Setting) -> Table:
    """Fill the cells that are asked for and make the table of all that are filled; the others are named."""
    return tabulated(_TASK, NAME, VERSION, _NOTES, setting)


def _judge(experiment: Experiment, states: Array) -> dict[str, float]:
    return {"state_discrepancy": state_discrepancy(experiment, states)}


def _act(case: Case, parametrisation: Parametrisation, method: str, network: Network) -> Outcome:
    if method == COMMAND:
        assert network is None or isinstance(network, Model)
        return imitate_by_command(case, parametrisation, network)
    return imitate(case, parametrisation, method, network)


_UNITS = {"state_discrepancy": "1"}
_TASK = Task(_act, _judge, _UNITS, "state discrepancy [radii]", "imitation_s", COMMAND_VERSION)

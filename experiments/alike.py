"""States that look alike: those of a body whose shape is the same in several orientations.

Limits: one rigid body; speeds stay as they are.
"""

from __future__ import annotations

import numpy as np

from experiments.experiments import Experiment
from vid2phys.geometry import matrix_from_quat, quat_from_matrix, quat_multiply
from vid2phys.types import Array


def alike_states(experiment: Experiment, states: Array) -> Array:
    """Return the states [G, ..., N] that look as the given ones [..., N], themselves first."""
    elements = experiment.alike
    if len(elements) == 1:
        return states[None]
    shape = (len(elements), *(1,) * (states.ndim - 1))
    place, quat = experiment.plan.system.body_pose(states)
    alike = np.tile(states, (len(elements), *(1,) * states.ndim))  # of one rigid body: place, then orientation
    alike[..., :3] = place + np.einsum("...ij,gj->g...i", matrix_from_quat(quat), elements[:, :3, 3])
    alike[..., 3:7] = quat_multiply(quat, quat_from_matrix(elements[:, :3, :3]).reshape(*shape, 4))
    return alike

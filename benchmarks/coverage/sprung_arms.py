"""Random arms with a spring at each joint: stiffness and damping of the joints, all masses known (see `arms`)."""

from __future__ import annotations

import numpy as np

from benchmarks.coverage.arms import fitted, random_arm
from benchmarks.coverage.cases import Case


def case(seed: int) -> Case:
    """Return the fit of a random arm with springs."""
    arm = random_arm(np.random.default_rng(3000 + seed), sprung=True)
    return fitted(arm, ("joint_stiffness", "joint_damping"), seed)

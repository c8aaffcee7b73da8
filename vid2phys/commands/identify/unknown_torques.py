"""Do the recorded torques drive a body, or do unknown ones, which a controller fights?

A controller answers unknown torques with recorded ones. So both are related, which the fit cannot know: the recorded
torques explain less of the motion than they cause, and the inertia comes out too large. On drawn flights it is right
within its interval where unknown torques make less than a quarter of the angular acceleration, 1.1 to 1.3 times too
large where they make up to half, and two to three times where they make all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.commands.fit_parameters import INERTIA

if TYPE_CHECKING:
    from vid2phys.solvers.problem import Problem
    from vid2phys.solvers.solution import Solution
    from vid2phys.types import Estimate

_MOST = 0.25  # of the angular acceleration, that unknown torques may make up
_STRENGTH = "torque_std"  # of the unknown angular acceleration, rad/s^2


def without_opposed(
    problem: Problem, solution: Solution, found: tuple[Estimate, ...], asked: tuple[str, ...]
) -> tuple[tuple[Estimate, ...], list[str]]:
    """Return estimates in which an inertia that unknown torques hide is not identifiable, and lines that say so.

    asked: names of the parameters that the user fits; lines are about these alone.
    """
    if problem.actions is None or _STRENGTH not in solution.extra:
        return found, []
    names = problem.system.state_names
    rates = solution.states[:, [names.index(f"angular_velocity_{axis}_rad_s") for axis in "xyz"]]
    acceleration = (np.diff(rates, axis=0) / np.diff(problem.observation.times_s)[:, None]).std(axis=0)
    share = dict(zip(INERTIA, solution.extra[_STRENGTH] / np.maximum(acceleration, 1e-9), strict=True))
    free = {each.name for each in found if each.source in ("fitted", "nuisance") and each.identifiable}
    hidden = {name for name in INERTIA if name in free and share[name] > _MOST}
    lines = [
        f"{name} is not determined: unknown torques make up {min(share[name], 1.0):.0%} of the angular acceleration, "
        "and a controller that fights them makes it come out too large. Film faster rotations about this axis"
        for name in INERTIA
        if name in hidden and name in asked
    ]
    # the value is not that of its prior either
    unknown = {each.name: replace(each, identifiable=False, prior=None) for each in found if each.name in hidden}
    return tuple(unknown.get(each.name, each) for each in found), lines

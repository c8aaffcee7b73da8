"""When an unknown force acts: a thrown body flies free, then hits something, then rests.

One level for a whole clip lets the blow of an impact loosen the flight before it, in which nothing acts but gravity and
the parabola says how far away the body is. So a force and a torque that may set in at any time have a level of their
own about each knot, found by evidence (automatic relevance: MacKay, "Bayesian interpolation", 1992; Tipping, "Sparse
Bayesian learning", 2001): where the motion needs none, it falls to nearly nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vid2phys.solvers.assemble import Layout, Levels, Unknowns
from vid2phys.types import Array

SET_IN = ("action_force", "action_torque")  # groups of inputs that act now and then
_WINDOW = 1.0  # of the inputs' correlation time, either side
_LEAST = 1e-3  # of the strongest
_FASTEST = 0.1  # by which a level falls in one go


def can_rest(layout: Layout) -> bool:
    """Whether a problem has inputs that act now and then."""
    return any(channel.group in SET_IN for channel in layout.channels)


def with_activity(layout: Layout, point: Unknowns, levels: Levels, input_std: Array) -> tuple[Layout, Unknowns, Levels]:
    """The same inputs under levels of their own about each knot.

    input_std: [T, M], standard deviations at `point`, under these hyperparameters.
    """
    times = layout.knots.times_s
    before, after, std = layout.activity, layout.activity.copy(), dict(levels.input_std)
    variance = input_std**2
    for group in sorted(set(SET_IN) & set(std)):
        columns = [j for j, channel in enumerate(layout.channels) if channel.group == group]
        near = np.abs(times[:, None] - times) <= _WINDOW / levels.bandwidth_rad_s[group]
        squared = near @ (point.inputs[:, columns] ** 2).sum(axis=1)
        known = near @ np.maximum(1.0 - variance[:, columns] / std[group] ** 2, 1e-3).sum(axis=1)
        level = before[:, columns[0]] * np.maximum(np.sqrt(squared / known), _FASTEST * std[group])
        after[:, columns] = np.maximum(level / level.max(), _LEAST)[:, None]
        std[group] = float(level.max())
    inputs = point.inputs * np.tile(before / after, 2)
    return replace(layout, activity=after), replace(point, inputs=inputs), replace(levels, input_std=std)

"""When an unknown force acts (automatic relevance determination): a thrown body flies free, hits something, then rests.

Purpose: one standard deviation for a whole clip lets the force of an impact loosen the flight before it. In flight
nothing acts but gravity, and the parabola tells how far away the body is.

Method: a force and a torque that act now and then have a standard deviation of their own about each knot, by evidence
(MacKay, "Bayesian interpolation", 1992; Tipping, "Sparse Bayesian learning", 2001). Where the motion needs none, it
falls to nearly nothing.

Limits: intervals of states are those without relevance, since the times of the forces are then taken as known.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vid2phys.solvers.smoothing_model import Hyperparameters, Layout, Unknowns
from vid2phys.types import Array

INTERMITTENT = ("action_force", "action_torque")  # groups of inputs that act now and then
_WINDOW = 1.0  # of the inputs' correlation time, either side
_LEAST = 1e-3  # standard deviation over the largest one
_FASTEST = 0.1  # factor of a standard deviation in one round, at least


def has_intermittent_inputs(layout: Layout) -> bool:
    """Return whether a problem has inputs that act now and then."""
    return any(channel.group in INTERMITTENT for channel in layout.channels)


def with_relevance(
    layout: Layout, point: Unknowns, hyperparameters: Hyperparameters, input_std: Array
) -> tuple[Layout, Unknowns, Hyperparameters]:
    """Return the same inputs with relevance about each knot.

    input_std: [T, M], standard deviations at `point`, under `hyperparameters`.
    """
    times = layout.knots.times_s
    before, after, std = layout.relevance, layout.relevance.copy(), dict(hyperparameters.input_std)
    variance = input_std**2
    for group in sorted(set(INTERMITTENT) & set(std)):
        columns = [j for j, channel in enumerate(layout.channels) if channel.group == group]
        near = np.abs(times[:, None] - times) <= _WINDOW / hyperparameters.bandwidth_rad_s[group]
        squared = near @ (point.inputs[:, columns] ** 2).sum(axis=1)
        known = near @ np.maximum(1.0 - variance[:, columns] / std[group] ** 2, 1e-3).sum(axis=1)
        deviation = before[:, columns[0]] * np.maximum(np.sqrt(squared / known), _FASTEST * std[group])
        after[:, columns] = np.maximum(deviation / deviation.max(), _LEAST)[:, None]
        std[group] = float(deviation.max())
    inputs = point.inputs * np.tile(before / after, 2)
    return replace(layout, relevance=after), replace(point, inputs=inputs), replace(hyperparameters, input_std=std)

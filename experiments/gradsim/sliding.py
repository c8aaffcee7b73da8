"""A rigid body that is dropped on the ground and pushed along it: it bounces, slides and stops.

Falling and bouncing say stiffness and damping per mass, sliding the friction, slowing down at the end its viscous part
k_f. All of these are forces per mass: without the known push, mass, k_e, k_d and k_f would show as ratios only.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from experiments.gradsim.filmed import Filmed, Inputs
from experiments.gradsim.pixels import Actor, Shot, Stage, looking_at
from experiments.gradsim.shapes import shape
from vid2phys.engine.systems.rigid_contact import Points, RigidContact
from vid2phys.geometry import quat_from_rotvec
from vid2phys.types import Parameter, Parameters

SHAPES = ("box", "plank", "frustum", "disc", "cross", "angle", "star")
"""Those that lie flat."""
RANGES = {
    "mass": ("kg", 0.12, 0.36),
    "k_d": ("N s/m", 0.4, 1.6),
    "k_e": ("N/m", 150.0, 600.0),
    "k_f": ("N s/m", 0.2, 0.8),
    "mu": ("1", 0.2, 0.8),
}
"""What truths and starts are drawn from, evenly in the logarithm; contact is that of one point."""
_STEP_S, _SUBSTEPS = 1.0 / 60.0, 8
POINTS = 8  # of contact
_TILT_RAD, _DROP_M, _PUSH_M_S, _PUSHED = 0.03, (0.02, 0.05), 1.1, 3
_EYE_M, _VIEW_M = (0.25, -1.9, 0.8), 0.46


def sliding(
    rng: np.random.Generator,
    name: str = "box",
    *,
    unknown: tuple[str, ...] = tuple(RANGES),
    frames: int = 36,
    size_px: int = 64,
    every: int = 3,
    factor: float = 1.5,
    points: int = POINTS,
) -> Filmed:
    """Return a shape with parameters, tilt, drop and push drawn at random; all but the `unknown` parameters are known.

    factor: starts are drawn up to so many times the truth either way. points: of contact, at most.
    """
    mesh = shape(name)
    body = Points.of_mesh(mesh, most=points)
    system = RigidContact((body,))
    drawn = {n: float(np.exp(rng.uniform(np.log(low), np.log(high)))) for n, (_, low, high) in RANGES.items()}
    initial = system.rest_state()
    initial[2] += rng.uniform(*_DROP_M)
    initial[3:7] = quat_from_rotvec(
        rng.uniform(-_TILT_RAD, _TILT_RAD, 3) + np.array([0.0, 0.0, rng.uniform(-3.0, 3.0)])
    )
    stage = Stage((Actor.of(system, mesh),), looking_at(_EYE_M, (0.2, 0.0, 0.05), _VIEW_M, size_px))
    shot = Shot(system, stage, _STEP_S, frames, every, _SUBSTEPS)
    controls = shot.rest
    controls[:_PUSHED, 0] = _PUSH_M_S * 0.2 / (_PUSHED * _STEP_S)  # of 200 g
    defaults, at_rest = system.parameters(), torch.from_numpy(initial)
    moments = {f"inertia_{2 * axis}": float(m) for axis, m in zip("xyz", body.inertia_per_mass, strict=True)}
    base = torch.from_numpy(defaults.with_values({**drawn, **moments}).vector)
    column = {n: torch.arange(len(base)) == defaults.names.index(n) for n in RANGES}
    turning = torch.tensor([n.startswith("inertia") for n in defaults.names])

    def inputs(values: Tensor) -> Inputs:
        vector = base
        for index, each in enumerate(unknown):
            vector = torch.where(column[each], values[index], vector)
        mass = vector[defaults.names.index("mass")]
        return at_rest, controls, torch.where(turning, vector * mass, vector)

    sought = []
    for each in unknown:
        unit, low, high = RANGES[each]
        start = drawn[each] * float(np.exp(rng.uniform(-1.0, 1.0) * np.log(factor)))
        sought.append(Parameter(each, unit, start, 0.25 * low, 4.0 * high, "log", free=True))
    return Filmed(shot, Parameters(tuple(sought)), np.array([drawn[each] for each in unknown]), inputs)

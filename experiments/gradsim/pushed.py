"""gradSim's rigid bodies: shapes of known size that a known impulse sets going, filmed for a second.

The impulse lasts 50 ms, linear and angular, so that a body turns as it goes. Without weight: gravity would move all
masses alike. How far it comes says its mass, and nothing else does.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from experiments.gradsim.filmed import Filmed, Inputs
from experiments.gradsim.pixels import Actor, Shot, Stage, looking_at, waves
from experiments.gradsim.shapes import NAMES, shape
from vid2phys.engine.systems.rigid_contact import Points, RigidContact
from vid2phys.geometry import quat_normalize
from vid2phys.io.mesh import mass_properties
from vid2phys.types import Parameter, Parameters

DENSITIES = (2.0, 12.0)  # kg/m^3: 5 to 400 g
FRAMES, STEP_S = 60, 1.0 / 60.0
_PUSHED = 3  # frames
_SPEED_M_S, _SPIN_RAD_S, _DENSITY = 0.22, 1.0, 7.0  # what a body of this density gets
_VIEW_M, _EYE_M = 0.7, (0.6, -2.6, 1.3)
APPEARANCES = ("color", "shading", "texture")


def pushed(
    rng: np.random.Generator, name: str, *, size_px: int = 64, every: int = 4, appearance: str = "shading"
) -> Filmed:
    """Return an object of density, start, orientation and impulse drawn at random: all of them are known but for the
    density.

    appearance: "color" alone, "shading", or "texture" with it.
    """
    mesh = shape(name)
    body = Points.of_mesh(mesh)
    system = RigidContact((body,), planes=())
    texture = waves(mesh.vertices, mesh.faces) if appearance == "texture" else None
    actor = Actor.of(system, mesh, texture=texture, shaded=appearance != "color")
    stage = Stage((actor,), looking_at(_EYE_M, (0.0, 0.0, 0.0), _VIEW_M, size_px))
    density, start = rng.uniform(*DENSITIES, 2)  # the first number, which `mass_of` draws alone
    initial = system.rest_state()
    initial[:3] = rng.uniform(-0.15, 0.15, 3)
    initial[3:7] = quat_normalize(rng.normal(size=4))
    way = rng.normal(size=3) * (1.0, 0.4, 1.0)  # less along the view
    impulse = _SPEED_M_S * _DENSITY * body.volume * way / np.linalg.norm(way)
    spin = rng.normal(size=3)
    rotation = _SPIN_RAD_S * _DENSITY * body.volume * body.inertia_per_mass * spin / np.linalg.norm(spin)  # body axes
    shot = Shot(system, stage, STEP_S, FRAMES, every, substeps=2)
    controls = shot.rest
    controls[:_PUSHED, :6] = torch.from_numpy(np.concatenate([impulse, rotation]) / (_PUSHED * STEP_S))
    moments = {f"inertia_{2 * axis}": m * body.volume for axis, m in zip("xyz", body.inertia_per_mass, strict=True)}
    light = system.parameters().with_values({"mass": body.volume, **moments, "gravity": 0.0})
    at_rest, of_one = torch.from_numpy(initial), torch.from_numpy(light.vector)  # at 1 kg/m^3
    heavy = torch.tensor([p.name == "mass" or p.name.startswith("inertia") for p in light])

    def inputs(values: Tensor) -> Inputs:
        return at_rest, controls, torch.where(heavy, of_one * values[0], of_one)

    unknown = Parameter("density", "kg/m^3", float(start), 0.5 * DENSITIES[0], 2.0 * DENSITIES[1], "log", free=True)
    return Filmed(shot, Parameters((unknown,)), np.array([density]), inputs)


def mass_of(rng: np.random.Generator, name: str) -> float:
    """Return the mass of the object that `pushed` makes of the same numbers, kg."""
    return float(rng.uniform(*DENSITIES)) * volume_of(name)


@cache
def volume_of(name: str) -> float:
    """Return the volume of a shape, m^3."""
    return mass_properties(shape(name)).volume


def name_of(index: int) -> str:
    """Return the shape of an object."""
    return NAMES[index % len(NAMES)]

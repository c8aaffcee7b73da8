"""Things that are thrown on the ground: rigid, soft and sheets, of which one kind may be taken for another.

All of them get a known momentum at the first moment, so that a mass shows by how fast a thing goes, whatever it is made
of. A rigid thing and a soft one of the same shape have the same vertices, each of which meets the ground alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.gradsim.filmed import Filmed, Inputs
from experiments.gradsim.pixels import Actor, Shot, Stage, looking_at, waves
from experiments.gradsim.shapes import shape
from vid2phys.engine.systems.cloth import Cloth, sheet
from vid2phys.engine.systems.rigid_contact import Points, RigidContact
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.io.mesh import mass_properties
from vid2phys.types import Array, Mesh, Parameter, Parameters

KINDS = ("rigid", "soft", "cloth")
SHAPES = ("box", "plank", "wedge", "cross", "star")
"""Those that lie flat and are all seen from their middle."""
DENSITIES = {"rigid": (60.0, 180.0), "soft": (60.0, 180.0), "cloth": (0.15, 0.45)}
"""kg/m^3, of sheets kg/m^2: what truths and starts are drawn from, evenly in the logarithm."""
MODULI_PA = (1.5e3, 4.5e3)  # from which Lame's mu and lambda of soft things are drawn
EYE_M = (0.25, -1.9, 0.8)
_MIDDLE_M, _VIEW_M = (0.25, 0.0, 0.12), 0.55
_FRAME_S, _FRAMES, _EVERY = 1.0 / 30.0, 12, 2  # of which about half are in the air
_SPEED_M_S = (0.8, 0.8)  # along the ground and up, of what has the middle density
_DROP_M, _TILT_RAD, _HEADING_RAD = (0.02, 0.06), 0.05, 0.4
_MU = (0.25, 0.6)
_GROUND = {"k_e": 4e3, "k_d": 30.0, "k_f": 60.0}  # per kg of what has the middle density; its underside shares them
_VISCOSITY = 5.0  # Pa s
_SHEET, _SIDE_M, _CELLS = {"shear_stiffness": 5.0, "area_stiffness": 8.0}, 0.4, 4
_FLAT_M = 1e-6  # what is no higher belongs to the underside
_BOUNDS = (0.5, 2.0)  # times the ends of the densities
_SUBSTEPS, _SHORTER = 8, 0.7  # at least; beside the longest step that is stable
System = RigidContact | SoftBody | Cloth


def kind_of(index: int) -> tuple[str, str]:
    """Return the material and the shape of the object with this number."""
    return KINDS[index % len(KINDS)], SHAPES[index // len(KINDS) % len(SHAPES)]


@dataclass(frozen=True)
class _Throw:
    """What is drawn of an object, in the order in which it is drawn."""

    density: float
    start: float
    lame_mu: float
    lame_lambda: float
    mu: float
    heading: float
    drop_m: float
    rotation: Array

    @staticmethod
    def drawn(rng: np.random.Generator, densities: tuple[float, float]) -> _Throw:
        (least, most), (softest, stiffest) = np.log(densities), np.log(MODULI_PA)
        density, start = np.exp(rng.uniform(least, most, 2))
        lame_mu, lame_lambda = np.exp(rng.uniform(softest, stiffest, 2))
        mu, heading, drop = (rng.uniform(*ends) for ends in (_MU, (-_HEADING_RAD, _HEADING_RAD), _DROP_M))
        tilt, yaw = rng.uniform(-_TILT_RAD, _TILT_RAD, 3), np.array([0.0, 0.0, rng.uniform(-np.pi, np.pi)])
        rotation = matrix_from_rotvec(tilt) @ matrix_from_rotvec(yaw)
        return _Throw(density, start, lame_mu, lame_lambda, mu, heading, drop, rotation)


def thrown(
    rng: np.random.Generator, kind: str, name: str, *, known: Mapping[str, float] | None = None, size_px: int = 64
) -> Filmed:
    """Return an object of density, moduli, friction, start and throw drawn at random: all of them are known but the
    density.

    kind: what it is taken to be: the same numbers give the same motion of a rigid and of a very stiff soft thing. name:
    of its shape; sheets have one of their own. known: what is believed of parameters, in place of what they are.
    """
    throw, densities = _Throw.drawn(rng, DENSITIES[kind]), DENSITIES[kind]
    middle = float(np.sqrt(np.prod(densities)))
    mesh, size, underside = _laid(kind, name, throw.rotation)
    ground = {law: each * middle * size / underside for law, each in _GROUND.items()}
    system = _system(kind, mesh, throw, {"mu": throw.mu, **ground, **(known or {})})
    of_one, heavy = _at_unit_density(system, size)
    low, high = (factor * end for factor, end in zip(_BOUNDS, densities, strict=True))
    stable_s = system.longest_step_s(np.where(heavy, low * of_one, of_one))
    substeps = max(_SUBSTEPS, int(np.ceil(_FRAME_S / (_SHORTER * stable_s))))
    texture = waves(mesh.vertices, mesh.faces) if kind == "cloth" else None
    stage = Stage((Actor.of(system, texture=texture),), looking_at(EYE_M, _MIDDLE_M, _VIEW_M, size_px))
    shot = Shot(system, stage, _FRAME_S, _FRAMES, _EVERY, substeps)
    heights, rates = _columns(system)
    first = system.rest_state()
    first[heights] += throw.drop_m
    along, up = _SPEED_M_S
    momentum = middle * np.array(
        [along * np.cos(throw.heading), along * np.sin(throw.heading), up]
    )  # of a unit of size
    begin, moving = torch.from_numpy(first), torch.from_numpy(rates)
    given = torch.from_numpy(np.tile(momentum, len(rates) // 3))
    vector, weighs = torch.from_numpy(of_one), torch.from_numpy(heavy)

    def inputs(values: Tensor) -> Inputs:
        initial = begin.index_put((moving,), given / values[0])
        return initial, shot.rest, torch.where(weighs, vector * values[0], vector)

    unit = "kg/m^2" if kind == "cloth" else "kg/m^3"
    sought = Parameter("density", unit, throw.start, low, high, "log", free=True)
    return Filmed(shot, Parameters((sought,)), np.array([throw.density]), inputs)


def _laid(kind: str, name: str, rotation: Array) -> tuple[Mesh, float, int]:
    """Return a shape rotated, above the origin: its lowest vertex at the ground, its middle over it; its volume, or its
    area; how many vertices its underside had before it was turned.
    """
    if kind == "cloth":
        vertices, faces = sheet(_SIDE_M, _SIDE_M, _CELLS, _CELLS, -0.5 * _SIDE_M)
        flat = vertices[:, [0, 2, 1]] * (1.0, 1.0, -1.0)  # its front is up
        mesh, size, middle = Mesh(flat, faces, np.zeros(len(faces), dtype=np.int64)), _SIDE_M**2, np.zeros(3)
    else:
        mesh = shape(name)
        properties = mass_properties(mesh)
        size, middle = properties.volume, properties.center_of_mass
    underside = int((mesh.vertices[:, 2] < mesh.vertices[:, 2].min() + _FLAT_M).sum())
    vertices = (mesh.vertices - middle) @ rotation.T
    vertices[:, 2] -= vertices[:, 2].min()
    return replace(mesh, vertices=vertices), size, underside


def _system(kind: str, mesh: Mesh, throw: _Throw, ground: dict[str, float]) -> System:
    if kind == "rigid":
        return RigidContact((Points.of_mesh(mesh),), has_actions=False, values=ground)
    if kind == "cloth":
        return Cloth(mesh.vertices, mesh.faces, pinned=(), ground=True, values=_SHEET | ground)
    material = {"lame_mu": throw.lame_mu, "lame_lambda": throw.lame_lambda, "damping": _VISCOSITY}
    return SoftBody(*filled(mesh), elements="linear", moduli="lame", ground=True, values=material | ground)


def filled(mesh: Mesh) -> tuple[Array, NDArray[np.int64]]:
    """Return the vertices [V + 1, 3] m and tets [F, 4] of a closed mesh all of which is seen from the middle of its
    vertices.
    """
    middle = np.full(len(mesh.faces), len(mesh.vertices))
    vertices = np.vstack([mesh.vertices, mesh.vertices.mean(axis=0)])
    return vertices, np.column_stack([middle, mesh.faces])


def _at_unit_density(system: System, size: float) -> tuple[Array, NDArray[np.bool_]]:
    """Return the parameters [P] at a density of 1, and which of them are multiples of it."""
    defaults, values = system.parameters(), {"density": 1.0}
    if isinstance(system, RigidContact):
        moments = zip("xyz", size * system.bodies[0].inertia_per_mass, strict=True)
        values = {"mass": size, **{f"inertia_{2 * axis}": float(moment) for axis, moment in moments}}
    return defaults.with_values(values).vector, np.array([name in values for name in defaults.names])


def _columns(system: System) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where a state has heights, and where velocities, x, y and z in turn."""
    if isinstance(system, RigidContact):
        return np.array([2]), np.arange(7, 10)
    return np.arange(2, system.rest_m.size, 3), np.arange(system.rest_m.size, 2 * system.rest_m.size)

"""Bodies that bend: a beam that hangs by one end, a ball that falls, a cloth that flies.

Unknown are the mass of every vertex, Lame's moduli, or the velocity that every vertex starts with.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.gradsim.filmed import Filmed, Inputs
from experiments.gradsim.pixels import Actor, Shot, Stage, looking_at, waves
from experiments.gradsim.smoothing import roughness
from vid2phys.engine.systems.cloth import Cloth, sheet
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.tets import box_tets
from vid2phys.types import Array, Parameter, Parameters

BEAM_M, BEAM_CELLS = (0.4, 0.1, 0.1), (6, 2, 2)
_FINE_CELLS, _FINE_FRAMES, _FINE_SUBSTEPS = (10, 3, 3), 44, 8  # of the beam that a user films
_BESIDE_BEAM = (0.45, -1.1, 0.25), (0.2, 0.05, -0.02)  # where the camera is, and what it looks at, m
BALL_M = 0.12
MODULI_PA = (1e5, 4e5)  # that Lame's mu and lambda are drawn from
DENSITY, _DAMPING = 1000.0, 40.0
SPREAD = 0.5  # of masses, either way, over a body
_CLOTH = {"shear_stiffness": 5.0, "area_stiffness": 8.0}
_FRAME_S = 1.0 / 30.0
_SMOOTHED = 0.2  # of a body's width: over which descents by numbers of particles are smoothed
_REACH = {"mass": (0.25, 4.0), "moduli": (0.2, 2.5)}  # bounds, times the mean density, or the ends of the range


def beam(
    rng: np.random.Generator,
    unknown: str,
    *,
    cells: tuple[int, int, int] = BEAM_CELLS,
    frames: int = 15,
    size_px: int = 64,
) -> Filmed:
    """Film a beam along x that is held at x = 0 and let go: it sinks under its weight and swings. unknown: mass,
    moduli.
    """
    vertices, tets = box_tets(BEAM_M, cells)
    stage = looking_at(*_BESIDE_BEAM, 0.26, size_px)
    pinned = np.flatnonzero(vertices[:, 0] == 0.0)
    return _soft(rng, unknown, vertices, tets, stage, frames, pinned=pinned)


def beam_tets() -> tuple[Array, list[tuple[str, NDArray[np.int64]]]]:
    """Return vertices [V, 3] and cells of the beam as a user's file has them."""
    vertices, tets = box_tets(BEAM_M, BEAM_CELLS)
    return vertices, [("tetra", tets)]


def fine_beam(rng: np.random.Generator, *, size_px: int) -> tuple[Shot, dict[str, float]]:
    """Film a beam of even density and the moduli that `beam` draws, by a mesh of elements without locking.

    Return the shot, whose system has the truth as its parameters, and the truth.
    """
    low, high = np.log(MODULI_PA)
    lame_mu, lame_lambda = np.exp(rng.uniform(low, high, 2)).tolist()
    truth = {
        "young_modulus": lame_mu * (3.0 * lame_lambda + 2.0 * lame_mu) / (lame_lambda + lame_mu),
        "poisson_ratio": 0.5 * lame_lambda / (lame_lambda + lame_mu),
        "damping": _DAMPING,
        "density": DENSITY,
    }
    vertices, tets = box_tets(BEAM_M, _FINE_CELLS)
    system = SoftBody(vertices, tets, pinned=np.flatnonzero(vertices[:, 0] == 0.0), values=truth)
    stage = Stage((Actor.of(system),), looking_at(*_BESIDE_BEAM, 0.3, size_px))
    return Shot(system, stage, _FRAME_S, _FINE_FRAMES, 1, _FINE_SUBSTEPS), truth


def ball(rng: np.random.Generator, unknown: str, *, frames: int = 15, size_px: int = 64) -> Filmed:
    """Film a ball that falls on the ground from a few centimetres, and comes up again. unknown: mass or moduli."""
    vertices, tets = ball_tets(BALL_M)
    camera = looking_at((0.2, -1.0, 0.4), (0.0, 0.0, 0.13), 0.2, size_px)
    return _soft(rng, unknown, vertices + np.array([0.0, 0.0, BALL_M]), tets, camera, frames, ground=True)


def _soft(
    rng: np.random.Generator,
    unknown: str,
    vertices: Array,
    tets: NDArray[np.int64],
    camera: object,
    frames: int,
    *,
    pinned: NDArray[np.int64] | tuple[int, ...] = (),
    ground: bool = False,
) -> Filmed:
    """Film a body whose moduli are drawn at random, and whose density varies over it."""
    low, high = np.log(MODULI_PA)
    drawn = np.exp(rng.uniform(low, high, 2))
    values = {"lame_mu": float(drawn[0]), "lame_lambda": float(drawn[1]), "damping": _DAMPING, "density": DENSITY}
    contact = {"k_e": 4e3, "k_d": 2.0, "k_f": 4.0, "mu": 0.5} if ground else {}
    system = SoftBody(
        vertices,
        tets,
        elements="linear",
        pinned=pinned,
        moduli="lame",
        ground=ground,
        per_vertex_mass=True,
        values=values | contact,
    )
    parameters = system.parameters()
    masses = DENSITY * system.nodal_volumes * varying(rng, vertices)
    initial = system.rest_state()
    if ground:
        initial[2 : vertices.size : 3] += 0.06
        initial[vertices.size :] = np.tile([0.3, 0.0, -1.2], len(vertices))
    free = np.flatnonzero(system.free)
    begin = len(parameters.names) - len(vertices)
    base = parameters.vector
    base[begin:] = masses
    names = [f"mass_{i}" for i in free] if unknown == "mass" else ["lame_mu", "lame_lambda"]
    columns = np.array([parameters.names.index(name) for name in names])
    factors = np.exp(rng.uniform(-1.0, 1.0, 2) * np.log(2.0))
    starts = 0.6 * DENSITY * system.nodal_volumes[free] if unknown == "mass" else base[columns] * factors
    stage = Stage((Actor.of(system),), camera)  # type: ignore[arg-type]
    if unknown == "mass":
        nominal = DENSITY * system.nodal_volumes[free]
        lower, upper = (factor * nominal for factor in _REACH["mass"])
    else:
        lower, upper = (np.full(2, factor * end) for factor, end in zip(_REACH["moduli"], MODULI_PA, strict=True))
    fastest = base.copy()
    fastest[columns] = lower if unknown == "mass" else upper
    substeps = int(np.ceil(_FRAME_S / system.longest_step_s(fastest)))
    shot = Shot(system, stage, _FRAME_S, frames, 1, substeps)
    at_rest, fixed = torch.from_numpy(initial), torch.from_numpy(base)

    def inputs(values: Tensor) -> Inputs:
        return at_rest, shot.rest, fixed.index_put((torch.from_numpy(columns),), values)

    sought = [
        Parameter(name, parameters[name].unit, float(start), float(low), float(high), "log", free=True)
        for name, start, low, high in zip(names, starts, lower, upper, strict=True)
    ]
    if unknown == "moduli":
        return Filmed(shot, Parameters(tuple(sought)), base[columns], inputs)
    groups, smoothing = {"mass": np.arange(len(free))}, _smoothing(vertices, tets)[np.ix_(free, free)]
    return Filmed(shot, Parameters(tuple(sought)), base[columns], inputs, groups, smoothing)


def cloth(rng: np.random.Generator, *, cells: int = 5, frames: int = 9, size_px: int = 64) -> Filmed:
    """Film a square sheet that is thrown, each of its vertices at a velocity of its own; unknown are all of them."""
    system = Cloth(*sheet(0.5, 0.5, cells, cells, 0.3), values=_CLOTH)
    rest, count = system.rest_m, len(system.rest_m)
    common = rng.uniform((-0.6, -0.6, 0.9), (0.6, 0.6, 1.5))
    truth = common + 0.4 * np.column_stack([varying(rng, rest) - 1.0 for _ in range(3)]) / SPREAD
    camera = looking_at((0.5, -1.6, 0.9), (0.0, 0.0, 0.55), 0.5, size_px)
    stage = Stage((Actor.of(system, texture=waves(rest, system.triangles.corners)),), camera)
    parameters = torch.from_numpy(system.parameters().vector)
    step_s = 1.0 / 30.0
    substeps = int(np.ceil(step_s / (0.5 * system.longest_step_s(parameters.numpy()))))
    shot = Shot(system, stage, step_s, frames, 1, substeps)
    places = torch.from_numpy(rest.ravel())

    def inputs(values: Tensor) -> Inputs:
        return torch.cat([places, values]), shot.rest, parameters

    sought = [
        Parameter(f"velocity_{axis}_{i}", "m/s", 0.0, -10.0, 10.0, free=True) for i in range(count) for axis in "xyz"
    ]
    groups = {"velocity": np.arange(3 * count)}
    smoothing: Array = np.kron(_smoothing(rest, system.elements), np.eye(3)).astype(float)
    return Filmed(shot, Parameters(tuple(sought)), truth.ravel(), inputs, groups, smoothing)


def _smoothing(points: Array, cells: NDArray[np.int64]) -> Array:
    """Return the smoothing of numbers of all vertices, [V, V] (`Filmed.smoothing`)."""
    return np.asarray(np.linalg.inv(roughness(points, cells, _SMOOTHED * float(np.ptp(points, axis=0).max()))))


def varying(rng: np.random.Generator, points: Array) -> Array:
    """Return a factor [V] of points [V, 3] about 1, by `SPREAD` either way at most: two waves across the body."""
    extent = np.ptp(points, axis=0).max()
    waves, shift = rng.normal(size=(2, 3)), rng.uniform(0.0, 2.0 * np.pi, 2)
    waves *= (np.array([2.0, 3.5]) / extent / np.linalg.norm(waves, axis=1))[:, None]
    return np.asarray(1.0 + 0.5 * SPREAD * np.sin(points @ waves.T + shift).sum(axis=1))


def ball_tets(radius_m: float) -> tuple[Array, NDArray[np.int64]]:
    """Return the vertices [85, 3] m and tets [320, 4] of a ball: its centre and two shells of 42 vertices."""
    import trimesh

    shell = trimesh.creation.icosphere(1, 1.0)
    ball, faces = np.asarray(shell.vertices), np.sort(np.asarray(shell.faces), axis=1)
    count = len(ball)
    vertices = radius_m * np.concatenate([ball, 0.5 * ball, np.zeros((1, 3))])
    a, b, c = faces.T
    inner, centre = count, np.full(len(faces), 2 * count)
    tets = np.concatenate([  # prisms between the shells are split alike: along the way of their sorted corners
        np.column_stack(corners)
        for corners in (
            (a, b, c, c + inner), (a, b, b + inner, c + inner), (a, a + inner, b + inner, c + inner),
            (a + inner, b + inner, c + inner, centre),
        )
    ])  # fmt: skip
    edges = vertices[tets[:, 1:]] - vertices[tets[:, :1]]
    left = np.linalg.det(edges) < 0.0
    tets[left] = tets[left][:, [0, 2, 1, 3]]
    return vertices, tets.astype(np.int64)

"""gradSim's Table 6 (Jatavallabhula et al., ICLR 2021), bodies that bend: every quantity is found from images alone."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from experiments.gradsim.filmed import Filmed, by_newton
from experiments.gradsim.newton import noisy
from experiments.gradsim.pixels import Actor, Shot, Stage, looking_at, waves
from experiments.gradsim.soft import ball_tets, beam
from tests.gradsim_scenes import Unknown, film, found
from vid2phys.engine.system import System
from vid2phys.engine.systems.cloth import Cloth, sheet
from vid2phys.engine.systems.mass_spring import MassSpring
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.tets import box_tets, check_tets
from vid2phys.types import Array, Mesh, Parameters

Scene = tuple[Shot, Array, Array, Parameters]


@cache
def soft() -> Scene:
    """A block held at one end, pushed and squeezed by a muscle at the other."""
    vertices, tets = box_tets((0.3, 0.1, 0.1), (3, 1, 1))
    muscles = np.where(vertices[tets].mean(axis=1)[:, 0] > 0.1, 0, -1)
    values = {"lame_mu": 2e4, "lame_lambda": 3e4, "density": 300.0, "damping": 20.0}
    system = SoftBody(
        vertices, tets, elements="linear", pinned=np.flatnonzero(vertices[:, 0] == 0.0), muscles=muscles, moduli="lame",
        per_vertex_mass=True, values=values,
    )  # fmt: skip
    shot = _shot(system, system.surface, (0.45, -1.0, 0.4), (0.15, 0.05, 0.05), 0.2, 4)
    controls = shot.rest.numpy()
    controls[:, :4] = [0.3, 0.5, 1.0, 0.2]
    initial = system.rest_state()
    initial[len(initial) // 2 + 2 :: 3] = 0.4 * system.free
    return shot, initial, controls, system.parameters()


@cache
def cloth() -> Scene:
    """A sheet that hangs by two corners in the wind, heavier than is good for it."""
    system = Cloth(
        *sheet(0.4, 0.4, 2, 2), pinned=(6, 8), per_vertex_mass=True, per_edge_rest_angle=True,
        values={"shear_stiffness": 3.0, "area_stiffness": 5.0, "bending_stiffness": 2e-3, "density": 0.4},
    )  # fmt: skip
    shot = _shot(system, system.surface, (0.5, -1.0, 0.5), (0.0, 0.0, 0.15), 0.33, 4)
    controls = shot.rest.numpy()
    controls[:, :3] = [0.5, 3.0, 0.0]
    return shot, system.rest_state(), controls, system.parameters()


@cache
def springs() -> Scene:
    """The basket of springs, each with a ribbon along it, let go from off its balance."""
    system = MassSpring(per_spring=True, masses=np.full(5, 0.05))
    at, pairs = np.asarray(system.rest_m), np.asarray(system.springs)
    side = np.array([0.012, 0.0, 0.012])
    corners = np.concatenate([[at[i] - side, at[j] - side, at[j] + side, at[i] + side] for i, j in pairs])
    faces = np.concatenate([[[4 * s, 4 * s + 1, 4 * s + 2], [4 * s, 4 * s + 2, 4 * s + 3]] for s in range(len(pairs))])
    mesh = Mesh(corners, faces, np.zeros(len(faces), dtype=np.int64), name="ribbons")
    shot = _shot(system, mesh, (0.5, -1.3, 0.1), (0.0, 0.0, -0.2), 0.4, 4)
    parameters = system.parameters()
    values = {name: 15.0 for name in parameters.names if name.startswith("stiffness")}
    return shot, system.rest_state(), shot.rest.numpy(), parameters.with_values(values)


def _shot(system: System, mesh: Mesh | None, eye: tuple, middle: tuple, reach: float, frames: int) -> Shot:
    assert mesh is not None
    actor = Actor.of(system, mesh, texture=waves(mesh.vertices, mesh.faces))
    step_s = 1.0 / 25.0
    longest = 0.4 * system.longest_step_s(system.parameters().vector)
    substeps = max(2, int(np.ceil(step_s / longest)))
    return Shot(system, Stage((actor,), looking_at(eye, middle, reach, 32)), step_s, frames, 1, substeps)


def places(scene: Scene) -> tuple[int, ...]:
    """Indices of the states of the vertices that move, positions."""
    system = scene[0].system
    held = set(np.atleast_1d(system.pinned).tolist())
    count = len(system.state_names) // 6
    return tuple(3 * i + axis for i in range(count) if i not in held for axis in range(3))


def velocities(scene: Scene) -> tuple[int, ...]:
    half = len(scene[0].system.state_names) // 2
    return tuple(half + i for i in places(scene))


def named(scene: Scene, *starts: str) -> tuple[int, ...]:
    names = scene[3].names
    return tuple(i for i, name in enumerate(names) if name.startswith(starts))


def bent(size: float, count: int) -> Array:
    """Off by about `size`, differently everywhere."""
    return size * np.sin(1.0 + 2.4 * np.arange(count))


def check(scene: Scene, unknown: Unknown, share: float, iterations: int = 25) -> None:
    """Root mean square of the errors left, as a share of those of the start."""
    filmed = film(*scene, unknown)
    value = found(filmed, iterations)
    start = np.array([p.value for p in filmed.unknown])
    assert np.linalg.norm(value - filmed.truth) < share * np.linalg.norm(start - filmed.truth)


@pytest.mark.parametrize(
    ("make", "what"),
    [(soft, "positions"), *((make, what) for make in (cloth, springs) for what in ("positions", "velocities"))],
)
def test_where_every_particle_is_and_goes(make: object, what: str) -> None:
    scene = make()  # type: ignore[operator]
    where = places(scene) if what == "positions" else velocities(scene)
    size = 0.01 if what == "positions" else 0.25
    check(scene, Unknown("state", where, bent(size, len(where))), 0.35, 40)


@pytest.mark.parametrize("make", [soft, cloth, springs])
def test_what_every_particle_weighs(make: object) -> None:
    scene = make()  # type: ignore[operator]
    held = set(np.atleast_1d(scene[0].system.pinned).tolist())
    free = tuple(i for i in named(scene, "mass_") if int(scene[3].names[i].removeprefix("mass_")) not in held)
    check(scene, Unknown("parameter", free, 0.3 + bent(0.1, len(free))), 0.45, 40)


@pytest.mark.parametrize("make", [soft, cloth, springs])
def test_gravity(make: object) -> None:
    scene = make()  # type: ignore[operator]
    check(scene, Unknown("parameter", named(scene, "gravity"), -3.0), 0.02)


@pytest.mark.parametrize("name", ["lame_mu", "lame_lambda", "damping"])
def test_the_moduli_of_a_soft_body(name: str) -> None:
    check(soft(), Unknown("parameter", named(soft(), name), 0.4 if name != "damping" else 8.0), 0.02)


def test_what_drives_a_soft_body() -> None:
    """The activation of its muscle, and the force on it."""
    check(soft(), Unknown("control", (3,), -0.15), 0.02)
    check(soft(), Unknown("control", (0, 1, 2), np.array([0.3, -0.3, 0.4])), 0.02)


@pytest.mark.parametrize("name", ["shear_stiffness", "area_stiffness", "bending_stiffness", "lift"])
def test_the_stuff_of_a_cloth(name: str) -> None:
    off = {"bending_stiffness": 1e-3, "lift": -0.2}.get(name, 0.3)
    check(cloth(), Unknown("parameter", named(cloth(), name), off), 0.03)


def test_the_wind_and_the_folds_of_a_cloth() -> None:
    check(cloth(), Unknown("control", (0, 1, 2), np.array([0.4, -0.8, 0.5])), 0.1)
    angles = named(cloth(), "rest_angle")
    check(cloth(), Unknown("parameter", angles, bent(0.3, len(angles))), 0.35, 40)


@pytest.mark.parametrize("name", ["stiffness", "rest_length"])
def test_every_spring(name: str) -> None:
    where = named(springs(), name)
    check(springs(), Unknown("parameter", where, 0.1 + bent(0.05, len(where))), 0.45, 40)


def test_a_hanging_beam_tells_mu_better_than_lambda() -> None:
    """Both are found where nothing errs; from noisy images lambda's interval is wider by far, and still right."""
    filmed: Filmed = beam(np.random.default_rng(1), "moduli", cells=(4, 1, 1), frames=5, size_px=32)
    fit = by_newton(replace(filmed, seen=noisy(filmed.target, np.random.default_rng(2))), np.zeros((0, 2)))
    widths = {}
    for name, truth in zip(filmed.unknown.names, filmed.truth, strict=True):
        low, high = fit[name].ci95
        assert low < truth < high
        widths[name] = np.log(high / low)
    assert widths["lame_lambda"] > 3.0 * widths["lame_mu"]


def test_the_ball_is_a_ball() -> None:
    vertices, tets = ball_tets(0.1)
    check_tets(vertices, tets)
    corners = vertices[tets]
    volume = np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1])).sum() / 6.0
    assert volume == pytest.approx(4.0 / 3.0 * np.pi * 1e-3, rel=0.15)

"""Cloth against what is known without our kernels: an energy differentiated by PyTorch, closed forms, conservation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq, minimize

from tests.oracles import shell as oracle
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems._shell import bend
from vid2phys.engine.systems.cloth import Cloth, sheet
from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import matrix_from_quat, quat_from_rotvec
from vid2phys.types import Array

STILL = {"damping": 0.0, "bending_damping": 0.0, "drag": 0.0, "lift": 0.0, "gravity": 0.0}


def dome() -> tuple[Array, Array]:
    """A sheet of 4 x 3 vertices whose rest shape is bent along both directions."""
    vertices, triangles = sheet(0.6, 0.4, 3, 2)
    vertices[:, 1] = 0.3 * vertices[:, 0] ** 2 - 0.5 * vertices[:, 2] ** 2 + 0.1 * vertices[:, 0]
    return vertices, triangles


def as_oracle(cloth: Cloth, values: Array) -> oracle.Sheet:
    p = dict(zip(cloth.parameters().names, values, strict=True))
    names = ("shear_stiffness", "area_stiffness", "bending_stiffness", "damping", "bending_damping")
    return oracle.Sheet(cloth.rest_m, cloth.elements, *(float(p[n]) for n in names))


def forces(cloth: Cloth, x: Array, v: Array | float = 0.0, controls: Array | None = None, **values: float) -> Array:
    """Forces [V, 3] N, from the change of velocity in one short step."""
    vector = cloth.parameters().with_values(values).vector
    state, dt_s = cloth.state(x, v), 1e-6
    u = np.zeros(6) if controls is None else controls
    after = simulate(cloth, state[None], u[None, None], vector, dt_s)[0, 1]
    change = cloth.velocities(after) - cloth.velocities(state)
    return cloth.masses(vector)[:, None] * change / dt_s


def run(
    cloth: Cloth, state: Array, seconds: float, frames: int, controls: Array | None = None, **values: float
) -> Array:
    vector = cloth.parameters().with_values(values).vector
    dt_s = seconds / frames
    u = np.broadcast_to(np.zeros(6) if controls is None else controls, (1, frames, 6))
    substeps = int(np.ceil(dt_s / cloth.longest_step_s(vector)))
    return simulate(cloth, state[None], u, vector, dt_s, substeps=substeps)[0]


@pytest.mark.parametrize("options", [{}, {"per_vertex_mass": True, "per_edge_rest_angle": True}])
def test_forces_are_minus_the_gradient_of_the_energy(options: dict) -> None:
    rng = np.random.default_rng(0)
    cloth = Cloth(*dome(), **options)
    values = {**STILL, "bending_stiffness": 0.3, "damping": 2.0, "bending_damping": 0.1}
    angles = None
    if options:
        chosen = rng.uniform(-1.0, 1.0, len(cloth.hinges.vertices))
        values |= {f"rest_angle_{j}": a for j, a in enumerate(chosen)}
        edges = np.sort(cloth.hinges.vertices[:, 2:], axis=1).tolist()
        angles = {tuple(e): a for e, a in zip(edges, chosen, strict=True)}
    reference = as_oracle(cloth, cloth.parameters().with_values(values).vector)
    border = 10
    assert len(reference.sides()) == len(cloth.hinges.vertices) == (3 * len(cloth.elements) - border) / 2
    for _ in range(3):
        x = cloth.rest_m + rng.normal(0.0, 0.05, cloth.rest_m.shape)
        v = rng.normal(0.0, 1.0, x.shape)
        expected = oracle.forces(reference, x, v, angles)
        got = forces(cloth, x, v, **values)
        np.testing.assert_allclose(got, expected, atol=1e-12 * np.abs(expected).max())


def test_folding_away_from_the_front_is_positive() -> None:
    vertices, triangles = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0.5]]), np.array([[0, 1, 2], [1, 3, 2]])
    angle = Cloth(vertices, triangles).hinges.angles[0]
    assert angle < 0.0  # the front is up, and the second triangle comes up


def test_no_force_at_rest_however_turned_and_moved() -> None:
    rng = np.random.default_rng(1)
    cloth = Cloth(*dome())
    values = {"drag": 0.0, "lift": 0.0, "gravity": 0.0, "bending_stiffness": 0.3, "damping": 2.0}
    stretched = forces(cloth, 1.01 * cloth.rest_m, **values)
    for rotation in matrix_from_quat(quat_from_rotvec(rng.normal(0.0, 1.5, (5, 3)))):
        x = cloth.rest_m @ rotation.T + rng.normal(size=3)
        spin = rng.normal(0.0, 1.0, 3)
        v = np.cross(spin, x) + rng.normal(size=3)
        np.testing.assert_allclose(forces(cloth, x, v, **values), 0.0, atol=1e-11 * np.abs(stretched).max())


def contraction(along: float, mu: float, k: float) -> float:
    """Width of a strip stretched by `along` whose sides are free: the energy's derivative by the width is zero."""
    return brentq(lambda w: mu * (w - along) + k * (along * w - 1.0) * along, 0.1, 3.0, xtol=1e-14)


def pull(along: float, mu: float, k: float) -> float:
    """Force a width at rest [N/m]: the energy's derivative by the length at that width."""
    w = contraction(along, mu, k)
    return mu * (along - w) + k * (along * w - 1.0) * w


def test_uniaxial_stretch_is_uniform_in_closed_form() -> None:
    mu, k, along = 30.0, 80.0, 1.4
    vertices, triangles = sheet(0.5, 1.0, 2, 4)
    cloth = Cloth(vertices, triangles)
    x = vertices * [contraction(along, mu, k), 1.0, along]
    got = forces(cloth, x, **STILL, shear_stiffness=mu, area_stiffness=k)
    top, bottom = vertices[:, 2] == 1.0, vertices[:, 2] == 0.0
    np.testing.assert_allclose(got[~(top | bottom)], 0.0, atol=1e-8)
    np.testing.assert_allclose(got[top].sum(axis=0), [0.0, 0.0, -0.5 * pull(along, mu, k)], atol=1e-8)
    # small strains: Young's modulus and Poisson's ratio of the docstring
    assert pull(1.0 + 1e-6, mu, k) / 1e-6 == pytest.approx(4.0 * k * mu / (k + mu), rel=1e-5)
    assert (1.0 - contraction(1.0 + 1e-6, mu, k)) / 1e-6 == pytest.approx((k - mu) / (k + mu), rel=1e-5)


def test_a_loaded_strip_settles_at_the_closed_form() -> None:
    """Clamped above, pulled by 1.5 N below: the middle, four widths from both ends, is in uniaxial tension."""
    mu, k, force = 30.0, 60.0, 1.5
    vertices, triangles = sheet(0.1, 0.8, 2, 16)
    cloth = Cloth(vertices, triangles, pinned=np.arange(48, 51), load_vertices=(0, 1, 2))
    load = np.array([0.0, 0.0, 0.0, 0.0, 0.0, -force])
    along = brentq(lambda stretch: pull(stretch, mu, k) - force / 0.1, 1.0, 3.0)
    across = contraction(along, mu, k)
    values = {**STILL, "shear_stiffness": mu, "area_stiffness": k, "damping": 0.05}
    start = cloth.state((vertices - [0.0, 0.0, 0.8]) * [across, 1.0, along] + np.array([0.0, 0.0, 0.8]))
    states = run(cloth, start, 1.0, 10, load, **values)
    x = cloth.positions(states[-1])
    assert np.abs(cloth.velocities(states[-1])).max() < 1e-3
    got = [(x[27, 2] - x[21, 2]) / 0.1, (x[26, 0] - x[24, 0]) / 0.1]
    np.testing.assert_allclose(got, [along, across], rtol=5e-5)


def chain(strip: Array, triangles: Array, angles: Array) -> Array:
    """Vertices of a strip of rigid triangles, neighbours in the list sharing an edge, folded by `angles` in turn."""
    x = strip.copy()
    for i, angle in enumerate(angles):
        one, other = triangles[i], triangles[i + 1]
        k = next(k for k in range(3) if one[k] in other and one[(k + 1) % 3] in other)
        start, end = x[one[k]], x[one[(k + 1) % 3]]
        axis = (end - start) / np.linalg.norm(end - start)
        rotation = matrix_from_quat(quat_from_rotvec(angle * axis))
        moved = np.setdiff1d(triangles[i + 1 :], triangles[: i + 1])
        x[moved] = start + (x[moved] - start) @ rotation.T
    return x


def test_a_clamped_strip_bends_as_a_chain_of_hinges() -> None:
    """Rigid triangles and hinge energies 4 s B (1 - cos(phi/2)), the least energy under a load found by SciPy."""
    side, bending, force = 0.1, 1e-3, 4e-3
    ends = np.arange(8)
    strip = np.column_stack([0.5 * side * ends, np.sqrt(0.75) * side * (ends % 2), 0.0 * ends])
    triangles = np.array([[i, i + 1, i + 2] if i % 2 else [i, i + 2, i + 1] for i in range(6)])
    cloth = Cloth(strip, triangles, pinned=(0, 1, 2), load_vertices=(6, 7))
    values = {**STILL, "shear_stiffness": 100.0, "area_stiffness": 100.0, "bending_stiffness": bending}
    values |= {"bending_damping": 3e-4, "damping": 0.01, "density": 0.1}

    def energy(angles: Array) -> float:
        hinges = 8.0 / np.sqrt(3.0) * bending * (1.0 - np.cos(angles / 2.0)).sum()
        return 1e3 * (hinges - 0.5 * force * chain(strip, triangles, angles)[6:, 2].sum())

    best = minimize(energy, np.zeros(5), options={"gtol": 1e-9})
    expected = chain(strip, triangles, best.x)
    load = np.array([0.0, 0.0, 0.0, 0.0, 0.0, force])
    states = run(cloth, cloth.state(expected), 2.0, 10, load, **values)
    x = cloth.positions(states[-1])
    assert expected[-1, 2] > 0.05, "the bending has to be large"
    np.testing.assert_allclose(x, expected, atol=3e-4)  # sides of 0.1 m, stretched by less than 1e-3


def test_bending_stiffness_is_the_flexural_rigidity_of_equilateral_triangles() -> None:
    """Rolled up on a cylinder of radius R, in any direction, an area has the energy B / (2 R^2)."""
    size, radius = 20, 5.0
    i, j = np.meshgrid(np.arange(size + 1), np.arange(size + 1), indexing="ij")
    flat = np.stack([i + 0.5 * j, np.sqrt(0.75) * j], axis=-1).reshape(-1, 2) * 0.1
    a = (i * (size + 1) + j)[:-1, :-1].ravel()
    b, c, d = a + size + 1, a + size + 2, a + 1
    triangles = np.concatenate([np.stack([a, b, d], axis=1), np.stack([b, c, d], axis=1)])
    cloth = Cloth(np.column_stack([flat, np.zeros(len(flat))]), triangles)
    edge = flat[cloth.hinges.vertices[:, 3]] - flat[cloth.hinges.vertices[:, 2]]
    kind = np.round(np.arctan2(edge[:, 1], edge[:, 0]) % np.pi / (np.pi / 3.0)).astype(int) % 3
    for direction in (0.0, 0.3, 1.1):
        cosine, sine = np.cos(direction), np.sin(direction)
        turn, across = flat @ [cosine, sine] / radius, flat @ [-sine, cosine]
        rolled = np.stack([radius * np.sin(turn), across, radius * np.cos(turn)], axis=1)
        energies = 4.0 * cloth.hinges.shape * (1.0 - np.cos(bend(rolled[cloth.hinges.vertices])[0] / 2.0))
        # two triangles have one hinge of each of the three kinds
        density = sum(energies[kind == k].mean() for k in range(3)) / (2.0 * cloth.triangles.areas[0])
        assert density == pytest.approx(1.0 / (2.0 * radius**2), rel=1e-3)


def test_falling_flat_reaches_the_terminal_velocity() -> None:
    """rho v' = rho g - (drag + lift) v^2, so v = v_t tanh(g t / v_t)."""
    vertices, triangles = sheet(0.5, 0.5, 3, 3)
    cloth = Cloth(vertices[:, [0, 2, 1]], triangles)
    values = {"drag": 0.4, "lift": 0.7, "density": 0.2}
    states = run(cloth, cloth.state(cloth.rest_m), 1.0, 1000, **values)
    v = cloth.velocities(states)
    terminal = np.sqrt(0.2 * 9.81 / 1.1)
    expected = -terminal * np.tanh(9.81 * np.linspace(0.0, 1.0, 1001) / terminal)
    np.testing.assert_allclose(
        v[..., 2], np.repeat(expected[:, None], 16, axis=1), atol=5e-3
    )  # first order: steps of 1 ms
    np.testing.assert_allclose(v[-1, :, 2], -terminal, rtol=1e-4)


def test_air_pushes_each_triangle_by_the_formula() -> None:
    rng = np.random.default_rng(2)
    cloth = Cloth(np.array([[0.0, 0, 0], [0.5, 0.1, 0], [0.1, 0.4, 0.2]]), np.array([[0, 1, 2]]))
    v, wind = rng.normal(0.0, 2.0, (3, 3)), rng.normal(0.0, 3.0, 3)
    u = wind - v.mean(axis=0)
    cross = np.cross(cloth.rest_m[1] - cloth.rest_m[0], cloth.rest_m[2] - cloth.rest_m[0])
    area, n = 0.5 * np.linalg.norm(cross), cross / np.linalg.norm(cross)
    expected = area * (0.3 * abs(n @ u) * u + 0.8 * np.linalg.norm(u) * (n @ u) * n)
    values = {**STILL, "drag": 0.3, "lift": 0.8}
    got = forces(cloth, cloth.rest_m, v, np.array([*wind, 0.0, 0.0, 0.0]), **values)
    np.testing.assert_allclose(got, np.tile(expected / 3.0, (3, 1)), atol=1e-8)
    # only the motion relative to the air counts
    moving = forces(cloth, cloth.rest_m, v - wind, **values)
    np.testing.assert_allclose(got, moving, atol=1e-8)


def test_momentum_is_kept_without_forces_from_outside() -> None:
    rng = np.random.default_rng(3)
    cloth = Cloth(*dome())
    values = {**STILL, "bending_stiffness": 0.01, "damping": 0.05, "bending_damping": 1e-3}
    start = cloth.state(cloth.rest_m + rng.normal(0.0, 0.02, cloth.rest_m.shape), rng.normal(0.0, 1.0, (12, 3)))
    states = run(cloth, start, 1.0, 20, **values)
    mass = cloth.masses(cloth.parameters().vector)[:, None]
    x, v = cloth.positions(states), cloth.velocities(states)
    linear, angular = (mass * v).sum(axis=1), (mass * np.cross(x, v)).sum(axis=1)
    np.testing.assert_allclose(linear, np.tile(linear[:1], (21, 1)), atol=1e-12)
    np.testing.assert_allclose(angular, np.tile(angular[:1], (21, 1)), atol=1e-12)
    assert np.linalg.norm(angular[0]) > 1e-3


def test_energy_never_grows_without_input() -> None:
    """A sheet dropped from level, held by two corners, in still air, on the ground for a while."""
    vertices, triangles = sheet(0.6, 0.6, 4, 4)
    vertices = vertices[:, [0, 2, 1]] + [0.0, 0.0, 0.3]
    cloth = Cloth(vertices, triangles, pinned=(0, 4), ground=True)
    vector = cloth.parameters().with_values({"k_e": 20.0, "mu": 0.3}).vector
    reference, mass = as_oracle(cloth, vector), cloth.masses(vector)

    def energy(state: Array) -> float:
        x, v = cloth.positions(state), cloth.velocities(state)
        depth = np.maximum(-x[:, 2], 0.0)
        outside = mass @ (9.81 * x[:, 2] + 0.5 * (v**2).sum(axis=1)) + 10.0 * (depth**2).sum()
        return float(outside + reference.energy(oracle.torch.tensor(x)))

    states = run(cloth, cloth.state(vertices), 1.5, 150, k_e=20.0, mu=0.3)
    energies = np.array([energy(s) for s in states])
    assert cloth.positions(states)[..., 2].min() < -1e-3, "the ground has to be touched"
    assert np.diff(energies).max() < 1e-4 * np.ptp(energies)
    assert energies[-1] < energies[0] - 0.1


@pytest.mark.parametrize("values", [{}, {"bending_stiffness": 0.05}, {"damping": 0.5}, {"bending_damping": 0.01}])
def test_longest_step_is_stable_and_not_much_too_short(values: dict[str, float]) -> None:
    """Against the eigenvalues of the step made of the oracle's matrices at rest, and by stepping."""
    cloth = Cloth(*dome())
    vector = cloth.parameters().with_values({**STILL, "damping": 0.02, **values}).vector
    reference, mass = as_oracle(cloth, vector), np.repeat(cloth.masses(vector), 3)
    stiffness, damping = oracle.stiffness(reference) / mass[:, None], oracle.damping(reference) / mass[:, None]
    size = len(mass)

    def growth(h: float) -> float:
        kick = np.block([[-h * stiffness, np.eye(size) - h * damping]])
        step = np.vstack([np.hstack([np.eye(size), np.zeros((size, size))]) + h * kick, kick])
        return float(np.abs(np.linalg.eigvals(step)).max())

    longest = cloth.longest_step_s(vector)
    limit = brentq(lambda h: growth(h) - 1.01, longest, 20.0 * longest)
    assert growth(longest) < 1.0 + 1e-6
    assert limit < 4.0 * longest
    rng = np.random.default_rng(4)
    start = cloth.state(cloth.rest_m + rng.normal(0.0, 1e-4, cloth.rest_m.shape))
    states = simulate(cloth, start[None], np.zeros((1, 2000, 6)), vector, 0.999 * longest)[0]
    assert np.abs(cloth.positions(states) - cloth.rest_m).max() < 2e-3


def test_a_sheet_lies_on_the_ground_as_deep_as_its_springs_say() -> None:
    vertices, triangles = sheet(0.3, 0.3, 2, 2)
    cloth = Cloth(vertices[:, [0, 2, 1]], triangles, ground=True, values={"bending_stiffness": 0.1})
    states = run(cloth, cloth.state(cloth.rest_m + np.array([0.0, 0.0, 0.01])), 3.0, 10, k_e=50.0, k_d=0.3)
    weight = 0.2 * 0.09 * 9.81
    assert -cloth.positions(states[-1])[:, 2].sum() == pytest.approx(weight / 50.0, rel=1e-4)


def test_pins_hold_and_loads_are_shared() -> None:
    cloth = Cloth(load_vertices=(0, 1))
    push = np.array([0.0, 0.0, 0.0, 0.2, 0.4, -0.6])
    got = forces(cloth, cloth.rest_m, 0.0, push, **STILL)
    np.testing.assert_allclose(got[:2], np.tile(push[3:] / 2.0, (2, 1)), atol=1e-9)
    np.testing.assert_allclose(got[2:], 0.0, atol=1e-9)
    states = run(cloth, cloth.state(cloth.rest_m), 0.5, 10, push)
    np.testing.assert_array_equal(cloth.positions(states)[:, [6, 8]], np.tile(cloth.rest_m[[6, 8]], (11, 1, 1)))
    assert np.abs(cloth.positions(states[-1])[0] - cloth.rest_m[0]).max() > 0.05


SQUARE = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0.5, 0.5, 1]])


@pytest.mark.parametrize(
    ("vertices", "triangles", "match"),
    [
        (SQUARE[:3], [[0, 1, 2], [0, 2, 2]], r"triangle 1 .* has no area.*merge"),
        (np.array([[0.0, 0, 0], [1, 0, 0], [2, 0, 0]]), [[0, 1, 2]], "triangle 0 .* has no area"),
        (SQUARE, [[0, 1, 2], [0, 2, 3], [0, 2, 4]], "3 triangles share the edge between vertices 0 and 2.*split"),
        (SQUARE, [[0, 1, 2], [0, 2, 3]], "vertex 4 .* belongs to no element.*remove"),
        (SQUARE[:4], [[0, 1, 2, 3]], "triangles .*surface mesh"),
    ],
)
def test_what_is_no_sheet_is_refused(vertices: Array, triangles: list, match: str) -> None:
    with pytest.raises(InputError, match=match):
        Cloth(vertices, np.array(triangles))


def test_what_cannot_be_simulated_is_refused() -> None:
    cloth = Cloth(per_vertex_mass=True)
    vector = cloth.parameters().vector
    vector[cloth.parameters().names.index("mass_3")] = 0.0
    with pytest.raises(UsageError, match=r"mass_3 = 0 kg.*choose a mass_3"):
        simulate(cloth, cloth.state(cloth.rest_m)[None], np.zeros((1, 1, 6)), vector, 1e-3)
    with pytest.raises(UsageError, match="density"):
        Cloth(values={"weight": 1.0})
    with pytest.raises(UsageError, match="one of"):
        Cloth(values={"mass_0": 1.0})
    with pytest.raises(UsageError, match="both or neither"):
        Cloth(vertices=SQUARE)
    with pytest.raises(InputError, match="load vertices"):
        Cloth(load_vertices=(17,))

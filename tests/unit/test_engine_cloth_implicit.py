"""Implicit Euler of cloth against refined explicit steps, the oracle's energy, SciPy and differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.sparse import csc_array

from tests.oracles import shell as oracle
from vid2phys.engine import implicit
from vid2phys.engine.rollout import rollout, simulate
from vid2phys.engine.systems.cloth import Cloth, sheet
from vid2phys.types import Array

STIFF = ("shear_stiffness", "area_stiffness", "bending_stiffness")
IDLE = np.zeros(6)


def level(cells: int, size_m: float = 0.6, height_m: float = 0.3) -> tuple[Array, Array]:
    """A square sheet of cells x cells, parallel to the ground."""
    vertices, triangles = sheet(size_m, size_m, cells, cells)
    return vertices[:, [0, 2, 1]] + [0.0, 0.0, height_m], triangles


def stiffened(cloth: Cloth, factor: float, **values: float) -> Array:
    nominal = {name: factor * cloth.parameters()[name].value for name in STIFF}
    return cloth.parameters().with_values({**nominal, **values}).vector


def run(cloth: Cloth, state: Array, parameters: Array, dt_s: float, frames: int, controls: Array = IDLE) -> Array:
    inputs = state[None], np.tile(controls, (1, frames, 1)), parameters
    return simulate(cloth, *inputs, dt_s, integrator="implicit_euler")[0]


def as_oracle(cloth: Cloth, parameters: Array) -> oracle.Sheet:
    p = dict(zip(cloth.parameters().names, parameters, strict=True))
    return oracle.Sheet(cloth.rest_m, cloth.elements, *(float(p[name]) for name in STIFF))


def energies(cloth: Cloth, parameters: Array, states: Array) -> Array:
    """Elastic energy, kinetic energy, weight and ground of every state [J]."""
    p = dict(zip(cloth.parameters().names, parameters, strict=True))
    reference, mass = as_oracle(cloth, parameters), cloth.masses(parameters)
    x, v = cloth.positions(states), cloth.velocities(states)
    outside = (mass * (p["gravity"] * x[..., 2] + 0.5 * (v**2).sum(axis=-1))).sum(axis=-1)
    if cloth.ground:
        outside += 0.5 * p["k_e"] * (np.minimum(x[..., 2], 0.0) ** 2).sum(axis=-1)
    return outside + np.array([float(reference.energy(torch.tensor(one))) for one in x])


def bent(**options: object) -> Cloth:
    vertices, triangles = sheet(0.6, 0.4, 3, 2)
    vertices[:, 1] = 0.3 * vertices[:, 0] ** 2 - 0.5 * vertices[:, 2] ** 2
    return Cloth(vertices, triangles, **options)  # type: ignore[arg-type]


def dense(cloth: Cloth, entries: Array) -> Array:
    pattern = cloth.step_equations.pattern
    return np.asarray(csc_array((entries, pattern.indices, pattern.starts)).toarray())


@pytest.mark.parametrize(
    "options", [{}, {"ground": True, "per_vertex_mass": True, "per_edge_rest_angle": True, "pinned": (3,)}]
)
def test_the_matrix_is_the_derivative_of_the_explicit_step(options: dict) -> None:
    rng, h = np.random.default_rng(0), 0.01
    cloth = bent(**options)
    parameters = cloth.parameters().with_values({"bending_stiffness": 0.3, "damping": 2.0, "bending_damping": 0.1})
    p, u, free = parameters.vector, rng.normal(size=6), np.repeat(cloth.free, 3)
    x = (cloth.rest_m + rng.normal(0.0, 0.05, cloth.rest_m.shape)).ravel()
    w = free * rng.normal(size=x.size)
    equations, mass = cloth.step_equations, np.repeat(cloth.masses(p), 3)
    step = equations.evaluate(u, p, h)

    def residual(w: Array) -> Array:
        return mass * (step(np.concatenate([x + h * w, w]), np.zeros(0))[0] - 2.0 * w)

    assert not cloth.ground or ((x + h * w)[2::3] < 0.0).any()
    columns = []
    for e in 1e-3 * np.eye(x.size):
        near, far = residual(w + e) - residual(w - e), residual(w + 2 * e) - residual(w - 2 * e)
        columns.append((far - 8.0 * near) / 12e-3)
    numeric, moves = np.stack(columns, axis=1), free > 0.0
    matrix = dense(cloth, equations.entries(np.concatenate([x + h * w, w]), np.zeros(0), u, p, h))
    error = np.abs(matrix - numeric)[np.ix_(moves, moves)].max()
    assert error < 1e-11 * np.abs(numeric).max()
    np.testing.assert_array_equal(matrix[~moves], np.diag(mass)[~moves])


def test_what_descent_takes_for_the_matrix_is_definite() -> None:
    """Large random deformations of a light sheet over long steps, where the exact one is not."""
    rng, h = np.random.default_rng(1), 0.03
    cloth = bent(ground=True)
    p = stiffened(cloth, 10.0, density=1e-3, damping=1.0, bending_damping=1e-3)
    equations, negative = cloth.step_equations, 0
    for size in (0.01, 0.05, 0.2, 0.2):
        x, v = cloth.rest_m + rng.normal(0.0, size, cloth.rest_m.shape), rng.normal(size=cloth.rest_m.shape)
        given = cloth.state(x, v), rng.normal(size=6), p, h
        symmetric, definite = equations.symmetric_entries(*given), equations.definite_entries(*given)
        smallest = np.linalg.eigvalsh(dense(cloth, symmetric))[0]
        negative += int(smallest < 0.0)
        assert equations.pattern.is_definite(symmetric) == (smallest > 0.0)
        assert np.linalg.eigvalsh(dense(cloth, definite))[0] > 0.0
        assert equations.pattern.is_definite(definite)
    assert negative > 0


def test_refined_steps_converge_to_the_explicit_motion_at_first_order() -> None:
    """A sheet hung by two corners, let go from level in a wind."""
    vertices, triangles = level(3)
    cloth = Cloth(vertices, triangles, pinned=(0, 3))
    wind, seconds = np.array([1.0, 0.5, 2.0, 0.0, 0.0, 0.0]), 0.2
    p, start = stiffened(cloth, 1.0, bending_stiffness=1e-3), cloth.state(vertices)
    substeps = int(np.ceil(seconds / (0.02 * cloth.longest_step_s(p))))
    exact = simulate(cloth, start[None], wind[None, None], p, seconds, substeps=substeps)[0, 1]
    errors = []
    for count in (50, 100, 200):
        end = run(cloth, start, p, seconds / count, count, wind)[-1]
        errors.append(np.abs(cloth.positions(end) - cloth.positions(exact)).max())
    moved = np.abs(cloth.positions(exact) - vertices).max()
    assert moved > 0.05
    assert errors[-1] < 0.02 * moved
    np.testing.assert_allclose([errors[0] / errors[1], errors[1] / errors[2]], 2.0, atol=0.2)


def test_a_hanging_sheet_comes_to_rest_where_the_energy_is_least() -> None:
    vertices, triangles = level(3)
    cloth = Cloth(vertices, triangles, pinned=(0, 3))
    p = stiffened(cloth, 1.0, bending_stiffness=1e-2)
    end = run(cloth, cloth.state(vertices), p, 0.2, 300)[-1]
    reference, free = as_oracle(cloth, p), cloth.free == 1.0
    weights = torch.tensor(9.81 * cloth.masses(p))

    def energy(inner: Array) -> tuple[float, Array]:
        x = torch.tensor(vertices)
        x[free] = torch.tensor(inner.reshape(-1, 3))
        x.requires_grad_(True)
        value = reference.energy(x) + (weights * x[:, 2]).sum()
        value.backward()
        assert x.grad is not None
        return value.item(), x.grad.numpy()[free].ravel()

    dropped = vertices - 0.1 * (vertices[:, 1:2] - vertices[0, 1]) * [0.0, 0.0, 1.0]
    best = minimize(energy, dropped[free].ravel(), jac=True, method="BFGS", options={"gtol": 1e-8, "maxiter": 2000})
    x = cloth.positions(end)
    assert np.abs(cloth.velocities(end)).max() < 1e-6
    assert np.abs(x - vertices).max() > 0.2
    np.testing.assert_allclose(x[free], best.x.reshape(-1, 3), atol=1e-5)


@pytest.mark.parametrize("kind", ["hung", "dropped on an edge"])
def test_ten_milliseconds_are_stable_when_stiff_and_energy_never_grows(kind: str) -> None:
    """Fifty times the default stiffness; the sheet buckles as it lands, folds and comes to rest."""
    if kind == "hung":
        vertices, triangles = level(5)
        cloth = Cloth(vertices, triangles, pinned=(0, 5))
    else:
        vertices, triangles = sheet(0.6, 0.6, 5, 5, bottom_m=0.05)
        cloth = Cloth(vertices, triangles, ground=True)
    contact = {"k_e": 20.0, "mu": 0.3} if cloth.ground else {}
    p = stiffened(cloth, 50.0, **contact)
    assert cloth.longest_step_s(p) < 1e-3
    rng = np.random.default_rng(2)
    start = cloth.state(vertices + cloth.free[:, None] * rng.normal(0.0, 1e-3, vertices.shape))
    states = run(cloth, start, p, 0.01, 100)
    total = energies(cloth, p, states)
    assert np.diff(total).max() < 1e-10 * np.ptp(total)
    assert np.ptp(total) > 0.1
    if cloth.ground:
        assert cloth.positions(states)[..., 2].min() < -1e-3, "the ground has to be touched"


def test_gradients_hold_over_long_steps_with_the_motion_large() -> None:
    vertices, triangles = level(3)
    cloth = Cloth(vertices, triangles, pinned=(0, 3))
    p, rng = stiffened(cloth, 20.0), np.random.default_rng(3)
    start = cloth.state(vertices + cloth.free[:, None] * rng.normal(0.0, 1e-2, vertices.shape))
    controls, weights = rng.normal(size=(1, 12, 6)), rng.normal(size=13 * start.size).reshape(1, 13, -1)
    values = torch.tensor(p, requires_grad=True)
    inputs = torch.tensor(start[None]), torch.tensor(controls), values
    (torch.tensor(weights) * rollout(cloth, *inputs, 0.01, integrator="implicit_euler")).sum().backward()
    assert values.grad is not None
    for name in ("shear_stiffness", "bending_stiffness", "density"):
        column = cloth.parameters().names.index(name)

        def loss(change: float, column: int = column) -> float:
            moved = p * (1.0 + change * np.eye(p.size)[column])
            return float(
                (weights * simulate(cloth, start[None], controls, moved, 0.01, integrator="implicit_euler")).sum()
            )

        h = 1e-4
        near, far = loss(h) - loss(-h), loss(2 * h) - loss(-2 * h)
        numeric = (8.0 * near - far) / (12.0 * h * p[column])
        assert float(values.grad[column]) == pytest.approx(numeric, rel=1e-6)


def test_wide_bands_are_left_to_superlu_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    vertices, triangles = sheet(0.6, 0.6, 4, 4, bottom_m=0.02)
    rng = np.random.default_rng(4)
    vertices = vertices + rng.normal(0.0, 1e-3, vertices.shape)

    def end() -> Array:
        cloth = Cloth(vertices, triangles, ground=True)
        return run(cloth, cloth.state(vertices), stiffened(cloth, 10.0, k_e=50.0), 0.01, 15)[-1]

    banded = end()
    monkeypatch.setattr(implicit, "_BAND_BYTES", 0.0)
    np.testing.assert_allclose(end(), banded, atol=1e-9)

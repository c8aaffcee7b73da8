"""Smoke against a slow reference in plain loops, closed forms of flows on a torus, and an initial flow found again."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from vid2phys.engine.rollout import rollout, simulate
from vid2phys.engine.systems.smoke import GRADSIM, Smoke
from vid2phys.errors import UsageError
from vid2phys.types import Array


def values_of(smoke: Smoke, **values: float) -> Array:
    return smoke.parameters().with_values(values).vector


def flow(
    smoke: Smoke, start: Array, values: Array, dt_s: float, steps: int, acceleration: Array | None = None
) -> Array:
    """All states [steps + 1, 3, n, n] from fields [3, n, n]."""
    controls = np.zeros((1, steps, 2)) if acceleration is None else np.broadcast_to(acceleration, (1, steps, 2))
    states = simulate(smoke, start.reshape(1, -1), controls, values, dt_s)
    return states.reshape(steps + 1, *start.shape)


def divergence(u: Array, v: Array, cell_size: float) -> Array:
    """Of fields [..., n, n] on the faces, 1/s."""
    return (np.roll(u, -1, axis=-1) - u + np.roll(v, -1, axis=-2) - v) / cell_size


def places(cells: int, cell_size: float, shift_x: float, shift_z: float) -> tuple[Array, Array]:
    """x and z [n, n] m of a field's entries, those shifted by so many cells from the corners of the grid."""
    along = np.arange(cells)
    x, z = np.meshgrid(cell_size * (along + shift_x), cell_size * (along + shift_z))
    return x, z


def puff(smoke: Smoke, cell_size: float, centre: tuple[float, float], radius: float) -> Array:
    """Density (1 - r^2 / R^2)^2 within the radius [m] about (x, z), none beyond it."""
    x, z = places(smoke.cells, cell_size, 0.5, 0.5)
    return np.maximum(1.0 - ((x - centre[0]) ** 2 + (z - centre[1]) ** 2) / radius**2, 0.0) ** 2


def vortices(smoke: Smoke, cell_size: float, speed: float) -> Array:
    """Taylor and Green's: u = U sin(q x) cos(q z), v = -U cos(q x) sin(q z), one wave across the grid."""
    q = 2.0 * np.pi / (smoke.cells * cell_size)
    x, z = places(smoke.cells, cell_size, 0.0, 0.5)
    u = speed * np.sin(q * x) * np.cos(q * z)
    x, z = places(smoke.cells, cell_size, 0.5, 0.0)
    return np.array([u, -speed * np.cos(q * x) * np.sin(q * z)])


def slow_lookup(field: Array, shift: tuple[float, float], x: float, z: float, h: float) -> float:
    """The sum over all entries (shifted by (x, z) cells from the corners) of their hats on a torus."""
    n, total = len(field), 0.0
    for k in range(n):
        for i in range(n):
            away_x = (x / h - i - shift[0] + 0.5 * n) % n - 0.5 * n
            away_z = (z / h - k - shift[1] + 0.5 * n) % n - 0.5 * n
            total += max(0.0, 1.0 - abs(away_x)) * max(0.0, 1.0 - abs(away_z)) * field[k, i]
    return total


def slow_projection(u: Array, v: Array, iterations: int | None) -> tuple[Array, Array]:
    """By a dense least-squares solution of Poisson's equation, or Jacobi iterations in loops."""
    n = len(u)
    outflow, laplacian = np.zeros((n, n)), np.zeros((n * n, n * n))
    for k in range(n):
        for i in range(n):
            outflow[k, i] = u[k, (i + 1) % n] - u[k, i] + v[(k + 1) % n, i] - v[k, i]
            laplacian[k * n + i, k * n + i] -= 4.0
            for kk, ii in ((k + 1, i), (k - 1, i), (k, i + 1), (k, i - 1)):
                laplacian[k * n + i, (kk % n) * n + ii % n] += 1.0
    if iterations is None:
        p = np.linalg.lstsq(laplacian, outflow.ravel(), rcond=1e-12)[0].reshape(n, n)
    else:
        p = np.zeros((n, n))
        for _ in range(iterations):
            before = p.copy()
            for k in range(n):
                for i in range(n):
                    about = before[k - 1, i] + before[(k + 1) % n, i] + before[k, i - 1] + before[k, (i + 1) % n]
                    p[k, i] = (about - outflow[k, i]) / 4.0
    u, v = u.copy(), v.copy()
    for k in range(n):
        for i in range(n):
            u[k, i] -= p[k, i] - p[k, i - 1]
            v[k, i] -= p[k, i] - p[k - 1, i]
    return u, v


def slow_step(fields: Array, values: dict[str, float], a: Array, dt: float, iterations: int | None) -> Array:
    """One step by the definitions, entry by entry, places in metres."""
    h, (u, v, density) = values["cell_size"], fields
    n, on_u, on_v, in_cell = len(u), (0.0, 0.5), (0.5, 0.0), (0.5, 0.5)
    forced_u, forced_v = np.zeros((n, n)), np.zeros((n, n))
    for k in range(n):
        for i in range(n):
            for old, new in ((u, forced_u), (v, forced_v)):
                second_x = (old[k, (i + 1) % n] - 2.0 * old[k, i] + old[k, i - 1]) / h**2
                second_z = (old[(k + 1) % n, i] - 2.0 * old[k, i] + old[k - 1, i]) / h**2
                new[k, i] = old[k, i] + dt * values["viscosity"] * (second_x + second_z)
            forced_u[k, i] += dt * a[0]
            forced_v[k, i] += dt * (a[1] + values["buoyancy"] * (density[k, i] + density[k - 1, i]) / 2.0)
    moved_u, moved_v, carried = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    for k in range(n):
        for i in range(n):
            x, z = i * h, (k + 0.5) * h
            back = x - dt * slow_lookup(u, on_u, x, z, h), z - dt * slow_lookup(v, on_v, x, z, h)
            moved_u[k, i] = slow_lookup(forced_u, on_u, *back, h)
            x, z = (i + 0.5) * h, k * h
            back = x - dt * slow_lookup(u, on_u, x, z, h), z - dt * slow_lookup(v, on_v, x, z, h)
            moved_v[k, i] = slow_lookup(forced_v, on_v, *back, h)
    new_u, new_v = slow_projection(moved_u, moved_v, iterations)
    for k in range(n):
        for i in range(n):
            x, z = (i + 0.5) * h, (k + 0.5) * h
            back = x - dt * slow_lookup(new_u, on_u, x, z, h), z - dt * slow_lookup(new_v, on_v, x, z, h)
            carried[k, i] = np.exp(-values["dissipation"] * dt) * slow_lookup(density, in_cell, *back, h)
    return np.array([new_u, new_v, carried])


@pytest.mark.parametrize("cells", [5, 6])
@pytest.mark.parametrize("iterations", [None, 6])
def test_agrees_with_a_slow_reference(cells: int, iterations: int | None) -> None:
    smoke = Smoke(cells) if iterations is None else Smoke(cells, "jacobi", iterations)
    given = {"cell_size": 0.2, "viscosity": 0.03, "buoyancy": 2.0, "dissipation": 0.4}
    rng, acceleration = np.random.default_rng(0), np.array([0.7, -0.3])
    start = rng.normal(size=(3, cells, cells))  # rough, and up to two cells a step
    ours = flow(smoke, start, values_of(smoke, **given), 0.15, 4, acceleration)
    reference = [start]
    for _ in range(4):
        reference.append(slow_step(reference[-1], given, acceleration, 0.15, iterations))
    assert np.abs(ours[0, :2]).max() * 0.15 / 0.2 > 1.5
    np.testing.assert_allclose(ours, reference, atol=1e-12)


def test_the_exact_projection_leaves_no_divergence() -> None:
    for cells in (9, 16):
        smoke = Smoke(cells)
        start = np.random.default_rng(1).normal(size=(3, cells, cells))
        end = flow(smoke, start, values_of(smoke), 0.05, 1)[1]
        assert np.abs(divergence(*start[:2], 0.1)).max() > 10.0
        np.testing.assert_allclose(divergence(*end[:2], 0.1), 0.0, atol=1e-12)


def test_jacobi_iterations_damp_each_wave_of_the_divergence_as_theory_has_it() -> None:
    # the wave (a, b) of the residual is multiplied by (cos(2 pi a / n) + cos(2 pi b / n)) / 2 an iteration
    cells, left = 16, []
    x, z = places(cells, 1.0, 0.5, 0.5)
    wave = np.cos(2 * np.pi * (2 * x + z) / cells)
    start = np.zeros((3, cells, cells))
    start[0], start[1] = wave - np.roll(wave, 1, axis=1), wave - np.roll(wave, 1, axis=0)  # a gradient
    factor = (np.cos(4 * np.pi / cells) + np.cos(2 * np.pi / cells)) / 2
    for iterations in (1, 6, 24, 96):
        smoke = Smoke(cells, "jacobi", iterations)
        end = flow(smoke, 1e-13 * start, values_of(smoke), 0.1, 1)[1] / 1e-13  # too slow to be carried anywhere
        left.append(np.abs(divergence(*end[:2], 0.1)).max() / np.abs(divergence(*start[:2], 0.1)).max())
        np.testing.assert_allclose(left[-1], factor**iterations, rtol=1e-9, atol=1e-14)
    assert left[-1] < 1e-4


def test_a_uniform_flow_moves_a_puff_by_v_t_and_keeps_its_mass() -> None:
    # bilinear weights keep sum and mean, and add a (1 - a) h^2 of variance a step along each axis, a the part of a cell
    smoke, h, dt_s, steps = Smoke(32), 0.1, 0.05, 8
    start = np.zeros((3, 32, 32))
    start[0], start[1], start[2] = 1.3, -2.6, puff(smoke, h, (0.9, 2.4), 0.5)
    end = flow(smoke, start, values_of(smoke), dt_s, steps)[-1]
    x, z = places(32, h, 0.5, 0.5)
    moments = [[d.sum(), *((d * p).sum() / d.sum() for p in (x, z, x**2, z**2))] for d in (start[2], end[2])]
    before, after = np.array(moments)
    np.testing.assert_allclose(after[0], before[0], rtol=1e-13)
    np.testing.assert_allclose(after[1:3] - before[1:3], np.array([1.3, -2.6]) * dt_s * steps, rtol=1e-12)
    part = np.array([1.3, -2.6]) * dt_s / h % 1.0
    spread = (after[3:] - after[1:3] ** 2) - (before[3:] - before[1:3] ** 2)
    np.testing.assert_allclose(spread, steps * part * (1 - part) * h**2, rtol=1e-10)
    np.testing.assert_allclose(end[:2], start[:2], atol=1e-13)


def test_vortices_lose_mass_of_first_order_in_the_cells() -> None:
    # looking upstream is not conservative: measured 9.7 % lost in 1 s over 48 cells, 5.5 % over 96
    lost = []
    for cells in (48, 96):
        smoke, h = Smoke(cells), 1.0 / cells
        x, z = places(cells, h, 0.5, 0.5)
        density = np.exp(-((x - 0.35) ** 2 + (z - 0.3) ** 2) / (2 * 0.1**2))
        start = np.array([*vortices(smoke, h, 0.5), density])
        end = flow(smoke, start, values_of(smoke, cell_size=h), 0.96 / cells, cells)[-1]
        assert np.abs(end[2] - density).max() > 0.3, "the flow has to carry it"
        lost.append(1.0 - end[2].sum() / density.sum())
    assert 0.0 < lost[1] < 0.08
    assert 1.5 < lost[0] / lost[1] < 2.5


def test_vortices_decay_at_the_viscous_rate() -> None:
    # the exact speed decays by exp(-2 viscosity q^2 t); the grid adds diffusion of first order in its cells
    viscosity, speed, seconds, q = 0.01, 0.1, 0.5, 2.0 * np.pi
    rates = []
    for cells in (16, 32, 64):
        smoke, h = Smoke(cells), 1.0 / cells
        start = np.array([*vortices(smoke, h, speed), np.zeros((cells, cells))])
        steps = round(seconds * cells / 0.3)
        end = flow(smoke, start, values_of(smoke, cell_size=h, viscosity=viscosity), seconds / steps, steps)[-1]
        rates.append(-np.log(np.linalg.norm(end[:2]) / np.linalg.norm(start[:2])) / seconds)
    errors = np.array(rates) / (2.0 * viscosity * q**2) - 1.0
    assert 0.0 < errors[2] < 0.05  # measured 11 %, 5.8 % and 3.0 % too fast
    np.testing.assert_allclose(errors[:-1] / errors[1:], 2.0, rtol=0.15)  # measured 1.84 and 1.93
    assert abs(2.0 * errors[2] - errors[1]) < 0.006, "refined without end"  # measured 0.0020


def test_a_shear_flow_decays_by_the_factor_of_its_wave() -> None:
    smoke, steps = Smoke(12), 20
    values = values_of(smoke, cell_size=0.5, viscosity=0.3)
    start = np.zeros((3, 12, 12))
    start[0] = np.sin(2 * np.pi * 2 * np.arange(12) / 12)[:, None]  # nothing changes along x, where it goes
    end = flow(smoke, start, values, 0.1, steps)[-1]
    factor = 1.0 - 4.0 * 0.3 * 0.1 / 0.5**2 * np.sin(np.pi * 2 / 12) ** 2
    np.testing.assert_allclose(end[:2], factor**steps * start[:2], atol=1e-13)


def test_forces_and_dissipation_act_as_written() -> None:
    smoke, start = Smoke(8), np.zeros((3, 8, 8))
    start[2] = 0.5
    states = flow(smoke, start, values_of(smoke, buoyancy=3.0), 0.1, 10, np.array([0.4, -0.2]))
    np.testing.assert_allclose(states[-1, 0], 0.4, rtol=1e-12)
    np.testing.assert_allclose(states[-1, 1], -0.2 + 3.0 * 0.5, rtol=1e-12)
    states = flow(smoke, start, values_of(smoke, dissipation=0.7), 0.1, 10)
    np.testing.assert_allclose(states[-1, 2], 0.5 * np.exp(-0.7), rtol=1e-12)


def test_a_buoyant_puff_rises_between_two_vortices() -> None:
    smoke = Smoke(32)
    start = np.array([np.zeros((32, 32)), np.zeros((32, 32)), puff(smoke, 0.1, (1.6, 0.8), 0.5)])
    end = flow(smoke, start, values_of(smoke, buoyancy=2.0), 0.05, 30)[-1]
    rows = [(smoke.density_image(s.ravel()).sum(axis=1) * np.arange(32)).sum() / s[2].sum() for s in (start, end)]
    assert rows[0] - rows[1] > 3.0, "up is towards the first row of the image"
    np.testing.assert_allclose(end[2], end[2][:, ::-1], atol=1e-12)
    middle = round(31 - rows[1])
    assert end[0, middle + 6, 10] < 0.0 < end[0, middle - 6, 10], "left of it: outwards above, inwards below"


@pytest.mark.parametrize("smoke", [Smoke(7), Smoke(7, "jacobi", 5)], ids=["exact", "jacobi"])
def test_the_projection_is_its_own_adjoint(smoke: Smoke) -> None:
    # nearly at rest a step is the projection, so its Jacobian is what it does to each unit vector
    rng = np.random.default_rng(4)
    a, b = 1e-13 * rng.normal(size=(2, 1, 3 * 49))
    a[:, 98:] = b[:, 98:] = 0.0
    through = [simulate(smoke, s, np.zeros((1, 1, 2)), values_of(smoke), 0.01)[0, 1] for s in (a, b)]
    np.testing.assert_allclose(b[0] @ through[0], a[0] @ through[1], rtol=1e-10)


def test_gradients_of_jacobi_iterations_agree_with_differences() -> None:
    smoke, rng = Smoke(6, "jacobi", 3), np.random.default_rng(6)
    values = values_of(smoke, viscosity=0.01, buoyancy=0.5, dissipation=0.1)
    inputs = [smoke.sample_state(rng, 2), 0.1 * rng.normal(size=(2, 4, 2)), values]
    weights, directions = (
        rng.normal(size=(2, 108)),
        [rng.normal(size=a.shape) * [1.0, 1.0, 0.1][j] for j, a in enumerate(inputs)],
    )
    directions[2] *= values
    tensors = [torch.tensor(a, requires_grad=True) for a in inputs]
    (torch.tensor(weights) * rollout(smoke, *tensors, 0.02)[:, -1]).sum().backward()

    for j, direction in enumerate(directions):

        def value(step: float, j: int = j, direction: Array = direction) -> float:
            moved = [a + step * direction if j == m else a for m, a in enumerate(inputs)]
            return float((weights * simulate(smoke, *moved, 0.02)[:, -1]).sum())

        numeric = (8.0 * (value(1e-3) - value(-1e-3)) - value(2e-3) + value(-2e-3)) / 12e-3
        np.testing.assert_allclose((tensors[j].grad.numpy() * direction).sum(), numeric, rtol=1e-8)


def test_the_images_first_row_is_the_highest() -> None:
    smoke = Smoke(5)
    states = np.zeros((2, 3, 5, 5))
    states[0, 2, 4, 1], states[1, 2, 0, 3] = 1.0, 2.0
    for image in (
        smoke.density_image(states.reshape(2, -1)),
        smoke.density_image(torch.tensor(states.reshape(2, -1))),
    ):
        assert image.shape == (2, 5, 5)
        assert image[0, 0, 1] == 1.0
        assert image[1, 4, 3] == 2.0


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(UsageError, match="3 cells a side"):
        Smoke(3)
    with pytest.raises(UsageError, match="unknown projection 'multigrid'"):
        Smoke(projection="multigrid")
    with pytest.raises(UsageError, match="0 Jacobi iterations"):
        Smoke(projection="jacobi", iterations=0)
    smoke = Smoke()
    with pytest.raises(UsageError, match=re.escape("at most 0.0125 s")):
        flow(smoke, np.zeros((3, 6, 6)), values_of(smoke, viscosity=0.2), 0.02, 1)


def test_gradsims_grid_runs() -> None:
    smoke = Smoke(**GRADSIM)
    rng = np.random.default_rng(0)
    states = simulate(smoke, smoke.sample_state(rng, 1), np.zeros((1, 9, 2)), values_of(smoke), 0.02)
    assert smoke.density_image(states).shape == (1, 10, 110, 110)


def waves(smoke: Smoke) -> Array:
    """Velocities [10, 2 n^2] m/s free of divergence: uniform ones, and stream functions of a wave along each axis."""
    n = smoke.cells
    corners = 2.0 * np.pi * np.arange(n) / n
    turns = (np.cos(corners), np.sin(corners), np.ones(n))
    streams = [np.outer(b, a) for b in turns for a in turns][:-1]
    fields = [(np.roll(s, -1, axis=0) - s, s - np.roll(s, -1, axis=1)) for s in streams]
    return np.concatenate([np.kron(np.eye(2), np.ones(n * n)), n / (2 * np.pi) * np.reshape(fields, (8, -1))])


class Seen:
    """gradSim's example in small: the density at the start is known, the flow is not, and one image is seen."""

    def __init__(self) -> None:
        self.smoke, h = Smoke(20), 0.05
        self.parameters = torch.tensor(values_of(self.smoke, cell_size=h))
        puffs = puff(self.smoke, h, (0.35, 0.5), 0.25) + puff(self.smoke, h, (0.7, 0.6), 0.2)
        self.density = torch.tensor(puffs.ravel())
        self.truth = torch.tensor(vortices(self.smoke, h, 0.4).ravel() + 0.1)
        self.image = self.last_image(self.truth)

    def last_image(self, velocity: torch.Tensor) -> torch.Tensor:
        start, controls = torch.cat([velocity, self.density])[None], torch.zeros((1, 12, 2), dtype=torch.float64)
        return self.smoke.density_image(rollout(self.smoke, start, controls, self.parameters, 0.05)[0, -1])

    def loss(self, velocity: torch.Tensor) -> torch.Tensor:
        return ((self.last_image(velocity) - self.image) ** 2).mean()


def test_gradient_descent_on_all_velocities_finds_a_flow_that_gives_the_last_image() -> None:
    # a flow, not the flow: 800 velocities and one image of 400 cells; what carries no smoke does not show
    seen = Seen()
    velocity = torch.zeros(800, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([velocity], lr=0.02)
    losses = []
    for _ in range(80):
        optimiser.zero_grad()
        loss = seen.loss(velocity)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] / losses[-1] > 50.0  # measured 117
    unlike = (seen.last_image(velocity) - seen.image).detach().norm() / seen.image.norm()
    assert unlike < 0.15  # measured 0.091, and 1.00 at the start


def test_a_flow_of_few_waves_is_found_again_from_the_last_image() -> None:
    seen = Seen()
    basis = torch.tensor(waves(seen.smoke))
    coordinates = torch.zeros(10, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([coordinates], max_iter=60, line_search_fn="strong_wolfe", tolerance_change=1e-14)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = seen.loss(coordinates @ basis)
        loss.backward()
        return loss

    optimiser.step(closure)
    found = (coordinates @ basis).detach()
    assert (found - seen.truth).norm() < 1e-5 * seen.truth.norm()  # measured 6e-7

"""Soft bodies against what was not written for them: autograd, conservation laws, beam theory, scikit-fem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.oracles.neo_hookean import Tets
from vid2phys import geometry
from vid2phys.engine.rollout import linearize, rollout, simulate
from vid2phys.engine.systems._tets_compiled import TetIntervals
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.tets import box_tets, tet_volumes
from vid2phys.errors import InputError, UsageError
from vid2phys.types import Array

SIZE, CELLS = (0.3, 0.2, 0.1), (3, 2, 1)


def block(**options: Any) -> SoftBody:
    return SoftBody(*box_tets(SIZE, CELLS), elements="linear", **options)


def values(body: SoftBody, **given: float) -> Array:
    return body.parameters().with_values(given).vector


def force(body: SoftBody, parameters: Array, state: Array, control: Array | None = None) -> Array:
    """Forces [V, 3] from one tiny step without gravity."""
    h = 1e-3 * body.longest_step_s(parameters)
    u = np.zeros(len(body.control_names)) if control is None else control
    after = simulate(body, state[None], u[None, None], parameters, h)[0, 1]
    change = body.velocities(after) - body.velocities(state)
    return body.masses(parameters)[:, None] * change / h


def oracle(body: SoftBody, young: float, poisson: float, damping: float) -> Tets:
    numbers = (torch.tensor(n, dtype=torch.float64) for n in (young, poisson, damping, 1000.0))
    return Tets(torch.tensor(body.rest_m), torch.tensor(body.elements), *numbers)


def test_no_force_at_rest_however_moved() -> None:
    body = block()
    parameters = values(body, gravity=0.0, damping=100.0)
    rng = np.random.default_rng(0)
    scale = 1e5 * 0.1**2  # E times an area: what forces would be
    for _ in range(5):
        turn = geometry.matrix_from_quat(geometry.quat_from_rotvec(rng.normal(0.0, 2.0, 3)))
        spin = rng.normal(0.0, 3.0, 3)
        x = body.rest_m @ turn.T + rng.normal(0.0, 1.0, 3)
        v = np.cross(spin, x) + rng.normal(0.0, 1.0, 3)
        assert np.abs(force(body, parameters, body.state(x, v))).max() < 1e-8 * scale


@pytest.mark.parametrize("locking", ["none", "nodal"])
def test_momenta_are_kept_in_free_flight(locking: str) -> None:
    body = block(locking=locking)
    parameters = values(body, gravity=0.0, damping=50.0)
    state = body.sample_state(np.random.default_rng(1), 1)
    states = simulate(body, state, np.zeros((1, 20, 3)), parameters, 0.01, substeps=20)[0]
    m = body.masses(parameters)[:, None]
    x, v = body.positions(states), body.velocities(states)
    linear = (m * v).sum(axis=1)
    np.testing.assert_allclose(linear, linear[:1].repeat(21, 0), atol=1e-12 * np.abs(m * v).sum())
    # x' = x + h v' keeps sum m x' x v' = sum m x x v' exactly, and forces have no moment about what they act on
    angular = (m * np.cross(x, v)).sum(axis=1)
    np.testing.assert_allclose(angular, angular[:1].repeat(21, 0), atol=1e-11 * np.abs(m * np.cross(x, v)).sum())
    weight = simulate(body, state, np.zeros((1, 20, 3)), values(body, gravity=9.81), 0.01, substeps=20)[0]
    gained = (m * (body.velocities(weight)[-1] - body.velocities(weight)[0])).sum(axis=0)
    np.testing.assert_allclose(gained, [0.0, 0.0, -9.81 * 0.2 * m.sum()], atol=1e-10 * m.sum())


def test_force_is_that_of_the_oracle() -> None:
    body = block()
    state = body.sample_state(np.random.default_rng(2), 1)[0]
    x, v = (torch.tensor(a) for a in (body.positions(state), body.velocities(state)))
    for poisson, damping in ((0.3, 0.0), (0.45, 200.0)):
        reference = oracle(body, 2e5, poisson, damping)
        x.requires_grad_(True)
        elastic = -torch.autograd.grad(reference.energy(x), x)[0]
        explicit = reference.forces(x.detach(), v)
        parameters = values(body, gravity=0.0, young_modulus=2e5, poisson_ratio=poisson, damping=damping)
        mine = force(body, parameters, state)
        size = explicit.abs().max().item()
        np.testing.assert_allclose(mine, explicit.numpy(), atol=1e-9 * size)  # the tiny step's rounding: 1e-10
        if damping == 0.0:
            np.testing.assert_allclose(explicit.numpy(), elastic.detach().numpy(), atol=1e-12 * size)
        else:
            power = ((explicit - elastic.detach()) * v).sum().item()
            assert power < 0.0


def test_activation_is_in_the_volume_term() -> None:
    body = block(muscles=np.zeros(36, dtype=int))
    state = body.sample_state(np.random.default_rng(3), 1)[0]
    x = torch.tensor(body.positions(state), requires_grad=True)
    elastic = -torch.autograd.grad(oracle(body, 1e5, 0.3, 0.0).energy(x, activation=0.2), x)[0].numpy()
    parameters = values(body, gravity=0.0, damping=0.0, rest_activation_0=0.05)
    mine = force(body, parameters, state, np.array([0.0, 0.0, 0.0, 0.15]))
    np.testing.assert_allclose(mine, elastic, atol=1e-9 * np.abs(elastic).max())
    still = body.state(body.rest_m)
    later = simulate(body, still[None], np.full((1, 10, 4), [0, 0, 0, 0.2]), parameters, 1e-3, substeps=2)[0, -1]
    assert tet_volumes(body.positions(later), body.elements).sum() < 0.98 * np.prod(SIZE)


def test_a_flattened_and_an_inverted_tet_push_back() -> None:
    body = SoftBody(
        np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]]), np.array([[0, 1, 2, 3]]), elements="linear"
    )
    parameters = values(body, gravity=0.0)
    for height in (0.0, -0.5):
        x = body.rest_m * np.array([1.0, 1.0, height])
        f = force(body, parameters, body.state(x))
        assert np.isfinite(f).all()
        assert f[3, 2] > 0.0


def gradients(body: SoftBody, precision: str = "double", landing: bool = False) -> list[Array]:
    """States, then gradients of a weighted sum of them by initial states, controls and parameters."""
    rng = np.random.default_rng(4)
    p = body.parameters().vector
    p = np.where(p == 0.0, 0.02, p) * rng.uniform(0.8, 1.2, p.size)
    states = body.sample_state(rng, 2)
    if landing:  # vertices of several heights, as fast as many of them in a substep
        states[:, 2 : states.shape[1] // 2 : 3] += 0.01
        states[:, states.shape[1] // 2 + 2 :: 3] -= 5.0
    controls = rng.normal(size=(2, 3, len(body.control_names)))
    weights = torch.tensor(rng.normal(size=(2, 4, states.shape[1])))
    tensors = [torch.tensor(a, requires_grad=True) for a in (states, controls, p)]
    out = rollout(body, *tensors, 1.2 * body.longest_step_s(p), substeps=4, precision=precision)
    (weights * out).sum().backward()
    return [out.detach().numpy(), *(t.grad.numpy() for t in tensors)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ground": True, "per_vertex_mass": True, "muscles": [0, 1] * 18},
        {"locking": "nodal", "pinned": (0, 1), "moduli": "lame", "load_vertices": (5,), "muscles": [0, -1] * 18},
    ],
    ids=["plain", "ground", "nodal"],
)
def test_compiled_loops_are_warps_kernels_and_their_adjoint(options: dict) -> None:
    body = block(**options)
    compiled = gradients(body)
    single = gradients(body, "single")
    body.compiled = None
    for mine, rough, warp in zip(compiled, single, gradients(body), strict=True):
        np.testing.assert_allclose(mine, warp, rtol=1e-11, atol=1e-12 * np.abs(warp).max())
        np.testing.assert_allclose(rough, warp, atol=3e-5 * np.abs(warp).max())
    with pytest.raises(UsageError, match="single precision"):
        gradients(body, "single")


def test_loops_and_kernels_agree_where_vertices_touch_down() -> None:
    body = block(ground=True)
    compiled = gradients(body, landing=True)
    body.compiled = None
    for mine, warp in zip(compiled, gradients(body, landing=True), strict=True):
        np.testing.assert_allclose(mine, warp, rtol=1e-11, atol=1e-12 * np.abs(warp).max())
    heights = compiled[0][:, :, 2 : compiled[0].shape[2] // 2 : 3]
    assert ((heights[:, :-1] > 0.0) & (heights[:, 1:] < 0.0)).sum() > 3


def test_threads_share_out_a_large_mesh() -> None:
    from vid2phys.engine.kernels.fem_cpu import LOOPS

    body = SoftBody(*box_tets((0.4, 0.2, 0.2), (7, 5, 4)), elements="linear")  # 840 tets: two chunks
    assert isinstance(body.compiled, TetIntervals)
    parameters, states = body.parameters().vector, body.sample_state(np.random.default_rng(5), 2)
    controls = np.ones((2, 2, 3))
    results = []
    for threads in (False, True):
        body.compiled._loop = lambda name, *_, t=threads: LOOPS[name, t]  # type: ignore[method-assign]
        tensors = [torch.tensor(a, requires_grad=True) for a in (states[:1], controls[:1], parameters)]
        out = rollout(body, *tensors, 1e-3, substeps=4)
        (out**2).sum().backward()
        results.append([out.detach().numpy(), *(t.grad.numpy() for t in tensors)])
    del body.compiled._loop
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-10, atol=1e-12 * np.abs(one).max())
    together = simulate(body, states, controls, parameters, 1e-3, substeps=4)
    np.testing.assert_allclose(together[:1], results[0][0], rtol=1e-12)


def test_the_longest_step_is_stable_and_not_timid() -> None:
    for damping in (0.0, 300.0):
        body = block()
        parameters = values(body, gravity=0.0, damping=damping)
        rng = np.random.default_rng(6)
        start = body.state(body.rest_m + rng.normal(0.0, 1e-4, body.rest_m.shape))
        longest = body.longest_step_s(parameters)
        states = simulate(body, start[None], np.zeros((1, 1, 3)), parameters, 2000 * longest * 0.999, substeps=2000)
        moved = body.positions(states[0, -1]) - body.rest_m
        assert np.abs(moved).max() < 0.01
        # the true limit: eigenvalues of the linearised step
        limit = next(k for k in np.arange(1.0, 4.0, 0.1) if _radius(body, parameters, k * longest) > 1.0 + 1e-6)
        assert 1.0 < limit < 2.5


def _radius(body: SoftBody, parameters: Array, h: float) -> float:
    body.longest_step_s = lambda p: np.inf  # type: ignore[method-assign]
    step = linearize(body, body.state(body.rest_m)[None], np.zeros((1, 3)), parameters, np.array([h]), substeps=1)
    del body.longest_step_s
    return float(np.abs(np.linalg.eigvals(step.A[0])).max())


def stiffness(body: SoftBody, parameters: Array) -> Array:
    """- d force / d position at rest [3 V, 3 V], by one linearised step."""
    h = 1e-2 * body.longest_step_s(parameters)
    step = linearize(body, body.state(body.rest_m)[None], np.zeros((1, 3)), parameters, np.array([h]), substeps=1)
    size = body.rest_m.size
    return -np.repeat(body.masses(parameters), 3)[:, None] * step.A[0][size:, :size] / h


def test_stiffness_is_that_of_linear_elasticity_in_scikit_fem() -> None:
    import skfem
    from skfem.models.elasticity import lame_parameters, linear_elasticity

    body = block()
    mine = stiffness(body, values(body, young_modulus=3e5, poisson_ratio=0.35))
    mesh = skfem.MeshTet(body.rest_m.T, body.elements.T)
    basis = skfem.Basis(mesh, skfem.ElementVector(skfem.ElementTetP1()))
    matrix = linear_elasticity(*lame_parameters(3e5, 0.35)).assemble(basis).toarray()
    np.testing.assert_allclose(mine, matrix, atol=1e-9 * np.abs(matrix).max())


def test_bad_meshes_are_refused() -> None:
    vertices, tets = box_tets((1.0, 1.0, 1.0), (1, 1, 1))
    for bad_vertices, bad_tets, words in (
        (vertices, tets[:, :3], "surface mesh"),
        (vertices, tets[:, [1, 0, 2, 3]], "inverted"),
        (vertices * np.array([1, 1, 0.0]), tets, "flat"),
        (np.vstack([vertices, vertices[:1]]), tets, "belongs to no element"),
        (np.where(vertices == 1.0, np.nan, vertices), tets, "not finite"),
        (vertices, tets + 1, "names vertices"),
    ):
        with pytest.raises(InputError, match=words):
            SoftBody(bad_vertices, bad_tets)
    with pytest.raises(UsageError, match="locking"):
        SoftBody(locking="magic")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="muscles"):
        SoftBody(muscles=[0, 2])
    body = SoftBody(elements="linear", per_vertex_mass=True)
    masses = body.parameters().vector
    masses[-1] = -1.0
    with pytest.raises(UsageError, match="mass_11"):
        simulate(body, body.state(body.rest_m)[None], np.zeros((1, 1, 3)), masses, 1e-4)


def cantilever(cells: tuple[int, int, int], poisson: float, locking: str = "none") -> tuple[float, float]:
    """Tip deflection [m] under 1 N and first frequency [Hz] of a beam of 1 x 0.2 x 0.2 m, E = 1e6, by the stiffness."""
    from scipy.linalg import eigh

    vertices, tets = box_tets((1.0, 0.2, 0.2), cells)
    tip, clamped = np.flatnonzero(vertices[:, 0] == 1.0), vertices[:, 0] == 0.0
    body = SoftBody(vertices, tets, locking=locking, elements="linear")  # type: ignore[arg-type]
    parameters = values(body, young_modulus=1e6, poisson_ratio=poisson)
    matrix = stiffness(body, parameters)
    free = np.repeat(~clamped, 3)
    load = np.zeros_like(vertices)
    load[tip, 2] = 1.0 / len(tip)
    masses = np.diag(np.repeat(body.masses(parameters), 3)[free])
    inner = matrix[np.ix_(free, free)]
    moved = np.zeros(vertices.size)
    moved[free] = np.linalg.solve(inner, load.ravel()[free])
    lowest = eigh(0.5 * (inner + inner.T), masses, eigvals_only=True, subset_by_index=[0, 0])[0]
    return moved.reshape(-1, 3)[tip, 2].mean(), float(np.sqrt(lowest)) / (2.0 * np.pi)


def quadratic_cantilever(poisson: float) -> float:
    """The same deflection by scikit-fem's quadratic tets on a mesh of its own, traction over the end."""
    import skfem
    from skfem.models.elasticity import lame_parameters, linear_elasticity

    mesh = skfem.MeshTet.init_tensor(np.linspace(0, 1, 11), np.linspace(0, 0.2, 4), np.linspace(0, 0.2, 4))
    mesh = mesh.with_boundaries({"root": lambda x: x[0] == 0.0, "tip": lambda x: x[0] == 1.0})
    element = skfem.ElementVector(skfem.ElementTetP2())
    basis, end = skfem.Basis(mesh, element), skfem.FacetBasis(mesh, element, facets="tip")
    matrix = linear_elasticity(*lame_parameters(1e6, poisson)).assemble(basis)
    traction = skfem.LinearForm(lambda v, w: v[2] / 0.04).assemble(end)
    moved = skfem.solve(*skfem.condense(matrix, traction, D=basis.get_dofs("root")))
    return float(traction @ moved)


def refined(poisson: float, locking: str) -> tuple[float, float]:
    """Deflection and frequency extrapolated from two meshes: stiffnesses of linear tets are off by the square of h."""
    h2 = np.array([0.1, 0.2 / 3.0]) ** 2
    coarse, fine = (cantilever(cells, poisson, locking) for cells in ((10, 2, 2), (15, 3, 3)))
    share = h2[1] / (h2[0] - h2[1])
    compliance = 1.0 / fine[0] - share * (1.0 / coarse[0] - 1.0 / fine[0])
    return 1.0 / compliance, float(np.sqrt(fine[1] ** 2 - share * (coarse[1] ** 2 - fine[1] ** 2)))


YOUNG, INERTIA, AREA = 1e6, 0.2**4 / 12.0, 0.04


def timoshenko(poisson: float) -> float:
    """Tip deflection [m] of the same beam by theory: bending and shear, the root free to contract."""
    return 1.0 / (3.0 * YOUNG * INERTIA) + 2.0 * (1.0 + poisson) / (5.0 / 6.0 * YOUNG * AREA)


@pytest.mark.parametrize("locking", ["none", "nodal"])
def test_cantilever_bends_and_rings_as_beams_do_under_refinement(locking: str) -> None:
    deflection, frequency = refined(0.3, locking)
    assert deflection == pytest.approx(quadratic_cantilever(0.3), rel=0.06)  # measured: -4 % and -2 %
    assert deflection == pytest.approx(timoshenko(0.3), rel=0.08)
    slender = 1.8751**2 / (2.0 * np.pi) * np.sqrt(YOUNG * INERTIA / (1000.0 * AREA))  # Euler-Bernoulli's first mode
    assert frequency == pytest.approx(slender, rel=0.04)  # shear and rotary inertia take 2 %


def test_averaged_pressure_unlocks_a_nearly_incompressible_beam() -> None:
    locked, _ = cantilever((15, 3, 3), 0.499)
    assert locked < 0.1 * timoshenko(0.499)
    unlocked, _ = cantilever((15, 3, 3), 0.499, "nodal")
    plain, _ = cantilever((15, 3, 3), 0.3)
    assert unlocked > 0.9 * plain  # as good as linear tets are of a compressible beam: 65 % on this mesh
    assert refined(0.499, "nodal")[0] == pytest.approx(timoshenko(0.499), rel=0.06)


def test_a_released_beam_rings_at_its_first_frequency() -> None:
    from scipy.linalg import eigh

    vertices, tets = box_tets((1.0, 0.2, 0.2), (10, 2, 2))
    free = np.repeat(vertices[:, 0] > 0.0, 3)
    body = SoftBody(
        vertices, tets, pinned=tuple(np.flatnonzero(vertices[:, 0] == 0.0)), elements="linear", locking="nodal"
    )
    parameters = values(body, young_modulus=1e6, poisson_ratio=0.3, gravity=0.0, damping=0.0)
    inner = stiffness(body, parameters)[np.ix_(free, free)]
    masses = np.repeat(body.masses(parameters), 3)[free]
    lowest, mode = eigh(0.5 * (inner + inner.T), np.diag(masses), subset_by_index=[0, 0])
    shape = np.zeros(vertices.size)
    shape[free] = 1e-3 * mode[:, 0] / np.abs(mode).max()
    start = body.state(vertices + shape.reshape(-1, 3))
    states = simulate(body, start[None], np.zeros((1, 120, 3)), parameters, 0.02, substeps=40)[0]
    moved = (body.positions(states) - vertices).reshape(121, -1)[:, free]
    swing = moved @ (masses * mode[:, 0])
    crossings = np.flatnonzero(np.diff(np.sign(swing)))
    moments = 0.02 * (crossings + swing[crossings] / (swing[crossings] - swing[crossings + 1]))
    ringing = (len(moments) - 1) / (2.0 * (moments[-1] - moments[0]))
    assert ringing == pytest.approx(np.sqrt(lowest[0]) / (2.0 * np.pi), rel=2e-3)
    assert np.abs(swing).max() == pytest.approx(np.abs(swing[0]), rel=2e-2)  # nothing damps it, nothing feeds it


def test_the_surface_is_the_boundary_and_moves_with_its_vertices() -> None:
    import trimesh

    vertices, tets = box_tets((0.3, 0.2, 0.1), (3, 2, 2))
    vertices = vertices + np.where(vertices[:, :1] > 0.25, [5.0, 0.0, 0.0], 0.0)  # ever so long tets
    body = SoftBody(vertices, tets, elements="linear")
    assert body.surface is not None
    shell = trimesh.Trimesh(body.surface.vertices, body.surface.faces, process=False)
    assert shell.is_watertight
    assert shell.volume == pytest.approx(body.volumes.sum())
    moved = vertices + np.random.default_rng(0).normal(size=vertices.shape)
    np.testing.assert_array_equal(body.vertices(body.state(moved), body.surface.vertices), moved)

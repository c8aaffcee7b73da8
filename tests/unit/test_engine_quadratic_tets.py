"""Quadratic tets against beam theory, scikit-fem and SciPy: the modulus is the material's, not the mesh's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.rod import Rod
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.tets import box_tets, tet_volumes
from vid2phys.errors import UsageError

YOUNG, SIDE, DENSITY = 1e6, 0.1, 1000.0
AREA, INERTIA = SIDE**2, SIDE**4 / 12.0


def bar(length: float, cells: tuple[int, int, int], **options: Any) -> SoftBody:
    """A bar along x, clamped at x = 0 and loaded on its other end."""
    vertices, tets = box_tets((length, SIDE, SIDE), cells)
    pinned, loaded = (np.flatnonzero(vertices[:, 0] == x) for x in (0.0, length))
    return SoftBody(vertices, tets, pinned=pinned, load_vertices=loaded, **options)


def tip(body: SoftBody, force: float, poisson: float) -> float:
    """Deflection of the end at rest [m]; long implicit steps."""
    values = {"young_modulus": YOUNG, "poisson_ratio": poisson, "gravity": 0.0, "damping": 0.0}
    parameters = body.parameters().with_values(values).vector
    load = np.tile([0.0, 0.0, force], (1, 8, 1))
    states = simulate(body, body.rest_state()[None], load, parameters, 50.0, integrator="implicit_euler")[0]
    return float(body.load_shares @ (body.positions(states[-1]) - body.rest_m)[:, 2])


def timoshenko(length: float, poisson: float) -> float:
    """Deflection [m/N] of the end of a cantilever; the shear coefficient is Cowper's (1966)."""
    shear = YOUNG / (2.0 * (1.0 + poisson)) * 10.0 * (1.0 + poisson) / (12.0 + 11.0 * poisson)
    return length**3 / (3.0 * YOUNG * INERTIA) + length / (shear * AREA)


@pytest.mark.parametrize("poisson", [0.0, 0.3, 0.45])
@pytest.mark.parametrize("length", [1.0, 0.4, 0.3])
def test_a_clamped_bar_bends_as_timoshenkos_beam(length: float, poisson: float) -> None:
    theory = timoshenko(length, poisson)
    if length < 1.0 and poisson > 0.4:  # the clamp, which theory leaves out, keeps a stout root from contracting:
        theory *= {0.4: 0.965, 0.3: 0.952}[length]  # scikit-fem, quadratic tets, 14 x 6 x 6 cells finer at the root
    force = 1e-3 * length / theory
    found = tip(bar(length, (round(20 * length), 2, 2)), force, poisson)
    assert found == pytest.approx(force * theory, rel=0.02)


def test_linear_tets_remain_and_bend_too_stiffly() -> None:
    assert tip(bar(1.0, (20, 2, 2), elements="linear"), 1e-3, 0.45) < 0.35e-3 * timoshenko(1.0, 0.45)


def test_a_released_bar_rings_as_an_euler_bernoulli_beam() -> None:
    body, poisson = bar(1.0, (20, 2, 2)), 0.3
    theory = 1.8751**2 / (2.0 * np.pi) * np.sqrt(YOUNG * INERTIA / (DENSITY * AREA))
    values = {"young_modulus": YOUNG, "poisson_ratio": poisson, "gravity": 0.02, "damping": 0.0, "density": DENSITY}
    step_s = 1.0 / (80.0 * theory)
    start, idle = body.rest_state()[None], np.zeros((1, 170, 3))
    parameters = body.parameters().with_values(values).vector
    states = simulate(body, start, idle, parameters, step_s, integrator="implicit_euler")[0]
    heights = (body.positions(states) - body.rest_m)[:, :, 2] @ body.load_shares
    swing = heights - heights[-1]
    lowest, highest = int(heights[:80].argmin()), 40 + int(heights[40:120].argmax())
    peaks = []
    for near in (lowest, highest):  # the middle of a parabola through three samples
        a, b, c = heights[near - 1 : near + 2]
        peaks.append(near + 0.5 * (a - c) / (a - 2.0 * b + c))
    assert 1.0 / (2.0 * (peaks[1] - peaks[0]) * step_s) == pytest.approx(theory, rel=0.02)
    assert swing.min() < 0.0


def test_stiffness_at_rest_is_that_of_scikit_fem() -> None:
    import skfem
    from skfem.helpers import ddot, div, sym_grad
    from skfem.models.elasticity import lame_parameters

    poisson, step_s = 0.4, 1e3
    vertices, tets = box_tets((0.3, 0.2, 0.1), (2, 1, 1))
    body = SoftBody(vertices, tets)
    parameters = (
        body.parameters().with_values({"young_modulus": YOUNG, "poisson_ratio": poisson, "damping": 0.0}).vector
    )
    equations = body.step_equations
    rest, idle = body.state(body.rest_m), np.zeros(3)
    entries = equations.entries(rest, np.zeros(0), idle, parameters, step_s)
    size, pattern = body.rest_m.size, equations.pattern
    mine = np.zeros((size, size))
    mine[pattern.indices, np.repeat(np.arange(size), np.diff(pattern.starts))] = entries
    mine = (mine - np.diag(np.repeat(body.masses(parameters), 3))) / step_s**2

    mesh, element = skfem.MeshTet(vertices.T.copy(), tets.T.copy()), skfem.ElementVector(skfem.ElementTetP2())
    lam, mu = lame_parameters(YOUNG, poisson)
    local = 1.0 / (1.0 / lam + 1.0 / mu)
    four, one = (skfem.Basis(mesh, element, intorder=order) for order in (2, 1))
    of_points = skfem.BilinearForm(lambda u, v, w: 2 * mu * ddot(sym_grad(u), sym_grad(v)) + local * div(u) * div(v))
    of_centres = skfem.BilinearForm(lambda u, v, w: (lam - local) * div(u) * div(v))
    matrix = (of_points.assemble(four) + of_centres.assemble(one)).toarray()
    # the nodes in each other's order, by place; scikit-fem has three unknowns a node, axis by axis
    places = four.doflocs.T[::3] if np.allclose(four.doflocs[:, 0], four.doflocs[:, 1]) else four.doflocs.T
    found = [int(np.argmin(np.linalg.norm(body.rest_m - place, axis=1))) for place in places]
    dofs = (3 * np.array(found)[:, None] + np.arange(3)).ravel()
    np.testing.assert_allclose(mine[np.ix_(dofs, dofs)], matrix, atol=1e-9 * np.abs(matrix).max())


def test_nodes_carry_the_whole_mass_and_are_clamped_with_their_edges() -> None:
    body = bar(0.4, (4, 1, 1), values={"density": 500.0})
    assert body.masses(body.parameters().vector).sum() == pytest.approx(500.0 * 0.4 * AREA)
    assert (body.masses(body.parameters().vector) > 0.0).all()
    np.testing.assert_array_equal(np.sort(body.pinned), np.flatnonzero(body.rest_m[:, 0] == 0.0))
    np.testing.assert_allclose(body.load_shares[body.rest_m[:, 0] == 0.4], 1.0 / 9.0)
    assert tet_volumes(body.rest_m, body.elements).min() > 0.0
    assert body.surface is not None
    assert body.surface.faces.max() < len(body.rest_m)
    with pytest.raises(UsageError, match="nodal"):
        bar(0.4, (4, 1, 1), locking="nodal")


def test_the_default_rod_is_as_stiff_as_its_material() -> None:
    sags = []
    for rod in (Rod(), Rod((12, 4, 4))):
        load = np.tile([0.0, 0.0, 10.0], (1, 8, 1))
        parameters = rod.parameters().with_values({"gravity": 0.0, "damping": 0.0}).vector
        states = simulate(rod, rod.rest_state()[None], load, parameters, 50.0)[0]
        sags.append(rod.keypoints(states[-1], rod.spine_m)[4, 2])
    assert sags[0] == pytest.approx(sags[1], rel=0.02)


def test_lames_lambda_is_divided_between_points_and_centres() -> None:
    """The points take 1 / (1 / lambda + 1 / mu) of it, and nodes all or nothing."""
    vertices, tets = box_tets((0.2, 0.1, 0.1), (2, 1, 1))
    body = SoftBody(vertices, tets)
    for mu, lam in ((3.0, 5.0), (3.0, 500.0), (300.0, 5.0)):
        quadratic, nodal, own = (
            SoftBody.shared(SimpleNamespace(quadratic=of_edges, locking=locking), mu, lam)  # type: ignore[arg-type]
            for of_edges, locking in ((True, "nodal"), (False, "nodal"), (False, "none"))
        )
        assert lam - quadratic == pytest.approx(1.0 / (1.0 / lam + 1.0 / mu))
        assert (nodal, own) == (lam, 0.0)
    modulus, poisson = 1e5, 0.3
    values = body.parameters().with_values({"young_modulus": modulus, "poisson_ratio": poisson})
    mu, lam = body.lame(values.vector)
    assert mu == pytest.approx(modulus / (2.0 * (1.0 + poisson)))
    assert lam == pytest.approx(modulus * poisson / ((1.0 + poisson) * (1.0 - 2.0 * poisson)))

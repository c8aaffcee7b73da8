"""Tets, points that they carry, and polynomials of shapes, beside closed forms: volumes, gradients and derivatives."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from vid2phys.engine import bent_shapes as bent
from vid2phys.engine.bent_shapes import BentShapes
from vid2phys.engine.movable import modes as modal
from vid2phys.engine.systems._particles import ParticleSystem, check_mesh, embed
from vid2phys.engine.systems.gear import ring_tets
from vid2phys.engine.systems.rod import Rod
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.tets import (
    EDGES,
    QUADRATIC_SHARES,
    boundary_faces,
    box_tets,
    check_tets,
    check_volume,
    eighths,
    quadratic_gradients,
    quadratic_nodes,
    shape_gradients,
    tet_volumes,
)
from vid2phys.engine.vibration import Vibration
from vid2phys.errors import InputError
from vid2phys.types import Array

SIZE, CELLS = (0.3, 0.2, 0.1), (3, 2, 1)


@pytest.fixture(scope="module")
def box() -> tuple[Array, Array]:
    """A box of six cells, askew, so that no gradient vanishes."""
    vertices, tets = box_tets(SIZE, CELLS)
    return vertices @ np.array([[1.0, 0.2, 0.1], [0.0, 0.9, -0.3], [0.1, 0.0, 1.2]]).T, tets


def test_a_box_is_filled_by_its_tets() -> None:
    vertices, tets = box_tets(SIZE, CELLS)
    assert len(tets) == 6 * 6
    volumes = tet_volumes(vertices, tets)
    np.testing.assert_allclose(volumes, np.prod(SIZE) / 36.0)
    np.testing.assert_allclose([vertices.min(axis=0), vertices.max(axis=0)], [[0.0] * 3, SIZE])
    np.testing.assert_allclose(tet_volumes(np.stack([vertices, 2.0 * vertices]), tets)[1], 8.0 * volumes)
    for size, cells in (((0.1, 0.0, 0.1), (1, 1, 1)), (SIZE, (1, 0, 1))):
        with pytest.raises(InputError, match="positive numbers"):
            box_tets(size, cells)


def test_the_surface_of_a_box_is_closed_and_faces_outward(box: tuple[Array, Array]) -> None:
    """Its area vectors add up to nothing, and its volume by Gauss's theorem is that of the tets."""
    vertices, tets = box
    faces = boundary_faces(tets)
    assert len(faces) == 2 * 2 * (3 * 2 + 2 * 1 + 3 * 1)
    corners = vertices[faces]
    areas = 0.5 * np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    np.testing.assert_allclose(areas.sum(axis=0), 0.0, atol=1e-15)
    volume = (corners.mean(axis=1) * areas).sum() / 3.0
    assert volume == pytest.approx(tet_volumes(vertices, tets).sum())


def test_gradients_are_those_of_linear_functions(box: tuple[Array, Array]) -> None:
    vertices, tets = box
    gradients = shape_gradients(vertices, tets)
    slope = np.array([0.3, -1.2, 2.0])
    found = np.einsum("tc,tcx->tx", (vertices @ slope)[tets], gradients)
    np.testing.assert_allclose(found, np.tile(slope, (len(tets), 1)), atol=1e-9)
    np.testing.assert_allclose(gradients.sum(axis=1), 0.0, atol=1e-9)


def test_quadratic_tets_have_the_gradients_of_quadratic_functions(box: tuple[Array, Array]) -> None:
    """At four points whose mean is the centre, and there; the points integrate a quadratic function exactly."""
    vertices, tets = box
    nodes, quadratic = quadratic_nodes(vertices, tets)
    np.testing.assert_array_equal(nodes[: len(vertices)], vertices)
    assert QUADRATIC_SHARES.sum() == pytest.approx(1.0)
    assert len(np.unique(nodes.round(9), axis=0)) == len(nodes)
    for k, (a, b) in enumerate(EDGES):
        np.testing.assert_allclose(nodes[quadratic[:, 4 + k]], 0.5 * (vertices[tets[:, a]] + vertices[tets[:, b]]))
    gradients = quadratic_gradients(shape_gradients(vertices, tets))
    assert gradients.shape == (len(tets), 5, 10, 3)
    root = np.random.default_rng(0).normal(size=(3, 3))
    bend = root + root.T
    values = 0.5 * np.einsum("ni,ij,nj->n", nodes, bend, nodes) + nodes @ [1.0, 2.0, 3.0]
    places = np.linalg.solve(
        bend, (np.einsum("tc,tpcx->tpx", values[quadratic], gradients) - [1.0, 2.0, 3.0])[..., None]
    )
    places = places[..., 0]
    centre = vertices[tets].mean(axis=1)
    np.testing.assert_allclose(places[:, 4], centre, atol=1e-9)
    np.testing.assert_allclose(places[:, :4].mean(axis=1), centre, atol=1e-9)
    spread = np.einsum("tpi,tpj->tij", places[:, :4] - centre[:, None], places[:, :4] - centre[:, None]) / 4.0
    corners = vertices[tets] - centre[:, None]
    np.testing.assert_allclose(spread, np.einsum("tci,tcj->tij", corners, corners) / 20.0, atol=1e-12)


def test_eight_tets_fill_one_and_are_divided_along_the_shortest_diagonal() -> None:
    for stretch in np.eye(3) * 0.5 + 1.0:
        corners = np.array([[0.0, 0, 0], [1, 0, 0], [0.3, 1, 0], [0.2, 0.4, 1]]) * stretch
        nodes, quadratic = quadratic_nodes(corners, np.array([[0, 1, 2, 3]]))
        found = eighths(nodes, quadratic)
        assert found.shape == (8, 4)
        np.testing.assert_allclose(tet_volumes(nodes, found), np.linalg.det(corners[1:] - corners[0]) / 48.0)
        middle = quadratic[0, 4:]
        pairs = [(middle[0], middle[5]), (middle[1], middle[4]), (middle[2], middle[3])]
        lengths = [np.linalg.norm(nodes[a] - nodes[b]) for a, b in pairs]
        used = [sum(a in tet and b in tet for tet in found.tolist()) for a, b in pairs]
        assert used == [4 if k == int(np.argmin(lengths)) else 0 for k in range(3)]


def test_what_is_no_mesh_of_tets_is_named() -> None:
    with pytest.raises(InputError, match="a surface mesh"):
        check_volume(np.zeros((5, 3), dtype=np.int64))
    with pytest.raises(InputError, match=r"tets of shape \(5, 6\)"):
        check_volume(np.zeros((5, 6), dtype=np.int64))
    check_volume(np.zeros((5, 4), dtype=np.int64))
    vertices, tets = box_tets(SIZE, CELLS)
    check_tets(vertices, tets)
    inverted = tets.copy()
    inverted[[4, 7]] = inverted[[4, 7]][:, [1, 0, 2, 3]]
    with pytest.raises(InputError, match=r"tet 4 is inverted \(2 in all\)"):
        check_tets(vertices, inverted)
    flat = vertices.copy()
    flat[:, 2] = 0.0
    with pytest.raises(InputError, match=r"tet 0 is flat \(36 in all\)"):
        check_tets(flat, tets)


def test_points_are_carried_by_the_element_that_they_are_in(box: tuple[Array, Array]) -> None:
    vertices, tets = box
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.ones(4), len(tets))
    points = np.einsum("tc,tcx->tx", shares, vertices[tets])
    corners, weights = embed(points, vertices, tets)
    np.testing.assert_array_equal(corners, tets)
    np.testing.assert_allclose(weights, shares, atol=1e-9)
    corners, weights = embed(vertices, vertices, tets)
    np.testing.assert_array_equal(corners[:, 0], np.arange(len(vertices)))
    np.testing.assert_array_equal(weights, np.tile([1.0, 0.0, 0.0, 0.0], (len(vertices), 1)))


def test_points_outside_move_with_the_nearest_element() -> None:
    """A linear motion carries them as it carries the body; a sheet drops what is off it."""
    vertices, tets = box_tets(SIZE, CELLS)
    outside = np.array([[0.35, 0.1, 0.05], [0.1, -0.02, 0.12]])
    corners, weights = embed(outside, vertices, tets)
    np.testing.assert_allclose(np.einsum("kc,kcx->kx", weights, vertices[corners]), outside, atol=1e-12)
    assert (vertices[corners[0]][:, 0] > 0.19).all(), "of the cells at that end"
    triangle = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    _, flat = embed(np.array([[0.25, 0.25, 0.4]]), triangle, np.array([[0, 1, 2]]))
    np.testing.assert_allclose(flat, [[0.5, 0.25, 0.25]], atol=1e-12)


@pytest.mark.parametrize(
    ("vertices", "elements", "named"),
    [
        (np.zeros((3, 2)), np.array([[0, 1]]), r"vertices of shape \(3, 2\)"),
        (np.zeros((3, 3)), np.zeros((0, 4), dtype=np.int64), r"elements of shape \(0, 4\)"),
        (np.zeros((3, 3)), np.array([0, 1, 2]), r"elements of shape \(3,\)"),
        (np.array([[0.0] * 3, [np.nan, 0, 0], [0] * 3]), np.array([[0, 1, 2]]), "vertex 1 is not finite"),
        (np.zeros((3, 3)), np.array([[0, 1, 2], [0, 1, 3]]), r"element 1 names vertices \[0, 1, 3\]"),
        (np.zeros((3, 3)), np.array([[0, 1, 2], [-1, 1, 0]]), r"element 1 names vertices \[-1, 1, 0\]"),
        (np.zeros((5, 3)), np.array([[0, 1, 3]]), r"vertex 2 \(2 in all\) belongs to no element"),
    ],
)
def test_meshes_that_are_none_are_refused(vertices: Array, elements: Array, named: str) -> None:
    with pytest.raises(InputError, match=named):
        check_mesh(vertices, elements)


def test_states_hold_positions_and_velocities_of_all_vertices() -> None:
    body = SoftBody()
    rng = np.random.default_rng(2)
    positions, velocities = rng.normal(size=(2, 3, *body.rest_m.shape))
    states = body.state(positions, velocities)
    np.testing.assert_array_equal(body.positions(states), positions)
    np.testing.assert_array_equal(body.velocities(states), velocities)
    assert not body.velocities(body.state(positions[0])).any()
    centre, quat = body.body_pose(states)
    np.testing.assert_allclose(centre, positions.mean(axis=1))
    np.testing.assert_array_equal(quat, np.tile([1.0, 0.0, 0.0, 0.0], (3, 1)))
    points = body.rest_m[:4] * 0.9 + 0.1 * body.rest_m.mean(axis=0)
    jacobian = body.keypoints_jacobian(states, points)
    for k in range(3):
        np.testing.assert_allclose(jacobian[k] @ states[k], body.keypoints(states, points)[k], atol=1e-12)
    rest = body.rest_state()
    assert isinstance(body, ParticleSystem)
    assert body.positions(rest)[:, 2].min() >= -1e-12


@pytest.mark.parametrize(("around", "layers"), [(4, 1), (5, 2), (16, 2)])
def test_a_ring_is_filled_by_its_tets(around: int, layers: int) -> None:
    """Its surface is closed; with teeth, half of the corners are at the tips."""
    inner, root, tip, width = 0.05, 0.1, 0.12, 0.03
    vertices, tets = ring_tets(around, layers, (inner, root, tip), width)
    assert len(tets) == 6 * around * layers
    assert len(vertices) == 2 * around * (layers + 1)
    volumes = tet_volumes(vertices, tets)
    assert (volumes > 0.0).all()
    corners = vertices[boundary_faces(tets)]
    areas = 0.5 * np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    np.testing.assert_allclose(areas.sum(axis=0), 0.0, atol=1e-15)
    assert (corners.mean(axis=1) * areas).sum() / 3.0 == pytest.approx(volumes.sum())
    radius = np.hypot(vertices[:, 0], vertices[:, 2])
    assert radius.min() == pytest.approx(inner)
    outer = np.sort(radius.reshape(around, layers + 1, 2)[:, -1].ravel())
    half = around if around == 16 else 2 * around
    np.testing.assert_allclose(outer[:half], root)
    np.testing.assert_allclose(outer[half:], tip)
    np.testing.assert_allclose(np.unique(vertices[:, 1].round(12)), [-0.5 * width, 0.5 * width])
    first = vertices[0]
    assert np.arctan2(first[0], -first[2]) == pytest.approx(np.pi / around)


def shapes() -> BentShapes:
    rng = np.random.default_rng(3)
    powers = np.array([[1, 0], [0, 1], [2, 0], [1, 1], [3, 2]])
    return BentShapes(rng.normal(size=(4, 3)), powers, rng.normal(size=(5, 4, 3)), np.ones(2), 0.0)


def test_bent_shapes_are_polynomials_with_their_derivatives() -> None:
    found, q = shapes(), np.array([[0.3, -0.7], [0.0, 0.4]])
    x, y = q.T
    np.testing.assert_allclose(found.terms(q), np.stack([x, y, x**2, x * y, x**3 * y**2], axis=-1))
    for k in range(2):
        expected = found.rest_m + np.tensordot(found.terms(q[k]), found.coefficients, 1)
        np.testing.assert_allclose(found.vertices(q)[k], expected)
        for d, step in enumerate(1e-6 * np.eye(2)):
            slope = (found.vertices(q[k] + step) - found.vertices(q[k] - step)) / 2e-6
            np.testing.assert_allclose(found.jacobian(q)[k, :, :, d], slope, atol=1e-8)
    np.testing.assert_allclose(found.jacobian(q, np.array([2])), found.jacobian(q)[:, [2]])
    np.testing.assert_array_equal(found.of_vertices(2).vertices(q), found.vertices(q)[:, :2])


def test_terms_are_of_degree_five_and_of_two_in_small_amplitudes() -> None:
    found = bent._powers(2, np.array([False, True]))
    expected = {(a, b) for a, b in product(range(6), repeat=2) if 1 <= a + b <= 5 and b <= 2}
    assert {(int(a), int(b)) for a, b in found} == expected
    assert len(found) == len(expected)
    np.testing.assert_array_equal(found[:2], np.eye(2))


def test_a_vibration_scales_with_stiffness_and_viscosity() -> None:
    rng = np.random.default_rng(4)
    modes, masses = rng.normal(size=(3, 5, 3)), rng.uniform(0.1, 0.2, 5)
    stiffness, viscosity = rng.normal(size=(2, 3, 3))
    one = Vibration(modes, np.array([1.0, 4.0, 9.0]), stiffness, viscosity, masses, np.array([0.3, 0.2, 0.1]))
    expected = [0.5 * viscosity[d, d] / sum(masses[v] * (modes[d, v] ** 2).sum() for v in range(5)) for d in range(3)]
    np.testing.assert_allclose(one.decays, expected)
    stiff = one.scaled(4.0, 3.0)
    np.testing.assert_allclose(stiff.squares, 4.0 * one.squares)
    np.testing.assert_allclose(stiff.stiffness, 4.0 * stiffness)
    np.testing.assert_allclose(stiff.decays, 3.0 * one.decays)
    np.testing.assert_allclose(stiff.sag, one.sag / 4.0)
    low = one.lowest(2)
    np.testing.assert_array_equal(low.modes, modes[:2])
    np.testing.assert_array_equal(low.stiffness, stiffness[:2, :2])
    np.testing.assert_allclose(low.decays, one.decays[:2])
    np.testing.assert_array_equal(low.sag, one.sag[:2])


def test_modes_are_the_principal_components_of_motions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two fields and a third that is too small to count; a unit amplitude moves vertices by a metre, in the mean."""
    rod, rng = Rod((4, 1, 1), elements="linear"), np.random.default_rng(5)
    count = len(rod.rest_m)
    fields = np.linalg.qr(rng.normal(size=(3 * count, 3)))[0].T.reshape(3, count, 3)
    times = np.linspace(0.0, 2.0 * np.pi, 61)
    waves = np.stack([np.sin(times), 0.3 * np.sin(2.0 * times), 1e-3 * np.sin(3.0 * times)], axis=1)
    asked = list[float]()

    def motion(system: Rod, chance: np.random.Generator, stiffness: float) -> Array:
        asked.append(stiffness)
        return np.tensordot(waves * (1.0 + stiffness), fields, 1)

    monkeypatch.setattr(modal, "_motion", motion)
    monkeypatch.setattr(modal, "_MOTIONS", 3)
    found = modal.find_motions(rod)
    assert asked == [0.0, 0.5, 1.0]
    assert found.modes.shape == (2, count, 3)
    assert found.amplitudes.shape == (3, 61, 2)
    np.testing.assert_allclose((found.modes**2).sum(axis=2).mean(axis=1), 1.0)
    moved = np.stack([motion(rod, rng, stiffness) for stiffness in (0.0, 0.5, 1.0)])
    off = moved - np.tensordot(found.amplitudes, found.modes, 1)
    assert found.left_out_m == pytest.approx(np.sqrt((off**2).sum(axis=-1).mean()), rel=1e-6)
    third = 1e-3 * np.sin(3.0 * times) * np.array([[1.0], [1.5], [2.0]])
    assert found.left_out_m == pytest.approx(np.sqrt((third**2).mean() / count), rel=1e-3)

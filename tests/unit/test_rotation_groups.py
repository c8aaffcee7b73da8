"""Groups of bodies of known symmetry, plain, textured and off-centre; keypoints closed under them; what is learnt."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import trimesh

from tests.painted_mesh import painted_cube
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.risp.networks import heatmaps, losses
from vid2phys.risp.networks.mesh_shape import body_of
from vid2phys.risp.shape import rotation_groups as groups
from vid2phys.risp.shape.keypoints import choose_keypoints
from vid2phys.risp.shape.symmetry import find_symmetry
from vid2phys.types import Array, Mesh

TILT = matrix_from_rotvec(np.array([0.3, 0.5, -0.7]))
CORNERS = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) * 0.1
TETRAHEDRON = trimesh.Trimesh(CORNERS, [[0, 1, 2], [0, 2, 3], [0, 3, 1], [1, 3, 2]])


def mesh_of(solid: trimesh.Trimesh, turn: Array | None = None, at: tuple[float, float, float] = (0, 0, 0)) -> Mesh:
    vertices = np.asarray(solid.vertices, dtype=float) @ (np.eye(3) if turn is None else turn).T + at
    return Mesh(vertices, np.asarray(solid.faces, dtype=np.int64), np.zeros(len(solid.faces), dtype=np.int64))


def cube(side: float = 0.1) -> trimesh.Trimesh:
    return trimesh.creation.box((side,) * 3)


@pytest.mark.parametrize(
    ("group", "order"),
    [(groups.cyclic(5), 5), (groups.dihedral(4), 8), (groups.tetrahedral(), 12), (groups.octahedral(), 24),
     (groups.icosahedral(), 60)],
)  # fmt: skip
def test_groups_are_closed(group: Array, order: int) -> None:
    assert len(group) == order
    np.testing.assert_array_equal(group[0], np.eye(3))
    table = groups.composition(group)
    products = group[:, None] @ group[None]
    np.testing.assert_allclose(products, group[table], atol=1e-9)
    assert all(len(set(row)) == order for row in table)
    np.testing.assert_allclose(np.linalg.det(group), 1.0)


BODIES = {
    "cube": (mesh_of(cube()), 24, 20),
    "tilted cube of many faces": (mesh_of(cube().subdivide().subdivide().subdivide(), TILT), 24, 20),
    "box": (mesh_of(trimesh.creation.box((0.1, 0.2, 0.3))), 4, None),
    "tilted square box": (mesh_of(trimesh.creation.box((0.1, 0.1, 0.3)), TILT), 8, None),
    "tetrahedron": (mesh_of(TETRAHEDRON, TILT), 12, None),
    "cylinder": (mesh_of(trimesh.creation.cylinder(0.05, 0.2), TILT), 24, None),
    "cone": (mesh_of(trimesh.creation.cone(0.05, 0.2)), 12, 14),
    "hexagonal prism": (mesh_of(trimesh.creation.cylinder(0.1, 0.1, sections=6)), 12, None),
    "off-centre cube": (mesh_of(cube(), TILT, (0.05, 0.02, 0.1)), 24, 20),
}


@pytest.mark.parametrize("name", BODIES)
def test_symmetry_and_keypoints_of_known_bodies(name: str) -> None:
    mesh, order, count = BODIES[name]
    symmetry = find_symmetry(mesh)
    assert symmetry.order == order
    assert symmetry.exact
    corners = mesh.vertices - symmetry.center
    radius = np.linalg.norm(corners, axis=1).max()
    if "cone" not in name and "cylinder" not in name:  # their meshes have 32 sides, the group 12 turns
        turned = symmetry.rotated(mesh.vertices)
        gap = np.linalg.norm(turned[:, :, None] - mesh.vertices, axis=-1).min(axis=-1)
        corner = np.isclose(np.linalg.norm(corners, axis=1), radius)
        assert gap[:, corner].max() < 0.01 * radius
    keypoints = choose_keypoints(mesh, symmetry)
    points = keypoints.points_body
    assert len(points) == (count or len(points))
    assert 6 <= len(points) <= 24
    np.testing.assert_allclose(symmetry.rotated(points), points[keypoints.permutation], atol=1e-9)
    assert all(len(set(row)) == len(points) for row in keypoints.permutation)
    gaps = np.linalg.norm(points[:, None] - points[None], axis=-1) + np.eye(len(points))
    assert gaps.min() > 0.1 * radius


def test_a_cube_is_known_by_its_corners_and_edges() -> None:
    mesh = BODIES["cube"][0]
    points = np.abs(choose_keypoints(mesh, find_symmetry(mesh)).points_body)
    np.testing.assert_allclose(np.sort(points, axis=1)[:8], 0.05, atol=1e-9)
    np.testing.assert_allclose(np.sort(points, axis=1)[8:], np.tile([0.0, 0.05, 0.05], (12, 1)), atol=1e-9)


def test_colours_break_the_symmetry_of_a_cube() -> None:
    mesh = BODIES["cube"][0]

    def six_faces(points: Array, faces: Array) -> Array:
        side = 2 * np.abs(points).argmax(axis=1) + (points.max(axis=1) > 0.0499)
        return np.random.default_rng(3).random((6, 3))[side]

    def one_face(points: Array, faces: Array) -> Array:
        return np.where(points[:, 2:] > 0.0499, [[0.9, 0.1, 0.1]], [[0.1, 0.2, 0.9]])

    assert find_symmetry(mesh, color=six_faces).order == 1
    assert find_symmetry(mesh, color=one_face).order == 4
    assert find_symmetry(mesh, color=lambda points, faces: np.full((len(points), 3), 0.5)).order == 24


def test_an_exact_body_has_no_front_and_any_label_is_right() -> None:
    """The loss is the same for maps under each of a cube's 24 labels, and only for those; the front map is left out."""
    mesh = BODIES["cube"][0]
    body = body_of(mesh, find_symmetry(mesh))
    assert body.front is None
    camera = matrix_from_rotvec(np.array([0.4, 0.7, 0.2]))
    seen = (body.points @ camera.T)[:, :2]
    points = torch.from_numpy(48.0 + 350.0 * seen)[None]
    wanted = losses.Targets(
        points, torch.ones(points.shape[:2], dtype=torch.bool), torch.from_numpy(body.permutation), body.front
    )

    def loss(order: Array) -> losses.KeypointLoss:
        x, y = heatmaps.separable_target(points[:, order], 24)
        maps = (y[..., :, None] * x[..., None, :]).clamp(min=1e-9).log()
        return losses.keypoint_loss(torch.cat([maps, maps[:, :1]], dim=1), wanted)

    values = [float(loss(order).cross_entropy) for order in body.permutation]
    assert max(values) - min(values) < 1e-6
    swapped = body.permutation[0].copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    assert float(loss(swapped).cross_entropy) > values[0] + 0.1
    assert float(loss(body.permutation[5]).front) == 0.0


@pytest.mark.parametrize(("differ", "order"), [(True, 1), (False, 24)])
def test_a_mesh_with_a_texture_is_judged_by_it(differ: bool, order: int) -> None:
    """Six faces of an image each: all different, or all one plain colour."""
    rng = np.random.default_rng(5)
    blocks = rng.integers(0, 255, (6, 4, 4, 3)) if differ else np.full((6, 4, 4, 3), 90)
    assert find_symmetry(painted_cube(blocks)).order == order

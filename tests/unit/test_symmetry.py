"""Symmetry groups of known bodies, and keypoints closed under them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh

from vid2phys.geometry import matrix_from_rotvec
from vid2phys.risp.shape import rotation_groups
from vid2phys.risp.shape.keypoints import choose_keypoints
from vid2phys.risp.shape.symmetry import Symmetry, find_symmetry, surface_points, visible_freedoms
from vid2phys.types import Mesh

CRAZYFLIE = Path(__file__).resolve().parents[2].parent / "shared" / "clips" / "quad_log204" / "mesh.obj"


def box(size: tuple[float, float, float], at: tuple[float, float, float] = (0, 0, 0), turn: float = 0.0) -> Mesh:
    import trimesh

    solid = trimesh.creation.box(size)
    vertices = np.asarray(solid.vertices) + at
    return Mesh(
        vertices @ matrix_from_rotvec(np.array([0, 0, turn])).T, np.asarray(solid.faces), np.zeros(12, dtype=np.int64)
    )


def joined(*meshes: Mesh) -> Mesh:
    offsets = np.cumsum([0, *(len(m.vertices) for m in meshes)])
    return Mesh(
        np.concatenate([m.vertices for m in meshes]),
        np.concatenate([m.faces + o for m, o in zip(meshes, offsets, strict=False)]),
        np.concatenate([np.full(len(m.faces), i) for i, m in enumerate(meshes)]),
        tuple(f"part{i}" for i in range(len(meshes))),
    )


def star(arms: int) -> Mesh:
    """Arms in a circle about z, with a foot below so that it has no other axis."""
    around = [box((0.1, 0.01, 0.01), (0.06, 0, 0), 2 * np.pi * i / arms) for i in range(arms)]
    feet = [box((0.01, 0.01, 0.08), (0.08, 0, -0.05), 2 * np.pi * i / arms) for i in range(arms)]
    return joined(*around, *feet)


def test_order_of_stars_is_found() -> None:
    for arms in (2, 3, 4, 5, 6):
        symmetry = find_symmetry(star(arms))
        assert symmetry.order == arms
        np.testing.assert_allclose(np.abs(symmetry.axis), [0, 0, 1], atol=1e-9)
        assert symmetry.exactness.max() < 5e-3
        np.testing.assert_allclose(symmetry.rotations[0], np.eye(3))


def test_a_long_nose_leaves_the_identity_alone() -> None:
    symmetry = find_symmetry(joined(star(3), box((0.15, 0.05, 0.05), (0.1, 0.02, 0.05))))
    assert symmetry.order == 1
    assert symmetry.axis is None
    keypoints = choose_keypoints(star(3), symmetry, 7)
    assert keypoints.points_body.shape == (7, 3)
    np.testing.assert_array_equal(keypoints.permutation, np.arange(7)[None])


def test_a_small_front_mark_is_a_near_symmetry() -> None:
    symmetry = find_symmetry(joined(star(4), box((0.02, 0.02, 0.01), (0.02, 0, 0.01))))
    assert symmetry.order == 4
    assert 1e-4 < symmetry.exactness[1] < 0.04


@pytest.mark.parametrize(("arms", "count"), [(4, 12), (5, 12), (2, 7)])
def test_keypoints_are_closed_and_apart(arms: int, count: int) -> None:
    symmetry = find_symmetry(star(arms))
    keypoints = choose_keypoints(star(arms), symmetry, count)
    points = keypoints.points_body
    assert points.shape == (count, 3)
    for rotation, permutation in zip(symmetry.rotations, keypoints.permutation, strict=True):
        np.testing.assert_allclose(points @ rotation.T, points[permutation], atol=1e-9)
    gaps = np.linalg.norm(points[:, None] - points[None], axis=-1) + np.eye(count)
    assert gaps.min() > 0.005


def test_keypoints_avoid_what_spins() -> None:
    propellers = [box((0.02, 0.02, 0.002), (0.115, 0, 0.02), 0.5 * np.pi * i) for i in range(4)]
    mesh = joined(star(4), *propellers)
    named = Mesh(mesh.vertices, mesh.faces, mesh.part, ("frame", *("cw_prop",) * 4))
    points = choose_keypoints(named, find_symmetry(named)).points_body
    assert points[:, 2].max() < 0.01


def test_too_few_keypoints_for_the_group_are_refused() -> None:
    with pytest.raises(ValueError, match="closed"):
        choose_keypoints(star(4), Symmetry(rotation_groups.cyclic(4), np.zeros(4)), 3)


def test_surface_points_lie_on_the_surface_by_area() -> None:
    points, faces = surface_points(box((0.2, 0.1, 0.1)), 4000)
    assert np.all(np.isclose(np.abs(points / [0.1, 0.05, 0.05]), 1.0).any(axis=1))
    ends = np.isclose(np.abs(points[:, 0]), 0.1).mean()
    assert ends == pytest.approx(0.02 / 0.1, abs=0.01)
    assert faces.shape == (4000,)


def parted(solid: Any, part: Any = None) -> Mesh:
    """Return a solid of trimesh as a mesh, its faces in two parts where `part` [F] says so."""
    faces = np.asarray(solid.faces, dtype=np.int64)
    if part is None:
        return Mesh(np.asarray(solid.vertices), faces, np.zeros(len(faces), dtype=np.int64))
    return Mesh(np.asarray(solid.vertices), faces, np.asarray(part, dtype=np.int64), ("a", "b"))


def shown(name: str) -> Mesh:
    """Return a body anywhere in its axes; its name begins with what it is."""
    make, kind = trimesh.creation, name.split()[0]
    if kind in ("box", "cube", "quadrotor"):
        size = (0.12, 0.08, 0.05) if kind == "box" else (0.05,) * 3
        return star(4) if kind == "quadrotor" else box(size, (0.1, 0, 0), 0.3)
    # The two moments of the isotropic cylinder agree, so that its axis is no principal axis of its own.
    height = {"can": 0.1, "isotropic": 0.03464, "coin": 0.002}.get(kind, 0.1)
    solids = {
        "ball": lambda: make.icosphere(4, 0.05),
        "coarse": lambda: make.icosphere(2, 0.05),
        "globe": lambda: make.uv_sphere(0.05),
        "cone": lambda: make.cone(0.02, 0.06),
        "ring": lambda: make.torus(0.05, 0.015),
        "nut": lambda: make.cylinder(0.02, 0.02, sections=6),
        "mug": lambda: trimesh.util.concatenate([make.cylinder(0.04, 0.1), box_of(0.05)]),
    }
    solid = solids.get(kind, lambda: make.cylinder(0.02, height, sections=96))()
    part = None
    if "lids" in name:
        part = np.abs(solid.face_normals[:, 2]) > 0.5
    elif "patches" in name:
        part = (solid.triangles_center[:, 0] > 0) ^ (solid.triangles_center[:, 1] > 0)
    place = trimesh.transformations.random_rotation_matrix(np.array([0.2, 0.5, 0.7]))
    place[:3, 3] = 0.1, -0.2, 0.05
    return parted(solid.apply_transform(place), part)


def box_of(at: float) -> Any:
    return trimesh.creation.box((0.03, 0.01, 0.05)).apply_translation([at, 0.0, 0.0])


@pytest.mark.parametrize(
    ("name", "freedoms"),
    [
        *((name, 3) for name in ("ball", "coarse ball", "globe")),
        *((name, 5) for name in ("can", "isotropic", "coin", "cone", "ring", "can with lids")),
        *((name, 6) for name in ("box", "cube", "quadrotor", "nut", "mug", "ball of patches")),
    ],
)
def test_an_image_shows_so_many_degrees_of_freedom(name: str, freedoms: int) -> None:
    assert visible_freedoms(shown(name)) == freedoms


@pytest.mark.shared
@pytest.mark.skipif(not CRAZYFLIE.exists(), reason="the recordings in ../shared are not here")
def test_the_crazyflie_has_quarter_turns_about_z() -> None:
    from vid2phys.io.mesh import load_mesh

    mesh = load_mesh(CRAZYFLIE)
    assert len(mesh.faces) == 3754
    assert len(mesh.part_names) == 7
    symmetry = find_symmetry(mesh)
    assert symmetry.order == 4
    np.testing.assert_allclose(symmetry.rotations[1], [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-12)
    assert 1e-3 < symmetry.exactness[1] < 0.03

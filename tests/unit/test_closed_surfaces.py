"""Which faces are never seen from behind, and drawings that leave these out: the same as drawings of all faces."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from vid2phys.engine.closed_surfaces import one_sided
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.silhouette import draw
from vid2phys.types import Array, Mesh


def together(*meshes: trimesh.Trimesh) -> tuple[Array, NDArray[np.int64]]:
    """Return vertices and faces of some meshes as one."""
    whole = trimesh.util.concatenate(meshes)
    return np.asarray(whole.vertices, dtype=float), np.asarray(whole.faces, dtype=np.int64)


def open_box() -> trimesh.Trimesh:
    """Return a box without its lid."""
    box = trimesh.creation.box((0.2, 0.1, 0.05))
    return trimesh.Trimesh(box.vertices, box.faces[box.face_normals[:, 2] < 0.5], process=False)


def inside_out(mesh: trimesh.Trimesh) -> trimesh.Trimesh:
    return trimesh.Trimesh(mesh.vertices, mesh.faces[:, ::-1], process=False)


def apart() -> trimesh.Trimesh:
    """Return a ball whose faces have vertices of their own."""
    ball = trimesh.creation.icosphere(2, 0.1)
    return trimesh.Trimesh(ball.triangles.reshape(-1, 3), np.arange(3 * len(ball.faces)).reshape(-1, 3), process=False)


def test_closed_surfaces_that_point_outwards_are_one_sided() -> None:
    ring, lid = trimesh.creation.torus(0.3, 0.1), open_box()
    parts = [ring, lid, inside_out(trimesh.creation.box((0.1, 0.1, 0.1))), apart()]
    found = one_sided(*together(*parts))
    expected = [np.full(len(part.faces), kind) for part, kind in zip(parts, (True, False, False, True), strict=True)]
    np.testing.assert_array_equal(found, np.concatenate(expected))
    shifted = together(ring.apply_translation([5.0, -3.0, 2.0]))
    assert one_sided(*shifted).all(), "wherever the origin is"


def test_closed_surfaces_are_told_from_open_ones() -> None:
    box = trimesh.creation.box((1.0, 2.0, 3.0))
    split = np.asarray(box.vertices)[box.faces].reshape(-1, 3)  # every face with vertices of its own
    assert one_sided(split, np.arange(36).reshape(12, 3)).all()
    assert not one_sided(np.asarray(box.vertices), np.asarray(box.faces)[:-1]).any()
    turned = np.asarray(box.faces).copy()
    turned[0] = turned[0, ::-1]
    assert not one_sided(np.asarray(box.vertices), turned).any()


@pytest.mark.parametrize(
    "mesh",
    [trimesh.creation.box((0.2, 0.1, 0.05)), trimesh.creation.torus(0.1, 0.03), apart(), open_box()],
    ids=["box", "ring", "ball of loose faces", "open box"],
)
def test_a_drawing_without_the_faces_turned_away_is_the_same(mesh: trimesh.Trimesh) -> None:
    vertices, faces = together(mesh)
    solid = Solid.of(Mesh(vertices, faces, np.zeros(len(faces), np.int64)))
    for rotation in Rotation.random(20, rng=np.random.default_rng(0)).as_matrix():
        placed = vertices @ rotation.T + [0.05, 0.1, 0.6]
        whole, one = draw(placed, faces), solid.draw(placed)
        assert whole is not None
        assert one is not None
        assert (whole.nearness > 0.0).sum() > 500
        np.testing.assert_array_equal(one.nearness, whole.nearness)

"""Places along creases beside a slow walk, and which of them show both faces, on a roof in closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import trimesh
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from vid2phys.tracking.cues.creases import Solid, _along_creases, _on_faces
from vid2phys.types import Array, Mesh


def mesh_of(made: trimesh.Trimesh) -> Mesh:
    return Mesh(
        np.asarray(made.vertices), np.asarray(made.faces, np.int64), np.zeros(len(made.faces), np.int64), "made"
    )


SOLID = Solid.of(mesh_of(trimesh.creation.box((0.3, 0.2, 0.1))))
FOCAL = 400.0
ANGLES = [(0.5, 0.6, 0.2), (2.4, -0.5, 1.0), (-0.7, 2.2, -1.9)]


def placed(angles: tuple[float, ...]) -> Array:
    rotation = Rotation.from_euler("xyz", angles).as_matrix()
    return np.asarray(SOLID.mesh.vertices @ rotation.T + np.array([0.1, 0.05, 1.0]))


def bearing(point: Array) -> Array:
    return np.asarray(point[:2] / point[2])


def facing_creases(vertices: Array) -> list[int]:
    """Return the creases of the box between two faces that show, by where their middles are from the box's middle."""
    middle = vertices.mean(axis=0)
    shown = []
    for e, faces in enumerate(SOLID.sides):
        centers = [vertices[SOLID.mesh.faces[face]].mean(axis=0) for face in faces]
        corner = vertices[SOLID.edges[e, 0]]
        outward = []
        for face, center in zip(faces, centers, strict=True):
            a, b, c = vertices[SOLID.mesh.faces[face]]
            normal = np.cross(b - a, c - a)
            outward.append(normal * np.sign(normal @ (center - middle)))
        if all(normal @ corner < 0.0 for normal in outward):
            shown.append(e)
    return shown


@pytest.mark.parametrize("angles", ANGLES)
@pytest.mark.parametrize("most", [7, 100_000])
def test_places_are_evenly_spread_along_creases_between_faces_that_show(most: int, angles: tuple[float, ...]) -> None:
    """A drawn pixel apart, or farther where there would be too many; a crease may begin within a step."""
    vertices, corners = placed(angles), SOLID.mesh.faces[SOLID.sides]
    at, run, points, normals = _along_creases(vertices, SOLID.edges, corners, FOCAL, most)
    creases = facing_creases(vertices)
    assert len(creases) == 3
    ends = [[vertices[v] for v in SOLID.edges[e]] for e in creases]
    lengths = [FOCAL * float(np.linalg.norm(bearing(b) - bearing(a))) for a, b in ends]
    total = sum(lengths)
    step = max(total / most, 1.0)
    assert len(at) == (7 if most == 7 else round(total))
    for i in range(len(at)):
        left, n = (i + 0.5) * step, 0
        while left > lengths[n]:
            left, n = left - lengths[n], n + 1
        a, b = ends[n]
        expected = bearing(a) + left / lengths[n] * (bearing(b) - bearing(a))
        np.testing.assert_allclose(at[i], expected, atol=1e-9)
        np.testing.assert_allclose(run[i], bearing(b) - bearing(a), atol=1e-12)
        np.testing.assert_allclose(bearing(points[i]), expected, atol=1e-9)
        np.testing.assert_allclose(np.cross(points[i] - a, b - a), 0.0, atol=1e-9)
        for f, face in enumerate(SOLID.sides[creases[n]]):
            off = vertices[SOLID.mesh.faces[face]] - vertices[SOLID.mesh.faces[face][0]]
            np.testing.assert_allclose(off @ normals[i, f], 0.0, atol=1e-12)
            assert normals[i, f] @ points[i] < 0.0


def test_creases_of_less_than_a_pixel_have_no_place() -> None:
    corners = SOLID.mesh.faces[SOLID.sides]
    for far, count in ((1000.0, 0), (50.0, None)):
        at = _along_creases(placed(ANGLES[0]) + np.array([0.0, 0.0, far]), SOLID.edges, corners, FOCAL, 100)[0]
        assert len(at) == count if count is not None else len(at) > 0


ROOF_NORMALS = np.array([[-0.5, 0.0, 1.0], [0.5, 0.0, 1.0]])


def roof(ridge: float = 0.0) -> NDArray[np.float32]:
    """Return 1 / depth of a roof z = 1 + |x| / 2, drawn 100 px for a bearing of one; its ridge may be elsewhere."""
    u = (np.arange(101) - 50.0) / 100.0 - ridge
    return np.tile(1.0 - 0.5 * np.abs(u), (101, 1)).astype(np.float32)


def on_roof(
    drawn: NDArray[np.float32], x: float = 0.0, y: float = 0.1, step_px: float = 1.0, flat: float = 0.01
) -> bool:
    at, step = np.array([[x, y]]), np.array([[step_px / 100.0, 0.0]])
    depth = 1.0 / (1.0 - 0.5 * abs(x))
    points = np.array([[x * depth, y * depth, depth]])
    drawing = drawn, 100.0, np.array([-50.0, -50.0])
    return bool(_on_faces(at, step, points, ROOF_NORMALS[None], drawing, (1.5, 10.0, 5, flat))[0])


@pytest.mark.parametrize("side", [-1, 1])
def test_a_line_shows_one_face_on_each_side(side: int) -> None:
    """Five pixels from 1.5 to 10 steps away have to show it; those between may be hidden."""
    assert on_roof(roof())
    for beside, shows in ((1, True), (4, False), (6, False), (8, False), (10, False), (11, True), (5, True)):
        hidden = roof()
        hidden[60, 50 + side * beside] = 5.0
        assert on_roof(hidden) is shows, beside
    longer = roof()
    longer[60, 50 + side * 20] = 5.0
    assert not on_roof(longer, step_px=2.0), "in steps of two pixels"


def test_a_face_shows_to_a_share_of_its_depth() -> None:
    for factor, shows in ((1.006, True), (0.994, True), (1.014, False), (0.986, False)):
        assert on_roof((factor * roof()).astype(np.float32)) is shows
        assert on_roof((factor * roof()).astype(np.float32), flat=0.02)


def test_a_line_beside_the_ridge_or_the_drawing_shows_no_two_faces() -> None:
    assert not on_roof(roof(), x=0.05), "a side that shows both faces"
    assert on_roof(roof(0.05), x=0.05) is False, "planes through another place"
    plane = np.tile(1.0 - 0.5 * (np.arange(101) - 50.0) / 100.0, (101, 1)).astype(np.float32)
    assert on_roof(plane), "one face on both sides"
    for x, y in ((0.0, 0.6), (0.0, -0.6)):
        assert not on_roof(roof(), x, y)
    narrow = roof()[:, :60]
    assert not on_roof(narrow)
    assert on_roof(roof()[:, :61])


def test_short_and_blunt_edges_are_no_creases() -> None:
    """A wedge of two faces whose normals differ by an angle, with a ridge of some length."""

    def creases(degrees: float, length: float) -> int:
        slope = np.radians(0.5 * degrees)
        wing = np.array([np.cos(slope), 0.0, np.sin(slope)])
        vertices = np.array([[0.0, -0.5 * length, 0.0], [0.0, 0.5 * length, 0.0], wing, wing * [-1.0, 1.0, 1.0]])
        mesh = Mesh(vertices, np.array([[0, 2, 1], [0, 1, 3]]), np.zeros(2, np.int64), "wedge")
        return len(Solid.of(mesh).edges)

    assert (creases(26.0, 0.5), creases(24.0, 0.5)) == (1, 0)
    assert (creases(90.0, 0.11), creases(90.0, 0.09)) == (1, 0)


def test_smooth_parts_end_at_creases_and_where_parts_of_the_mesh_end() -> None:
    labels = SOLID.smooth_parts
    normals = np.round(trimesh.Trimesh(SOLID.mesh.vertices, SOLID.mesh.faces, process=False).face_normals, 6)
    assert len(set(labels.tolist())) == 6
    assert len({(int(label), *normal) for label, normal in zip(labels, normals.tolist(), strict=True)}) == 6
    ball = mesh_of(trimesh.creation.icosphere(3, 0.1))
    assert len(set(Solid.of(ball).smooth_parts.tolist())) == 1
    half = ball.vertices[ball.faces].mean(axis=1)[:, 2] > 0.0
    halves = replace(ball, part=half.astype(np.int64))
    found = Solid.of(halves).smooth_parts
    assert {(int(a), bool(b)) for a, b in zip(found, half, strict=True)} == {
        (0, half[found == 0][0]),
        (1, half[found == 1][0]),
    }
    plain = SOLID.without_creases()
    assert (plain.edges.shape, plain.sides.shape, plain.mesh) == ((0, 2), (0, 2), SOLID.mesh)

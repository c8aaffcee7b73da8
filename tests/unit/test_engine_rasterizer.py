"""The rasteriser against exact projected shapes; pixel centres at integers."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from scipy.spatial import ConvexHull

from vid2phys.engine.observe import project
from vid2phys.engine.render.rasterizer import rasterize, rasterize_camera, shade
from vid2phys.types import Array, Camera, Mesh

K = np.array([[210.0, 0.0, 47.3], [0.0, 190.0, 30.8], [0.0, 0.0, 1.0]])
# a tetrahedron without any symmetry, counter-clockwise from outside
TETRAHEDRON = np.array([[-0.11, -0.07, 1.0], [0.17, -0.02, 1.1], [0.02, 0.12, 0.95], [-0.02, 0.01, 1.4]])
FACES = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]])


def polygon_centroid(points: Array) -> Array:
    x, y = points.T
    cross = x * np.roll(y, -1) - np.roll(x, -1) * y
    return np.array([((x + np.roll(x, -1)) * cross).sum(), ((y + np.roll(y, -1)) * cross).sum()]) / (3 * cross.sum())


def test_silhouette_has_the_area_centroid_and_extent_of_the_projected_shape() -> None:
    raster = rasterize(TETRAHEDRON, FACES, K, 100, 64, supersample=16)
    pixels = project(Camera(K, 100, 64), TETRAHEDRON)
    hull = ConvexHull(pixels)
    coverage = raster.coverage
    assert coverage.shape == (64, 100)
    rows, columns = np.mgrid[:64, :100]
    centroid = np.array([(coverage * columns).sum(), (coverage * rows).sum()]) / coverage.sum()
    np.testing.assert_allclose(centroid, polygon_centroid(pixels[hull.vertices]), atol=0.01)
    assert abs(coverage.sum() - hull.volume) < 0.002 * hull.volume
    fine_rows, fine_columns = np.nonzero(raster.mask)
    in_image = (np.stack([fine_columns, fine_rows], axis=-1) - 7.5) / 16
    np.testing.assert_allclose(in_image.min(axis=0), pixels.min(axis=0), atol=0.1)
    np.testing.assert_allclose(in_image.max(axis=0), pixels.max(axis=0), atol=0.1)


def test_a_pixel_is_covered_when_its_centre_is() -> None:
    """A rectangle from column 9.6 to 20.4 and row 4.4 to 7.6 holds the centres 10..20 and 5..7."""
    corners = np.array([[9.6, 4.4], [20.4, 4.4], [20.4, 7.6], [9.6, 7.6]])
    vertices = np.concatenate([(corners - K[:2, 2]) / np.diag(K)[:2], np.ones((4, 1))], axis=-1) * 2.0
    mask = rasterize(vertices, np.array([[0, 1, 2], [0, 2, 3]]), K, 40, 30).mask
    expected = np.zeros((30, 40), dtype=bool)
    expected[5:8, 10:21] = True
    np.testing.assert_array_equal(mask, expected)


def test_depth_and_barycentric_coordinates_give_the_point_seen() -> None:
    raster = rasterize(TETRAHEDRON, FACES, K, 100, 64)
    rows, columns = np.nonzero(raster.mask)
    assert len(rows) > 500
    weights = raster.barycentric[rows, columns]
    points = np.einsum("nk,nkd->nd", weights, TETRAHEDRON[FACES[raster.face_id[rows, columns]]])
    np.testing.assert_allclose(project(Camera(K, 100, 64), points), np.stack([columns, rows], axis=-1), atol=1e-9)
    np.testing.assert_allclose(points[:, 2], raster.depth[rows, columns], rtol=1e-12)
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0)
    assert np.isinf(raster.depth[~raster.mask]).all()
    assert not raster.barycentric[~raster.mask].any()
    assert (raster.face_id[~raster.mask] == -1).all()
    # the front face, whose normal points at the camera, hides those behind it
    front, normal = TETRAHEDRON[FACES[0]], raster.normals[0]
    assert normal[2] < 0
    np.testing.assert_array_less(front.min(axis=0)[2] - 1e-9, raster.depth[rows, columns])
    np.testing.assert_array_equal(raster.face_id[raster.mask], 0)


def test_the_nearest_of_crossing_faces_is_seen() -> None:
    """Two quads that cross in a vertical line: each is seen on the side where it is nearer."""
    left = np.array([[-0.2, -0.1, 0.8], [0.2, -0.1, 1.2], [0.2, 0.1, 1.2], [-0.2, 0.1, 0.8]])
    right = left * [-1.0, 1.0, 1.0]
    faces = np.array([[0, 1, 2], [0, 2, 3], [4, 5, 6], [4, 6, 7]])
    raster = rasterize(np.concatenate([left, right]), faces, K, 100, 64)
    rows, columns = np.nonzero(raster.mask)
    np.testing.assert_array_equal(raster.face_id[rows, columns] >= 2, columns > K[0, 2])


def test_shared_edges_leave_no_gap_and_ties_are_settled_by_order() -> None:
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.linspace(-0.2, 0.2, 12), np.linspace(-0.12, 0.12, 9)), axis=-1).reshape(-1, 2)
    vertices = np.concatenate([grid, 1.0 + 0.01 * rng.normal(size=(len(grid), 1))], axis=-1)
    corner = (np.arange(8)[:, None] * 12 + np.arange(11)).ravel()
    faces = np.concatenate(
        [np.stack([corner, corner + 1, corner + 13], -1), np.stack([corner, corner + 13, corner + 12], -1)]
    )
    doubled = rasterize(vertices, np.concatenate([faces, faces]), K, 100, 64)
    assert doubled.face_id.max() < len(faces)
    inside = doubled.mask[12:50, 15:80]
    assert inside.all()


def test_faces_outside_behind_or_absent_draw_nothing() -> None:
    assert not rasterize(TETRAHEDRON * [1, 1, -1], FACES, K, 100, 64).mask.any()
    assert not rasterize(TETRAHEDRON + np.array([5, 0, 0]), FACES, K, 100, 64).mask.any()
    assert not rasterize(TETRAHEDRON, np.zeros((0, 3), dtype=int), K, 100, 64).mask.any()
    partly = rasterize(TETRAHEDRON + np.array([0.25, 0.1, 0.0]), FACES, K, 100, 64)
    assert partly.mask[:, -1].any()
    assert partly.depth.shape == (64, 100)
    crossing = TETRAHEDRON - np.array([0, 0, 1.2])
    assert not rasterize(crossing, FACES, K, 100, 64).mask.any()


@pytest.mark.parametrize("behind", [0, 1, 2])
def test_a_face_that_reaches_behind_the_camera_is_not_drawn(behind: int) -> None:
    face, front = np.array([[0, 1, 2]]), TETRAHEDRON[:3].copy()
    assert rasterize(front, face[:, ::-1], K, 100, 64).mask.any()
    front[behind, 2] *= -1.0
    assert not rasterize(front, face[:, ::-1], K, 100, 64).mask.any()


@pytest.mark.parametrize("supersample", [1, 4])
def test_distorted_camera_agrees_with_opencv(supersample: int) -> None:
    camera = Camera(K, 100, 64, np.array([-0.3, 0.1, 0.01, -0.005, 0.0]))
    raster = rasterize_camera(TETRAHEDRON, FACES, camera, supersample)
    pixels = cv2.projectPoints(TETRAHEDRON[:, None], np.zeros(3), np.zeros(3), K, camera.distortion)[0][:, 0]
    assert abs(raster.coverage.sum() - ConvexHull(pixels).volume) < 0.02 * ConvexHull(pixels).volume


def test_shading() -> None:
    mesh = Mesh(TETRAHEDRON, FACES, np.array([0, 1, 1, 1]), ("front", "back"))
    raster = rasterize(TETRAHEDRON, FACES, K, 100, 64, supersample=4)
    colors = np.array([[1.0, 0.5, 0.25], [0.0, 1.0, 0.0]])
    image = shade(raster, mesh, colors, -raster.normals[0])
    assert image.shape == (64, 100, 4)
    np.testing.assert_allclose(image[..., 3], raster.coverage, atol=1e-7)
    np.testing.assert_allclose(
        image[image[..., 3] > 0][:, :3], np.tile(colors[0], ((image[..., 3] > 0).sum(), 1)), atol=1e-6
    )
    assert not image[image[..., 3] == 0].any()
    sideways = shade(raster, mesh, colors, np.cross(raster.normals[0], [0.0, 1.0, 0.0]))
    np.testing.assert_allclose(sideways[image[..., 3] == 1][:, 0], 0.35, atol=1e-6)

"""The benchmark that judges poses without a truth: small on the body's own edges, large beside them."""

from __future__ import annotations

import numpy as np

from benchmarks.edges import FAR_PX, Edges, outline
from tests.painted_mesh import plain_cube
from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import make_transform, matrix_from_rotvec
from vid2phys.types import Camera

CAMERA = Camera(np.array([[400.0, 0.0, 160.0], [0.0, 400.0, 120.0], [0.0, 0.0, 1.0]]), 320, 240)


def test_distance_from_edges_tells_a_pose_from_one_beside_it() -> None:
    mesh = plain_cube()
    pose = make_transform(matrix_from_rotvec(np.array([0.5, 0.3, 0.9])), np.array([0.02, 0.01, 0.6]))
    mask = rasterize_camera(mesh.vertices @ pose[:3, :3].T + pose[:3, 3], mesh.faces, CAMERA).mask
    noise = np.random.default_rng(0).normal(0.0, 3.0, (*mask.shape, 3))
    frame = np.clip(np.where(mask[..., None], 60.0, 170.0) + noise, 0, 255).astype(np.uint8)
    points, normals = outline(mesh, CAMERA, pose)
    assert len(points) > 50
    edges = Edges(frame)
    assert np.median(edges.distance(points, normals)) < 0.7
    assert np.median(edges.distance(points + np.array([5.0, 4.0]), normals)) > 3.0
    across = np.stack([normals[:, 1], -normals[:, 0]], axis=1)
    assert np.median(edges.distance(points, across)) > 5.0  # edges that run another way do not count
    np.testing.assert_array_equal(Edges(np.full_like(frame, 90)).distance(points, normals), FAR_PX)

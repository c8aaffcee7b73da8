"""A body whose parts have colours is turned as its parts say, whatever the light and the background."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
import trimesh

from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.risp.shape.rotation_groups import cyclic
from vid2phys.tracking.cues.part_colors import DEFAULTS, _Inside, part_nats
from vid2phys.types import Array, Camera, Mesh

CAMERA = Camera(np.array([[600.0, 0.0, 157.3], [0.0, 610.0, 121.6], [0.0, 0.0, 1.0]]), 320, 240)
TRUTH = matrix_from_rotvec(np.array([2.0, 0.3, 0.1])), np.array([0.01, 0.02, 1.0])


def two_parts() -> Mesh:
    """A square plate, one edge of which is another part: the front."""
    box = trimesh.creation.box((0.1, 0.1, 0.03)).subdivide_to_size(0.02)
    front = box.triangles_center[:, 0] > 0.02
    return Mesh(np.array(box.vertices), np.array(box.faces), front.astype(np.int64), ("plate", "front"))


def photograph(mesh: Mesh, colors: Array, seed: int) -> np.ndarray:
    """In a light that comes from a side, before an image of nothing."""
    rng = np.random.default_rng(seed)
    raster = rasterize_camera(mesh.vertices @ TRUTH[0].T + TRUTH[1], mesh.faces, CAMERA)
    shade = 0.6 + raster.normals @ rng.normal(0.0, 0.2, 3)
    behind = cv2.GaussianBlur(rng.uniform(0.0, 1.0, (240, 320, 3)), (0, 0), 4.0)
    body = (colors[mesh.part] * shade[:, None])[raster.face_id]
    light = cv2.GaussianBlur(np.where(raster.mask[..., None], body, behind), (0, 0), 0.7)
    noise = rng.normal(0.0, 3.0, light.shape)
    return np.clip(np.round(255.0 * np.clip(light, 0.0, 1.0) ** (1.0 / 2.2) + noise), 0, 255).astype(np.uint8)


def turned() -> list[Pose]:
    return [Pose(TRUTH[0] @ turn.T, TRUTH[1]) for turn in cyclic(4)]


def test_parts_of_two_colours_tell_a_quarter_turn() -> None:
    mesh = two_parts()
    for seed, colors in enumerate(np.random.default_rng(5).uniform(0.1, 0.7, (4, 2, 3))):
        nats = part_nats(photograph(mesh, colors, seed), CAMERA, mesh, turned())
        assert nats[0] == 0.0
        assert nats[1:].max() < -5.0


def test_a_large_body_is_looked_at_in_a_smaller_image() -> None:
    mesh = two_parts()
    image = photograph(mesh, np.array([[0.1, 0.3, 0.5], [0.6, 0.3, 0.2]]), 0)

    def enlarged(k: int) -> Array:
        K = CAMERA.K * np.array([[k], [k], [1.0]])
        K[:2, 2] += 0.5 * (k - 1)  # pixel centres are at integers
        large = cv2.resize(image, None, fx=k, fy=k, interpolation=cv2.INTER_NEAREST)
        return part_nats(np.asarray(large, dtype=np.uint8), Camera(K, 320 * k, 240 * k), mesh, turned())

    np.testing.assert_allclose(enlarged(4), enlarged(2), rtol=0.05)  # 140 px wide, then 280


def test_parts_of_one_colour_tell_nothing_that_matters() -> None:
    mesh = two_parts()
    nats = part_nats(photograph(mesh, np.full((2, 3), 0.4), 0), CAMERA, mesh, turned())
    assert nats.min() > -3.0


def test_a_body_too_small_to_see_tells_nothing() -> None:
    mesh = two_parts()
    far = [Pose(pose.rotation, np.array([0.0, 0.0, 30.0])) for pose in turned()]
    np.testing.assert_array_equal(part_nats(photograph(mesh, np.eye(3)[:2], 0), CAMERA, mesh, far), 0.0)


def test_pixels_are_explained_by_the_light_of_their_parts_as_a_display_shows_them() -> None:
    """Beside weighted least squares; pixels in which a display's tone curve is steep count more."""
    rng = np.random.default_rng(0)
    basis, slope = rng.normal(size=(300, 4)), rng.uniform(0.3, 2.0, 300)
    light = basis @ rng.normal(size=(4, 3))
    exact = _Inside(light, slope, basis)
    assert exact.misfit(DEFAULTS) == pytest.approx(0.02**2, rel=0.05)
    noisy = light + 0.05 * rng.normal(size=light.shape)
    found = _Inside(noisy, slope, basis).misfit(replace(DEFAULTS, rounds=1, ridge=0.0))
    scaled, target = basis * slope[:, None], noisy * slope[:, None]
    residual = target - scaled @ np.linalg.lstsq(scaled, target, rcond=None)[0]
    square = (residual**2).mean(axis=1)
    scale = 2.5**2 * (np.median(square) + 0.02**2)
    assert found == pytest.approx((square / (1.0 + square / scale)).mean() + 0.02**2, rel=1e-6)
    wild = noisy.copy()
    wild[:30] += 9.0
    assert _Inside(wild, slope, basis).misfit(DEFAULTS) < 4.0 * _Inside(noisy, slope, basis).misfit(DEFAULTS)


def test_a_body_beside_the_frame_tells_nothing() -> None:
    mesh = two_parts()
    image = photograph(mesh, np.array([[0.1, 0.3, 0.5], [0.6, 0.3, 0.2]]), 0)
    for place in (np.array([9.0, 0.0, 1.0]), np.array([0.0, 0.0, -1.0])):
        away = [Pose(pose.rotation, place) for pose in turned()]
        np.testing.assert_array_equal(part_nats(image, CAMERA, mesh, away), np.zeros(4))

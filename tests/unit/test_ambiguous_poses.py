"""Poses that look alike at first sight are told apart by what they explain."""

from __future__ import annotations

import cv2
import numpy as np

from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import Pose, matrix_from_rotvec, quat_from_matrix, rotvec_from_quat
from vid2phys.tracking.ambiguous_poses import PoseScorer, alternatives, resolve
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.evidence import Evidence
from vid2phys.types import Array, Camera, Mesh

CAMERA = Camera(np.array([[600.0, 0.0, 297.3], [0.0, 610.0, 251.6], [0.0, 0.0, 1.0]]), 640, 480)
CORNERS = np.array([[x, y, z] for x in (-0.05, 0.05) for y in (-0.06, 0.06) for z in (-0.04, 0.04)])
QUADS = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
FACES = np.array([tri for a, b, c, d in QUADS for tri in ((a, b, c), (a, c, d))])
SOLID = Solid.of(Mesh(CORNERS, FACES, np.zeros(12, dtype=np.int64)))
TRUTH = matrix_from_rotvec(np.array([0.5, 0.4, 0.3])), np.array([0.05, 0.02, 1.0])
PRIOR = np.diag(np.array([0.08, 0.08, 0.08, 3e-3, 3e-3, 0.03]) ** -2.0)


def photograph(rotation: Array = TRUTH[0], translation: Array = TRUTH[1]) -> np.ndarray:
    raster = rasterize_camera(CORNERS @ rotation.T + translation, FACES, CAMERA)
    shades = np.array([[0.5], [0.15], [0.3], [0.45], [0.1], [0.25]]) * np.array([1.0, 0.8, 0.6])
    light = np.where(raster.mask[..., None], shades[raster.face_id // 2], np.array([0.3, 0.4, 0.45]))
    display = 255.0 * cv2.GaussianBlur(light, (0, 0), 0.7) ** (1.0 / 2.2)
    noise = np.random.default_rng(0).normal(0.0, 3.0, light.shape)
    return np.clip(np.round(display + noise), 0, 255).astype(np.uint8)


def degrees_off(rotation: Array) -> float:
    """Up to the half turns of a box."""
    turns = np.stack([np.diag(d) for d in ([1.0, 1.0, 1.0], [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0])])
    off = rotvec_from_quat(quat_from_matrix(TRUTH[0].T @ rotation @ turns))
    return float(np.degrees(np.linalg.norm(off, axis=-1)).min())


def test_the_mirror_twin_and_a_tilted_reading_are_settled() -> None:
    image = photograph()
    wrong = [next(alternatives(Pose(*TRUTH))).rotation, matrix_from_rotvec(np.array([0.3, -0.25, 0.0])) @ TRUTH[0]]
    for start in wrong:
        assert degrees_off(start) > 20.0
        found = resolve(image, CAMERA, SOLID, Pose(start, TRUTH[1]), PRIOR)
        assert found is not None
        assert degrees_off(found.pose.rotation) < 1.0
        np.testing.assert_allclose(found.pose.translation, TRUTH[1], rtol=0.01, atol=1e-3)
        reading = PoseScorer(image, CAMERA, SOLID, Pose(start, TRUTH[1]), PRIOR)
        assert reading.nats(found.pose) > reading.nats(Pose(start, TRUTH[1]))


def test_a_right_reading_stays() -> None:
    found = resolve(photograph(), CAMERA, SOLID, Pose(*TRUTH), PRIOR)
    assert found is not None
    assert np.degrees(np.linalg.norm(Pose(*TRUTH).step_to(found.pose)[:3])) < 0.5


def test_nothing_to_see_is_none() -> None:
    assert resolve(photograph(), CAMERA, SOLID, Pose(TRUTH[0], np.array([0.0, 0.0, -1.0])), PRIOR) is None
    behind = SOLID.mesh.vertices - [0.0, 0.0, 1.0]
    assert Evidence(photograph(), CAMERA, SOLID, np.zeros(2), 0.1).nats(behind) == -np.inf

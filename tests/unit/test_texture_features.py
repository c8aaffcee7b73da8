"""Local features of a textured mesh, found in drawn frames with known poses."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest

from tests.moving_box import CAMERA, box_mesh, wall
from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.io.texture import SurfaceColors
from vid2phys.tracking.detectors.texture_features import DEFAULTS, TextureFeatures
from vid2phys.types import Mesh, Texture

POSE = Pose(matrix_from_rotvec(np.array([0.5, -0.4, 0.3])), np.array([0.03, -0.02, 0.45]))


@pytest.fixture(scope="module")
def printed() -> Mesh:
    """Return the box with patches of random colours on each side."""
    rng = np.random.default_rng(3)
    cells = cv2.resize(rng.integers(0, 256, (24, 36, 3)).astype(np.uint8), (360, 240), interpolation=cv2.INTER_NEAREST)
    mesh = box_mesh()
    uv = np.zeros((12, 3, 2))
    for k in range(12):
        left, bottom = (k // 2) % 3 / 3.0, (k // 2) // 3 / 2.0
        corners = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]] if k % 2 == 0 else [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
        uv[k] = [left, bottom] + corners * [1.0 / 3.0, 0.5]
    return replace(mesh, texture=Texture((cells,), np.zeros(12, dtype=np.int64), uv, np.ones((12, 3, 3))))


def photograph(mesh: Mesh, pose: Pose, hidden: slice | None = None) -> np.ndarray:
    """Return a frame of the mesh before a wall; hidden: columns of the frame that something else covers."""
    raster = rasterize_camera(pose.apply(mesh.vertices), mesh.faces, CAMERA)
    seen, image = raster.face_id >= 0, wall()
    colors = SurfaceColors(mesh).at(raster.face_id[seen], raster.barycentric[seen], 0.001)
    image[seen] = 0.8 * np.clip(colors, 0.0, 1.0) ** (1.0 / 2.2)
    if hidden is not None:
        image[:, hidden] = 0.5
    noise = np.random.default_rng(0).normal(0.0, 2.0, image.shape)
    return np.clip(255.0 * cv2.GaussianBlur(image, (0, 0), 0.5) + noise, 0, 255).astype(np.uint8)


def test_a_pose_is_found_behind_an_occluder(printed: Mesh) -> None:
    features = TextureFeatures.of(printed)
    assert features is not None
    for hidden in (None, slice(150, 185)):
        found = features.detect(photograph(printed, POSE, hidden), CAMERA)
        assert found is not None
        step = POSE.step_to(found[0])
        assert np.degrees(np.linalg.norm(step[:3])) < 2.0
        assert abs(step[5]) < 0.02
        assert found[1] >= 8


def test_nothing_is_found_where_the_body_is_not(printed: Mesh) -> None:
    features = TextureFeatures.of(printed)
    assert features is not None
    assert features.detect((255.0 * wall()).astype(np.uint8), CAMERA) is None
    assert TextureFeatures.of(box_mesh()) is None


def test_samples_that_one_solver_refuses_go_to_another(printed: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQPnP stops OpenCV on samples of points that coincide."""
    features, solve = TextureFeatures.of(printed), cv2.solvePnPRansac
    assert features is not None

    def picky(*arguments: object, flags: int, **more: object) -> object:
        if flags == cv2.SOLVEPNP_SQPNP:
            raise cv2.error("++num_null_vectors_ <= 6")
        return solve(*arguments, flags=flags, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(cv2, "solvePnPRansac", picky)
    found = features.detect(photograph(printed, POSE), CAMERA)
    assert found is not None
    assert np.degrees(np.linalg.norm(POSE.step_to(found[0])[:3])) < 2.0


@pytest.mark.parametrize(("features", "usable"), [(1, False), (40, True)])
def test_a_mesh_whose_print_has_next_to_no_features_has_none(printed: Mesh, features: int, usable: bool) -> None:
    few = replace(DEFAULTS, features=features, views=4)
    assert (TextureFeatures.of(printed, few) is not None) == usable

"""What the verifier sees of a pose: the frame about the body, its change, and the drawn body, all in one view."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.moving_box import CAMERA, box_mesh
from vid2phys.engine.observe import project
from vid2phys.engine.render.rasterizer import face_normals, rasterize_camera
from vid2phys.engine.virtual_camera import bearings_to_view, make_view, resample
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.verifier import Verifier, _change, _window, background_of, crop_of

MESH = box_mesh()
POSE = Pose(matrix_from_rotvec(np.array([0.5, -0.4, 0.3])), np.array([0.15, -0.1, 1.2]))
DISTANCE = float(np.linalg.norm(POSE.translation))
RADIUS = float(np.arcsin(MESH.radius_m / DISTANCE))


def test_a_crop_holds_colours_change_and_the_drawn_body() -> None:
    rng = np.random.default_rng(0)
    frame = rng.integers(0, 256, (CAMERA.height, CAMERA.width, 3)).astype(np.uint8)
    behind = rng.integers(0, 256, frame.shape).astype(np.uint8)
    crop = crop_of(frame, behind, CAMERA, MESH, POSE)
    assert crop.shape == (8, 64, 64)
    view = make_view(CAMERA, POSE.translation[:2] / POSE.translation[2], RADIUS, 64, fill=0.6)
    colors = resample(frame, CAMERA, view).astype(float) / 255.0
    expected = (colors - colors.mean(axis=(0, 1))) / (colors.std() + 0.05)
    np.testing.assert_allclose(crop[:3], np.moveaxis(expected, -1, 0), atol=0.03)
    change = np.abs(frame.astype(int) - behind).max(axis=-1).astype(np.uint8)
    seen = resample(np.repeat(change[..., None], 3, axis=-1), CAMERA, view)[..., 0] / 255.0
    np.testing.assert_allclose(crop[3], 4.0 * seen, atol=0.03)
    at = bearings_to_view(view, (POSE.apply(MESH.vertices)[:, :2] / POSE.apply(MESH.vertices)[:, 2:]))
    covered = crop[4] > 0.5
    rows, columns = np.nonzero(covered)
    np.testing.assert_allclose([columns.min(), rows.min()], at.min(axis=0), atol=1.3)
    np.testing.assert_allclose([columns.max(), rows.max()], at.max(axis=0), atol=1.3)
    drawn = rasterize_camera(POSE.apply(MESH.vertices), MESH.faces, CAMERA)
    assert covered.mean() == pytest.approx(drawn.mask.sum() * (view.K[0, 0] / CAMERA.K[0, 0]) ** 2 / 64**2, rel=0.1)
    own = face_normals(POSE.apply(MESH.vertices) @ view.rotation_view_from_camera.T, MESH.faces)
    shown = crop[5:][:, covered].T
    apart = np.abs(shown[:, None] - own[None]).max(axis=-1).min(axis=1)
    assert apart.max() < 1e-5
    assert (crop[5:][:, ~covered] == 0.0).all()
    assert (crop_of(frame, None, CAMERA, MESH, POSE)[3] == 0.0).all()
    assert np.isfinite(Verifier.load().logit(crop))


def test_the_window_of_a_crop_holds_all_that_it_shows() -> None:
    shape = (CAMERA.height, CAMERA.width, 3)
    bearing = POSE.translation[:2] / POSE.translation[2]
    rows, columns = _window(CAMERA, bearing, RADIUS, shape)
    center = project(CAMERA, POSE.translation[None])[0]
    half = 0.5 * 2.0 * np.tan(RADIUS) * CAMERA.K[0, 0] / 0.6  # of the crop, px
    for part, at, size in ((columns, center[0], 320), (rows, center[1], 240)):
        low, high = part.start, part.stop
        assert low <= max(at - 1.3 * half, 0.0)
        assert low >= at - 2.2 * half - 4.0
        assert high >= min(at + 1.3 * half, size)
        assert high <= min(at + 2.2 * half + 4.0, size)
    far_rows, far_columns = _window(CAMERA, np.array([9.0, 9.0]), RADIUS, shape)
    assert (far_columns.stop, far_rows.stop) == (320, 240)
    assert far_columns.start < 320, "one column at least"
    near_rows, near_columns = _window(CAMERA, np.array([-9.0, -9.0]), RADIUS, shape)
    assert (near_columns.start, near_rows.start) == (0, 0)
    assert near_columns.stop > 0


def test_changes_are_of_the_colour_that_changes_most() -> None:
    frame, behind = np.zeros((1, 2, 3), np.uint8), np.zeros((1, 2, 3), np.uint8)
    frame[0, 0], behind[0, 0], behind[0, 1] = (9, 200, 30), (20, 190, 30), (0, 0, 255)
    np.testing.assert_array_equal(_change(frame, behind), [[11, 255]])
    small: Any = SimpleNamespace(image=np.full((12, 16, 3), 77, np.uint8))
    found = background_of(small, (24, 32, 3))
    assert found.shape == (24, 32, 3)
    assert (found == 77).all()


def test_a_true_pose_of_a_body_before_a_wall_is_likelier_than_one_beside_it() -> None:
    wall = np.full((CAMERA.height, CAMERA.width, 3), 90, np.uint8)
    raster = rasterize_camera(POSE.apply(MESH.vertices), MESH.faces, CAMERA)
    frame = wall.copy()
    shade = 120 + 100 * np.abs(raster.normals @ [0.2, -0.7, -0.7])
    frame[raster.mask] = shade[raster.face_id[raster.mask]][:, None] * [1.0, 0.5, 0.3]
    beside = replace(POSE, translation=POSE.translation + np.array([0.1, 0.0, 0.0]))
    logits = [Verifier.load().logit(crop_of(frame, wall, CAMERA, MESH, pose)) for pose in (POSE, beside)]
    assert logits[0] > logits[1] + 1.0

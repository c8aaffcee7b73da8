"""The model of a pose by the colours of surfaces: one dense system with all colours, and the background."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.moving_box import CAMERA, box_mesh
from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.surfaces import DEFAULTS, Backdrop, Textured, _cost, _solved, pose_model
from vid2phys.types import Array

MESH = box_mesh()
BODY = Textured.of(Solid.of(MESH))
POSE = Pose(matrix_from_rotvec(np.array([0.5, -0.4, 0.3])), np.array([0.05, -0.03, 1.0]))


@pytest.mark.parametrize("textured", [False, True])
def test_colours_are_eliminated_from_one_least_squares(textured: bool) -> None:
    """Steps of the pose and colours of all channels are unknowns of one system with the weights of the last round."""
    rng = np.random.default_rng(0)
    pixels, parts = 150, 2
    basis = np.concatenate([rng.random((parts, pixels)), rng.normal(size=(2, pixels))])
    slopes = rng.normal(size=(6, parts + 3 * textured, pixels))
    middle, behind = np.array([0.5, 0.3, 0.2]), rng.random((pixels, 3))
    true = 0.2 * rng.normal(size=(4, 3))
    target = basis.T @ true + 0.02 * rng.normal(size=(pixels, 3))
    target[:9] += 0.5
    changed = rng.normal(size=(pixels, 3))
    found = _solved(target, basis, slopes, (middle, behind, changed), parts, DEFAULTS)
    weight, noise = np.ones(pixels), 0.004
    for _ in range(4):
        root = np.sqrt(weight)[:, None]
        rows = np.concatenate([root * basis.T, noise / 0.25 * np.eye(4)])
        color = np.linalg.lstsq(rows, np.concatenate([root * target, np.zeros((4, 3))]), rcond=None)[0]
        square = ((target - basis.T @ color) ** 2).mean(axis=1)
        noise = max(0.004, np.sqrt(np.median(square) / 0.79))
        weight = 1.0 / (1.0 + square / (2.0 * noise) ** 2)
    whole, right = np.zeros((18, 18)), np.zeros(18)
    for c in range(3):
        moved = slopes[:, :parts].sum(axis=1) * (middle[c] - behind[:, c])
        moved = moved + np.einsum("kpn,p->kn", slopes[:, :parts], color[:parts, c])
        if textured:
            moved = moved + slopes[:, parts + c]
        every = np.zeros((18, pixels))
        every[:6], every[6 + 4 * c : 10 + 4 * c] = moved, basis
        whole += (every * weight) @ every.T
        right += (every * weight) @ (target[:, c] - basis.T @ color[:, c])
    whole[6:, 6:] += (noise / 0.25) ** 2 * np.eye(12)
    scale = 1.0 / (noise**2 * 6.0)
    expected = scale * np.linalg.inv(np.linalg.inv(whole)[:6, :6])
    np.testing.assert_allclose(found.information, expected, rtol=0.02, atol=0.01 * np.abs(expected).max())
    np.testing.assert_allclose(found.pull, scale * right[:6], rtol=0.05, atol=0.02 * np.abs(scale * right[:6]).max())
    off = target - basis.T @ color
    assert found.cost == pytest.approx(_cost(off, DEFAULTS) / 6.0, rel=1e-3)
    assert found.gain == pytest.approx((_cost(changed, DEFAULTS) - _cost(off, DEFAULTS)) / 6.0, rel=1e-3)


def shown(pose: Pose, wall: Array) -> Array:
    """A box whose sides have lights of their own before a wall, in display values."""
    raster = rasterize_camera(pose.apply(MESH.vertices), MESH.faces, CAMERA, 5)
    sides = np.array([0.5, 0.3, 0.7, 0.2, 0.4, 0.6])[:, None] * np.array([1.0, 0.6, 0.4])
    light = raster._image(sides[raster.faces_seen // 2])
    light = light[..., 3:] * light[..., :3] + (1.0 - light[..., 3:]) * wall
    return np.asarray(np.rint(255.0 * light ** (1.0 / 2.2)), dtype=np.uint8)


def test_the_best_step_of_a_model_leads_to_the_pose() -> None:
    wall = np.random.default_rng(1).uniform(0.3, 0.6, (15, 20, 3)).repeat(16, 0).repeat(16, 1)
    frame = shown(POSE, wall)
    backdrop = Backdrop(wall.astype(np.float32), np.ones(wall.shape[:2], dtype=bool))
    off = np.array([8e-3, -6e-3, 5e-3, 8e-4, -6e-4, 5e-3])
    pose = POSE.retract(off)
    before = pose_model(frame, backdrop, CAMERA, BODY, pose)
    assert before is not None
    for _ in range(4):
        model = pose_model(frame, backdrop, CAMERA, BODY, pose)
        assert model is not None
        pose = pose.retract(np.linalg.solve(model.information, model.pull))
    left = POSE.step_to(pose)
    assert np.abs(left / off).max() < 0.5
    after = pose_model(frame, backdrop, CAMERA, BODY, pose, gain_only=True)
    assert after is not None
    assert after.information.size == after.pull.size == 0
    assert after.gain > before.gain + 10.0
    assert after.cost < before.cost - 10.0
    assert pose_model(frame, backdrop, CAMERA, BODY, Pose(POSE.rotation, -POSE.translation)) is None
    assert pose_model(frame, backdrop, CAMERA, BODY, Pose(POSE.rotation, 40.0 * POSE.translation)) is None
    nowhere = Backdrop(backdrop.image, np.zeros_like(backdrop.known))
    assert pose_model(frame, nowhere, CAMERA, BODY, POSE) is None, "before a background that is not known"


def test_the_background_is_the_median_of_what_shows_it_twice() -> None:
    """A pixel shows the background beside the body and its margin, or where it is unlike the body."""
    levels = (40, 80, 200)
    frames: list[Any] = [np.full((CAMERA.height, CAMERA.width, 3), level, np.uint8) for level in levels]
    moved = Pose.stack([Pose(POSE.rotation, POSE.translation + np.array([x, 0.0, 0.0])) for x in (-0.2, 0.0, 0.03)])
    masks = [rasterize_camera(moved[k].apply(MESH.vertices), MESH.faces, CAMERA).mask for k in range(3)]
    like = [np.zeros(masks[0].shape, dtype=bool) for _ in levels]
    found = Backdrop.of(frames, like, CAMERA, MESH, moved, 5)
    light = [(level / 255.0) ** 2.2 for level in levels]
    assert found.known[2, 2]
    np.testing.assert_allclose(found.image[2, 2], light[1], rtol=1e-5)
    first = masks[0] & ~masks[1] & ~masks[2]
    inner = first & (np.arange(CAMERA.width) < np.nonzero(masks[1])[1].min() - 8)
    np.testing.assert_allclose(found.image[inner], 0.5 * (light[1] + light[2]), rtol=1e-4)
    both = masks[1] & masks[2]
    assert not found.known[both].any(), "seen in one frame alone"
    row = int(np.nonzero(masks[0])[0].mean())
    left = int(np.nonzero(masks[0][row])[0].min())
    middle = 0.5 * (light[1] + light[2])
    hidden = [bool(np.isclose(found.image[row, left - k, 0], middle, rtol=1e-4)) for k in range(1, 12)]
    assert hidden == [True] * 8 + [False] * 3, "five pixels of margin, and three that the lens blurs"
    unlike = [np.ones_like(each) for each in like]
    assert Backdrop.of(frames, unlike, CAMERA, MESH, moved, 5).known.all()

"""The light in which a texture is compared: closed forms of its fit, of its evidence and of blurred colours."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree

from tests.painted_mesh import painted_cube
from tests.unit.test_texture import BLOCKS, CAMERA, GROUP, PLACE
from vid2phys.engine.virtual_camera import bearings_to_view, make_view
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.cues.texture import DEFAULTS, Light, Shown, SurfaceTexture, _soft
from vid2phys.types import Array

RNG = np.random.default_rng(0)
COLORS = RNG.uniform(0.1, 0.9, (120, 3))
NORMALS = RNG.normal(size=(120, 3)) * [1.0, 1.0, 0.3]
NORMALS /= np.linalg.norm(NORMALS, axis=1, keepdims=True)


def lit(brightness: Array, slope: Array, haze: Array, colors: Array = COLORS) -> Array:
    """Colours in a light that changes with the normal, and haze, of each channel."""
    return np.asarray(colors * (brightness + NORMALS @ slope.T) + haze)


def test_light_and_haze_are_those_of_regularised_least_squares() -> None:
    """With errors too small to count, the first round's solution is that of the stacked equations, per channel."""
    found = lit(np.array([0.8, 0.9, 1.1]), 0.2 * RNG.normal(size=(3, 3)), np.array([0.05, 0.0, -0.02]))
    found += 1e-3 * RNG.normal(size=found.shape)
    std = np.array([0.6, 0.4, 0.4, 0.4, 0.15])
    expected = np.empty_like(found)
    for c in range(3):
        basis = np.column_stack([COLORS[:, c], COLORS[:, c, None] * NORMALS, np.ones(120)])
        rows = np.concatenate([basis / 0.03, np.diag(1.0 / std)])
        right = np.concatenate([found[:, c] / 0.03, np.array([1.0, 0.0, 0.0, 0.0, 0.0]) / std])
        expected[:, c] = found[:, c] - basis @ np.linalg.lstsq(rows, right, rcond=None)[0]
    light = Light.fit(found, COLORS, NORMALS)
    np.testing.assert_allclose(light.residual, expected, atol=2e-4)
    assert light.misfit == pytest.approx(0.03**2, rel=0.02)
    assert (light.weight > 0.9).all()
    dark = Light.fit(np.zeros_like(COLORS), COLORS, NORMALS)
    assert np.abs(dark.residual).max() > 1e-5, "a light of full brightness is expected"


def test_points_that_do_not_fit_count_less() -> None:
    found = lit(np.full(3, 0.8), np.zeros((3, 3)), np.zeros(3))
    found[:20] = np.array([0.9, 0.1, 0.1])
    light = Light.fit(found, COLORS, NORMALS)
    assert np.median(light.weight[:20]) < 0.1
    assert np.median(light.weight[20:]) > 0.95
    assert np.abs(light.residual[20:]).max() < 0.03
    square = (light.residual**2).mean(axis=1)
    assert light.scale == pytest.approx(9.0 * (np.median(square) + 0.03**2))
    np.testing.assert_allclose(light.weight, 1.0 / (1.0 + square / light.scale) ** 2)
    assert light.misfit == pytest.approx((square / (1.0 + square / light.scale)).mean() + 0.03**2)
    trust = np.where(np.arange(120) < 20, 0.0, 1.0)
    trusted = Light.fit(found, COLORS, NORMALS, trust)
    assert trusted.misfit == pytest.approx(0.03**2, rel=0.05)
    assert (trusted.weight[:20] == 0.0).all()


def test_a_texture_explains_what_a_plain_body_does_not() -> None:
    found = lit(np.full(3, 0.8), np.zeros((3, 3)), np.zeros(3))
    right, wrong = Light.fit(found, COLORS, NORMALS), Light.fit(found, COLORS[::-1], NORMALS)
    plain = Light.fit(found, np.broadcast_to(found.mean(axis=0), found.shape), NORMALS)
    assert right.explained(found, NORMALS) == pytest.approx(1.0 - right.misfit / plain.misfit)
    assert right.explained(found, NORMALS) > 0.9
    assert wrong.explained(found, NORMALS) < 0.3


def test_evidence_is_that_of_a_sixth_of_the_points() -> None:
    found = lit(np.full(3, 0.8), np.zeros((3, 3)), np.zeros(3))
    points = np.arange(150) < 120
    seen = Shown(points, found, NORMALS)
    whole = np.concatenate([COLORS, np.ones((30, 3))])
    share, nats = seen.explained(whole)
    assert share == pytest.approx(seen.lit(whole).explained(found, NORMALS))
    assert nats == pytest.approx(-0.5 * 120.0 / 6.0 * np.log(1.0 - share))
    few = Shown(np.arange(150) < 23, found[:23], NORMALS[:23])
    assert few.explained(whole) == (0.0, 0.0)
    assert Shown(np.arange(150) < 24, found[:24], NORMALS[:24]).explained(whole)[0] > 0.5
    other = np.concatenate([np.clip(COLORS + 0.02 * RNG.normal(size=COLORS.shape), 0, 1), np.ones((30, 3))])
    texture = SurfaceTexture(*(np.zeros((0, 3)),) * 2, np.stack([other, whole]), *(np.zeros((0, 3)),) * 2, (), ())
    logs = [-10.0 * np.log(seen.lit(each).misfit) for each in (other, whole)]
    np.testing.assert_allclose(texture.element_nats(seen), [logs[0] - logs[1], 0.0])
    far = SurfaceTexture(*(np.zeros((0, 3)),) * 2, np.stack([whole[::-1], whole]), *(np.zeros((0, 3)),) * 2, (), ())
    np.testing.assert_allclose(far.element_nats(seen), [-12.0, 0.0])
    np.testing.assert_array_equal(far.element_nats(few), [0.0, 0.0])


def test_points_are_seen_where_the_surface_faces_the_camera_and_the_image_reaches() -> None:
    texture = SurfaceTexture.of(painted_cube(BLOCKS), GROUP, np.zeros(3))
    assert texture is not None
    pose = Pose(matrix_from_rotvec(np.array([[0.5, 0.4, 0.0]]))[0], PLACE)
    view = make_view(CAMERA, PLACE[:2] / PLACE[2], 0.15, 128)
    v, u = np.mgrid[:128, :128]
    image = np.stack([u, v, 0 * u + 9], axis=-1).astype(np.uint8)
    shown = texture.shown(view, image, pose)
    at, normals = pose.apply(texture.points), texture.normals @ pose.rotation.T
    facing = -(at * normals).sum(axis=1) / np.linalg.norm(at, axis=1)
    pixels = bearings_to_view(view, at[:, :2] / at[:, 2:])
    inside = (np.abs(pixels - 63.5) < 63.0).all(axis=1)
    np.testing.assert_array_equal(shown.points, (facing > 0.15) & inside)
    np.testing.assert_allclose(255.0 * shown.colors[:, :2], pixels[shown.points], atol=0.6)
    np.testing.assert_allclose(shown.normals, normals[shown.points])
    near = texture.shown(make_view(CAMERA, PLACE[:2] / PLACE[2], 0.05, 128), image, pose)
    assert 0 < near.points.sum() < shown.points.sum(), "the image ends within the body"


def test_colours_are_averaged_over_the_surface_that_faces_the_same_way() -> None:
    """Two faces meet at an edge; a point near it has the colours of its own face alone, and less of the Gaussian."""
    grid = np.stack(np.meshgrid(np.arange(0.005, 0.2, 0.01), np.arange(-0.1, 0.1, 0.01)), axis=-1).reshape(-1, 2)
    flat, upright = (
        np.column_stack([grid, np.zeros(len(grid))]),
        np.column_stack([np.zeros(len(grid)), grid[:, 1], -grid[:, 0]]),
    )
    dense, normals = np.concatenate([flat, upright]), np.repeat([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0]], len(grid), axis=0)
    color = np.column_stack([dense[:, 0], dense[:, 1], np.repeat([0.0, 1.0], len(grid))])
    points, own = np.array([[0.1, 0.0, 0.0], [0.001, 0.0, 0.0]]), np.array([[0.0, 0.0, 1.0]] * 2)
    found, pure = _soft(points, own, (cKDTree(dense), normals, color), 0.02, 0.7)
    np.testing.assert_allclose(found[:, 2], 0.0, atol=1e-9)
    np.testing.assert_allclose(found[0], [0.1, 0.0, 0.0], atol=2e-3)
    near = flat[np.linalg.norm(flat - points[1], axis=1) < 0.04]
    weight = np.exp(-0.5 * ((near - points[1]) ** 2).sum(axis=1) / 0.02**2)
    np.testing.assert_allclose(found[1, 0], weight @ near[:, 0] / weight.sum(), rtol=1e-6)
    assert pure[0] == 1.0
    assert 0.4 < pure[1] < 0.8, "about half, beside the upper quartile of both"
    alone, _ = _soft(np.array([[0.0, 0.0, 5.0]]), own[:1], (cKDTree(dense), normals, color), 0.02, 0.7)
    assert color[:, 0].min() <= alone[0, 0] <= color[:, 0].max(), "the nearest point where none is near"
    assert DEFAULTS.blur_shares == tuple(sorted(DEFAULTS.blur_shares, reverse=True))

"""The virtual camera against closed forms: what it shows, where its pixels point, what happens at the edge."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.engine.observe import pixels_to_bearings, project
from vid2phys.engine.virtual_camera import (
    _source_grid,
    _source_pixels,
    bearings_to_view,
    in_frame,
    make_view,
    map_covariance,
    resample,
    view_to_bearings,
)
from vid2phys.geometry import make_transform, matrix_from_rotvec
from vid2phys.types import Array, Camera

LOOK_DOWN = make_transform(np.array([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]]), np.zeros(3))
LOOK_LEVEL = make_transform(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]]), np.zeros(3))
DISTORTIONS = {
    "pinhole": ("plumb_bob", np.zeros(0)),
    "plumb_bob": ("plumb_bob", np.array([-0.28, 0.09, 1e-3, -5e-4, 0.0])),
    "equidistant": ("equidistant", np.array([0.02, -0.01, 0.004, -0.001])),
}


def _camera(kind: str = "pinhole", focal: float = 600.0, roll: float = 0.0) -> Camera:
    model, distortion = DISTORTIONS[kind]
    pose = LOOK_LEVEL @ make_transform(matrix_from_rotvec(np.array([0.2, -0.1, roll])), np.zeros(3))
    K = np.array([[focal, 0.0, 316.4], [0.0, focal * 1.01, 243.3], [0.0, 0.0, 1.0]])
    return Camera(K, 640, 480, distortion, model, pose)


def _paint(bearings: Array) -> Array:
    """A smooth image as a function of direction, [..., 3] in 0..255."""
    x, y = bearings[..., 0], bearings[..., 1]
    return 128.0 + 100.0 * np.stack([np.sin(9.0 * x + 2.0 * y), np.cos(8.0 * y - x), np.sin(7.0 * (x + y))], axis=-1)


def _frame(camera: Camera) -> np.ndarray:
    u, v = np.meshgrid(np.arange(camera.width), np.arange(camera.height))
    pixels = np.stack([u, v], axis=-1).reshape(-1, 2).astype(float)
    image = _paint(pixels_to_bearings(camera, pixels)).reshape(camera.height, camera.width, 3)
    return np.round(image).astype(np.uint8)


@pytest.mark.parametrize("kind", DISTORTIONS)
@pytest.mark.parametrize("angular_radius", [0.03, 0.25], ids=["enlarging", "shrinking"])
def test_a_view_pixel_shows_what_lies_in_its_direction(kind: str, angular_radius: float) -> None:
    camera = _camera(kind)
    view = make_view(camera, np.array([0.08, -0.05]), angular_radius, 64)
    u, v = np.meshgrid(np.arange(64.0), np.arange(64.0))
    bearings, _ = view_to_bearings(view, np.stack([u, v], axis=-1))
    seen = in_frame(camera, bearings)
    assert seen.mean() > 0.9
    difference = np.abs(resample(_frame(camera), camera, view).astype(float) - _paint(bearings))
    assert difference[seen].max() < 3.0
    assert difference[seen].mean() < 0.6


def test_view_pixels_and_bearings_are_inverse_and_the_jacobian_is_right() -> None:
    view = make_view(_camera(roll=0.4), np.array([0.2, 0.1]), 0.05, 96, roll_rad=0.3)
    pixels = np.random.default_rng(0).uniform(0.0, 95.0, size=(20, 2))
    bearings, jacobian = view_to_bearings(view, pixels)
    np.testing.assert_allclose(bearings_to_view(view, bearings), pixels, atol=1e-9)
    for axis in range(2):
        step = np.zeros(2)
        step[axis] = 1e-4
        numeric = (view_to_bearings(view, pixels + step)[0] - view_to_bearings(view, pixels - step)[0]) / 2e-4
        np.testing.assert_allclose(jacobian[..., axis], numeric, atol=1e-9)
    np.testing.assert_allclose(
        map_covariance(jacobian, np.eye(2)), jacobian @ np.swapaxes(jacobian, -1, -2), atol=1e-15
    )


@pytest.mark.parametrize("roll", [0.0, 0.7, -2.0])
def test_gravity_is_down_and_the_object_fills_two_thirds(roll: float) -> None:
    camera = _camera(roll=roll)
    center = np.array([0.15, -0.1])
    view = make_view(camera, center, 0.04, 96)
    np.testing.assert_allclose(bearings_to_view(view, center), [47.5, 47.5], atol=1e-9)
    gravity = view.rotation_view_from_camera @ camera.camera_to_world[:3, :3].T @ np.array([0.0, 0.0, -1.0])
    assert abs(gravity[0]) < 1e-12
    assert gravity[1] > 0.0
    assert np.linalg.det(view.rotation_view_from_camera) == pytest.approx(1.0)
    rim = view.rotation_view_from_camera.T @ np.array([np.tan(0.04), 0.0, 1.0])
    assert bearings_to_view(view, rim[:2] / rim[2])[0] - 47.5 == pytest.approx(96 / 3)


def test_straight_down_the_camera_decides_what_is_down() -> None:
    camera = Camera(np.diag([500.0, 500.0, 1.0]), 640, 480, camera_to_world=LOOK_DOWN)
    view = make_view(camera, np.zeros(2), 0.05, 96)
    np.testing.assert_allclose(view.rotation_view_from_camera, np.eye(3), atol=1e-12)


def test_shrinking_averages() -> None:
    camera = _camera(focal=600.0)
    checker = (np.indices((480, 640)).sum(axis=0) % 2 * 255).astype(np.uint8)
    image = resample(np.repeat(checker[..., None], 3, axis=-1), camera, make_view(camera, np.zeros(2), 0.2, 32))
    assert np.abs(image.astype(float) - 127.5).max() < 40.0
    assert image.std() < 12.0


@pytest.mark.parametrize("kind", DISTORTIONS)
def test_rays_inside_a_view_pixel_are_interpolated_closely(kind: str) -> None:
    camera = _camera(kind)
    view = make_view(camera, np.array([0.3, -0.2]), 0.15, 96)
    at = (np.arange(96 * 3) + 0.5) / 3 - 0.5
    exact = _source_pixels(camera, view, np.stack(np.meshgrid(at, at), axis=-1))
    assert np.abs(np.stack(_source_grid(camera, view, 3), axis=-1) - exact).max() < 2e-3


def test_outside_the_frame_the_edge_is_repeated_and_known() -> None:
    camera = _camera()
    frame = np.zeros((480, 640, 3), dtype=np.uint8)
    frame[:, -1] = 200
    edge = pixels_to_bearings(camera, np.array([[639.5, 240.0]]))[0]
    view = make_view(camera, edge, 0.05, 64)
    image = resample(frame, camera, view)
    assert (image[32, 40:] == 200).all()
    outside = pixels_to_bearings(camera, np.array([[639.4, 240.0], [639.7, 240.0], [-0.6, 3.0], [3.0, 479.6]]))
    np.testing.assert_array_equal(in_frame(camera, outside), [True, False, False, False])
    np.testing.assert_allclose(project(camera, np.append(outside[0], 1.0)), [639.4, 240.0], atol=1e-6)


def test_an_image_spans_half_a_pixel_beyond_its_outer_centres() -> None:
    camera = _camera()
    middle = np.array([320.0, 240.0])
    for axis, size in ((0, 640), (1, 480)):
        for place, inside in ((-0.45, True), (-0.55, False), (size - 0.55, True), (size - 0.45, False)):
            pixel = middle.copy()
            pixel[axis] = place
            assert bool(in_frame(camera, pixels_to_bearings(camera, pixel))) is inside

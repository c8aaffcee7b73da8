"""Projection against OpenCV, its inverse, its derivative, and what a camera sees of a system."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from vid2phys.engine import observe, systems
from vid2phys.engine.distortion import valid_radius
from vid2phys.errors import InputError
from vid2phys.types import Array, Camera

K = np.array([[612.0, 0.0, 331.5], [0.0, 598.0, 227.25], [0.0, 0.0, 1.0]])
LENSES = {
    "none": ("plumb_bob", []),
    "barrel": ("plumb_bob", [-0.2834, 0.0739, 0.00019, 1.76e-5, 0.0]),
    "pincushion": ("plumb_bob", [0.11, 0.03, -0.002, 0.003, 0.01]),
    "strong": ("plumb_bob", [-0.42, 0.21, 0.001, -0.0008, -0.05]),
    "rational": ("rational_polynomial", [6.1, 3.2, 0.0004, -0.0002, 0.21, 6.4, 4.9, 0.9]),
    "fisheye": ("equidistant", [-0.0069, -0.0033, 0.0018, -0.0007]),
    "ideal fisheye": ("equidistant", []),
    "wide fisheye": ("equidistant", [0.05, 0.02, -0.006, 0.001]),
    "omni": ("omni", [1.2, 0.0714, 0.306, 4.7e-5, -5.5e-4]),
    "omni, barrel": ("omni", [0.7, -0.25, 0.06, 0.001, 0.002]),
}


@pytest.fixture(params=LENSES)
def camera(request: pytest.FixtureRequest) -> Camera:
    model, coefficients = LENSES[request.param]
    return Camera(K, 640, 480, np.array(coefficients), model)


def field(camera: Camera, n: int = 500) -> Array:
    """Bearings over the camera's one-to-one field, up to 60 degrees off axis (80 for a fisheye)."""
    rng = np.random.default_rng(0)
    widest = np.tan(np.deg2rad(80.0 if camera.model == "equidistant" else 60.0))
    radius = min(widest, 0.98 * valid_radius(camera)) * np.sqrt(rng.uniform(size=n))
    angle = rng.uniform(-np.pi, np.pi, n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)


def with_opencv(camera: Camera, points: Array) -> Array:
    if camera.model == "omni":  # Mei and Rives (2007): the unit sphere, its centre moved by xi, then OpenCV's own lens
        sphere = points / np.linalg.norm(points, axis=-1, keepdims=True) + [0.0, 0.0, camera.distortion[0]]
        brown = camera.distortion[1:]
        return cv2.projectPoints(sphere[:, None], np.zeros(3), np.zeros(3), camera.K, brown)[0][:, 0]
    if camera.model == "equidistant":
        coefficients = np.resize(camera.distortion, 4) if camera.distortion.size else np.zeros(4)
        return cv2.fisheye.projectPoints(points[:, None], np.zeros(3), np.zeros(3), camera.K, coefficients)[0][:, 0]
    return cv2.projectPoints(points[:, None], np.zeros(3), np.zeros(3), camera.K, camera.distortion)[0][:, 0]


def test_project_agrees_with_opencv(camera: Camera) -> None:
    depth = np.random.default_rng(1).uniform(0.3, 8.0, (500, 1))
    points = np.concatenate([field(camera), np.ones((500, 1))], axis=-1) * depth
    np.testing.assert_allclose(observe.project(camera, points), with_opencv(camera, points), atol=1e-9)


def test_undistortion_inverts(camera: Camera) -> None:
    bearings = field(camera)
    back = observe.pixels_to_bearings(camera, observe.bearings_to_pixels(camera, bearings))
    np.testing.assert_allclose(back, bearings, rtol=0, atol=1e-9 * (1.0 + np.abs(bearings).max() ** 2))
    centre = observe.pixels_to_bearings(camera, camera.K[:2, 2])
    np.testing.assert_allclose(centre, 0.0, atol=1e-12)


def test_pixels_survive_the_round_trip(camera: Camera) -> None:
    columns, rows = np.meshgrid(np.arange(0.0, 640.0, 13.0), np.arange(0.0, 480.0, 11.0))
    pixels = np.stack([columns, rows], axis=-1)
    bearings = observe.pixels_to_bearings(camera, pixels)
    seen = np.isfinite(bearings).all(axis=-1)
    assert seen.mean() > 0.95
    np.testing.assert_allclose(observe.bearings_to_pixels(camera, bearings[seen]), pixels[seen], atol=1e-6)


def test_jacobian_to_pixels(camera: Camera) -> None:
    bearings, h = np.concatenate([np.zeros((1, 2)), field(camera)[:100] * 0.95]), 1e-5  # the axis, too
    numeric = np.stack(
        [
            (observe.bearings_to_pixels(camera, bearings + e) - observe.bearings_to_pixels(camera, bearings - e))
            / (2 * h)
            for e in h * np.eye(2)
        ],
        axis=-1,
    )
    np.testing.assert_allclose(observe.bearing_jacobian_to_pixels(camera, bearings), numeric, rtol=1e-5, atol=1e-4)


def test_what_the_camera_cannot_see_is_nan() -> None:
    camera = Camera(K, 640, 480, np.array([-0.2834, 0.0739, 0.0, 0.0, -0.02]))
    assert np.isfinite(valid_radius(camera))
    behind_and_before = observe.project(camera, np.array([[0.1, 0.2, -1.0], [0.1, 0.2, 1.0], [9.0, 0.0, 1.0]]))
    np.testing.assert_array_equal(np.isnan(behind_and_before).any(axis=-1), [True, False, True])


def test_unsupported_lenses_are_refused() -> None:
    with pytest.raises(InputError, match="camera model 'fov'; expected one of equidistant, omni, plumb_bob"):
        observe.project(Camera(K, 640, 480, np.zeros(4), "fov"), np.ones(3))
    with pytest.raises(InputError, match="8 distortion coefficients for model 'plumb_bob'; expected at most 5"):
        observe.project(Camera(K, 640, 480, np.ones(8)), np.ones(3))


def test_observe_agrees_with_project_and_finite_differences() -> None:
    quadrotor = systems.get("quadrotor")
    rng = np.random.default_rng(4)
    states = quadrotor.sample_state(rng, 6)
    states[:, :3] += [0.2, 1.0, 0.5]
    camera_to_world = np.eye(4)
    camera_to_world[:3, :3] = np.array([[0.98, 0.07, -0.16], [0.17, -0.41, 0.89], [0.0, -0.9, -0.42]])
    camera_to_world[:3, :3] = np.linalg.svd(camera_to_world[:3, :3])[0] @ np.linalg.svd(camera_to_world[:3, :3])[2]
    camera_to_world[:3, 3] = [0.95, -2.45, 2.1]
    points = rng.normal(0.0, 0.05, (4, 3))
    bearings, jacobian, depth = observe.observe(quadrotor, states, points, camera_to_world)
    in_camera = (quadrotor.keypoints(states, points) - camera_to_world[:3, 3]) @ camera_to_world[:3, :3]
    camera = Camera(np.eye(3), 2, 2)
    np.testing.assert_allclose(bearings, observe.project(camera, in_camera), atol=1e-12)
    np.testing.assert_allclose(depth, in_camera[..., 2])
    assert (depth > 1.0).all()
    for i, e in enumerate(1e-5 * np.eye(12)):
        ahead = observe.observe(quadrotor, quadrotor.retract(states, e), points, camera_to_world)[0]
        before = observe.observe(quadrotor, quadrotor.retract(states, -e), points, camera_to_world)[0]
        np.testing.assert_allclose(jacobian[..., i], (ahead - before) / 2e-5, atol=1e-8)

"""Places of a surface and their colours in a frame: a plate of squares with known colours, and bodies of revolution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from vid2phys.geometry import Pose
from vid2phys.risp.shape.symmetry import AXIAL_ORDER
from vid2phys.tracking.cues.surface_colors import DEFAULTS, SurfacePlaces, _axis, _places
from vid2phys.types import Array, Camera

CAMERA = Camera(np.array([[400.0, 0.0, 99.5], [0.0, 400.0, 79.5], [0.0, 0.0, 1.0]]), 200, 160)
SIDE = 5  # squares of the plate, which are 0.05 m and 20 px wide


def plate(normals: Array, **settings: Any) -> SurfacePlaces:
    """Return a plate of 5 x 5 squares, of two faces each, about the body's origin; each square is a place."""
    at = 0.05 * (np.arange(SIDE + 1) - 0.5 * SIDE)
    vertices = np.array([[x, y, 0.0] for y in at for x in at])
    faces, place = [], []
    for row in range(SIDE):
        for column in range(SIDE):
            a = row * (SIDE + 1) + column
            faces += [[a, a + 1, a + SIDE + 2], [a, a + SIDE + 2, a + SIDE + 1]]
            place += [row * SIDE + column] * 2
    part = np.zeros(len(faces), np.int64)
    config = replace(DEFAULTS, **settings)
    return SurfacePlaces(vertices, np.array(faces), part, np.array(place), normals, np.arange(25)[None], config)


def frame_of(colors: Array) -> NDArray[np.float32]:
    """Return light [H, W, 3] of the plate with colours [25, 3] at a distance of one metre, 100 px wide."""
    image = np.full((160, 200, 3), 9.0, np.float32)
    image[30:130, 50:150] = colors.reshape(SIDE, SIDE, 3).repeat(20, axis=0).repeat(20, axis=1)
    return image


AHEAD = Pose(np.eye(3), np.array([0.0, 0.0, 1.0]))
COLORS = np.random.default_rng(0).uniform(0.1, 0.8, (25, 3))
FACING = np.tile([0.0, 0.0, -1.0], (25, 1))


def shaded(values: Array, normals: Array, prior: float, counts: Array) -> Array:
    """Return what a ridge regression on the normals leaves of values; a place counts as often as it has pixels."""
    basis = np.column_stack([np.ones(len(values)), normals])
    normal = sum(n * np.outer(row, row) for n, row in zip(counts, basis, strict=True))
    normal = normal + np.diag([0.0, prior, prior, prior])
    pull = sum(n * np.outer(row, value) for n, row, value in zip(counts, basis, values, strict=True))
    return np.asarray(values - basis @ np.linalg.solve(normal, pull))


def test_a_place_has_the_logarithm_of_its_light_without_shading() -> None:
    found = plate(FACING).seen(frame_of(COLORS), CAMERA, AHEAD)
    values = np.log(COLORS + 0.03)
    np.testing.assert_allclose(found, values - values.mean(axis=0), atol=0.08)
    twice = plate(FACING).seen(2.0 * frame_of(COLORS) + 0.03, CAMERA, AHEAD)
    np.testing.assert_allclose(twice, found, atol=1e-5, err_msg="brighter light changes nothing")


def test_light_that_follows_the_normals_is_no_print() -> None:
    """Normals of a body that is rotated about the line of sight; light depends on them in the camera's axes."""
    rng = np.random.default_rng(1)
    normals = rng.normal(size=(25, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    turned = Pose(Rotation.from_euler("z", 180.0, degrees=True).as_matrix(), AHEAD.translation)
    values = 0.3 * normals @ turned.rotation.T @ np.array([0.5, -0.4, 0.6]) - 1.0
    light = np.repeat(np.exp(values)[:, None] - 0.03, 3, axis=1)
    found = plate(normals).seen(frame_of(light[::-1]), CAMERA, turned)
    assert np.abs(found).max() < 0.03
    printed = values[:, None] + rng.normal(0.0, 0.3, (25, 3))
    found = plate(normals, shading_prior=300.0).seen(frame_of(np.exp(printed)[::-1] - 0.03), CAMERA, turned)
    expected = shaded(printed, normals @ turned.rotation.T, 300.0, np.full(25, 400.0))
    np.testing.assert_allclose(found, expected, atol=0.08)


def test_a_place_beside_the_frame_is_not_seen() -> None:
    """The plate is half out of the frame: of five columns three show, one of them in part."""
    aside = Pose(np.eye(3), np.array([-0.25, 0.0, 1.0]))
    image = np.full((160, 200, 3), 9.0, np.float32)
    image[30:130, :50] = frame_of(COLORS)[30:130, 100:150]
    found = plate(FACING).seen(image, CAMERA, aside).reshape(SIDE, SIDE, 3)
    assert np.isnan(found[:, :2]).all()
    assert np.isfinite(found[:, 2:]).all()
    values = np.log(COLORS + 0.03).reshape(SIDE, SIDE, 3)[:, 2:].reshape(-1, 3)
    counts = np.tile([200.0, 400.0, 400.0], SIDE)
    expected = values - np.average(values, axis=0, weights=counts)
    np.testing.assert_allclose(found[:, 2:].reshape(-1, 3), expected, atol=0.12)


@pytest.mark.parametrize(("least", "shows"), [(15, True), (16, False)])
def test_a_frame_has_to_show_enough_places(least: int, shows: bool) -> None:
    aside = Pose(np.eye(3), np.array([-0.25, 0.0, 1.0]))
    found = plate(FACING, least_places=least).seen(frame_of(COLORS), CAMERA, aside)
    assert np.isfinite(found).any() == shows


def elements(axis: Array, count: int) -> Array:
    angles = 2.0 * np.pi * np.arange(count) / count
    return np.asarray(Rotation.from_rotvec(angles[:, None] * axis).as_matrix())


def test_a_body_of_revolution_has_an_axis_and_others_none() -> None:
    axis = np.array([0.6, 0.0, 0.8])
    found = _axis(elements(axis, AXIAL_ORDER))
    assert found is not None
    assert abs(found @ axis) == pytest.approx(1.0)
    assert _axis(elements(axis, 4)) is None
    assert _axis(np.eye(3)[None]) is None


def test_places_about_an_axis_are_one_and_others_are_apart() -> None:
    axis = np.array([0.0, 0.6, 0.8])
    rng = np.random.default_rng(2)
    points, normals = rng.normal(size=(2, 6, 3))
    spun = Rotation.from_rotvec(1.3 * axis)
    here, there = _places(points, normals, axis), _places(spun.apply(points), spun.apply(normals), axis)
    assert here.shape == (6, 4)
    np.testing.assert_allclose(there, here, atol=1e-9)
    lifted = _places(points + 0.5 * axis, normals, axis)
    np.testing.assert_allclose(lifted - here, np.tile([0.5, 0.0, 0.0, 0.0], (6, 1)), atol=1e-9)
    across = points - (points @ axis)[:, None] * axis
    outward = across / np.linalg.norm(across, axis=1, keepdims=True)
    np.testing.assert_allclose(
        _places(points + 0.2 * outward, normals, axis) - here, np.tile([0, 0.2, 0, 0], (6, 1)), atol=1e-9
    )
    moved = _places(points, normals + 0.3 * axis - 0.1 * outward, axis) - here
    np.testing.assert_allclose(moved, np.tile([0.0, 0.0, 0.3, -0.1], (6, 1)), atol=1e-9)
    np.testing.assert_array_equal(_places(points, normals, None), np.hstack([points, normals]))

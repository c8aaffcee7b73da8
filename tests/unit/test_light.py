"""Light in images: the tone curve of a display and its slope, the basis of shading, smaller cameras and images."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.engine.observe import project
from vid2phys.tracking.cues.light import blurred, display_slope, displayed, linear, part_basis, reduced, smaller
from vid2phys.types import Camera, Mesh


def test_bytes_are_light_by_a_gamma_of_2_2_and_come_back() -> None:
    levels = np.arange(256, dtype=np.uint8)
    light = linear(levels)
    np.testing.assert_allclose(light, [(k / 255.0) ** 2.2 for k in range(256)], atol=1e-6)
    np.testing.assert_array_equal(displayed(light), levels)
    np.testing.assert_array_equal(displayed(np.array([-0.5, 1.5], np.float32)), [0, 255])


def test_the_slope_of_the_tone_curve_is_a_difference_of_it() -> None:
    """The curve is that of light which is a fiftieth brighter, so that black has a slope."""
    level, small = np.array([0.0, 0.1, 0.5, 1.0]), 1e-5
    curve = [(level + 0.02 + s * small) ** (1.0 / 2.2) for s in (1.0, -1.0)]
    np.testing.assert_allclose(
        display_slope(level.astype(np.float32)), (curve[0] - curve[1]) / (2.0 * small), rtol=1e-4
    )


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_a_blur_spreads_a_point_by_its_deviation_in_each_channel(channels: int) -> None:
    image = np.zeros((41, 41, channels), np.float32)
    image[20, 18] = np.arange(1.0, channels + 1.0)
    found = blurred(image, 2.0)
    assert found.shape == image.shape
    rows, columns = np.indices((41, 41))
    for c in range(channels):
        share = found[..., c] / (c + 1.0)
        assert share.sum() == pytest.approx(1.0, abs=1e-4)
        assert (share * (columns - 18.0) ** 2).sum() == pytest.approx(4.0, rel=0.02)
        assert (share * (rows - 20.0) ** 2).sum() == pytest.approx(4.0, rel=0.02)
    np.testing.assert_allclose(blurred(np.full((9, 7, channels), 3.0, np.float32), 2.0), 3.0, rtol=1e-5)


def test_the_basis_is_the_part_and_the_normal_that_faces_the_camera() -> None:
    part = np.array([1, 0, 1])
    mesh = Mesh(np.eye(3), np.tile([0, 1, 2], (3, 1)), part, part_names=("one", "two"))
    normals = np.array([[0.0, 0.6, -0.8], [0.0, 0.6, 0.8], [1.0, 0.0, 0.0]])
    rays = np.array([[0.0, 0.0, 2.0], [0.0, 0.0, 2.0], [0.5, 0.0, 1.0]])
    facing = np.array([[0.0, 0.6, -0.8], [0.0, -0.6, -0.8], [-1.0, 0.0, 0.0]])
    expected = np.zeros((3, 8))
    for k in range(3):
        expected[k, 4 * part[k] : 4 * part[k] + 4] = [1.0, *facing[k]]
    np.testing.assert_allclose(part_basis(mesh, normals, rays), expected, atol=1e-7)
    axes = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    for k in range(3):
        expected[k, 4 * part[k] + 1 : 4 * part[k] + 4] = axes @ facing[k]
    np.testing.assert_allclose(part_basis(mesh, normals, rays, axes), expected, atol=1e-7)


@pytest.mark.parametrize("reduction", [1, 2, 3])
def test_a_smaller_image_shows_a_point_in_the_middle_of_its_block(reduction: int) -> None:
    """A block of n pixels from n k on has its middle at n k + (n - 1) / 2, and is pixel k."""
    camera = Camera(np.array([[500.0, 0.0, 123.0], [0.0, 480.0, 87.0], [0.0, 0.0, 1.0]]), 241, 175)
    points = np.random.default_rng(0).normal(size=(5, 3)) * [0.1, 0.1, 0.2] + [0.0, 0.0, 1.0]
    small = smaller(camera, reduction)
    pixels = reduction * project(small, points) + 0.5 * (reduction - 1)
    np.testing.assert_allclose(pixels, project(camera, points), atol=1e-9)
    assert (small.width, small.height) == (241 // reduction, 175 // reduction)
    np.testing.assert_array_equal(small.K[2], [0.0, 0.0, 1.0])
    assert camera.K[0, 2] == 123.0


def test_a_reduced_image_has_the_means_of_blocks() -> None:
    image = np.random.default_rng(1).random((6, 9, 3)).astype(np.float32)
    found = reduced(image, (3, 2))
    for row in range(2):
        for column in range(3):
            block = image[3 * row : 3 * row + 3, 3 * column : 3 * column + 3]
            np.testing.assert_allclose(found[row, column], block.mean(axis=(0, 1)), rtol=1e-5)
    assert reduced(image, (9, 6)) is image

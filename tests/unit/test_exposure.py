"""Averages and extremes of an image along the path of an exposure."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.tracking.cues.exposure import averaged, longer


@pytest.mark.parametrize("path", [(12.0, 0.0), (0.0, 9.0), (6.0, 8.0), (-7.0, 3.5)])
def test_a_point_is_spread_evenly_along_its_path(path: tuple[float, float]) -> None:
    """The second moments of a uniform segment of length L are L^2 / 12; pixels add those of bilinear shares."""
    image = np.zeros((61, 61), np.float32)
    image[30, 30] = 1.0
    spread = averaged(image, np.array(path))
    assert spread.sum() == pytest.approx(1.0, rel=1e-5)
    v, u = np.mgrid[:61, :61] - 30.0
    assert (spread * u).sum() == pytest.approx(0.0, abs=1e-4)
    moments = np.array([[(spread * a * b).sum() for a in (u, v)] for b in (u, v)])
    np.testing.assert_allclose(moments, np.outer(path, path) / 12.0, atol=0.3)


def test_a_straight_edge_becomes_a_ramp_as_wide_as_the_path_across_it() -> None:
    edge = np.tile(np.where(np.arange(80) < 40, 1.0, 0.0).astype(np.float32), (40, 1))
    ramp = averaged(edge, np.array([16.0, 7.0]))[20]
    at = np.arange(80) - 39.5
    np.testing.assert_allclose(ramp, np.clip(0.5 - at / 16.0, 0.0, 1.0), atol=0.03)


@pytest.mark.parametrize("path", [(10.0, 0.0), (0.0, -10.0)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_plate_is_longer_by_a_share_of_the_path(path: tuple[float, float], dtype: type) -> None:
    plate = np.zeros((60, 60), dtype)
    plate[20:40, 15:45] = 1
    grown = longer(plate, np.array(path), 0.8)
    assert grown.dtype == dtype
    sides = np.array([np.ptp(np.nonzero(grown)[k]) + 1 for k in (1, 0)])
    np.testing.assert_array_equal(sides, np.array([30, 20]) + 0.8 * np.abs(path))
    np.testing.assert_array_equal(longer(grown, np.array(path), -0.8), plate)


@pytest.mark.parametrize("path", [(0.0, 0.0), (0.6, 0.7)])
def test_a_path_within_a_pixel_changes_nothing(path: tuple[float, float]) -> None:
    image = np.random.default_rng(0).normal(0.0, 1.0, (9, 9)).astype(np.float32)
    np.testing.assert_array_equal(averaged(image, np.array(path)), image)
    np.testing.assert_array_equal(longer(image, np.array(path), 1.0), image)
    np.testing.assert_array_equal(longer(image, np.array([8.0, 0.0]), 0.0), image)

"""The error model states what its formulas say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vid2phys.error_model import REFERENCE_PX, Calibration


@pytest.mark.parametrize(("diameter_px", "growth"), [(REFERENCE_PX, 1.0), (0.5 * REFERENCE_PX, 2.0)])
def test_covariance_of_points_is_the_networks_own_and_a_floor(diameter_px: float, growth: float) -> None:
    calibration = replace(Calibration(), point_scale=1.5, point_floor_px=0.3, point_exponent=1.0)
    raw = np.array([[[4.0, 1.0], [1.0, 2.0]]])
    expected = growth**2 * (2.25 * raw + 0.09 * np.eye(2))
    found = calibration.point_covariance(raw[None], np.array([diameter_px]))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)

"""What names of coordinates tell, of every system."""

from __future__ import annotations

import numpy as np

from vid2phys.engine.layout import NO_RATE, angles, quaternions, rates, turning


def test_rates_by_name() -> None:
    names = ("position_x_1_m", "rotation_x_1_rad", "elbow_rad", "density_3", "slide_m of point 2",
             "velocity_x_1_m_s", "angular_velocity_x_1_rad_s", "elbow_rad_s", "slide_m_s of point 2")  # fmt: skip
    assert rates(names).tolist() == [5, 6, 7, NO_RATE, 8, NO_RATE, NO_RATE, NO_RATE, NO_RATE]
    assert angles(names).tolist() == [1, 2]
    assert turning(names).tolist() == [1, 2, 6, 7]


def test_quaternions_by_name() -> None:
    parts = [f"orientation_quat_{axis}_{body}" for body in range(2) for axis in "wxyz"]
    assert quaternions(("position_x_0_m", *parts)) == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert np.size(quaternions(("angle_rad",))) == 0

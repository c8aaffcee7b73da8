"""A camera that a motion gave is written with its errors, so that a later run does not take it as exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vid2phys.commands.identify.estimated_camera import EstimatedCamera
from vid2phys.io.camera import load_camera, save_camera
from vid2phys.solvers.camera_from_motion import CameraEstimate
from vid2phys.types import Camera


@pytest.mark.parametrize(("focal", "written"), [(0.3, 0.3), (0.0, 0.0), (0.9, 0.5)])
def test_errors_of_focal_length_and_direction_come_back(focal: float, written: float, tmp_path: Path) -> None:
    """The camera looks down by 0.1 rad. Its pitch is known to 0.04 rad, its roll to 0.01 rad."""
    down = np.array([0.0, np.cos(0.1), np.sin(0.1)])
    covariance = np.diag([focal, 0.01, 0.0, 0.04 * np.cos(0.1), 0.0, 0.0]) ** 2
    nothing: Any = None
    estimate = CameraEstimate(0.0, down, 9.81, None, covariance, None)
    assert estimate.pitch[1] == pytest.approx(0.04)
    found = EstimatedCamera(estimate, estimate, nothing, np.zeros(3), 0.0)
    camera = Camera(np.array([[500.0, 0.0, 160.0], [0.0, 500.0, 120.0], [0.0, 0.0, 1.0]]), 320, 240)
    save_camera(found.with_errors(camera), tmp_path / "camera.yaml")
    again = load_camera(tmp_path / "camera.yaml")
    assert again.focal_std == pytest.approx(written)
    assert again.direction_std_rad == pytest.approx(0.04, rel=1e-4)

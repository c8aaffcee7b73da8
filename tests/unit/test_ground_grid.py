"""The grid of the ground lies on the plane, reaches beyond the body's path, and has square cells."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.geometry import matrix_from_rotvec
from vid2phys.report.ground_grid import ground_grid


@pytest.mark.parametrize("tilt", [(0.0, 0.0, 0.0), (0.2, -0.1, 0.0), (1.5, 0.0, 0.0)])
def test_the_grid_is_on_the_plane_and_reaches_beyond_the_path(tilt: tuple[float, float, float]) -> None:
    axes = matrix_from_rotvec(np.array(tilt))
    normal, offset, size_m = axes[:, 2], 0.3, 0.05
    path = np.column_stack([np.linspace(0.0, 0.42, 9), np.linspace(-0.1, 0.1, 9), np.full(9, 0.5)]) @ axes.T
    path[3] = np.nan
    lines = ground_grid(normal, offset, path, size_m)
    np.testing.assert_allclose(lines @ normal, offset, atol=1e-12)
    steps = np.diff(lines, axis=1)
    np.testing.assert_allclose(steps, np.broadcast_to(steps[:, :1], steps.shape), atol=1e-12)
    points, flat = lines.reshape(-1, 3), path[np.isfinite(path).all(axis=1)]
    for direction in (axes[:, 0], axes[:, 1]):
        beyond = (
            (flat @ direction).min() - (points @ direction).min(),
            (points @ direction).max() - (flat @ direction).max(),
        )
        assert min(beyond) >= 0.999 * size_m


def test_cells_are_squares_that_grow_with_the_path() -> None:
    for length, side in ((0.42, 0.05), (16.0, 1.0)):
        path = np.column_stack([np.linspace(0.0, length, 9), np.zeros(9), np.full(9, 0.5)])
        lines = ground_grid(np.array([0.0, 0.0, 1.0]), 0.0, path, 0.05)
        along_x = np.ptp(lines[..., 0], axis=1) > 0.0
        for some, axis in ((lines[along_x], 1), (lines[~along_x], 0)):
            np.testing.assert_allclose(np.diff(np.sort(some[:, 0, axis])), side, atol=1e-12)

"""The rod: its sensors, how far its load moves it, and beam theory."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.engine.constants import RISP_ROD
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.rod import Rod
from vid2phys.errors import UsageError
from vid2phys.types import Array

MIDDLE = np.zeros((1, 3))


def swing(rod: Rod, force: Array, dt_s: float, **values: float) -> Array:
    """States from rest under forces [S, 3]."""
    parameters = rod.parameters().with_values(values).vector
    return simulate(rod, rod.state(rod.rest_m)[None], force[None], parameters, dt_s)[0]


def test_sensors_lie_evenly_between_the_clamps_and_move_with_the_rod() -> None:
    rod = Rod((8, 2, 2))
    assert rod.spine_m.shape == (10, 3)
    np.testing.assert_allclose(np.diff(rod.spine_m[:, 0]), 0.32 / 11.0, atol=1e-12)
    np.testing.assert_allclose(rod.spine_m, -rod.spine_m[::-1], atol=1e-12)
    rest = rod.state(rod.rest_m)
    np.testing.assert_allclose(rod.keypoints(rest, rod.spine_m), rod.spine_m, atol=1e-12)
    states = swing(rod, np.tile([0.0, 0.0, rod.load_n(1e6)], (30, 1)), 0.01, gravity=0.0)
    risen = rod.keypoints(states[-1], rod.spine_m)[:, 2]
    assert (np.diff(risen[:5]) > 0.0).all()  # towards the middle
    assert (np.diff(risen[5:]) < 0.0).all()
    np.testing.assert_array_equal(rod.positions(states)[:, rod.pinned], rod.rest_m[rod.pinned][None].repeat(31, axis=0))


@pytest.mark.parametrize("young_modulus", [1e4, 1e5, 1e6, 1e7])
def test_its_load_moves_the_middle_over_a_fifth_of_the_image(young_modulus: float) -> None:
    rod = Rod((8, 2, 2))
    times = 0.01 * np.arange(100)
    force = np.zeros((100, 3))
    force[:, 2] = rod.load_n(young_modulus) * np.sin(2.0 * np.pi * times)
    states = swing(rod, force, 0.01, young_modulus=young_modulus)
    heights = rod.keypoints(states, MIDDLE)[:, 0, 2]
    assert np.ptp(heights) > 0.2 * RISP_ROD.size_m[0]  # an image as wide as the rod; finer meshes bend further
    assert np.ptp(heights) < 0.4 * RISP_ROD.size_m[0]


def test_a_slender_rod_bends_as_a_clamped_beam_does_under_refinement() -> None:
    size, young, poisson = (0.32, 0.04, 0.04), 1e6, 0.3
    force = np.tile([0.0, 0.0, 1e-3], (12, 1))
    sags = []
    for cells in ((16, 2, 2), (24, 3, 3), (32, 4, 4)):
        rod = Rod(cells, elements="linear", size_m=size)
        states = swing(rod, force, 1.0, gravity=0.0, poisson_ratio=poisson, damping=0.0)
        sags.append(rod.keypoints(states[-1], MIDDLE)[0, 2])
    stiffness = 1.0 / np.array(sags)
    inertia, area, shear = size[1] ** 4 / 12.0, size[1] ** 2, young / (2.0 * (1.0 + poisson))
    theory = 1e-3 * (size[0] ** 3 / (192.0 * young * inertia) + size[0] / (4.0 * 5.0 / 6.0 * shear * area))
    # linear tets are too stiff by the square of their size
    limit = stiffness[2] - (stiffness[1] - stiffness[2]) * 9.0 / (16.0 - 9.0)
    assert sags[0] < sags[1] < sags[2] < theory
    assert 1.0 / limit == pytest.approx(theory, rel=0.06)


def test_refused_are_cells_without_a_middle() -> None:
    with pytest.raises(UsageError, match="even"):
        Rod((5, 1, 1))

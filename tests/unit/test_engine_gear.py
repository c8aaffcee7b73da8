"""The gear: its mesh, its muscles, and that a wave of activation rolls it along."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.engine.constants import GRADSIM_GEAR
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.gear import Gear
from vid2phys.engine.tets import tet_volumes
from vid2phys.errors import UsageError


def test_the_papers_size_is_a_closed_ring_of_conforming_tets() -> None:
    gear = Gear("paper")
    assert (len(gear.rest_m), len(gear.elements)) == (480, 1152)
    corners = [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]
    faces, counts = np.unique(np.sort(gear.elements[:, corners].reshape(-1, 3), axis=1), axis=0, return_counts=True)
    assert counts.max() == 2
    surface = faces[counts == 1]
    edges = np.unique(np.sort(surface[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1), axis=0)
    assert len(np.unique(surface)) - len(edges) + len(surface) == 0  # Euler's number of a torus
    assert gear.action_names[3:] == tuple(f"activation_{i}" for i in range(4))
    np.testing.assert_array_equal(np.bincount(gear.muscles), 288)
    # sectors count from the ground, towards +x
    centres = gear.rest_m[gear.elements].mean(axis=1) - [0.0, 0.0, GRADSIM_GEAR.tip_m]
    turned = np.arctan2(centres[:, 0], -centres[:, 2]) % (2.0 * np.pi) / (2.0 * np.pi)
    np.testing.assert_allclose([turned[gear.muscles == i].mean() for i in (1, 2)], [0.39, 0.64], atol=0.04)
    longest = gear.longest_step_s(gear.parameters().vector)
    assert longest > GRADSIM_GEAR.step_s


def test_an_active_sector_shrinks() -> None:
    gear = Gear("coarse", values={"gravity": 0.0, "damping": 5.0})
    controls = np.zeros((1, 100, 5))
    controls[0, :, 3] = GRADSIM_GEAR.activation
    start = gear.state(gear.rest_m + np.array([0.0, 0.0, 1.0]))[None]
    parameters = gear.parameters().vector
    substeps = int(np.ceil(0.02 / gear.longest_step_s(parameters)))
    end = simulate(gear, start, controls, parameters, 0.02, substeps=substeps)[0, -1]
    ratios = tet_volumes(gear.positions(end), gear.elements) / gear.volumes
    active, passive = (ratios[gear.muscles == i].mean() for i in range(2))
    assert active < 0.8  # measured: 0.73 and 0.93, for the two share vertices
    assert passive > active + 0.1


@pytest.mark.slow
def test_a_wave_of_activation_rolls_it_along() -> None:
    gear = Gear("paper")
    parameters = gear.parameters().vector
    times = 0.01 * np.arange(300)
    phase = 2.0 * np.pi * (times[:, None] - np.arange(4) / 4.0)
    controls = np.zeros((1, 300, 7))
    controls[0, :, 3:] = GRADSIM_GEAR.activation * np.maximum(0.0, np.sin(phase))
    substeps = int(np.ceil(0.01 / gear.longest_step_s(parameters)))
    start = gear.state(gear.rest_m)[None]
    moved, idle = (
        gear.positions(simulate(gear, start, u, parameters, 0.01, substeps=substeps)[0, -1]).mean(axis=0)
        for u in (controls, 0.0 * controls)
    )
    assert abs(moved[0]) > 0.04
    assert abs(moved[0]) > 4.0 * abs(idle[0])
    assert idle[2] > 0.09  # it stands: its middle was at 0.11


def test_refused_are_sectors_that_do_not_divide_it() -> None:
    with pytest.raises(UsageError, match="sectors"):
        Gear(sectors=3)
    with pytest.raises(UsageError, match="size"):
        Gear("large")  # type: ignore[arg-type]

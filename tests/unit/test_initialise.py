"""First states across a gap in what was seen."""

from __future__ import annotations

import numpy as np

from vid2phys.geometry import angle_between, quat_from_rotvec
from vid2phys.solvers.initialise import bridged


def test_a_long_gap_is_bridged_on_the_straight_way() -> None:
    times = np.arange(40) / 30.0
    axis = np.array([0.3, -0.5, 0.8])
    true = np.zeros((40, 13))
    true[:, :3] = np.array([1.0, 2.0, 3.0]) + times[:, None] * np.array([0.5, -0.2, 0.1])
    true[:, 3:7] = quat_from_rotvec(times[:, None] * axis)
    true[:, 7:10], true[:, 10:13] = [0.5, -0.2, 0.1], axis
    known = np.ones(40, dtype=bool)
    known[12:31] = False
    wild = true.copy()
    wild[~known] = 1e3
    found = bridged(wild, times, known)
    np.testing.assert_allclose(
        found[:, [0, 1, 2, 7, 8, 9, 10, 11, 12]], true[:, [0, 1, 2, 7, 8, 9, 10, 11, 12]], atol=1e-9
    )
    assert angle_between(found[:, 3:7], true[:, 3:7]).max() < 1e-6
    known[:5] = known[-3:] = False
    found = bridged(wild, times, known)
    np.testing.assert_allclose(found[:5, :7], np.repeat(true[5:6, :7], 5, axis=0))
    assert not found[-3:, 7:].any()

"""Indices spread evenly, and nearest ones."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.indices import evenly, nearest


def test_indices_are_spread_from_first_to_last() -> None:
    assert evenly(9, 3).tolist() == [0, 4, 8]
    assert evenly(2, 5).tolist() == [0, 1]
    assert evenly(0, 5).tolist() == []


@pytest.mark.parametrize("among", [[3], [0, 9], [2, 3, 7], [4, 9]])
def test_nearest_is_that_of_all_distances(among: list[int]) -> None:
    those = np.array(among)
    expected = np.abs(np.arange(10)[:, None] - those).argmin(axis=1)
    assert nearest(10, those).tolist() == expected.tolist()

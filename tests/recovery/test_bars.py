"""Soft bars in a clamp, moved on a mesh that no fit has: intervals hold the values of a bar without a mesh."""

from __future__ import annotations

import pytest

from benchmarks.coverage import bars
from vid2phys.types import Status


@pytest.mark.slow
def test_modulus_and_damping_of_a_bar_are_in_their_intervals() -> None:
    case = bars.case(1)
    assert case.status is Status.CONVERGED
    for name, relative in (("young_modulus", 0.005), ("damping", 0.02)):
        found = case.found[name]
        assert found.value == pytest.approx(case.truth[name], rel=relative)
        assert found.ci95[0] < case.truth[name] < found.ci95[1]

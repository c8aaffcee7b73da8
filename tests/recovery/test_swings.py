"""Swings on a hinge, whose truth is SciPy's: errors that last for the whole clip must not hide the motion."""

from __future__ import annotations

import pytest

from benchmarks.coverage import swings
from benchmarks.coverage.__main__ import rows
from vid2phys.types import Status


@pytest.mark.parametrize("seed", [4, 6, 10])
def test_lasting_errors_leave_length_and_damping(seed: int) -> None:
    """These fits once ended at a body that hangs still: each frame's angle counted for nothing."""
    case = swings.case(seed)
    assert case.status is Status.CONVERGED
    for name, relative in (("length", 0.01), ("damping", 0.1)):
        assert case.found[name].value == pytest.approx(case.truth[name], rel=relative)


def test_intervals_of_swings_are_neither_too_wide_nor_too_narrow() -> None:
    """With 16 errors, one over their root mean square is within 0.68 to 1.76 with a probability of 99 %."""
    found = rows("swings", [swings.case(seed) for seed in range(20, 36)])
    assert {row["parameter"] for row in found} == {"length", "damping"}
    for row in found:
        assert row["held_share"] >= 0.8
        assert 0.68 < row["width_ratio"] < 1.76

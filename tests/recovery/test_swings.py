"""Swings on a hinge, whose truth is SciPy's: errors that last for the whole clip must not hide the motion."""

from __future__ import annotations

import pytest

from benchmarks.coverage import swings
from vid2phys.types import Status


@pytest.mark.parametrize("seed", [4, 6, 10])
def test_lasting_errors_leave_length_and_damping(seed: int) -> None:
    """These fits once ended at a body that hangs still: each frame's angle counted for nothing."""
    case = swings.case(seed)
    assert case.status is Status.CONVERGED
    for name, relative in (("length", 0.01), ("damping", 0.1)):
        assert case.found[name].value == pytest.approx(case.truth[name], rel=relative)

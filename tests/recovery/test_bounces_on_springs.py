"""The stiffness of a contact on springs from drawn poses, as `identify --fit k_e` finds it."""

from __future__ import annotations

import numpy as np

from benchmarks.coverage import springs
from vid2phys.types import Status


def test_a_bounce_shows_the_stiffness_of_its_springs() -> None:
    """The first guess is 1000 N/m, the truth 1827 N/m; the interval may be neither empty nor too wide."""
    case = springs.case(1)
    assert case.status is Status.CONVERGED
    found, true = case.found["k_e"], case.truth["k_e"]
    low, high = found.ci95
    half = 0.5 * np.log(high / low)
    assert 0.03 < half < 0.25
    assert abs(np.log(found.value / true)) < 1.5 * half

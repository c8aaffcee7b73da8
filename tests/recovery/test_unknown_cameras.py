"""Falls before a camera of which nothing is known: errors that last do not divide one fall into several."""

from __future__ import annotations

import pytest

from benchmarks.coverage import cameras


@pytest.mark.parametrize("seed", [1, 9])
def test_focal_length_and_pitch_are_in_their_intervals(seed: int) -> None:
    """These fits once had a focal length and a pitch that were 5 standard deviations off."""
    case = cameras.case(seed)
    assert case.converged
    for name, relative in (("focal_px", 0.06), ("pitch_deg", 0.03)):
        found = case.found[name]
        assert found.value == pytest.approx(case.truth[name], rel=relative)
        assert found.ci95[0] < case.truth[name] < found.ci95[1]

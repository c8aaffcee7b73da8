"""Falls before a rolling shutter: intervals of the readout and of gravity hold the truth and tell something."""

from __future__ import annotations

import pytest

from benchmarks.coverage import shutters


def test_readout_and_gravity_are_in_their_intervals() -> None:
    case = shutters.case(5)
    assert case.converged
    for name, relative in (("readout", 0.08), ("gravity", 0.02)):
        found = case.found[name]
        assert found.value == pytest.approx(case.truth[name], rel=relative)
        assert found.ci95[0] < case.truth[name] < found.ci95[1]

"""The tracking benchmark times functions by name: they have to exist."""

from __future__ import annotations

from benchmarks.tracking import STAGES


def test_every_stage_that_is_timed_is_a_function() -> None:
    for stage, (owner, name) in STAGES.items():
        assert callable(getattr(owner, name)), stage

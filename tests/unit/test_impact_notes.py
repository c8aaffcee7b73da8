"""What a reader is told of a fit of impacts: doubts, a warning, a bound of friction."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.test_impact_problem import problem as problem
from vid2phys.commands.identify.fit_impacts import fit_notes
from vid2phys.notes import is_doubtful
from vid2phys.solvers.impact_problem import ImpactProblem
from vid2phys.solvers.impacts import _EXACT, _is_apart


def fitted(**changed: Any) -> Any:
    contacts = SimpleNamespace(impacts=np.ones((1, 3)), sliding_s=np.zeros((1, 3)))
    given = {"contacts": contacts, "misfit": 0.9, "slack_std": 0.03, "is_apart": False, "least_friction": None}
    return SimpleNamespace(**(given | changed))


def test_a_good_fit_needs_no_note() -> None:
    assert fit_notes(fitted()) == []


@pytest.mark.parametrize(
    ("changed", "words", "doubtful"),
    [
        ({"contacts": SimpleNamespace(impacts=np.zeros((1, 3)), sliding_s=np.zeros((1, 3)))}, "never touches", True),
        ({"misfit": 2.1}, "2.1 standard deviations off", True),
        ({"slack_std": 0.1}, "depart from the law of impact by 10 %", False),
        ({"slack_std": 0.1, "is_apart": True}, "parts of the motion miss each other", True),
        ({"least_friction": 0.078}, "mu is at least 0.078", False),
    ],
)
def test_each_fault_has_a_note(changed: dict[str, Any], words: str, doubtful: bool) -> None:
    (note,) = fit_notes(fitted(**changed))
    assert words in note
    assert is_doubtful([note]) == doubtful


@pytest.mark.parametrize(
    ("miss", "slack", "apart"), [(10.0, 0.1, True), (30.0, 0.1, True), (3.0, 0.1, False), (30.0, 0.03, False)]
)
def test_a_motion_is_in_parts_where_it_misses_and_departs(
    miss: float, slack: float, apart: bool, problem: ImpactProblem
) -> None:
    assert _is_apart(replace(problem, miss=miss * _EXACT, slack_std=slack)) == apart

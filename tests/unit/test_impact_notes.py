"""What a reader is told of a fit of impacts: doubts, a warning, a bound of friction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.test_impact_problem import problem as problem
from vid2phys.commands.identify.fit_impacts import _without_early, fit_notes, with_bound
from vid2phys.notes import is_doubtful
from vid2phys.solvers.impact_problem import ImpactProblem
from vid2phys.solvers.impact_search import _EXACT, is_apart
from vid2phys.types import Array, Estimate


def impacts_in(impacts: Array, speeds_m_s: Array | float = 1.0) -> Any:
    """Numbers of impacts [F - 1] in the intervals of a clip, and the speeds of the fastest ones."""
    speeds = np.where(impacts > 0, speeds_m_s, np.nan)
    return SimpleNamespace(impacts=impacts[None], approach_m_s=speeds[None], sliding_s=np.zeros((1, len(impacts))))


def fitted(**changed: Any) -> Any:
    contacts = impacts_in(np.ones(9))
    free = SimpleNamespace(free_names=("mu", "restitution"))
    given = {"contacts": contacts, "misfit": 0.9, "slack_std": 0.03, "is_apart": False, "least_friction": None}
    given |= {"parameters": free}
    return SimpleNamespace(**(given | changed))


def test_a_good_fit_needs_no_note() -> None:
    assert fit_notes(fitted()) == []


@pytest.mark.parametrize(
    ("changed", "words", "doubtful"),
    [
        ({"contacts": impacts_in(np.zeros(3))}, "never touches", True),
        ({"misfit": 2.1}, "2.1 standard deviations off", True),
        ({"slack_std": 0.1}, "depart from the law of impact by 10 %", False),
        ({"slack_std": 0.1, "is_apart": True}, "parts of the motion miss each other", True),
        (
            {"contacts": impacts_in(np.eye(9)[0])},
            "in the first frames",
            False,
        ),
        ({"least_friction": 0.078}, "mu is at least 0.078", False),
    ],
)
def test_each_fault_has_a_note(changed: dict[str, Any], words: str, doubtful: bool) -> None:
    (note,) = fit_notes(fitted(**changed))
    assert words in note
    assert is_doubtful([note]) == doubtful


@dataclass(frozen=True)
class _Fit:
    contacts: Any
    parameters: Any
    unknown: tuple[str, ...]


@pytest.mark.parametrize(("last", "free", "count"), [(3, True, 1), (4, True, 0), (3, False, 0), (None, True, 0)])
def test_impacts_in_the_first_frames_alone_show_no_restitution(last: int | None, free: bool, count: int) -> None:
    """Impacts from the second interval to the interval `last`."""
    impacts = np.zeros(9)
    if last is not None:
        impacts[1 : last + 1] = 1.0
    names = ("mu", "restitution") if free else ("mu",)
    found: Any = _Fit(impacts_in(impacts), SimpleNamespace(free_names=names), ())
    assert _without_early(found).unknown == ("restitution",) * count


@pytest.mark.parametrize(("speed_m_s", "count"), [(0.4, 1), (0.45, 0)])
def test_slow_impacts_after_the_first_frames_show_none_either(speed_m_s: float, count: int) -> None:
    """One impact at 1 m/s in the second interval; a later one counts from 0.42 m/s on: 15 % of the squares of both."""
    contacts = impacts_in(np.array([0, 2, 0, 0, 0, 0, 1, 0]), np.array([0, 1.0, 0, 0, 0, 0, speed_m_s, 0]))
    found: Any = _Fit(contacts, SimpleNamespace(free_names=("mu", "restitution")), ())
    assert _without_early(found).unknown == ("restitution",) * count


@pytest.mark.parametrize(
    ("miss", "slack", "apart"), [(10.0, 0.1, True), (30.0, 0.1, True), (3.0, 0.1, False), (30.0, 0.03, False)]
)
def test_a_motion_is_in_parts_where_it_misses_and_departs(
    miss: float, slack: float, apart: bool, problem: ImpactProblem
) -> None:
    assert is_apart(replace(problem, miss=miss * _EXACT, slack_std=slack)) == apart


def test_a_friction_that_has_a_bound_only_has_an_interval_from_there() -> None:
    """The bounds of several clips all hold; a friction that is determined keeps its interval."""
    found = Estimate("mu", "1", 2.2, (0.0, np.inf), False), Estimate("restitution", "1", 0.7, (0.6, 0.8), True)
    some = [0.05, None, 0.07]
    bounded, other = with_bound(found, some)
    assert bounded.ci95 == (0.07, np.inf)
    assert bounded.interval == "at least 0.07"
    assert other is found[1]
    assert other.interval == "0.6 to 0.8"
    assert found[0].interval == "unbounded"
    assert with_bound(found, [None]) is found
    known = (replace(found[0], ci95=(0.1, 0.3), identifiable=True),)
    assert with_bound(known, some) == known

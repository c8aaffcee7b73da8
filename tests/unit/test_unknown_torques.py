"""An inertia is determined where recorded torques drive the body, and not where unknown ones do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.commands.identify.unknown_torques import without_opposed
from vid2phys.engine import systems
from vid2phys.types import Estimate

NAMES = ("inertia_xx", "inertia_yy", "inertia_zz")
FOUND = tuple(Estimate(name, "kg m^2", 1e-4, (0.9e-4, 1.1e-4), True, source="fitted") for name in NAMES)


def fitted(strength: float, *, actions: bool = True) -> tuple[Any, Any]:
    """Return a problem and a solution of a body that shakes by 10 rad/s^2 (root mean square) about x, and 1 about z."""
    times = np.linspace(0.0, 2.0, 201)
    states = np.zeros((len(times), 13))
    for column, size in ((10, 10.0), (11, 10.0), (12, 1.0)):
        states[:, column] = np.sqrt(2.0) * size / 10.0 * np.sin(10.0 * times)
    problem = SimpleNamespace(
        system=systems.get("quadrotor"),
        actions=object() if actions else None,
        observation=SimpleNamespace(times_s=times),
    )
    return problem, SimpleNamespace(states=states, extra={"torque_std": strength})


@pytest.mark.parametrize(("strength", "hidden"), [(0.2, ()), (0.5, ("inertia_zz",)), (5.0, NAMES)])
def test_inertia_that_unknown_torques_hide_is_not_determined(strength: float, hidden: tuple[str, ...]) -> None:
    found, lines = without_opposed(*fitted(strength), FOUND, NAMES)
    assert tuple(each.name for each in found if not each.identifiable) == hidden
    assert [line.split()[0] for line in lines] == list(hidden)


def test_without_recorded_actions_nothing_is_judged() -> None:
    assert without_opposed(*fitted(5.0, actions=False), FOUND, NAMES) == (FOUND, [])


def test_a_nuisance_is_judged_without_a_line() -> None:
    found, lines = without_opposed(*fitted(5.0), FOUND, ("mass",))
    assert not any(each.identifiable for each in found)
    assert not lines

"""What rollouts refuse and which number they name, and which rollouts are recorded to be replayed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.engine import replay
from vid2phys.engine.checks import check_inputs, require_finite_states
from vid2phys.engine.systems import get
from vid2phys.errors import SimulationError, UsageError
from vid2phys.types import Array

SYSTEM = get("pendulum")
NAMES = SYSTEM.parameters().names
VECTOR = SYSTEM.parameters().vector


def checked(
    states: Array | None = None, controls: Array | None = None, parameters: Array | None = None,
    dt_s: Array | None = None, substeps: int = 1, integrator: Any = "rk4",
) -> None:  # fmt: skip
    """Check two pendulums over three intervals, but for what is given."""
    given = (
        np.zeros((2, 2)) if states is None else states,
        np.zeros((2, 3, len(SYSTEM.control_names))) if controls is None else controls,
        VECTOR[None] if parameters is None else parameters,
        np.full((1, 3), 0.01) if dt_s is None else dt_s,
    )
    check_inputs(SYSTEM, *given, integrator=integrator, substeps=substeps)


def test_shapes_that_fit_are_taken() -> None:
    checked()
    checked(parameters=np.stack([VECTOR, VECTOR]))
    for wrong in (
        {"states": np.zeros((2, 3))},
        {"states": np.zeros(2)},
        {"controls": np.zeros((1, 3, len(SYSTEM.control_names)))},
        {"controls": np.zeros((2, 3, len(SYSTEM.control_names) + 1))},
        {"controls": np.zeros((2, len(SYSTEM.control_names)))},
        {"parameters": VECTOR},
        {"parameters": np.stack([VECTOR] * 3)},
        {"parameters": VECTOR[None, 1:]},
    ):
        with pytest.raises(ValueError, match="have shape"):
            checked(**wrong)


def test_what_is_not_finite_is_named() -> None:
    states, controls = np.zeros((2, 2)), np.zeros((2, 3, len(SYSTEM.control_names)))
    states[1, 1] = np.nan
    with pytest.raises(SimulationError, match=f"initial state has nan in '{SYSTEM.state_names[1]}'"):
        checked(states=states)
    controls[1, 2, 0] = np.inf
    with pytest.raises(SimulationError, match=f"controls has inf in '{SYSTEM.control_names[0]}'"):
        checked(controls=controls)


@pytest.mark.parametrize("wrong", [0.0, -0.01, np.nan, np.inf])
def test_times_increase(wrong: float) -> None:
    with pytest.raises(UsageError, match="a time step of"):
        checked(dt_s=np.array([[0.01, wrong, 0.01]]))


def test_parameters_are_within_their_domain_but_for_rounding() -> None:
    parameters = np.stack([VECTOR, VECTOR])
    items = {p.name: p for p in SYSTEM.parameters()}
    for name in ("length", "damping"):
        column = NAMES.index(name)
        for bound, sign in ((items[name].lower, -1.0), (items[name].upper, 1.0)):
            parameters[1, column] = bound * (1.0 + sign * np.sign(bound) * 5e-10)
            long = {"substeps": 10**9}  # whatever step such a body needs
            checked(parameters=parameters, **long)  # type: ignore[arg-type]
            parameters[1, column] = bound + sign * max(abs(bound) * 1e-6, 1e-9)
            with pytest.raises(UsageError, match=f"{name} = .*choose a {name} within these limits"):
                checked(parameters=parameters, **long)  # type: ignore[arg-type]
        parameters[1, column] = VECTOR[column]
    parameters[0, 0] = np.nan
    with pytest.raises(UsageError, match=f"{NAMES[0]} = nan"):
        checked(parameters=parameters)


def test_as_many_substeps_are_named_as_are_stable() -> None:
    """The longest interval and the stiffest parameters count."""
    stiff = VECTOR.copy()
    stiff[NAMES.index("length")] = 1e-3
    longest = SYSTEM.longest_step_s(stiff)
    assert longest < SYSTEM.longest_step_s(VECTOR)
    parameters, dt_s = np.stack([VECTOR, stiff]), np.array([[0.01, 3.5 * longest, 0.01 * longest]])
    dt_s[0, 0] = longest
    checked(parameters=parameters, dt_s=dt_s, substeps=4)
    with pytest.raises(UsageError, match=r"use 4 substeps or more$"):
        checked(parameters=parameters, dt_s=dt_s, substeps=3)
    checked(parameters=parameters, dt_s=dt_s, integrator="implicit_midpoint")


def test_the_first_state_that_is_lost_is_named_with_its_time() -> None:
    states = np.zeros((4, 2, 2))
    dt_s = np.array([0.1, 0.2, 0.4])
    require_finite_states(SYSTEM, states, dt_s)
    states[2:, 1, 1] = np.nan
    states[3, 0, 0] = np.inf
    with pytest.raises(SimulationError, match=f"'{SYSTEM.state_names[1]}' of 'pendulum' .* at 0.3 s"):
        require_finite_states(SYSTEM, states, dt_s)
    states[3] = 0.0
    with pytest.raises(SimulationError, match=r"at 0\.3 s"):
        require_finite_states(SYSTEM, states, np.stack([dt_s, dt_s]))


class Launching:
    """A system whose steps are launches, and which a weak dictionary takes."""

    def only_launches(self, integrator: str) -> bool:
        return integrator == "rk4"


def asked(system: Any, rows: int, **other: Any) -> Any:
    shapes: Any = ((rows, 2), (rows, 10, 1), (1, 3), (1, 10))
    how: Any = {"integrator": "rk4", "substeps": 2, "device": "cpu", "gradient": False} | other
    return replay.replay_of(system, shapes, **how)


def test_a_rollout_that_is_asked_for_often_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the third time, once; other shapes, substeps and derivatives count by themselves."""
    made = list[Any]()

    def record(system: Any, shapes: Any, **how: Any) -> Any:
        made.append(SimpleNamespace(shapes=shapes, **how))
        return made[-1]

    monkeypatch.setattr(replay, "Replay", record)
    system = Launching()
    assert [asked(system, 3) is None for _ in range(2)] == [True, True]
    first = asked(system, 3)
    assert first is made[0]
    assert (first.substeps, first.gradient) == (2, False)
    assert asked(system, 3) is first
    for other in ({"substeps": 3}, {"gradient": True}):
        assert [asked(system, 3, **other) is None for _ in range(2)] == [True, True]
        assert asked(system, 3, **other) is made[-1] is not first
    assert asked(Launching(), 3) is None, "each system counts by itself"
    for other in ({"integrator": "implicit_euler"}, {"device": "cuda:0"}):
        assert [asked(system, 3, **other) for _ in range(4)] == [None] * 4
    largest = replay.MOST_NUMBERS // (2 * 10 * 2)
    assert [asked(system, largest + 1) for _ in range(4)] == [None] * 4
    assert [asked(system, largest) is None for _ in range(3)] == [True, True, False]


def test_shapes_that_are_used_least_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight are kept; the one that is asked for in between stays."""
    monkeypatch.setattr(replay, "Replay", lambda *_, **how: SimpleNamespace(**how))
    system = Launching()
    recorded = [asked(system, 1) for _ in range(3)][-1]
    for rows in range(2, 9):
        asked(system, rows)
    assert asked(system, 1) is recorded
    for rows in range(10, 17):
        asked(system, rows)
    assert asked(system, 1) is recorded, "the last of eight"
    for rows in range(20, 28):
        asked(system, rows)
    assert asked(system, 1) is None

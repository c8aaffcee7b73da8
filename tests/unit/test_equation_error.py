"""A start of parameters by the equation error, beside a swing that SciPy integrates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from vid2phys.engine.systems.pendulum import Pendulum
from vid2phys.errors import SimulationError
from vid2phys.solvers import equation_error
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array

LENGTH_M, DAMPING = 0.6, 0.12
TIMES_S = np.arange(60) / 30.0


def swing() -> Array:
    """Return angles and rates [60, 2] of a point mass of 1 kg."""

    def slope(_: float, state: Array) -> list[float]:
        angle, rate = state
        return [rate, -9.81 / LENGTH_M * np.sin(angle) - DAMPING / LENGTH_M**2 * rate]

    return solve_ivp(slope, (0.0, 2.0), [1.2, 0.0], t_eval=TIMES_S, rtol=1e-9, atol=1e-9).y.T


def problem(length: float = 1.0) -> Problem:
    parameters = Pendulum().parameters().with_values({"length": length}).with_free(("length", "damping"))
    seen: Any = SimpleNamespace(times_s=TIMES_S, configuration=None)
    return Problem(Pendulum(), parameters, seen, np.eye(4))


def test_length_and_damping_come_from_the_states() -> None:
    found = equation_error.start_parameters(problem(), swing())
    assert found["length"].value == pytest.approx(LENGTH_M, rel=2e-3)
    assert found["damping"].value == pytest.approx(DAMPING, rel=2e-2)


def test_frames_without_a_state_do_not_count() -> None:
    states = swing()
    states[[3, 20, 21, 40]] = np.nan
    found = equation_error.start_parameters(problem(), states)
    assert found["length"].value == pytest.approx(LENGTH_M, rel=2e-3)
    states[4:] = np.nan
    assert equation_error.start_parameters(problem(), states) == problem().parameters


def test_a_trial_that_cannot_be_simulated_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, simulate = [], equation_error.simulate

    def failing(*given: Any, **options: Any) -> Array:
        calls.append(given)
        if len(calls) == 4:  # after the start and two differences: the first trial
            raise SimulationError("not finite")
        return simulate(*given, **options)

    monkeypatch.setattr(equation_error, "simulate", failing)
    found = equation_error.start_parameters(problem(), swing())
    assert found["length"].value == pytest.approx(LENGTH_M, rel=2e-3)
    assert len(calls) > 4

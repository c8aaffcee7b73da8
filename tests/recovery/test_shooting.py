"""Shooting recovers a simulated flight from its exact actions, and agrees with smoothing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.flight import fly, watch
from tests.recovery.test_smoothing import start
from vid2phys.errors import UsageError
from vid2phys.solvers import intervals, shooting
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.whiteness import whiteness


def test_mass_drag_and_first_state() -> None:
    flight = fly(2.4)
    parameters = flight.parameters.with_values({"mass": 0.8, "drag": 0.3}).with_free(("mass", "drag"))
    problem = Problem(flight.system, parameters, watch(flight), flight.camera_to_world, actions=flight.actions)
    fit = shooting.solve(problem, start(problem))
    found = intervals.estimates(fit.parameters, fit.theta_names, fit.theta_covariance, fit.null_directions, 500.0)
    by_name = {e.name: e for e in found}
    assert fit.converged
    for name, truth in (("mass", 0.72), ("drag", 0.12)):
        assert by_name[name].ci95[0] < truth < by_name[name].ci95[1]
    assert by_name["mass"].value == pytest.approx(0.72, rel=0.005)
    error = problem.system.local(flight.states, fit.states)
    assert np.linalg.norm(error[:, :3], axis=1).max() < 0.05
    assert fit.residuals is not None
    judged = whiteness(fit.residuals)
    assert judged is not None
    assert judged.white
    std = np.sqrt(np.einsum("kii->ki", fit.covariance))
    assert np.abs(error / std)[:, :6].mean() < 1.5


def test_a_model_that_misses_drag_leaves_residuals_that_are_not_white() -> None:
    flight = fly(2.4)
    parameters = flight.parameters.with_values({"mass": 0.8, "drag": 1.5}).with_free(("mass",))
    problem = Problem(flight.system, parameters, watch(flight), flight.camera_to_world, actions=flight.actions)
    residuals = shooting.solve(problem, start(problem)).residuals
    assert residuals is not None
    judged = whiteness(residuals)
    assert judged is not None
    assert not judged.white
    assert "does not fit" in (judged.warning() or "")


def test_shooting_needs_actions() -> None:
    flight = fly(1.2)
    problem = Problem(flight.system, flight.parameters, watch(flight), flight.camera_to_world)
    with pytest.raises(UsageError, match="--solver smoothing"):
        shooting.solve(problem, flight.states)

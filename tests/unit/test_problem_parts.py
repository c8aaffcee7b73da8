"""Grids, inputs, controls and priors of a problem, and the linear model of rollouts, beside closed forms."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.filmed import brick
from vid2phys.engine.systems import get
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.engine.systems.rigid_contact import RigidContact, Sphere, ThrownBody
from vid2phys.errors import SimulationError, UsageError
from vid2phys.solvers import problem as problems
from vid2phys.solvers.problem import (
    Knots,
    Problem,
    effective_actions,
    flies_free,
    input_channels,
    mean_controls,
    rollout_controls,
    stable_substeps,
)
from vid2phys.solvers.rollout_fit import MotionLoss, Prior, _Rollouts, solve
from vid2phys.types import Actions, Array


def problem_of(system: Any, actions: Actions | None = None, **how: Any) -> Problem:
    nothing: Any = SimpleNamespace(configuration=None)
    return Problem(system, system.parameters(), nothing, np.eye(4), actions, **how)


def test_knots_lie_between_distant_frames() -> None:
    """Steps of 0.04 s at most: none between the first two frames, two between the next, and three for 0.1 s."""
    times = np.array([1.0, 1.04, 1.1, 1.2])
    knots = Knots.of(times, 0.04)
    np.testing.assert_allclose(knots.times_s, [1.0, 1.04, 1.07, 1.1, 1.1 + 0.1 / 3, 1.1 + 0.2 / 3, 1.2])
    np.testing.assert_allclose(knots.step_s, np.diff(knots.times_s))
    np.testing.assert_array_equal(knots.frame_knot, [0, 1, 3, 6])
    np.testing.assert_array_equal(Knots.of(times, np.inf).times_s, times)
    values = np.arange(12.0).reshape(6, 2)
    means = [values[0], 0.5 * (values[1] + values[2]), values[3:].mean(axis=0)]
    np.testing.assert_allclose(knots.frame_means(values), means)


def test_priors_count_in_their_deviations() -> None:
    problem = problem_of(Quadrotor(), priors={"mass": (1.0, 0.5), "drag": (0.2, 0.1)})
    off, precision = problem.prior(("drag", "gravity", "mass"), np.array([0.5, 9.0, 0.0]))
    np.testing.assert_allclose(off, [3.0, 0.0, -2.0])
    np.testing.assert_allclose(precision, [100.0, 0.0, 4.0])
    none, nowhere = problem.prior((), np.zeros(0))
    assert none.shape == nowhere.shape == (0,)


def test_unknown_inputs_are_disturbances_or_the_actions_themselves() -> None:
    recorded = Actions(np.zeros(1), np.zeros((1, 4)), "wrench", Quadrotor().action_names, Quadrotor().action_units)
    with_actions = input_channels(problem_of(Quadrotor(), recorded))
    assert [c.index for c in with_actions] == [4, 5, 6, 7, 8, 9]
    assert {c.group for c in with_actions} == {"force", "torque"}
    without = input_channels(problem_of(Quadrotor()))
    assert [c.index for c in without] == [0, 1, 2, 3, 4, 5, 6], "a torque cannot be told from its actions"
    assert [c.inertia for c in without[:4]] == ["mass", "inertia_xx", "inertia_yy", "inertia_zz"]
    pushed = RigidContact((Sphere(0.1),))
    assert flies_free(pushed)
    assert not flies_free(Quadrotor())
    groups = [c.group for c in input_channels(problem_of(pushed))]
    assert set(groups) == {"action_force", "action_torque"}
    passive = RigidContact((Sphere(0.1),), has_actions=False)
    assert {c.group for c in input_channels(problem_of(passive))} == {"force", "torque"}


def test_a_hand_carries_what_it_holds() -> None:
    """A thrown brick has no force on it, and one that is carried its weight."""
    ball = ThrownBody(brick())
    vector = ball.parameters().vector
    thrown, carried = (mean_controls(problem_of(ball, carried=by_hand), vector) for by_hand in (False, True))
    assert not thrown.any()
    weight = ball.parameters()["mass"].value * ball.parameters()["gravity"].value
    np.testing.assert_allclose(np.sort(carried), [*[0.0] * (len(carried) - 1), weight])


def test_rollouts_take_recorded_actions_alone() -> None:
    knots = Knots.of(np.arange(5) * 0.1, np.inf)
    values = np.arange(8.0).reshape(2, 4)
    recorded = Actions(np.array([0.0, 0.2]), values, "wrench", Quadrotor().action_names, Quadrotor().action_units)
    found = rollout_controls(problem_of(Quadrotor(), recorded), knots)
    np.testing.assert_allclose(found[:, :4], values[[0, 0, 1, 1]])
    assert not found[:, 4:].any()
    assert not rollout_controls(problem_of(RigidContact((Sphere(0.1),))), knots).any()
    with pytest.raises(UsageError, match="a rollout without --actions"):
        rollout_controls(problem_of(Quadrotor()), knots)


def test_intervals_have_as_many_steps_as_are_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest interval counts, and eight tenths of the longest stable step; implicit steps need no others."""
    pendulum = get("pendulum")
    knots = Knots(np.array([0.0, 0.1, 0.4]), np.array([0.1, 0.3]), np.arange(3))
    monkeypatch.setattr(type(pendulum), "longest_step_s", lambda self, parameters: 0.03)
    assert stable_substeps(problem_of(pendulum), knots) == int(np.ceil(0.3 / 0.024))
    assert stable_substeps(problem_of(pendulum), knots, 20) == 20
    monkeypatch.setattr(problems, "is_implicit", lambda scheme: True)
    assert stable_substeps(problem_of(pendulum), knots) == 1


def test_a_lag_delays_a_step_exponentially() -> None:
    """Motors that are asked for 1 from 0.1 s on: means over intervals of 1 - exp(-(t - 0.1) / lag)."""
    actions = Actions(np.array([-1.0, 0.1]), np.array([[0.0], [1.0]]), "other", ("a",), ("N",))
    knots, lag = Knots.of(np.arange(12) * 0.04, np.inf), 0.05

    def integral(time: Array, delay: float) -> Array:
        after = np.maximum(time - 0.1 - delay, 0.0)
        return after - lag * (1.0 - np.exp(-after / lag))

    for delay in (0.0, 0.06):
        found = effective_actions(actions, knots, delay, lag)[:, 0]
        expected = np.diff(integral(knots.times_s, delay)) / knots.step_s
        np.testing.assert_allclose(found, expected, atol=0.02)
        assert abs((found - expected).sum()) < 0.03
    begun = effective_actions(replace(actions, times_s=np.array([-9.0, -8.0])), knots, 0.0, lag)
    np.testing.assert_allclose(begun, 1.0, atol=1e-9, err_msg="what lasts has no lag")


class Straight(MotionLoss):
    """Motions of one state are to be at known places, to a hundredth."""

    def __init__(self, places: Array) -> None:
        self._places = torch.from_numpy(places)

    def value(self, states: torch.Tensor) -> torch.Tensor:
        return 0.5 * self.residuals(states).square().sum()

    def residuals(self, states: torch.Tensor) -> torch.Tensor:
        return (states[:, 0] - self._places) / 0.01


TIMES = np.arange(6) * 0.2


def rolled(values: Array) -> Array:
    """A place and a speed; speeds above 9 cannot be computed, and those below -9 are refused."""
    if (values[:, 1] > 9.0).any():
        raise SimulationError("it diverges", "a motion", "less")
    if (values[:, 1] < -9.0).any():
        raise UsageError("a speed below -9", "more", "raise it")
    return np.asarray(values[:, :1, None] + values[:, 1:2, None] * TIMES[None, :, None])


def rollouts(prior: Prior | None = None, upper: float = np.inf) -> _Rollouts:
    places = 0.3 + 0.7 * TIMES + 0.01 * np.sin(9.0 * TIMES)
    bounds = np.full(2, -np.inf), np.array([np.inf, upper])
    return _Rollouts(rolled, Straight(places), np.array([0.5, 2.0]), prior or Prior.none(2), *bounds)


def test_rollouts_are_linear_in_units_of_their_unknowns() -> None:
    """Normal equations with a prior, at a bound that cuts a step in half."""
    prior = Prior(np.array([0.1, 0.2]), np.array([[3.0, 1.0]]))
    point, units = np.array([0.2, 0.9]), np.array([0.5, 2.0])
    places = 0.3 + 0.7 * TIMES + 0.01 * np.sin(9.0 * TIMES)
    off = np.append((point[0] + point[1] * TIMES - places) / 0.01, 3.0 * 0.1 + 0.7)
    rows = np.vstack([np.stack([np.ones(6), TIMES], axis=1) / 0.01, [[3.0, 1.0]]]) * units
    for upper in (np.inf, 0.9, 0.9005):
        problem = rollouts(prior, upper)
        model = problem.linearize(point)
        np.testing.assert_allclose(model.normal.gradient, rows.T @ off, rtol=1e-6)
        np.testing.assert_allclose(model.normal.information, rows.T @ rows, rtol=1e-6)
        assert model.cost == problem.cost(point) == pytest.approx(0.5 * (off**2).sum())
    candidate, gain = rollouts(prior).linearize(point).step(0.0)
    best = point - units * np.linalg.solve(rows.T @ rows, rows.T @ off)
    np.testing.assert_allclose(candidate, best, rtol=1e-6)
    assert gain == pytest.approx(rollouts(prior).cost(point) - rollouts(prior).cost(best), rel=1e-6)


def test_motions_that_cannot_be_computed_cost_infinitely_much_by_themselves() -> None:
    values = np.array([[0.3, 0.7], [0.3, 9.5], [0.3, 0.8]])
    assert np.isinf(rollouts().costs(np.array([[0.3, -9.5], [0.3, 0.7]]))).tolist() == [True, False]
    costs = rollouts().costs(values)
    assert np.isinf(costs).tolist() == [False, True, False]
    assert costs[0] < costs[2]
    with pytest.raises(SimulationError, match="none of 1 starts"):
        solve(rolled, Straight(0.0 * TIMES), values[[1]], np.ones(2))


def test_the_information_of_a_fit_is_that_of_its_unknowns() -> None:
    found = solve(rolled, Straight(0.3 + 0.7 * TIMES), np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([0.5, 2.0]))
    np.testing.assert_allclose(found.values, [0.3, 0.7], atol=1e-6)
    design = np.stack([np.ones(6), TIMES], axis=1) / 0.01
    np.testing.assert_allclose(found.information, design.T @ design, rtol=1e-6)
    np.testing.assert_allclose(found.states[:, 0], 0.3 + 0.7 * TIMES, atol=1e-6)
    assert found.converged

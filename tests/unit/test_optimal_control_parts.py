"""Parts of optimal control against closed forms: a mass that floats, what is left at the end, and when to go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.recovery.test_optimal_control import AT, FLOATING, POINTS, moved
from vid2phys.engine.systems import get
from vid2phys.engine.systems.rigid_contact import RigidContact, Sphere
from vid2phys.errors import UsageError
from vid2phys.solvers import optimal_control
from vid2phys.solvers.least_squares import Minimum, Status
from vid2phys.solvers.optimal_control import Aim, Reached, _Control, _Point
from vid2phys.types import Array

MASS, SIZE_M = 0.5, 0.1
NOWHERE = np.zeros(3)
MIDDLE = np.zeros((1, 3))


def reached(miss_m: float, before_m: float, size_m: float) -> Reached:
    return Reached(np.zeros((1, 6)), np.zeros((2, 13)), miss_m, before_m, 0.0, 0.0, 1, True, size_m)


@pytest.mark.parametrize(
    ("before_m", "known_m", "limit_m"),
    [(0.05, 0.0, 0.005), (0.01, 0.0, 0.002), (0.01, 0.003, 0.006), (9.0, 0.0, 0.01), (0.01, 9.0, 0.01)],
)
def test_a_goal_is_reached_for_the_way_the_size_and_the_goals_error(
    before_m: float, known_m: float, limit_m: float
) -> None:
    """A tenth of the way, a hundredth of the size or two errors of the goal, but at most a twentieth of the size."""
    assert reached(0.99 * limit_m, before_m, 0.2).at_goal(known_m)
    assert not reached(1.01 * limit_m, before_m, 0.2).at_goal(known_m)


def ended(aim: Aim, by: Array, velocity: Array, spin: Array) -> Array:
    """The residuals of a body that ends displaced, and moves."""
    state = AT.copy()
    state[:3] += by
    state[7:10], state[10:13] = velocity, spin
    return np.asarray(optimal_control._residuals(aim, state[None])[0])


def test_residuals_are_one_where_what_is_left_is_the_tolerance() -> None:
    """A hundredth of the size off; a speed that a fifth of the time makes so much of."""
    aim = moved(NOWHERE, seconds=2.0)
    assert aim.rates.tolist() == [7, 8, 9, 10, 11, 12]
    assert np.linalg.norm(ended(aim, np.array([0.0, 0.6e-3, 0.8e-3]), NOWHERE, NOWHERE)) == pytest.approx(1.0)
    speed = 0.01 * SIZE_M / (0.2 * 2.0)
    for axis in range(3):
        assert ended(aim, NOWHERE, speed * np.eye(3)[axis], NOWHERE)[-6:] == pytest.approx(np.eye(6)[axis])
        assert ended(aim, NOWHERE, NOWHERE, speed / SIZE_M * np.eye(3)[axis])[-6:] == pytest.approx(np.eye(6)[3 + axis])
    passing = replace(aim, at_rest=False)
    assert not ended(passing, NOWHERE, np.ones(3), np.ones(3)).any()


def test_speeds_of_many_joints_count_as_those_of_one_body() -> None:
    hand = get("hand")
    count, limit = len(hand.action_names), np.ones(len(hand.action_names))
    aim = Aim(
        hand,
        hand.parameters().vector,
        hand.rest_state(),
        np.full(5, 0.2),
        0 * limit,
        -limit,
        limit,
        POINTS,
        POINTS,
        0.3,
    )
    assert count == len(aim.rates) == 13
    np.testing.assert_allclose(optimal_control._rate_weights(aim), 0.2 * 0.3 / (0.01 * 0.3) / np.sqrt(13.0 / 6.0))


def test_a_unit_moves_the_points_by_the_size_of_the_body() -> None:
    """A force F for T seconds moves a mass by F T^2 / (2 m) (1 + 1 / n) in n steps of semi-implicit Euler."""
    seconds, steps = 2.0, 8
    aim = moved(NOWHERE, steps=steps, seconds=seconds)
    substeps = optimal_control._substeps(aim)
    assert substeps == 50, "the longest step is 5 ms"
    actions = np.zeros((steps, 6))
    states = optimal_control._rollout(aim, actions[None], substeps)[0]
    found = optimal_control._units(aim, states, actions, substeps)
    way = 0.5 * seconds**2 * (1.0 + 1.0 / (steps * substeps))
    np.testing.assert_allclose(found[:3], SIZE_M * MASS / way, rtol=1e-6)
    inertia = [FLOATING.parameters()[f"inertia_{2 * axis}"].value for axis in ("x", "y", "z")]
    arms = [np.sqrt(np.mean(np.delete(POINTS, axis, 1) ** 2) * 2.0) for axis in range(3)]
    np.testing.assert_allclose(found[3:], SIZE_M * np.array(inertia) / (way * np.array(arms)), rtol=1e-5)


@pytest.mark.parametrize(("step_s", "longest_s", "count"), [(0.05, 5e-3, 10), (0.0501, 5e-3, 11), (0.05, 1.0, 1)])
def test_intervals_are_divided_into_steps_of_at_most_the_longest(step_s: float, longest_s: float, count: int) -> None:
    aim = replace(moved(NOWHERE), step_s=np.array([0.02, step_s]), max_step_s=longest_s)
    assert optimal_control._substeps(aim) == count


def test_steps_on_stiff_ground_stay_well_below_the_stable_one() -> None:
    system = RigidContact((Sphere(0.1),))
    parameters = system.parameters().with_values({"k_e": 1e6, "k_d": 0.0}).vector
    aim = replace(moved(NOWHERE), system=system, parameters=parameters, max_step_s=1.0)
    step_s = float(aim.step_s.max()) / optimal_control._substeps(aim)
    assert 0.25 < step_s / system.longest_step_s(parameters) < 0.5


def test_integration_in_more_steps_comes_nearer_to_the_closed_form() -> None:
    aim, push = moved(NOWHERE, steps=4), np.zeros((4, 6))
    push[:, 0] = 1.0
    for options, steps in (((), 400), ((5,), 1000)):
        ends = optimal_control.refined(aim, push, *options)
        assert ends[-1, 0] - AT[0] == pytest.approx(0.5 / MASS * (1.0 + 1.0 / steps), rel=1e-9)
        assert len(ends) == 5


def control(aim: Aim, unit: Array) -> tuple[_Control, _Point]:
    """The problem of a descent, and a point of random actions."""
    problem = _Control(aim, aim.hold, unit, 4)
    actions = np.random.default_rng(0).normal(size=(len(aim.step_s), 6)) * unit
    return problem, optimal_control._tried(aim, actions, 4)


def test_the_cost_is_half_the_squares_of_what_is_left_and_of_the_effort() -> None:
    aim = replace(moved(np.array([0.01, 0.0, 0.0]), steps=3), hold=np.array([0.1, 0, 0, 0, 0, 0]))
    problem, _ = control(aim, np.full(6, 0.2))
    actions = np.tile(aim.hold, (3, 1))
    actions[1, 1] += 0.6
    state = np.tile(AT, (4, 1))
    assert problem.cost(_Point(actions, state)) == pytest.approx(0.5 * (10.0**2 + 3.0**2))
    assert problem.cost(_Point(actions, None)) == np.inf


def test_the_linear_model_has_the_slope_of_the_cost_and_its_minimum_for_forces() -> None:
    """Forces move a mass linearly: one undamped step ends at the minimum, and gains what it promises."""
    problem, point = control(moved(np.array([0.2, 0.1, -0.1]), steps=5), np.array([0.5, 0.4, 0.3, 1e-3, 1e-3, 1e-3]))
    model = problem.linearize(point)
    assert model.cost == problem.cost(point)
    step, rng = 1e-4, np.random.default_rng(1)
    for _ in range(3):
        along = rng.normal(size=(5, 6))
        ends = [
            optimal_control._tried(problem.aim, point.actions + s * step * along * problem.unit, 4) for s in (1, -1)
        ]
        numeric = (problem.cost(ends[0]) - problem.cost(ends[1])) / (2.0 * step)
        assert float(model.normal.gradient @ along.ravel()) == pytest.approx(numeric, rel=1e-4)
    pushed = point.actions * [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    point = optimal_control._tried(problem.aim, pushed, 4)
    model = problem.linearize(point)
    end, promised = model.step(0.0)
    assert model.cost - problem.cost(end) == pytest.approx(promised, rel=1e-6)
    least = problem.cost(end)
    assert least < 0.5 * model.cost
    for _ in range(3):
        aside = np.pad(rng.normal(size=(5, 3)), ((0, 0), (0, 3))) * 1e-2 * problem.unit
        assert problem.cost(optimal_control._tried(problem.aim, end.actions + aside, 4)) > least
    shorter, gain = model.ahead(10.0)
    assert 0.0 < gain < promised
    assert np.abs(shorter - pushed).max() < np.abs(end.actions - pushed).max()


def test_actions_stay_within_their_limits_and_promise_no_more_than_they_then_gain() -> None:
    aim = moved(NOWHERE, steps=4, limit=0.3, at_rest=False)
    aim = replace(aim, points_body=MIDDLE, goal=AT[None, :3] + [4.0, 0.0, 0.0])
    problem = _Control(aim, aim.hold, np.ones(6), 4)
    point = optimal_control._tried(aim, np.zeros((4, 6)), 4)
    model = problem.linearize(point)
    actions, promised = model.ahead(0.0)
    np.testing.assert_allclose(actions[:, 0], 0.3)
    end = optimal_control._tried(aim, actions, 4)
    assert promised == pytest.approx(problem.cost(point) - problem.cost(end), rel=1e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_actions_at_either_limit_are_counted_and_the_end_is_fast(sign: float) -> None:
    """A push of 1 N for a second, one of six actions: the mass of 0.5 kg ends at 2 m/s."""
    aim = moved(NOWHERE, steps=4, limit=1.0, at_rest=False)
    aim = replace(aim, points_body=MIDDLE, goal=AT[None, :3] + [4.0 * sign, 0.0, 0.0])
    found = optimal_control.solve(aim, iterations=12)
    assert found.at_limit == pytest.approx(1.0 / 6.0)
    assert found.speed == pytest.approx(2.0)
    assert found.before_m == pytest.approx(4.0)
    assert found.states.shape == (5, 13)


def test_actions_that_hold_a_body_are_taken_into_the_limits() -> None:
    """Here at least 0.4 N, although none would hold the body where it is to be."""
    aim = replace(moved(NOWHERE, steps=3, at_rest=False), points_body=MIDDLE, goal=AT[None, :3])
    found = optimal_control.solve(
        replace(aim, lower=np.array([0.4, -1, -1, -1, -1, -1]), upper=np.ones(6)), iterations=8
    )
    np.testing.assert_allclose(found.actions[:, 0], 0.4, atol=1e-9)


def test_a_system_without_actions_is_refused() -> None:
    none = np.zeros(0)
    with pytest.raises(UsageError, match="which has no actions"):
        optimal_control.solve(replace(moved(NOWHERE), hold=none, lower=none, upper=none))


def at(x: float) -> _Point:
    """A point that ends so far from the goal."""
    state = np.tile(AT, (2, 1))
    state[-1, 0] += x
    return _Point(np.zeros((1, 6)), state)


@pytest.mark.parametrize(
    ("ends", "efforts", "miss"),
    [
        ([0.4e-3, 0.3e-3, 0.1e-3], 2, 0.4e-3),  # at the goal, and less gentle actions bring little
        ([0.4e-3, 0.1e-3, 0.09e-3], 3, 0.1e-3),
        ([0.8, 0.7, 0.6, 0.5], 4, 0.5),
        ([0.8, 0.7, 0.4e-3, 0.3e-3], 4, 0.4e-3),
    ],
)
def test_gentle_actions_are_kept_where_others_bring_little(
    ends: list[float], efforts: int, miss: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = list[float]()

    def descend(aim: Aim, start: _Point, unit: Array, iterations: int) -> Minimum[_Point]:
        units.append(float(unit[0]))
        return Minimum(at(ends[len(units) - 1]), 0.0, 10 + len(units), Status.CONVERGED)

    monkeypatch.setattr(optimal_control, "_descend", descend)
    aim = replace(moved(NOWHERE, steps=1), goal=FLOATING.keypoints(AT[None], POINTS)[0])
    found = optimal_control._bring(aim, at(0.0), np.full(6, 6.0), 50)
    np.testing.assert_allclose(units, [2.0, 20.0, 200.0, 2000.0][:efforts])
    assert found.miss_m == pytest.approx(miss)
    kept = ends.index(miss) + 1
    assert found.iterations == sum(10 + k for k in range(1, kept + 1))


def test_a_descent_leaps_on_while_slopes_promise_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lowest end counts; its iterations are those of all, and no more than allowed."""
    allowed, promises = list[int](), [30.0, 30.0, 30.0, 30.0]
    costs, used = [100.0, 40.0, 60.0, 50.0], [5, 6, 7, 8]

    def minimize(problem: Any, start: _Point, settings: Any) -> Minimum[_Point]:
        allowed.append(settings.iterations)
        k = len(allowed) - 1
        problem.model = type("Linear", (), {"ahead": lambda self, damping: (np.zeros((1, 6)), promises[k])})()
        return Minimum(at(0.1 * k), costs[k], used[k], Status.CONVERGED)

    monkeypatch.setattr(optimal_control, "minimize", minimize)
    monkeypatch.setattr(optimal_control, "_tried", lambda *_: at(0.0))
    aim = moved(NOWHERE, steps=1)

    def descended(iterations: int) -> Minimum[_Point]:
        allowed.clear()
        return optimal_control._descend(aim, at(0.0), np.ones(6), iterations)

    found = descended(100)
    assert allowed == [100, 95, 89, 82], "three leaps"
    assert (found.cost, found.iterations) == (40.0, 26)
    assert descended(11).cost == 40.0
    assert allowed == [11, 6], "until the iterations are used up"
    promises[1] = 3.9
    assert descended(100).iterations == 11
    promises[1] = 4.1
    assert descended(100).iterations == 26
    costs[:2] = 5e-5, 4e-5  # a tenth of the cost is less than a thousandth of 0.01
    for promises[0], count in ((0.9e-5, 5), (1.1e-5, 26)):
        assert descended(100).iterations == count
    monkeypatch.setattr(optimal_control, "_tried", lambda *_: _Point(np.zeros((1, 6)), None))
    promises[0] = 30.0
    assert descended(100).iterations == 5, "a leap to what cannot be computed"


def tried_from(monkeypatch: pytest.MonkeyPatch, misses: list[float], failing: int = -1) -> tuple[float, list[Array]]:
    """The miss of a solution whose starts end with these misses, and the actions that were tried; one cannot be."""
    tried, ends = list[Array](), iter(misses)

    def attempt(aim: Aim, actions: Array, substeps: int) -> _Point:
        tried.append(actions)
        return replace(at(0.0), states=None) if len(tried) - 1 == failing else at(0.0)

    monkeypatch.setattr(optimal_control, "_units", lambda *_: np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    monkeypatch.setattr(optimal_control, "_tried", attempt)
    monkeypatch.setattr(optimal_control, "_bring", lambda *_: reached(next(ends), 1.0, SIZE_M))
    return optimal_control.solve(moved(NOWHERE, steps=2, limit=0.35)).miss_m, tried


def test_other_starts_are_tried_until_the_goal_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A goal is reached within 5 mm here; a start pushes the body all the time by up to a unit of each action."""
    assert tried_from(monkeypatch, [0.004, 0.001])[0] == 0.004
    miss, tried = tried_from(monkeypatch, [0.9, 0.5, 0.7, 0.004, 0.001])
    assert (miss, len(tried)) == (0.004, 3)
    miss, tried = tried_from(monkeypatch, [0.9, 0.5, 0.3, 0.7, 0.6, 0.8, 0.4])
    assert (miss, len(tried)) == (0.3, 6)
    pushes = np.array(tried)
    np.testing.assert_array_equal(pushes[:, 0], pushes[:, 1])
    most = np.abs(pushes[:, 0]).max(axis=0)
    assert (most <= [0.1, 0.2, 0.3, 0.35, 0.35, 0.35]).all()
    assert (most >= 0.5 * np.array([0.1, 0.2, 0.3, 0.35, 0.35, 0.35])).all()
    assert 0.3 < (pushes < 0.0).mean() < 0.7
    assert tried_from(monkeypatch, [0.9, 0.5, 0.3, 0.7, 0.6, 0.4], failing=2)[0] == 0.3


def test_the_first_start_is_kept_where_others_are_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tried_from(monkeypatch, [0.2, 0.5, 0.3, 0.7, 0.6, 0.8, 0.4])[0] == 0.2

"""Actions that bring a body to a goal: closed forms of least effort and of what limits allow, and each kind of body."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.recovery.test_posed_fit import small_rod
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems import get
from vid2phys.engine.systems.rigid_contact import Box, RigidContact, Sphere
from vid2phys.errors import UsageError
from vid2phys.solvers import optimal_control
from vid2phys.solvers.optimal_control import Aim
from vid2phys.types import Array

POINTS = 0.1 * np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0.3]])
FLOATING = RigidContact((Sphere(0.1),), planes=())
AT = np.array([0.3, -0.2, 1.0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])


def moved(
    distance: Array, *, limit: float = np.inf, steps: int = 20, seconds: float = 1.0, at_rest: bool = True
) -> Aim:
    """A body that floats without gravity is to be moved."""
    parameters = FLOATING.parameters().with_values({"gravity": 0.0, "mass": 0.5}).vector
    goal = FLOATING.keypoints(AT[None], POINTS)[0] + distance
    step_s = np.full(steps, seconds / steps)
    return Aim(
        *(FLOATING, parameters, AT, step_s, np.zeros(6), np.full(6, -limit), np.full(6, limit), POINTS, goal, 0.1),
        at_rest,
    )


def test_least_effort_is_that_of_the_closed_form() -> None:
    """A mass from rest to rest in least squares of the force: the minimum-norm solution of two linear equations."""
    distance, steps = np.array([0.4, -0.1, 0.2]), 20
    found = optimal_control.solve(moved(distance, steps=steps))
    dt, mass = 1.0 / steps, 0.5
    to_end = 1.0 - (np.arange(steps) + 0.5) * dt
    effect = np.stack([to_end * dt / mass, np.full(steps, dt / mass)])  # of a force on place and speed at the end
    best = np.linalg.pinv(effect) @ np.stack([distance, np.zeros(3)])
    np.testing.assert_allclose(found.actions[:, :3], best, atol=0.01 * np.abs(best).max())
    assert np.abs(found.actions[:, 3:]).max() < 1e-3 * np.abs(best).max()
    assert found.at_goal()
    assert found.converged
    assert found.miss_m < 1e-4
    assert found.before_m == pytest.approx(np.linalg.norm(distance))
    assert found.speed < 1e-3
    # in steps, for a rest-to-rest move, the force falls evenly from 6 d m / T^2 to its negative
    assert best[0, 0] == pytest.approx(6 * 0.4 * mass, rel=0.06)


def test_what_limits_do_not_allow_is_missed_by_what_is_left() -> None:
    """With at most F for T seconds a mass comes F T^2 / (2 m) (1 + 1 / n) far in n semi-implicit steps, and passes."""
    aim = moved(np.array([2.0, 0.0, 0.0]), limit=1.0, at_rest=False)
    still = np.array([1.0, 1.0, 1.0, 1e-9, 1e-9, 1e-9])  # turning would bring some of the points nearer
    found = optimal_control.solve(replace(aim, lower=aim.lower * still, upper=aim.upper * still))
    assert not found.at_goal()
    assert found.miss_m == pytest.approx(2.0 - 0.5 * 1.0 / 0.5 * (1.0 + 1.0 / 200), rel=1e-3)
    np.testing.assert_allclose(found.actions[:, 0], 1.0, atol=1e-9)
    assert found.at_limit > 0.16


def test_where_the_nearest_optimum_is_not_the_goal_other_starts_find_it() -> None:
    """A ball that rests on the ground, whose friction holds it against small pushes, is to lie elsewhere."""
    system = RigidContact((Sphere(0.1),))
    parameters = system.parameters().with_values({"mass": 0.5}).vector
    start = system.rest_state()
    start[:3] = [0.0, 0.0, 0.5]
    free = moved(np.zeros(3))
    goal = system.keypoints(start[None], POINTS)[0] + [0.2, 0.1, -0.3]
    low = np.full(6, -10.0)
    aim = replace(free, system=system, parameters=parameters, start=start, goal=goal, lower=low, upper=-low)
    assert optimal_control.solve(aim).at_goal()


def test_derivatives_by_recursion_are_those_of_differences() -> None:
    aim = moved(np.array([0.2, 0.1, 0.0]), steps=5)
    rng = np.random.default_rng(0)
    actions = rng.normal(size=(5, 6)) * [1, 1, 1, 0.01, 0.01, 0.01]
    states = optimal_control._rollout(aim, actions[None], 4)[0]
    unit = np.array([1.0, 1.0, 1.0, 1e-2, 1e-2, 1e-2])
    np.testing.assert_allclose(
        optimal_control._slopes(aim, states, actions, 4, unit), optimal_control._by_differences(aim, actions, 4, unit),
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip


def test_a_quadrotor_goes_aside_and_stops() -> None:
    system = get("quadrotor")
    parameters = system.parameters()
    hold = system.hover_controls(parameters.vector)[:4]
    start = system.rest_state()
    lower = np.array([0.0, -np.inf, -np.inf, -np.inf])
    goal = POINTS + np.array([0.5, 0.2, 0.1])
    aim = Aim(
        *(system, parameters.vector, start, np.full(24, 1.2 / 24), hold, lower, np.full(4, np.inf), POINTS, goal, 0.1)
    )
    found = optimal_control.solve(aim)
    assert found.at_goal()
    assert found.miss_m < 0.003
    assert found.speed < 0.05
    assert found.actions[:, 0].min() >= 0.0
    again = optimal_control.refined(aim, found.actions)
    assert np.abs(again[-1] - found.states[-1]).max() < 1e-3


def test_fingers_bend_to_a_configuration() -> None:
    hand = get("hand")
    body = JointBody(hand)
    configuration = hand.rest_state()[:13] * 0.0
    configuration[[1, 2, 3, 5]] = 0.5, 0.3, 0.2, -0.2
    goal = body.points(configuration)
    parameters = hand.parameters().vector
    found = optimal_control.solve(
        Aim(
            *(hand, parameters, hand.rest_state(), np.full(5, 0.06), hand.hover_controls(parameters)[:13]),
            *(np.full(13, -np.inf), np.full(13, np.inf), body.points_body, goal, body.radius_m),
        )
    )
    assert found.at_goal()
    np.testing.assert_allclose(found.states[-1][:13], configuration, atol=0.02)
    assert found.speed < 0.2


def test_a_rod_is_pushed_to_a_shape_that_a_push_gives() -> None:
    rod, body = small_rod()
    parameters = rod.parameters().vector
    step_s = np.full(8, 0.02)
    controls = np.zeros((1, 8, len(rod.control_names)))
    controls[0, :, 1] = -0.6
    start = rod.rest_state()
    end = simulate(rod, start[None], controls, parameters, step_s, substeps=2)[0, -1]
    goal = rod.keypoints(end[None], body.points_body)[0]
    hold = rod.hover_controls(parameters)[: len(rod.action_names)]
    aim = Aim(
        *(rod, parameters, start, step_s, hold, np.full(3, -np.inf), np.full(3, np.inf), body.points_body, goal, 0.05),
        at_rest=False,
    )
    found = optimal_control.solve(aim)
    assert found.at_goal()
    assert found.miss_m < 0.1 * found.before_m


@pytest.mark.parametrize("modulus", [pytest.param(1e5, marks=pytest.mark.slow), 1e6, 1e7])
def test_a_rod_comes_to_rest_in_a_shape_that_no_push_quite_gives(modulus: float) -> None:
    """However stiff it is, and by actions so gentle that half the time step does not matter."""
    rod, body = small_rod()
    step_s = np.full(12, 1.0 / 12)
    start = rod.rest_state()
    goal = body.points(np.array([0.02, -0.03, 0.002, 0.0]))
    free = np.full(3, np.inf)
    aim = Aim(
        *(rod, rod.parameters().with_values({"young_modulus": modulus}).vector, start, step_s, np.zeros(3)),
        *(-free, free, body.points_body, goal, 0.1),
    )
    found = optimal_control.solve(aim)
    assert found.at_goal()
    assert found.speed < 0.01
    finer = optimal_control.refined(aim, found.actions)
    ends = rod.keypoints(np.stack([found.states[-1], finer[-1]]), body.points_body)
    assert np.abs(ends[1] - ends[0]).max() < 1e-3


def test_a_box_that_bounces_is_brought_to_where_a_push_brings_it() -> None:
    """Stiff edges hold descents up: without leaps this one ends 56 mm off."""
    box = RigidContact((Box((0.1, 0.1, 0.1)),))
    parameters = box.parameters().with_values({"k_e": 1e5, "k_d": 100.0, "k_f": 100.0}).vector
    start = np.array([0, 0, 0.4, 1, 0, 0, 0, 0.5, 0.2, 0, 1, 3, 2], dtype=float)
    push = np.cumsum(np.random.default_rng(0).normal(size=(20, 6)), axis=0) * np.repeat([0.2, 0.02], 3)
    corners, limit = 0.1 * np.array([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]), np.full(6, 50.0)
    aim = Aim(
        *(box, parameters, start, np.full(20, 0.05), np.zeros(6), -limit, limit, corners, corners, 0.17), at_rest=False
    )
    states = optimal_control._rollout(aim, push[None], optimal_control._substeps(aim))[0]
    found = optimal_control.solve(replace(aim, goal=box.keypoints(states[-1:], corners)[0]))
    assert found.miss_m < 0.01 < found.before_m


def test_limits_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(UsageError, match="lower end is not below the upper"):
        optimal_control.solve(moved(np.zeros(3), limit=0.0))

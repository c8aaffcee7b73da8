"""Parts of a descent along the gradient: what it keeps, where it ends, its units, and what its end is worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.filmed import exact
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems import get
from vid2phys.engine.systems.rigid_contact import RigidContact, Sphere
from vid2phys.errors import InputError, SimulationError
from vid2phys.solvers import gradient, losses
from vid2phys.solvers.gradient import Attempt, Start
from vid2phys.solvers.losses import Evidence, Loss
from vid2phys.solvers.problem import Problem
from vid2phys.types import Actions, Array, Parameter, Parameters

POINTS = 0.1 * np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0.3]])
TIMES_S = np.arange(5) * 0.1
BALL = RigidContact((Sphere(0.1),), planes=(), has_actions=False)
AT = np.array([0.3, -0.2, 1.0, 1, 0, 0, 0, 0.2, 0.1, 0, 0, 0, 0])
STD = 0.01


def flight(free: tuple[str, ...] = ("gravity",), off: float = 0.0) -> tuple[Problem, Loss, Start]:
    """A ball that falls, whose states are known to a hundredth."""
    parameters = BALL.parameters().with_free(free)
    controls = np.zeros((1, len(TIMES_S) - 1, len(BALL.control_names)))
    states = simulate(BALL, AT[None], controls, parameters.vector, 0.1, substeps=10)[0]
    problem = Problem(BALL, parameters, exact(BALL, states, TIMES_S, POINTS, np.eye(4)), np.eye(4))
    evidence = Evidence(states, np.full((len(TIMES_S), 12), STD))
    return problem, losses.get("state", problem, evidence), Start(AT, parameters)


def attempt(values: list[float], failure: str | None = None) -> Attempt:
    start = Start(AT, BALL.parameters())
    return Attempt(start, start, np.array(values), failure)


def test_a_descent_has_converged_when_its_last_tenth_gains_next_to_nothing() -> None:
    down = [10.0] * 17 + [1.0, 0.995, 0.9]
    assert not attempt(down).converged
    assert attempt([10.0] * 17 + [1.0, 0.995, 0.991]).converged, "less than one in a hundred"
    assert not attempt([10.0] * 17 + [1.0, 0.995, 0.989]).converged
    assert attempt([10.0] * 17 + [1.0, 3.0, 2.0]).converged, "no gain at all"
    assert not attempt([10.0] * 17 + [1.0, 0.995, 0.991], "left").converged
    assert not attempt([], "never began").converged
    assert attempt([3.0]).converged
    assert attempt([3.0, 1.0, 2.0]).loss == 1.0
    assert attempt([]).loss == np.inf


def stepping(values: list[float], slopes: list[float] | None = None) -> tuple[int, list[float], str | None, list[int]]:
    """The best point, losses, failure and progress of a descent over points 0, 1, 2 ... with these losses."""
    asked = list[int]()

    def slope(point: int) -> tuple[float, Array]:
        if values[point] < 0.0:
            raise SimulationError("it diverges", "a motion", "less")
        return values[point], np.array([1.0 if slopes is None else slopes[point]])

    def moved(point: int, step: Array) -> int:
        assert step == pytest.approx([-2.0])
        return point + 1

    step: Callable[[Array], Array] = lambda along: -2.0 * along  # noqa: E731
    best, found, failure = gradient.follow(slope, moved, 0, step, len(values), asked.append)
    return best, found.tolist(), failure, asked


def test_the_best_point_of_a_descent_is_kept() -> None:
    assert stepping([5.0, 3.0, 4.0]) == (1, [5.0, 3.0, 4.0], None, [0, 1, 2])
    assert stepping([5.0, 3.0, 3.0])[0] == 1, "the first of equals"
    assert stepping([5.0, 6.0, 7.0])[0] == 0
    assert stepping([5.0, 4.0, 1.0])[0] == 2


def test_a_descent_ends_where_nothing_can_be_computed() -> None:
    best, found, failure, _ = stepping([5.0, 4.0, -1.0, 1.0])
    assert (best, found) == (1, [5.0, 4.0])
    assert failure is not None
    assert "it diverges" in failure
    assert stepping([5.0, np.nan, 1.0])[:3] == (0, [5.0], "the loss is not finite")
    assert stepping([5.0, 4.0, 1.0], [1.0, np.inf, 1.0])[:3] == (0, [5.0], "the loss is not finite")


def test_random_starts_are_within_a_factor_and_their_bounds() -> None:
    items = (
        Parameter("fixed", "m", 3.0, 0.0, 9.0, "identity"),
        Parameter("free", "kg", 2.0, 1e-3, 1e3, "log", free=True),
        Parameter("near", "kg", 2.0, 1.8, 2.1, "log", free=True),
        Parameter("none", "m", 0.0, -5.0, 20.0, "identity", free=True),
        Parameter("wide", "m", 0.0, -1e9, 1e9, "identity", free=True),
    )
    first = Start(AT, Parameters(items))
    drawn = gradient.random_starts(first, 301, np.random.default_rng(0), factor=3.0)
    assert len(drawn) == 301
    assert drawn[0] is first
    values = {name: np.array([s.parameters[name].value for s in drawn[1:]]) for name in first.parameters.names}
    assert 2.0 / 3.0 < values["free"].min() < 0.7
    assert 5.7 < values["free"].max() < 6.0
    assert np.median(np.log(values["free"] / 2.0)) == pytest.approx(0.0, abs=0.15), "either way alike"
    assert (values["near"].min(), values["near"].max()) == (1.8, 2.1)
    assert -0.05 < values["none"].min() < -0.047
    assert 0.194 < values["none"].max() < 0.2
    assert 9.7 < np.abs(values["wide"]).max() < 10.0
    assert (values["fixed"] == 3.0).all()
    usual = gradient.random_starts(first, 301, np.random.default_rng(0))[1:]
    assert 1.0 < min(s.parameters["free"].value for s in usual) < 1.05
    assert 3.8 < max(s.parameters["free"].value for s in usual) < 4.0


def test_a_unit_of_the_first_state_moves_the_points_by_the_size_of_the_body() -> None:
    """A place moves all frames alike; a velocity those of 0 to 0.4 s by their mean square time."""
    problem, loss, start = flight()
    units = gradient._setup(problem, loss, start, known_state=False).units
    size = np.sqrt(np.mean(np.sum((POINTS - POINTS.mean(axis=0)) ** 2, axis=1)))
    assert len(units) == 13
    np.testing.assert_allclose(units[:3], size, rtol=1e-4)
    time = np.sqrt(np.mean(TIMES_S**2))
    np.testing.assert_allclose(units[6:9], size / time, rtol=1e-4)
    arms = [np.sqrt(np.mean(np.sum(np.delete(POINTS, axis, 1) ** 2, axis=1))) for axis in range(3)]
    np.testing.assert_allclose(units[3:6], size / np.array(arms), rtol=1e-3)
    np.testing.assert_allclose(units[9:12], size / (time * np.array(arms)), rtol=1e-3)
    assert units[12] == start.parameters.free_units[0]
    assert gradient._setup(problem, loss, start, known_state=True).units.tolist() == [units[12]]
    given = gradient._setup(problem, loss, start, False, np.array([7.0]))
    np.testing.assert_allclose(given.units, [*units[:12], 7.0])
    lost = gradient._setup(problem, loss, replace(start, state=np.full(13, np.nan)), known_state=False)
    np.testing.assert_array_equal(lost.units[:12], 1.0)


def test_as_many_parameters_as_coordinates_of_a_state_may_be_fitted() -> None:
    """A pendulum has two of each."""
    pendulum, state = get("pendulum"), np.array([0.6, -0.5])
    parameters = pendulum.parameters().with_free(("length", "damping"))
    controls = np.zeros((1, 4, len(pendulum.control_names)))
    states = simulate(pendulum, state[None], controls, parameters.vector, 0.1, substeps=100)[0]
    recorded = Actions(TIMES_S[:1], np.zeros((1, 1)), "other", pendulum.action_names, pendulum.action_units)
    problem = Problem(pendulum, parameters, exact(pendulum, states, TIMES_S, POINTS, np.eye(4)), np.eye(4), recorded)
    loss = losses.get("state", problem, Evidence(states, np.full((5, 2), STD)))
    for known, count in ((False, 4), (True, 2)):
        assert len(gradient._setup(problem, loss, Start(state, parameters), known_state=known).units) == count


def test_what_moves_nothing_has_a_unit_of_one() -> None:
    """A rotation of a body that is a point."""
    problem, loss, start = flight()
    seen = replace(problem.observation, points_body=np.array([[0.1, 0.0, 0.0], [-0.1, 0.0, 0.0]]))
    units = gradient._setup(replace(problem, observation=seen), loss, start, known_state=False).units
    assert units[3] == units[9] == 1.0, "about the line of its points"
    np.testing.assert_allclose(units[[0, 4, 5]], [0.1, 1.0, 1.0], rtol=1e-3)


def test_a_step_moves_a_state_on_its_manifold_and_parameters_within_bounds() -> None:
    problem, loss, start = flight(("gravity", "mass"))
    setup = gradient._setup(problem, loss, start, known_state=False)
    setup = replace(setup, units=np.array([*np.full(12, 0.5), 3.0, 1.0]))
    step = np.zeros(14)
    step[[0, 3, 13]] = 0.2, np.pi, np.log(2.0)
    step[12] = -0.1
    by_name = dict(zip(start.parameters.free_names, step[12:], strict=True))
    found = gradient._moved(setup, start, step)
    assert found.state[0] == pytest.approx(AT[0] + 0.1)
    assert found.state[3:7] == pytest.approx([np.cos(np.pi / 4), np.sin(np.pi / 4), 0.0, 0.0])
    for name, unit in zip(by_name, (3.0, 1.0), strict=True):
        p = start.parameters[name]
        moved = p.value * np.exp(unit * by_name[name]) if p.transform == "log" else p.value + unit * by_name[name]
        assert found.parameters[name].value == pytest.approx(np.clip(moved, p.lower, p.upper))
    still = gradient._setup(problem, loss, start, known_state=True)
    assert gradient._moved(still, start, np.zeros(2)).state is start.state


def test_the_covariance_of_a_first_state_and_gravity_is_that_of_linear_least_squares() -> None:
    """Height and speed along one axis of a fall, known to a hundredth in each frame: five rows of each."""
    problem, loss, start = flight()
    solution = gradient.solve(problem, loss, [start], iterations=1).solution
    span = TIMES_S[:, None]
    (axis,) = np.flatnonzero(np.abs(solution.states[-1, 7:10] - AT[7:10]) > 1.0)
    sign = np.sign(solution.states[-1, 7 + axis])
    gravity = start.parameters["gravity"]
    per_unit = gravity.value if gravity.transform == "log" else 1.0
    step = _substep(problem, loss, start)  # semi-implicit
    height = np.hstack([np.ones_like(span), span, sign * per_unit * 0.5 * span * (span + step)])
    speed = np.hstack([np.zeros_like(span), np.ones_like(span), sign * per_unit * span])
    design = np.vstack([height, speed]) / STD
    covariance = np.linalg.inv(design.T @ design)
    assert solution.theta_covariance[0, 0] == pytest.approx(covariance[2, 2], rel=1e-3)
    for k in range(len(TIMES_S)):
        row = height[k]
        assert solution.covariance[k, axis, axis] == pytest.approx(row @ covariance @ row, rel=1e-3)
        assert solution.covariance[k, 6 + axis, 6 + axis] == pytest.approx(speed[k] @ covariance @ speed[k], rel=1e-3)


def _substep(problem: Problem, loss: Loss, start: Start) -> float:
    setup = gradient._setup(problem, loss, start, known_state=False)
    return float(setup.knots.step_s[0]) / setup.substeps


def test_a_start_without_evidence_is_refused_unless_another_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, loss, start = flight()
    setup = gradient._setup(problem, loss, start, known_state=True)
    off, broken = replace(start, state=AT + 1.0), replace(start, state=np.full(13, np.nan))

    def check(states: torch.Tensor) -> None:
        if abs(float(states[0, 0]) - AT[0]) > 0.5:
            raise InputError(f"nothing at {float(states[0, 0]):.1f}", "something", "begin nearer")

    monkeypatch.setattr(loss, "check", check)
    gradient._check(setup, [off, broken, start])
    gradient._check(setup, [broken])
    with pytest.raises(InputError, match=r"nothing at 1\.3"):
        gradient._check(setup, [broken, off, replace(start, state=AT + 2.0)])


def test_adam_takes_its_rate_with_the_sign_of_the_slope_first() -> None:
    step = gradient.stepper("adam", 3, 0.05)
    assert step(np.array([2.0, -0.1, 0.0])) == pytest.approx([-0.05, 0.05, 0.0], rel=1e-4)
    assert step(np.array([2.0, -0.1, 0.0])) == pytest.approx([-0.05, 0.05, 0.0], rel=1e-4)
    assert (gradient.RATES["adam"], gradient.RATES["rmsprop"], gradient.ITERATIONS) == (1e-2, 3e-3, 100)


def test_a_prior_joins_loss_and_slope() -> None:
    """A parameter two deviations off its prior adds two to the loss."""
    problem, loss, start = flight(("gravity",))
    value = float(start.parameters.free_vector()[0])
    plain = gradient._slope(gradient._setup(problem, loss, start, known_state=True), start)
    known = replace(problem, priors={"gravity": (value - 0.2, 0.1)})
    pulled = gradient._slope(gradient._setup(known, loss, start, known_state=True), start)
    assert pulled[0] - plain[0] == pytest.approx(2.0)
    assert pulled[1] - plain[1] == pytest.approx([2.0 / 0.1])

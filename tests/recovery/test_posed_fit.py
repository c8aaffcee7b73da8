"""Parameters of bodies on a known base from noisy keypoints: the truth lies within the intervals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vid2phys.commands.simulation_inputs import constant_actions
from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.movable.modes import ModalBody, Motions
from vid2phys.engine.observe import observe
from vid2phys.engine.rollout import simulate
from vid2phys.engine.system import System
from vid2phys.engine.systems import get
from vid2phys.engine.systems.rod import Rod
from vid2phys.errors import SimulationError, UsageError
from vid2phys.geometry import invert_transform
from vid2phys.solvers import configuration_shooting
from vid2phys.solvers.cramer_rao import noisy
from vid2phys.solvers.problem import Problem
from vid2phys.types import Actions, Array, Observation, Parameters

FRAMES, FPS, NOISE = 20, 60.0, 1e-3
CAMERA = invert_transform(
    np.array([[0.9, 0.435, 0.02, -0.05], [0.2, -0.372, -0.906, 0.0], [-0.387, 0.82, -0.422, 0.6], [0, 0, 0, 1.0]])
)


def problem_of(
    system: System, points: Array, truth: Parameters, start: Array, fit: tuple[str, ...], substeps: int
) -> Problem:
    """Keypoints of a motion from `start`, each frame with noise; parameters begin where the system's are."""
    times = np.arange(FRAMES) / FPS
    actions, states = motion_of(system, truth, start, substeps)
    rng = np.random.default_rng(0)
    bearings = observe(system, states, points, CAMERA)[0]
    bearings += NOISE * rng.normal(size=bearings.shape)
    covariance = np.broadcast_to(NOISE**2 * np.eye(2), (*bearings.shape, 2))
    nothing = np.zeros((*bearings.shape, 0))
    seen = Observation(times, bearings, covariance, nothing, np.zeros(0), np.ones(bearings.shape[:2], bool), points)
    return Problem(system, system.parameters().with_free(fit), seen, CAMERA, actions)


def motion_of(system: System, truth: Parameters, start: Array, substeps: int) -> tuple[Actions, Array]:
    """What drives the system, and the states [F, N] that it passes."""
    actions = constant_actions(system, system.parameters(), hold=True)
    controls = np.zeros((1, FRAMES - 1, len(system.control_names)))
    controls[..., : actions.values.shape[1]] = actions.values[0]
    return actions, simulate(system, start[None], controls, truth.vector, 1.0 / FPS, substeps=substeps)[0]


def check(
    problem: Problem, body: ArticulatedBody, start: Array, rates: Array, truth: Parameters, within: float
) -> None:
    found = configuration_shooting.solve(problem, body, start, rates)
    assert found.converged
    assert 0.85 < found.misfit < 1.15
    assert sum(found.theta_parts.values()) == pytest.approx(np.diagonal(found.theta_covariance), rel=1e-3)
    for j, parameter in enumerate(p for p in found.parameters if p.free):
        std = float(found.theta_covariance[j, j]) ** 0.5
        error = parameter.to_free(parameter.value) - parameter.to_free(truth[parameter.name].value)
        assert abs(error) < 3.0 * std
        assert abs(error) < within
        assert std < within


def test_stiffness_of_a_finger() -> None:
    hand = get("hand")
    body = JointBody(hand)
    truth = hand.parameters().with_values({"stiffness_1": 0.55, "damping_1": 3e-3})
    configuration = np.zeros(13)
    configuration[[1, 2, 3, 0, 5]] = 0.6, 0.4, 0.3, -0.3, 0.2
    start = body.states(configuration, np.zeros(13))
    problem = problem_of(hand, body.points_body, truth, start, ("stiffness_1", "damping_1"), 16)
    check(problem, body, 0.9 * configuration, np.zeros(13), truth, 0.05)


def test_steps_follow_a_stiffness_far_above_where_the_fit_began() -> None:
    hand = get("hand")
    body = JointBody(hand)
    start, free = body.states(np.zeros(13), np.zeros(13)), ("stiffness_1",)
    problem = problem_of(hand, body.points_body, hand.parameters(), start, free, 16)
    setup = configuration_shooting._setup(problem, body)
    stiff = problem.parameters.with_values({"stiffness_1": 300.0}).free_vector()
    point = configuration_shooting._Point(start[None], stiff)
    (finer,) = configuration_shooting._stable([setup], point)
    assert finer.substeps > setup.substeps
    assert configuration_shooting._as_a_whole(finer, point.of(0)).whole is not None
    with pytest.raises(UsageError, match="a step of"):
        configuration_shooting._as_a_whole(setup, point.of(0))


def test_steps_that_cannot_be_computed_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = get("hand")
    body = JointBody(hand)
    start = body.states(np.zeros(13), np.zeros(13))
    problem = problem_of(hand, body.points_body, hand.parameters(), start, ("stiffness_1",), 16)

    def picky(*args: Any, substeps: int) -> Array:
        if substeps < least[0]:
            raise SimulationError("too long a step", "a shorter one")
        return simulate(*args, substeps=substeps)

    monkeypatch.setattr(configuration_shooting, "simulate", picky)
    setup = configuration_shooting._setup(problem, body)
    least = [4 * setup.substeps]
    point = configuration_shooting._Point(start[None], problem.parameters.free_vector())
    (finer,), _ = configuration_shooting._computed([setup], point, 1.0)
    assert finer.substeps == least[0]
    assert configuration_shooting.solve(problem, body, np.zeros(13), np.zeros(13)).converged
    least[0] = 1_000_000
    with pytest.raises(SimulationError, match="too long a step"):
        configuration_shooting._computed([setup], point, 1.0)


def test_shares_that_cannot_be_computed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = get("hand")
    body = JointBody(hand)
    start = body.states(np.full(13, 0.2), np.zeros(13))
    problem = problem_of(hand, body.points_body, hand.parameters(), start, ("stiffness_1",), 16)
    least = [12]  # steps; the first shares have fewer

    def picky(system: System, states: Array, controls: Array, *more: Any, substeps: int) -> Array:
        if controls.shape[1] < least[0]:
            raise SimulationError("too stiff", "a longer share")
        return simulate(system, states, controls, *more, substeps=substeps)

    monkeypatch.setattr(configuration_shooting, "simulate", picky)
    found = configuration_shooting.solve(problem, body, np.full(13, 0.2), np.zeros(13))
    assert found.converged
    assert found.parameters["stiffness_1"].value == pytest.approx(hand.parameters()["stiffness_1"].value, rel=0.1)
    least[0] = 1_000_000
    with pytest.raises(SimulationError, match="too stiff"):
        configuration_shooting.solve(problem, body, np.full(13, 0.2), np.zeros(13))


def test_errors_that_last_hardly_blur_what_swings(monkeypatch: pytest.MonkeyPatch) -> None:
    """All points of a frame err as if every joint were turned by 0.05 rad, for half a second."""
    hand = get("hand")
    body = JointBody(hand)
    truth = hand.parameters().with_values({"stiffness_1": 0.55})
    configuration = np.zeros(13)
    configuration[[1, 2, 3, 0, 5]] = 0.6, 0.4, 0.3, -0.3, 0.2
    start = body.states(configuration, np.zeros(13))
    problem = problem_of(hand, body.points_body, truth, start, ("stiffness_1",), 16)
    _, states = motion_of(hand, truth, start, 16)
    turns = 0.05 * observe(hand, states, body.points_body, CAMERA)[1][..., :13]
    blurred = replace(problem.observation, shared_basis=turns, correlation_time_s=np.full(13, 0.5))
    problem = noisy(replace(problem, observation=blurred), states, np.random.default_rng(1))
    found = configuration_shooting.solve(problem, body, 0.9 * configuration, np.zeros(13))
    error = found.parameters["stiffness_1"].value / 0.55 - 1.0
    std = float(found.theta_covariance[0, 0]) ** 0.5
    assert abs(error) < 3.0 * std < 0.1
    monkeypatch.setattr(configuration_shooting, "_ROUNDS", 0)
    apart = configuration_shooting.solve(problem, body, 0.9 * configuration, np.zeros(13))
    assert std < 0.5 * float(apart.theta_covariance[0, 0]) ** 0.5, "frames by themselves throw most of it away"


def small_rod() -> tuple[Rod, ModalBody]:
    """A rod of four cells, and four shapes that it may have."""
    rod = Rod((4, 1, 1), elements="linear")
    place = rod.rest_m[:, 0] / rod.size_m[0] + 0.5
    shapes = [np.sin(np.pi * n * place) * np.sin(np.pi * place) for n in (1, 2)]
    modes = np.stack([np.outer(shape, axis) for shape in shapes for axis in np.eye(3)[1:]])
    body = ModalBody(rod, Motions(rod.rest_m, rod.elements, modes, 0.02 * np.ones((1, 2, 4)) * [[[1], [-1]]], 0.1, 0.0))
    return rod, body


def test_stiffness_of_a_rod() -> None:
    rod, body = small_rod()
    truth = rod.parameters().with_values({"young_modulus": 6e5})
    start = body.states(np.array([0.0, 0.03, 0.0, 0.0]), np.array([0.3, 0.0, 0.0, 0.0]))
    problem = problem_of(rod, body.points_body, truth, start, ("young_modulus",), 2)
    guess = np.array([0.0, 0.02, 0.0, 0.0]), np.zeros(4)
    check(problem, body, *guess, truth, 0.05)
    surer = configuration_shooting.solve(problem, body, *guess)
    problem = replace(problem, observation=replace(problem.observation, swing_scale=np.array(2.0)))
    unsure = configuration_shooting.solve(problem, body, *guess)
    assert unsure.parameters == surer.parameters
    np.testing.assert_allclose(unsure.theta_covariance, 4.0 * surer.theta_covariance, rtol=1e-6)

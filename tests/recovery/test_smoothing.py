"""Smoothing recovers a known flight from noisy keypoints: mass, actions, trajectory, and honest intervals."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from tests.flight import POINTS, Flight, fly, watch
from vid2phys.engine.pnp import solve_poses
from vid2phys.solvers import arrow, hyperparameters, initialise, intervals, smoothing, smoothing_model
from vid2phys.solvers.camera_parameters import with_camera_parameters
from vid2phys.solvers.multi_clip import Join
from vid2phys.solvers.problem import Problem, effective_actions
from vid2phys.types import Array, Observation


@lru_cache(maxsize=1)
def flight() -> Flight:
    return fly()


def start(problem: Problem) -> np.ndarray:
    seen = problem.observation
    poses = solve_poses(seen.bearings, seen.covariance, POINTS, visible=seen.visible)[:, 0]
    return initialise.rigid_states(problem, poses.rotation, poses.translation)


def mass_problem(observation: Observation, *free: str, **known: float) -> Problem:
    parameters = flight().parameters.with_values({"mass": 0.9} | known).with_free(free or ("mass",))
    return Problem(flight().system, parameters, observation, flight().camera_to_world, actions=flight().actions)


def estimates(fit: smoothing.Smoothed) -> dict[str, intervals.Estimate]:
    layout = fit.layout
    fitted = layout.problem.parameters.with_free_vector(fit.point.theta[: len(layout.parameter_names)])
    found = intervals.estimates(fitted, layout.parameter_names, fit.theta_covariance, fit.null_directions, 1000.0)
    return {e.name: e for e in found}


def test_mass_from_recorded_actions() -> None:
    problem = mass_problem(watch(flight()))
    fit = smoothing.fit(problem, start(problem))
    mass = estimates(fit)["mass"]
    assert fit.converged
    assert mass.value == pytest.approx(0.72, rel=0.01)
    assert mass.ci95[0] < 0.72 < mass.ci95[1]
    assert mass.ci95[1] - mass.ci95[0] < 0.02
    error = problem.system.local(flight().states, fit.point.states)
    assert np.sqrt((error[:, :3] ** 2).sum(1).mean()) < 0.02
    assert np.rad2deg(np.sqrt((error[:, 3:6] ** 2).sum(1).mean())) < 2.0
    std = np.sqrt(np.einsum("kii->ki", fit.covariance))
    normalised = np.sqrt(((error / std)[:, :9] ** 2).mean(0))
    assert np.all(normalised < 1.5)
    assert normalised.mean() > 0.6  # stated errors are not too large either


@pytest.mark.parametrize("late_s", [0.04, -0.03])
def test_a_recorder_that_is_late_or_early_is_found(late_s: float) -> None:
    problem = mass_problem(watch(flight()))
    actions = replace(flight().actions, times_s=flight().actions.times_s + late_s)
    fit = smoothing.fit(replace(problem, actions=actions), start(problem))
    found = smoothing.solution(fit).extra
    # a lag of the motors, which the flight has not, takes up a little of the delay
    assert found["action_delay_s"] + found["motor_lag_s"] == pytest.approx(-late_s, abs=0.01)


def test_actions_without_a_recording() -> None:
    problem = Problem(flight().system, flight().parameters, watch(flight(), seed=1), flight().camera_to_world)
    fit = smoothing.fit(problem, start(problem))
    fitted = smoothing_model.controls_of(fit.layout, fit.point)[0][:, :4]
    true = effective_actions(flight().actions, fit.layout.knots, 0.0, 1e-6)
    hover = problem.system.hover_controls(problem.parameters.vector)[0]
    assert np.sqrt(((fitted - true)[:, 0] ** 2).mean()) < 0.05 * hover
    for axis in (1, 2):
        assert np.corrcoef(fitted[:, axis], true[:, axis])[0, 1] > 0.3


def test_variances_that_rounding_leaves_below_zero_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = arrow.marginals

    def rounded(matrix: arrow.Arrow, factor: arrow.Factor, covariance: Array) -> tuple[Array, Array]:
        blocks, below = exact(matrix, factor, covariance)
        return blocks - 1e3 * np.eye(blocks.shape[1]), below

    monkeypatch.setattr(arrow, "marginals", rounded)
    problem = mass_problem(watch(flight()))
    fit = smoothing.fit(problem, start(problem), rounds=1)
    assert (fit.input_std >= 0.0).all()
    assert fit.input_std.min() == 0.0


@pytest.mark.parametrize("kind", ["recorded", "not recorded", "of the image"])
def test_gradient_of_the_evidence_is_that_of_differences(kind: str) -> None:
    seen = watch(flight())
    problem = Problem(flight().system, flight().parameters, seen, flight().camera_to_world)
    problem = mass_problem(seen) if kind == "recorded" else problem
    if kind == "of the image":
        free = ("scale", "focal", "camera_turn_x")
        problem = replace(problem, parameters=with_camera_parameters(flight().parameters, free).with_free(free))
    layout = smoothing_model.Layout.of(problem)
    near = hyperparameters.prior_hyperparameters(layout)
    chain = smoothing.Chain(layout, smoothing.initial_unknowns(layout, start(problem), None), near)
    join = Join.of([layout.theta_names], layout.parameter_names)
    point = smoothing.gauss_newton([chain], join)[0][0].point
    linear = smoothing_model.linearized(layout, point, near)
    at = hyperparameters.pack(near) + np.random.default_rng(0).normal(0.0, 0.2, len(hyperparameters.pack(near)))
    _, gradient = hyperparameters.evidence_and_gradient(layout, linear, point, hyperparameters.unpack(at, near))
    for i, step in enumerate(1e-3 * np.eye(len(at))):
        ahead, behind = (
            hyperparameters.log_evidence(layout, linear, point, hyperparameters.unpack(at + sign * step, near))
            for sign in (1, -1)
        )
        assert gradient[i] == pytest.approx((ahead - behind) / 2e-3, rel=1e-4, abs=1e-3)


def test_mass_and_thrust_scale_only_as_a_ratio() -> None:
    problem = mass_problem(watch(flight()), "mass", "thrust_scale", drag=0.0)
    fit = smoothing.fit(problem, start(problem), rounds=1)
    found = estimates(fit)
    for name in ("mass", "thrust_scale"):
        assert not found[name].identifiable
        assert found[name].ci95[1] == np.inf
    lines = intervals.identifiability(fit.layout.theta_names, fit.null_directions, tuple(found.values()))
    assert "mass and thrust_scale are determined only as a ratio" in lines[0]


def test_mass_without_actions_is_not_determined() -> None:
    parameters = flight().parameters.with_values({"drag": 0.0}).with_free(("mass",))
    problem = Problem(flight().system, parameters, watch(flight()), flight().camera_to_world)
    fit = smoothing.fit(problem, start(problem), rounds=1)
    assert not estimates(fit)["mass"].identifiable
    (line,) = intervals.identifiability(fit.layout.theta_names, fit.null_directions, tuple(estimates(fit).values()))
    assert "give recorded --actions" in line


def test_lost_frames_are_bridged() -> None:
    seen = watch(flight())
    visible = seen.visible.copy()
    visible[40:55] = False
    gap = Observation(
        seen.times_s, seen.bearings, seen.covariance, seen.shared_basis, seen.correlation_time_s, visible, POINTS
    )
    poses = solve_poses(gap.bearings, gap.covariance, POINTS, visible=visible)[:, 0]
    translation = np.where(visible.any(1)[:, None], poses.translation, np.nan)
    problem = mass_problem(gap)
    fit = smoothing.fit(problem, initialise.rigid_states(problem, poses.rotation, translation))
    assert estimates(fit)["mass"].value == pytest.approx(0.72, rel=0.01)
    error = problem.system.local(flight().states, fit.point.states)[40:55, :3]
    assert np.linalg.norm(error, axis=1).max() < 0.1


@pytest.mark.slow
def test_mass_interval_holds_the_truth() -> None:
    """Coverage over repeats with injected noise; a binomial with p = 0.95 and n = 40 is below 33 once in 400 times."""
    inside = 0
    for seed in range(40):
        problem = mass_problem(watch(flight(), seed=seed))
        mass = estimates(smoothing.fit(problem, start(problem), rounds=2))["mass"]
        inside += mass.ci95[0] < 0.72 < mass.ci95[1]
    assert inside >= 33

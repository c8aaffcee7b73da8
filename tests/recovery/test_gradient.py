"""The papers' optimisers recover what a film shows: from keypoints, from pixels, and through the shipped networks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.filmed import Filmed, brick, film, filmed_scene
from vid2phys.engine.points import manifold_gradient
from vid2phys.engine.rollout import simulate
from vid2phys.errors import InputError, SimulationError, UsageError
from vid2phys.io.mesh import load_mesh
from vid2phys.risp.networks.model import Model
from vid2phys.solvers import gradient, intervals, losses
from vid2phys.solvers.gradient import Start
from vid2phys.solvers.losses import Evidence
from vid2phys.solvers.network_outputs import of_model
from vid2phys.solvers.rendering import Views, fit_light
from vid2phys.types import Parameters

ROOT = Path(__file__).resolve().parents[2]


def wrong(filmed: Filmed, **values: float) -> Parameters:
    """The true parameters but for some, which are unknown and start elsewhere."""
    return filmed.problem.parameters.with_values(values).with_free(tuple(values))


def interval(found: gradient.Descent, name: str) -> tuple[float, float, float]:
    """Value, and the ends of its interval."""
    fit = found.solution
    all_of = intervals.estimates(fit.parameters, (name,), fit.theta_covariance, fit.null_directions, 20.0)
    (estimate,) = (e for e in all_of if e.name == name)
    return (estimate.value, *estimate.ci95)


@pytest.mark.parametrize("name", ["keypoint", "pixel"])
def test_the_length_of_a_pendulum(name: str) -> None:
    filmed = film("pendulum", frames=6)
    start = wrong(filmed, length=0.54)
    problem = replace(filmed.problem, parameters=start)
    loss = losses.get(name, problem, filmed.evidence)
    found = gradient.solve(problem, loss, [Start(filmed.states[0], start)], known_state=True, iterations=35)
    value, low, high = interval(found, "length")
    assert found.has_intervals
    assert value == pytest.approx(0.5, rel=0.01)
    assert low < 0.5 < high
    np.testing.assert_array_equal(found.solution.states[0], filmed.states[0])
    assert found.solution.parameters["length"].source == "fitted"


def test_the_velocity_of_a_thrown_brick_from_pixels() -> None:
    """Nothing of its first state is known but about where it is."""
    filmed = film("rigid_contact", frames=4)
    system = filmed.problem.system
    off = np.array([0.005, -0.004, 0.006, 0.05, 0.04, -0.05, 0.15, -0.1, 0.1, 0.2, -0.3, 0.2])
    loss = losses.get("pixel", filmed.problem, filmed.evidence)
    begin = Start(system.retract(filmed.states[0], off), filmed.problem.parameters)
    found = gradient.solve(filmed.problem, loss, [begin], optimizer="adam", iterations=50, rate=0.03)
    error = system.local(filmed.states[0], found.solution.states[0])
    across = filmed.problem.camera_to_world[:3, :2].T @ error[6:9]  # how fast it comes nearer the images hardly tell
    assert np.linalg.norm(across) < 0.15 * np.linalg.norm(off[6:9])
    assert found.attempts[0].loss < 0.02 * found.attempts[0].losses[0]
    std = np.sqrt(np.diagonal(found.solution.covariance[0]))
    assert (np.abs(error) < 4.0 * std + 0.02).all()


def test_the_damping_of_a_bounce_from_pixels() -> None:
    """A brick that falls on the ground and comes up again: the adjoint through contact, down to pixels."""
    filmed = film("rigid_contact", frames=6)
    parameters, start = filmed.problem.parameters, filmed.states[0].copy()
    start[2] = 0.12  # so that it lands
    setup = gradient._setup(filmed.problem, losses.get("keypoint", filmed.problem), Start(start, parameters), False)
    states = gradient._states(setup, [Start(start, parameters)])[0]
    assert states[:, 9].max() > 0.5  # it came up again
    assert states[:, 9].min() < -0.7
    scene = filmed_scene(filmed.problem.system, brick(), states, filmed.problem.camera_to_world, 48)
    true = parameters["k_d"].value
    begin = Start(start, parameters.with_values({"k_d": 1.3 * true}).with_free(("k_d",)))
    problem = replace(filmed.problem, parameters=begin.parameters)
    loss = losses.get("pixel", problem, Evidence(scene=scene))
    found = gradient.solve(problem, loss, [begin], optimizer="adam", iterations=25, rate=0.03, known_state=True)
    assert found.solution.parameters["k_d"].value == pytest.approx(true, rel=0.04)


@pytest.mark.parametrize("body", ["quadrotor", "cube"])
def test_speed_through_renderer_and_shipped_network(body: str) -> None:
    """Eq. 6: images of one look, a simulation drawn in another; the network has to look through that."""
    model = Model.load(ROOT / "models" / body)
    mesh = load_mesh(ROOT / "samples" / body / ("quad.obj" if body == "quadrotor" else "cube.obj"), "m")
    filmed = film("quadrotor" if body == "quadrotor" else "rigid_contact", frames=4, mesh=mesh, view_px=96)
    problem, system = filmed.problem, filmed.problem.system
    reader, scene = of_model(model, torch.float64), filmed.evidence.scene
    other = replace(scene, light=0.7 * scene.light + np.array([0.12, 0.0, 0.0, 0.0])[:, None])
    loss = losses.get("risp_image", problem, Evidence(scene=other, reader=reader))
    off = np.zeros(12)
    off[6:9] = [0.25, -0.2, 0.15]
    begin = Start(system.retract(filmed.states[0], off), problem.parameters)
    setup = gradient._setup(problem, loss, begin, known_state=False)
    value, slope = gradient._slope(setup, begin)
    along = np.zeros(12)
    along[6:9] = [1.0, 0.5, -0.7]
    h = 2e-8
    ends = [loss.value(torch.from_numpy(gradient._states(setup, [Start(system.retract(begin.state, s * along),
            begin.parameters)])[0])) for s in (h, -h)]  # fmt: skip
    assert float(ends[0] - ends[1]) / (2 * h) == pytest.approx(float(slope @ along), rel=2e-3)
    loss = losses.get("risp_image", problem, Evidence(scene=other, reader=of_model(model)))
    found = gradient.solve(problem, loss, [begin], optimizer="adam", iterations=25, rate=0.06)
    last = system.local(filmed.states[-1], found.solution.states[-1])[:3]
    before = system.local(filmed.states[-1], gradient._states(setup, [begin])[0, -1])[:3]
    assert np.linalg.norm(last) < 0.5 * np.linalg.norm(before)
    assert found.attempts[0].loss < 0.25 * value


def test_of_several_starts_the_best_is_kept_and_all_are_reported() -> None:
    filmed = film("pendulum")
    start = wrong(filmed, length=0.5, damping=0.02)
    problem = replace(filmed.problem, parameters=start)
    loss = losses.get("state", problem, filmed.evidence)
    near, *others = gradient.random_starts(Start(filmed.states[0], start), 4, np.random.default_rng(0))
    far = [s.parameters["length"].value for s in others]
    assert len(set(far)) == 3
    assert all(0.25 <= value <= 1.0 for value in far)
    done: list[tuple[int, int]] = []
    found = gradient.solve(problem, loss, [*others, near], iterations=4, known_state=True,
                           progress=lambda *count: done.append(count))  # fmt: skip
    assert found.best == 3
    assert [len(a.losses) for a in found.attempts] == [4] * 4
    assert done == [(i, 16) for i in range(16)]
    assert found.solution.loss == min(a.loss for a in found.attempts)
    assert found.solution.iterations == 16


def test_bounds_hold_and_a_start_that_diverges_is_reported() -> None:
    filmed = film("pendulum")
    limited = Parameters(tuple(replace(p, lower=0.45) if p.name == "length" else p for p in wrong(filmed, length=0.46)))
    problem = replace(filmed.problem, parameters=limited)
    shorter = simulate(problem.system, filmed.states[:1], np.zeros((1, 2, 2)),
                       filmed.problem.parameters.with_values({"length": 0.3}).vector, 1 / 15, substeps=64)  # fmt: skip
    loss = losses.get("state", problem, replace(filmed.evidence, states=shorter[0]))
    found = gradient.solve(problem, loss, [Start(filmed.states[0], limited)], known_state=True, iterations=40)
    assert found.solution.parameters["length"].value == pytest.approx(0.45)
    broken = Start(np.array([np.nan, 0.0]), limited)
    both = gradient.solve(problem, loss, [broken, Start(filmed.states[0], limited)], known_state=True, iterations=2)
    assert both.best == 1
    assert both.attempts[0].failure is not None
    with pytest.raises(SimulationError, match="none of 1 starts"):
        gradient.solve(problem, loss, [broken], known_state=True, iterations=2)


def test_priors_pull_and_a_loss_without_residuals_has_no_interval() -> None:
    filmed = film("pendulum")
    start = wrong(filmed, mass=0.5)  # a point mass swings alike whatever it weighs
    problem = replace(filmed.problem, parameters=start.with_values({"damping": 0.0}),
                      priors={"mass": (float(np.log(0.4)), 0.1)})  # fmt: skip
    loss = losses.get("state", problem, filmed.evidence)
    begin = Start(filmed.states[0], problem.parameters)
    found = gradient.solve(problem, loss, [begin], known_state=True, optimizer="adam", iterations=40)
    value, low, high = interval(found, "mass")
    assert value == pytest.approx(0.4, rel=0.02)
    assert np.log(high / low) == pytest.approx(2 * 2.086 * 0.1, rel=0.02)
    loss = losses.get("perceptual", problem, filmed.evidence)
    found = gradient.solve(problem, loss, [begin], known_state=True, iterations=1)
    assert not found.has_intervals
    assert np.isinf(found.solution.theta_covariance).all()
    assert found.solution.null_directions.shape == (0, 1)


def test_bad_use_is_named() -> None:
    filmed = film("pendulum")
    loss, start = losses.get("keypoint", filmed.problem), Start(filmed.states[0], filmed.problem.parameters)
    with pytest.raises(UsageError, match="unknown optimizer 'sgd'; expected one of adam, rmsprop"):
        gradient.solve(filmed.problem, loss, [start], optimizer="sgd")
    with pytest.raises(UsageError, match="0 starts"):
        gradient.solve(filmed.problem, loss, [])
    with pytest.raises(UsageError, match="nothing to fit"):
        gradient.solve(filmed.problem, loss, [start], known_state=True)
    undriven = replace(filmed.problem, actions=None)
    with pytest.raises(UsageError, match="without --actions"):
        gradient.solve(undriven, loss, [start])
    flight = film("quadrotor")
    away = flight.states[0].copy()
    away[0] += 9.0
    pixel = losses.get("pixel", flight.problem, flight.evidence)
    with pytest.raises(InputError, match="in none of the 3 views"):
        gradient.solve(flight.problem, pixel, [Start(away, flight.problem.parameters)])


def test_the_light_of_a_clip_is_found() -> None:
    """The images of another light than the scene's are explained to a few grey levels, parts apart."""
    filmed = film("quadrotor", frames=4)
    scene = filmed.evidence.scene
    found = fit_light(scene.system, scene.mesh, scene.views, torch.from_numpy(filmed.states))
    images = found.images(torch.from_numpy(filmed.states)).numpy()
    assert np.abs(images - scene.views.images).max() < 0.02
    away = filmed.states.copy()
    away[:, 0] += 9.0
    with pytest.raises(InputError, match="in none of the 4 views"):
        fit_light(scene.system, scene.mesh, scene.views, torch.from_numpy(away))
    unknown = Views(**{**vars(scene.views), "known": np.zeros_like(scene.views.known)})
    loss = losses.get("pixel", filmed.problem, replace(filmed.evidence, scene=replace(scene, views=unknown)))
    with pytest.raises(InputError, match="behind the body is known nowhere"):
        loss.check(torch.from_numpy(filmed.states))


def test_the_gradient_of_a_rollout_is_that_of_differences() -> None:
    """Through pixels and rollout at once, with a free parameter in logarithm and one without."""
    filmed = film("quadrotor", frames=3)
    start = wrong(filmed, mass=0.51, drag=0.12)
    problem = replace(filmed.problem, parameters=start)
    loss = losses.get("pixel", problem, filmed.evidence)
    begin = Start(problem.system.retract(filmed.states[0], np.full(12, 0.01)), start)
    setup = gradient._setup(problem, loss, begin, known_state=False)
    _, slope = gradient._slope(setup, begin)
    rng = np.random.default_rng(0)
    for _ in range(2):
        along = rng.normal(size=14)

        def moved(step: float, along: np.ndarray = along) -> float:
            parameters = start.with_free_vector(start.free_vector() + step * along[12:])
            at = Start(problem.system.retract(begin.state, step * along[:12]), parameters)
            return float(loss.value(torch.from_numpy(gradient._states(setup, [at])[0])))

        numeric = (moved(1e-7) - moved(-1e-7)) / 2e-7
        assert numeric == pytest.approx(float(slope @ along), rel=1e-5)
    np.testing.assert_allclose(
        manifold_gradient(problem.system, begin.state, np.ones(13)),
        np.ones(13) @ problem.system.tangent_basis(begin.state),
    )


def test_rmsprop_has_the_momentum_of_the_paper() -> None:
    """By hand, for a constant slope of 2: the mean square decays by 0.99 a step, the step by the momentum."""
    step = gradient.stepper("rmsprop", 1, 0.1)
    square, along = 0.0, 0.0
    for _ in range(5):
        square = 0.99 * square + 0.01 * 2.0**2
        along = gradient.MOMENTUM * along + 2.0 / np.sqrt(square)
        assert step(np.array([2.0]))[0] == pytest.approx(-0.1 * along, rel=1e-6)
    assert gradient.MOMENTUM > 0.0

"""The least squares of smoothing beside dense systems: gradients, steps, marginals, and what a solution states."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.flight import POINTS, fly, watch
from vid2phys.engine.pnp import solve_poses
from vid2phys.solvers import initialise, interval_parts, prediction, smoothing
from vid2phys.solvers.arrow import Arrow
from vid2phys.solvers.hyperparameters import prior_hyperparameters
from vid2phys.solvers.problem import DELAY, LAG, Problem
from vid2phys.solvers.relevance import has_intermittent_inputs, with_relevance
from vid2phys.solvers.smoothing import Chain, _first_scale, _Linear, _marginals, _Normals, _parts, _quantiles
from vid2phys.solvers.smoothing_model import (
    Hyperparameters,
    Layout,
    Unknowns,
    linearized,
    measurement_factors,
    moved,
)
from vid2phys.types import Array

RECORDED, UNKNOWN = True, False


def problem_of(recorded: bool) -> tuple[Problem, Array]:
    """A short flight with its mass unknown, and the states that its keypoints give."""
    flight = fly(0.5)
    seen = watch(flight)
    parameters = flight.parameters.with_values({"mass": 0.8}).with_free(("mass",))
    actions = flight.actions if recorded else None
    problem = Problem(flight.system, parameters, seen, flight.camera_to_world, actions=actions)
    poses = solve_poses(seen.bearings, seen.covariance, POINTS, visible=seen.visible)[:, 0]
    return problem, initialise.rigid_states(problem, poses.rotation, poses.translation)


@pytest.fixture(scope="module", params=[RECORDED, UNKNOWN], ids=["recorded", "unknown"])
def chain(request: pytest.FixtureRequest) -> Chain:
    """A piece of a clip at a point that is a little off."""
    problem, states = problem_of(request.param)
    layout, rng = Layout.of(problem), np.random.default_rng(0)
    point = smoothing.initial_unknowns(layout, states, None)
    inputs = 0.1 * rng.normal(size=point.inputs.shape)
    shared = 0.2 * rng.normal(size=point.shared.shape)
    theta = point.theta + 0.01 * rng.normal(size=len(point.theta))
    hyper = replace(prior_hyperparameters(layout), point_scale=1.3, shared_scale=0.8)
    return Chain(layout, Unknowns(point.states, inputs, shared, theta), hyper, share=0.7)


def join_of(chain: Chain) -> Any:
    return smoothing._join([chain.layout], [1])


def dense(matrix: Arrow) -> Array:
    """The whole matrix: the knots in a row, then theta."""
    steps, size, count = matrix.arrow.shape
    out = np.zeros((steps * size + count,) * 2)
    for t in range(steps):
        here = slice(t * size, (t + 1) * size)
        out[here, here] = matrix.diagonal[t]
        out[here, steps * size :] = matrix.arrow[t]
        out[steps * size :, here] = matrix.arrow[t].T
        if t:
            before = slice((t - 1) * size, t * size)
            out[here, before] = matrix.lower[t - 1]
            out[before, here] = matrix.lower[t - 1].T
    out[steps * size :, steps * size :] = matrix.corner
    return out


def test_a_fit_begins_at_the_given_states_and_values() -> None:
    problem, states = problem_of(RECORDED)
    layout = Layout.of(problem)
    given = np.arange(len(states) * len(layout.channels), dtype=float).reshape(len(states), -1)
    point = smoothing.initial_unknowns(layout, states, given)
    assert point.states is not states
    np.testing.assert_array_equal(point.states, states)
    np.testing.assert_array_equal(point.inputs, np.concatenate([given, 0.0 * given], axis=1))
    assert not point.shared.any()
    np.testing.assert_allclose(point.theta, [np.log(0.8), 0.0, np.log(0.02)])
    assert layout.theta_names == ("mass", DELAY, LAG)


def test_the_first_scale_is_the_usual_size_of_residuals_and_one_at_least(chain: Chain) -> None:
    layout, point = chain.layout, chain.point
    seen = layout.problem.observation
    (factor,) = measurement_factors(layout, point)
    squares = factor.distance[seen.used]
    aside = replace(point, states=point.states + np.eye(13)[0] * 0.05)
    (factor,) = measurement_factors(layout, aside)
    assert _first_scale(layout, aside) == pytest.approx(np.sqrt(np.median(factor.distance[seen.used]) / 1.386))
    assert _first_scale(layout, aside) > 2.0
    assert _first_scale(layout, point) == max(1.0, np.sqrt(np.median(squares) / 1.386))


def test_keypoints_cost_students_t_of_two_numbers(chain: Chain) -> None:
    """Each keypoint by its squared distance under its own covariance, once the errors of the frame are taken off."""
    layout, point, scale = chain.layout, chain.point, 1.3
    seen, states = layout.problem.observation, point.states[layout.knots.frame_knot]
    shared = point.shared[layout.knots.frame_knot]
    predicted = prediction.bearings(layout.problem, layout.parameters(point.theta), states)
    off = predicted + np.einsum("fkir,fr->fki", seen.shared_basis, shared) - seen.bearings
    squares = np.einsum("fki,fkij,fkj->fk", off, np.linalg.inv(seen.covariance), off) / scale**2
    used, found = seen.used, linearized(layout, point, chain.hyperparameters)
    assert found.cost_student == pytest.approx(0.5 * 7.0 * np.log1p(squares[used] / 5.0).sum())
    weights = 7.0 / (5.0 + squares)
    np.testing.assert_allclose(found.weights[used], weights[used], rtol=1e-6)
    assert found.measurements.cost / scale**2 == pytest.approx(0.5 * (weights * squares)[used].sum())
    assert found.measurements.count == 2.0 * used.sum()


def test_gradients_are_those_of_differences_of_the_cost(chain: Chain) -> None:
    normals, rng = _Normals([chain]), np.random.default_rng(1)
    normal, _ = normals.factored(0)
    steps, size = normal.gradient.shape
    for _ in range(12):
        by_chain, by_theta = rng.normal(size=(steps, size)), rng.normal(size=len(chain.point.theta))
        by_chain[:, : chain.layout.tangent] *= 1e-2
        small = 1e-5
        ahead, back = (
            _Normals(
                [replace(chain, point=moved(chain.layout, chain.point, s * small * by_chain, s * small * by_theta))]
            )
            for s in (1.0, -1.0)
        )
        expected = (ahead.cost() - back.cost()) / (2.0 * small)
        found = float((normal.gradient * by_chain).sum() + normal.gradient_theta @ by_theta)
        scale = np.abs(normal.gradient * by_chain).sum() + np.abs(normal.gradient_theta * by_theta).sum()
        assert found == pytest.approx(expected, abs=2e-4 * scale)


def test_a_step_solves_the_whole_system(chain: Chain) -> None:
    normals = _Normals([chain])
    normal, _ = normals.factored(0)
    steps, size = normal.gradient.shape
    whole = dense(normal.matrix)
    both = np.append(normal.gradient.ravel(), normal.gradient_theta)
    expected = -np.linalg.solve(whole, both)
    after, gain = _Linear(join_of(chain), normals, normals.cost()).step(0.0)
    known = moved(chain.layout, chain.point, expected[: steps * size].reshape(steps, size), expected[steps * size :])
    found = after.chains[0].point
    np.testing.assert_allclose(found.theta, known.theta, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(found.states, known.states, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.inputs, known.inputs, rtol=1e-3, atol=1e-4)
    assert gain == pytest.approx(-0.5 * both @ expected, rel=1e-5)
    raised = whole.copy()
    own = np.arange(steps * size)
    raised[own, own] *= 1.5
    damped, _ = _Linear(join_of(chain), _Normals([chain]), normals.cost()).step(0.5)
    change = np.abs(damped.chains[0].point.states - chain.point.states).sum()
    assert change < np.abs(found.states - chain.point.states).sum()


def test_marginals_are_the_blocks_of_the_inverse(chain: Chain) -> None:
    normal, _ = _Normals([chain]).factored(0)
    steps, size = normal.gradient.shape
    layout = chain.layout
    whole = dense(normal.matrix)
    own = slice(steps * size, None)
    precision = layout.problem.prior_precision(layout.theta_names)
    schur = whole[own, own] - whole[own, : steps * size] @ np.linalg.solve(
        whole[: steps * size, : steps * size], whole[: steps * size, own]
    )
    counted = np.diag(precision) + 0.7 * (schur - np.diag(precision))
    covariances, input_stds, null = _marginals(join_of(chain), [chain])
    if null.directions.size == 0:
        np.testing.assert_allclose(null.covariance, np.linalg.inv(counted), rtol=1e-4)
    raised = whole.copy()
    raised[own, own] += np.linalg.inv(null.covariance) - schur if null.directions.size == 0 else 0.0
    if null.directions.size == 0:
        inverse = np.linalg.inv(raised)
        for t in (0, 4, steps - 1):
            at = np.arange(t * size, t * size + layout.tangent)
            np.testing.assert_allclose(covariances[0][t], inverse[np.ix_(at, at)], rtol=2e-3, atol=1e-9)
            inputs = t * size + layout.inputs.start + np.arange(len(layout.channels))
            np.testing.assert_allclose(input_stds[0][t], np.sqrt(np.diag(inverse)[inputs]), rtol=1e-3)
    assert covariances[0].shape == (steps, layout.tangent, layout.tangent)
    assert input_stds[0].shape == (steps, len(layout.channels))


def test_parts_of_a_variance_sum_to_it(chain: Chain) -> None:
    """Each part is that of one kind of residual; they count with the share of frames, priors once."""
    normals = _Normals([chain])
    covariance = np.linalg.inv(normals.reduced()[0][0])
    whole = _parts(join_of(chain), normals, covariance)
    assert set(whole) == set(interval_parts.OF_CHAIN)
    precision = chain.layout.problem.prior_precision(chain.layout.theta_names)
    np.testing.assert_allclose(
        whole[interval_parts.PRIOR], np.array([(precision * row**2).sum() for row in covariance]), rtol=1e-9
    )
    once = replace(chain, share=1.0)
    all_of_it = _parts(join_of(once), _Normals([once]), covariance)
    for name, part in whole.items():
        factor = 1.0 if name == interval_parts.PRIOR else 0.7
        np.testing.assert_allclose(part, factor * all_of_it[name], rtol=1e-9)
    np.testing.assert_allclose(sum(all_of_it.values()), np.diag(covariance), rtol=0.02)


def test_variances_count_as_known_without_recorded_actions_and_for_several_pieces(chain: Chain) -> None:
    recorded = chain.layout.problem.actions is not None
    assert (_quantiles(join_of(chain), _Normals([chain])) is not None) is recorded
    two = smoothing._join([chain.layout], [2])
    assert len(two.columns) == 2
    assert _quantiles(two, _Normals([chain, chain])) is None


def test_a_solution_states_what_was_fitted_at_the_frames(chain: Chain) -> None:
    layout, point = chain.layout, chain.point
    steps, channels = len(layout.knots.times_s), len(layout.channels)
    recorded = layout.problem.actions is not None
    rng = np.random.default_rng(2)
    covariance, input_std = rng.random((steps, 12, 12)), rng.random((steps, channels))
    other = replace(chain.hyperparameters, point_scale=1.3 * 4.0)
    fitted = smoothing.Smoothed(
        layout, point, (chain.hyperparameters, other), covariance, input_std, np.eye(len(point.theta)), {}, None,
        np.zeros((0, len(point.theta))), 7, True, -12.0, np.ones((1, 1)),
    )  # fmt: skip
    found = smoothing.solution(fitted)
    frames = layout.knots.frame_knot
    np.testing.assert_array_equal(found.states, point.states[frames])
    np.testing.assert_array_equal(found.covariance, covariance[frames])
    assert (found.iterations, found.converged, found.loss) == (7, True, 12.0)
    assert found.parameters["mass"].value == pytest.approx(np.exp(point.theta[0]))
    assert found.extra["point_scale"] == pytest.approx(1.3 * 2.0)
    assert found.extra["shared_scale"] == pytest.approx(0.8)
    for group, std in chain.hyperparameters.input_std.items():
        assert found.extra[f"{group}_std"] == pytest.approx(std)
        assert found.extra[f"{group}_bandwidth_rad_s"] == pytest.approx(chain.hyperparameters.bandwidth_rad_s[group])
    np.testing.assert_allclose(found.knot_inputs, point.inputs[:, :channels])
    if recorded:
        assert found.action_std is None
        assert found.extra[DELAY] == pytest.approx(point.theta[-2])
        assert found.extra[LAG] == pytest.approx(np.exp(point.theta[-1]))
        return
    assert found.action_std is not None
    names, parameters = layout.problem.system.action_names, layout.parameters(point.theta)
    expected = np.zeros((steps - 1, len(names)))
    for j, channel in enumerate(layout.channels):
        if channel.index < len(names):
            expected[:, channel.index] = parameters[channel.inertia].value * input_std[:-1, j]
    np.testing.assert_allclose(found.action_std, layout.knots.frame_means(expected))
    assert found.action_std.any()


def fake(times_s: Array, groups: tuple[str, ...]) -> Any:
    channels: Any = tuple(SimpleNamespace(group=group) for group in groups)
    knots: Any = SimpleNamespace(times_s=times_s)
    nothing: Any = None
    return Layout(nothing, knots, channels, (), (), np.ones((len(times_s), len(groups))))


def test_a_force_that_acts_now_and_then_is_relevant_where_it_acts() -> None:
    times = np.arange(40) * 0.1
    layout = fake(times, ("thrust", "action_force", "action_force"))
    assert has_intermittent_inputs(layout)
    assert not has_intermittent_inputs(fake(times, ("thrust", "force")))
    inputs = np.zeros((40, 6))
    inputs[:, 0], inputs[10:14, 1], inputs[10:14, 2] = 5.0, 3.0, 4.0
    point = Unknowns(np.zeros((40, 13)), inputs, np.zeros((40, 0)), np.zeros(0))
    hyper = Hyperparameters({"thrust": 1.0, "action_force": 2.0}, {"thrust": 8.0, "action_force": 4.0})
    std = np.full((40, 3), 0.5)
    after, moved_point, found = with_relevance(layout, point, hyper, std)
    expected = np.zeros(40)
    for k in range(40):
        near = np.abs(times - times[k]) <= 0.25
        known = 2.0 * near.sum() * (1.0 - 0.25 / 4.0)
        expected[k] = max(np.sqrt((inputs[near, 1:3] ** 2).sum() / known), 0.1 * 2.0)
    assert found.input_std["action_force"] == pytest.approx(expected.max())
    assert found.input_std["thrust"] == 1.0
    np.testing.assert_allclose(after.relevance[:, 1], expected / expected.max())
    np.testing.assert_array_equal(after.relevance[:, 1], after.relevance[:, 2])
    np.testing.assert_array_equal(after.relevance[:, 0], 1.0)
    np.testing.assert_allclose(moved_point.inputs[:, :3] * after.relevance, inputs[:, :3])
    np.testing.assert_array_equal(layout.relevance, 1.0)
    again, _, _ = with_relevance(after, moved_point, found, 1e9 * std)
    assert again.relevance.min() >= 1e-3

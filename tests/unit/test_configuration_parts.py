"""Shooting of a body on a known base beside slow sums: residuals, priors, differences, and what a solution states."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.recovery.test_posed_fit import CAMERA, FPS, FRAMES, NOISE, problem_of
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.observe import observe
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems import get
from vid2phys.errors import UsageError
from vid2phys.solvers import configuration_shooting as shooting
from vid2phys.solvers import interval_parts
from vid2phys.solvers.configuration_shooting import _Clips, _Point, _Setup
from vid2phys.types import Array

HAND = get("hand")
BODY = JointBody(HAND)
FREE = ("stiffness_1", "mass_finger1_1")
TRUTH = HAND.parameters().with_values({"stiffness_1": 0.5})
COUNT = 26 + len(FREE)  # configuration and rates of thirteen joints, and the parameters


def start() -> Array:
    configuration = np.zeros(13)
    configuration[[1, 2, 3, 0, 5]] = 0.6, 0.4, 0.3, -0.3, 0.2
    return configuration


@pytest.fixture(scope="module")
def setup() -> _Setup:
    """A hand that falls; a frame has fewer keypoints, and a mass is known to a fifth."""
    problem = problem_of(HAND, BODY.points_body, TRUTH, BODY.states(start(), np.zeros(13)), FREE, 8)
    visible = problem.observation.visible.copy()
    visible[3, 5:] = False
    priors = {FREE[1]: (np.log(TRUTH[FREE[1]].value) + 0.1, 0.2)}
    seen = replace(problem.observation, visible=visible)
    return shooting._setup(replace(problem, observation=seen, priors=priors), BODY)


@pytest.fixture(scope="module")
def point(setup: _Setup) -> _Point:
    rng = np.random.default_rng(1)
    rates = 0.2 * rng.normal(size=13)
    theta = np.array([0.48, np.log(TRUTH[FREE[1]].value) - 0.05])
    return _Point(np.concatenate([start() + 0.02 * rng.normal(size=13), rates])[None], theta)


def whitened(setup: _Setup, unknowns: Array, frames: int) -> Array:
    """Residuals of keypoints [F, K, 2] in deviations, of a rollout of its own."""
    values = dict(zip(FREE, [unknowns[26], np.exp(unknowns[27])], strict=True))
    vector = HAND.parameters().with_values(values).vector
    states = BODY.states(unknowns[None, :13], unknowns[None, 13:26])
    last = int(setup.knots.frame_knot[frames - 1])
    rolled = simulate(
        HAND, states, setup.controls[None, :last], vector[None], setup.knots.step_s[:last], substeps=setup.substeps
    )[0]
    seen = setup.problem.observation
    predicted = observe(HAND, rolled[setup.knots.frame_knot[:frames]], BODY.points_body, CAMERA)[0]
    off = (predicted - seen.bearings[:frames]) / NOISE
    return np.where(seen.visible[:frames, :, None], off, 0.0)


def test_a_clip_is_laid_out_in_spreads_of_its_unknowns(setup: _Setup) -> None:
    np.testing.assert_allclose(setup.scale, [*BODY.prior_std, *(15.0 * BODY.prior_std), 1.0, 1.0])
    np.testing.assert_allclose(setup.step, 1e-3 * np.array([1.0] * 27 + [0.2]))
    count = 2.0 * setup.problem.observation.visible.sum(axis=1)
    np.testing.assert_array_equal(setup.count, count)
    assert [shooting._frames(setup, share) for share in (0.1, 0.25, 0.3, 0.5, 1.0)] == [5, 5, 6, 10, FRAMES]
    assert setup.knots.step_s.max() <= shooting.FINE_STEP_S + 1e-12
    assert setup.knots.times_s[-1] == pytest.approx((FRAMES - 1) / FPS)
    with pytest.raises(UsageError, match="no actions"):
        shooting._setup(replace(setup.problem, actions=None), BODY)


def test_costs_are_students_t_of_frames_and_priors(setup: _Setup, point: _Point) -> None:
    for share, frames in ((0.25, 5), (1.0, FRAMES)):
        white = whitened(setup, point.of(0), frames)
        square = (white**2).sum(axis=(1, 2)) / setup.count[:frames]
        expected = 3.0 * (setup.count[:frames] * np.log1p(square / 5.0)).sum()
        expected += 0.5 * (((point.starts[0, :13] - BODY.prior_mean) / BODY.prior_std) ** 2).sum()
        expected += 0.5 * ((point.starts[0, 13:] / (15.0 * BODY.prior_std)) ** 2).sum()
        expected += 0.5 * (0.15 / 0.2) ** 2
        assert _Clips([setup], share).cost(point) == pytest.approx(expected, rel=1e-6)
    wild = _Point(np.full((1, 26), np.nan), point.theta)
    assert not np.isfinite(_Clips([setup], 1.0).cost(wild))


def test_differences_are_small_and_stay_within_bounds(setup: _Setup, point: _Point) -> None:
    unknowns = point.of(0)
    ahead, behind = shooting._moved_by_steps(setup, unknowns)
    steps = np.append(1e-3 * setup.scale[:26], [1e-3 * 0.48, 2e-4])
    np.testing.assert_allclose(ahead - unknowns, np.diag(steps), atol=1e-12)
    np.testing.assert_allclose(behind - unknowns, -np.diag(steps), atol=1e-12)
    small = unknowns.copy()
    small[26] = 0.0
    ahead, behind = shooting._moved_by_steps(setup, small)
    assert ahead[26, 26] == pytest.approx(1e-6), "of a value of zero"
    assert behind[26, 26] == 0.0, "not below its bound"
    large = unknowns.copy()
    large[26] = 50.0
    assert shooting._moved_by_steps(setup, large)[0][26, 26] == pytest.approx(50.001)


def test_the_linear_model_is_that_of_whitened_residuals(setup: _Setup, point: _Point) -> None:
    unknowns = point.of(0)
    part = shooting._linearized(setup, unknowns, 0.5)
    white = whitened(setup, unknowns, 10)
    square = (white**2).sum(axis=(1, 2)) / setup.count[:10]
    weight = 6.0 / (5.0 + square)
    slopes = []
    for k in range(COUNT):
        step = 1e-5 * setup.scale[k] * np.eye(COUNT)[k]
        sides = whitened(setup, unknowns + step, 10) - whitened(setup, unknowns - step, 10)
        slopes.append(sides / 2e-5)
    jacobian = np.stack(slopes)
    off = np.zeros(COUNT)
    off[:13] = (unknowns[:13] - BODY.prior_mean) / BODY.prior_std
    off[13:26] = unknowns[13:26] / (15.0 * BODY.prior_std)
    gradient = np.einsum("ufki,fki,f->u", jacobian, white, weight) + off
    information = np.einsum("ufki,f,vfki->uv", jacobian, weight, jacobian) + np.diag([1.0] * 26 + [0.0] * 2)
    scale = np.sqrt(np.diag(information))
    np.testing.assert_allclose(part.gradient / scale, gradient / scale, atol=2e-3 * np.abs(gradient / scale).max())
    np.testing.assert_allclose(
        part.information / np.outer(scale, scale), information / np.outer(scale, scale), atol=5e-3
    )
    assert part.squares == pytest.approx((weight * (white**2).sum(axis=(1, 2))).sum())
    assert part.count == setup.count[:10].sum()
    assert part.slopes.shape[:1] == (COUNT,)
    joined = shooting._joined([setup], point, [part])
    np.testing.assert_allclose(joined.gradient[26:] - part.gradient[26:], [0.0, -0.15 / 0.2**2], atol=1e-9)
    np.testing.assert_allclose(joined.information - part.information, np.diag([0.0] * 27 + [25.0]), atol=1e-6)
    model = _Clips([setup], 0.5).linearize(point)
    assert model.cost == pytest.approx(_Clips([setup], 0.5).cost(point))


def test_a_step_keeps_to_the_limits_of_joints_and_parameters(setup: _Setup, point: _Point) -> None:
    step = np.zeros(COUNT)
    step[0], step[14], step[26], step[27] = 1e4, 0.5, -3.0, 0.25
    found = shooting._moved(setup, point, step)
    assert found.starts[0, 0] == BODY.upper[0]
    assert found.starts[0, 14] == pytest.approx(point.starts[0, 14] + 0.5 * 15.0 * BODY.prior_std[1])
    np.testing.assert_allclose(found.theta, [0.0, point.theta[1] + 0.25])
    np.testing.assert_array_equal(found.starts[0, 1:13], point.starts[0, 1:13])


def test_motions_at_the_frames_are_those_of_single_rollouts(setup: _Setup, point: _Point) -> None:
    rows = np.stack([point.of(0), point.of(0) + 0.01, point.of(0), point.of(0)])
    rows[2, 0] = rows[3, -1] = np.nan
    found = shooting.states_at_frames(setup.problem, BODY, rows)
    assert found.shape[:2] == (4, FRAMES)
    for k in range(2):
        expected = shooting._rollouts(setup, rows[k][None], FRAMES)[0][setup.knots.frame_knot]
        np.testing.assert_allclose(found[k], expected, atol=1e-9)
    assert np.isnan(found[2:]).all()


def test_a_solution_has_the_covariance_of_its_model_and_its_misfit(setup: _Setup, point: _Point) -> None:
    (found,) = shooting._solutions([setup], point, 7, True)
    part = shooting._linearized(setup, point.of(0), 1.0)
    information = shooting._joined([setup], point, [part]).information
    unknown = part.count - COUNT
    spread = max(1.0, part.squares / unknown)
    assert spread > 1.2, "a point that is off"
    covariance = np.linalg.inv(information)
    np.testing.assert_allclose(found.theta_covariance, spread * covariance[26:, 26:], rtol=1e-3)
    expected = spread * np.einsum("utf,uv,vtg->tfg", part.slopes, covariance, part.slopes)[setup.knots.frame_knot]
    assert found.state_covariance is not None
    np.testing.assert_allclose(found.state_covariance, expected, rtol=1e-3, atol=1e-6 * np.abs(expected).max())
    assert found.misfit == pytest.approx(np.sqrt(part.squares / unknown))
    assert (found.iterations, found.converged, found.theta_parts) == (7, True, {})
    np.testing.assert_array_equal(found.states, part.states[setup.knots.frame_knot])
    np.testing.assert_array_equal(found.start, point.starts[0])
    assert found.loss == pytest.approx(_Clips([setup], 1.0).cost(point))
    assert found.parameters["stiffness_1"].value == pytest.approx(0.48)
    lasting = replace(setup.problem.observation, swing_scale=3.0)
    wide = replace(setup, problem=replace(setup.problem, observation=lasting))
    (scaled,) = shooting._solutions([wide], point, 7, True)
    np.testing.assert_allclose(scaled.theta_covariance, 9.0 * found.theta_covariance, rtol=1e-6)


def test_parts_of_variances_of_a_clip_as_a_whole_sum_to_them(setup: _Setup, point: _Point) -> None:
    whole = shooting._as_a_whole(setup, point.of(0))
    (found,) = shooting._solutions([whole], point, 1, True)
    assert interval_parts.PRIOR in found.theta_parts
    np.testing.assert_allclose(sum(found.theta_parts.values()), np.diag(found.theta_covariance), rtol=1e-3)

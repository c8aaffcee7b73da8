"""Shooting beside dense sums: whitening, derivatives by differences, and the covariance of what it concludes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.filmed import exact
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.rigid_contact import RigidContact, Sphere
from vid2phys.errors import SimulationError
from vid2phys.geometry import look_at
from vid2phys.solvers import shooting
from vid2phys.solvers.camera_parameters import system_vector, with_camera_parameters
from vid2phys.solvers.clip_residuals import ClipResiduals
from vid2phys.solvers.cramer_rao import cramer_rao, noisy
from vid2phys.solvers.measurements import Errors, residuals
from vid2phys.solvers.multi_clip import Dense
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.shooting import _Clips, _evaluate_all, _moved, _Point, _Setup
from vid2phys.solvers.solution import degrees_of_freedom, innovations, residual_bearings
from vid2phys.types import Array

BALL = RigidContact((Sphere(0.1),), planes=(), has_actions=False)
POINTS = 0.1 * np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0.3]])
STARTS = np.array(
    [[0.3, -0.2, 1.0, 1, 0, 0, 0, 0.2, 0.1, 0.5, 0, 1.0, 0], [0.0, 0.1, 0.8, 1, 0, 0, 0, -0.3, 0, 1, 2, 0, 0]]
)
FRAMES, SHARED = (12, 9), 2
FREE = ("gravity", "focal")
CAMERA = look_at(np.array([-2.0, -1.5, 0.9]), np.zeros(3))


def clip(start: Array, frames: int, seed: int) -> Problem:
    """A ball that falls, with errors that frames share, and keypoints that are lost."""
    rng, times = np.random.default_rng(seed), np.arange(frames) / 50.0
    times[3:] += 0.013
    parameters = with_camera_parameters(BALL.parameters(), FREE).with_free(FREE)
    controls = np.zeros((1, frames - 1, len(BALL.control_names)))
    vector = system_vector(parameters)
    states = simulate(BALL, start[None], controls, vector, np.diff(times)[None], substeps=10)[0]
    seen = exact(BALL, states, times, POINTS, CAMERA)
    own = rng.normal(size=(frames, len(POINTS), 2, 2))
    covariance = 1e-6 * (np.eye(2) + 0.2 * own @ np.swapaxes(own, -1, -2))
    basis = 2e-3 * rng.normal(size=(frames, len(POINTS), 2, SHARED))
    visible = rng.random((frames, len(POINTS))) < 0.8
    visible[5] = False
    seen = replace(
        seen, covariance=covariance, shared_basis=basis, visible=visible, correlation_time_s=np.array([0.05, 3.0])
    )
    known = Problem(BALL, parameters, seen, CAMERA, priors={"gravity": (9.6, 0.3)})
    return noisy(known, states, rng)


@pytest.fixture(scope="module")
def setups() -> list[_Setup]:
    return [shooting._setup(clip(start, count, k)) for k, (start, count) in enumerate(zip(STARTS, FRAMES, strict=True))]


@pytest.fixture(scope="module")
def point(setups: list[_Setup]) -> _Point:
    rng = np.random.default_rng(7)
    starts = tuple(BALL.retract(start, 2e-3 * rng.normal(size=12)) for start in STARTS)
    return _Point(starts, setups[0].problem.parameters.with_values({"gravity": 9.5, "focal": 1.01}))


def test_frames_are_whitened_by_their_own_and_by_lasting_errors(setups: list[_Setup]) -> None:
    """Errors that last count as one of the whole clip at most, by the correlation of adjacent frames."""
    seen = setups[0].problem.observation
    roots = shooting.whitening(setups[0].problem)
    clock = seen.error_clock_s
    for f in range(12):
        step = np.gradient(clock)[f]
        total = np.zeros((8, 8))
        for k in range(4):
            total[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = seen.covariance[f, k]
        for r, time_s in enumerate((0.05, 3.0)):
            rho = np.exp(-step / time_s)
            effect = seen.shared_basis[f, :, :, r].ravel()
            total += min((1.0 + rho) / (1.0 - rho), 12.0) * np.outer(effect, effect)
        kept = np.repeat(seen.visible[f], 2)
        expected = np.zeros((8, 8))
        expected[np.ix_(kept, kept)] = np.linalg.inv(total[np.ix_(kept, kept)])
        np.testing.assert_allclose(roots[f].T @ roots[f], expected, rtol=1e-6, atol=1e-3)
        assert not roots[f][~kept].any()
        assert setups[0].count[f] == max(1, kept.sum())


def test_slopes_are_those_of_differences_of_the_cost(setups: list[_Setup], point: _Point) -> None:
    """Over a part of the clips and over all, with the prior of gravity."""
    rng = np.random.default_rng(1)
    for share in (0.6, 1.0):
        clips = _Clips(setups, share)
        cost, dense, _ = _evaluate_all(setups, point, share, True)
        assert cost == pytest.approx(clips.cost(point))
        assert dense.starts == 24
        scale = np.append(np.full(24, 1e-3), [1e-2, 1e-3])
        for _ in range(4):
            along = scale * rng.normal(size=26)
            ends = [clips.cost(_moved(setups[0].problem, point, 1e-3 * sign * along)) for sign in (1.0, -1.0)]
            size = np.abs(dense.gradient * along).sum()
            assert dense.gradient @ along == pytest.approx((ends[0] - ends[1]) / 2e-3, abs=1e-4 * size)


def white_slopes(setup: _Setup, at: _Point, clip_index: int) -> tuple[Array, Array]:
    """Whitened residuals [F, N] of a clip and their derivatives [F, N, 14] by its start and by what is free."""
    problem = setup.problem

    def white(step: Array) -> Array:
        whole = np.zeros(26)
        whole[12 * clip_index : 12 * clip_index + 12], whole[24:] = step[:12], step[12:]
        moved = _moved(problem, at, whole)
        states = simulate(
            BALL, moved.initial[clip_index][None], setup.controls[None], system_vector(moved.parameters),
            setup.knots.step_s, substeps=setup.substeps,
        )[0][setup.knots.frame_knot]  # fmt: skip
        return np.einsum("fij,fj->fi", setup.roots, residuals(problem, moved.parameters, states))

    columns = [(white(1e-5 * row) - white(-1e-5 * row)) / 2e-5 for row in np.eye(14)]
    return white(np.zeros(14)), np.stack(columns, axis=-1)


def test_information_is_that_of_weighted_slopes(setups: list[_Setup], point: _Point) -> None:
    cost, dense, parts = _evaluate_all(setups, point, 1.0, True)
    total, expected = np.zeros((26, 26)), 0.0
    for k, setup in enumerate(setups):
        off, slopes = white_slopes(setup, point, k)
        count = np.maximum(2.0 * setup.problem.observation.visible.sum(axis=1), 1.0)
        square = (off**2).sum(axis=1) / count
        weights = 6.0 / (5.0 + square)
        np.testing.assert_allclose(parts[k].weights, weights, rtol=1e-6)
        expected += 3.0 * (count * np.log1p(square / 5.0)).sum()
        own = np.r_[12 * k : 12 * k + 12, 24, 25]
        total[np.ix_(own, own)] += np.einsum("fip,f,fiq->pq", slopes, weights, slopes)
    scale = setups[0].problem.parameters["gravity"].transform == "log"
    assert not scale, "gravity is its own solver coordinate"
    total[24, 24] += 0.3**-2.0
    assert cost == pytest.approx(expected + 0.5 * ((9.5 - 9.6) / 0.3) ** 2)
    size = np.sqrt(np.diag(total))
    np.testing.assert_allclose(dense.information / np.outer(size, size), total / np.outer(size, size), atol=1e-5)


def test_a_share_of_a_clip_is_its_first_frames_six_at_least(setups: list[_Setup], point: _Point) -> None:
    """Of 12 and 9 frames."""
    seen = setups[0].problem.observation
    for share, last in ((0.01, 6), (0.55, 7), (1.0, 12)):
        plain = _Clips(setups, share).cost(point)
        for frame in range(6, 12):
            bearings = seen.bearings.copy()
            bearings[frame] += 0.01
            moved = replace(setups[0].problem, observation=replace(seen, bearings=bearings))
            found = _Clips([replace(setups[0], problem=moved), setups[1]], share).cost(point)
            assert (found != plain) is (frame < last)


def test_horizons_follow_one_another(setups: list[_Setup], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each share begins where the last one ended; iterations add up, and the last one tells of convergence."""
    asked = list[tuple[float, Any]]()

    def minimize(problem: _Clips, at: Any, settings: Any) -> Any:
        asked.append((problem.share, at))
        found = replace(at, parameters=at.parameters.with_values({"gravity": at.parameters["gravity"].value + 0.1}))
        return type("Minimum", (), {"point": found, "iterations": 3, "converged": len(asked) == 2})

    monkeypatch.setattr(shooting, "minimize", minimize)
    problems = [setup.problem for setup in setups]
    states = [np.stack([start, 0.0 * start]) for start in STARTS]
    found = shooting.solve_clips(problems, states, shares=(0.5, 1.0))
    assert [share for share, _ in asked] == [0.5, 1.0]
    np.testing.assert_array_equal(asked[0][1].initial[1], STARTS[1])
    begun = problems[0].parameters["gravity"].value
    assert asked[1][1].parameters["gravity"].value == pytest.approx(begun + 0.1)
    for solution in found:
        assert (solution.iterations, solution.converged) == (6, True)
        assert solution.parameters["gravity"].value == pytest.approx(begun + 0.2)


def test_a_solution_has_the_covariance_of_one_dense_system(setups: list[_Setup], point: _Point) -> None:
    solutions = shooting._solutions(setups, point, 9, True)
    _, dense, parts = _evaluate_all(setups, point, 1.0, True)
    inverse = np.linalg.inv(dense.information)
    for k, (setup, found) in enumerate(zip(setups, solutions, strict=True)):
        assert found.theta_names == ("gravity", "focal")
        np.testing.assert_allclose(found.theta_covariance, inverse[24:, 24:], rtol=1e-3)
        own = np.r_[12 * k : 12 * k + 12, 24, 25]
        last = states_by(setup, point, k)
        expected = last @ inverse[np.ix_(own, own)] @ last.T
        size = np.sqrt(np.diag(expected))
        np.testing.assert_allclose(
            found.covariance[-1] / np.outer(size, size), expected / np.outer(size, size), atol=1e-3
        )
        first = inverse[np.ix_(own[:12], own[:12])]
        size = np.sqrt(np.diag(first))
        np.testing.assert_allclose(found.covariance[0] / np.outer(size, size), first / np.outer(size, size), atol=1e-3)
        assert found.loss == pytest.approx(parts[k].cost)
        np.testing.assert_array_equal(found.states, parts[k].states[setup.knots.frame_knot])
        np.testing.assert_array_equal(found.weights, np.tile(parts[k].weights[:, None], 4))
        fitted = replace(setup.problem, parameters=point.parameters)
        np.testing.assert_allclose(found.residuals, innovations(fitted, found.states))


def states_by(setup: _Setup, at: _Point, clip_index: int) -> Array:
    """Derivatives [12, 14] of the last state's tangent by the start and by what is free."""

    def last(step: Array) -> Array:
        whole = np.zeros(26)
        whole[12 * clip_index : 12 * clip_index + 12], whole[24:] = step[:12], step[12:]
        moved = _moved(setup.problem, at, whole)
        return simulate(
            BALL, moved.initial[clip_index][None], setup.controls[None], system_vector(moved.parameters),
            setup.knots.step_s, substeps=setup.substeps,
        )[0][-1]  # fmt: skip

    base = last(np.zeros(14))
    columns = [BALL.local(base, last(1e-5 * row)) - BALL.local(base, last(-1e-5 * row)) for row in np.eye(14)]
    return np.stack(columns, axis=-1) / 2e-5


def test_what_cannot_be_computed_costs_infinitely_much(
    setups: list[_Setup], point: _Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise SimulationError("it diverges", "a motion", "less")

    monkeypatch.setattr(shooting, "simulate", failing)
    assert _Clips(setups, 1.0).cost(point) == np.inf


def test_derivatives_that_are_not_finite_are_no_solution(
    setups: list[_Setup], point: _Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Dense(np.zeros(26), np.full((26, 26), np.nan), 24)
    monkeypatch.setattr(shooting, "_evaluate_all", lambda *_: (1.0, broken, []))
    with pytest.raises(SimulationError, match="derivatives of the motion are not finite"):
        shooting._solutions(setups, point, 1, True)


def test_parameters_without_a_start_have_the_inverse_of_their_information() -> None:
    root = np.random.default_rng(2).normal(size=(3, 5))
    information = 1e4 * root @ root.T
    null, covariance = shooting.solved(Dense(np.zeros(3), information, 0), np.zeros(3))
    np.testing.assert_allclose(covariance, np.linalg.inv(information), rtol=1e-6)
    np.testing.assert_array_equal(covariance, null.covariance)


def test_innovations_are_what_the_frame_before_does_not_predict() -> None:
    """One error process that all numbers show: its value of each frame, less what is left of the last one."""
    problem = clip(STARTS[0], 12, 0)
    seen = problem.observation
    visible = np.ones_like(seen.visible)
    visible[5], visible[8, :3] = False, False
    basis = np.zeros((12, 4, 2, 1))
    basis[..., 0] = 1.0
    tiny = np.tile(1e-12 * np.eye(2), (12, 4, 1, 1))
    states = np.tile(STARTS[0], (12, 1))
    values = np.random.default_rng(3).normal(size=12)
    exactly = exact(BALL, states, seen.times_s, POINTS, CAMERA).bearings
    known = replace(
        seen, visible=visible, covariance=tiny, shared_basis=basis, correlation_time_s=np.array([0.04]),
        bearings=exactly + values[:, None, None],
    )  # fmt: skip
    found = innovations(replace(problem, observation=known, parameters=BALL.parameters()), states)
    decay = np.exp(-np.diff(known.error_clock_s) / 0.04)
    expected = (values[1:] - decay * values[:-1]) / np.sqrt(1.0 - decay**2)
    lost = np.isin(np.arange(12), [0, 5, 6])
    assert np.isnan(found[lost]).all()
    np.testing.assert_allclose(found[~lost, 0], expected[~lost[1:]], rtol=1e-4)


def test_residuals_of_bearings_are_measured_minus_predicted() -> None:
    problem = clip(STARTS[0], 12, 0)
    states = np.tile(STARTS[0], (12, 1))
    found = residual_bearings(problem, states)
    seen, predicted = problem.observation, exact(BALL, states, problem.observation.times_s, POINTS, CAMERA).bearings
    np.testing.assert_allclose(found[seen.visible], (seen.bearings - predicted)[seen.visible], atol=1e-12)
    assert np.isnan(found[~seen.visible]).all()
    assert degrees_of_freedom(problem, 5) == 6.0 * 11 - 5
    assert degrees_of_freedom(problem, 500) == 1.0


def test_what_was_not_seen_has_no_residual() -> None:
    problem = clip(STARTS[0], 12, 0)
    off = residuals(problem, problem.parameters, np.tile(STARTS[0], (2, 7, 1)))
    assert off.shape == (2, 7, 8)
    visible = np.repeat(problem.observation.visible[:7], 2, axis=1)
    assert not off[:, ~visible].any()
    assert off[:, visible].all()


def test_a_fit_ends_by_itself_at_the_least_cost(setups: list[_Setup]) -> None:
    """Its slopes vanish, beside those of a start that is off."""
    problems = [setup.problem for setup in setups]
    found = shooting.solve_clips(problems, [start[None] for start in STARTS], shares=(1.0,))
    assert found[0].converged
    end = _Point(tuple(each.states[0] for each in found), found[0].parameters)
    begun = _Point(tuple(STARTS), problems[0].parameters)
    slopes = []
    for at in (end, begun):
        _, dense, _ = _evaluate_all(setups, at, 1.0, True)
        slopes.append(dense.gradient @ np.linalg.solve(dense.information, dense.gradient))
    assert slopes[0] < 1e-3 * slopes[1]


def test_errors_of_a_clip_are_correlated_by_its_clock() -> None:
    problem = clip(STARTS[1], 9, 1)
    seen = problem.observation
    errors = Errors.of(seen)
    expected = np.zeros((72, 72))
    for f in range(9):
        for g in range(9):
            for r, time_s in enumerate((0.05, 3.0)):
                kept = np.exp(-abs(seen.error_clock_s[f] - seen.error_clock_s[g]) / time_s)
                effect = [seen.shared_basis[h, :, :, r].ravel() for h in (f, g)]
                expected[8 * f : 8 * f + 8, 8 * g : 8 * g + 8] += kept * np.outer(*effect)
        for k in range(4):
            at = slice(8 * f + 2 * k, 8 * f + 2 * k + 2)
            expected[at, at] += seen.covariance[f, k]
    np.testing.assert_allclose(errors.of_clip(), expected, rtol=1e-9, atol=1e-18)
    np.testing.assert_array_equal(errors.used, np.repeat(seen.visible, 2, axis=1))


def test_the_bound_is_the_inverse_of_the_information_of_the_clip() -> None:
    """Of the place of a ball at rest and of nothing else; infinite where nothing tells of an unknown."""
    problem = replace(clip(STARTS[1], 9, 1), parameters=BALL.parameters())
    base, units = np.array([0.1, -0.2, 0.3]), np.array([0.1, 0.2, 0.05])

    def roll(values: Array) -> Array:
        states = np.tile(STARTS[1], (len(values), 9, 1))
        states[:, :, :3] = values[:, None, :3]
        return states

    rows = []
    for axis in range(3):
        ends = [
            residuals(problem, problem.parameters, roll((base + s * 1e-5 * np.eye(3)[axis])[None])) for s in (1.0, -1.0)
        ]
        rows.append((ends[0] - ends[1]).ravel() / 2e-5)
    errors = Errors.of(problem.observation)
    kept = errors.used.ravel()
    slopes, total = np.array(rows).T[kept], errors.of_clip()[np.ix_(kept, kept)]
    expected = np.linalg.inv(slopes.T @ np.linalg.solve(total, slopes))
    np.testing.assert_allclose(cramer_rao(problem, roll, base, units), expected, rtol=1e-3)
    assert np.isinf(cramer_rao(problem, roll, np.append(base, 1.0), np.append(units, 1.0))).all()


def test_residuals_of_a_clip_are_whitened_as_a_whole() -> None:
    """Their squares are those under the inverse covariance; variances of what they move are split without a rest."""
    problem = clip(STARTS[1], 9, 1)
    errors, rng = Errors.of(problem.observation), np.random.default_rng(6)
    weights = rng.uniform(0.2, 1.0, errors.used.shape)
    whole = ClipResiduals(problem, weights)
    kept = errors.used.ravel()
    off = 1e-3 * rng.normal(size=(2, *errors.used.shape))
    scaled = (np.sqrt(weights) * off).reshape(2, -1)[:, kept]
    total = errors.of_clip()[np.ix_(kept, kept)]
    white = whole.whitened(off)
    expected = np.einsum("bi,ij,bj->b", scaled, np.linalg.inv(total), scaled)
    np.testing.assert_allclose((white**2).sum(axis=1), expected, rtol=1e-6)
    gain = rng.normal(size=(3, kept.sum()))
    np.testing.assert_allclose(sum(whole.variances(gain).values()), (gain**2).sum(axis=1), rtol=1e-6)
    lost = off.copy()
    lost[0, 2] = np.nan
    assert np.isfinite(whole.whitened(lost)).all()
    assert (whole.whitened(lost)[0] ** 2).sum() > (white[0] ** 2).sum(), "behind the camera is far off"


def test_measurements_that_disagree_with_a_motion_count_less() -> None:
    """Each keypoint by the mean square of its two numbers, under its own and its lasting errors."""
    problem = replace(clip(STARTS[1], 9, 1), parameters=BALL.parameters())
    seen = problem.observation
    bearings = seen.bearings.copy()
    bearings[2, 1] += 0.2
    problem = replace(problem, observation=replace(seen, bearings=bearings, visible=np.ones_like(seen.visible)))
    states = np.tile(STARTS[1], (9, 1))
    found = ClipResiduals.about(problem, states)._scale.reshape(9, 4, 2) ** 2
    off = residuals(problem, problem.parameters, states).reshape(9, 4, 2)
    total = seen.covariance + seen.shared_basis @ np.swapaxes(seen.shared_basis, -1, -2)
    square = np.einsum("fki,fkij,fkj->fk", off, np.linalg.inv(total), off) / 2.0
    np.testing.assert_allclose(found, np.minimum(1.0, 6.0 / (5.0 + square))[..., None].repeat(2, axis=-1), rtol=1e-6)
    assert found[2, 1, 0] == found.min()

"""Steps, covariances and starts of the fit of configurations, beside slow sums and differences, on a linear body."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from vid2phys.engine.pnp import OUTLIER_SIGMA, STUDENT_NU
from vid2phys.geometry import make_transform
from vid2phys.tracking.articulated.config import DEFAULTS
from vid2phys.tracking.articulated.kinematic_fit import (
    Configurations,
    _Data,
    _descend,
    _finish,
    _step,
    find_minima,
    fit_configurations,
)
from vid2phys.types import Array

POINTS, SIZE = 6, 3
RNG = np.random.default_rng(0)
PLACES, WAYS = RNG.normal(0.0, 0.1, (POINTS, 3)), RNG.normal(0.0, 0.1, (POINTS, 3, SIZE))
POSE = make_transform(Rotation.from_euler("xyz", [0.4, -0.3, 0.2]).as_matrix(), np.array([0.1, -0.05, 1.2]))


class Linear:
    """A body whose points move along straight lines."""

    rest = np.array([0.1, 0.0, -0.1])
    prior_mean, prior_std = np.array([0.2, -0.1, 0.0]), np.array([0.5, 0.8, 1.1])
    lower, upper = np.array([-1.0, -1.5, -2.0]), np.array([1.0, 1.5, 2.0])

    def points(self, at: Array) -> Array:
        return np.asarray(PLACES + np.einsum("kid,...d->...ki", WAYS, at))

    def points_jacobian(self, at: Array) -> Array:
        return np.broadcast_to(WAYS, (*at.shape[:-1], *WAYS.shape))

    def retract(self, at: Array, step: Array) -> Array:
        return np.clip(at + step, self.lower, self.upper)


BODY: Any = Linear()


def seen_from(at: Array) -> Array:
    """Return bearings [K, 2], point by point."""
    inside = [POSE[:3, :3] @ point + POSE[:3, 3] for point in BODY.points(at)]
    return np.array([point[:2] / point[2] for point in inside])


def data(truth: Array, spread: float = 0.01, nearest_m: float = 0.01) -> _Data:
    """Return fits [M] of configurations [M, D] seen with noise, with errors of different sizes and ways."""
    noise = np.random.default_rng(1).normal(0.0, spread, (len(truth), POINTS, 2))
    whitener = 100.0 * (np.eye(2) + np.random.default_rng(2).normal(0.0, 0.3, (len(truth), POINTS, 2, 2)))
    bearings = np.stack([seen_from(at) for at in truth]) + noise
    return _Data(BODY, np.broadcast_to(POSE, (len(truth), 4, 4)), bearings, whitener, nearest_m)


SOME = np.array([[0.3, -0.2, 0.4], [-0.5, 0.6, 0.1]])


def test_residuals_are_whitened_and_predictions_move_as_differences_say() -> None:
    given, at, step = data(SOME), SOME + 0.1, 1e-6
    for m in range(2):
        off = given.bearings[m] - seen_from(at[m])
        expected = [given.whitener[m, k] @ off[k] for k in range(POINTS)]
        np.testing.assert_allclose(given.residuals(at)[m], expected, atol=1e-9)
    for d in range(SIZE):
        way = step * np.eye(SIZE)[d]
        slope = (given.residuals(at - way) - given.residuals(at + way)) / (2.0 * step)
        np.testing.assert_allclose(given.jacobian(at)[..., d], slope, rtol=1e-5, atol=1e-5)
    behind = replace(given, nearest_m=5.0)
    inside = BODY.points(at) @ POSE[:3, :3].T + POSE[:3, 3]
    expected = given.whitener @ (given.bearings - inside[..., :2] / 5.0)[..., None]
    np.testing.assert_allclose(behind.residuals(at), expected[..., 0])


def test_the_cost_is_that_of_student_t_and_a_normal_prior() -> None:
    given, at = data(SOME), SOME + 0.3
    residual = given.residuals(at)
    for m in range(2):
        cost = sum(0.5 * (STUDENT_NU + 2.0) * np.log(1.0 + (r @ r) / STUDENT_NU) for r in residual[m])
        cost += sum(0.5 * ((at[m, d] - BODY.prior_mean[d]) / BODY.prior_std[d]) ** 2 for d in range(SIZE))
        assert given.cost(at, residual)[m] == pytest.approx(cost)


def normal_equations(given: _Data, at: Array, residual: Array, inflation: float, m: int) -> tuple[Array, Array]:
    """Return Hessian and downhill direction of fit m, point by point, where the weights are as they are."""
    jacobian, prior = given.jacobian(at)[m] / inflation, np.diag(BODY.prior_std**-2.0)
    hessian, downhill = prior.copy(), -prior @ (at[m] - BODY.prior_mean)
    for k in range(POINTS):
        weight = (STUDENT_NU + 2.0) / (STUDENT_NU + residual[m, k] @ residual[m, k])
        hessian += weight * jacobian[k].T @ jacobian[k]
        downhill += weight * jacobian[k].T @ residual[m, k]
    return hessian, downhill


@pytest.mark.parametrize("inflation", [1.0, 4.0])
def test_a_step_solves_damped_normal_equations(inflation: float) -> None:
    given, at, damping = data(SOME), SOME + 0.2, np.array([0.0, 0.7])
    residual = given.residuals(at) / inflation
    found = _step(given, at, residual, inflation, damping)
    for m in range(2):
        hessian, downhill = normal_equations(given, at, residual, inflation, m)
        expected = np.linalg.solve(hessian + damping[m] * np.diag(np.diag(hessian)), downhill)
        np.testing.assert_allclose(found[m], expected, rtol=1e-8)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_coordinate_that_presses_against_its_limit_stays_for_a_step(side: float) -> None:
    """One truth is beyond the limit of the second coordinate, the other one within."""
    limit = BODY.upper if side > 0.0 else BODY.lower
    at = np.array([[0.1, limit[1], 0.2]] * 2)
    given = data(at + np.array([[0.3, 0.4 * side, -0.2], [0.3, -0.9 * side, -0.2]]), spread=0.0)
    residual, damping = given.residuals(at), np.array([0.1, 0.1])
    found = _step(given, at, residual, 1.0, damping)
    for m, kept in ((0, [0, 2]), (1, [0, 1, 2])):
        hessian, downhill = normal_equations(given, at, residual, 1.0, m)
        matrix = (hessian + 0.1 * np.diag(np.diag(hessian)))[np.ix_(kept, kept)]
        expected = np.zeros(SIZE)
        expected[kept] = np.linalg.solve(matrix, downhill[kept])
        np.testing.assert_allclose(found[m], expected, rtol=1e-8, atol=1e-12)
    assert found[1, 1] * side < 0.0


def test_a_descent_ends_where_the_cost_has_no_slope() -> None:
    given = data(SOME)
    start = SOME + np.array([0.4, -0.5, 0.6])
    found = _descend(given, start, DEFAULTS)
    step = 1e-5
    for d in range(SIZE):
        way = step * np.eye(SIZE)[d]
        ahead, behind = (given.cost(at, given.residuals(at)) for at in (found + way, found - way))
        np.testing.assert_allclose((ahead - behind) / (2.0 * step), 0.0, atol=1e-2)
    assert (np.abs(found - start).max(axis=1) > 0.1).all()


def test_points_far_off_state_nothing_and_the_others_their_information() -> None:
    given, seen = data(SOME, spread=0.0), np.ones((2, POINTS), dtype=bool)
    given.bearings[0, 2] += 1.0
    seen[1, 4] = False
    found = _finish(given, SOME, seen)
    expected = np.ones((2, POINTS), dtype=bool)
    expected[0, 2] = expected[1, 4] = False
    np.testing.assert_array_equal(found.inliers, expected)
    jacobian = given.jacobian(SOME)
    for m in range(2):
        information = np.diag(BODY.prior_std**-2.0)
        for k in np.flatnonzero(expected[m]):
            information = information + jacobian[m, k].T @ jacobian[m, k]
        np.testing.assert_allclose(found.covariance[m], np.linalg.inv(information), rtol=1e-8)
    np.testing.assert_allclose(found.chi2, 0.0, atol=1e-12)
    np.testing.assert_allclose(found.cost, given.cost(SOME, given.residuals(SOME)))
    off = np.zeros((2, POINTS, 2))
    for share, counts in ((0.99, True), (1.01, False)):
        off[0, 1, 0] = share * OUTLIER_SIGMA
        moved = replace(given, bearings=given.bearings + np.linalg.solve(given.whitener, off[..., None])[..., 0])
        again = _finish(moved, SOME, seen)
        assert again.inliers[0, 1] == counts
        assert again.chi2[0] == pytest.approx((share * OUTLIER_SIGMA) ** 2 if counts else 0.0, abs=1e-9)


def frames() -> tuple[Array, Array]:
    given = data(SOME, spread=0.002)
    precision = np.swapaxes(given.whitener, -1, -2) @ given.whitener
    return given.bearings, np.linalg.inv(precision)


def test_hidden_points_count_as_if_they_were_not_there() -> None:
    """One point is not visible, one has no place and one no covariance; a point that is far off counts little."""
    bearings, covariance = frames()
    whole = fit_configurations(BODY, POSE, bearings, covariance)
    assert np.abs(whole.configuration - SOME).max() < 0.2
    visible = np.ones((2, POINTS), dtype=bool)
    visible[0, 1], bearings[0, 1] = False, 9.0
    bearings[0, 3, 1], covariance[1, 2, 0, 0] = np.nan, np.nan
    found = fit_configurations(BODY, np.stack([POSE, POSE]), bearings, covariance, visible=visible)
    assert np.isfinite(found.configuration).all()
    np.testing.assert_array_equal(np.argwhere(~found.inliers), [[0, 1], [0, 3], [1, 2]])
    for m, kept in ((0, [0, 2, 4, 5]), (1, [0, 1, 3, 4, 5])):
        whitener = np.linalg.inv(np.linalg.cholesky(covariance[m : m + 1, kept]))
        jacobian = np.zeros((SIZE, SIZE))
        for k, root in zip(kept, whitener[0], strict=True):
            slope = [
                (seen_from(at) - seen_from(found.configuration[m])) / 1e-6
                for at in found.configuration[m] + 1e-6 * np.eye(SIZE)
            ]
            each = root @ np.stack(slope, axis=-1)[k]
            jacobian += each.T @ each
        information = jacobian + np.diag(BODY.prior_std**-2.0)
        np.testing.assert_allclose(found.covariance[m], np.linalg.inv(information), rtol=1e-3)


def test_starts_are_the_rest_and_bent_to_both_sides_and_within_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[Array]()
    monkeypatch.setattr(
        "vid2phys.tracking.articulated.kinematic_fit._descend",
        lambda data, at, config: begun.append(at) or at,
    )
    bearings, covariance = frames()
    found = find_minima(BODY, POSE, bearings, covariance, config=replace(DEFAULTS, start_offset=0.5))
    usual = [BODY.rest, BODY.prior_mean - 0.5 * BODY.prior_std, BODY.prior_mean + 0.5 * BODY.prior_std]
    np.testing.assert_allclose(begun[0], np.tile(usual, (2, 1)))
    assert found.configuration.shape == (2, 3, SIZE)
    assert found.inliers.shape == (2, 3, POINTS)
    starts = np.array([[[0.0, 0.0, 0.0], [9.0, -9.0, 9.0]], [[0.5, 0.5, 0.5], [0.1, 0.2, 0.3]]])
    again = find_minima(BODY, POSE, bearings, covariance, starts=starts)
    np.testing.assert_allclose(again.configuration, np.clip(starts, BODY.lower, BODY.upper))
    for m in range(2):
        for s in range(2):
            alone = find_minima(
                BODY, POSE, bearings[m : m + 1], covariance[m : m + 1], starts=starts[m : m + 1, s : s + 1]
            )
            assert alone.cost[0, 0] == pytest.approx(again.cost[m, s]), "a start belongs to its frame"


def minima(cost: Any, angles: Any) -> Configurations:
    count = np.shape(cost)
    at = np.stack([np.asarray(angles, dtype=float), np.zeros(count)], axis=-1)
    return Configurations(
        at, np.zeros((*count, 2, 2)), np.asarray(cost), 10.0 * np.asarray(cost), np.ones((*count, 4), bool)
    )


def test_the_best_minimum_of_each_frame_and_those_that_differ() -> None:
    both = minima([[3.0, 1.0, 2.0], [5.0, 6.0, 4.0]], [[0.0, 0.1, 0.2], [0.3, 0.4, 0.5]])
    np.testing.assert_allclose(both.best().cost, [1.0, 4.0])
    np.testing.assert_allclose(both.best().configuration[:, 0], [0.1, 0.5])
    np.testing.assert_allclose(both.best().chi2, [10.0, 40.0])
    one = minima([3.0, 1.0, 2.0, 4.0], [0.0, 0.1, 0.14, -0.5])
    distinct = [float(each.configuration[0]) for each in one.distinct(np.array([0.05, 0.01]))]
    assert distinct == [0.1, 0.0, -0.5]
    one.configuration[2, 1] = 0.02
    assert len(one.distinct(np.array([0.05, 0.01]))) == 4, "a coordinate is enough"
    joined = Configurations.join([both, both], axis=1)
    np.testing.assert_allclose(joined.cost, [[3.0, 1.0, 2.0] * 2, [5.0, 6.0, 4.0] * 2])
    assert joined.configuration.shape == (2, 6, 2)
    assert Configurations.join([both, both]).inliers.shape == (4, 3, 4)

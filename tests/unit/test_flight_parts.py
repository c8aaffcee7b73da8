"""The parts of the search of free flights beside slow sums: errors, costs of stretches, agreement, impacts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vid2phys.solvers.flights import (
    Flights,
    Impact,
    Places,
    _fit,
    _impacts,
    _in_axes,
    _left_over,
    _line_cost,
    _meeting,
    _merged,
    _normal_sums,
    _shared_acceleration,
    _stretches,
    _that_fall,
    _white_scales,
    find_flights,
    flight_residuals,
)
from vid2phys.types import Array

G = np.array([0.4, 9.6, 1.5])
FAR = np.array([0.3, -0.2, 2.0])


def places(points: Array, times_s: Array, across: float = 1e-3, along: float = 5e-3) -> Places:
    """Places with errors across and along the sight lines."""
    rays = points / np.linalg.norm(points, axis=1, keepdims=True)
    onto = rays[:, :, None] * rays[:, None, :]
    return Places(times_s, points, across**2 * (np.eye(3) - onto) + along**2 * onto)


def thrown(times_s: Array, velocity: Array, acceleration: Array = G, start: Array = FAR) -> Array:
    after = (times_s - times_s[0])[:, None]
    return start + velocity * after + 0.5 * acceleration * after**2


def bouncing(count: int = 30) -> tuple[Array, Array, float, Array]:
    """Points and times [count] of two flights, the time of the impact between them, and the kick."""
    times, kick = np.arange(count) / 60.0, np.array([0.2, -5.0, 0.1])
    impact_s = 14.4 / 60.0
    before = thrown(times, np.array([0.5, 0.2, 0.3]))
    after = before + kick * np.maximum(times - impact_s, 0.0)[:, None]
    return after, times, impact_s, kick


def test_axes_are_across_and_along_the_sight() -> None:
    found = places(np.array([[0.0, 0.0, 2.0], [1.0, 1.0, 1.0]]), np.arange(2.0)).axes
    np.testing.assert_allclose(found[0], np.eye(3), atol=1e-12)
    np.testing.assert_allclose(found[1, 2], np.ones(3) / np.sqrt(3.0))
    for axes in found:
        np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-12)
        assert np.linalg.det(axes) == pytest.approx(1.0)


def test_errors_are_scaled_across_and_along() -> None:
    given = places(np.array([[0.4, -0.3, 2.0]] * 3), np.arange(3.0))
    found = _in_axes(given.scaled(2.0, 3.0))
    np.testing.assert_allclose(found, np.tile(np.diag([4e-6, 4e-6, 225e-6]), (3, 1, 1)), atol=1e-15)


def test_errors_are_measured_on_what_no_parabola_explains() -> None:
    times, rng = np.cumsum(np.random.default_rng(0).uniform(0.01, 0.03, 3000)), np.random.default_rng(1)
    points = np.tile(FAR, (3000, 1)) + 0.3 * times[:, None] ** 2 * np.array([1e-4, 2e-4, 1e-4])
    given = places(points, times)
    noise = rng.normal(size=points.shape) * np.array([2e-3, 2e-3, 7.5e-3])
    shaken = replace(given, points=points + np.einsum("nij,ni->nj", given.axes, noise))
    assert _white_scales(shaken) == pytest.approx((2.0, 1.5), rel=0.05)
    assert _white_scales(given) == (0.7, 0.7), "not below 0.7 of what the tracker states"


@pytest.mark.parametrize("acceleration", [None, G])
def test_sums_of_stretches_are_those_of_least_squares(acceleration: Array | None) -> None:
    times, rng = np.cumsum(np.random.default_rng(2).uniform(0.01, 0.03, 12)), np.random.default_rng(3)
    given = places(thrown(times, np.array([1.0, -2.0, 0.5])) + 0.01 * rng.normal(size=(12, 3)), times)
    sums = _normal_sums(given, 3, 11, acceleration)
    for length in (4, 8):
        matrix, vector, square = (part[length - 1] for part in sums)
        after = times[3 : 3 + length] - times[3]
        powers = np.stack([np.ones(length), after, 0.5 * after**2][: 3 if acceleration is None else 2], axis=1)
        wanted = given.points[3 : 3 + length] - given.points[3]
        if acceleration is not None:
            wanted = wanted - 0.5 * after[:, None] ** 2 * acceleration
        rows, right = [], []
        for k in range(length):
            root = np.linalg.cholesky(np.linalg.inv(given.covariance[3 + k])).T
            rows.append(root @ np.kron(powers[k], np.eye(3)))
            right.append(root @ wanted[k])
        solution, rest, _, _ = np.linalg.lstsq(np.concatenate(rows), np.concatenate(right), rcond=None)
        np.testing.assert_allclose(np.linalg.solve(matrix, vector), solution, rtol=1e-5, atol=1e-7)
        assert square - vector @ np.linalg.solve(matrix, vector) == pytest.approx(float(rest[0]), rel=1e-5)
    if acceleration is not None:
        part = np.arange(3, 11)
        assert _line_cost(given, part, acceleration) == pytest.approx(float(rest[0]), rel=1e-5)


def test_stretches_end_at_an_impact_and_leave_outliers_out() -> None:
    points, times, _, _ = bouncing()
    for acceleration in (None, G):
        found = _stretches(places(points, times), acceleration)
        assert [part.tolist() for part in found] == [list(range(15)), list(range(15, 30))]
    spoilt = points.copy()
    spoilt[[0, 29]] += 0.5
    found = _stretches(places(spoilt, times), G)
    assert [part.tolist() for part in found] == [list(range(1, 15)), list(range(15, 29))]


@pytest.mark.parametrize(("least", "acceleration"), [(5, None), (4, G)])
def test_a_stretch_has_frames_enough(least: int, acceleration: Array | None) -> None:
    for count in (least - 1, least):
        times = np.arange(count) / 60.0
        found = _stretches(places(thrown(times, np.ones(3)), times), acceleration)
        assert len(found) == (count == least)


def test_a_fall_of_ten_frames_is_a_flight() -> None:
    times = np.arange(10) / 30.0
    fallen = places(thrown(times, np.array([0.3, -0.5, 0.1])), times)
    found = find_flights(fallen)
    assert found is not None
    assert found.count == 10
    np.testing.assert_allclose(found.acceleration, G, atol=1e-3)
    assert found.contacts.shape == (0, 3)
    assert find_flights(fallen[np.arange(9)]) is None


def test_a_long_flight_counts_as_several() -> None:
    times = np.arange(60) / 10.0
    found = _stretches(places(thrown(times, np.ones(3), 0.0 * G), times), None)
    assert max(times[part[-1]] - times[part[0]] for part in found) <= 2.0
    assert sum(map(len, found)) == 60


def test_a_frame_outside_costs_sixteen_and_a_flight_sixteen_beyond_its_parameters() -> None:
    """Four frames of a flight cost 22, outside 64; so a flight may have residuals of 42 before it is no flight."""
    times = np.arange(4) / 60.0
    bend = np.array([1.0, -3.0, 3.0, -1.0]) / np.sqrt(20.0)  # what no line explains, of unit length
    bend -= np.polyval(np.polyfit(times, bend, 1), times)
    bend /= np.linalg.norm(bend)
    for square, is_flight in ((41.0, True), (43.0, False)):
        points = np.tile([0.0, 0.0, 2.0], (4, 1))
        points[:, 0] += 1e-3 * np.sqrt(square) * bend
        given = Places(times, points, np.tile(np.diag([1e-6, 1e-6, 25e-6]), (4, 1, 1)))
        assert bool(_stretches(given, np.zeros(3))) is is_flight


def test_the_acceleration_that_most_frames_share_is_kept() -> None:
    points, times, _, _ = bouncing(60)
    rolled = thrown(times[:20], np.array([0.1, 0.0, 0.2]), np.array([4.0, 0.0, 0.0]), start=points[-1])
    both = np.concatenate([points, rolled]), np.concatenate([times, times[-1] + (1.0 + np.arange(20)) / 60.0])
    found = _shared_acceleration(places(*both))
    assert found is not None
    np.testing.assert_allclose(found, G, atol=0.02)
    for slow in (0.25, 4.0):
        still = thrown(times, np.ones(3), slow * G)
        assert _shared_acceleration(places(still, times)) is None, "too slow or too fast for gravity"


def test_flights_that_an_outlier_parts_are_one() -> None:
    times = np.arange(20) / 60.0
    given = places(thrown(times, np.array([0.5, -1.0, 0.2])), times)
    parts = [np.arange(8), np.arange(9, 20)]
    found = _merged(given, parts, G)
    assert [part.tolist() for part in found] == [[*range(8), *range(9, 20)]]
    points, times, _, _ = bouncing()
    apart = _merged(places(points, times), [np.arange(15), np.arange(15, 30)], G)
    assert [len(part) for part in apart] == [15, 15]


def test_a_flight_sags_by_eight_deviations() -> None:
    """Of n frames in T seconds the sag is g T^2 / 8, and its error one deviation over the root of n."""
    times = np.arange(16) / 60.0
    sag = np.linalg.norm(G) * times[-1] ** 2 / 8.0
    for factor, falls in ((0.9, True), (1.1, False)):
        std = factor * sag * np.sqrt(16.0) / 8.0
        given = Places(times, thrown(times, np.ones(3)), np.tile(std**2 * np.eye(3), (16, 1, 1)))
        assert bool(_that_fall(given, [np.arange(16)], G)) is falls
    wrong = places(thrown(times, np.ones(3), 0.8 * G), times)
    assert _that_fall(wrong, [np.arange(16)], G) == []


def test_all_flights_share_an_acceleration() -> None:
    points, times, impact_s, kick = bouncing()
    parts = [np.arange(15), np.arange(15, 30)]
    fit = _fit(places(points, times), parts)
    np.testing.assert_allclose(fit.values[:3], G, atol=1e-6)
    np.testing.assert_allclose(fit.middle_s, [times[:15].mean(), times[15:].mean()])
    np.testing.assert_allclose(fit.rows(0, 0.1) @ fit.values, points[6], atol=1e-7)
    np.testing.assert_allclose(fit.velocity(1, impact_s) - fit.velocity(0, impact_s), kick, atol=1e-5)
    pairs, at = _impacts(places(points, times), parts, fit)
    assert pairs == ((0, 1),)
    assert at == pytest.approx([impact_s], abs=1e-4)
    joined = _fit(places(points, times), parts, pairs, np.concatenate([fit.values, at + 5e-3]))
    assert joined.time(0) == pytest.approx(impact_s, abs=1e-6)
    rows, miss, spread = _meeting(joined, 0, 0, 1)
    np.testing.assert_allclose(miss, 0.0, atol=1e-6)
    assert spread == pytest.approx(2e-3 + 1e-3 * np.linalg.norm(kick), rel=1e-4)
    small = 1e-6
    for k in range(len(joined.values)):
        moved = [replace(joined, values=joined.values + s * small * np.eye(len(joined.values))[k]) for s in (1.0, -1.0)]
        ahead, back = (_meeting(each, 0, 0, 1)[1] for each in moved)
        np.testing.assert_allclose(rows[:, k], -(ahead - back) / (2.0 * small), atol=1e-5)


def test_outliers_count_less_by_students_t() -> None:
    """Twelve rounds of weighted least squares, done here for one flight of known errors."""
    times, rng = np.arange(20) / 60.0, np.random.default_rng(5)
    points = thrown(times, np.array([0.5, -1.0, 0.2])) + 1e-3 * rng.normal(size=(20, 3))
    points[7] += 0.02
    given = Places(times, points, np.tile(1e-6 * np.eye(3), (20, 1, 1)))
    after = times - times.mean()
    powers, weights = np.stack([0.5 * after**2, np.ones(20), after], axis=1), np.ones(20)
    for _ in range(40):
        root = np.sqrt(weights)[:, None]
        solution = np.linalg.lstsq(root * powers, root * points, rcond=None)[0]
        square = (((points - powers @ solution) / 1e-3) ** 2).mean(axis=1)
        weights = 6.0 / (5.0 + square)
    fit = _fit(given, [np.arange(20)])
    assert np.abs(fit.values.reshape(3, 3) - solution).max() < 0.05
    information = np.einsum("n,ni,nj->ij", weights, powers, powers) * 1e6
    ratio = np.diag(fit.covariance).reshape(3, 3) / np.diag(np.linalg.inv(information))[:, None]
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=0.05)


def test_impacts_are_between_flights_that_meet() -> None:
    points, times, impact_s, kick = bouncing()
    parts = [np.arange(14), np.arange(16, 30)]
    fit = _fit(places(points, times), parts)
    assert _impacts(places(points, times), parts, fit)[1] == pytest.approx([impact_s], abs=1e-3)
    wide = [np.arange(10), np.arange(18, 30)]
    assert _impacts(places(points, times), wide, _fit(places(points, times), wide))[0] == (), "nine frames apart"
    soft = thrown(times, np.array([0.5, 0.2, 0.3]))
    soft[15:] += 0.05 * kick * (times[15:] - impact_s)[:, None]
    halves = [np.arange(15), np.arange(15, 30)]
    assert _impacts(places(soft, times), halves, _fit(places(soft, times), halves))[0] == (), "0.25 m/s is no impact"
    jumped = points.copy()
    jumped[15:] += np.array([0.0, 0.4, 0.0])
    assert _impacts(places(jumped, times), halves, _fit(places(jumped, times), halves))[0] == (), "they do not meet"


def test_errors_that_are_left_over_count_with_their_correlation() -> None:
    count, rng = 2000, np.random.default_rng(6)
    times = np.arange(count) / 60.0
    given = Places(times, np.tile([0.0, 0.0, 2.0], (count, 1)), np.tile(np.eye(3), (count, 1, 1)))
    white = rng.normal(size=(count, 3)) * np.array([1.5, 1.5, 1.0])
    for k in range(1, count):
        white[k, 2] = 0.5 * white[k - 1, 2] + np.sqrt(0.75) * white[k, 2]
    fit = replace(_fit(given[np.arange(9)], [np.arange(9)]), residuals=(white,))
    across, along = _left_over(given, [np.arange(count)], fit)
    clipped = np.minimum(np.abs(white[:, :2]), 3.0)
    assert across == pytest.approx(np.sqrt((clipped**2).mean()), rel=0.06)
    assert along == pytest.approx(np.sqrt(3.0), rel=0.12), "one and a half over a half"
    exact = replace(fit, residuals=(0.0 * white,))
    assert _left_over(given, [np.arange(count)], exact) == (0.5, 0.5)


def test_residuals_of_known_flights_are_in_deviations() -> None:
    points, times, impact_s, kick = bouncing()
    given = places(points, times)
    shifted = points.copy()
    shifted[3] += 0.5e-3 * given.axes[3, 0]
    known = Flights(
        (np.arange(14), np.arange(16, 30)),
        G,
        np.zeros((1, 3)),
        np.eye(6),
        (Impact(0, 1, impact_s, kick),),
        1.0,
    )
    found = flight_residuals(replace(given, points=shifted), known)
    assert found.shape == (31, 3)
    assert not found[14:16].any()
    assert found[3, 0] == pytest.approx(0.5, abs=0.15)
    assert np.abs(found[16:]).max() < 0.1
    assert known.count == 28

"""Where fits begin: local quadratics, windows, first states of rigid bodies and smoothed coordinates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.flight import camera_poses, fly, watch
from vid2phys.solvers import coordinate_smoothing, initialise
from vid2phys.solvers.gauss_markov import draw_first_order, white_acceleration_precision
from vid2phys.solvers.initialise import local_fit, rigid_states, tricube, window
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array


def test_a_window_has_all_frames_near_by_or_the_nearest_six() -> None:
    times = np.arange(40) / 50.0
    np.testing.assert_array_equal(window(times, times[20]), np.arange(14, 27))
    sparse = np.array([0.0, 0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.1])
    np.testing.assert_array_equal(window(sparse, 2.2), [2, 3, 4, 5, 6, 7])
    np.testing.assert_array_equal(window(sparse[:3], 0.0), [0, 1, 2])


def test_weights_fall_with_the_cube_of_the_distance() -> None:
    found = tricube(np.array([0.0, 0.1, 0.2]), 0.0)
    np.testing.assert_allclose(found, (1.0 - (np.array([0.0, 0.5, 1.0]) / 1.05) ** 3) ** 3)
    np.testing.assert_array_equal(tricube(np.array([0.3]), 0.3), [1.0])


def test_a_quadratic_has_its_value_and_slope_whatever_its_outliers() -> None:
    offsets, weight = np.linspace(-0.12, 0.12, 13), np.ones(13)
    values = np.stack([0.4 - 2.0 * offsets + 5.0 * offsets**2, 1.0 + offsets], axis=1)
    value, slope = local_fit(offsets, values, weight)
    np.testing.assert_allclose(value, [0.4, 1.0], atol=2e-3)
    np.testing.assert_allclose(slope, [-2.0, 1.0], atol=2e-3)
    noisy = values + 1e-3 * np.random.default_rng(0).normal(size=values.shape)
    wrong = noisy.copy()
    wrong[9] += 0.5
    plain, robust = local_fit(offsets, noisy, weight), local_fit(offsets, wrong, weight)
    np.testing.assert_allclose(robust[0], plain[0], atol=2e-3)
    np.testing.assert_allclose(robust[1], plain[1], atol=0.03)


def test_a_local_fit_is_that_of_weighted_least_squares() -> None:
    """Four rounds; a residual of three medians counts half."""
    rng, offsets = np.random.default_rng(1), np.linspace(-0.1, 0.14, 11)
    values, weight = rng.normal(size=(11, 2)), rng.uniform(0.2, 1.0, 11)
    basis, robust = np.stack([offsets**0, offsets, offsets**2], axis=1), np.ones(11)
    for _ in range(4):
        root = np.sqrt(weight * robust)[:, None]
        rows = np.concatenate([root * basis, np.diag([0.0, 1e-3, 10**-2.5])])
        solution = np.linalg.lstsq(rows, np.concatenate([root * values, np.zeros((3, 2))]), rcond=None)[0]
        size = np.linalg.norm(values - basis @ solution, axis=1)
        robust = 1.0 / (1.0 + (size / (3.0 * np.median(size))) ** 2)
    value, slope = local_fit(offsets, values, weight)
    np.testing.assert_allclose([value, slope], solution[:2], rtol=1e-6)


def test_first_states_follow_the_flight() -> None:
    flight = fly(0.5)
    rotation, translation = camera_poses(flight)
    problem = Problem(flight.system, flight.parameters, watch(flight), flight.camera_to_world, actions=flight.actions)
    found = rigid_states(problem, rotation, translation)
    assert len(found) == len(flight.states)
    inner = slice(3, -3)
    off = flight.system.local(flight.states, found)[inner]
    np.testing.assert_allclose(off[:, :3], 0.0, atol=3e-3)
    np.testing.assert_allclose(off[:, 3:6], 0.0, atol=0.03)
    np.testing.assert_allclose(off[:, 6:9], 0.0, atol=0.1)
    np.testing.assert_allclose(off[:, 9:], 0.0, atol=1.2)
    lost = translation.copy()
    lost[7] = np.nan
    again = rigid_states(problem, rotation, lost)
    np.testing.assert_allclose(flight.system.local(found, again)[:, :3], 0.0, atol=3e-3)


def test_first_inputs_are_those_that_fly_the_motion() -> None:
    """A quadrotor that hovers needs none; one that rises faster and faster needs that acceleration as thrust."""
    flight = fly(0.5)
    problem = Problem(flight.system, flight.parameters, watch(flight), flight.camera_to_world)
    knots = len(flight.states)
    rest = np.tile(flight.system.rest_state(), (knots, 1))
    np.testing.assert_allclose(initialise.first_inputs(problem, rest), 0.0, atol=1e-6)
    without_drag = replace(problem, parameters=problem.parameters.with_values({"drag": 0.0}))
    time = flight.times_s
    rising = rest.copy()
    rising[:, 2], rising[:, 9] = 0.75 * time**2, 1.5 * time
    found = initialise.first_inputs(without_drag, rising)
    assert found.shape[0] == knots
    np.testing.assert_allclose(found[:, 0], 1.5, atol=0.03)
    np.testing.assert_allclose(found[:, 1:], 0.0, atol=1e-6)
    np.testing.assert_array_equal(found[-1], found[-2])
    recorded = replace(problem, actions=flight.actions)
    assert not initialise.first_inputs(recorded, rising).any(), "they are disturbances"


def test_smoothed_coordinates_are_those_of_one_dense_system() -> None:
    """Two coordinates at uneven times with correlated errors and a gap; the start is hardly known."""
    rng = np.random.default_rng(2)
    times = np.cumsum(rng.uniform(0.02, 0.06, 9))
    steps, density = np.diff(times), np.array([3.0, 5.0])
    precision = white_acceleration_precision(steps, density=density)
    root = rng.normal(size=(9, 2, 2))
    covariance = 1e-4 * (np.eye(2) + 0.3 * root @ np.swapaxes(root, 1, 2))
    measured, shown = rng.normal(size=(9, 2)), np.arange(9) != 4
    measured[4] = np.nan
    states, errors = coordinate_smoothing._smoothed(steps, np.linalg.inv(precision), measured, covariance, shown)
    information, right = np.zeros((36, 36)), np.zeros(36)
    first = np.append(measured[0], [0.0, 0.0])
    prior = np.eye(4) / coordinate_smoothing._FAST**2
    information[:4, :4] += prior
    right[:4] += prior @ first
    for t in range(9):
        own = slice(4 * t, 4 * t + 2)
        if shown[t]:
            information[own, own] += np.linalg.inv(covariance[t])
            right[own] += np.linalg.solve(covariance[t], measured[t])
        if t < 8:
            ahead = np.eye(4)
            ahead[:2, 2:] = steps[t] * np.eye(2)
            rows = np.concatenate([-ahead, np.eye(4)], axis=1)
            both = slice(4 * t, 4 * t + 8)
            information[both, both] += rows.T @ precision[t] @ rows
    inverse = np.linalg.inv(information)
    np.testing.assert_allclose(states.ravel(), inverse @ right, rtol=1e-5, atol=1e-6)
    for t in range(9):
        own = slice(4 * t, 4 * t + 4)
        np.testing.assert_allclose(errors[t], inverse[own, own], rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("density", [0.3, 3.0, 30.0])
def test_the_density_of_accelerations_is_that_of_the_motion(density: float) -> None:
    rng, step = np.random.default_rng(3), 0.05
    times, speed, place = step * np.arange(400), 0.0, 0.0
    values = np.empty(400)
    root = np.linalg.cholesky(density**2 * np.array([[step**3 / 3.0, step**2 / 2.0], [step**2 / 2.0, step]]))
    for t in range(400):
        values[t] = place + 1e-3 * rng.normal()
        noise = root @ rng.normal(size=2)
        place, speed = place + step * speed + noise[0], speed + noise[1]
    values[7] = np.nan
    found = coordinate_smoothing._density(times, values, np.full(400, 1e-6))
    assert found == pytest.approx(density, rel=0.25)
    assert coordinate_smoothing._density(times[:2], values[:2], np.full(2, 1e-6)) == 1.0


def test_drawn_processes_have_unit_variance_and_forget() -> None:
    times = np.cumsum(np.tile([0.05, 0.15], 5000))
    drawn: Array = draw_first_order(np.random.default_rng(4), times, np.array([0.2, 0.0]))
    np.testing.assert_allclose(drawn.std(axis=0), 1.0, atol=0.03)
    one, other = drawn[1:, 0], drawn[:-1, 0]
    assert np.mean((one * other)[::2]) == pytest.approx(np.exp(-0.15 / 0.2), abs=0.04)
    assert np.mean((one * other)[1::2]) == pytest.approx(np.exp(-0.05 / 0.2), abs=0.04)
    assert abs(np.mean(drawn[1:, 1] * drawn[:-1, 1])) < 0.04

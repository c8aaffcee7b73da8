"""The equations of a camera by falls and impacts beside slow sums: residuals, reach, mixture, and angles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vid2phys.geometry import matrix_from_rotvec
from vid2phys.solvers.camera_from_motion import (
    CameraEstimate,
    CameraPrior,
    Motion,
    _Equations,
    _from_the_ground,
    _Minimum,
    _mixture,
    _moved,
    estimate_from_flights,
    level_camera,
)
from vid2phys.solvers.flights import Flights, Impact
from vid2phys.types import Array

PRIOR = CameraPrior(0.3, 0.05, 9.81, 0.02)
TRUE_FOCAL, G = 0.12, 9.81
DOWN = np.array([0.05, 0.8, 0.6]) / np.linalg.norm([0.05, 0.8, 0.6])
SPEEDS, HALF_S, GROUND = np.array([3.0, 2.0, 1.2]), 8e-4, 1.5


def motion_of() -> Motion:
    """A box that rotates, with its centre anywhere."""
    times = np.arange(40) / 30.0
    corners = np.array([[x, y, z] for x in (-0.06, 0.06) for y in (-0.04, 0.04) for z in (-0.02, 0.02)])
    rotation = matrix_from_rotvec(times[:, None] * np.array([0.6, -0.4, 0.9]))
    return Motion(times, np.zeros((40, 3)), np.zeros((40, 3, 3)), rotation, corners)


MOTION = motion_of()
IMPACTS_S = np.array([0.41, 0.75, 1.013])


def reach_at(time_s: float, down: Array) -> tuple[float, float]:
    """How far the box reaches down in the frames beside a time: the further, and half the difference."""
    before = int(np.floor(time_s * 30.0))
    pair = [
        max(float(rotation @ corner @ down) for corner in MOTION.vertices)
        for rotation in MOTION.rotation[before : before + 2]
    ]
    return max(pair), 0.5 * abs(pair[1] - pair[0])


def flights_of(noise: float = 0.0) -> Flights:
    """What a camera of another focal length sees of a fall and of three impacts on a level ground."""
    rng, metric = np.random.default_rng(0), np.array([1.0, 1.0, np.exp(TRUE_FOCAL)])
    places = np.array([[-0.4, 0.1, 2.0], [0.2, 0.0, 2.4], [0.5, -0.1, 1.7]])
    contacts = []
    for place, time_s, speed in zip(places, IMPACTS_S, SPEEDS, strict=True):
        height = GROUND - reach_at(time_s, DOWN)[0] + HALF_S * speed
        contacts.append((place + (height - place @ DOWN) * DOWN) / metric)
    root = rng.normal(size=(12, 12)) * np.repeat([0.02, 1e-3, 1e-3, 1e-3], 3)[:, None]
    kicks = [-speed * DOWN for speed in SPEEDS]
    impacts = tuple(Impact(k, k + 1, float(t), kick) for k, (t, kick) in enumerate(zip(IMPACTS_S, kicks, strict=True)))
    acceleration = G * DOWN / metric + noise * rng.normal(size=3)
    return Flights(
        tuple(np.arange(10) + 10 * k for k in range(4)),
        acceleration,
        np.array(contacts),
        root @ root.T / 12.0,
        impacts,
        1.0,
    )


def equations(struck: tuple[int, ...] = (0, 1, 2)) -> _Equations:
    return _Equations(flights_of(), MOTION, PRIOR, np.array(struck, dtype=np.int64))


def test_a_body_reaches_as_far_down_as_in_the_frames_beside_the_impact() -> None:
    reach, error = equations().reach(DOWN)
    expected = np.array([reach_at(t, DOWN) for t in IMPACTS_S])
    np.testing.assert_allclose(reach, expected[:, 0])
    np.testing.assert_allclose(error, expected[:, 1])


def test_residuals_are_of_the_fall_of_heights_and_of_priors() -> None:
    them, log_focal = equations((0, 2)), 0.07
    flights, metric = them.flights, np.array([1.0, 1.0, np.exp(log_focal)])
    tangents = np.linalg.svd(DOWN[None])[2][1:]
    at = np.array([0.0, 0.0, 0.0, 1.4, 5e-4])
    residuals, logdet = them._residuals(log_focal, DOWN, tangents, at)
    values = np.array([0.02, -0.01, 0.03, 1.45, 9e-4])
    here = DOWN + values[:2] @ tangents
    here /= np.linalg.norm(here)
    fall = flights.acceleration - G * np.exp(0.03) * here / metric
    contacts = flights.contacts[[0, 2]] * metric
    reach = np.array([reach_at(IMPACTS_S[k], DOWN) for k in (0, 2)])
    heights = contacts @ here + reach[:, 0] - 1.45 - 9e-4 * SPEEDS[[0, 2]]
    slopes = np.zeros((5, 12))
    slopes[:3, :3] = np.eye(3)
    slopes[3, 3:6], slopes[4, 9:12] = DOWN * metric, DOWN * metric
    covariance = slopes @ flights.covariance @ slopes.T
    covariance += np.diag([*((0.003 * G) ** 2 / metric**2), 0.0, 0.0])
    about = np.linalg.norm(contacts - contacts.mean(axis=0), axis=1)
    covariance += np.diag([0.0] * 3 + (4e-6 + (0.004 * about) ** 2 + reach[:, 1] ** 2).tolist())
    found = residuals(values)
    seen = np.concatenate([fall, heights])
    assert (found[:5] ** 2).sum() == pytest.approx(seen @ np.linalg.solve(covariance, seen))
    np.testing.assert_allclose(found[5:8], [here[0] / 0.6, here[2] / 0.6, 0.03 / 0.02])
    np.testing.assert_allclose(found[8:], [0.05 / 1e3, (9e-4 - 5e-4) / 1e-3])
    assert logdet == pytest.approx(np.linalg.slogdet(covariance)[1])


def test_the_best_unknowns_at_the_true_focal_length_are_true() -> None:
    them = equations()
    near = _moved(DOWN, np.linalg.svd(DOWN[None])[2][1:], np.array([0.1, -0.1]))
    found = them.minimum(TRUE_FOCAL, near)
    np.testing.assert_allclose(found.down, DOWN, atol=0.01)
    assert found.values[2] == pytest.approx(0.0, abs=0.01)
    assert found.values[3] == pytest.approx(GROUND, abs=0.02)
    residuals, logdet = them._residuals(TRUE_FOCAL, found.down, found.tangents, found.values)
    prior = 0.5 * ((TRUE_FOCAL - 0.05) / 0.3) ** 2
    expected = 0.5 * (residuals(found.values) ** 2).sum() + 0.5 * logdet + prior
    assert found.cost == pytest.approx(expected, abs=0.02)
    assert abs(found.tangents @ found.down).max() < 1e-9
    off = them.minimum(TRUE_FOCAL + 0.3, near)
    assert off.cost > found.cost
    start = them._start(TRUE_FOCAL, DOWN)
    np.testing.assert_allclose(start, [0, 0, 0, GROUND + HALF_S * SPEEDS.mean(), 5e-4], atol=1e-9)
    assert equations(())._start(0.0, DOWN)[3] == 0.0


def test_impacts_of_one_level_ground_tell_of_the_focal_length() -> None:
    prior = CameraPrior(0.1, 0.05, G, 0.02)
    found = estimate_from_flights(flights_of(), MOTION, prior)
    assert found.impacts == 3
    assert found.ground_m is not None
    assert abs(found.log_focal - TRUE_FOCAL) < 2.0 * found.std("log_focal")
    assert abs(found.ground_m - GROUND) < 2.0 * found.std("ground_m")
    assert np.abs(found.down - DOWN).max() < 0.03
    step = flights_of()
    step.contacts[1] += 0.2 * DOWN
    free = estimate_from_flights(step, MOTION, prior)
    assert (free.impacts, free.ground_m) == (0, None), "heights of no one ground"
    assert free.std("log_focal") > 1.2 * found.std("log_focal")


def test_a_mixture_has_the_mean_and_the_covariance_of_its_parts() -> None:
    rng, them = np.random.default_rng(3), equations()
    grid, weight, parts = np.array([0.0, 0.1]), np.array([0.3, 0.7]), []
    for k in range(2):
        down = _moved(DOWN, np.linalg.svd(DOWN[None])[2][1:], np.array([0.01 * k, 0.02]))
        root = rng.normal(size=(5, 5)) + 20.0 * np.eye(5)
        parts.append(_Minimum(rng.normal(size=5) * 0.1, np.linalg.svd(down[None])[2][1:], down, root @ root.T, 0.0))
    found = _mixture(them, grid, weight, parts)
    rows = np.array([[g, *p.down, p.values[2], p.values[3]] for g, p in zip(grid, parts, strict=True)])
    mean = weight @ rows
    covariance = sum(w * np.outer(r - mean, r - mean) for w, r in zip(weight, rows, strict=True))
    for w, p in zip(weight, parts, strict=True):
        slopes = np.zeros((6, 5))
        slopes[1:4, :2] = p.tangents.T
        slopes[4, 2] = slopes[5, 3] = 1.0
        covariance = covariance + w * slopes @ np.linalg.inv(p.hessian) @ slopes.T
    np.testing.assert_allclose(found.covariance, covariance)
    assert found.log_focal == pytest.approx(0.07)
    np.testing.assert_allclose(found.down, mean[1:4] / np.linalg.norm(mean[1:4]))
    assert found.gravity == pytest.approx(G * np.exp(mean[4]))
    assert found.ground_m == pytest.approx(mean[5])


@pytest.mark.parametrize(("angle", "is_ground"), [(0.0, True), (45.0, True), (46.5, False), (180.0, False)])
def test_kicks_of_the_ground_are_upward(angle: float, is_ground: bool) -> None:
    aside = np.cross(DOWN, [1.0, 0.0, 0.0])
    aside /= np.linalg.norm(aside)
    kick = 2.5 * (-np.cos(np.radians(angle)) * DOWN + np.sin(np.radians(angle)) * aside)
    impacts = (Impact(0, 1, 0.5, kick), Impact(1, 2, 0.8, 0.1 * DOWN))
    found = _from_the_ground(replace(flights_of(), impacts=impacts), DOWN)
    assert found.tolist() == ([0] if is_ground else [])
    assert _from_the_ground(replace(flights_of(), impacts=()), DOWN).tolist() == []


def test_a_camera_without_a_fall_is_level_to_some_degrees() -> None:
    found = level_camera(PRIOR)
    assert (found.log_focal, found.gravity, found.ground_m, found.flights) == (0.05, 9.81, None, None)
    std = np.sqrt(np.diag(found.covariance))
    np.testing.assert_allclose(std, [0.3, np.radians(5.0), 0.0, np.radians(15.0), 0.02, 0.0])
    assert found.pitch == (0.0, pytest.approx(np.radians(15.0)))
    assert found.roll == (0.0, pytest.approx(np.radians(5.0)))


def test_angles_have_the_deviations_of_differences() -> None:
    rng = np.random.default_rng(4)
    root = 0.01 * rng.normal(size=(6, 6))
    found = CameraEstimate(0.0, DOWN, G, 1.0, root @ root.T, None)

    def angles(down: Array) -> Array:
        return np.array([np.arcsin(down[2]), np.arctan2(down[0], down[1])])

    slopes = np.stack([(angles(DOWN + s) - angles(DOWN - s)) / 2e-6 for s in 1e-6 * np.eye(3)], axis=1)
    pitch, roll = np.sqrt(np.diag(slopes @ found.covariance[1:4, 1:4] @ slopes.T))
    assert found.pitch == (pytest.approx(np.arcsin(DOWN[2])), pytest.approx(pitch, rel=1e-4))
    assert found.roll == (pytest.approx(np.arctan2(DOWN[0], DOWN[1])), pytest.approx(roll, rel=1e-4))
    to_world = matrix_from_rotvec(np.array([0.3, -0.2, 0.5]))
    x_std, y_std = found.rotation_std(to_world)
    assert x_std == pytest.approx(np.sqrt(to_world[1] @ found.covariance[1:4, 1:4] @ to_world[1]))
    assert y_std == pytest.approx(np.sqrt(to_world[0] @ found.covariance[1:4, 1:4] @ to_world[0]))
    directions = np.array([[1.0, 0.0, 0.0, 0.0, 0.0, 1.0]])
    better = found.known(directions, 0.005)
    inverse = np.linalg.inv(found.covariance) + directions.T @ directions / 0.005**2
    np.testing.assert_allclose(better.covariance, np.linalg.inv(inverse), rtol=1e-5, atol=1e-12)

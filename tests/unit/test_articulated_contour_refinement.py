"""Configurations of a clip moved to the body's edges, and what they state afterwards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.test_articulated_contour import body_and_camera, minima, photograph, window
from vid2phys.tracking.articulated.contour_refinement import (
    RefinedConfigurations,
    per_coordinate,
    refine_contours,
    smoothed,
)
from vid2phys.tracking.articulated.detector import ConfigurationDetections, configuration_modes
from vid2phys.tracking.articulated.tracker import FrameFits, _observe, _shared_std
from vid2phys.tracking.uncertainty.articulated import first_calibration
from vid2phys.types import Array


@pytest.mark.parametrize("name", ["rod", "hand"])
def test_frames_that_are_asked_for_are_moved_to_their_edges(name: str) -> None:
    body, camera = body_and_camera(name)
    rng = np.random.default_rng(5)
    truth = np.stack([body.sample(rng) for _ in range(3)])
    flat = np.full((240, 320, 3), 90, np.uint8)
    images = [photograph(body, camera, truth[0]), photograph(body, camera, truth[1]), flat]
    off = 0.1 * body.prior_std * rng.normal(size=truth.shape)
    read = minima(*np.clip(truth + off, body.lower, body.upper), std=0.02 * body.prior_std)
    calibration = first_calibration(body)
    calibration = replace(
        calibration, mode_std=(*(0.3 * body.prior_std), 0.003, 0.003), mode_exponent=(0.0,) * (len(off[0]) + 2)
    )
    times_s = 0.05 * np.arange(3)
    shared_std = calibration.mode_scale(np.full(3, window(camera, body).diameter_px), np.full(3, 0.9))
    found = refine_contours(images, body, window(camera, body), read, shared_std, np.array([0, 2]), times_s)

    def apart(configuration: Array) -> float:  # as the camera sees it
        seen, true = (window(camera, body).project(body.vertices(each)) for each in (configuration, truth[0]))
        return float(np.linalg.norm(seen - true, axis=-1).mean())

    assert apart(found.configuration[0]) < 0.7 * apart(read.configuration[0])
    np.testing.assert_array_equal(found.moved, [True, False, False], "not asked for, and without edges")
    np.testing.assert_array_equal(found.configuration[1:], read.configuration[1:])
    np.testing.assert_allclose(found.columns @ np.swapaxes(found.columns, 1, 2), found.covariance, rtol=1e-9)
    before = found.covariance[1]
    if body.bends:  # whose points count 20 times less
        before = np.linalg.inv(np.linalg.inv(before) / 20.0 + np.diag(body.prior_std**-2.0))
    assert np.linalg.det(found.covariance[0]) < 0.1 * np.linalg.det(before), "edges make it surer"


def test_observations_follow_the_edges_and_state_what_they_tell_together() -> None:
    """The observation has the configuration with its covariance, scaled, and the keypoints as they were detected."""
    body, camera = body_and_camera("rod")
    here, size = window(camera, body), len(body.rest)
    rng = np.random.default_rng(6)
    read = minima(body.sample(rng), std=0.02 * body.prior_std)
    mixed = rng.normal(size=(size, size)) * 0.01 * body.prior_std[:, None]
    better = RefinedConfigurations(
        read.configuration + 0.05 * body.prior_std, (mixed @ mixed.T)[None], np.array([True])
    )
    scale = rng.uniform(0.5, 2.0, size)
    calibration = replace(
        first_calibration(body), contour_scale=tuple(scale), contour_correlation_s=(0.5,) + (0.05,) * (size - 1)
    )
    bearings = here.project(body.points(read.configuration))
    count = bearings.shape[1]
    point = np.broadcast_to(np.eye(2) * 1e-8, (1, count, 2, 2))
    there = np.ones((1, count), bool)
    seen = ConfigurationDetections(bearings, there, point, point, there, read, read, np.ones(1))
    read = replace(read, inliers=there)
    fits = FrameFits(seen, read, better, np.ones(1), np.array([True]))
    observed = _observe(np.zeros(1), body, here, fits, calibration)
    assert observed.configuration is not None
    np.testing.assert_allclose(observed.bearings, bearings)
    np.testing.assert_array_equal(observed.configuration.configuration, better.configuration)
    columns = np.linalg.cholesky(mixed @ mixed.T) * scale
    np.testing.assert_allclose(observed.configuration.shared_basis[0], np.hstack([columns, np.zeros((size, 2))]))
    modes = configuration_modes(body, here, better.configuration).reshape(2 * count, -1)
    shift = _shared_std(here, np.ones(1), calibration)[0, size:]
    total = 1e-8 * np.eye(2 * count) + modes[:, size:] * shift**2 @ modes[:, size:].T
    information = modes[:, :size].T @ np.linalg.solve(total, modes[:, :size]) + np.diag((3.0 * body.prior_std) ** -2.0)
    own = observed.configuration.covariance[0]
    np.testing.assert_allclose(own @ information, np.eye(size), atol=1e-4, err_msg="the information of the keypoints")
    longer = [0.5, *(0.2,) * (size + 1)]
    np.testing.assert_allclose(observed.process_time_s, longer, err_msg="the longer of both, the shift as it was")
    nowhere = replace(better, moved=np.array([False]))
    stays = _observe(np.zeros(1), body, here, replace(fits, refined=nowhere), calibration)
    assert not stays.measured.any()
    np.testing.assert_allclose(stays.process_time_s, 0.2)
    np.testing.assert_allclose(better.errors(calibration)[0], columns)
    np.testing.assert_allclose(nowhere.errors(calibration)[0] * scale, columns, err_msg="without edges not scaled")


def test_nothing_is_seen_in_a_lost_frame() -> None:
    """Of two frames the second is lost; a point outside of the frame and one that does not agree are not visible."""
    body, camera = body_and_camera("hand")
    here, size = window(camera, body), len(body.rest)
    rng = np.random.default_rng(6)
    read = minima(body.sample(rng), body.sample(rng), std=0.02 * body.prior_std)
    bearings = here.project(body.points(read.configuration))
    count = bearings.shape[1]
    point, there = np.broadcast_to(np.eye(2) * 1e-8, (2, count, 2, 2)), np.ones((2, count), bool)
    inside, inliers = there.copy(), there.copy()
    inside[0, 3], inliers[0, 5] = False, False
    seen = ConfigurationDetections(bearings, there, point, point, inside, read, read, np.ones(2))
    chosen = replace(read, inliers=inliers)
    refined = RefinedConfigurations(read.configuration, read.covariance, np.array([False, False]))
    calibration = first_calibration(body)
    fits = FrameFits(seen, chosen, refined, np.full(2, 0.8), np.array([True, False]))
    observed = _observe(np.arange(2.0), body, here, fits, calibration)
    np.testing.assert_array_equal(observed.bearings, np.stack([bearings[0], np.zeros((count, 2))]))
    np.testing.assert_array_equal(observed.covariance, np.stack([point[0], np.tile(np.eye(2), (count, 1, 1))]))
    assert np.flatnonzero(~observed.visible[0]).tolist() == [3, 5]
    assert not observed.visible[1].any()
    std = calibration.mode_scale(np.full(2, here.diameter_px), np.full(2, 0.8))
    np.testing.assert_allclose(
        observed.shared_basis[0], configuration_modes(body, here, read.configuration)[0] * std[0]
    )
    np.testing.assert_array_equal(observed.shared_basis[1], 0.0)
    np.testing.assert_array_equal(observed.process_time_s, calibration.correlation_time_s)
    assert observed.swing_scale == 1.0
    assert observed.shared_basis.shape[-1] == size + 2


def test_frames_that_err_alike_state_alike() -> None:
    """What is stated of neighbours that were seen better and worse is the same, of other moments it is not."""
    rng = np.random.default_rng(8)
    root = rng.normal(size=(2, 3, 3))
    near, far = root @ np.swapaxes(root, 1, 2)
    times_s = np.array([0.0, 0.001, 9.0])
    found = smoothed(np.stack([near, 3.0 * near, far]), times_s)
    np.testing.assert_allclose(found, [2.0 * near, 2.0 * near, far], rtol=0.01)
    times_s = np.cumsum(rng.uniform(0.0, 0.2, 20))
    many = rng.normal(size=(20, 3, 3))
    weight = np.exp(-np.abs(times_s[:, None] - times_s) / 0.2)
    means = np.einsum("mn,nij->mij", weight, many) / weight.sum(axis=1)[:, None, None]
    np.testing.assert_allclose(smoothed(many, times_s), means, rtol=1e-9, atol=1e-12)


def test_models_calibrated_before_edges_were_are_not_believed_more() -> None:
    np.testing.assert_array_equal(per_coordinate((1.0, 3.0, 2.0), 3), [1.0, 3.0, 2.0])
    np.testing.assert_array_equal(per_coordinate((1.0, 3.0, 2.0), 4), [3.0] * 4)


@pytest.mark.parametrize("name", ["rod", "hand"])
def test_slopes_of_vertices_are_those_of_differences(name: str) -> None:
    body, _ = body_and_camera(name)
    rng = np.random.default_rng(7)
    configuration, which = body.sample(rng), rng.integers(len(body.mesh.vertices), size=40)
    steps = 1e-6 * np.diag(body.prior_std)
    ahead, behind = (
        np.stack([body.vertices(configuration + sign * s)[which] for s in steps], axis=-1) for sign in (1, -1)
    )
    slopes = body.jacobian(configuration, which)
    np.testing.assert_allclose(slopes, (ahead - behind) / (2e-6 * body.prior_std), rtol=1e-5, atol=1e-7)

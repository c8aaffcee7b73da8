"""Frames read again from where the motion says that the body is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.test_articulated_contour import body_and_camera, photograph, window
from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.tracking.articulated.contour import PlacedBody, refine_near
from vid2phys.tracking.articulated.detector import Window, configuration_modes
from vid2phys.tracking.articulated.reinitialise import ClipEvidence, reinitialise_track, with_averaged_covariance
from vid2phys.tracking.articulated.tracker import ConfigurationTrack
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.uncertainty.articulated import first_calibration
from vid2phys.types import Array, Observation

STD = 0.05  # spreads, of what was read


def track_of(body: ArticulatedBody, here: Window, configurations: Array) -> ConfigurationTrack:
    """As it was read, the points of a frame by the errors of the configuration alone."""
    count, size = configurations.shape
    seen = here.project(body.points(configurations))
    modes = configuration_modes(body, here, configurations)
    modes[..., :size] *= STD * body.prior_std
    modes[..., size:] *= 1e-3
    covariance = np.tile(np.diag((STD * body.prior_std) ** 2), (count, 1, 1))
    observation = Observation(
        0.05 * np.arange(count),
        seen,
        np.broadcast_to(1e-7 * np.eye(2), (*seen.shape, 2)),
        modes,
        np.full(size + 2, 0.2),
        np.ones(seen.shape[:2], dtype=bool),
        body.points_body,
    )
    return ConfigurationTrack(observation, configurations, covariance, np.ones(count, bool), np.ones(count), ())


def test_a_finger_that_was_read_elsewhere_is_found_where_the_motion_says() -> None:
    body, camera = body_and_camera("hand")
    here, rng = window(camera, body), np.random.default_rng(2)
    truth = np.stack([0.6 * body.sample(rng) for _ in range(3)])
    frames = [photograph(body, camera, each) for each in truth]
    read = truth.copy()
    read[:, 4:7] = np.where(truth[:, 4:5] > 0.0, -0.7, 0.7)  # the middle finger, bent the other way
    track = track_of(body, here, read)
    expected = truth + 0.05 * body.prior_std * rng.normal(size=truth.shape)
    expected[2] = body.lower  # of which the motion knows nothing
    again = reinitialise_track(frames, here, track, body, expected, first_calibration(body), 1.0)

    def apart(configurations: Array, frame: int) -> float:
        return float(np.linalg.norm(body.vertices(configurations[frame]) - body.vertices(truth[frame]), axis=-1).mean())

    measured = again.observation.configuration
    assert measured is not None
    np.testing.assert_array_equal(measured.measured, [True, True, False])
    for frame in (0, 1):
        assert apart(again.configurations, frame) < 0.25 * apart(read, frame)
        np.testing.assert_array_equal(measured.configuration[frame], again.configurations[frame])
    np.testing.assert_array_equal(again.configurations[2], read[2], "images do not speak for it")
    np.testing.assert_array_equal(again.covariance[2], track.covariance[2])
    images = ClipEvidence.of(frames, body, here, np.array([0, 1]))
    assert images.nats(truth[:2]) > images.nats(read[:2]) + 5.0
    placed = (PlacedBody(body, here.camera_from_base, each).vertices() for each in truth[:2])
    colors = [shown.color_nats(vertices) for shown, vertices in zip(images.shown, placed, strict=True)]
    assert images.nats(truth[:2]) == pytest.approx(sum(colors)), "edges do not count"


def test_lost_frames_stay_lost() -> None:
    body, camera = body_and_camera("rod")
    here, truth = window(camera, body), np.stack([body.sample(np.random.default_rng(1))] * 2)
    track = replace(track_of(body, here, truth), tracked=np.array([True, False]))
    images = [photograph(body, camera, each) for each in truth]
    again = reinitialise_track(images, here, track, body, truth, first_calibration(body), 1.0)
    assert not np.array_equal(again.configurations[0], truth[0])
    np.testing.assert_array_equal(again.configurations[1], truth[1])
    np.testing.assert_array_equal(again.tracked, track.tracked)
    flat = [np.full((240, 320, 3), 90, np.uint8)] * 2
    assert reinitialise_track(flat, here, track, body, truth, first_calibration(body), 1.0) is track, "nothing is seen"


def test_without_its_prior_a_configuration_is_not_pulled_to_what_is_expected() -> None:
    """Of what edges tell badly more is taken out; covariances say so."""
    body, camera = body_and_camera("hand")
    here, solid = window(camera, body), Solid.of(body.mesh)
    truth = 0.5 * body.sample(np.random.default_rng(7))
    image, expected = photograph(body, camera, truth), truth + 0.1 * body.prior_std
    pulled, sure = refine_near(image, here, body, solid, expected, 1.0) or (truth, np.eye(len(truth)))
    free, unsure = refine_near(image, here, body, solid, expected, 0.1) or (truth, np.eye(len(truth)))
    assert (np.diag(unsure) > np.diag(sure)).all()
    prior = np.diag(body.prior_std**-2.0)
    edges = np.linalg.inv(sure) - prior
    np.testing.assert_allclose(np.linalg.inv(unsure), edges + 0.1 * prior, rtol=1e-6)
    # the same edges, weighed against a tenth of the prior
    told = edges @ (pulled - expected) + prior @ (pulled - expected)
    np.testing.assert_allclose(
        (edges + 0.1 * prior) @ (free - expected), told, rtol=1e-6, atol=1e-6 * np.abs(told).max()
    )


def test_frames_that_err_alike_state_alike() -> None:
    body, camera = body_and_camera("rod")
    here, rng = window(camera, body), np.random.default_rng(3)
    truth = np.stack([body.sample(rng)] * 3)
    track = track_of(body, here, truth)
    covariance = track.covariance * np.array([1.0, 4.0, 1.0])[:, None, None]
    track = replace(track, covariance=covariance, tracked=np.array([True, True, False]))
    stated = with_averaged_covariance(track, body, here)
    assert stated.covariance[0, 0, 0] > 1.5 * track.covariance[0, 0, 0]
    assert stated.covariance[1, 0, 0] < track.covariance[1, 0, 0]
    np.testing.assert_array_equal(stated.observation.bearings, track.observation.bearings)
    np.testing.assert_array_equal(stated.observation.shared_basis[2], track.observation.shared_basis[2])
    size = truth.shape[1]
    basis = stated.observation.shared_basis[0, ..., :size].reshape(-1, size)
    modes = configuration_modes(body, here, truth[:1])[0, ..., :size].reshape(-1, size)
    np.testing.assert_allclose(basis @ basis.T, modes @ stated.covariance[0] @ modes.T, rtol=1e-8, atol=1e-18)

"""Errors of given keypoints, estimated from the points: what a frame's points share, its size and its duration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.flight import POINTS, Flight, camera_poses, fly
from tests.unit.test_given_points import NAMES, body, camera_of, clip_of, pixels_of, write_csv
from vid2phys.commands.identify.external_keypoints import given_track
from vid2phys.io.points import save_body_points
from vid2phys.solvers import initialise, smoothing
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array, Observation

FOCAL_PX = 610.0


@pytest.fixture(scope="module")
def flight() -> Flight:
    return fly(2.0)


def lasting(times_s: Array, seconds: float, rng: np.random.Generator) -> Array:
    """A shift of unit variance in x and y that is forgotten within some seconds, [T, 2]."""
    values = np.zeros((len(times_s), 2))
    values[0] = rng.normal(size=2)
    for k, step_s in enumerate(np.diff(times_s), start=1):
        kept = np.exp(-step_s / seconds)
        values[k] = kept * values[k - 1] + np.sqrt(1.0 - kept**2) * rng.normal(size=2)
    return values


def observed(folder: Path, flight: Flight, noise: Array) -> tuple[Observation, tuple[str, ...]]:
    """What is made of the flight's points with errors [T, K, 2] px of which the file says nothing."""
    save_body_points(dict(zip(NAMES, POINTS, strict=True)), folder / "body.csv")
    csv = write_csv(folder / "k.csv", flight.times_s, pixels_of(flight) + noise)
    track, notes = given_track(csv, folder / "body.csv", clip_of(flight.times_s), camera_of(flight), body())
    return track.observation, notes


def shared_px(seen: Observation) -> Array:
    """By how much each mode moves the points, px a coordinate, [6]."""
    return FOCAL_PX * np.sqrt((seen.shared_basis**2).mean(axis=(0, 1, 2)))


@pytest.mark.parametrize("sigma_px", [0.2, 0.8])
def test_independent_errors_share_nothing(tmp_path: Path, flight: Flight, sigma_px: float) -> None:
    noise = np.random.default_rng(1).normal(0.0, sigma_px, (len(flight.times_s), len(POINTS), 2))
    seen, notes = observed(tmp_path, flight, noise)
    assert shared_px(seen).max() < 0.35 * sigma_px
    assert "does not say how far each point and all points of a frame may be off" in notes[0]


@pytest.mark.parametrize(("size_px", "seconds"), [(1.5, 0.1), (1.0, 0.2)])
def test_a_shift_of_all_points_is_found(tmp_path: Path, flight: Flight, size_px: float, seconds: float) -> None:
    """Two of the six modes are shifts: these are found about as large as they are, the others small."""
    rng = np.random.default_rng(2)
    shift = size_px * lasting(flight.times_s, seconds, rng)[:, None]
    seen, _ = observed(tmp_path, flight, rng.normal(0.0, 0.3, (len(flight.times_s), len(POINTS), 2)) + shift)
    found = shared_px(seen) * np.sqrt(2.0)  # a shift in x moves no y
    assert 0.35 * size_px < found[3:5].min()
    assert found[3:5].max() < 1.8 * size_px
    assert found[[0, 1, 2, 5]].max() < 0.3
    assert (seen.correlation_time_s[3:5] <= 0.4).all()


def test_outliers_are_no_shared_error(tmp_path: Path, flight: Flight) -> None:
    rng, shape = np.random.default_rng(3), (len(flight.times_s), len(POINTS), 2)
    noise = rng.normal(0.0, 0.3, shape) + np.where(rng.random(shape[:2])[..., None] < 0.05, 15.0, 0.0)
    assert shared_px(observed(tmp_path, flight, noise)[0]).max() < 0.2


def test_few_frames_keep_the_usual_shared_error(tmp_path: Path, flight: Flight) -> None:
    """Eight frames do not say what is shared: as much as one point errs."""
    few = replace(flight, times_s=flight.times_s[:8], states=flight.states[:8])
    seen, _ = observed(tmp_path, few, np.random.default_rng(4).normal(0.0, 0.5, (8, len(POINTS), 2)))
    np.testing.assert_allclose(shared_px(seen), 0.5, rtol=0.3)


def test_gaps_and_a_clip_that_stops_for_long_are_no_obstacle(tmp_path: Path, flight: Flight) -> None:
    """Blocks end at gaps; a body that was away for a minute has moved, which is no error."""
    late = np.where(np.arange(len(flight.times_s)) < 30, 0.0, 60.0)
    kept = np.r_[0:12, 15:30, 30:45, 47 : len(flight.times_s)]
    apart = replace(flight, times_s=(flight.times_s + late)[kept], states=flight.states[kept])
    noise = np.random.default_rng(6).normal(0.0, 0.4, (len(kept), len(POINTS), 2))
    assert shared_px(observed(tmp_path, apart, noise)[0]).max() < 0.25


@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_poses_are_near_and_their_intervals_hold(tmp_path: Path, flight: Flight, shared: float) -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(0.0, 0.3, (len(flight.times_s), len(POINTS), 2))
    noise += shared * lasting(flight.times_s, 0.2, rng)[:, None]
    seen, _ = observed(tmp_path, flight, noise)
    parameters = flight.parameters
    problem = Problem(flight.system, parameters, seen, flight.camera_to_world, flight.actions)
    states = initialise.rigid_states(problem, *camera_poses(flight))
    solution = smoothing.solve(problem, states, rounds=2)
    off = flight.system.local(solution.states, flight.states)[:, :6]
    std = np.sqrt(np.diagonal(solution.covariance, axis1=1, axis2=2))[:, :6]
    assert np.sqrt((off[:, :3] ** 2).sum(axis=1).mean()) < 0.008 + 0.006 * shared
    assert (np.abs(off) < 1.96 * std).mean() > 0.85

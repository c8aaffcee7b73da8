"""Clocks, marker and world transforms found again on a simulated flight."""

from __future__ import annotations

import numpy as np
import pytest

from tests.flight import Flight
from tests.synthetic import mocap_of, noisy_result, short_flight
from vid2phys.errors import InputError
from vid2phys.geometry import angle_between
from vid2phys.report.alignment import apply, find_time_offset, fit_transforms, interpolate, rotation_variety_deg
from vid2phys.types import PoseLog

MARKER = np.array([0.3, -0.2, 1.0, 0.02, -0.03, 0.05])
WORLD = np.array([0.1, 0.2, 2.5, 1.0, 2.0, 0.3])


@pytest.fixture(scope="module")
def flight() -> Flight:
    return short_flight()


def estimate_of(flight: Flight, seed: int = 0) -> PoseLog:
    states = noisy_result(flight, seed=seed).trajectory.states
    return PoseLog(flight.times_s, states[:, :3], states[:, 3:7])


@pytest.mark.parametrize("offset", [0.35, -0.8, 12.4])
def test_time_offset(flight: Flight, offset: float) -> None:
    assert find_time_offset(estimate_of(flight), mocap_of(flight, offset)) == pytest.approx(offset, abs=0.006)


def test_time_offset_with_another_marker_and_world(flight: Flight) -> None:
    log = mocap_of(flight, 0.35, marker=MARKER, world=WORLD)
    assert find_time_offset(estimate_of(flight), log, world=True) == pytest.approx(0.35, abs=0.01)


def test_clocks_of_a_fall_of_a_third_of_a_second_agree() -> None:
    """Logs that are shorter than the usual overlap were refused as if they did not overlap."""
    times = np.arange(0.0, 0.3, 1.0 / 120.0)
    angle = 6.0 * times + 20.0 * times**2
    quats = np.column_stack([np.cos(0.5 * angle), np.sin(0.5 * angle), 0.0 * angle, 0.0 * angle])
    fall = PoseLog(times, np.column_stack([times, 0.0 * times, -4.905 * times**2]), quats)
    later = PoseLog(times + 0.02, fall.positions_m, quats)
    assert find_time_offset(fall, later) == pytest.approx(0.02, abs=2e-3)


def test_marker_transform_lies_within_its_covariance(flight: Flight) -> None:
    found = fit_transforms(estimate_of(flight), mocap_of(flight, 0.35, marker=MARKER), 0.35, marker=True, world=False)
    assert found.marker_covariance is not None
    error = found.marker_in_body - MARKER
    assert np.abs(error[:3]).max() < 0.02
    assert np.abs(error[3:]).max() < 0.01
    assert (np.abs(error) < 4.0 * np.sqrt(np.diag(found.marker_covariance))).all()


def test_world_transform(flight: Flight) -> None:
    log = mocap_of(flight, 0.35, marker=MARKER, world=WORLD)
    estimate = estimate_of(flight)
    found = fit_transforms(estimate, log, 0.35, marker=True, world=True)
    positions, quats, seen = apply(found, log, flight.times_s)
    assert np.linalg.norm(positions - flight.states[:, :3], axis=1)[seen].max() < 0.02
    assert np.rad2deg(angle_between(quats, flight.states[:, 3:7])[seen]).max() < 3.0


def test_marker_transform_is_refused_without_rotation(flight: Flight) -> None:
    still = PoseLog(flight.times_s, flight.states[:, :3], np.tile([1.0, 0.0, 0.0, 0.0], (len(flight.times_s), 1)))
    assert rotation_variety_deg(still.orientation_quat_wxyz) == 0.0
    with pytest.raises(InputError, match="at least 20 deg"):
        fit_transforms(still, mocap_of(flight, 0.0), 0.0, marker=True, world=False)


def test_gaps_are_not_bridged(flight: Flight) -> None:
    log = mocap_of(flight, 0.0)
    log.positions_m[100:160] = np.nan
    seen = interpolate(log, flight.times_s)[2]
    inside = (flight.times_s > log.times_s[101]) & (flight.times_s < log.times_s[158])
    assert inside.any()
    assert not seen[inside].any()
    assert find_time_offset(estimate_of(flight), log) == pytest.approx(0.0, abs=0.006)


def test_a_log_without_motion_or_overlap_is_refused(flight: Flight) -> None:
    times = np.arange(0.0, 5.0, 0.01)
    still = PoseLog(times, np.zeros((500, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (500, 1)))
    with pytest.raises(InputError, match="motion in both"):
        find_time_offset(estimate_of(flight), still)
    with pytest.raises(InputError, match="poses"):
        find_time_offset(estimate_of(flight), PoseLog(times[:1], np.zeros((1, 3)), np.zeros((1, 4))))

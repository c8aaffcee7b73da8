"""Free flights are found between impacts, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bouncing_ball import bouncing, path, seen_by, tracked
from vid2phys.solvers.flights import Flights, Places, find_flights
from vid2phys.types import Array

TIMES = np.arange(96) / 60.0
HELD = 12  # frames before the fall
IMPACTS_S = [0.2 + np.sqrt(2 * 0.8 / 9.81), 0.2 + 2.4 * np.sqrt(2 * 0.8 / 9.81)]  # e = 0.7: 1 + 2 e


def flights_of(world: Array, times_s: Array, **errors: float) -> Flights | None:
    scene = seen_by(world, times_s, pitch_deg=20.0)
    motion = tracked(scene, scene.focal_px, **errors)  # type: ignore[arg-type]
    return find_flights(Places(motion.times_s, motion.points, motion.covariance))


def held_then_bouncing() -> Array:
    fall = bouncing(TIMES[: len(TIMES) - HELD], 0.8, (0.2, 0.4), 0.7)
    return np.concatenate([np.tile(fall[:1], (HELD, 1)), fall])


@pytest.mark.parametrize("outliers", [0, 5])
def test_a_fall_with_bounces_has_its_impacts(outliers: int) -> None:
    found = flights_of(held_then_bouncing(), TIMES, outliers=outliers)
    assert found is not None
    assert found.frames[0][0] >= HELD - 1
    assert [round(impact.time_s, 2) for impact in found.impacts] == pytest.approx(IMPACTS_S, abs=0.02)
    expected = 9.81 * np.array([0.0, np.cos(np.radians(20.0)), np.sin(np.radians(20.0))])
    error = found.acceleration - expected
    assert error @ np.linalg.solve(found.covariance[:3, :3], error) < 14.2  # chi^2 of 3 at 0.3 %
    assert 0.6 < found.misfit < 1.5


@pytest.mark.parametrize(
    ("name", "world", "times_s"),
    [
        ("rest", *path(lambda t: np.stack([0 * t, 0 * t, 0.033 + 0 * t], axis=1))),
        ("roll", *path(lambda t: np.stack([-0.5 + 0.5 * t, 0 * t, 0.033 + 0 * t], axis=1))),
        ("swing", *path(lambda t: np.stack([0.3 * np.sin(5 * t), 0 * t, 0.7 - 0.3 * np.cos(5 * t)], axis=1))),
    ],
)
def test_what_does_not_fall_has_no_flight(name: str, world: Array, times_s: Array) -> None:
    assert flights_of(world, times_s) is None, name


def test_a_body_that_comes_to_rest_falls_no_longer() -> None:
    times = np.arange(300) / 60.0
    found = flights_of(bouncing(times, 0.8, (0.1, 0.1), 0.5), times)
    assert found is not None
    assert times[found.frames[-1][-1]] < 1.3  # after 0.40 (1 + 2 (0.5 + 0.25 + ...)) s it rests


def test_few_frames_have_no_flight() -> None:
    assert flights_of(held_then_bouncing()[HELD : HELD + 8], TIMES[:8]) is None

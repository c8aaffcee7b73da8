"""Warnings of what cannot be: falls at another rate than gravity's, and nothing of bodies that are pushed or rest."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.commands.identify.plausibility import (
    action_notes,
    distance_notes,
    fall_notes,
    flights,
    gravity_notes,
)
from vid2phys.notes import Severity, severity_of
from vid2phys.types import Array

G = 9.81
RADIUS_M = 0.08


def seen(pieces: list[tuple[float, list[float]]], fps: float, noise: float = 0.1) -> tuple[Array, Array, Array]:
    """Times, accelerations of the intervals and their standard deviations, of stretches of (seconds, acceleration)."""
    rows = [row for seconds, row in pieces for _ in range(round(seconds * fps))]
    rng = np.random.default_rng(1)
    acceleration = np.array(rows) + rng.normal(0.0, noise, (len(rows), 3))
    return np.arange(len(rows) + 1) / fps, acceleration, np.full_like(acceleration, noise)


def notes(pieces: list[tuple[float, list[float]]], fps: float, noise: float = 0.1) -> tuple[str, ...]:
    return fall_notes(flights(*seen(pieces, fps, noise), RADIUS_M), G, fps)


def falling(size: float) -> list[float]:
    return [0.0, 0.0, -size]


@pytest.mark.parametrize(
    ("true", "tagged", "share"),
    [(30, 24, "upward force of 36 %"), (24, 30, "downward force of 56 %"), (60, 30, "upward force of 75 %"),
     (120, 30, "upward force of 94 %"), (240, 30, "upward force of 98 %")],
)  # fmt: skip
def test_a_wrong_rate_is_named(true: float, tagged: float, share: str) -> None:
    """Seconds are true / tagged times as long, accelerations smaller by the square of that."""
    slower = true / tagged
    (note,) = notes([(0.6 * slower, falling(G / slower**2))], tagged, 0.1 / slower**2)
    assert severity_of(note) is Severity.WARNING
    assert f"at {true:g} fps" in note
    assert f"the clip has {tagged:g}" in note
    assert share in note
    assert ("slow motion" in note) == (slower > 1.9)


def test_a_flight_before_impacts_is_enough() -> None:
    rest, impact = [0.0, 0.0, 0.0], [3.0, -1.0, 60.0]
    (note,) = notes([(0.5, falling(6.28)), (0.1, impact), (0.4, falling(6.28)), (0.1, impact), (2.0, rest)], 24)
    assert "at 30 fps" in note


@pytest.mark.parametrize(
    "pieces",
    [
        [(0.5, falling(G))],
        [(0.5, falling(9.3)), (0.1, [1.0, 0.0, 50.0]), (1.0, [0.0, 0.0, 0.0])],
        [(2.0, [0.0, 0.0, 0.0])],
        [(0.2, falling(G)), (0.5, [-3.0, 0.0, 0.0])],
        [(0.8, [-3.0, 1.0, 0.0]), (1.0, [0.0, 0.0, 0.0])],
        [(0.8, [-4.2, 0.0, -2.45])],
        [(0.4, falling(3.0)), (0.4, falling(5.0)), (0.4, falling(2.0))],
        [(0.1, falling(6.0))],
    ],
    ids=["falls", "drags", "rests", "slides later", "slides", "on a slope", "moved by hand", "too short"],
)
def test_what_is_possible_gives_no_warning(pieces: list[tuple[float, list[float]]]) -> None:
    assert notes(pieces, 60) == ()


@pytest.mark.parametrize("period_s", [0.5, 1.0, 2.0])
def test_a_body_that_is_swung_by_hand_does_not_fall(period_s: float) -> None:
    """Up and down by 30 cm."""
    times = np.arange(241) / 60
    up = -0.15 * (2 * np.pi / period_s) ** 2 * np.sin(2 * np.pi * times / period_s)
    acceleration = np.stack([0 * up, 0 * up, up], axis=1)[:-1]
    found = flights(times, acceleration, np.full_like(acceleration, 0.05), RADIUS_M)
    assert fall_notes(found, G, 60) == ()


def test_a_tilted_vertical_is_named() -> None:
    tilt = np.radians(25.0)
    (note,) = notes([(0.6, [G * np.sin(tilt), 0.0, -G * np.cos(tilt)])], 60)
    assert "25 degrees off the vertical: check camera_to_world" in note


def test_actions_of_another_clock_are_named() -> None:
    """As fitted to the sample at its rate, with a load, at 36 and at 60 frames per second instead of 30."""
    assert action_notes(-0.02, 0.015) == action_notes(0.038, 0.053) == ()
    (note,) = action_notes(-0.02, 0.155)
    assert severity_of(note) is Severity.WARNING
    assert "an unknown force of 16 % of the weight" in note
    (note,) = action_notes(0.0, 0.61)
    assert severity_of(note) is Severity.DOUBT
    (note,) = action_notes(0.09, 0.02)
    assert "when these act 0.09 s later" in note


@pytest.mark.parametrize(
    ("factor", "named"),
    [
        (10.0, "10 times too large"),
        (0.1, "10 times too small"),
        (1 / 12, "12 times too small"),
        (1000.0, "1000 times too large"),
    ],
)
def test_a_mesh_in_other_units_makes_the_result_doubtful(factor: float, named: str) -> None:
    (note,) = notes([(0.8, falling(factor * G))], 60, 0.1 * factor)
    assert severity_of(note) is Severity.DOUBT
    assert named in note
    assert "--mesh-units" in note


def test_slow_motion_is_no_mesh_in_other_units() -> None:
    (note,) = notes([(2.0, falling(G / 16.0))], 60, 0.01)
    assert "at 240 fps, slow motion" in note


def test_a_mesh_that_is_far_too_small_is_named() -> None:
    times, acceleration, std = seen([(0.8, falling(G / 25.4))], 60, 0.002)
    (note,) = fall_notes(flights(times, acceleration, std, 0.04 / 25.4), G, 60)
    assert "25.4 times too small" in note


@pytest.mark.parametrize(("distance_m", "radius_m", "wrong"), [(0.02, 0.0006, "small"), (200.0, 3.75, "large")])
def test_a_body_at_an_implausible_distance_is_doubtful(distance_m: float, radius_m: float, wrong: str) -> None:
    assert distance_notes(0.3, 0.05) == ()
    (note,) = distance_notes(distance_m, radius_m)
    assert severity_of(note) is Severity.DOUBT
    assert f"{2 * radius_m:.2g} m large: the mesh is probably too {wrong}" in note


def test_gravity_of_a_body_that_is_caught_is_doubted() -> None:
    """The longest flight is named, by its times."""
    rest = [0.0, 0.0, 0.0]
    found = flights(*seen([(0.3, rest), (0.5, falling(9.7)), (0.4, rest)], 60), RADIUS_M)
    (note,) = gravity_notes(found, 5.0)
    assert severity_of(note) is Severity.DOUBT
    assert "from 0.30 to 0.80 s" in note
    assert "51 % of the usual weight" in note


@pytest.mark.parametrize("unknown", [0.0, 0.5])
def test_gravity_of_a_free_fall_is_not_doubted(unknown: float) -> None:
    assert gravity_notes(flights(*seen([(0.5, falling(9.7))], 60), RADIUS_M), unknown) == ()


def test_gravity_without_a_flight_is_doubted() -> None:
    (note,) = gravity_notes([], 9.0)
    assert note.endswith("(--from, --to) to the flight")

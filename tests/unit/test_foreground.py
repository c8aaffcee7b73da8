"""Segmentation of a clip in which a part of the body stays in place, as that near the pin of a pendulum."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from vid2phys.tracking.foreground import Foreground, Silhouette

_PIN = (80.0, 30.0)
_BODY = (130, 90, 160)


@pytest.fixture(scope="module")
def swing() -> list[np.ndarray]:
    """Return frames [120, 160, 3] of a bar that swings by 12 degrees to either side."""
    rng = np.random.default_rng(0)
    return [_frame(angle, rng) for angle in np.radians(12.0) * np.sin(np.linspace(0.0, 9.0, 31))]


def _frame(angle: float, rng: np.random.Generator, body: tuple[int, int, int] = _BODY) -> np.ndarray:
    frame = rng.normal(140.0, 1.0, (120, 160, 3))
    mask = _bar(angle, -10.0, 80.0)
    return np.where(mask[..., None], rng.normal(body, 1.0, frame.shape), frame).astype(np.uint8)


def _bar(angle: float, begin: float, end: float) -> np.ndarray:
    """Return the pixels of the bar between two distances from the pin."""
    along, across = np.array([np.sin(angle), np.cos(angle)]), np.array([np.cos(angle), -np.sin(angle)])
    corners = [np.array(_PIN) + a * along + b * across for a, b in ((begin, -9), (begin, 9), (end, 9), (end, -9))]
    mask = np.zeros((120, 160), np.uint8)
    cv2.fillPoly(mask, [np.round(corners).astype(np.int32)], 1)
    return mask > 0


def _lower_parts() -> dict[int, Silhouette]:
    angles = np.radians(12.0) * np.sin(np.linspace(0.0, 9.0, 31))
    return {k: (slice(0, 120), slice(0, 160), _bar(angle, 35.0, 80.0)) for k, angle in enumerate(angles)}


def test_the_part_that_stays_in_place_is_body(swing: list[np.ndarray]) -> None:
    foreground = Foreground.of(swing).learned(_lower_parts())
    still = _bar(0.0, -5.0, 15.0)
    assert np.isfinite(foreground.noise[still]).mean() < 0.2  # but for its edges
    ratio = foreground.log_ratio(swing[0])
    assert np.median(ratio[still]) > 1.0
    assert np.median(ratio[:, :40]) < -1.0


def test_a_wall_of_the_colours_of_the_body_is_scene() -> None:
    rng = np.random.default_rng(1)
    frames = [_frame(angle, rng) for angle in np.radians(12.0) * np.sin(np.linspace(0.0, 9.0, 31))]
    for frame in frames:
        frame[20:, :60] = rng.normal(_BODY, 1.0, (100, 60, 3)).astype(np.uint8)
    foreground = Foreground.of(frames).learned(_lower_parts())
    assert np.isfinite(foreground.noise[40:, :50]).all()

"""How far held-out clips are detected and aligned from the truth: the spread of many draws, with stand-ins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.error_model import Calibration
from vid2phys.tracking.detectors.network import direction_and_size
from vid2phys.tracking.uncertainty import alignment_errors, calibrate
from vid2phys.tracking.uncertainty.alignment_errors import PRIOR_STD
from vid2phys.tracking.uncertainty.config import DEFAULTS
from vid2phys.types import Array

RADIUS_M, FRAMES, CLIPS = 0.06, 4, 400
UNUSED: Any = None
PLACES = np.array([[0.1, 0.0, 2.0], [0.1, 0.1, 2.1], [0.0, 0.1, 1.5], [-0.2, 0.0, 1.0]])
CLIP: Any = SimpleNamespace(
    frames=[None] * FRAMES, cameras=[None] * FRAMES, background=None,
    rotation=np.tile(np.eye(3), (FRAMES, 1, 1)), translation=PLACES,
)  # fmt: skip
MODEL: Any = SimpleNamespace(radius_m=RADIUS_M, front=None, rotations=None, center=None)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Array, Array]]:
    """Where a detection of some frames is asked for: bearings and angular radii."""
    asked = list[tuple[Array, Array]]()

    def detect(model: Any, camera: Any, frames: Any, centers: Array, radii: Array, calibration: Any) -> Any:
        asked.append((centers, radii))
        return SimpleNamespace(quality=np.zeros((len(radii), 1)), front_logprob=None, views=None)

    monkeypatch.setattr(calibrate, "detect", detect)
    monkeypatch.setattr(calibrate, "_residuals", lambda *_: None)
    monkeypatch.setattr(calibrate, "front_evidence", lambda *_: np.zeros((FRAMES, 1, 4)))
    monkeypatch.setattr(calibrate.Detections, "join", lambda parts: SimpleNamespace(**vars(parts[0])))
    monkeypatch.setattr(calibrate, "plausible", lambda found, radius_m: np.zeros(len(found.quality)))
    return asked


def test_virtual_cameras_err_partly_alike_in_a_clip(
    places: list[tuple[Array, Array]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standard deviation of 0.5 lasts for the clip, one of 0.8 differs from frame to frame; none is on one side."""
    monkeypatch.setattr(calibrate, "_empty_quality", lambda *_: 0.0)
    for seed in range(CLIPS):
        calibrate._measure_clip(MODEL, CLIP, 0, Calibration(), np.random.default_rng(seed), DEFAULTS)
    true, size = direction_and_size(PLACES, RADIUS_M)
    center, radius = (np.concatenate(each).reshape(CLIPS, FRAMES, -1) for each in zip(*places, strict=True))
    share = (center - true) / (DEFAULTS.view_offset * 3.0 * np.tan(size)[:, None])
    zoom = np.log(radius / size[:, None]) / DEFAULTS.view_size_offset
    for error in (share[..., 0], share[..., 1], zoom[..., 0]):
        assert error.mean() == pytest.approx(0.0, abs=0.1)
        assert np.sqrt(np.mean(error**2)) == pytest.approx(np.hypot(0.5, 0.8), rel=0.06)
        assert np.std(error - error.mean(axis=1, keepdims=True)) == pytest.approx(0.8 * np.sqrt(0.75), rel=0.06)


def test_empty_images_are_searched_within_one_and_a_half_radii(places: list[tuple[Array, Array]]) -> None:
    center, radius = np.array([0.1, -0.2]), 0.05
    for seed in range(CLIPS):
        rng = np.random.default_rng(seed)
        assert calibrate._empty_quality(MODEL, CLIP, center, radius, Calibration(), rng, DEFAULTS) == 0.0
    asked, radii = (np.concatenate(each) for each in zip(*places, strict=True))
    assert len(asked) == 6 * CLIPS
    apart = (asked - center) / np.tan(radius)
    assert 1.45 < np.abs(apart).max() <= 1.5
    np.testing.assert_allclose(apart.mean(axis=0), 0.0, atol=0.06)
    assert np.std(apart) == pytest.approx(3.0 / np.sqrt(12.0), rel=0.04), "everywhere alike"
    assert np.log(radii / radius).mean() == pytest.approx(0.0, abs=0.03)
    assert np.std(np.log(radii / radius)) == pytest.approx(0.3, rel=0.05)


def test_alignments_start_from_half_of_the_priors_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = list[Array]()

    def errors(mesh: Any, clip: Any, start: Array) -> tuple[Array, Array, Array]:
        starts.append(start)
        return np.zeros((2, 6)), np.ones((2, 6)), np.zeros(2)

    monkeypatch.setattr(alignment_errors, "make_clips", lambda *_, **__: ((k, CLIP) for k in range(CLIPS)))
    monkeypatch.setattr(alignment_errors, "_errors", errors)
    renders: Any = SimpleNamespace(settings=SimpleNamespace(radius_m=RADIUS_M))
    found = alignment_errors.measure(UNUSED, renders, seed=3)
    np.testing.assert_array_equal(found.appearance, np.repeat(np.arange(CLIPS), 2))
    spread = np.array(starts) / PRIOR_STD
    np.testing.assert_allclose(spread.mean(axis=0), 0.0, atol=0.1)
    np.testing.assert_allclose(spread.std(axis=0), 0.5, rtol=0.12)

"""What errors of configurations come to over a whole clip, against what is stated of its frames."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vid2phys.error_model import Calibration
from vid2phys.tracking.uncertainty.articulated_contour_errors import ContourResiduals, of_frames, swing_scale

FRAMES, SIZE, TAU_S = 16, 3, 0.2
TIMES_S = np.arange(FRAMES) / 30.0
STATED = replace(
    Calibration(),
    contour_scale=(2.0, 0.5, 1.0),
    contour_correlation_s=(TAU_S,) * SIZE,
    correlation_time_s=(0.01,) * (SIZE + 2),
)


def clips(rng: np.random.Generator, gain: float) -> list[ContourResiduals]:
    """Clips whose frames err as is stated, and whose swings are read too large by `gain` standard deviations' worth."""
    alike = np.linalg.cholesky(np.exp(-np.abs(TIMES_S[:, None] - TIMES_S) / TAU_S) + 1e-9 * np.eye(FRAMES))
    found = []
    for sequence in range(300):
        configurations = np.cumsum(rng.normal(size=(FRAMES, SIZE)), axis=0)
        columns = np.broadcast_to(np.linalg.cholesky(np.cov(rng.normal(size=(SIZE, 9)))), (FRAMES, SIZE, SIZE))
        drawn = alike @ rng.normal(size=(FRAMES, SIZE)) * STATED.contour_scale
        error = np.einsum("mij,mj->mi", columns, drawn)
        error += gain * rng.normal(size=SIZE) * (configurations - configurations.mean(axis=0))
        found.append(ContourResiduals(error, columns, configurations, TIMES_S, sequence))
    return found


def test_swings_of_clips_that_err_as_stated_are_as_uncertain_as_stated() -> None:
    assert swing_scale(clips(np.random.default_rng(0), 0.0), STATED) == pytest.approx(1.0, abs=0.1)


def test_swings_that_are_misread_for_a_whole_clip_are_found() -> None:
    rng = np.random.default_rng(1)
    assert 2.0 < swing_scale(clips(rng, 0.5), STATED) < swing_scale(clips(rng, 1.0), STATED)


def test_a_coordinate_that_rests_tells_nothing() -> None:
    (clip, *_) = clips(np.random.default_rng(3), 1.0)
    resting = replace(clip, configurations=clip.configurations * [1.0, 1.0, 0.0])
    assert np.isfinite(resting.swings(np.ones(SIZE), np.full(SIZE, TAU_S))).tolist() == [True, True, False]
    assert swing_scale([resting], STATED) == swing_scale([resting, resting], STATED) > 1.0


def test_a_factor_of_a_column_is_a_longer_column() -> None:
    (clip, *_) = clips(np.random.default_rng(3), 1.0)
    factors, tau_s = np.array([0.5, 1.0, 3.0]), np.full(SIZE, TAU_S)
    longer = replace(clip, columns=clip.columns * factors)
    np.testing.assert_allclose(clip.swings(factors, tau_s), longer.swings(np.ones(SIZE), tau_s))
    np.testing.assert_allclose(clip.swings(2.0 * np.ones(SIZE), tau_s), 0.5 * clip.swings(np.ones(SIZE), tau_s))


def test_short_clips_tell_nothing_of_swings_but_of_frames() -> None:
    short = [
        ContourResiduals(c.error[:4], c.columns[:4], c.configurations[:4], c.times_s[:4], c.sequence)
        for c in clips(np.random.default_rng(2), 1.0)
    ]
    assert swing_scale(short, STATED) == 1.0
    frames = of_frames(short)
    assert frames.error.shape == (1200, SIZE)
    np.testing.assert_allclose(short[3].columns[0] @ frames.error[12], short[3].error[0])

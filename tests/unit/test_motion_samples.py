"""Frames that are spread over the motion of a clip, and the background that is learned from them."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.tracking.foreground import Foreground
from vid2phys.tracking.motion_samples import evenly_in_motion

HEIGHT, WIDTH = 60, 160
SIDE = 14


def clip(places: list[int], seed: int = 0) -> list[np.ndarray]:
    """Return noisy frames of a bright square on a grey floor with stripes, its left edge at `places`, px."""
    rng = np.random.default_rng(seed)
    floor = np.full((HEIGHT, WIDTH, 3), 90.0) + 30.0 * (np.arange(WIDTH) // 20 % 2)[None, :, None]
    frames = []
    for left in places:
        frame = floor + rng.normal(0.0, 1.5, floor.shape)
        frame[20 : 20 + SIDE, left : left + SIDE] = [230.0, 210.0, 60.0]
        frames.append(np.clip(frame, 0, 255).astype(np.uint8))
    return frames


def test_a_body_that_moves_evenly_is_sampled_evenly() -> None:
    chosen = evenly_in_motion(clip([2 * k for k in range(60)]), 12)
    assert chosen[0] == 0
    assert chosen[-1] == 59
    assert np.diff(chosen).max() <= 7


@pytest.mark.parametrize("rests_first", [False, True])
def test_a_rest_takes_few_samples(rests_first: bool) -> None:
    """The body moves in 24 frames of 100, and rests in the others."""
    places = [4 * k for k in range(24)] + [96] * 76
    frames = clip(places[::-1] if rests_first else places)
    chosen = evenly_in_motion(frames, 15)
    resting = chosen < 76 if rests_first else chosen >= 24
    assert resting.sum() <= 4
    assert len(chosen) >= 12


def test_a_clip_without_motion_is_sampled_evenly_in_time() -> None:
    np.testing.assert_array_equal(evenly_in_motion(clip([30] * 31), 16), np.arange(31)[::2])


def test_few_frames_are_all_chosen() -> None:
    assert evenly_in_motion(clip([0, 40]), 9).tolist() == [0, 1]


def test_where_a_body_rests_for_most_of_a_clip_the_background_is_the_floor() -> None:
    frames = clip([4 * k for k in range(24)] + [96] * 76)
    learned = Foreground.of(frames)
    inside = slice(20, 20 + SIDE), slice(96, 96 + SIDE)
    assert learned.background[inside].max() < 140
    assert learned.log_ratio(frames[-1])[24:30, 100:106].min() > 1.0

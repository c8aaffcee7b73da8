"""Repeated frames: found against codec noise and left out, with true times; bodies at rest keep their frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.filmed_motion import Image, crossing, difference, moved, write_video
from vid2phys.io.video import read_clip


def stored(tmp_path: Path, taken: list[Image], shown: list[int], **options: str) -> Path:
    """A video whose frames are those numbers of the frames that were taken."""
    return write_video(tmp_path / "a.mp4", [taken[i] for i in shown if i < len(taken)], options=options)


@pytest.mark.parametrize("crf", ["10", "28"])
@pytest.mark.parametrize(
    ("name", "rate", "shown"),
    [
        ("doubled", 15.0, [i // 2 for i in range(80)]),
        ("pulled up", 24.0, [4 * i // 5 for i in range(50)]),
        ("pulled up later", 24.0, [(4 * i + 3) // 5 for i in range(49)]),
        ("2:3", 12.0, [2 * i // 5 for i in range(100)]),
        ("25 at 30", 25.0, [5 * i // 6 for i in range(48)]),
    ],
)
def test_a_cadence_gets_even_times(tmp_path: Path, name: str, rate: float, shown: list[int], crf: str) -> None:
    taken = crossing(40)
    clip = read_clip(stored(tmp_path, taken, shown, crf=crf))
    np.testing.assert_allclose(clip.times_s, np.arange(40) / rate, atol=1e-6)
    assert all(difference(frame, at) < 8 for frame, at in zip(clip.frames, taken, strict=True))
    (note,) = clip.notes
    left_out = len(shown) - 40
    assert f"{left_out} of {len(shown)} frames repeat the one before and are left out" in note
    assert f"read at {rate:g} fps" in note


def test_a_doubled_clip_that_begins_with_the_second_copy(tmp_path: Path) -> None:
    clip = read_clip(stored(tmp_path, crossing(40), [i // 2 for i in range(1, 80)]))
    np.testing.assert_allclose(clip.times_s, (1 + 2 * np.arange(39)) / 30, atol=1e-6)


@pytest.mark.parametrize(("lost", "kept"), [([9, 24], 38), ([9, 10, 24], 37), ([21], 39)])
def test_what_stands_for_lost_frames_is_left_out(tmp_path: Path, lost: list[int], kept: int) -> None:
    """A recorder writes the last frame again where it lost one; the others are where they belong."""
    shown = np.arange(40)
    for i in lost:
        shown[i] = shown[i - 1]
    clip = read_clip(stored(tmp_path, crossing(40), shown.tolist()))
    expected = np.delete(np.arange(40), lost)
    assert len(expected) == kept
    np.testing.assert_allclose(clip.times_s, expected / 30, atol=1e-6)
    assert clip.whole is not None
    np.testing.assert_array_equal(clip.whole[1], expected)
    assert f"{len(lost)} of 40 frames repeat" in clip.notes[0]
    assert "keep their times" in clip.notes[0]


def path_of(kind: str) -> list[tuple[float, float]]:
    times = np.arange(60)
    across = {
        "rests": np.full(60, 40.0),
        "starts and stops": 10 + 4.0 * np.clip(times - 20, 0, 20),
        "stops on its way": 5 + 2.0 * np.where(times < 25, times, np.where(times < 33, 25, times - 8)),
        "swings": 50 + 40 * np.cos(2 * np.pi * (times + 0.5) / 20),
        "turns back between two frames": np.abs((6.0 * times + 3) % 240 - 120) * 0.9,
    }[kind]
    return [(float(x), 30.0) for x in across]


@pytest.mark.parametrize("crf", ["10", "28"])
@pytest.mark.parametrize("noise", [0.0, 3.0])
@pytest.mark.parametrize(
    "kind", ["rests", "starts and stops", "stops on its way", "swings", "turns back between two frames"]
)
def test_bodies_at_rest_and_that_turn_back_keep_their_frames(tmp_path: Path, kind: str, noise: float, crf: str) -> None:
    taken = [moved(x, y, noise=noise, seed=i) for i, (x, y) in enumerate(path_of(kind))]
    clip = read_clip(stored(tmp_path, taken, list(range(60)), crf=crf))
    assert (len(clip.times_s), clip.notes) == (60, ())
    np.testing.assert_allclose(clip.times_s, np.arange(60) / 30, atol=1e-6)


def test_a_part_of_a_doubled_clip_keeps_its_clock(tmp_path: Path) -> None:
    path = stored(tmp_path, crossing(40), [i // 2 for i in range(80)])
    clip = read_clip(path, from_s=10 / 30, to_s=50 / 30)
    np.testing.assert_allclose(clip.times_s, np.arange(10, 51, 2) / 30, atol=1e-6)

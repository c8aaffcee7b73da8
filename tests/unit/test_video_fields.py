"""Interlaced clips: found by their pixels, read as fields with times of their own; whole frames stay."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.filmed_motion import crossing, difference, moved, woven, write_video
from vid2phys.io.video import read_clip

CASE = Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "interlaced" / "clip.mp4"
FLAGGED = {True: {"x264-params": "tff=1", "flags": "+ilme+ildct"}, False: {"x264-params": "bff=1", "flags": "+ilme"}}


@pytest.mark.parametrize("top_first", [True, False])
@pytest.mark.parametrize("flagged", [True, False])
def test_fields_become_frames_at_their_times(tmp_path: Path, top_first: bool, flagged: bool) -> None:
    taken = crossing(40)
    options = FLAGGED[top_first] if flagged else None
    clip = read_clip(write_video(tmp_path / "a.mp4", woven(taken, top_first=top_first), fps=15, options=options))
    np.testing.assert_allclose(clip.times_s, np.arange(40) / 30, atol=1e-6)
    frames = list(clip.frames)
    assert len(frames) == len(clip.frames) == 40
    assert max(difference(frame, at) for frame, at in zip(frames[2:-2], taken[2:-2], strict=True)) < 7
    (note,) = clip.notes
    assert f"interlaced, {'top' if top_first else 'bottom'} field first: its 20 frames are read as 40 fields" in note


def test_fields_are_the_same_in_any_order(tmp_path: Path) -> None:
    frames = read_clip(write_video(tmp_path / "a.mp4", woven(crossing(40)), fps=15)).frames
    every = list(frames)
    for wanted in ([0], [39], [4, 5, 5, 6], [1, 20, 38, 39], range(40), []):
        for index, frame in zip(wanted, frames.at(wanted), strict=True):
            np.testing.assert_array_equal(frame, every[index])
    for start in (0, 10, 20):  # in chunks, then backwards, and in another process
        for index, frame in enumerate(frames.at(range(start, start + 10)), start):
            np.testing.assert_array_equal(frame, every[index])
    np.testing.assert_array_equal(next(pickle.loads(pickle.dumps(frames)).at([7])), every[7])


def test_whole_frames_stay_whatever_the_flag_says(tmp_path: Path) -> None:
    taken = crossing(24)
    for name, options in (("plain", None), ("flagged", FLAGGED[True])):
        clip = read_clip(write_video(tmp_path / f"{name}.mp4", taken, options=options))
        assert (len(clip.times_s), clip.notes) == (24, ())


def test_a_clip_at_rest_stays(tmp_path: Path) -> None:
    still = [moved(60, 40, noise=4.0, seed=i) for i in range(24)]
    clip = read_clip(write_video(tmp_path / "a.mp4", woven(still), fps=15, options=FLAGGED[True]))
    assert (len(clip.times_s), clip.notes) == (12, ())


def test_a_part_of_an_interlaced_clip_keeps_its_times(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", woven(crossing(60)), fps=15)
    every, part = read_clip(path), read_clip(path, from_s=0.5, to_s=1.2)
    np.testing.assert_allclose(part.times_s, np.arange(16, 37) / 30, atol=1e-6)
    assert part.whole is not None
    np.testing.assert_array_equal(part.whole[0].times_s[part.whole[1]], part.times_s)
    middle = list(every.frames.at(range(20, 32)))
    for frame, same in zip(middle, list(part.frames)[4:16], strict=True):
        np.testing.assert_array_equal(frame, same)


@pytest.mark.shared
@pytest.mark.skipif(not CASE.exists(), reason="../shared/cases is not there")
def test_the_woven_sample_is_read_as_fields() -> None:
    clip = read_clip(CASE)
    np.testing.assert_allclose(clip.times_s, np.arange(32) / 30, atol=1e-6)
    assert "16 frames are read as 32 fields at 30 fps" in clip.notes[0]
    sample = read_clip(Path(__file__).resolve().parents[2] / "samples" / "quadrotor" / "clip.mp4")
    for frame, taken in zip(list(clip.frames)[2:-2], list(sample.frames.at(range(2, 30))), strict=True):
        assert difference(frame, taken) < 3

"""Display matrices: all eight flips and quarter turns as players show them, others refused; which stream is used."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from tests.filmed_motion import crossing, difference, moved, write_streams, write_video
from vid2phys.errors import InputError
from vid2phys.io.video import read_clip

ROOT = Path(__file__).resolve().parents[2]
CASE = ROOT.parent / "shared" / "cases" / "mirror_flag" / "clip.mp4"
STORED = moved(60, 20)


def matrix(a: float, b: float, c: float, d: float) -> list[int]:
    one = 1 << 16
    return [round(a * one), round(b * one), 0, round(c * one), round(d * one), 0, 0, 0, 1 << 30]


@pytest.mark.parametrize(
    ("abcd", "shown"),
    [
        ((1, 0, 0, 1), STORED),
        ((-1, 0, 0, 1), STORED[:, ::-1]),
        ((1, 0, 0, -1), STORED[::-1]),
        ((-1, 0, 0, -1), STORED[::-1, ::-1]),
        ((0, 1, 1, 0), STORED.swapaxes(0, 1)),
        ((0, 1, -1, 0), STORED.swapaxes(0, 1)[:, ::-1]),
        ((0, -1, 1, 0), STORED.swapaxes(0, 1)[::-1]),
        ((0, -1, -1, 0), STORED.swapaxes(0, 1)[::-1, ::-1]),
    ],
)
def test_every_flip_and_quarter_turn_is_shown(tmp_path: Path, abcd: tuple[int, ...], shown: np.ndarray) -> None:
    """A stored place (x, y) is shown at (a x + c y, b x + d y), y down."""
    clip = read_clip(write_video(tmp_path / "a.mp4", [STORED] * 3, matrix=matrix(*abcd)))
    assert (clip.height, clip.width) == shown.shape[:2]
    assert all(difference(frame, shown) < 4 for frame in clip.frames)
    assert difference(next(clip.frames.at([1])), shown) < 4
    mirrored = np.linalg.det(np.reshape(abcd, (2, 2))) < 0
    assert any("mirrors it" in note for note in clip.notes) == mirrored


@pytest.mark.parametrize("suffix", ["mov", "mkv"])
def test_scale_is_left_out_and_other_containers_mirror_too(tmp_path: Path, suffix: str) -> None:
    scale = 2.0 if suffix == "mov" else 1.0
    path = write_video(tmp_path / f"a.{suffix}", [STORED] * 3, matrix=matrix(-scale, 0, 0, scale))
    assert difference(next(iter(read_clip(path).frames)), STORED[:, ::-1]) < 4


@pytest.mark.parametrize("abcd", [(0.7071, 0.7071, -0.7071, 0.7071), (1, 0, 1, 1), (1, 0, 1, 0)])
def test_other_turns_and_skews_are_refused(tmp_path: Path, abcd: tuple[float, ...]) -> None:
    path = write_video(tmp_path / "a.mov", [STORED] * 3, matrix=matrix(*abcd))
    with pytest.raises(InputError, match="a multiple of 90"):
        read_clip(path)


def test_streams_are_listed_and_chosen(tmp_path: Path) -> None:
    path = write_streams(tmp_path / "two.mkv", [(crossing(10), 30), ([frame[:60, :80] for frame in crossing(6)], 15)])
    clip = read_clip(path)
    assert (clip.width, len(clip.times_s)) == (160, 10)
    (note,) = clip.notes
    assert "2 video streams: 0 (160x120, 30 fps), 1 (80x60, 15 fps); stream 0 is used" in note
    second = read_clip(path, stream=1)
    assert (second.width, len(second.times_s), second.notes) == (80, 6, ())
    np.testing.assert_allclose(second.times_s, np.arange(6) / 15, atol=2e-3)
    assert difference(list(second.frames)[5], crossing(6)[5][:60, :80]) < 6
    assert read_clip(path, stream=0).notes == ()
    with pytest.raises(InputError, match=r"no video stream 2; expected one of 0 \(160x120"):
        read_clip(path, stream=2)
    with pytest.raises(InputError, match="no video stream -1"):
        read_clip(path, stream=-1)


def test_a_cover_image_is_no_stream(tmp_path: Path) -> None:
    from av.stream import Disposition

    path = tmp_path / "cover.mp4"
    with av.open(str(path), "w") as container:
        cover = container.add_stream("mjpeg", rate=Fraction(1))
        cover.height, cover.width, cover.pix_fmt = 120, 160, "yuvj420p"
        cover.disposition = Disposition.attached_pic
        video = container.add_stream("libx264", rate=Fraction(30))
        video.height, video.width, video.pix_fmt = 120, 160, "yuv420p"
        container.mux([*cover.encode(av.VideoFrame.from_ndarray(STORED, format="rgb24")), *cover.encode()])
        for image in crossing(10):
            container.mux(video.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(video.encode())
    clip = read_clip(path)
    assert (len(clip.times_s), clip.notes) == (10, ())


@pytest.mark.shared
@pytest.mark.skipif(not CASE.exists(), reason="../shared/cases is not there")
def test_the_mirrored_sample_is_the_sample() -> None:
    sample = next(iter(read_clip(ROOT / "samples" / "quadrotor" / "clip.mp4").frames))
    assert difference(next(iter(read_clip(CASE).frames)), sample) < 3

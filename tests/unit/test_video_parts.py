"""Parts of clips, image sequences and frame rates: what --from, --to and --fps do to frames and times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from tests.filmed_motion import Image, crossing, difference, woven, write_video
from vid2phys import cli
from vid2phys.commands.batch import read_jobs
from vid2phys.commands.config import read_config, write_config
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.options import built
from vid2phys.errors import InputError, UsageError
from vid2phys.io.files import sha256
from vid2phys.io.video import read_clip


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("clip") / "a.mp4", crossing(60))


def write_images(folder: Path, frames: list[Image], names: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for frame, name in zip(frames, names, strict=True):
        cv2.imwrite(str(folder / name), frame[..., ::-1])
    return folder


@pytest.mark.parametrize(
    ("part", "first", "last"),
    [
        ({"from_s": 0.5}, 15, 59),
        ({"to_s": 1.0}, 0, 30),
        ({"from_s": 0.51, "to_s": 1.49}, 16, 44),
        ({"to_s": 2.0}, 0, 59),
    ],
)
def test_a_part_keeps_its_times_and_frames(video: Path, part: dict[str, float], first: int, last: int) -> None:
    whole, clip = read_clip(video), read_clip(video, **part)
    np.testing.assert_array_equal(clip.times_s, whole.times_s[first : last + 1])
    assert len(clip.frames) == last + 1 - first
    every = list(whole.frames)
    for frame, index in zip(clip.frames, range(first, last + 1), strict=True):
        np.testing.assert_array_equal(frame, every[index])
    np.testing.assert_array_equal(next(clip.frames.at([3])), every[first + 3])
    assert clip.notes == ()


@pytest.mark.parametrize("part", [{"from_s": 1.5, "to_s": 1.0}, {"from_s": 1.0, "to_s": 1.0}, {"from_s": float("nan")}])
def test_reversed_parts_are_refused(video: Path, part: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="expected --from before --to"):
        read_clip(video, **part)


@pytest.mark.parametrize(
    "part", [{"from_s": 3.0}, {"from_s": -1.0}, {"to_s": 9.0}, {"from_s": 0.501, "to_s": 0.51}, {"to_s": -0.5}]
)
def test_parts_beyond_the_clip_are_refused_with_its_length(video: Path, part: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"the clip 'a'; expected times within the clip, 0.000 to 1.967 s"):
        read_clip(video, **part)


@pytest.mark.parametrize("suffix", ["png", "JPG", "tiff"])
def test_a_folder_of_images_in_natural_order(tmp_path: Path, suffix: str) -> None:
    taken = crossing(12)
    folder = write_images(tmp_path / "shot", taken, [f"frame{i}.{suffix}" for i in range(12)])
    clip = read_clip(folder, fps=20)
    assert (clip.name, clip.width, clip.height, clip.notes) == ("shot", 160, 120, ())
    np.testing.assert_allclose(clip.times_s, np.arange(12) / 20)
    assert all(difference(frame, at) < 6 for frame, at in zip(clip.frames, taken, strict=True))
    assert difference(next(clip.frames.at([7])), taken[7]) < 6


@pytest.mark.parametrize("pattern", ["left_%04d.png", "left_%d.png", "left_*.png", "left_00[0-9]?.png"])
def test_a_pattern_and_missing_numbers(tmp_path: Path, pattern: str) -> None:
    taken, numbers = crossing(12), [i for i in range(12) if i not in (4, 5, 9)]
    folder = write_images(tmp_path / "shot", [taken[i] for i in numbers], [f"left_{i:04d}.png" for i in numbers])
    write_images(folder, taken[:3], [f"right_{i:04d}.png" for i in range(3)])
    clip = read_clip(folder / pattern, fps=30)
    np.testing.assert_allclose(clip.times_s, np.array(numbers) / 30)
    assert clip.notes == ("3 numbers are missing between the images: the others keep their times",)
    assert [difference(f, taken[i]) for f, i in zip(clip.frames, numbers, strict=True)] == [0.0] * 9
    before = sha256(folder / pattern)
    cv2.imwrite(str(folder / "left_0002.png"), taken[0])
    assert sha256(folder / pattern) != before
    with pytest.raises(InputError, match="images of several kinds"):
        read_clip(folder, fps=30)


@pytest.mark.parametrize("asked", ["", "*.png"])
def test_hidden_files_are_no_images(tmp_path: Path, asked: str) -> None:
    """macOS adds ._NAME to each file on a foreign disk."""
    folder = write_images(tmp_path / "shot", crossing(6), [f"{i:04d}.png" for i in range(6)])
    (folder / "._0000.png").write_bytes(b"Mac OS X")
    assert len(read_clip(folder / asked, fps=30).frames) == 6


def test_images_that_are_numbered_in_steps(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "shot", crossing(9), [f"{10 * i:06d}.png" for i in range(9)])
    clip = read_clip(folder, fps=30)
    np.testing.assert_allclose(clip.times_s, np.arange(9) / 30)
    assert "in steps of 10" in clip.notes[0]


@pytest.mark.parametrize(
    ("names", "asked", "error", "message"),
    [
        (["1.png", "2.png"], "", UsageError, "is a sequence of images without --fps"),
        (["1.png", "2.png"], "1.png", InputError, "is one image"),
        (["1.png", "2.png"], "3.png", InputError, "does not exist"),
        (["1.png", "2.png"], "b%d.png", InputError, "no image is named like"),
        (["a1_1.png", "a2_2.png"], "", InputError, "2 numbers that vary"),
        (["1.png", "01.png", "2.png"], "", InputError, "a number twice"),
        (
            ["1403636579763555584.png", "1403636579813555456.png", "1403636579863555584.png"],
            "",
            InputError,
            "leave out",
        ),
        (["a.png", "b.png"], "", InputError, "images of several kinds"),
    ],
)
def test_what_is_no_sequence_is_said(
    tmp_path: Path, names: list[str], asked: str, error: type[Exception], message: str
) -> None:
    folder = write_images(tmp_path / "shot", crossing(len(names)), names)
    with pytest.raises(error, match=message) as caught:
        read_clip(folder / asked, fps=None if error is UsageError else 30)
    assert "\n" not in str(caught.value)


def test_sizes_have_to_agree_and_streams_are_of_videos(tmp_path: Path) -> None:
    taken = crossing(6)
    folder = write_images(tmp_path / "shot", [*taken[:5], taken[5][:60]], [f"{i}.png" for i in range(6)])
    with pytest.raises(InputError, match=r"5.png' is 160x60; expected 160x120 as the first"):
        read_clip(folder, fps=30)
    with pytest.raises(UsageError, match="--stream 0 for the images"):
        read_clip(folder, fps=30, stream=0)


def test_woven_and_doubled_images_are_read_as_those_of_videos_are(tmp_path: Path) -> None:
    fields = write_images(tmp_path / "woven", woven(crossing(40)), [f"{i}.png" for i in range(20)])
    clip = read_clip(fields, fps=15)
    np.testing.assert_allclose(clip.times_s, np.arange(40) / 30)
    doubled = write_images(
        tmp_path / "doubled", [crossing(20)[i // 2] for i in range(40)], [f"{i}.png" for i in range(40)]
    )
    np.testing.assert_allclose(read_clip(doubled, fps=30).times_s, np.arange(20) / 15)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_another_rate_than_the_file_has(tmp_path: Path, suffix: str) -> None:
    path = write_video(tmp_path / f"a.{suffix}", crossing(25), fps=24)
    clip = read_clip(path, fps=30, from_s=0.1)
    np.testing.assert_allclose(clip.times_s, np.arange(3, 25) / 30, atol=1e-3)
    assert clip.notes == ("'a' has frames at 24 fps; they are read at 30 fps, as --fps says",)
    same = read_clip(path, fps=24)
    assert same.notes == ()
    np.testing.assert_array_equal(same.times_s, read_clip(path).times_s)
    for fps in (0.0, -30.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="frames a second, more than 0"):
            read_clip(path, fps=fps)


def test_parts_are_of_all_clips_or_one_each() -> None:
    options: dict[str, Any] = {"clip": ["a.mp4", "b.mp4"], "camera": "c.yaml"}
    one = IdentifyConfig(**options, from_s=1.0, fps=30.0).of_each_clip()
    assert [(each.from_s, each.to_s, each.fps) for each in one] == [(1.0, None, 30.0)] * 2
    two = built(IdentifyConfig, {**options, "from_s": [1.0, 2.0], "to_s": (3.0, 4.0)}).of_each_clip()
    assert [(each.from_s, each.to_s) for each in two] == [(1.0, 3.0), (2.0, 4.0)]
    with pytest.raises(UsageError, match="2 clips and 3 --from; expected one --from, or one a clip"):
        built(IdentifyConfig, {**options, "from_s": [1.0, 2.0, 3.0]}).of_each_clip()


def test_parts_in_batches_and_configs(tmp_path: Path) -> None:
    text = "defaults: {mesh: m.obj, camera: c.yaml}\nclips:\n  - {clip: 'take/%06d.png', fps: 30, from: 1, to: 2.5}\n"
    (tmp_path / "clips.yaml").write_text(text)
    (job,) = read_jobs(tmp_path / "clips.yaml", tmp_path / "out")
    assert job.name == "take"
    (tmp_path / "job.yaml").write_text(job.text)
    read = read_config(tmp_path / "job.yaml", IdentifyConfig)
    assert (read["fps"], read["from_s"], read["to_s"]) == (30.0, 1.0, 2.5)
    assert read["clip"] == tmp_path / "take" / "%06d.png"
    write_config(tmp_path / "config.yaml", built(IdentifyConfig, {**read, "from_s": [1.0, 2.0]}))
    again = read_config(tmp_path / "config.yaml", IdentifyConfig)
    assert tuple(again["from_s"]) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (["--from", "3", "--to", "1"], 2, "--from 3 --to 1; expected --from before --to"),
        (["--from", "9"], 3, "--from 9 leaves the clip 'a'; expected times within the clip, 0.000 to 1.967 s"),
        (["--stream", "1"], 3, "has no video stream 1; expected one of 0 (160x120, 30 fps)"),
        (["--fps", "0"], 2, "--fps 0; expected frames a second, more than 0"),
    ],
)
def test_the_command_line_refuses_in_one_line(
    video: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: list[str],
    code: int,
    message: str,
) -> None:
    sample = Path(__file__).resolve().parents[2] / "samples" / "quadrotor"
    files = [str(video), "--mesh", str(sample / "quad.obj"), "--camera", str(sample / "camera.yaml")]
    monkeypatch.setattr("sys.argv", ["vid2phys", "identify", *files, *given])
    assert cli._run() == code
    error = capsys.readouterr().err
    assert message in error.splitlines()[-1]
    assert "Traceback" not in error

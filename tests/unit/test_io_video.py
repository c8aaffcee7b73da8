"""Video in and out: times, rotation, seeking, and one line for every broken file."""

from __future__ import annotations

import errno
import pickle
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from vid2phys.errors import InputError
from vid2phys.io.video import VideoWriter, read_clip

av = pytest.importorskip("av")
SHARED = Path(__file__).resolve().parents[2].parent / "shared"
needs_clips = pytest.mark.skipif(not (SHARED / "clips").is_dir(), reason="../shared/clips is not there")
HEIGHT, WIDTH = 48, 64


def image(index: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Grey level tells the index; the left upper corner is bright red."""
    image = np.full((height, width, 3), 20 + 7 * index, dtype=np.uint8)
    image[: height // 4, : width // 4] = (250, 10, 10)
    return image


def write(path: Path, count: int = 20, times: list[float] | None = None, rotation: int = 0, gop: int = 5) -> Path:
    """A clip with a keyframe every `gop` frames and B-frames, through plain PyAV."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.codec_context.time_base = Fraction(1, 1000)
        stream.options = {"crf": "10", "g": str(gop), "bf": "2"}
        if rotation:
            stream.set_display_rotation(rotation)
        for i in range(count):
            frame = av.VideoFrame.from_ndarray(image(i), format="rgb24")
            frame.pts = round(1000 * (times[i] if times else i / 25))
            frame.time_base = Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def index_of(image: np.ndarray) -> int:
    return round((float(image[-10:, -10:].mean()) - 20) / 7)


def test_frames_come_in_order_with_container_times(tmp_path: Path) -> None:
    clip = read_clip(write(tmp_path / "a.mp4"))
    assert (clip.width, clip.height, len(clip.frames), clip.name) == (WIDTH, HEIGHT, 20, "a")
    np.testing.assert_allclose(clip.times_s, np.arange(20) / 25, atol=1e-3)
    frames = list(clip.frames)
    assert [index_of(f) for f in frames] == list(range(20))
    assert frames[0].shape == (HEIGHT, WIDTH, 3)
    assert frames[0].dtype == np.uint8


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "mov", "avi", "ts"])
def test_variable_rate_and_first_time_not_zero(tmp_path: Path, suffix: str) -> None:
    times = [0.4, 0.44, 0.52, 0.56, 0.8, 0.84, 0.88, 1.2]
    if suffix == "avi":  # has no presentation times, and a fixed rate
        times = [0.04 * i for i in range(8)]
    clip = read_clip(write(tmp_path / f"a.{suffix}", 8, times))
    np.testing.assert_allclose(clip.times_s, np.array(times) - times[0], atol=2e-3)
    assert [index_of(f) for f in clip.frames] == list(range(8))


def test_a_raw_stream_has_no_times(tmp_path: Path) -> None:
    path = tmp_path / "raw.h264"
    with av.open(str(write(tmp_path / "a.mp4"))) as source, av.open(str(path), "w", format="h264") as raw:
        stream = raw.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                raw.mux(packet)
    with pytest.raises(InputError, match="no time stamps"):
        read_clip(path)


def test_sample_without_presentation_times(tmp_path: Path) -> None:
    clip = read_clip(write(tmp_path / "a.avi"))
    assert [index_of(frame) for frame in clip.frames.at(np.array([2, 11, 19]))] == [2, 11, 19]


@pytest.mark.parametrize("wanted", [[0], [19], [3, 4, 17], [0, 0, 12, 12, 13], list(range(20)), []])
def test_sample_seeks_to_the_same_frames(tmp_path: Path, wanted: list[int]) -> None:
    clip = read_clip(write(tmp_path / "a.mp4"))
    every = list(clip.frames)
    sampled = list(clip.frames.at(wanted))
    assert len(sampled) == len(wanted)
    for got, index in zip(sampled, wanted, strict=True):
        np.testing.assert_array_equal(got, every[index])


def test_sample_refuses_disorder_and_what_is_not_there(tmp_path: Path) -> None:
    frames = read_clip(write(tmp_path / "a.mp4")).frames
    with pytest.raises(ValueError, match="non-decreasing"):
        frames.at(np.array([3, 1]))
    with pytest.raises(IndexError):
        frames.at(np.array([20]))


@pytest.mark.parametrize("rotation", [90, -90, 180])
def test_rotation_flag_is_applied_as_opencv_does(tmp_path: Path, rotation: int) -> None:
    cv2 = pytest.importorskip("cv2")
    path = write(tmp_path / "a.mov", 3, rotation=rotation)
    clip = read_clip(path)
    expected = cv2.VideoCapture(str(path)).read()[1][..., ::-1]
    first = next(iter(clip.frames))
    assert first.shape == expected.shape == (clip.height, clip.width, 3)
    assert np.abs(first.astype(int) - expected.astype(int)).mean() < 5


@pytest.mark.parametrize(("ratio", "noted"), [(Fraction(16, 15), True), (Fraction(1, 1), False), (None, False)])
def test_pixels_that_are_not_square_are_said(tmp_path: Path, ratio: Fraction | None, noted: bool) -> None:
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "a.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        if ratio is not None:
            stream.codec_context.sample_aspect_ratio = ratio
        for index in range(6):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image(index), format="rgb24")))
        container.mux(stream.encode())
    clip = read_clip(tmp_path / "a.mp4")
    assert (clip.width, clip.height) == (WIDTH, HEIGHT)
    assert any("1.067 times as wide as high" in note for note in clip.notes) == noted


def test_iteration_keeps_no_frames(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    with VideoWriter(path, 640, 480, 30) as video:
        for i in range(40):
            video.write(np.full((480, 640, 3), 5 * i, dtype=np.uint8))
    clip = read_clip(path)
    tracemalloc.start()
    assert sum(1 for _ in clip.frames) == 40
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 480 * 640 * 3


def test_iteration_can_stop_early_and_start_again(tmp_path: Path) -> None:
    frames = read_clip(write(tmp_path / "a.mp4")).frames
    assert index_of(next(iter(frames))) == 0
    assert index_of(next(iter(frames))) == 0


def test_broken_files_give_one_line(tmp_path: Path) -> None:
    good = write(tmp_path / "good.mp4").read_bytes()
    (tmp_path / "empty.mp4").write_bytes(b"")
    (tmp_path / "text.mp4").write_text("time_s,thrust_N\n" * 50)
    (tmp_path / "noindex.mp4").write_bytes(good[: len(good) // 2])
    cases = {"missing": "does not exist", "empty": "is empty", "text": "is not a video", "noindex": "cut short"}
    for name, expected in cases.items():
        with pytest.raises(InputError, match=expected) as caught:
            read_clip(tmp_path / f"{name}.mp4")
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="has no image"):
        read_clip(tmp_path)


def test_truncated_file_says_how_many_frames_decode(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"  # its index is in front, so that half of it can still be opened
    with VideoWriter(path, WIDTH, HEIGHT, 25) as video:
        for _ in range(30):
            video.write(np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8))
    data = path.read_bytes()
    path.write_bytes(data[: 3 * len(data) // 4])
    with pytest.raises(InputError, match=r"truncated or damaged: \d+ of its 30 frames decode"):
        read_clip(path)


def test_sound_without_images_and_no_frames(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "sound.mkv"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), dtype=np.int16), format="s16", layout="mono")
        sound.sample_rate = 8000
        container.mux(stream.encode(sound))
        container.mux(stream.encode())
    with pytest.raises(InputError, match="no video stream"):
        read_clip(tmp_path / "sound.mkv")
    with av.open(str(tmp_path / "none.mkv"), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        container.start_encoding()
    with pytest.raises(InputError, match=r"no frames|not a video"):
        read_clip(tmp_path / "none.mkv")


def test_writer_makes_h264_that_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.mp4"
    with VideoWriter(path, 33, 31, 30) as video:  # odd sizes are padded
        for i in range(10):
            video.write(image(i, 31, 33))
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
    clip = read_clip(path)
    assert (clip.width, clip.height) == (34, 32)
    np.testing.assert_allclose(clip.times_s, np.arange(10) / 30, atol=1e-4)
    assert [index_of(f) for f in clip.frames] == list(range(10))
    assert [p.name for p in path.parent.iterdir()] == ["out.mp4"]


def test_writer_keeps_variable_times(tmp_path: Path) -> None:
    times = [0.0, 0.01, 0.3, 0.35]
    with VideoWriter(tmp_path / "a.mp4", WIDTH, HEIGHT, 30) as video:
        for i, time_s in enumerate(times):
            video.write(image(i), time_s)
    np.testing.assert_allclose(read_clip(tmp_path / "a.mp4").times_s, times, atol=1e-4)


def interrupted(path: Path, error: BaseException) -> None:
    with VideoWriter(path, WIDTH, HEIGHT, 30) as video:
        video.write(image(0))
        raise error


def test_writer_leaves_nothing_behind_on_error(tmp_path: Path) -> None:
    old = write(tmp_path / "a.mp4").read_bytes()
    for error in (RuntimeError("x"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            interrupted(tmp_path / "a.mp4", error)
    with pytest.raises(ValueError, match="no frame"), VideoWriter(tmp_path / "b.mp4", WIDTH, HEIGHT, 30):
        pass
    with pytest.raises(InputError, match="the disk is full"):
        interrupted(tmp_path / "c.mp4", OSError(errno.ENOSPC, "No space left on device"))
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]
    assert (tmp_path / "a.mp4").read_bytes() == old


def test_writer_refuses_other_shapes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected uint8"), VideoWriter(tmp_path / "a.mp4", 8, 8, 30) as video:
        video.write(np.zeros((9, 8, 3), dtype=np.uint8))


@needs_clips
@pytest.mark.shared
def test_recorded_clips() -> None:
    clip = read_clip(SHARED / "clips" / "quad_log203" / "clip.mp4")
    assert (len(clip.frames), clip.width, clip.height) == (168, 640, 480)
    np.testing.assert_allclose(clip.times_s, np.arange(168) / 30, atol=1e-6)
    assert len(read_clip(SHARED / "clips" / "cube_toss0" / "clip.mp4").times_s) == 121


def test_names_with_colons_and_metadata_in_other_encodings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A colon in a name is no protocol, and cameras write titles in what encoding they like."""
    path = tmp_path / "2026-11-22T10:20:00.mkv"
    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        container.metadata["title"] = "Prise du soir"
        stream = container.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        container.mux([*stream.encode(av.VideoFrame.from_ndarray(image(0), format="rgb24")), *stream.encode()])
    path.write_bytes((tmp_path / "a.mkv").read_bytes().replace(b"Prise", b"Pri\xe9e"))
    monkeypatch.chdir(tmp_path)
    assert len(read_clip(path.name).times_s) == 1
    playlist = tmp_path / "list.m3u8"
    playlist.write_text("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n")
    with pytest.raises(InputError, match="is not a video"):
        read_clip(playlist)


def test_chunks_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vid2phys.io import video_frames

    clip = read_clip(write(tmp_path / "a.mp4", gop=20))
    opened: list[Path] = []
    real = video_frames._open
    monkeypatch.setattr(video_frames, "_open", lambda *of: opened.append(of[0]) or real(*of))
    order = [index_of(next(clip.frames.at([i]))) for i in (0, 1, 1, 4, 9, 19)]
    assert order == [0, 1, 1, 4, 9, 19]
    assert len(opened) == 2  # once, and once more for the frame that was asked for again
    assert index_of(next(clip.frames.at([3]))) == 3  # backwards
    copied = pickle.loads(pickle.dumps(clip.frames))
    assert index_of(next(copied.at([4]))) == index_of(next(clip.frames.at([4]))) == 4

"""The focal length of a clip: from the metadata of videos and images, or what is usual."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from vid2phys.io.focal_length import focal_prior, pinhole_camera
from vid2phys.types import Clip

WIDTH, HEIGHT = 64, 48
CLIP = Clip(None, np.arange(3) / 30.0, WIDTH, HEIGHT)  # type: ignore[arg-type]
KEY = "com.apple.quicktime.camera.focal_length.35mm_equivalent"


def video(path: Path, tags: dict[str, str]) -> Path:
    with av.open(str(path), "w", options={"movflags": "use_metadata_tags"}) as container:
        container.metadata.update(tags)
        stream = container.add_stream("mpeg4", rate=30)
        stream.width, stream.height = WIDTH, HEIGHT
        for _ in range(3):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((HEIGHT, WIDTH, 3), np.uint8), "rgb24")))
        container.mux(stream.encode())
    return path


def test_a_quicktime_file_states_it(tmp_path: Path) -> None:
    found = focal_prior(video(tmp_path / "a.mov", {KEY: "26"}), CLIP)
    assert found.pixels == pytest.approx(26.0 * 80.0 / 43.27, rel=1e-3)  # 64 x 48 has a diagonal of 80
    assert found.log_std < 0.1
    assert "26 mm" in found.source


def test_an_image_states_it(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0xA405] = 28
    Image.new("RGB", (WIDTH, HEIGHT)).save(tmp_path / "000001.jpg", exif=exif)
    Image.new("RGB", (WIDTH, HEIGHT)).save(tmp_path / "000002.jpg")
    for path in (tmp_path, tmp_path / "%06d.jpg"):
        assert focal_prior(path, CLIP).pixels == pytest.approx(28.0 * 80.0 / 43.27, rel=1e-3)


@pytest.mark.parametrize("tags", [{}, {KEY: "unknown"}, {KEY: "0"}])
def test_otherwise_it_is_what_is_usual(tmp_path: Path, tags: dict[str, str]) -> None:
    found = focal_prior(video(tmp_path / "a.mov", tags), CLIP)
    assert found.pixels == pytest.approx(0.85 * WIDTH)
    assert found.log_std == pytest.approx(0.4)


def test_a_file_that_no_library_opens_has_what_is_usual(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"no video")
    assert focal_prior(tmp_path / "a.mp4", CLIP).log_std == pytest.approx(0.4)


def test_the_camera_has_its_centre_in_the_middle() -> None:
    camera = pinhole_camera(CLIP, 50.0)
    assert camera.K.tolist() == [[50.0, 0.0, 31.5], [0.0, 50.0, 23.5], [0.0, 0.0, 1.0]]  # centres at whole numbers
    assert camera.camera_to_world is None

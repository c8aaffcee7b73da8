"""Targets by name, printed in true size, and found again in images taken through a known camera."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.board_scene import facing, photograph
from vid2phys.camera_calibration.detect import detect, detect_markers, layout
from vid2phys.camera_calibration.page import PAGES_MM, lay_out, write_pdf
from vid2phys.camera_calibration.refine import refine
from vid2phys.camera_calibration.target import Target, dictionary_names, parse_target
from vid2phys.engine.observe import project
from vid2phys.errors import UsageError
from vid2phys.types import Camera

K = np.array([[420.0, 0, 243], [0, 415, 176], [0, 0, 1]])
CAMERA = Camera(K, 480, 360, np.array([-0.25, 0.08, 0.0009, -0.0007]))
BOARDS = ["chessboard:8x5:25mm", "charuco:7x5:30mm:22mm:4x4_50", "charuco:6x6:30mm:22mm:5x5_100", "tag:36h11:7:160mm"]


@pytest.mark.parametrize("text", BOARDS)
def test_a_target_is_what_its_text_says(text: str) -> None:
    target = parse_target(text)
    assert target.text == text
    assert parse_target(target.text) == target


def test_lengths_in_other_units() -> None:
    assert parse_target("chessboard:8x5:2.5cm") == parse_target("chessboard:8x5:0.025m")
    assert parse_target("tag:36H11:7:4in").side_m == pytest.approx(0.1016)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("chessboard", "for example chessboard:10x7:25mm"),
        ("chessboard:8x5:25", "for example"),
        ("chessboard:8:25mm", "for example"),
        ("chessboard:2x5:25mm", "3 to 100 squares"),
        ("chessboard:8x5:0mm", "up to 20 m"),
        ("charuco:7x5:30mm:30mm:4x4_50", "markers smaller than their squares"),
        ("charuco:7x5:30mm:22mm:9x9_50", "one of 16h5, 25h9, 36h10, 36h11, 4x4_100"),
        ("charuco:17x15:30mm:22mm:4x4_50", "4x4_50 has 50 markers, a board of 17x15 needs 127"),
        ("tag:36h11:700:1m", "0 to 586"),
        ("circles:7x5:30mm", "for example"),
    ],
)
def test_other_texts_are_refused(text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=re.escape(expected)) as caught:
        parse_target(text)
    assert "\n" not in str(caught.value)


def test_dictionaries_are_found() -> None:
    assert {"4x4_50", "6x6_250", "36h11", "16h5"} <= set(dictionary_names())


def printed(data: bytes, dots_mm: float) -> tuple[np.ndarray, tuple[float, float]]:
    """The page of a PDF as an image (grey, row 0 at the top) and its size in mm: by its rectangles, in points."""
    text = data.decode("latin-1")
    box = re.search(r"/MediaBox \[([\d. ]+)\]", text)
    assert box is not None
    wide, high = (float(x) * 25.4 / 72 for x in box[1].split()[2:])
    page = np.full((round(high * dots_mm), round(wide * dots_mm)), 255, dtype=np.uint8)
    for found in re.finditer(r"([\d.]+) ([\d.]+) ([\d.]+) ([\d.]+) re", text):
        x, y, w, h = (float(number) * 25.4 / 72 * dots_mm for number in found.groups())
        top, bottom, left, right = (int(np.floor(e + 0.501)) for e in (len(page) - y - h, len(page) - y, x, x + w))
        page[top:bottom, left:right] = 0
    return page, (wide, high)


@pytest.mark.parametrize("text", [BOARDS[0], BOARDS[1], "tag:36h11:7:160mm", "charuco:11x7:24mm:18mm:4x4_50"])
def test_the_page_has_true_size(tmp_path: Path, text: str) -> None:
    """Read from the file's own numbers, found by OpenCV: corners are as far apart on paper as the name says."""
    target = parse_target(text)
    laid = write_pdf(target, tmp_path / "board.pdf")
    data = (tmp_path / "board.pdf").read_bytes()
    assert data.startswith(b"%PDF-")
    assert text.encode() in data
    page, size = printed(data, 5.0)
    assert sorted(size) == pytest.approx([210.0, 297.0], abs=1e-3)
    view = detect(target, page)
    assert view is not None
    assert len(view.ids) == len(target.points_m())
    view = refine(target, view, page)
    across = target.points_m()[view.ids, :2] * 1e3
    on_paper = np.stack([view.pixels[:, 0] + 0.5, len(page) - 0.5 - view.pixels[:, 1]], axis=1) / 5.0
    shift = on_paper - across
    np.testing.assert_allclose(shift, np.broadcast_to(shift.mean(axis=0), shift.shape), atol=0.15)
    assert not any(x + w > size[0] or y + h > size[1] or min(x, y) < 0 for x, y, w, h in laid.rectangles_mm)


def test_the_ruler_is_as_long_as_it_says() -> None:
    laid = lay_out(parse_target(BOARDS[1]), "a3")
    says = next(text for _, _, text in laid.texts if "mm:" in text)
    assert max(w for _, _, w, h in laid.rectangles_mm if h < 0.5) == pytest.approx(float(says.split(" ")[0]))


def test_a_page_that_is_too_small() -> None:
    with pytest.raises(UsageError, match="too large for a4; expected a page of a1, a0"):
        lay_out(parse_target("chessboard:10x7:70mm"))
    with pytest.raises(UsageError, match=f"unknown page 'a9'; expected one of {', '.join(PAGES_MM)}"):
        lay_out(parse_target(BOARDS[0]), "a9")


def seen(target: Target, turn: list[float], seed: int = 0):
    pose = facing(target, 2.2 * max(target.size_m), turn, [0.03, -0.02])
    return photograph(CAMERA, target, pose, seed=seed), pose


@pytest.mark.parametrize("text", BOARDS)
@pytest.mark.parametrize("turn", [[0.3, -0.4, 0.1], [0.2, 0.3, 2.8]])
def test_points_are_where_the_camera_sees_them(text: str, turn: list[float]) -> None:
    """Every numbered point, also of a board that stands on its head: never mirrored, nor turned by half."""
    target = parse_target(text)
    image, pose = seen(target, turn)
    view = detect(target, image, "one")
    assert view is not None
    truth = project(CAMERA, target.points_m() @ pose[:3, :3].T + pose[:3, 3])
    assert np.linalg.norm(view.pixels - truth[view.ids], axis=1).max() < 1.5
    fine = refine(target, view, image)
    assert len(fine.ids) >= 0.9 * len(view.ids)
    rms = [np.sqrt(((each.pixels - truth[each.ids]) ** 2).sum(axis=1).mean()) for each in (view, fine)]
    assert rms[1] < (0.15 if target.kind == "tag" else 0.04)
    assert rms[1] < rms[0]


def test_a_board_that_half_a_turn_leaves_alike_is_known_to() -> None:
    assert parse_target("chessboard:8x6:25mm").half_turn_alike
    assert not parse_target("chessboard:8x5:25mm").half_turn_alike
    assert not parse_target("charuco:6x6:30mm:22mm:5x5_100").half_turn_alike


def test_boards_of_older_opencv_are_told_by_the_image() -> None:
    target = parse_target("charuco:6x6:30mm:22mm:5x5_100")
    old = replace(target, legacy=True)
    image, _ = seen(old, [0.2, 0.2, 0.1])
    assert layout(target, [image]) == old
    image, _ = seen(target, [0.2, 0.2, 0.1])
    assert layout(target, [image]) == target


def test_markers_by_number() -> None:
    image, _ = seen(parse_target("tag:36h11:7:160mm"), [0.1, 0.2, 0.0])
    assert list(detect_markers("36h11", image)) == [7]
    assert detect_markers("25h9", image) == {}
    assert detect(parse_target("tag:36h11:8:160mm"), image) is None
    assert detect(parse_target(BOARDS[0]), image) is None

"""Hints of a user: texts, times, frames and pixels, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vid2phys.commands.config import read_config, write_config
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.errors import InputError, UsageError
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.io.selection import between
from vid2phys.tracking.hint import Hint
from vid2phys.types import Clip


def _clip(frames: int = 20) -> Clip:
    """Return a clip of 100 x 80 pixels at 10 frames a second whose clock starts at 1 s."""
    times = 1.0 + np.arange(frames) / 10.0
    return Clip(ArrayFrames(np.zeros((frames, 80, 100, 3), np.uint8)), times, 100, 80)


@pytest.mark.parametrize(
    ("text", "row", "corners"),
    [
        ("1.5s:41,23", 5, (41.0, 23.0, 41.0, 23.0)),
        (" 1.46 s : 41.5 , 23 ", 5, (41.5, 23.0, 41.5, 23.0)),
        ("frame 7:0,79", 7, (0.0, 79.0, 0.0, 79.0)),
        ("7:99,0", 7, (99.0, 0.0, 99.0, 0.0)),
        ("2.93s:1,2", 19, (1.0, 2.0, 1.0, 2.0)),  # while the last frame is shown
    ],
)
def test_clicks(text: str, row: int, corners: tuple[float, ...]) -> None:
    hint = Hint.of_click(text)
    assert hint.is_click
    assert hint.corners == corners
    assert hint.row(_clip()) == row


def test_boxes() -> None:
    hint = Hint.of_box("1.2s:10,20,40,60")
    assert not hint.is_click
    assert hint.corners == (10.0, 20.0, 40.0, 60.0)
    assert hint.row(_clip()) == 2
    assert hint.flag == "--hint-box 1.2s:10,20,40,60"


def test_frame_numbers_count_in_the_whole_clip() -> None:
    part = between(_clip(), 1.5, 2.0)
    assert Hint.of_click("frame 7:1,1").row(part) == 2
    assert Hint.of_click("1.7s:1,1").row(part) == 2
    with pytest.raises(InputError, match=r"frame 4:1,1: a frame outside of the clip; expected a frame from 5 to 10"):
        Hint.of_click("frame 4:1,1").row(part)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3.2s",
        "3.2:41,23",
        "3.2s:41",
        "3.2s:41,23,5",
        "s:1,2",
        "3.2s:a,b",
        "-1:1,2",
        "nans:1,2",
        "1s:inf,2",
        "1s:1:2",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--hint .*; expected TIME:X,Y.*; `vid2phys hint CLIP`"):
        Hint.of_click(text)


def test_boxes_without_area_are_refused() -> None:
    for text in ("1s:40,20,40,60", "1s:50,20,40,60"):
        with pytest.raises(InputError, match="a box without area"):
            Hint.of_box(text)
    with pytest.raises(InputError, match="X0,Y0,X1,Y1"):
        Hint.of_box("1s:40,20")


def test_hints_outside_of_the_clip_are_refused() -> None:
    clip = _clip()
    for text in ("0.5s:1,1", "3.2s:1,1"):
        with pytest.raises(InputError, match=r"a time outside of the clip; expected a time from 1.000 s to 2.900 s"):
            Hint.of_click(text).row(clip)
    with pytest.raises(InputError, match="expected a frame from 0 to 19"):
        Hint.of_click("frame 20:1,1").row(clip)
    for text in ("1s:100,1", "1s:1,80", "1s:-1,1"):
        with pytest.raises(InputError, match=r"outside of the frame; expected x from 0 to 99 and y from 0 to 79"):
            Hint.of_click(text).row(clip)
    with pytest.raises(InputError, match="outside of the frame"):
        Hint.of_box("1s:90,10,120,30").row(clip)


def _config(**options: object) -> IdentifyConfig:
    given = {"clip": Path("a.mp4"), "camera": Path("c.yaml"), "mesh": Path("m.obj")} | options
    return IdentifyConfig(**given)  # type: ignore[arg-type]


def test_a_config_file_holds_the_hint(tmp_path: Path) -> None:
    config = _config(hint="1.5s:41,23")
    write_config(tmp_path / "config.yaml", config)
    again = IdentifyConfig(**read_config(tmp_path / "config.yaml", IdentifyConfig))
    assert again.hint_of_clip == Hint((text := "1.5s:41,23"), (41.0, 23.0, 41.0, 23.0), 1.5)
    assert again.hint == text


def test_each_clip_has_its_own_hint() -> None:
    both = _config(clip=(Path("a.mp4"), Path("b.mp4")), hint=("1s:1,2", "2s:3,4"))
    both.check()
    hints = [config.hint_of_clip for config in both.of_each_clip()]
    assert [hint.time_s for hint in hints if hint is not None] == [1.0, 2.0]
    with pytest.raises(UsageError, match="1 --hint for 2 clips"):
        _config(clip=(Path("a.mp4"), Path("b.mp4")), hint="1s:1,2").check()


def test_what_a_hint_cannot_be_with() -> None:
    with pytest.raises(UsageError, match="--hint with --hint-box"):
        _config(hint="1s:1,2", hint_box="1s:1,2,3,4").check()
    with pytest.raises(UsageError, match="--hint with --observation"):
        _config(hint="1s:1,2", observation=Path("observation.npz")).check()
    with pytest.raises(UsageError, match="known base"):
        _config(mesh=None, system="hand", hint_box="1s:1,2,3,4").check()
    with pytest.raises(InputError, match=r"--hint-box nonsense"):
        _config(hint_box="nonsense").check()

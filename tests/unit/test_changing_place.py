"""Where a clip changes, and which of two tracks counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.commands.identify import silhouette_doubts
from vid2phys.commands.identify.pipeline import _best_supported, _is_sure
from vid2phys.errors import InputError
from vid2phys.tracking.changing_place import changing_place
from vid2phys.types import Array

TIMES_S = np.arange(21) / 30.0


def film(at: Array, noise: float = 3.0) -> list[Any]:
    """Frames of a bright square, 30 px wide, whose left upper corner is at [T, 2], and of a flicker of one pixel."""
    rng, frames = np.random.default_rng(0), []
    for k, (x, y) in enumerate(np.round(at).astype(int)):
        frame = np.full((120, 160, 3), 90.0) + rng.normal(0.0, noise, (120, 160, 3))
        frame[y : y + 30, x : x + 30] += 80.0
        frame[5, 5] = 255.0 * (k % 2)
        frames.append(np.clip(frame, 0, 255).astype(np.uint8))
    return frames


def test_a_slow_body_is_in_the_middle_of_what_changes() -> None:
    """It moves by a third of its width, so that most of it never changes."""
    move = np.linspace(0.0, 10.0, len(TIMES_S))
    found = changing_place(film(np.stack([60.0 + move, 40.0 + 0.5 * move], axis=1)), TIMES_S)
    assert found is not None
    assert found.is_click
    assert found.time_s == TIMES_S[10]
    np.testing.assert_allclose(found.corners[:2], [79.5, 57.0], atol=3.0)


def test_nothing_changes_in_a_clip_of_noise() -> None:
    assert changing_place(film(np.full((len(TIMES_S), 2), 50.0), noise=8.0), TIMES_S) is None


def flicker(shape: tuple[int, int], *boxes: tuple[int, int, int, int]) -> list[Any]:
    """Black frames in which boxes (x0, y0, x1, y1), ends excluded, are white in every other frame."""
    frames = [np.zeros((*shape, 3), np.uint8) for _ in TIMES_S]
    for x0, y0, x1, y1 in boxes:
        for frame in frames[1::2]:
            frame[y0:y1, x0:x1] = 255
    return frames


def corners(shape: tuple[int, int], *boxes: tuple[int, int, int, int]) -> tuple[float, ...] | None:
    found = changing_place(flicker(shape, *boxes), TIMES_S)
    return None if found is None else found.corners


@pytest.mark.parametrize("size", [(8, 12), (9, 13)])
def test_the_place_is_the_middle_of_the_first_and_the_last_pixel(size: tuple[int, int]) -> None:
    width, height = size
    x, y = 20 + 0.5 * (width - 1), 30 + 0.5 * (height - 1)
    assert corners((75, 100), (20, 30, 20 + width, 30 + height)) == (x, y, x, y)


def test_the_largest_of_three_regions_counts() -> None:
    small, large, medium = (5, 5, 15, 15), (40, 25, 60, 45), (80, 55, 92, 67)
    assert corners((75, 100), small, large, medium) == (49.5, 34.5, 49.5, 34.5)


def test_lines_of_two_pixels_are_no_body() -> None:
    assert corners((75, 100), (50, 5, 52, 70)) is None
    assert corners((75, 100), (5, 40, 95, 42)) is None
    assert corners((75, 100), (50, 5, 53, 70)) == (51.0, 37.0, 51.0, 37.0)


@pytest.mark.parametrize(("shape", "gap_px", "joined"), [
    ((225, 400), 8, True),  # 4 % of the height are 9 px, which bridge 8; 4 % of the width would bridge 15
    ((225, 400), 9, False),
    ((40, 100), 2, True),  # 4 % would be 2 px, and 3 are the least
    ((40, 100), 3, False),
])  # fmt: skip
def test_gaps_below_a_share_of_the_height_are_bridged(shape: tuple[int, int], gap_px: int, joined: bool) -> None:
    """Of two squares of 10 and 12 px, the middle of both counts, or that of the larger one."""
    found = corners(shape, (30, 15, 40, 25), (40 + gap_px, 15, 52 + gap_px, 25))
    last = 51 + gap_px
    assert found is not None
    assert found[0] == 0.5 * ((30 if joined else 40 + gap_px) + last)


def chosen(matches: dict[str, float | InputError], sure: str = "") -> Any:
    """Return the track that counts; tracks are called like their places, and those named `sure` have no doubt."""

    def tracked(place: Any) -> Any:
        match = matches[place]
        if isinstance(match, InputError):
            raise match
        return SimpleNamespace(name=place, image_match=match)

    places: Any = matches
    return _best_supported(places, tracked, lambda one: one.name == sure).name  # type: ignore[attr-defined]


def test_the_better_match_counts_and_no_other_place_is_tried_where_it_has_no_doubt() -> None:
    failure = InputError("nothing moves", "a body", "film it")
    assert chosen({"anywhere": 2.0, "here": 5.0}, sure="anywhere") == "anywhere"
    assert chosen({"anywhere": 5.0, "here": 6.0}, sure="here") == "here"
    assert chosen({"anywhere": 6.0, "here": 5.0}, sure="here") == "anywhere", "a thing at rest may look like the mesh"
    assert chosen({"anywhere": 3.0, "here": 2.0}) == "anywhere"
    assert chosen({"anywhere": 3.0, "here": 4.0}) == "here"
    assert chosen({"anywhere": failure, "here": 1.0}) == "here"
    assert chosen({"anywhere": 1.0, "here": failure}) == "anywhere"
    with pytest.raises(InputError, match="nothing moves"):
        chosen({"anywhere": failure, "here": InputError("no object", "", "")})


@pytest.mark.parametrize(("blur", "doubts", "sure"), [
    (None, [], True),
    (None, ["it jumps"], False),
    ("measured", ["it jumps"], True),
])  # fmt: skip
def test_a_body_with_a_doubt_is_looked_for_again_unless_it_blurs(
    blur: Any, doubts: list[str], sure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silhouette_doubts, "silhouette_doubts", lambda inputs, track: doubts)
    inputs: Any = "inputs"
    track: Any = SimpleNamespace(blur=blur)
    assert _is_sure(inputs, track) == sure

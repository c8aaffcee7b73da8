"""Where a clip changes, and which of two tracks counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.commands.identify.pipeline import _best_supported
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


def chosen(matches: dict[str, float | InputError], sure: str = "") -> Any:
    """Return the track that counts; tracks are called like their places, and those named `sure` have no doubt."""

    def tracked(place: Any) -> Any:
        match = matches[place]
        if isinstance(match, InputError):
            raise match
        return SimpleNamespace(name=place, image_match=match)

    places: Any = matches
    return _best_supported(places, tracked, lambda one: one.name == sure).name  # type: ignore[attr-defined]


def test_the_track_without_a_doubt_counts_and_else_the_better_match() -> None:
    failure = InputError("nothing moves", "a body", "film it")
    assert chosen({"anywhere": 2.0, "here": 5.0}, sure="anywhere") == "anywhere"
    assert chosen({"anywhere": 6.0, "here": 5.0}, sure="here") == "here"
    assert chosen({"anywhere": 3.0, "here": 2.0}) == "anywhere"
    assert chosen({"anywhere": 3.0, "here": 4.0}) == "here"
    assert chosen({"anywhere": failure, "here": 1.0}) == "here"
    assert chosen({"anywhere": 1.0, "here": failure}) == "anywhere"
    with pytest.raises(InputError, match="nothing moves"):
        chosen({"anywhere": failure, "here": InputError("no object", "", "")})

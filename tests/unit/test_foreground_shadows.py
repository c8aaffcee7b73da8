"""Shadows in the segmentation: a dark body before a grey floor passes for one, until the clip shows its shadows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vid2phys.tracking.foreground import _SAME, DEFAULTS, Foreground, _darkest_shadow

HEIGHT, WIDTH, SIDE = 100, 240, 24
FLOOR, SHADOW, BODY = 140.0, 0.7, 0.45  # grey levels, and shares of the floor's
COUNT = 31
AT = np.linspace(10, WIDTH - SIDE - 10, COUNT).astype(int)


@pytest.fixture(scope="module")
def fall() -> list[np.ndarray]:
    """Return frames of a dark grey square that crosses a grey floor, with its shadow far below it."""
    rng = np.random.default_rng(4)
    frames = []
    for x in AT:
        light = np.ones((HEIGHT, WIDTH))
        light[70:90, x : x + SIDE] = SHADOW
        light[10 : 10 + SIDE, x : x + SIDE] = BODY
        frames.append((FLOOR * light[..., None] + rng.normal(0.0, 1.0, (HEIGHT, WIDTH, 3))).astype(np.uint8))
    return frames


def square(x: int) -> tuple[slice, slice, np.ndarray]:
    return slice(10, 10 + SIDE), slice(x, x + SIDE), np.ones((SIDE, SIDE), dtype=bool)


def on_body(ratio: np.ndarray, k: int) -> float:
    return float(np.median(ratio[14 : 6 + SIDE, AT[k] + 4 : AT[k] + SIDE - 4]))


def in_shadow(ratio: np.ndarray, k: int) -> float:
    return float(np.median(ratio[74:86, AT[k] + 4 : AT[k] + SIDE - 4]))


def test_without_shadows_all_that_is_darker_is_body(fall: list[np.ndarray]) -> None:
    foreground, k = Foreground.of(fall), 15
    assert on_body(foreground.log_ratio(fall[k]), k) < 0.0
    bright = foreground.without_shadows().log_ratio(fall[k])
    assert on_body(bright, k) > 2.0
    assert in_shadow(bright, k) > 2.0


def test_the_shadow_of_a_body_says_that_the_body_is_darker(fall: list[np.ndarray]) -> None:
    masks = {k: square(int(AT[k])) for k in range(0, COUNT, 3)}
    assert Foreground.of(fall).learned(masks).darkest_shadow == DEFAULTS.darkest_shadow  # of a body that may be bright
    learned = replace(Foreground.of(fall), is_dark=True).learned(masks)
    assert learned.darkest_shadow == pytest.approx(DEFAULTS.at_contact * SHADOW, abs=0.03)
    ratio = learned.log_ratio(fall[16])
    assert on_body(ratio, 16) > 2.0
    assert in_shadow(ratio, 16) < -2.0


def test_coloured_pixels_say_nothing_of_shadows() -> None:
    grey = np.full((DEFAULTS.shadow_pixels, 3), int(0.8 * _SAME), np.uint8)
    assert _darkest_shadow(grey, DEFAULTS) == pytest.approx(0.8 * DEFAULTS.at_contact, abs=0.01)
    coloured = grey + np.array([0, 20, 0], np.uint8)
    assert _darkest_shadow(coloured, DEFAULTS) == DEFAULTS.darkest_shadow
    assert _darkest_shadow(np.concatenate([coloured, grey[1:]]), DEFAULTS) == DEFAULTS.darkest_shadow


def test_a_body_beside_which_nothing_changes_casts_no_shadow() -> None:
    grey = np.full((DEFAULTS.shadow_pixels - 1, 3), int(0.8 * _SAME), np.uint8)
    assert _darkest_shadow(grey, DEFAULTS) == np.inf
    assert _darkest_shadow(np.zeros((0, 3), np.uint8), DEFAULTS) == np.inf

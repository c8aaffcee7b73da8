"""The model of scene and body: which frames teach it, what it says of a pixel, and what poses add to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from vid2phys.tracking.foreground import DEFAULTS, Foreground, Silhouette, color_density

HEIGHT, WIDTH, SIDE = 80, 120, 16
RNG = np.random.default_rng(0)
WALL = RNG.integers(60, 180, (HEIGHT, WIDTH, 3)).astype(np.uint8)
RED = np.array([200, 30, 40], np.uint8)
UNKNOWN = 2.0 - 3.0 * np.log(256.0)  # nats of a body of any colour, per cube of one grey level


def square(x: int, y: int = 30) -> Silhouette:
    return slice(y, y + SIDE), slice(x, x + SIDE), np.ones((SIDE, SIDE), dtype=bool)


def clip(places: list[int], patch: tuple[int, int] | None = None) -> list[NDArray[np.uint8]]:
    """Frames of a red square at places (x) before a wall; in a patch (x, y) of 10 px the wall is half as bright."""
    frames = []
    for x in places:
        frame = WALL.copy()
        if patch is not None:
            frame[patch[1] : patch[1] + 10, patch[0] : patch[0] + 10] //= np.array([2, 3, 2], np.uint8)
        frame[square(x)[:2]] = RED
        frames.append(frame)
    return frames


def test_frames_all_over_the_clip_and_those_asked_for_teach_the_background() -> None:
    frames = clip(list(range(0, 80, 2)))
    found = Foreground.of(frames, including=[1, 39, 17])
    every = set(np.linspace(0, 39, 31).astype(int).tolist()) | {1, 39, 17}
    assert found.rows.tolist() == sorted(every)
    np.testing.assert_array_equal(found.background, WALL)
    np.testing.assert_allclose(found.noise, 3.0)
    np.testing.assert_allclose(found.scene, color_density(WALL.reshape(-1, 3), 0.3))
    assert found.body is None
    dark = [np.rint(0.8 * frame).astype(np.uint8) if k % 3 == 0 else frame for k, frame in enumerate(frames)]
    again = Foreground.of(dark)
    assert np.abs(again.background.astype(int) - WALL).max() <= 2, "frames of another exposure are brought to one"


def test_a_pixel_is_the_bodys_as_far_as_its_background_does_not_explain_it() -> None:
    found = Foreground.of(clip(list(range(0, 80, 5))))
    for step, inside in ((0, True), (6, False), (30, True)):
        frame = WALL.copy()
        frame[40:60, 40:60] = WALL[40:60, 40:60] + step
        ratio = found.log_ratio(frame)
        scene = -1.5 * np.log(2.0 * np.pi) - 3.0 * np.log(3.0) - 0.5 * 3.0 * step**2 / 9.0
        expected = np.clip(UNKNOWN - scene, -4.0, 4.0)
        if inside:
            assert np.median(ratio[42:58, 42:58]) == pytest.approx(expected, abs=0.01), step
        else:
            assert expected == pytest.approx(-2.58, abs=0.01)
            assert np.median(ratio[42:58, 42:58]) == pytest.approx(expected, abs=0.1)
        assert ratio[5, 5] == -4.0
    spot = WALL.copy()
    spot[20, 20] = RED
    assert found.log_ratio(spot)[20, 20] < 0.0, "one pixel of nine"
    spot[19:22, 19:22] = RED
    assert found.log_ratio(spot)[20, 20] == 4.0


def test_a_known_texture_may_be_in_four_lights() -> None:
    plain = Foreground.of(clip([0, 40, 80]))
    colors = np.array([[1.0, 0.2, 0.1], [0.1, 0.9, 0.3]])
    found = plain.knowing(colors)
    lit = np.concatenate([255.0 * light * colors for light in (0.5, 0.65, 0.8, 1.0)]).astype(np.uint8)
    assert found.body is not None
    np.testing.assert_allclose(found.body, color_density(lit, 0.3))
    assert plain.without_shadows().darkest_shadow == np.inf
    assert plain.darkest_shadow == 0.35


def test_silhouettes_teach_the_bodys_colours_and_what_changes_beside_it() -> None:
    """A patch far from the body is darker in a third of the frames; its relative colours are those of what changes."""
    places = [5, 9, 13, 17, 21, 25, 80, 84, 88, 92, 96, 100]
    frames = [*clip(places[:4], patch=(90, 60)), *clip(places[4:])]
    masks = {k: square(x) for k, x in enumerate(places)}
    plain = Foreground.of(frames)
    found = plain.learned(masks)
    inside = np.concatenate([frames[k][mask[0], mask[1]][mask[2]] for k, mask in masks.items()])
    assert found.body is not None
    np.testing.assert_allclose(found.body, color_density(inside, DEFAULTS.uniform_share))
    assert (found.background[:55] == WALL[:55]).mean() > 0.999
    assert found.changed is not None
    shown = np.exp(found.changed).sum() * 16.0**3
    assert shown == pytest.approx(4 * 100 / (12 * SIDE**2), rel=0.02), "pixels that change over those of the body"
    relative = np.argmax(found.changed)
    red, green, blue = relative // 256, relative // 16 % 16, relative % 16
    assert (red, blue) == (80 // 16 - (red == 4), 80 // 16 - (blue == 4)), "half as bright as 160"
    assert green in (2, 3)
    darker = WALL.copy()
    darker[60:70, 90:100] //= np.array([2, 3, 2], np.uint8)
    before, after = (np.median(each.log_ratio(darker)[61:69, 91:99]) for each in (plain, found))
    assert before > 0.0 > after
    assert plain.learned({}) is plain


def test_where_a_body_rests_in_most_frames_the_background_is_that_of_the_others() -> None:
    places = [40] * 9 + [5, 90, 98, 20]
    frames = clip(places)
    masks = {k: square(x) for k, x in enumerate(places)}
    plain = Foreground.of(frames, including=range(len(frames)))
    assert (plain.background[square(40)[:2]] == RED).all()
    found = plain.learned(masks)
    np.testing.assert_array_equal(found.background, WALL)
    ratio = found.log_ratio(frames[0])
    assert (ratio[32:44, 42:54] > 2.0).all()
    assert np.median(ratio[:28]) < -3.0
    twice = [40] * 11 + [5, 90]
    rare = Foreground.of(clip(twice)).learned({k: square(x) for k, x in enumerate(twice)})
    assert not (np.isfinite(rare.noise[33:43, 43:53]) & (rare.background[33:43, 43:53] != RED).any(axis=-1)).any()


def test_a_dark_body_asks_how_dark_shadows_are() -> None:
    places = [5, 9, 13, 17, 21, 25, 80, 84, 88, 92, 96, 100]
    frames = clip(places)
    for frame in frames[:4]:
        frame[60:70, 90:100] = 0.7 * WALL[60:70, 90:100]
    masks = {k: square(x) for k, x in enumerate(places)}
    plain = Foreground.of(frames)
    assert plain.learned(masks).darkest_shadow == 0.35
    assert replace(plain, is_dark=True).learned(masks).darkest_shadow == pytest.approx(0.9 * 0.7, abs=0.03)

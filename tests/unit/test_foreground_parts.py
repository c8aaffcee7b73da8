"""The parts of the segmentation beside slow sums: background and noise, colours, shadows, regions."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.tracking.foreground import (
    DEFAULTS,
    _background,
    _deviation,
    _distance,
    _floored,
    _grown,
    _log_ratio,
    _median,
    _of_exposure,
    _other_colors,
    _relative,
    _touched,
    color_density,
)


def test_the_background_is_the_median_of_what_is_used_and_noise_that_about_it() -> None:
    rng = np.random.default_rng(0)
    samples = rng.integers(0, 256, (7, 3, 4, 3)).astype(np.uint8)
    used = rng.random((7, 3, 4)) < 0.7
    used[:, 0, 0], used[:, 0, 1] = np.arange(7) < 2, np.arange(7) < 3
    median, noise = _background(samples, used)
    for y in range(3):
        for x in range(4):
            shown = samples[used[:, y, x], y, x].astype(float)
            if len(shown) < 3:
                assert np.isinf(noise[y, x])
                continue
            middle = np.sort(shown, axis=0)[len(shown) // 2]
            np.testing.assert_array_equal(median[y, x], middle)
            spread = np.sort(np.abs(shown - middle), axis=0)[len(shown) // 2]
            assert noise[y, x] == pytest.approx(1.48 * spread.mean(), rel=1e-5)
    assert np.isfinite(noise[0, 1]), "three frames are enough"


@pytest.mark.parametrize("values", [
    [7], [0], [255], [0, 255], [3, 3, 200], [255, 255, 254], [0, 0, 1], [0, 255, 255, 255], [0, 0, 0, 255],
    [10, 20, 30, 40], [250, 251, 252, 253, 0], [5, 4, 3, 2, 1, 250], [1, 2, 254, 255], [9] * 6,
])  # fmt: skip
def test_counted_bytes_give_their_median_and_the_median_distance_from_it(values: list[int]) -> None:
    """Of an even number of bytes the upper one of the middle counts; distances may reach past 0 or 255."""
    bins, middle = np.bincount(values, minlength=256), sorted(values)[len(values) // 2]
    assert _median(bins, len(values)) == middle
    assert _deviation(bins, len(values), middle) == sorted(abs(each - middle) for each in values)[len(values) // 2]


def test_counted_bytes_are_those_of_sorted_ones_for_any_number_of_them() -> None:
    rng = np.random.default_rng(5)
    for count in range(1, 60):
        values = (
            np.clip(rng.normal(rng.uniform(0, 255), rng.uniform(0, 80), count), 0, 255).astype(np.uint8).astype(int)
        )
        bins, middle = np.bincount(values, minlength=256), int(np.sort(values)[count // 2])
        assert _median(bins, count) == middle
        assert _deviation(bins, count, middle) == np.sort(np.abs(values - middle))[count // 2]


def test_noise_is_smooth_and_not_below_what_is_usual() -> None:
    noise = np.full((20, 20), 4.0, np.float32)
    noise[10, 10] = 104.0
    noise[:3] = np.inf
    found = _floored(noise, DEFAULTS)
    assert np.isinf(found[:3]).all()
    assert np.isfinite(found[3:]).all()
    np.testing.assert_allclose(found[8:13, 8:13], 4.0 + 100.0 / 25.0)
    np.testing.assert_allclose(found[15:, 15:], 1.5 * 4.0)
    np.testing.assert_allclose(_floored(np.full((9, 9), 0.5, np.float32), DEFAULTS), 3.0)
    assert np.isinf(_floored(np.full((9, 9), np.inf, np.float32), DEFAULTS)).all()


def test_colours_are_the_bodys_where_they_are_likelier_than_the_scenes() -> None:
    body, scene = np.zeros(4096), np.zeros(4096)
    samples = np.array([[[[17, 40, 255], [15, 40, 255], [17, 40, 239]]]], np.uint8)
    body[1 * 256 + 2 * 16 + 15] = 3.0
    np.testing.assert_array_equal(_other_colors(samples, body, scene, 3.1), [[[True, True, True]]])
    np.testing.assert_array_equal(_other_colors(samples, body, scene, 2.9), [[[False, True, True]]])
    scene[1 * 256 + 2 * 16 + 15] = 1.0
    np.testing.assert_array_equal(_other_colors(samples, body, scene, 2.9), [[[True, True, True]]])


def test_a_frame_is_brought_to_the_exposure_of_the_background() -> None:
    rng = np.random.default_rng(1)
    behind = rng.integers(60, 180, (80, 80, 3)).astype(np.uint8)
    gain = np.array([0.8, 0.9, 1.2])
    frame = np.rint(behind / gain).astype(np.uint8)
    frame[:30] = 90  # less than half of the frame shows something else
    found = _of_exposure(frame, behind)
    assert np.abs(found[30:].astype(int) - behind[30:]).max() <= 1
    same = np.rint(behind / 1.01).astype(np.uint8)
    assert _of_exposure(same, behind) is same
    dark = np.full_like(behind, 20)
    assert _of_exposure(dark, behind) is dark, "nothing is neither dark nor clipped"
    assert _of_exposure(np.full_like(behind, 235), behind).max() == 235
    small = frame[:36, :36]
    assert _of_exposure(small, behind[:36, :36]) is small, "fewer than 100 pixels say nothing"


def test_distances_and_relative_colours() -> None:
    frame, behind = np.array([[[10, 20, 30]]], np.uint8), np.array([[[13, 16, 30]]], np.uint8)
    np.testing.assert_allclose(_distance(frame, behind), np.sqrt(25.0 / 3.0))
    np.testing.assert_allclose(_distance(behind, frame), _distance(frame, behind))
    colors, known = np.array([[99, 0, 255]], np.uint8), np.array([[99, 7, 9]], np.uint8)
    np.testing.assert_array_equal(_relative(colors, known), [[158, 0, 255]])  # of 160, and at most 255


def test_a_silhouette_grows_by_pixels() -> None:
    mask = np.zeros((4, 5), dtype=bool)
    mask[1:3, 2] = True
    found = _grown((slice(6, 10), slice(3, 8), mask), (20, 20), 2.0)
    assert found[7:9, 5].all()
    assert found[7:9, 3:8].all()
    assert found[5, 5]
    assert not found[4, 5]
    assert not found[7, 2]
    assert not found[7, 8]
    assert not found[5, 7]


def test_a_resting_part_of_the_body_is_touched_in_most_frames_and_smaller_than_it() -> None:
    always = np.zeros((60, 60), dtype=bool)
    always[0:10, 20:40] = True  # the part near the pin
    always[40:60, 0:20] = True  # something of the body's colours elsewhere
    always[30, 50] = True  # noise
    mask = np.ones((15, 20), dtype=bool)
    near, far = (slice(12, 27), slice(20, 40), mask), (slice(40, 55), slice(35, 55), mask)
    own = always.copy()
    own[11:] = False
    np.testing.assert_array_equal(_touched(always, [near] * 5 + [far], DEFAULTS), own)
    assert not _touched(always, [near] * 4 + [far], DEFAULTS).any(), "in eight of ten frames at least"
    wall = np.zeros((60, 60), dtype=bool)
    wall[0:11, 0:60] = True
    assert not _touched(wall, [near] * 5, DEFAULTS).any(), "larger than the body"


def ratio(
    color: tuple[int, int, int], behind: tuple[int, int, int], noise: float, body: float, **given: float
) -> float:
    """The log-likelihood ratio of one pixel; scene and changed: log densities of its colour and relative colour."""
    frame, background = (np.array([[each]], np.uint8) for each in (color, behind))
    scenes = np.full(4096, given.get("scene", -30.0)), np.full(4096, given.get("changed", -np.inf))
    shadow = given.get("shadow_nats", 3.0), given.get("darkest", 0.35)
    found = _log_ratio(frame, background, np.array([[noise]], np.float32), np.full(4096, body), scenes, shadow, 3.5)
    return float(found[0, 0])


def normal(off: float, std: float) -> float:
    """Log density of three channels whose squared distances sum to `off`."""
    return -1.5 * np.log(2.0 * np.pi) - 3.0 * np.log(std) - 0.5 * off / std**2


def test_a_pixel_is_scene_as_far_as_it_is_like_its_background() -> None:
    behind = (100, 120, 80)
    assert ratio(behind, behind, 4.0, -12.0) == pytest.approx(-12.0 - normal(0.0, 4.0), abs=0.01)
    brighter = (106, 128, 85)
    assert ratio(brighter, behind, 4.0, -12.0) == pytest.approx(-12.0 - normal(125.0, 4.0), abs=0.01)
    assert ratio((200, 20, 200), behind, 4.0, -12.0) == pytest.approx(-12.0 + 30.0 + 3.5, abs=0.01), "any colour"
    assert ratio((200, 20, 200), behind, 4.0, -12.0, scene=-9.0) == pytest.approx(-12.0 + 9.0 + 3.5, abs=0.01)
    assert ratio(behind, behind, np.inf, -12.0, scene=-9.0) == pytest.approx(-3.0, abs=0.01), "an unknown background"


def test_a_shadow_is_a_darker_pixel_of_the_same_colour() -> None:
    behind, half = (160, 120, 80), (80, 60, 40)
    shadow = normal(0.0, 4.0) - 1.2 - 3.0 - 2.0 * 0.5
    assert ratio(half, behind, 4.0, -12.0) == pytest.approx(-12.0 - shadow, abs=0.02)
    off = 7.0**2 * (80**2 + 120**2) / (160**2 + 120**2 + 80**2)  # across the way of the shadow
    tinted = ratio((87, 60, 40), behind, 4.0, -12.0)
    assert tinted == pytest.approx(-12.0 - (shadow - 0.5 * off / 36.0), abs=0.15)
    assert ratio((32, 24, 16), behind, 4.0, -12.0) > 14.0, "too dark for a shadow"
    assert ratio((240, 180, 120), behind, 4.0, -12.0) > 14.0, "too bright"
    darker = ratio((32, 24, 16), behind, 4.0, -12.0, darkest=0.1)
    assert darker == pytest.approx(-12.0 - (normal(0.0, 4.0) - 4.2 - 1.6), abs=0.05)


def test_what_changes_beside_the_body_has_relative_colours() -> None:
    behind, frame = np.array([[[99, 119, 79]]], np.uint8), np.array([[[50, 61, 81]]], np.uint8)
    changed = np.full(4096, -np.inf)
    level = np.minimum(160.0 * frame[0, 0] / (behind[0, 0] + 1.0), 255.0).astype(int) >> 4
    changed[level @ [256, 16, 1]] = -7.0
    body, scene = np.full(4096, -12.0), np.full(4096, -60.0)
    found = _log_ratio(frame, behind, np.array([[3.0]], np.float32), body, (scene, changed), (3.0, 0.35), 3.5)
    slope = np.log(160.0 / (behind[0, 0] + 1.0)).sum()
    assert found[0, 0] == pytest.approx(-12.0 + 7.0 - slope, abs=0.01)


def test_a_density_of_few_colours_has_the_share_of_the_uniform_one_elsewhere() -> None:
    density = color_density(np.tile(np.array([[200, 30, 90]], np.uint8), (50, 1)), 0.2)
    assert density.shape == (4096,)
    assert np.exp(density).sum() * 16.0**3 == pytest.approx(1.0)
    assert density.min() == pytest.approx(np.log(0.2 / 256.0**3))
    assert int(np.argmax(density)) == 12 * 256 + 1 * 16 + 5

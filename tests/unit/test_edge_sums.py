"""The loops of `edge_likelihood` at their borders: last pixels, equal values, single steps, and peaks at an end."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from vid2phys.tracking.cues.edge_likelihood import (
    correlated_count,
    cover_lines,
    line_likelihood,
    posterior,
    sample_lines,
    side_colors,
    side_ratio,
)
from vid2phys.types import Array

RNG = np.random.default_rng
RIGHT, DOWN = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])


def light_at(frame: NDArray[np.uint8], table: Array, x: float, y: float) -> tuple[float, float, float]:
    """Return bilinear light, as weights of all pixels that are less than a pixel away."""
    weights = [
        (max(0.0, 1.0 - abs(x - u)) * max(0.0, 1.0 - abs(y - v)), u, v)
        for v in range(frame.shape[0])
        for u in range(frame.shape[1])
    ]
    red, green, blue = (sum(w * float(table[frame[v, u, c]]) for w, u, v in weights if w > 0.0) for c in range(3))
    return red, green, blue


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_light_up_to_the_last_pixel_is_that_of_the_pixels_around(samples: int) -> None:
    frame = RNG(0).integers(0, 256, (4, 6, 3)).astype(np.uint8)
    table = np.sqrt(np.arange(256.0)) + 1.0
    start, way = np.array([[0.5, 0.4], [4.5, 2.7]]), np.array([[0.8, 0.6], [-0.96, -0.28]])
    found, inside = sample_lines(frame, table, start, way, 1.2, 4, samples)
    assert inside.all()
    for i in range(2):
        for r in range(4):
            along = [1.2 * (r - 0.5 + (2 * q + 1) / (2 * samples)) for q in range(samples)]
            light = np.mean([light_at(frame, table, *(start[i] + s * way[i])) for s in along], axis=0)
            np.testing.assert_allclose(found[i, r], light, rtol=1e-12)


@pytest.mark.parametrize(("x", "y", "is_inside"), [
    (0.0, 0.0, True), (5.0, 3.0, True), (5.0, 0.0, True), (0.0, 3.0, True),
    (5.001, 2.0, False), (-0.001, 2.0, False), (2.0, 3.001, False), (2.0, -0.001, False), (4.0, 5.0, False),
])  # fmt: skip
def test_a_line_in_the_frame_starts_on_its_pixels(x: float, y: float, is_inside: bool) -> None:
    frame = RNG(1).integers(0, 256, (4, 6, 3)).astype(np.uint8)
    found, inside = sample_lines(frame, np.arange(256.0), np.array([[x, y]]), RIGHT, 1.0, 1, 1)
    assert inside.tolist() == [is_inside]
    if is_inside:
        np.testing.assert_array_equal(found[0, 0], frame[int(y), int(x)])


def test_a_line_that_leaves_the_frame_does_not_change_the_others() -> None:
    frame = RNG(2).integers(0, 256, (9, 9, 3)).astype(np.uint8)
    start = np.array([[1.0, 1.0], [6.0, 2.0], [2.0, 5.0]])
    found, inside = sample_lines(frame, np.arange(256.0), start, np.repeat(RIGHT, 3, axis=0), 1.0, 5, 1)
    assert inside.tolist() == [True, False, True]
    for i, (x, y) in enumerate(start.astype(int)):
        shown = frame[y, x : x + 5].astype(float)
        np.testing.assert_array_equal(found[i, : len(shown)], shown)
        np.testing.assert_array_equal(found[i, len(shown) :], 0.0)


def test_a_drawing_is_covered_from_its_first_pixel_to_before_its_last() -> None:
    drawing = RNG(3).uniform(0.2, 1.0, (5, 7)).astype(np.float32)
    across = cover_lines(drawing, np.array([[-1.0, 2.0]]), RIGHT, 10, 0)[0]
    np.testing.assert_allclose(across, [0.0, *drawing[2, :6], 0.0, 0.0, 0.0], rtol=1e-6)
    down = cover_lines(drawing, np.array([[3.0, -1.0]]), DOWN, 8, 0)[0]
    np.testing.assert_allclose(down, [0.0, *drawing[:4, 3], 0.0, 0.0, 0.0], rtol=1e-6)
    for first_row in (0, 3):
        edge = cover_lines(drawing, np.array([[0.0, first_row]]), RIGHT, 6, 0)[0]
        np.testing.assert_allclose(edge, drawing[first_row, :6], rtol=1e-6)


@pytest.mark.parametrize("smooth", [1, 2, 3])
def test_coverage_is_the_mean_of_one_place_more_than_it_is_smoothed_over(smooth: int) -> None:
    """Along its rows a drawing counts columns 1, 2 and 5 times, and values beside it count as zero in the mean."""
    drawing = np.outer([1.0, 2.0, 5.0, 10.0], np.arange(1.0, 13.0)).astype(np.float32)
    found = cover_lines(drawing, np.array([[-2.0, 1.0], [3.5, 1.5]]), np.array([[1.0, 0.0], [0.5, 0.0]]), 14, smooth)
    for i, (x0, step, times) in enumerate(((-2.0, 1.0, 2.0), (3.5, 0.5, 3.5))):
        for k in range(14):
            at = [x0 + step * (k + j - smooth / 2.0) for j in range(smooth + 1)]
            values = [times * (x + 1.0) if 0.0 <= x < 11.0 else 0.0 for x in at]
            assert found[i, k] == pytest.approx(sum(values) / len(values), abs=1e-5)


def test_colours_of_lines_with_one_pixel_or_none_by_hand() -> None:
    """Two lines of one channel value each: 1 and 3 on the first, 5 on the second, nothing on the third."""
    seen = np.zeros((3, 3, 3)) + np.array([[1.0, 3.0, 77.0], [88.0, 5.0, 99.0], [66.0, 55.0, 44.0]])[..., None]
    pure = np.array([[True, True, False], [False, True, False], [False, False, False]])
    mean, spread, texture = side_colors(seen, pure, 0.5)
    np.testing.assert_allclose(mean, 3.0)
    assert spread == pytest.approx((2.0 * 1.0 + 1.0 * 4.0) / 3.0 + 0.25)
    np.testing.assert_allclose(texture, [(2.0 + 2.0 * 2.0) / (1.0 + 2.0), 2.0, 2.0])
    mean, spread, texture = side_colors(seen, np.zeros_like(pure), 0.5)
    assert (mean.tolist(), spread, texture.tolist()) == ([0.3] * 3, 0.1, [0.01] * 3)
    pure[0] = True  # 1, 3 and 77 about 27: squares of 26, 24 and 50
    squares = 676.0 + 576.0 + 2500.0
    mean, spread, texture = side_colors(seen, pure, 0.5)
    np.testing.assert_allclose(mean, 86.0 / 4.0)
    assert spread == pytest.approx((3.0 * 5.5**2 + 16.5**2) / 4.0 + 0.25)
    np.testing.assert_allclose(texture, [(squares + squares) / 4.0, squares / 2.0, squares / 2.0])


def test_colours_of_single_pixels_have_no_texture() -> None:
    seen = RNG(4).random((4, 1, 3))
    mean, spread, texture = side_colors(seen, np.ones((4, 1), dtype=bool), 0.1)
    np.testing.assert_allclose(mean, seen[:, 0].mean(axis=0))
    assert spread == pytest.approx(seen[:, 0].var(axis=0).mean() + 0.01)
    np.testing.assert_allclose(texture, 0.0, atol=1e-15)


@pytest.mark.parametrize(("parts", "length", "places"), [(1, 4, 1), (2, 5, 15), (3, 4, 16), (1, 6, 17), (4, 3, 35)])
def test_likelihoods_of_any_number_of_places_are_normal_ones(parts: int, length: int, places: int) -> None:
    """Colours of both sides that are common to a line's pixels, and noise of each: a normal distribution of a line.

    A constant of a line may be added: 1.5 times the logarithm of the product of both spreads.
    """
    rng = RNG(5)
    cover = rng.uniform(0.0, 1.0, (2, places + parts * (length - 1)))
    seen, mean = rng.uniform(0.0, 1.0, (2, length, 3)), rng.uniform(0.0, 1.0, (2, 3))
    spread, texture, floor = np.array([0.03, 0.06]), rng.uniform(0.01, 0.05, (2, 2)), rng.uniform(2e-3, 4e-3, 2)
    found = line_likelihood(seen, cover, parts, mean, spread, texture, floor)
    assert found.shape == (2, places)
    for i in range(2):
        for d in range(places):
            a = np.array([cover[i, parts * r + places - 1 - d] for r in range(length)])
            b = 1.0 - a
            matrix = spread[0] * np.outer(a, a) + spread[1] * np.outer(b, b)
            matrix += np.diag(a**2 * texture[i, 0] + b**2 * texture[i, 1] + floor[i])
            nats = 1.5 * math.log(spread[0] * spread[1])
            for c in range(3):
                rest = seen[i, :, c] - a * mean[0, c] - b * mean[1, c]
                nats -= 0.5 * (rest @ np.linalg.solve(matrix, rest) + np.linalg.slogdet(matrix)[1])
            assert found[i, d] == pytest.approx(nats, abs=1e-8)


def without_prior(m: float, v: float, within: float) -> tuple[float, float]:
    """Return the mean and variance whose product with a prior has mean m and variance v."""
    gained = 1.0 / v - 1.0 / within**2
    return m / v / gained, 1.0 / gained


def test_a_posterior_of_few_places_has_the_moments_of_these() -> None:
    """Four places of any weights: their middle is the third one, so that they lie at -2, -1, 0 and 1 steps."""
    weights, step, within = np.array([3.0, 1.0, 2.0, 4.0]), 0.5, 9.0
    at = step * np.array([-2.0, -1.0, 0.0, 1.0])
    logs = np.log(weights) + 0.5 * (at / within) ** 2 - 7.0
    mean, variance = posterior(np.stack([logs, logs + 100.0]), step, within, 0.0)
    m = float((weights * at).sum() / weights.sum())
    v = float((weights * at**2).sum() / weights.sum()) - m**2
    assert v > step**2
    np.testing.assert_allclose([mean, variance], np.array(without_prior(m, v, within))[:, None].repeat(2, axis=1))


def test_a_posterior_narrower_than_a_step_has_a_parabola_at_its_peak() -> None:
    """Its top and bend are those through the peak and the two places beside it, for any shape."""
    step, within = 0.5, 3.0
    for peak in (1, 3, 5):
        value = np.full(7, -60.0)
        value[peak - 1 : peak + 2] = [-3.0, 0.0, -5.0]
        at = step * (np.arange(7) - 3.0)
        mean, variance = posterior((value + 0.5 * (at / within) ** 2)[None], step, within, 0.0)
        fit = np.polyfit(at[peak - 1 : peak + 2], value[peak - 1 : peak + 2], 2)
        m, v = -0.5 * fit[1] / fit[0], -0.5 / fit[0]
        np.testing.assert_allclose([mean[0], variance[0]], without_prior(m, v, within), rtol=1e-9)


def test_a_posterior_a_little_wider_than_a_step_keeps_its_moments() -> None:
    """Weights of w, 1 and w, two steps apart, vary by 8 w / (1 + 2 w) square steps: more than one from w = 1 / 6 on."""
    step, within = 2.0, 40.0
    at = step * np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    for beside, is_wide in ((0.17, True), (0.16, False)):
        w = np.array([beside, 1e-9, 1.0, 1e-9, beside])
        m, v = 0.0, float((w * at**2).sum() / w.sum())
        assert (v > step**2) is is_wide
        _, variance = posterior((np.log(w) + 0.5 * (at / within) ** 2)[None], step, within, 0.0)
        bend = np.log(1e-9) * 2.0 / step**2
        expected = v if is_wide else -1.0 / bend
        assert variance[0] == pytest.approx(without_prior(m, expected, within)[1], rel=1e-6)


@pytest.mark.parametrize("end", [0, 6])
def test_an_edge_at_the_last_place_is_as_wide_as_places_are_apart(end: int) -> None:
    """Where no parabola has its top there, the variance is half a square step; else the top is a step away at most."""
    step, within = 0.5, 8.0
    at = step * (np.arange(7) - 3.0)
    cliff = np.where(np.arange(7) == end, 0.0, -70.0)
    mean, variance = posterior((cliff + 0.5 * (at / within) ** 2)[None], step, within, 0.0)
    np.testing.assert_allclose([mean[0], variance[0]], without_prior(at[end], 0.5 * step**2, within), rtol=1e-9)
    slope = -6.0 * np.abs(np.arange(7.0) - end) - 0.1 * (np.arange(7.0) - end) ** 2
    mean, variance = posterior((slope + 0.5 * (at / within) ** 2)[None], step, within, 0.0)
    np.testing.assert_allclose([mean[0], variance[0]], without_prior(at[end], step**2 / 0.2, within), rtol=1e-6)


def test_a_line_counts_from_a_share_of_the_priors_information_on() -> None:
    step, within = 0.25, 2.0
    at = step * (np.arange(201) - 100.0)
    for share, counts in ((0.24, False), (0.26, True)):
        logs = np.asarray(-0.5 * share * ((at - 0.5) / within) ** 2, dtype=np.float64)
        mean, variance = posterior(logs[None], step, within, 0.25)
        assert bool(np.isfinite(variance[0])) is counts
        assert mean[0] == pytest.approx(0.5, rel=1e-3)
        if counts:
            assert variance[0] == pytest.approx(within**2 / share, rel=1e-3)
    rising = np.asarray(0.1 * (at / within) ** 2, dtype=np.float64)
    against = posterior(rising[None], step, within, 0.0)  # wider than the prior
    assert against[1][0] == pytest.approx(1e12), "at least a little"


def test_a_posterior_of_one_place_in_each_line_is_its_own() -> None:
    step, within = 1.0, 50.0
    at = np.arange(9.0) - 4.0
    logs = np.stack([-0.5 * ((at - m) / 1.5) ** 2 for m in (-0.5, 0.0, 0.75)])
    together = posterior(logs, step, within, 0.1)
    for i in range(3):
        alone = posterior(logs[i : i + 1], step, within, 0.1)
        assert (together[0][i], together[1][i]) == (alone[0][0], alone[1][0])


def ratio_of(sides: list[Array], noise: float) -> float:
    """Return log(standard deviation of all / within the sides), by deviations from means."""
    whole = np.concatenate(sides)
    of_all = float(((whole - whole.mean(axis=0)) ** 2).mean())
    within = sum(float(((side - side.mean(axis=0)) ** 2).sum()) for side in sides) / whole.size
    return math.log(math.sqrt(of_all + noise**2) / math.sqrt(within + noise**2))


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_the_ratio_of_a_line_is_that_of_deviations_from_means(channels: int) -> None:
    seen = RNG(6).random((3, 8, channels))
    cover = np.array([
        [1.0, 0.81, 0.8, 0.5, 0.2, 0.19, 0.0, 0.1],
        [0.9, 0.95, 0.7, 0.6, 0.5, 0.4, 0.3, 0.15],
        [0.1, 0.9, 0.0, 1.0, 0.05, 0.97, 0.5, 0.6],
    ])  # fmt: skip
    ratio, shown = side_ratio(seen, cover, 0.2, 2, 0.1)
    expected = [
        ratio_of([seen[0, [0, 1]], seen[0, [5, 6, 7]]], 0.1),
        ratio_of([seen[1, [0, 1]], seen[1, [7]]], 0.1),
        ratio_of([seen[2, [1, 3, 5]], seen[2, [0, 2, 4]]], 0.1),
    ]
    np.testing.assert_allclose(ratio, expected)
    assert shown.tolist() == [True, False, True]
    assert side_ratio(seen, cover, 0.2, 3, 0.1)[1].tolist() == [False, False, True]
    assert side_ratio(seen, cover, 0.2, 1, 0.1)[1].tolist() == [True, True, True]


def test_a_line_of_mixed_pixels_says_nothing() -> None:
    ratio, shown = side_ratio(RNG(7).random((1, 5, 3)), np.full((1, 5), 0.5), 0.2, 1, 0.1)
    assert ratio.tolist() == [0.0]
    assert shown.tolist() == [False]


def counted(values: Array, most: int) -> float:
    """Return 1 + 2 x the sum of autocorrelations up to before the first one that is not above chance."""
    z = np.clip(values, -3.0, 3.0)
    z = z - z.mean()
    total = 1.0
    for lag in range(1, min(most, len(z) // 2)):
        share = float(z[lag:] @ z[:-lag]) / float(z @ z)
        if share <= 2.0 / math.sqrt(len(z)):
            break
        total += 2.0 * share
    return total


@pytest.mark.parametrize("most", [1, 2, 3, 9, 60])
@pytest.mark.parametrize("count", [3, 4, 5, 12, 61])
def test_residuals_that_vary_together_are_counted_by_their_autocorrelation(count: int, most: int) -> None:
    values = 1.5 * np.cumsum(RNG(count).normal(size=count)) + 0.4
    assert correlated_count(values, most) == pytest.approx(counted(values, most), rel=1e-9)


def test_waves_are_counted_in_their_first_quarter_and_never_below_chance() -> None:
    wave = np.sin(np.arange(200) * 2.0 * np.pi / 40.0)
    assert correlated_count(wave, 60) == pytest.approx(counted(wave, 60), rel=1e-9)
    assert correlated_count(wave, 60) > 8.0
    assert correlated_count(np.tile([1.0, -1.0], 50), 60) == 1.0
    assert correlated_count(np.zeros(50), 60) == 1.0


def test_a_few_large_residuals_count_as_three_deviations() -> None:
    values = np.repeat(RNG(8).normal(size=60), 4)
    values[40:48], values[100:104] = 1e3, -1e3
    assert correlated_count(values, 20) == pytest.approx(counted(values, 20), rel=1e-9)
    assert correlated_count(-values, 20) == pytest.approx(correlated_count(values, 20))

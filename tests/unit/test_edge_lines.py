"""Edges on lines beside slow sums: light, coverage that is moved by each place, colours of sides, and evidence."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates
from scipy.special import ndtr

from vid2phys.tracking.cues.contour_config import DEFAULTS, ContourConfig
from vid2phys.tracking.cues.edge_likelihood import posterior, side_colors
from vid2phys.tracking.cues.edge_lines import (
    _noise,
    contour_evidence,
    crease_evidence,
    crease_reach_px,
    find_creases,
    find_edges,
    linear_light,
    print_evidence,
)
from vid2phys.tracking.cues.occluding_contour import OccludingContour
from vid2phys.types import Array

WAY, ACROSS = np.array([0.6, 0.8]), np.array([1.2, -0.5])
NORMAL_COLORS = np.array([0.45, 0.3, 0.35])


def textured(contrast: float, seed: int = 0) -> NDArray[np.uint8]:
    """A frame [90, 110, 3] that is brighter beyond the line 0.6 x + 0.8 y = 62, with soft blotches."""
    v, u = np.mgrid[:90, :110]
    beyond = ndtr((WAY[0] * u + WAY[1] * v - 62.0) / 0.9)[..., None]
    blotches = cv2.GaussianBlur(np.random.default_rng(seed).normal(0.0, 1.0, (90, 110, 3)), (0, 0), 1.2)
    display = NORMAL_COLORS + contrast * beyond * np.array([1.0, 0.6, 0.8]) + 0.1 * blotches
    return np.asarray(np.clip(np.rint(255.0 * display), 0, 255), dtype=np.uint8)


def contour() -> OccludingContour:
    """Eight lines across the edge, some of which leave the frame, and a drawing whose edge is elsewhere and slanted."""
    count = 8
    pixels = np.array([50.0, 40.3]) + np.arange(count)[:, None] * np.array([5.0, -4.2]) + [0.0, 0.4]
    pixels[-1] = [107.0, 87.5]
    normals = np.tile(WAY, (count, 1))
    normals[1] = [-0.28, 0.96]
    silhouette = np.zeros((150, 160), np.float32)
    v, u = np.mgrid[:150, :160]
    silhouette[1.2 * (u - 80.0) - 0.5 * (v - 75.0) < 0.0] = 1.0
    drawn = np.array([80.3, 75.4]) + np.arange(count)[:, None] * np.array([0.5, 1.2])
    return OccludingContour(
        np.zeros((count, 3)), pixels, normals, normals, silhouette, 1.1, drawn, np.tile(ACROSS, (count, 1)), np.zeros(2)
    )


def image_at(values: Any, at: Array) -> Array:
    """Return bilinear values [N, R] of an image [H, W] at places [N, R, 2], zero beside it."""
    return np.asarray(map_coordinates(values, [at[..., 1], at[..., 0]], output=float, order=1, mode="constant"))


def lies_inside(at: Array) -> NDArray[np.bool_]:
    return np.asarray(((at >= 0.0) & (at <= [109.0, 89.0])).all(axis=(1, 2)))


def seen_along(frame: NDArray[np.uint8], lines: Any, offsets: Any, gamma: float) -> tuple[Array, NDArray[np.bool_]]:
    """Return display values to the power gamma [N, R, 3] at offsets [R] along normals, and which lines lie inside."""
    at = lines.pixels[:, None] + offsets[:, None] * lines.normals[:, None]
    light = (frame / 255.0) ** gamma
    return np.stack([image_at(light[..., c], at) for c in range(3)], axis=-1), lies_inside(at)


def expected_edges(
    frame: NDArray[np.uint8], lines: Any, half: int, step: float, places: int, reach: int, cover: Any, within: float,
    config: ContourConfig,
) -> tuple[Array, Array]:  # fmt: skip
    """Return mean and variance of the edges, with a normal distribution of each line at each place.

    cover: gives the coverage [N, R] of the drawn body at offsets [R] along the lines, px.
    """
    along, samples = step * (np.arange(2 * half + 1) - half), round(step)
    parts = [seen_along(frame, lines, along + step * ((q + 0.5) / samples - 0.5), 1.5) for q in range(samples)]
    seen, inside = np.mean([part[0] for part in parts], axis=0), np.all([part[1] for part in parts], axis=0)
    here = cover(along)
    body = side_colors(seen, here > 1.0 - config.pure_share, config.noise_floor)
    scene = side_colors(seen, here < config.pure_share, config.noise_floor)
    floor = (config.noise_floor * 1.5 * (seen.mean(axis=(1, 2)) + 0.02) ** (1.0 / 3.0)) ** 2
    off = step / places * (np.arange(2 * reach * places + 1) - reach * places)
    logs = np.zeros((len(seen), len(off)))
    for k, moved in enumerate(off):
        share = cover(along - moved)
        for i, a in enumerate(share):
            b = 1.0 - a
            matrix = body[1] * np.outer(a, a) + scene[1] * np.outer(b, b)
            matrix += np.diag(a**2 * body[2][i] + b**2 * scene[2][i] + floor[i])
            for c in range(3):
                rest = seen[i, :, c] - a * body[0][c] - b * scene[0][c]
                logs[i, k] -= 0.5 * (rest @ np.linalg.solve(matrix, rest) + np.linalg.slogdet(matrix)[1])
    mean, variance = posterior(logs / config.correlated_steps, step / places, within, config.min_gain)
    return mean, np.where(inside, config.interpolation_factor * variance, np.inf)


OTHER = replace(
    DEFAULTS,
    reach_sigma=2.0,
    half_length=7,
    half_length_crease=5,
    places_per_step=2,
    pure_share=0.1,
    interpolation_factor=1.5,
    correlated_steps=1.5,
    min_gain=0.05,
    noise_floor=0.01,
    lens_px=1.3,
)


@pytest.mark.parametrize("contrast", [0.25, 0.06])
@pytest.mark.parametrize(("config", "within", "step", "reach"), [
    (DEFAULTS, 1.0, 1.0, 3),
    (DEFAULTS, 2.9, 1.45, 5),  # of one sample a step, as short ones
    (OTHER, 3.4, 1.7, 4),
])  # fmt: skip
def test_edges_of_a_contour_are_those_of_normal_lines(
    config: ContourConfig, within: float, step: float, reach: int, contrast: float
) -> None:
    frame, lines = textured(contrast), contour()
    fine = step / config.places_per_step
    places = config.places_per_step
    beside = [0.0] if round(step) == 1 else [fine * (j - 0.5 * places) for j in range(places + 1)]

    def cover(offsets: Array) -> Array:
        each = [lines.drawn[:, None] + (offsets + s)[:, None] * lines.across[:, None] for s in beside]
        return np.asarray(np.mean([image_at(lines.coverage, at) for at in each], axis=0))

    found = find_edges(frame, lines, within, config)
    mean, variance = expected_edges(
        frame, lines, config.half_length, step, config.places_per_step, reach, cover, within, config
    )
    np.testing.assert_allclose(found.mean, mean, atol=2e-4)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-3)
    assert contrast < 0.1 or np.isfinite(found.variance).sum() >= 4
    assert np.isinf(found.variance[-1])


@pytest.mark.parametrize("contrast", [0.25, 0.06])
@pytest.mark.parametrize(("config", "within", "step", "reach"), [
    (DEFAULTS, 0.7, 1.0, 2),
    (OTHER, 5.0, 2.5, 4),
])  # fmt: skip
def test_edges_of_creases_are_straight_through_the_lens(
    config: ContourConfig, within: float, step: float, reach: int, contrast: float
) -> None:
    frame, lines = textured(contrast), contour()
    creases: Any = lines

    def cover(offsets: Array) -> Array:
        return np.tile(ndtr(-offsets / config.lens_px), (len(lines.points), 1))

    found = find_creases(frame, creases, within, config)
    half = config.half_length_crease
    mean, variance = expected_edges(frame, lines, half, step, config.places_per_step, reach, cover, within, config)
    np.testing.assert_allclose(found.mean, mean, atol=1e-6)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-6)
    assert contrast < 0.1 or np.isfinite(found.variance).sum() >= 4
    assert np.isinf(found.variance[-1])
    assert crease_reach_px(within, config) == pytest.approx((half + reach) * step)


def test_bytes_are_light_by_a_gamma_of_one_and_a_half() -> None:
    found = linear_light(np.array([[0, 255, 51], [128, 1, 254]], dtype=np.uint8))
    expected = [[0.0, 1.0, 0.2 * math.sqrt(0.2)], [(128 / 255.0) ** 1.5, 255.0**-1.5, (254 / 255.0) ** 1.5]]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_noise_in_light_is_that_of_a_display_value_and_its_slope() -> None:
    """Of light l = d^1.5 the slope is 1.5 d^0.5, with d = l^(2 / 3); dark pixels have a little more."""
    seen = np.random.default_rng(0).random((4, 3, 3))
    level = np.array([values.sum() / 9.0 for values in seen]) + 0.02
    slope = 1.5 * np.sqrt(level ** (2.0 / 3.0))
    np.testing.assert_allclose(_noise(seen, replace(DEFAULTS, noise_floor=0.01)), (0.01 * slope) ** 2)


def expected_evidence(
    frame: NDArray[np.uint8], lines: Any, cover: Array, even: float, config: ContourConfig
) -> tuple[Array, float]:
    """Return the log odds [N] of lines, and their sum times the distance of lines that follow each other."""
    offsets = np.arange(-config.side_px, config.side_px + 1.0)
    seen, inside = seen_along(frame, lines, offsets, 1.0)
    odds = np.zeros(len(seen))
    for i, values in enumerate(seen):
        sides = [values[cover[i] > 1.0 - config.side_share], values[cover[i] < config.side_share]]
        if not inside[i] or min(map(len, sides)) < config.min_side_px:
            continue
        whole = np.concatenate(sides)
        within = sum(((side - side.mean(axis=0)) ** 2).sum() for side in sides) / whole.size
        of_all = ((whole - whole.mean(axis=0)) ** 2).mean()
        ratio = 0.5 * math.log((of_all + config.side_noise**2) / (within + config.side_noise**2))
        odds[i] = min(max(config.odds_slope * (ratio - even), config.odds_range[0]), config.odds_range[1])
    between = [math.dist(a, b) for a, b in zip(lines.pixels[1:], lines.pixels[:-1], strict=True)]
    return odds, float(odds.sum() * (np.median(between) if between else 1.0))


UNLIKE = replace(
    DEFAULTS,
    side_px=4,
    side_noise=0.05,
    side_share=0.3,
    min_side_px=2,
    even_contour=0.2,
    even_crease=0.5,
    odds_slope=2.0,
    odds_range=(-0.6, 0.9),
)


@pytest.mark.parametrize("config", [DEFAULTS, UNLIKE])
@pytest.mark.parametrize("contrast", [0.0, 0.1, 0.3])
def test_evidence_is_the_sum_of_odds_for_each_pixel_of_an_edge(config: ContourConfig, contrast: float) -> None:
    frame, lines = textured(contrast, 1), contour()
    creases: Any = lines
    offsets = np.arange(-config.side_px, config.side_px + 1.0)
    drawn = image_at(lines.coverage, lines.drawn[:, None] + offsets[:, None] * lines.across[:, None])
    straight = np.tile(np.select([offsets < 0.0, offsets > 0.0], [1.0, 0.0], 0.5), (len(lines.pixels), 1))
    odds, nats = expected_evidence(frame, lines, drawn, config.even_contour, config)
    assert odds[-1] == 0.0, "beside the frame"
    assert contour_evidence(frame, lines, config) == pytest.approx(nats, abs=1e-4)
    odds_of_crease, nats_of_crease = expected_evidence(frame, lines, straight, config.even_crease, config)
    assert crease_evidence(frame, creases, config) == pytest.approx(nats_of_crease, abs=1e-9)
    if contrast == 0.1:
        for each in (odds, odds_of_crease):
            assert ((each != 0.0) & (each > config.odds_range[0]) & (each < config.odds_range[1])).any()


def test_a_single_line_counts_as_one_pixel_of_an_edge() -> None:
    frame, lines = textured(0.1, 1), contour()
    one: Any = SimpleNamespace(pixels=lines.pixels[2:3], normals=lines.normals[2:3])
    offsets = np.arange(-5.0, 6.0)
    straight = np.select([offsets < 0.0, offsets > 0.0], [1.0, 0.0], 0.5)[None]
    odds, nats = expected_evidence(frame, one, straight, DEFAULTS.even_crease, DEFAULTS)
    assert crease_evidence(frame, one) == pytest.approx(nats)
    assert nats == odds[0]
    assert nats != 0.0


def test_the_distance_of_lines_is_the_middle_one() -> None:
    """Of lines 2, 2 and 9 pixels apart it is two, to each side."""
    frame = textured(0.3, 2)
    along = np.array([0.8, -0.6])
    pixels = np.array([52.0, 38.5]) + np.array([0.0, 2.0, 4.0, 13.0])[:, None] * along
    lines: Any = SimpleNamespace(pixels=pixels, normals=np.tile(WAY, (4, 1)))
    single = [
        crease_evidence(frame, SimpleNamespace(pixels=pixels[i : i + 1], normals=lines.normals[:1]))  # type: ignore[arg-type]
        for i in range(4)
    ]
    assert crease_evidence(frame, lines) == pytest.approx(2.0 * sum(single))
    two: Any = SimpleNamespace(pixels=pixels[2:], normals=lines.normals[2:])
    assert crease_evidence(frame, two) == pytest.approx(9.0 * sum(single[2:]))
    assert sum(single) != 0.0


def striped(*columns: float) -> NDArray[np.uint8]:
    """A frame [60, 120] whose brightness changes at columns."""
    level = 60.0 + 90.0 * (np.sum([np.arange(120) > each for each in columns], axis=0) % 2)
    return np.asarray(np.tile(level[None, :, None], (60, 1, 3)), dtype=np.uint8)


def beside_a_crease(column: float, rows: NDArray[np.int64]) -> Any:
    pixels = np.stack([np.full(len(rows), column), rows.astype(float)], axis=-1)
    return SimpleNamespace(pixels=pixels, normals=np.tile([1.0, 0.0], (len(rows), 1)))


BODY = slice(10, 50), slice(20, 100), np.ones((40, 80), dtype=bool)


def test_a_plain_body_has_no_print() -> None:
    crease = beside_a_crease(60.5, np.arange(15, 45))
    assert crease_evidence(striped(60.5), crease) == pytest.approx(90.0)
    assert print_evidence(striped(60.5), crease, *BODY) == 0.0


@pytest.mark.parametrize("away", [-8.0, -6.0, 6.0, 8.0])
def test_a_parallel_edge_is_a_print(away: float) -> None:
    """Here it is as strong as the crease itself."""
    crease = beside_a_crease(60.5, np.arange(15, 45))
    assert print_evidence(striped(60.5, 60.5 + away), crease, *BODY) == pytest.approx(90.0)


def test_contours_and_other_creases_are_no_print() -> None:
    """The contour at column 68 is 2.5 pixels from the place that it passes for a print at."""
    crease = beside_a_crease(60.5, np.arange(15, 45))
    frame, narrow = striped(60.5, 68.0), (BODY[0], slice(20, 68), np.ones((40, 48), dtype=bool))
    assert print_evidence(frame, crease, *BODY) > 0.0
    assert print_evidence(frame, crease, *narrow) == 0.0
    both, other = beside_a_crease(60.5, np.arange(15, 45)), beside_a_crease(68.5, np.arange(15, 45))
    both.pixels, both.normals = np.append(both.pixels, other.pixels, 0), np.append(both.normals, other.normals, 0)
    assert print_evidence(striped(60.5, 68.5), both, *BODY) == 0.0


@pytest.mark.parametrize(("hidden", "nats"), [(22, 0.0), (20, 90.0)])
def test_few_lines_beside_which_there_is_room_say_nothing(hidden: int, nats: float) -> None:
    """There is room beside 8 and 10 of the 30 lines: those at least 5.5 pixels from the rows that are hidden."""
    crease, shown = beside_a_crease(60.5, np.arange(15, 45)), np.ones((40, 80), dtype=bool)
    shown[:hidden] = False
    assert print_evidence(striped(60.5, 66.5), crease, BODY[0], BODY[1], shown) == pytest.approx(nats)

"""Cells of a frame around a body, what a drawing covers of them, and two histograms beside slow sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vid2phys.tracking.cues.region import DEFAULTS, Region, _cover, _information, _smoothed
from vid2phys.tracking.cues.silhouette import Drawing
from vid2phys.types import Camera

CAMERA = Camera(np.array([[400.0, 0.0, 100.0], [0.0, 400.0, 80.0], [0.0, 0.0, 1.0]]), 200, 160)


def test_cells_lie_on_a_square_about_the_body_and_count_within_its_circle() -> None:
    """Of a frame whose bins are those of blocks of 20 pixels; the circle has a radius of 54 px."""
    blocks = np.random.default_rng(0).integers(0, DEFAULTS.bins, (8, 10, 3))
    level = (blocks * 256 + 128) // DEFAULTS.bins
    frame = level.repeat(20, axis=0).repeat(20, axis=1).astype(np.uint8)
    center, radius = np.array([0.15, -0.05]), float(np.arctan(0.1))
    region = Region.of(frame, CAMERA, center, radius)
    assert region.colors.shape == (96, 96)
    assert region.step == pytest.approx(2.0 * 1.35 * 0.1 / 96)
    for row in range(0, 96, 5):
        for column in range(0, 96, 5):
            bearing = region.start + region.step * np.array([column, row])
            x, y = 400.0 * bearing + [100.0, 80.0]
            in_circle = np.linalg.norm(bearing - center) < 0.135
            in_frame = -0.5 < x < 199.5 and -0.5 < y < 159.5
            found = region.colors[row, column]
            if not (in_circle and in_frame):
                assert found == -1
            elif all(1.0 < (value + 0.5) % 20.0 < 19.0 for value in (x, y)):
                r, g, b = blocks[int((y + 0.5) // 20), int((x + 0.5) // 20)]
                assert found == 144 * r + 12 * g + b
    assert (region.colors == -1)[:, 95].all()
    assert (region.colors >= 0).sum() > 4000


@pytest.mark.parametrize(("radius_px", "count"), [(20.0, 54), (1.0, 8), (60.0, 96)])
def test_cells_are_no_finer_than_pixels(radius_px: float, count: int) -> None:
    frame = np.zeros((160, 200, 3), np.uint8)
    region = Region.of(frame, CAMERA, np.zeros(2), float(np.arctan(radius_px / 400.0)))
    assert region.colors.shape == (count, count)
    np.testing.assert_allclose(region.start, -0.5 * (count - 1) * region.step, atol=1e-12)


def test_a_cell_is_covered_by_the_share_of_its_places() -> None:
    nearness = (np.random.default_rng(1).random((14, 17)) < 0.6).astype(np.float32)
    start, step, parts = np.array([-2.0, 1.3]), 2.7, 3
    found = _cover(nearness, 7, start, step, parts)
    for row in range(7):
        for column in range(7):
            inside = 0
            for j in range(parts):
                for i in range(parts):
                    x = round(start[0] + step * (column + (i + 0.5) / parts - 0.5))
                    y = round(start[1] + step * (row + (j + 0.5) / parts - 0.5))
                    inside += 0 <= x < 17 and 0 <= y < 14 and nearness[y, x] > 0.0
            assert found[row, column] == pytest.approx(inside / parts**2)


def test_a_histogram_is_blurred_by_a_bin_in_each_channel() -> None:
    """What would go beyond the last bin stays in it."""
    bins = 9
    weight = np.exp(-0.5 * np.arange(-3, 4) ** 2)
    weight /= weight.sum()
    histogram = np.zeros((bins, bins, bins))
    histogram[4, 0, 5] = 2.0
    found = _smoothed(histogram.ravel().copy(), bins).reshape(bins, bins, bins)
    sides = [np.zeros(bins) for _ in range(3)]
    sides[0][1:8] = weight
    sides[1][:4] = [weight[:4].sum(), *weight[4:]]
    sides[2][2:9] = weight
    np.testing.assert_allclose(found, 2.0 * np.einsum("i,j,k->ijk", *sides), atol=1e-15)
    last = np.zeros((bins, bins, bins))
    last[8, 8, 8] = 1.0
    found = _smoothed(last.ravel().copy(), bins).reshape(bins, bins, bins)
    assert found.sum() == pytest.approx(1.0)
    assert found[8, 8, 8] == pytest.approx(weight[3:].sum() ** 3)


def test_two_histograms_explain_colours_better_than_one() -> None:
    rng, bins, least = np.random.default_rng(2), 3, 0.01
    colors, covered = rng.integers(-1, bins**3, (9, 9)), rng.random((9, 9))
    colors[4, ::3], covered[:3], covered[6:] = -1, 0.0, 1.0
    both = np.zeros((2, bins**3))
    for color, share in zip(colors.ravel(), covered.ravel(), strict=True):
        if color >= 0:
            both[0, color] += share
            both[1, color] += 1.0 - share
    both = np.stack([_smoothed(side.copy(), bins) + least for side in both])
    inside, outside = both / both.sum(axis=1, keepdims=True)
    common = both.sum(axis=0) / both.sum()
    nats = 0.0
    for color, share in zip(colors.ravel(), covered.ravel(), strict=True):
        if color >= 0:
            nats += np.log((share * inside[color] + (1.0 - share) * outside[color]) / common[color])
    assert _information(colors, covered, bins, least) == pytest.approx(nats)


def test_a_drawing_is_compared_where_its_cells_are() -> None:
    """A drawing of ten pixels a cell, whose left half is covered, as the colours' is; five cells count as one."""
    colors = np.full((8, 8), 5, np.int64)
    colors[:, 4:] = 20
    region = Region(colors, np.array([0.1, -0.2]), 0.01, replace(DEFAULTS, bins=3))
    nearness = np.zeros((100, 100), np.float32)
    nearness[:, : 10 + 40] = 1.0
    drawing = Drawing(nearness, 1000.0, np.array([100.0 - 15.0, -200.0 - 15.0]))  # the first cell is about 15, 15
    expected = _information(colors, np.repeat([[1.0] * 4 + [0.0] * 4], 8, axis=0), 3, DEFAULTS.min_count) / 5.0
    assert region.evidence(drawing) == pytest.approx(expected)

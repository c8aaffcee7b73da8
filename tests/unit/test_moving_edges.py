"""Edges across which a body moves: their widths as shares of its motion, its contour, and what counts as blur."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vid2phys.tracking import motion_blur
from vid2phys.tracking.edge_widths import EdgeWidths
from vid2phys.tracking.motion_blur import (
    MotionBlur,
    MotionBlurConfig,
    _contour_of,
    _edges_in,
    _moving_edges,
    _MovingEdges,
    _region,
)
from vid2phys.types import Array

CONFIG = MotionBlurConfig()


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(motion_blur, "in_processes", lambda function, items: [function(each) for each in items])


def test_a_path_is_what_the_lens_leaves_of_a_width() -> None:
    """Widths add in squares: 10 px, of which the lens has 6 px, come from a path of 8 px."""
    edges = _MovingEdges(np.array([0.9, 0.4, 0.5]), np.array([0.02, 0.06, 0.05]), 20.0, 6.0)
    assert edges.share == 0.5
    assert edges.path_px(20.0) == pytest.approx(8.0)
    assert edges.path_px(8.0) == 0.0
    assert edges.excess == pytest.approx(2.0 * 0.05 / 0.5), "at both ends"


def around(*degrees: float) -> Array:
    angle = np.radians(degrees)
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def some_edges(frames: int, found: Any) -> _MovingEdges | None:
    """Return the edges of a clip; found: [motion, edges] of some frames by their index."""
    given: Any = np.zeros((frames, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(motion_blur, "_edges_in", lambda frames, foreground, i, config: found(i))
        return _moving_edges(given, given, CONFIG)


def test_widths_are_shares_of_the_motion_across_an_edge() -> None:
    """Forty edges each: across the motion, at 40 degrees, at 50 degrees, and along it."""
    normals = np.repeat(around(0.0, 140.0, 50.0, 91.0), 40, axis=0)
    width, place = np.repeat([5.0, 6.0, 9.0, 2.0], 40), np.repeat([1.0, -2.0, 9.0, 9.0], 40)
    edges = some_edges(3, lambda _: (np.array([10.0, 0.0]), EdgeWidths(width, place, normals)))
    assert edges is None, "eighty are too few"
    edges = some_edges(4, lambda _: (np.array([10.0, 0.0]), EdgeWidths(width, place, normals)))
    assert edges is not None
    slanted = 10.0 * np.cos(np.radians(40.0))
    np.testing.assert_allclose(np.unique(edges.width), np.unique([0.5, 6.0 / slanted]))
    np.testing.assert_allclose(np.unique(edges.beyond), np.unique([-0.1, 2.0 / slanted]))
    assert len(edges.width) == len(edges.beyond) == 160
    assert edges.still_px == 2.0
    across = some_edges(5, lambda _: (np.array([10.0, 0.0]), EdgeWidths(width[:40], place[:40], normals[:40])))
    assert across is not None
    assert across.still_px == 0.0


def test_frames_within_the_clip_are_measured() -> None:
    asked = list[int]()

    def found(i: int) -> Any:
        asked.append(i)
        if i % 2:
            return None
        return np.array([0.0, float(i)]), EdgeWidths(np.ones(25), np.ones(25), np.tile([0.0, 1.0], (25, 1)))

    edges = some_edges(11, found)
    assert edges is not None
    assert asked == list(range(1, 10))
    assert edges.motion_px == 5.0, "the median of 2, 4, 6 and 8"
    assert len(edges.width) == 100
    asked.clear()
    some_edges(102, found)
    assert (len(asked), asked[0], asked[-1]) == (10, 1, 100)
    assert some_edges(3, found) is None
    asked.clear()
    assert some_edges(2, found) is None
    assert asked == []


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Three frames whose most likely regions are known, and what lines across edges are asked with."""
    seen: dict[str, Any] = {"middles": [(3.0, 5.0), (9.0, 9.0), (11.0, 11.0)], "sides": [20.0, 22.0, 23.9]}

    def regions(ratio: Array) -> list[tuple[Array, float]]:
        k = int(ratio[0, 0]) - 4
        if seen["sides"][k] is None:
            return []
        return [(np.array(seen["middles"][k]), seen["sides"][k]), (np.array([90.0, 70.0 * k]), 8.0 * (k + 1.0))]

    def widths(*given: Any) -> str:
        seen["asked"] = given
        return "widths"

    monkeypatch.setattr(motion_blur, "regions", regions)
    monkeypatch.setattr(motion_blur, "change_of", lambda frame, behind: (int(frame[0, 0]), behind))
    monkeypatch.setattr(motion_blur, "edge_widths", widths)
    monkeypatch.setattr(motion_blur, "_contour_of", lambda *given: ("pixels", given))
    return seen


def of_frame() -> Any:
    frames: Any = [np.full((2, 2), float(i)) for i in range(8)]
    foreground: Any = SimpleNamespace(log_ratio=lambda frame: frame, background="background")
    return _edges_in(frames, foreground, 5, CONFIG)


def test_a_motion_is_half_of_that_from_the_frame_before_to_the_next(three: dict[str, Any]) -> None:
    motion, widths = of_frame()
    np.testing.assert_allclose(motion, [4.0, 3.0])
    assert widths == "widths"
    change, pixels, (shown, middle, side, _), size, least = three["asked"]
    assert (change, pixels, side, size, least) == ((5, "background"), "pixels", 22.0, 22.0, CONFIG.least_change)
    assert shown.all()
    np.testing.assert_allclose(middle, [9.0, 9.0])


@pytest.mark.parametrize(
    ("sides", "far", "measures"),
    [
        ((20.0, 22.0, 23.9), 3.0, True),
        ((20.0, 22.0, 24.1), 3.0, False),
        ((20.0, 25.0, 20.0), 3.0, False),
        ((20.0, 22.0, None), 3.0, False),
        ((20.0, 22.0, 23.0), 2.1, True),
        ((20.0, 22.0, 23.0), 1.9, False),
    ],
)
def test_one_body_that_moves_by_two_pixels_is_measured(
    sides: tuple[float | None, ...], far: float, measures: bool, three: dict[str, Any]
) -> None:
    three["sides"], three["middles"] = sides, [(0.0, 0.0), (0.0, far), (0.0, 2.0 * far)]
    assert (of_frame() is not None) is measures


def contour(shown: NDArray[np.bool_], middle: tuple[float, float], side: float) -> tuple[Array, Array]:
    return _contour_of(shown, np.array(middle), side, CONFIG)


def test_a_contour_is_that_of_the_region_with_normals_outward() -> None:
    """Two squares, of 40 px and 20 px; a gap of three pixels in the larger one is filled."""
    shown = np.zeros((80, 140), dtype=bool)
    shown[20:60, 20:60], shown[30:50, 90:110] = True, True
    shown[:, 38:41] = False
    for (left, right, top, bottom), middle, side in (
        ((20, 59, 20, 59), (40.0, 40.0), 40.0),
        ((90, 109, 30, 49), (100.0, 40.0), 20.0),
    ):
        pixels, normals = contour(shown, middle, side)
        assert (pixels.min(axis=0).tolist(), pixels.max(axis=0).tolist()) == ([left, top], [right, bottom])
        np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1.0)
        for column, value, normal in ((0, left, -1.0), (0, right, 1.0), (1, top, -1.0), (1, bottom, 1.0)):
            other = pixels[:, 1 - column]
            flat = (pixels[:, column] == value) & (abs(other - 0.5 * (other.min() + other.max())) < 0.15 * side)
            np.testing.assert_allclose(normals[flat, column], normal, atol=1e-3)
            assert flat.sum() > 3
    assert len(contour(shown, (62.0, 40.0), 22.0)[0]) == 4 * 19, "the size counts as the place does"
    assert len(contour(shown, (72.0, 40.0), 38.0)[0]) == 4 * 39


def test_the_most_likely_region_of_a_frame_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = [[(np.array([3.0, 4.0]), 9.0), (np.array([7.0, 7.0]), 2.0)], []]
    monkeypatch.setattr(motion_blur, "regions", lambda ratio: found[int(ratio)])
    foreground: Any = SimpleNamespace(log_ratio=lambda frame: frame)
    given: Any = [0, 1]
    middle, side = _region(given, foreground, 0)
    assert (middle.tolist(), side) == ([3.0, 4.0], 9.0)
    middle, side = _region(given, foreground, 1)
    assert np.isnan(middle).all()
    assert np.isnan(side)


def measured(
    monkeypatch: pytest.MonkeyPatch, *, share: float = 0.5, still_px: float = 0.0, step_px: float = 16.0, rests: int = 0
) -> MotionBlur | None:
    """Return the blur of 20 frames of a body that rests and then moves to the right; edges were measured at 16 px."""
    edges = _MovingEdges(np.full(9, share), np.full(9, 0.1), 16.0, still_px)
    monkeypatch.setattr(motion_blur, "_moving_edges", lambda *_: edges)
    places = step_px * np.maximum(np.arange(20) - rests, 0)
    monkeypatch.setattr(motion_blur, "_region", lambda frames, foreground, i: (np.array([places[i], 0.0]), 50.0))
    given: Any = range(20)
    return MotionBlur.measured(given, given)


def test_paths_are_the_open_share_of_the_motions(monkeypatch: pytest.MonkeyPatch) -> None:
    blur = measured(monkeypatch)
    assert blur is not None
    np.testing.assert_allclose(blur.paths_px, np.tile([8.0, 0.0], (20, 1)))
    assert blur.excess == pytest.approx(0.4)
    assert blur.path(3) == (8.0, 0.0)
    twice = blur.enlarged(2)
    assert twice.path(3) == (16.0, 0.0)
    assert twice.excess == blur.excess
    later = measured(monkeypatch, rests=14)
    assert later is not None, "frames at rest do not count"
    assert later.path(3) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("change", "blurs"),
    [
        ({"share": 1.0}, True),
        ({"share": 1.1}, False),
        ({"share": 0.32}, True),
        ({"share": 0.3}, False),
        ({"still_px": 6.0}, True),
        ({"still_px": 6.4}, False),
        ({"step_px": 10.2}, True),
        ({"step_px": 9.8}, False),
        ({"step_px": 1.5, "share": 1.0}, False),
    ],
)
def test_a_path_of_five_pixels_that_is_no_soft_edge_counts(
    change: dict[str, float], blurs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: Any = change
    assert (measured(monkeypatch, **given) is not None) is blurs


def test_another_foreground_has_another_excess(monkeypatch: pytest.MonkeyPatch) -> None:
    blur = measured(monkeypatch)
    assert blur is not None
    given: Any = range(20)
    found: list[Any] = [_MovingEdges(np.full(9, 0.5), np.full(9, -0.2), 16.0, 0.0), None]
    monkeypatch.setattr(motion_blur, "_moving_edges", lambda *_: found.pop(0))
    other = blur.with_foreground(given, given)
    assert other.excess == pytest.approx(-0.8)
    np.testing.assert_array_equal(other.paths_px, blur.paths_px)
    assert blur.with_foreground(given, given) is blur

"""What is measured of each frame of a body: changes of pixels, widths of edges, and what is taken of all frames."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.geometry import Pose
from vid2phys.tracking import visibility as module
from vid2phys.tracking.background import Background
from vid2phys.tracking.edge_widths import change_of
from vid2phys.tracking.visibility import (
    DEFAULTS,
    Visibility,
    VisibilityConfig,
    _change_of_patches,
    _widths,
    visibility,
)
from vid2phys.types import Array, Camera, Mesh

PLATE = Mesh(np.eye(3), np.array([[0, 1, 2]]), np.zeros(1, dtype=np.int64))
CAMERA = Camera(np.array([[100.0, 0.0, 50.0], [0.0, 100.0, 40.0], [0.0, 0.0, 1.0]]), 100, 80)
EDGE_X, INSIDE = 60, 200


def test_a_change_is_the_largest_of_the_colours() -> None:
    frame, behind = np.array([[[10, 200, 7], [9, 9, 9]]], np.uint8), np.array([[[30, 190, 7], [9, 9, 10]]], np.uint8)
    np.testing.assert_array_equal(change_of(frame, behind), [[20, 1]])
    np.testing.assert_array_equal(change_of(behind, frame), [[20, 1]])


@pytest.mark.parametrize("window", [
    (slice(5, 11), slice(7, 12)),
    (slice(0, 4), slice(0, 3)),
    (slice(16, 20), slice(13, 16)),
])  # fmt: skip
@pytest.mark.parametrize("patch_px", [3, 5])
def test_a_patch_changes_by_its_mean_colour(window: tuple[slice, slice], patch_px: int) -> None:
    """The sum over each patch; beyond the frame's border its pixels are mirrored."""
    rng = np.random.default_rng(3)
    frame, behind = (rng.integers(0, 256, (20, 16, 3)).astype(np.uint8) for _ in range(2))
    found = _change_of_patches(frame, behind, window, patch_px)
    half = patch_px // 2
    padded = np.pad(frame.astype(float) - behind, ((half, half), (half, half), (0, 0)), mode="reflect")
    for row in range(window[0].start, window[0].stop):
        for column in range(window[1].start, window[1].stop):
            mean = padded[row : row + patch_px, column : column + patch_px].mean(axis=(0, 1))
            at = found[row - window[0].start, column - window[1].start]
            assert at == pytest.approx(np.abs(mean).max(), abs=1e-3)
    assert found.shape == (window[0].stop - window[0].start, window[1].stop - window[1].start)


def widths(
    width_px: float,
    path: tuple[float, float] = (3.0, 0.0),
    normal: tuple[float, float] = (1.0, 0.0),
    size_px: float = 24.0,
    least: float = 0.0,
    beside: tuple[float, int] = (0.0, 0),
) -> Array:
    """Return the widths at two points of an edge, beyond which the change falls in proportion to the distance.

    beside: share of the change, and distance from which on it is there, of another thing in three columns.
    """
    off = np.arange(120) - float(EDGE_X)
    row = INSIDE * np.clip(0.5 - off / width_px, 0.0, 1.0)
    share, at = beside
    row[EDGE_X + at : EDGE_X + at + 3] += INSIDE * share
    change = np.tile(np.rint(row).astype(np.uint8), (40, 1))
    contour: Any = SimpleNamespace(
        normals=np.array([normal, normal]), pixels=np.array([[60.0, 15.0], [60.0, 21.0]]), size_px=size_px
    )
    return _widths(change, contour, np.array(path), least, DEFAULTS)


@pytest.mark.parametrize("width_px", [4.0, 8.0, 16.0])
def test_an_edge_is_as_wide_as_its_change_falls(width_px: float) -> None:
    np.testing.assert_array_equal(widths(width_px, size_px=60.0), [width_px] * 2)
    np.testing.assert_array_equal(widths(width_px, path=(-3.0, 0.0), size_px=60.0), [width_px] * 2)


@pytest.mark.parametrize(("path", "count"), [((1.0, 0.0), 2), ((0.99, 0.0), 0), ((0.0, 1.0), 0)])
def test_edges_have_widths_where_the_body_moves_by_a_pixel_across_them(path: tuple[float, float], count: int) -> None:
    assert len(widths(8.0, path)) == count


@pytest.mark.parametrize(("cosine", "count"), [(0.71, 2), (0.69, 0)])
@pytest.mark.parametrize("speed", [1.5, 5.0])
def test_edges_along_the_motion_have_no_width(cosine: float, count: int, speed: float) -> None:
    path = speed * cosine, speed * np.sqrt(1.0 - cosine**2)
    assert len(widths(8.0, path)) == count


@pytest.mark.parametrize(("least", "count"), [(199.0, 2), (200.0, 0)])
def test_a_faint_edge_has_no_width(least: float, count: int) -> None:
    assert len(widths(8.0, least=least)) == count


@pytest.mark.parametrize(("share", "count"), [(0.2, 2), (0.3, 0)])
def test_an_edge_beside_something_else_has_no_width(share: float, count: int) -> None:
    assert len(widths(4.0, beside=(share, 7))) == count


@pytest.mark.parametrize(("size_px", "at", "count"), [
    (24.0, 12, 0),  # a line reaches as far as half of the size
    (24.0, 13, 2),
    (10.0, 6, 0),  # and 6 px at least
    (10.0, 7, 2),
    (100.0, 40, 0),  # and 40 px at most
    (100.0, 41, 2),
])  # fmt: skip
def test_lines_reach_as_far_as_half_of_the_size(size_px: float, at: int, count: int) -> None:
    assert len(widths(2.0, size_px=size_px, beside=(0.5, at))) == count


@dataclass
class Clip:
    """Ten frames with stand-ins for silhouettes, of ten rows each; the body's place is x px at frame i.

    Silhouettes are beside each other, but for those of `together`, which have the same pixels up to a share.
    """

    monkeypatch: pytest.MonkeyPatch
    x: Array = field(default_factory=lambda: np.array([0.0, 3.0, 7.0, 8.0, 20.0, 21.0, 25.0, 33.0, 35.0, 50.0]))
    noise: float = 0.0
    change: float = 100.0
    widths: tuple[float, ...] = ()
    together: float = 0.0
    lost: tuple[int, ...] = ()
    measured: list[int] = field(default_factory=list)
    paths: list[Array] = field(default_factory=list)
    least: set[float] = field(default_factory=set)

    def measure(self, rows: list[int], **config: Any) -> Visibility | None:
        self.monkeypatch.setattr(module._Silhouette, "of", self.silhouette)
        self.monkeypatch.setattr(module, "_widths", self.edges)
        behind = np.full((100, 200, 3), 50, np.uint8)
        frames: Any = {i: behind + np.uint8(self.change) for i in range(10)}
        for i, frame in frames.items():
            frame[-1, -1] = behind[-1, -1] + i  # names the frame
        stored: Any = type("Stored", (dict,), {"background": Background(behind, 1, self.noise)})(frames)
        poses = Pose(
            np.tile(np.eye(3), (10, 1, 1)), np.stack([self.x / 50.0, 0.0 * self.x, 0.0 * self.x + 2.0], axis=1)
        )
        tracked = np.isin(np.arange(10), rows)
        return visibility(poses, tracked, stored, CAMERA, PLATE, VisibilityConfig(**config))

    def silhouette(self, pose: Pose, camera: Camera, mesh: Mesh) -> Any:
        i = int(np.argmin(np.abs(self.x - 50.0 * pose.translation[0])))
        self.measured.append(i)
        if i in self.lost:
            return None
        start = 10 * i if not self.together or i > 2 else 10 + round((1.0 - self.together) * 10.0 * (i - 1))
        window = slice(start, start + 10), slice(20, 40)
        contour = SimpleNamespace(size_px=100.0 + i)
        return SimpleNamespace(contour=contour, window=window, mask=np.ones((10, 20), dtype=bool))

    def edges(self, change: Any, contour: Any, path: Array, least: float, config: Any) -> Array:
        assert change[0, 0] == self.change
        assert contour.size_px == 100.0 + change[-1, -1]  # of the same frame
        self.paths.append(path)
        self.least.add(least)
        return np.array(self.widths)


def test_frames_with_others_before_and_after_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path is that from the frame before to the one after, over the frames between them."""
    clip = Clip(monkeypatch)
    found = clip.measure([0, 2, 3, 7, 8], rests=0.5)
    assert found is not None
    assert clip.measured == [2, 3, 7]
    paths = [(8.0 - 0.0) / 3.0, (33.0 - 7.0) / 5.0, (35.0 - 8.0) / 5.0]
    np.testing.assert_allclose(clip.paths, [[path, 0.0] for path in paths], atol=1e-9)
    assert found.path_px == pytest.approx(sorted(paths)[1])
    assert found.size_px == 103.0


def test_three_frames_are_enough_to_measure_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clip = Clip(monkeypatch)
    assert clip.measure([0, 2]) is None
    found = clip.measure([4, 5, 9])
    assert found is not None
    assert clip.measured == [5]
    assert found.path_px == pytest.approx(30.0 / 5.0)
    assert Clip(monkeypatch, lost=(5,)).measure([4, 5, 9]) is None


def test_some_frames_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clip = Clip(monkeypatch)
    clip.measure(list(range(10)), frames=3)
    assert clip.measured == [1, 4, 8]


@pytest.mark.parametrize(("noise", "change", "hidden"), [
    (0.0, 14.0, 0.0),  # 14 grey levels are the least
    (0.0, 13.0, 1.0),
    (60.0, 51.0, 0.0),  # of 2.5 times the noise of a patch of 3 px: 50
    (60.0, 49.0, 1.0),
])  # fmt: skip
def test_pixels_that_hardly_change_are_hidden(
    noise: float, change: float, hidden: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Clip(monkeypatch, noise=noise, change=change).measure(list(range(10)))
    assert found is not None
    assert found.hidden == hidden
    assert found.noise == pytest.approx(noise / 1.26)


@pytest.mark.parametrize(("noise", "least"), [(0.0, 28.0), (10.0, 100.0)])
def test_edges_are_sure_from_twice_the_least_change(
    noise: float, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least one is 14 grey levels, or five times the noise."""
    clip = Clip(monkeypatch, noise=noise)
    clip.measure([0, 1, 2, 3], rests=0.6)
    assert clip.least == {least}


@pytest.mark.parametrize(("rows", "known"), [([0, 1, 2, 3, 4], False), ([0, 1, 2, 3, 4, 5], True)])
def test_the_hidden_share_needs_four_frames(rows: list[int], known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Clip(monkeypatch).measure(rows, rests=0.5)
    assert found is not None
    assert np.isfinite(found.hidden) == known


@pytest.mark.parametrize(("rows", "blur_px"), [([*range(6)], 7.0), ([*range(5)], np.nan)])
def test_the_blur_is_the_median_of_twenty_edges_or_more(
    rows: list[int], blur_px: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Clip(monkeypatch, widths=(1.0, 7.0, 7.0, 8.0, 9.0)).measure(rows, rests=0.5)
    assert found is not None
    np.testing.assert_equal(found.blur_px, blur_px)


@pytest.mark.parametrize(("share", "paths"), [(0.5, 5), (0.6, 3)])
def test_a_frame_of_a_body_that_rests_is_not_measured(
    share: float, paths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two silhouettes of five share pixels, where a share of 0.4 of the frames shows the body."""
    clip = Clip(monkeypatch, together=share)
    found = clip.measure(list(range(7)))
    assert found is not None
    assert len(clip.paths) == paths
    assert found.size_px == 103.0  # sizes count all the same

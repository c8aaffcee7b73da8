"""The rules of a search at a hint: what moves, which regions are tried, which pixels teach colours, which fit stays.

Stand-ins take the places of detectors, drawings and GrabCut, so that each rule is seen by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.moving_box import CAMERA, box_mesh
from vid2phys.geometry import Pose
from vid2phys.tracking import hinted_search as module
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.hint import Hint
from vid2phys.tracking.hinted_search import (
    DEFAULTS,
    HintedFit,
    HintedFrame,
    HintedSearchConfig,
    _grab_cut,
    _is_touched,
    _segmented,
    _touched,
    no_object,
    steady,
    unchanged,
    within_reach,
)
from vid2phys.tracking.silhouette_fit import Fit, FrameForeground
from vid2phys.types import Array

SOLID = Solid.of(box_mesh())
CLICK = Hint.of_click("0:12,8")
HEIGHT, WIDTH = 40, 60


@dataclass(frozen=True)
class Scene:
    """A foreground model with a given log ratio."""

    ratio: NDArray[np.float32]
    noise: NDArray[np.float32]
    body: Any = None
    scene: Any = None

    def log_ratio(self, frame: Any) -> NDArray[np.float32]:
        assert frame.shape == (HEIGHT, WIDTH, 3)
        return self.ratio


def places() -> NDArray[np.uint8]:
    """A frame whose pixels have their columns and rows as colours."""
    v, u = np.mgrid[:HEIGHT, :WIDTH]
    return np.stack([u, v, 0 * u], axis=-1).astype(np.uint8)


def scene(shown: Any = (), value: float = 1.0) -> Any:
    """A foreground of single pixels (x, y)."""
    ratio = np.full((HEIGHT, WIDTH), -1.0, np.float32)
    for x, y in shown:
        ratio[y, x] = value
    return Scene(ratio, np.full((HEIGHT, WIDTH), 3.0, np.float32))


def hinted(hint: Hint = CLICK, foreground: Any = None, **config: Any) -> HintedFrame:
    foreground = scene() if foreground is None else foreground
    seen = FrameForeground(places(), foreground.ratio, CAMERA, SOLID)
    return HintedFrame(seen, foreground, hint, HintedSearchConfig(**config))


@pytest.mark.parametrize(("hint", "shown", "moves"), [
    (CLICK, [(11, 7), (13, 9), (12, 8)], True),  # three of the nine pixels around
    (CLICK, [(11, 7), (13, 9)], False),
    (CLICK, [(10, 7), (11, 6), (12, 6), (14, 9), (13, 10), (12, 10), (11, 7), (13, 9)], False),
    (Hint.of_click("0:0,0"), [(0, 0), (1, 1)], True),  # two of the four at the corner
    (Hint.of_click("0:0,0"), [(0, 1)], False),
    (Hint.of_click("0:1,1"), [(0, 0), (2, 2), (1, 1)], True),
    (Hint.of_click("0:12.4,7.6"), [(11, 7), (13, 9), (12, 8)], True),
    (Hint.of_box("0:5,5,7,6"), [(4, 4), (8, 7), (4, 7), (8, 4), (5, 5), (6, 6), (7, 7)], True),  # seven of twenty
    (Hint.of_box("0:5,5,7,6"), [(4, 4), (8, 7), (4, 7), (8, 4), (5, 5), (6, 6)], False),
])  # fmt: skip
def test_a_body_moves_where_enough_pixels_at_the_hint_are_foreground(
    hint: Hint, shown: list[tuple[int, int]], moves: bool
) -> None:
    foreground = scene(shown)
    frame = places()
    found = HintedFrame.of(frame, foreground, CAMERA, SOLID, hint)
    assert found.foreground.noise.shape == (HEIGHT, WIDTH)
    assert bool(np.isfinite(found.foreground.noise).all()) is moves
    assert bool(np.isinf(found.foreground.noise).all()) is not moves
    assert (found.seen.frame is frame, found.seen.log_ratio is foreground.ratio) == (True, True)
    assert (found.seen.camera, found.seen.solid, found.hint, found.config) == (CAMERA, SOLID, hint, DEFAULTS)


def test_a_pixel_that_may_as_well_be_scene_does_not_move() -> None:
    around = [(x, y) for x in (11, 12, 13) for y in (7, 8, 9)]
    assert np.isinf(HintedFrame.of(places(), scene(around, 0.0), CAMERA, SOLID, CLICK).foreground.noise).all()
    share = HintedSearchConfig(moving_share=1.0 / 3.0 + 0.01)
    found = HintedFrame.of(places(), scene(around[:3]), CAMERA, SOLID, CLICK, share)
    assert np.isinf(found.foreground.noise).all()
    assert found.config is share


def pose_of(z: float) -> Pose:
    """A pose that is known by its distance."""
    return Pose(np.eye(3), np.array([0.0, 0.0, z]))


def test_regions_are_searched_and_good_fits_come_out_by_their_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two regions have pixels; fits without colours, with little overlap or beside the hint are left out."""
    empty, full = np.full((HEIGHT, WIDTH), -2.0, np.float32), np.full((HEIGHT, WIDTH), 2.0, np.float32)
    zero = np.zeros((HEIGHT, WIDTH), np.float32)
    tried = list[Any]()

    def detect(silhouettes: Any, seen: FrameForeground, most: int) -> list[Fit]:
        assert (silhouettes, most, seen.frame is at.seen.frame) == ("silhouettes", 3, True)
        tried.append(seen.log_ratio)
        return [Fit(pose_of(10.0 * len(tried) + k), 0.0, 0.0, None) for k in range(3)]

    overlaps = {10.0: 0.71, 11.0: 0.7, 12.0: 0.9, 20.0: 0.8, 21.0: 0.99, 22.0: 0.95}
    evidence = {10.0: 1000.0, 11.0: 9999.0, 12.0: 9999.0, 20.0: 2000.0, 21.0: 100.0, 22.0: 500.0}

    def with_own_colors(self: HintedFrame, fit: Fit) -> HintedFit | None:
        z = float(fit.pose.translation[2])
        moved = replace(fit, pose=pose_of(z + 0.5), overlap=overlaps[z])
        return None if z == 22.0 else HintedFit(moved, evidence[z], 10.0, 1.0)

    monkeypatch.setattr(module, "detect", detect)
    monkeypatch.setattr(module, "in_processes", map)
    monkeypatch.setattr(module, "_touched", lambda ratio, hint: full if hint is CLICK else None)
    monkeypatch.setattr(module, "_segmented", lambda frame, hint, config: iter([empty, zero, full]))
    monkeypatch.setattr(HintedFrame, "with_own_colors", with_own_colors)
    monkeypatch.setattr(HintedFrame, "is_hinted", lambda self, pose: pose.translation[2] != 12.5)
    at = hinted()
    found = at.search("silhouettes")  # type: ignore[arg-type]
    assert len(tried) == 2
    assert tried[0] is tried[1] is full
    assert [one.fit.pose.translation[2] for one in found] == [20.5, 10.5, 21.5]
    assert sorted((one.rank for one in found), reverse=True) == [one.rank for one in found]


@dataclass
class Colored:
    """The stand-in of a frame that is segmented by a pose's colours."""

    nats: dict[float, float]
    log_ratio: Array = field(default_factory=lambda: np.full((HEIGHT, WIDTH), -1.0))
    fails_to_align: bool = False
    fails_to_fit: bool = False
    asked: list[str] = field(default_factory=list)

    @property
    def config(self) -> Any:
        return FrameForeground(places(), np.zeros((1, 1), np.float32), CAMERA, SOLID).config

    def judged(self, pose: Pose, contour: Any) -> Fit:
        z = float(pose.translation[2])
        self.asked.append(f"judged {z}")
        return Fit(pose, self.nats[z], 0.5 + 0.01 * z, contour)

    def aligned(self, pose: Pose, reaches: tuple[float, ...]) -> Pose | None:
        assert reaches == (0.1, 0.06)
        self.asked.append(f"aligned {pose.translation[2]}")
        return None if self.fails_to_align else pose_of(float(pose.translation[2]) + 0.25)

    def fitted_from(self, pose: Pose) -> Fit | None:
        self.asked.append(f"fitted {pose.translation[2]}")
        if self.fails_to_fit:
            return None
        z = float(pose.translation[2]) + 0.75
        return Fit(pose_of(z), self.nats[z], 0.0, None)


def with_colors(
    monkeypatch: pytest.MonkeyPatch, colored: Colored | None, mask: Any, **config: Any
) -> tuple[HintedFit | None, list[float]]:
    """Return what becomes of a pose 1 m away, and the distances whose colours are asked."""
    asked = list[float]()

    def of_pose(self: HintedFrame, pose: Pose) -> Any:
        asked.append(float(pose.translation[2]))
        return colored

    monkeypatch.setattr(HintedFrame, "_colored", of_pose)
    monkeypatch.setattr(HintedFrame, "_mask", lambda self, pose: mask)
    contour: Any = "contour"
    return hinted(**config).with_own_colors(Fit(pose_of(1.0), 0.0, 0.0, contour)), asked


def small_mask() -> NDArray[np.bool_]:
    mask = np.zeros((HEIGHT, WIDTH), dtype=bool)
    mask[10:14, 20:29] = True  # 36 px, so that its side is six
    return mask


def test_colours_and_pose_take_two_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that explains as much as the pose before counts."""
    colored = Colored({1.0: 5.0, 2.0: 5.0, 3.0: 9.0})
    colored.log_ratio[0, :4], colored.log_ratio[39, 59], colored.log_ratio[11, 21] = 3.0, 6.0, 99.0
    found, asked = with_colors(monkeypatch, colored, small_mask())
    assert found is not None
    assert asked == [1.0, 2.0, 3.0]
    assert colored.asked == [
        "judged 1.0", "aligned 1.0", "fitted 1.25", "judged 2.0", "aligned 2.0", "fitted 2.25", "judged 3.0"
    ]  # fmt: skip
    assert found.fit.pose.translation[2] == 3.0
    assert (found.fit.nats, found.fit.overlap) == (9.0, 0.53)
    assert found.side_px == 6.0
    assert found.nats == pytest.approx(9.0 - (4 * 3.0 + 6.0) / (0.75 * 6.0))
    assert found.agreement == 1.0


@pytest.mark.parametrize(("colored", "asked"), [
    (Colored({1.0: 5.0, 2.0: 4.9}), [1.0, 1.0, 1.0]),
    (Colored({1.0: 5.0, 2.0: 9.0}, fails_to_align=True), [1.0, 1.0, 1.0]),
    (Colored({1.0: 5.0, 2.0: 9.0}, fails_to_fit=True), [1.0, 1.0, 1.0]),
])  # fmt: skip
def test_a_pose_stays_where_nothing_explains_more(
    colored: Colored, asked: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, of_colors = with_colors(monkeypatch, colored, small_mask())
    assert found is not None
    assert of_colors == asked
    assert found.fit == Fit(found.fit.pose, 5.0, 0.51, "contour")  # type: ignore[arg-type]
    assert found.fit.pose.translation[2] == 1.0
    assert found.nats == 5.0


def test_without_colours_or_a_silhouette_there_is_no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_colors(monkeypatch, None, small_mask()) == (None, [1.0])
    assert with_colors(monkeypatch, None, small_mask(), color_rounds=0)[0] is None
    assert with_colors(monkeypatch, Colored({1.0: 5.0}), None, color_rounds=0)[0] is None
    found, asked = with_colors(monkeypatch, Colored({1.0: 5.0}), small_mask(), color_rounds=0)
    assert found is not None
    assert asked == [1.0]


def grown(low: tuple[int, int], high: tuple[int, int], by: int) -> set[tuple[int, int]]:
    """Return the pixels (x, y) of the frame in a rectangle of pixels that is grown to all sides."""
    columns = range(max(low[0] - by, 0), min(high[0] + by, WIDTH - 1) + 1)
    rows = range(max(low[1] - by, 0), min(high[1] + by, HEIGHT - 1) + 1)
    return {(x, y) for x in columns for y in rows}


@pytest.mark.parametrize(("low", "high", "config", "width"), [
    ((20, 12), (23, 15), {}, 5),  # 4 x 4 px: at least five pixels around
    ((20, 12), (35, 20), {}, 6),  # 16 x 9 px: half of a side of twelve
    ((20, 12), (35, 20), {"around": 0.75, "uniform_share": 0.2}, 9),
    ((0, 12), (15, 20), {"around": 0.5}, 6),
])  # fmt: skip
def test_colours_are_those_inside_and_around_a_silhouette(
    low: tuple[int, int],
    high: tuple[int, int],
    config: dict[str, Any],
    width: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mask = np.zeros((HEIGHT, WIDTH), dtype=bool)
    mask[low[1] : high[1] + 1, low[0] : high[0] + 1] = True
    taught = list[set[tuple[int, int]]]()

    def color_density(colors: NDArray[np.uint8], uniform_share: float) -> str:
        assert uniform_share == config.get("uniform_share", 0.1)
        taught.append({(int(x), int(y)) for x, y, _ in colors})
        return ("body", "scene")[len(taught) - 1]

    @dataclass(frozen=True)
    class Known(Scene):
        def log_ratio(self, frame: Any) -> NDArray[np.float32]:
            assert (self.body, self.scene) == ("body", "scene")
            return np.arange(HEIGHT * WIDTH, dtype=np.float32).reshape(HEIGHT, WIDTH) - 77.0

    monkeypatch.setattr(module, "color_density", color_density)
    monkeypatch.setattr(HintedFrame, "_mask", lambda self, pose: mask)
    zeros = np.zeros((HEIGHT, WIDTH), np.float32)
    at = hinted(foreground=Known(zeros, zeros, "nothing", "nothing"), **config)
    found = at._colored(pose_of(1.0))
    assert found is not None
    wide = grown(low, high, width)
    assert taught == [grown(low, high, 0), wide - grown(low, high, 1)]
    for y in range(HEIGHT):
        for x in range(WIDTH):
            assert found.log_ratio[y, x] == (y * WIDTH + x - 77.0 if (x, y) in wide else -77.0)


def test_a_silhouette_that_is_too_large_or_fills_the_frame_has_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    def mask_of(pixels: int) -> None:
        mask = (np.arange(HEIGHT * WIDTH) < pixels).reshape(HEIGHT, WIDTH)
        monkeypatch.setattr(HintedFrame, "_mask", lambda self, pose: mask)

    mask_of(HEIGHT * WIDTH * 2 // 5)
    assert hinted()._colored(pose_of(1.0)) is not None, "two fifths"
    mask_of(HEIGHT * WIDTH * 2 // 5 + 1)
    assert hinted()._colored(pose_of(1.0)) is None
    mask_of(HEIGHT * WIDTH)
    assert hinted(most_share=1.0)._colored(pose_of(1.0)) is None
    mask_of(0)
    assert hinted()._colored(pose_of(1.0)) is None


def test_a_silhouette_lies_in_its_rows_and_columns_of_the_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.zeros((3, 4), dtype=bool)
    monkeypatch.setattr(module, "silhouette_of", lambda *_: (slice(7, 10), slice(11, 15), pixels))
    assert hinted()._mask(pose_of(1.0)) is None, "of no pixels"
    assert not hinted().is_hinted(pose_of(1.0))
    pixels[0, 3] = pixels[2, 1] = True
    mask = hinted()._mask(pose_of(1.0))
    assert mask is not None
    assert mask.shape == (HEIGHT, WIDTH)
    assert np.argwhere(mask).tolist() == [[7, 14], [9, 12]]
    assert hinted().is_hinted(pose_of(1.0)), "a click at 12, 8"
    assert not hinted(Hint.of_click("0:20,8")).is_hinted(pose_of(1.0))


@pytest.mark.parametrize(("radius", "x", "y", "columns", "rows"), [
    (4.0, 30.0, 20.0, (18, 42), (8, 32)),  # three radii to each side
    (4.0, 30.4, 19.6, (18, 43), (7, 32)),
    (4.0, 2.0, 37.0, (0, 14), (25, 39)),
    (8.0, 58.0, 1.0, (34, 59), (0, 25)),
])  # fmt: skip
def test_a_disc_is_segmented_in_a_window_of_three_radii(
    radius: float, x: float, y: float, columns: tuple[int, int], rows: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Any]()

    def grab_cut(image: Any, middle: Array, half: Array, is_disc: bool, config: Any) -> NDArray[np.bool_]:
        asked.append((image, middle, half, is_disc))
        return np.asarray(image[..., 0] % 2 == 0)

    monkeypatch.setattr(module, "_grab_cut", grab_cut)
    frame = places()
    (region,) = _segmented(frame, Hint("", (x, y, x, y)), HintedSearchConfig(discs=(radius / HEIGHT,), nats=1.5))
    ((image, middle, half, is_disc),) = asked
    np.testing.assert_array_equal(image, frame[rows[0] : rows[1] + 1, columns[0] : columns[1] + 1])
    np.testing.assert_allclose(middle, [x - columns[0], y - rows[0]])
    np.testing.assert_allclose(half, radius)
    assert is_disc
    expected = np.full((HEIGHT, WIDTH), -1.5)
    part = slice(rows[0], rows[1] + 1), slice(columns[0], columns[1] + 1)
    expected[part] = np.where(frame[part][..., 0] % 2 == 0, 1.5, -1.5)
    np.testing.assert_array_equal(region, expected)


def test_a_box_is_segmented_by_itself_and_by_two_discs_of_its_mean_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A box of 8 x 4 px; the first disc finds nothing."""
    asked = list[Any]()

    def grab_cut(image: Any, middle: Array, half: Array, is_disc: bool, config: Any) -> Any:
        asked.append(((image[0, 0, 0], image[0, 0, 1]), image.shape[:2], middle.tolist(), half.tolist(), is_disc))
        return None if len(asked) == 2 else np.ones(image.shape[:2], dtype=bool)

    monkeypatch.setattr(module, "_grab_cut", grab_cut)
    found = list(_segmented(places(), Hint.of_box("0:26,18,34,22"), DEFAULTS))
    np.testing.assert_allclose([each[3] for each in asked], [[4.0, 2.0], [1.2, 1.2], [2.4, 2.4]])
    assert [each[4] for each in asked] == [False, True, True]
    assert [each[0] for each in asked] == [(18, 14), (26, 16), (22, 12)]
    assert [each[1] for each in asked] == [(13, 25), (9, 9), (17, 17)]
    assert [each[2] for each in asked] == [[12.0, 6.0], [4.0, 4.0], [8.0, 8.0]]
    assert len(found) == 2
    assert [int((region > 0.0).sum()) for region in found] == [13 * 25, 17 * 17]


@dataclass
class Cut:
    """The stand-in of GrabCut: it leaves the labels as they are, or makes all of them background."""

    finds: bool = True
    labels: Any = None
    small: Any = None

    def __call__(self, small: Any, labels: Any, box: Any, back: Any, front: Any, rounds: int, mode: int) -> None:
        assert (back.shape, front.shape, mode) == ((1, 65), (1, 65), cv2.GC_INIT_WITH_MASK)
        assert not back.any()
        assert not front.any()
        assert rounds == 4
        self.labels, self.small = labels.copy(), small
        if not self.finds:
            labels[:] = cv2.GC_PR_BGD


@pytest.mark.parametrize(("size", "window_px"), [((40, 50), 160), ((40, 50), 50), ((40, 50), 25), ((60, 40), 15)])
@pytest.mark.parametrize("is_disc", [True, False])
def test_pixels_have_labels_by_their_distance(
    size: tuple[int, int], window_px: int, is_disc: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In halves of a disc or a box, of whole pixels or of larger ones."""
    cut = Cut()
    monkeypatch.setattr(cv2, "grabCut", cut)
    image = np.zeros((*size, 3), np.uint8)
    middle, half, config = np.array([22.0, 17.0]), np.array([8.0, 6.0]), HintedSearchConfig(window_px=window_px)
    found = _grab_cut(image, middle, half, is_disc, config)
    factor = max(1.0, max(size) / window_px)
    assert cut.labels.shape == (round(size[0] / factor), round(size[1] / factor)) == cut.small.shape[:2]
    expected = np.zeros(cut.labels.shape)
    for row in range(expected.shape[0]):
        for column in range(expected.shape[1]):
            x = ((column + 0.5) * factor - 0.5 - middle[0]) / half[0]
            y = ((row + 0.5) * factor - 0.5 - middle[1]) / half[1]
            if is_disc:
                far = np.hypot(x, y)
                rest = cv2.GC_BGD if far > 2.7 else cv2.GC_PR_BGD
                expected[row, column] = cv2.GC_FGD if far <= 0.3 else cv2.GC_PR_FGD if far <= 1.0 else rest
            else:
                expected[row, column] = cv2.GC_PR_FGD if max(abs(x), abs(y)) <= 1.0 else cv2.GC_BGD
    np.testing.assert_array_equal(cut.labels, expected)
    assert found is not None
    inside = np.isin(expected, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8)
    assert found.shape == size
    np.testing.assert_array_equal(found, cv2.resize(inside, size[::-1], interpolation=cv2.INTER_LINEAR) > 0)
    assert factor > 1.0 or (found == (inside > 0)).all()


def test_nothing_found_is_no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    image, middle = np.zeros((20, 20, 3), np.uint8), np.array([9.0, 9.0])
    monkeypatch.setattr(cv2, "grabCut", Cut(finds=False))
    assert _grab_cut(image, middle, np.full(2, 4.0), True, DEFAULTS) is None
    monkeypatch.setattr(cv2, "grabCut", Cut())
    assert _grab_cut(image, middle, np.full(2, 4.0), True, DEFAULTS) is not None
    assert _grab_cut(image, middle, np.full(2, 10.0), False, DEFAULTS) is None, "a box that holds all pixels"
    assert _grab_cut(image, middle, np.full(2, 9.9), False, DEFAULTS) is not None, "but those of one side"
    corner = np.array([-3.0, -4.0])
    assert _grab_cut(image, corner, np.full(2, 5.0), True, DEFAULTS) is not None, "a disc that touches one pixel"
    unasked = Cut()
    monkeypatch.setattr(cv2, "grabCut", unasked)
    assert _grab_cut(image, corner, np.full(2, 4.99), True, DEFAULTS) is None
    assert _grab_cut(image, middle, np.full(2, 10.0), False, DEFAULTS) is None
    assert unasked.labels is None, "it would fail without pixels of both kinds"


def test_a_body_is_reached_in_pixels_of_the_mean_focal_length() -> None:
    """Of focal lengths of 400 and 100 px the reach is that of 200 px; the nearest known frame counts."""
    camera = replace(CAMERA, K=np.array([[400.0, 0.0, 150.0], [0.0, 100.0, 120.0], [0.0, 0.0, 1.0]]))
    near = Pose(np.eye(3), np.array([0.2, -0.4, 2.0]))
    far = Pose(np.eye(3), np.array([9.0, 9.0, 1.0]))
    ratio = np.full((CAMERA.height, CAMERA.width), 2.0, np.float32)
    v, u = np.mgrid[: CAMERA.height, : CAMERA.width]
    apart = np.hypot(u - 190.0, v - 100.0)
    for i, px in ((6, 30.3), (7, 40.4), (3, 60.6)):
        found = within_reach(ratio, camera, {6: near, 11: far, -9: far}, i, 0.101)
        np.testing.assert_array_equal(found, np.where(apart < px, 2.0, -1.0))


def test_a_path_has_fits_of_more_evidence_and_overlap_than_the_least() -> None:
    """Three lost frames end it to both sides, and two do not."""
    good, same, thin = (Fit(pose_of(1.0), nats, share, None) for nats, share in ((9.0, 0.6), (8.0, 0.6), (9.0, 0.5)))
    path = [good, same, thin, None, good, None, same, good, thin, None, good, same, same, same, good]
    assert sorted(steady(path, 7, 8.0, 0.5)) == [4, 7, 10]
    assert sorted(steady(path, 0, 8.0, 0.5)) == [0]
    assert sorted(steady(path, 14, 8.0, 0.5)) == [14]
    assert steady(path, 7, 8.0, 0.5)[10] is good
    assert sorted(steady([good] * 4, 3, 8.0, 0.5)) == [0, 1, 2, 3]
    assert sorted(steady([good, None, None, None, None, good], 3, 8.0, 0.5)) == [0, 5], "two to each side of the row"


@pytest.mark.parametrize(("x", "y", "touches"), [
    (7.5, 12.0, False), (21.5, 12.0, False), (15.0, 2.5, False), (15.0, 21.5, False),
    (7.51, 12.0, True), (21.49, 12.0, True), (15.0, 2.51, True), (15.0, 21.49, True),
])  # fmt: skip
def test_two_and_a_half_pixels_beside_a_silhouette_are_too_many(x: float, y: float, touches: bool) -> None:
    place = slice(5, 20), slice(10, 20), np.ones((15, 10), dtype=bool)
    assert _is_touched(place, Hint("", (x, y, x, y))) is touches


def test_a_body_rests_where_a_place_differs_by_less_than_a_bound() -> None:
    place = slice(2, 4), slice(5, 8), np.array([[True, False, True], [True, True, False]])
    frame = places()
    other = frame.copy()
    other[2:4, 5:8][~place[2]] = 250
    other[:2] = 250
    samples = np.stack([other, other + np.uint8(3), other - np.uint8(4), other + np.uint8(5)])
    samples[:, 2:4, 5:8, 2] = frame[2:4, 5:8, 2]
    clip: Any = type("Clip", (), {"samples": samples, "rows": np.array([4, 6, 8, 9])})
    assert unchanged(frame, clip, place, 4.0) == [4, 6]
    assert unchanged(frame, clip, place, 4.5) == [4, 6, 8]


def test_the_error_names_the_option_and_the_mesh() -> None:
    for hint, option in ((CLICK, "--hint 0:12,8"), (Hint.of_box("0:1,2,3,4"), "--hint-box 0:1,2,3,4")):
        message = str(no_object(hint, box_mesh()))
        assert f"{option}: no object of the mesh's shape at the hint (mesh 'box')" in message
        assert "a frame that shows it whole" in message


def test_pixels_that_are_a_little_more_likely_of_the_body_make_a_region() -> None:
    """Pixels that may as well be scene do not join two of them."""
    ratio = np.full((HEIGHT, WIDTH), -0.5, np.float32)
    ratio[5:11, 9:15] = ratio[5:11, 24:30] = 0.1
    ratio[5:11, 15:24] = 0.0
    found = _touched(ratio, CLICK)
    np.testing.assert_array_equal(found[5:11, 9:15], ratio[5:11, 9:15])
    rest = np.ones(found.shape, dtype=bool)
    rest[5:11, 9:15] = False
    np.testing.assert_array_equal(found[rest], -1.0)

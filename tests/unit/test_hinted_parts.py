"""The parts of a search at a hint beside drawn discs and boxes: regions, reach, agreement, rank, and rest."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.moving_box import CAMERA, box_mesh, box_poses, photograph, wall
from vid2phys.engine.observe import project
from vid2phys.geometry import Pose
from vid2phys.io.array_clip import array_clip
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.silhouette import draw
from vid2phys.tracking.foreground import Foreground
from vid2phys.tracking.hint import Hint
from vid2phys.tracking.hinted_search import (
    DEFAULTS,
    HintedFit,
    HintedFrame,
    _agreement,
    _grab_cut,
    _is_touched,
    _segmented,
    _touched,
    is_at_hint,
    steady,
    unchanged,
    within_reach,
)
from vid2phys.tracking.silhouette_fit import Fit, FrameForeground
from vid2phys.types import Camera

MESH = box_mesh()
SOLID = Solid.of(MESH)
POSE = box_poses(20)[12]


def disc(x: float, y: float, radius: float, height: int = 240, width: int = 320) -> NDArray[np.bool_]:
    v, u = np.mgrid[:height, :width]
    return np.asarray(np.hypot(u - x, v - y) <= radius)


def shown(mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """An image of a red thing before a grey wall, with noise."""
    noise = np.random.default_rng(0).normal(0.0, 3.0, (*mask.shape, 3))
    return np.asarray(np.where(mask[..., None], (190, 60, 50), (90, 110, 130)) + noise, dtype=np.uint8)


def overlap(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
    return float((a & b).sum() / (a | b).sum())


def test_a_click_is_segmented_in_discs_of_four_sizes() -> None:
    """The disc as large as the body finds it; log ratios are two nats to either side."""
    body = disc(200.0, 90.0, 12.0)
    found = list(_segmented(shown(body), Hint.of_click("0:200,90"), DEFAULTS))
    assert len(found) == 4, "of 6, 12, 24 and 48 px"
    for region in found:
        assert set(np.unique(region)) == {-2.0, 2.0}
    assert overlap(found[1] > 0.0, body) > 0.9
    assert overlap(found[2] > 0.0, body) > 0.9
    for region, radius in zip(found, (6.0, 12.0, 24.0, 48.0), strict=True):
        away = ~disc(200.0, 90.0, 3.0 * radius * np.sqrt(2.0) + 2.0)
        assert (region[away] < 0.0).all(), "outside of the window"


def test_a_box_is_segmented_within_itself_and_in_two_discs() -> None:
    body = disc(100.0, 120.0, 20.0)
    frame = shown(body | disc(150.0, 120.0, 15.0))
    found = list(_segmented(frame, Hint.of_box("0:78,98,122,142"), DEFAULTS))
    assert len(found) == 3
    assert overlap(found[0] > 0.0, body) > 0.95
    assert (found[0][:, 123:] < 0.0).all(), "nothing beside the box"
    assert overlap(found[2] > 0.0, body) > 0.9 or (found[2] > 0.0)[120, 150]


@pytest.mark.parametrize("is_disc", [True, False])
def test_a_large_window_is_segmented_at_160_pixels(is_disc: bool) -> None:
    body = disc(250.0, 230.0, 60.0, 480, 560)
    found = _grab_cut(shown(body), np.array([250.0, 230.0]), np.array([70.0, 70.0]), is_disc, DEFAULTS)
    assert found is not None
    assert found.shape == body.shape
    assert overlap(found, body) > 0.93
    rows, columns = np.nonzero(found)
    assert (columns.mean(), rows.mean()) == pytest.approx((250.0, 230.0), abs=1.0)
    nothing = np.array([9000.0, 0.0])
    assert _grab_cut(shown(body), nothing, np.array([9.0, 9.0]), is_disc, DEFAULTS) is None, "beside the image"
    assert _grab_cut(shown(body), np.array([250.0, 230.0]), np.array([9e3, 9e3]), is_disc, DEFAULTS) is None


def test_only_regions_that_a_hint_touches_are_left() -> None:
    ratio = np.full((60, 80), -3.0, np.float32)
    ratio[10:20, 10:20] = ratio[10:20, 25:30] = 4.0  # two regions
    ratio[40:50, 10:16] = ratio[40:50, 20:24] = 4.0  # one region: a gap of four pixels is closed
    left = _touched(ratio, Hint.of_click("0:15,15"))
    assert (left[10:20, 10:20] == 4.0).all()
    assert (left[10:20, 25:30] == -1.0).all()
    assert (left[40:50, 10:24] < 0.0).all()
    assert (left[30] == -3.0).all()
    both = _touched(ratio, Hint.of_click("0:12,45"))
    assert (both[40:50, 10:16] == 4.0).all()
    assert (both[40:50, 20:24] == 4.0).all()
    for at, touches in (("8,15", True), ("7,15", False), ("21,15", True), ("22,15", False), ("15,8", True)):
        assert bool(_touched(ratio, Hint.of_click(f"0:{at}"))[15, 15] > 0.0) is touches, at
    for at, touches in (("15,7", False), ("15,21", True), ("15,22", False)):
        assert bool(_touched(ratio, Hint.of_click(f"0:{at}"))[15, 15] > 0.0) is touches, at
    assert (_touched(ratio, Hint.of_box("0:16,16,26,17"))[10:20, 10:30] > 0.0).sum() == 150
    ratio[0:3, 0:3] = 4.0
    assert _touched(ratio, Hint.of_click("0:1,1"))[0, 0] == 4.0, "at the corner of the frame"


@pytest.mark.parametrize(
    ("corners", "touches"),
    [
        ((7.6, 12.0, 7.6, 12.0), True),
        ((7.4, 12.0, 7.4, 12.0), False),
        ((21.4, 12.0, 21.4, 12.0), True),
        ((21.6, 12.0, 21.6, 12.0), False),
        ((15.0, 2.6, 15.0, 2.6), True),
        ((15.0, 2.4, 15.0, 2.4), False),
        ((15.0, 21.4, 15.0, 21.4), True),
        ((15.0, 21.6, 15.0, 21.6), False),
        ((0.0, 0.0, 30.0, 30.0), True),
    ],
)
def test_a_silhouette_is_at_a_hint_to_two_pixels(corners: tuple[float, float, float, float], touches: bool) -> None:
    place = slice(5, 20), slice(10, 20), np.ones((15, 10), dtype=bool)
    assert _is_touched(place, Hint("", corners, 0.0)) is touches


def test_boxes_agree_by_what_they_share() -> None:
    mask = np.zeros((60, 80), dtype=bool)
    mask[10:21, 20:41] = True  # a box of 20 x 10 px from pixel to pixel
    assert _agreement(mask, Hint.of_box("0:20,10,40,20")) == 1.0
    assert _agreement(mask, Hint.of_box("0:30,15,50,25")) == pytest.approx(50.0 / 350.0)
    assert _agreement(mask, Hint.of_box("0:20,10,60,40")) == pytest.approx(200.0 / 1200.0)
    assert _agreement(mask, Hint.of_box("0:50,30,60,40")) == 0.0
    assert _agreement(mask, Hint.of_click("0:1,1")) == 1.0


def test_the_rank_is_evidence_for_a_side_overlap_and_agreement() -> None:
    fit = Fit(POSE, 77.0, 0.9, None)
    assert HintedFit(fit, 60.0, 30.0, 1.0).rank == pytest.approx(2.0 * 0.9**4)
    assert HintedFit(fit, 60.0, 30.0, 0.5).rank == pytest.approx(2.0 * 0.9**4 * 0.6)
    assert HintedFit(fit, 60.0, 30.0, 0.0).rank == pytest.approx(2.0 * 0.9**4 * 0.2)


@pytest.mark.parametrize("pixel", [(157.0, 121.0), (240.0, 60.0)])
def test_a_body_reaches_its_diameter_and_a_radius_more_with_each_frame(pixel: tuple[float, float]) -> None:
    """A body of 25.2 px radius: three radii, the last of its own, and one for each frame."""
    x, y = pixel
    pose = Pose(np.eye(3), np.array([(x - 157.0) / 420.0, (y - 121.0) / 420.0, 1.0]) * 2.0)
    far = Pose(np.eye(3), np.array([0.0, 0.0, 5.0]))
    ratio = np.full((CAMERA.height, CAMERA.width), 2.0, np.float32)
    ratio[::2] = -3.0
    v, u = np.mgrid[: CAMERA.height, : CAMERA.width]
    apart = np.hypot(u - x, v - y)
    for i, radii in ((10, 3.0), (8, 5.0), (11, 4.0)):
        found = within_reach(ratio, CAMERA, {10: pose, 40: far}, i, 0.12)
        inside, outside = apart < radii * 25.2 - 0.1, apart > radii * 25.2 + 0.1
        np.testing.assert_array_equal(found[inside], ratio[inside])
        np.testing.assert_array_equal(found[outside], np.minimum(ratio[outside], -1.0))


def test_a_path_is_followed_both_ways_up_to_three_lost_frames() -> None:
    good, weak, thin = Fit(POSE, 51.0, 0.36, None), Fit(POSE, 50.0, 0.9, None), Fit(POSE, 99.0, 0.35, None)
    path = [good, None, None, weak, good, thin, None, good, good, weak, None, good, None, None, None, good]
    assert sorted(steady(path, 8, 50.0, 0.35)) == [4, 7, 8, 11]
    assert sorted(steady(path, 0, 50.0, 0.35)) == [0]


def test_a_place_that_hardly_changes_in_a_frame_rests_there() -> None:
    frame = np.full((20, 30, 3), 90, np.uint8)
    place = slice(5, 10), slice(10, 20), np.ones((5, 10), dtype=bool)
    samples = np.stack([frame, frame + np.uint8(7), frame - np.uint8(7), frame + np.uint8(8), frame])
    samples[4, 5:10, 10:14] = 200  # less than half of the place
    samples[:, :5] = 5
    clip: Any = SimpleNamespace(samples=samples, rows=np.array([3, 5, 9, 11, 20]))
    assert unchanged(frame, clip, place) == [3, 5, 9, 20]
    assert unchanged(frame, clip, None) == []


@pytest.fixture(scope="module")
def hinted() -> HintedFrame:
    """The frame of a box that rests, with a click on it."""
    frame = photograph(MESH, POSE, wall(), 0)
    x, y = project(CAMERA, POSE.translation[None])[0]
    return HintedFrame.of(frame, Foreground.of([frame] * 3), CAMERA, SOLID, Hint.of_click(f"0:{x:.1f},{y:.1f}"))


def test_a_background_that_has_the_body_does_not_count(hinted: HintedFrame) -> None:
    assert np.isinf(hinted.foreground.noise).all()
    moving = photograph(MESH, POSE, wall(), 1)
    others = [photograph(MESH, POSE.retract(np.array([0, 0, 0, s, 0, 0])), wall(), 2) for s in (0.2, -0.2, 0.25, -0.25)]
    foreground = Foreground.of([*others, moving])
    assert np.isfinite(HintedFrame.of(moving, foreground, CAMERA, SOLID, hinted.hint).foreground.noise).all()


def test_colours_on_both_sides_of_a_silhouette_segment_the_frame(hinted: HintedFrame) -> None:
    found, mask = hinted._colored(POSE), hinted._mask(POSE)
    assert found is not None
    assert mask is not None
    assert overlap(found.log_ratio > 0.0, mask) > 0.85
    width = round(0.5 * float(np.sqrt(mask.sum())))
    last = np.nonzero(mask)[1].max()
    striped = hinted.seen.frame.copy()
    striped[:, last + width - 4 : last + width + 6] = np.median(striped[mask], axis=0)
    own = replace(hinted, seen=replace(hinted.seen, frame=striped))._colored(POSE)
    assert own is not None
    assert (own.log_ratio[:, last + width - 1] > 0.0).any()
    assert (own.log_ratio[:, last + width + 1 :] == own.log_ratio.min()).all(), "half a side away at most"
    huge = Pose(POSE.rotation, POSE.translation * 0.16)
    assert hinted._colored(huge) is None, "a body that covers most of the frame"
    assert hinted._colored(Pose(POSE.rotation, -POSE.translation)) is None
    assert hinted._mask(Pose(POSE.rotation, POSE.translation + np.array([3.0, 0.0, 0.0]))) is None


def test_a_pose_near_the_truth_gets_there_by_its_own_colours(hinted: HintedFrame) -> None:
    start = POSE.retract(np.array([0.1, -0.08, 0.1, 0.01, -0.01, 0.05]))
    found = hinted.with_own_colors(Fit(start, 0.0, 0.0, None))
    assert found is not None
    error = POSE.step_to(found.fit.pose)
    assert np.abs(error[3:]).max() < 0.02
    assert np.abs(error[:3]).max() < 0.06
    mask = hinted._mask(found.fit.pose)
    own = hinted._colored(found.fit.pose)
    assert mask is not None
    assert own is not None
    assert found.side_px == pytest.approx(np.sqrt(mask.sum()))
    missed = np.maximum(own.log_ratio[~mask], 0.0).sum() / (own.config.correlated_sides * found.side_px)
    assert found.nats == pytest.approx(own.judged(found.fit.pose, found.fit.contour).nats - missed)
    assert found.agreement == 1.0
    away = Fit(Pose(POSE.rotation, -POSE.translation), 0.0, 0.0, None)
    assert hinted.with_own_colors(away) is None


def test_a_track_is_at_a_hint_where_its_silhouette_is() -> None:
    poses = Pose.stack([POSE, Pose(POSE.rotation, POSE.translation + np.array([0.3, 0.0, 0.0]))])
    clip = array_clip(np.zeros((2, CAMERA.height, CAMERA.width, 3), np.uint8), np.arange(2) / 30.0, "two")
    x, y = project(CAMERA, POSE.translation[None])[0]
    for tracked, frame, is_there in ((True, 0, True), (True, 1, False), (False, 0, False)):
        track: Any = SimpleNamespace(tracked=np.full(2, tracked), poses=SimpleNamespace(pose=poses))
        assert is_at_hint(track, Hint.of_click(f"{frame}:{x:.1f},{y:.1f}"), clip, CAMERA, MESH) is is_there


def test_a_hint_is_at_a_silhouette_of_the_frame(hinted: HintedFrame) -> None:
    assert hinted.is_hinted(POSE)
    assert not hinted.is_hinted(Pose(POSE.rotation, POSE.translation + np.array([0.3, 0.0, 0.0])))
    assert not hinted.is_hinted(Pose(POSE.rotation, -POSE.translation))
    small = Camera(CAMERA.K, 40, 30)
    other = replace(hinted, seen=FrameForeground(np.zeros((30, 40, 3), np.uint8), np.zeros((30, 40)), small, SOLID))
    assert not other.is_hinted(POSE)
    assert draw(POSE.apply(MESH.vertices), MESH.faces) is not None

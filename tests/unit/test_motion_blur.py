"""The path of a body in an exposure, measured in clips whose exposures are averages of many images."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import shift

from tests.blurred_box import FPS, FRAMES, blurred_clip, paths_px
from tests.moving_box import CAMERA, box_mesh
from tests.unit.test_mesh_tracker import SHAPE
from vid2phys.commands.identify.silhouette_doubts import OTHER_PX
from vid2phys.geometry import Pose
from vid2phys.tracking.cues.contour_config import DEFAULTS as CONTOUR
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.edge_lines import contour_evidence
from vid2phys.tracking.cues.exposure import longer
from vid2phys.tracking.cues.occluding_contour import occluding_contour
from vid2phys.tracking.cues.silhouette import draw
from vid2phys.tracking.foreground import Foreground
from vid2phys.tracking.frame_size import at_own_size
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.mesh_tracker import MeshTracker
from vid2phys.tracking.motion_blur import MotionBlur, MotionBlurConfig, _motions
from vid2phys.tracking.proportions import proportions
from vid2phys.tracking.silhouette_fit import Fit, contour_near
from vid2phys.types import Array

MESH = box_mesh()
SOLID = Solid.of(MESH)
MIDDLE = FRAMES // 2


@cache
def filmed(shutter: float) -> tuple[FrameStore, Pose, Foreground]:
    clip, poses = blurred_clip(shutter)
    frames = FrameStore.of(clip)
    return frames, poses, Foreground.of(frames)


@cache
def measured(shutter: float) -> MotionBlur | None:
    frames, _, foreground = filmed(shutter)
    return MotionBlur.measured(frames, foreground)


def known(shutter: float) -> MotionBlur:
    blur = measured(shutter)
    assert blur is not None
    return blur


@pytest.mark.parametrize("shutter", [0.6, 0.9])
def test_the_path_in_each_exposure_is_measured(shutter: float) -> None:
    """To a tenth of its length, in the whole clip and in each frame but the ends."""
    found, true = known(shutter).paths_px, paths_px(shutter)
    length = np.linalg.norm(true, axis=1)
    assert np.median(np.linalg.norm(found, axis=1) / length) == pytest.approx(1.0, abs=0.1)
    off = np.linalg.norm(found - true, axis=1) / length
    assert np.median(off) < 0.15
    assert off[2:-2].max() < 0.35


@pytest.mark.parametrize("shutter", [0.0, 0.2])
def test_short_exposures_count_as_none(shutter: float) -> None:
    assert measured(shutter) is None


def test_soft_edges_of_a_slow_body_are_no_path() -> None:
    """A ramp of 12 px about a body that moves by 5 px a frame does not come from its motion."""
    assert MotionBlur.measured(*discs(motion_px=5.0, path_px=0.0, soft_px=5.0)) is None


def test_still_frames_have_no_path() -> None:
    frames, foreground = discs(motion_px=0.0, path_px=0.0)
    assert MotionBlur.measured(frames, foreground) is None
    assert MotionBlur.measured(frames[:2], foreground) is None


@pytest.mark.parametrize(("level", "longer_than_body"), [(240.0, True), (15.0, False)])
def test_the_foreground_of_a_body_is_corrected_to_its_length(level: float, longer_than_body: bool) -> None:
    """Half of a dark body over its background looks like shadow, half of a bright one does not."""
    frames, foreground = discs(motion_px=14.0, path_px=10.0, level=level)
    blur = MotionBlur.measured(frames, foreground)
    assert blur is not None
    assert np.median(np.linalg.norm(blur.paths_px, axis=1)) == pytest.approx(10.0, rel=0.15)
    ratio = foreground.log_ratio(frames[6])
    sides = [
        np.ptp(np.nonzero(each > 0.0)[1]) + 1 for each in (ratio, longer(ratio, np.array(blur.path(6)), -blur.excess))
    ]
    assert (sides[0] > DISC_PX + 2.0, sides[0] < DISC_PX - 2.0) == (longer_than_body, not longer_than_body)
    assert sides[1] == pytest.approx(DISC_PX, abs=2.0)


DISC_PX = 40.0


def discs(
    motion_px: float, path_px: float, soft_px: float = 0.8, level: float = 240.0
) -> tuple[list[NDArray[np.uint8]], Foreground]:
    """Return frames of a disc that moves to the right before a grey wall, and their foreground."""
    v, u = np.mgrid[:120, :260].astype(float)
    frames = list[NDArray[np.uint8]]()
    for i in range(13):
        moments = 40.0 + motion_px * i + path_px * ((np.arange(21) + 0.5) / 21.0 - 0.5)
        off = [0.5 * DISC_PX - np.hypot(u - x, v - 60.0) for x in moments]
        cover = np.mean([np.clip(0.5 + each / max(soft_px, 1.0), 0.0, 1.0) for each in off], axis=0)
        noise = np.random.default_rng(i).normal(0.0, 1.5, (120, 260, 3))
        shown = 130.0 + cover[..., None] * (level - 130.0) + noise
        frames.append(np.clip(np.rint(shown), 0, 255).astype(np.uint8))
    return frames, Foreground.of(frames)


def test_frames_in_which_regions_differ_take_the_motion_of_others() -> None:
    middles = np.stack([10.0 * np.arange(12), np.zeros(12)], axis=-1)
    middles[6] += [80.0, -40.0]
    sides = np.full(12, 30.0)
    sides[6] = 60.0
    np.testing.assert_allclose(_motions(middles, sides, MotionBlurConfig()), np.tile([10.0, 0.0], (12, 1)), atol=1e-9)


def test_far_from_frames_with_a_region_the_body_rests() -> None:
    middles = np.stack([10.0 * np.arange(30), np.zeros(30)], axis=-1)
    sides = np.where(np.arange(30) < 12, 30.0, np.nan)
    middles[12:] = np.nan
    found = _motions(middles, sides, MotionBlurConfig())
    np.testing.assert_allclose(found[:12], np.tile([10.0, 0.0], (12, 1)), atol=1e-9)
    assert not found[18:].any()


def test_a_motion_is_no_longer_than_the_body() -> None:
    middles = np.stack([0.0 * np.arange(9), -50.0 * np.arange(9)], axis=-1)
    found = _motions(middles, np.full(9, 30.0), MotionBlurConfig())
    np.testing.assert_allclose(found, np.tile([0.0, -30.0], (9, 1)), atol=1e-9)


@pytest.mark.parametrize("shutter", [0.6, 0.9])
def test_a_contour_fits_blurred_edges(shutter: float) -> None:
    """Fits that know the path are nearer across the line of sight."""
    frames, poses, _ = filmed(shutter)
    starts = np.random.default_rng(0).normal(0.0, [0.04, 0.04, 0.04, 0.002, 0.002, 0.02], (4 * FRAMES, 6))

    def sideways_m(path_px: Array) -> float:
        off = []
        for k, start in enumerate(starts):
            true, i = poses[k % FRAMES], k % FRAMES
            fit = contour_near(frames[i], CAMERA, SOLID, true.retract(start), tuple(path_px[i]))
            assert fit is not None
            off.append(
                np.linalg.norm(np.cross(fit.pose.translation, true.translation / np.linalg.norm(true.translation)))
            )
        return float(np.median(off))

    assert sideways_m(paths_px(shutter)) < 0.7 * sideways_m(np.zeros((FRAMES, 2)))


def test_the_drawing_along_a_path_is_the_mean_of_drawings() -> None:
    drawing = draw(filmed(0.0)[1][MIDDLE].apply(MESH.vertices), MESH.faces)
    assert drawing is not None
    still = occluding_contour(drawing, CAMERA)
    moved = occluding_contour(drawing, CAMERA, replace(CONTOUR, path_px=(6.0, 0.0)))
    assert still is not None
    assert moved is not None
    zoom = 1.0 / np.linalg.norm(drawing.to_frame(CAMERA)[:, 0])
    shifts = zoom * 6.0 * ((np.arange(41) + 0.5) / 41.0 - 0.5)
    mean = np.mean([shift(still.coverage, (0.0, x), order=1, mode="nearest") for x in shifts], axis=0)
    np.testing.assert_allclose(moved.coverage, mean, atol=0.03)
    np.testing.assert_array_equal(moved.still().coverage, still.coverage)
    np.testing.assert_allclose(moved.blur_px, 6.0 * np.abs(moved.normals[:, 0]), atol=0.05)


def test_a_blurred_contour_is_evident_where_its_path_is_known() -> None:
    frames, poses, _ = filmed(0.6)
    drawing = draw(poses[MIDDLE].apply(MESH.vertices), MESH.faces)
    assert drawing is not None
    path = known(0.6).path(MIDDLE)
    contours = [occluding_contour(drawing, CAMERA, replace(CONTOUR, path_px=each)) for each in (path, (0.0, 0.0))]
    nats = [-np.inf if each is None else contour_evidence(frames[MIDDLE], each) for each in contours]
    assert nats[0] > nats[1] + 50.0


def test_whole_frames_are_fitted_along_longer_paths() -> None:
    """The paths of reduced frames count as many pixels more as the frames have."""
    frames, poses, _ = filmed(0.6)
    blur = known(0.6)
    small = replace(blur, paths_px=0.5 * blur.paths_px)
    found: list[Fit | None] = [None] * FRAMES
    found[MIDDLE] = Fit(poses[MIDDLE], 1.0, 1.0, None)
    fitted = at_own_size(frames, CAMERA, SOLID, found, small.enlarged(2))[MIDDLE]
    alone = contour_near(frames[MIDDLE], CAMERA, SOLID, poses[MIDDLE], blur.path(MIDDLE))
    assert fitted is not None
    assert alone is not None
    np.testing.assert_allclose(fitted.pose.translation, alone.pose.translation, rtol=1e-12)


def test_a_tracker_follows_a_body_whose_path_is_a_quarter_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the measured path, the body seems larger, and is found by more than 0.1 m too near."""
    assert median_distance_error(0.8) < 0.05
    monkeypatch.setattr(MotionBlur, "measured", lambda *_: None)
    assert median_distance_error(0.8) > 0.1


def median_distance_error(shutter: float) -> float:
    frames, poses, _ = filmed(shutter)
    tracker = MeshTracker(frames, np.arange(FRAMES) / FPS, CAMERA, MESH, SHAPE)
    found = tracker.track()
    off = [
        np.inf if fit is None else abs(float(fit.pose.translation[2] - poses[i].translation[2]))
        for i, fit in enumerate(found)
    ]
    return float(np.median(off))


def test_a_blurred_body_has_the_proportions_of_its_mesh() -> None:
    """Lines along the motion see a longer body: by 2.8 px where the path is not known, which would be doubted."""
    frames, poses, _ = filmed(0.6)
    tracked = np.ones(FRAMES, dtype=bool)
    with_path, without = (proportions(poses, tracked, frames, CAMERA, MESH, blur) for blur in (known(0.6), None))
    assert with_path is not None
    assert without is not None
    assert with_path.off_px < OTHER_PX < without.off_px
    assert np.log(with_path.ratio) < 0.6 * np.log(without.ratio)

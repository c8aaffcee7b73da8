"""A body rests where its image stays, whatever its fits say, and not at the top of a bounce."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import trimesh

from tests.drawn_clip import images
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.silhouette_fit import Fit
from vid2phys.tracking.still_images import _is_same, _is_still, still_frames
from vid2phys.types import Array, Camera, Mesh

CAMERA = Camera(
    np.array([[400.0, 0.0, 120.0], [0.0, 400.0, 80.0], [0.0, 0.0, 1.0]]), 240, 160, camera_to_world=np.eye(4)
)
MADE = trimesh.creation.box((0.06, 0.05, 0.04))
MESH = Mesh(np.asarray(MADE.vertices), np.asarray(MADE.faces), np.zeros(len(MADE.faces), np.int64), name="box")
TURNED = matrix_from_rotvec(np.array([0.5, 0.3, 0.2]))
COUNT = 48
TIMES_S = np.arange(COUNT) / 60.0


def filmed(places_m: Array) -> tuple[FrameStore, dict[int, Fit]]:
    """Return images of a box at places [48, 3] m in the axes of the camera, and its true fits."""
    poses = [Pose(TURNED, place) for place in places_m]
    drawn = images((pose.apply(MESH.vertices) for pose in poses), MESH.faces, np.array([0.5, 0.4, 0.3]), CAMERA)
    store = FrameStore(ArrayFrames(np.stack(drawn)), CAMERA.width, CAMERA.height)
    return store, {i: Fit(pose, 100.0, 0.9, None) for i, pose in enumerate(poses)}


def found(places_m: Array, off_m: Array | float = 0.0) -> list[int]:
    """Return the frames at rest. off_m: [48, 3] errors of the fits."""
    frames, fits = filmed(places_m)
    errors = np.broadcast_to(off_m, (COUNT, 3))
    wrong = {i: Fit(Pose(TURNED, fit.pose.translation + errors[i]), 100.0, 0.9, None) for i, fit in fits.items()}
    return sorted(still_frames(frames, TIMES_S, CAMERA, MESH, wrong))


def slid(stop: int, step_m: float = 0.004) -> Array:
    """A slide that ends in a frame."""
    moved = step_m * np.minimum(np.arange(COUNT) - stop, 0)
    return np.array([0.0, 0.0, 0.8]) + moved[:, None] * [1.0, 0.0, 0.0]


def test_a_body_rests_from_where_its_image_stays() -> None:
    rest = found(slid(20))
    assert rest == list(range(rest[0], COUNT))
    assert 24 <= rest[0] <= 26, "all frames of a tenth of a second before show the body there"


def test_fits_that_waver_do_not_count() -> None:
    """By 6 mm, which is 3 px."""
    errors = np.random.default_rng(0).normal(0.0, 1.0, (COUNT, 3)).clip(-1.5, 1.5) * [0.002, 0.002, 0.01]
    assert found(slid(20), errors) == found(slid(20))


def test_fits_that_move_across_a_place_that_stays_are_no_rest() -> None:
    moving = 0.01 * np.arange(COUNT)[:, None] * [1.0, 0.0, 0.0]
    assert found(slid(0), moving) == []


@pytest.mark.parametrize("top", [20, 30])
def test_the_top_of_a_bounce_is_no_rest(top: int) -> None:
    seconds = TIMES_S - TIMES_S[top]
    places = np.array([0.0, 0.0, 0.8]) + 0.5 * 9.81 * np.minimum(seconds**2, 0.006)[:, None] * [0.0, 1.0, 0.0]
    assert not set(found(places)) & set(range(top - 6, top + 7))


def test_a_slow_slide_is_no_rest() -> None:
    """Half a pixel a frame."""
    assert found(slid(COUNT, 0.001)) == []


def test_a_body_beside_the_image_and_a_short_clip_have_none() -> None:
    assert found(slid(0) + np.array([0.4, 0.0, 0.0])) == []
    frames, fits = filmed(slid(0))
    few = {i: fits[i] for i in range(4)}
    assert still_frames(frames, TIMES_S[:4], CAMERA, MESH, few) == frozenset()


def is_still(count: int, fps: float, i: int, changed: set[int], fits: dict[int, Fit] | None = None) -> bool:
    """Return whether a box of 30 px rests in frame i; in some frames all pixels about it differ."""
    images = np.full((count, 160, 240, 3), 100, np.uint8)
    for k in changed:
        images[k, 60:100, 100:140] = 160
    given: Any = images
    pose = Pose(np.eye(3), np.array([0.0, 0.0, 0.8]))
    known = {k: Fit(pose, 1.0, 0.9, None) for k in range(count)} | (fits or {})
    return _is_still(i, given, np.arange(count) / fps, CAMERA, MESH, known)


@pytest.mark.parametrize(("changed", "rests"), [(4, True), (5, False), (8, True), (10, False), (15, False), (16, True)])
def test_a_body_rests_if_its_image_is_the_same_a_tenth_of_a_second_before_and_after(changed: int, rests: bool) -> None:
    """Frame 10 at 50 frames a second: frames 5 and 15 are the last ones within 0.11 s."""
    assert is_still(21, 50.0, 10, {changed}) is rests


@pytest.mark.parametrize(
    ("count", "fps", "i", "rests"),
    [
        (60, 30.0, 20, True),  # seven frames
        (60, 19.0, 20, True),  # five
        (60, 15.0, 20, False),  # three
        (60, 50.0, 0, True),  # six from the start of a clip, over a tenth of a second
        (60, 50.0, 59, True),
        (12, 200.0, 6, False),  # twelve, but 0.055 s
        (18, 200.0, 6, True),  # 0.085 s
    ],
)
def test_a_rest_has_five_frames_over_a_twelfth_of_a_second(count: int, fps: float, i: int, rests: bool) -> None:
    assert is_still(count, fps, i, set()) is rests


@pytest.mark.parametrize(("x_m", "rests"), [(0.011, True), (0.014, False)])
@pytest.mark.parametrize("axis", [0, 1])
def test_fits_at_rest_waver_by_a_fifth_of_the_body(axis: int, x_m: float, rests: bool) -> None:
    """The box is 0.06 m wide, and a little nearer in front; a frame without a fit does not count."""
    moved = Fit(Pose(np.eye(3), np.array([0.0, 0.0, 0.8]) + x_m * np.eye(3)[axis]), 1.0, 0.9, None)
    assert is_still(21, 50.0, 10, set(), {7: moved}) is rests
    assert is_still(21, 50.0, 10, set(), {4: moved}), "too long before"


def test_images_are_the_same_to_twice_their_noise() -> None:
    """All pixels differ by a level of noise; those about the body may differ by twice that, and 0.8 levels more."""
    about, one = (slice(10, 20), slice(30, 40)), np.full((100, 100, 3), 100, np.uint8)
    for noise, change, same in ((1, 2, True), (1, 3, False), (0, 0, True), (0, 1, False), (4, 8, True), (4, 9, False)):
        for sign in (1, -1):
            other = (one.astype(int) + sign * noise).astype(np.uint8)
            other[about] = 100 + sign * change
            assert _is_same(one, other, about) is same, (noise, change)
    cut = one.copy()
    cut[:50] = 255  # a lamp goes on: pixels count as noise with 8 levels at most
    cut[about] = 110
    assert not _is_same(one, cut, about)

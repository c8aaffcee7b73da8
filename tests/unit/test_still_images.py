"""A body rests where its image stays, whatever its fits say, and not at the top of a bounce."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from tests.drawn_clip import images
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.silhouette_fit import Fit
from vid2phys.tracking.still_images import still_frames
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

"""What a clip shows of a body: size, blur of moving edges, and hidden parts, of squares that are drawn."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from vid2phys.geometry import Pose
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.visibility import Visibility, visibility
from vid2phys.types import Camera, Mesh

WIDTH, HEIGHT, FOCAL, DISTANCE_M, SIDE_M, STEP_PX = 320, 120, 400.0, 2.0, 0.2, 12.0
SIDE_PX = FOCAL * SIDE_M / DISTANCE_M
COUNT = 20


def plate() -> Mesh:
    half = 0.5 * SIDE_M
    corners = np.array([[-half, -half, 0.0], [half, -half, 0.0], [half, half, 0.0], [-half, half, 0.0]])
    return Mesh(corners, np.array([[0, 1, 2], [0, 2, 3]]), np.zeros(2, dtype=np.int64))


def seen(blur_px: float = 0.0, hidden: float = 0.0, step_px: float = STEP_PX) -> Visibility | None:
    """Measure a bright square that moves to the right before a grey wall; bars of the wall's colour hide a share."""
    rng = np.random.default_rng(2)
    wall = cv2.GaussianBlur(rng.uniform(60, 120, (HEIGHT, WIDTH)), (0, 0), 3.0)
    columns, rows = np.arange(WIDTH), np.arange(HEIGHT)
    images, places = [], 45.0 + step_px * np.arange(COUNT)
    bars = (columns / (0.5 * SIDE_PX)) % 1.0 < hidden
    for x in places:
        shares = np.linspace(-0.5, 0.5, 65) if blur_px else np.zeros(1)
        across = np.mean([np.clip(0.5 * SIDE_PX - abs(columns - x - blur_px * s) + 0.5, 0, 1) for s in shares], axis=0)
        cover = np.clip(0.5 * SIDE_PX - abs(rows - 60.0) + 0.5, 0, 1)[:, None] * (across * ~bars)
        images.append((wall * (1.0 - cover) + 220.0 * cover)[..., None].repeat(3, axis=-1).astype(np.uint8))
    camera = Camera(np.array([[FOCAL, 0.0, 160.0], [0.0, FOCAL, 60.0], [0.0, 0.0, 1.0]]), WIDTH, HEIGHT)
    middle = np.stack([(places - 160.0) / FOCAL * DISTANCE_M, 0.0 * places, 0.0 * places + DISTANCE_M], axis=1)
    poses = Pose(np.broadcast_to(np.eye(3), (COUNT, 3, 3)), middle)
    return visibility(
        poses, np.ones(COUNT, dtype=bool), FrameStore(ArrayFrames(np.stack(images)), WIDTH, HEIGHT), camera, plate()
    )


def test_a_sharp_body_has_narrow_edges_and_is_whole() -> None:
    found = seen()
    assert found is not None
    assert found.size_px == pytest.approx(SIDE_PX, abs=1.5)
    assert found.path_px == pytest.approx(STEP_PX, abs=0.1)
    assert found.blur_px < 3.0
    assert found.hidden < 0.02


@pytest.mark.parametrize("blur_px", [6.0, 11.0])
def test_blur_is_the_path_in_one_exposure(blur_px: float) -> None:
    found = seen(blur_px)
    assert found is not None
    assert found.blur_px == pytest.approx(blur_px, rel=0.2)


def test_bars_hide_their_share() -> None:
    found = seen(hidden=0.3)
    assert found is not None
    assert found.hidden == pytest.approx(0.3, abs=0.1)


@pytest.mark.parametrize(("step_px", "rests"), [(1.0, True), (9.0, False)])
def test_of_a_body_that_rests_the_background_is_not_known(step_px: float, rests: bool) -> None:
    """The body covers a pixel in 20 frames or in four or five, of which a third are too many."""
    found = seen(step_px=step_px)
    assert found is not None
    assert found.path_px == pytest.approx(step_px, abs=0.1)
    assert (np.isnan(found.hidden), np.isnan(found.blur_px)) == (rests, rests)


def test_nothing_is_measured_without_three_tracked_frames() -> None:
    nowhere = Pose(np.full((4, 3, 3), np.nan), np.full((4, 3), np.nan))
    frames = FrameStore(ArrayFrames(np.zeros((4, HEIGHT, WIDTH, 3), np.uint8)), WIDTH, HEIGHT)
    camera = Camera(np.eye(3), WIDTH, HEIGHT)
    assert visibility(nowhere, np.zeros(4, dtype=bool), frames, camera, plate()) is None

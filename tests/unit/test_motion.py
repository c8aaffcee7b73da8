"""What moves, what stands still, and why that matters for telling the object from things like it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.painted import CAMERA, POINTS, RADIUS_M, PaintedModel, Scene, make_scene, paint
from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.tracking.background import Background
from vid2phys.tracking.detectors.search import LastSeen, ObjectDetector
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.tracker import track
from vid2phys.types import Array, Clip

CALIBRATION = Calibration(point_scale=0.3, point_floor_px=0.4, min_quality=0.2)
DECOY = np.array([0.45, 0.25, 2.0])


def _path(count: int) -> Array:
    t = np.arange(count) / 30.0
    return np.array([-0.4, -0.1, 1.9]) + np.stack([0.6 * t, 0.1 * np.sin(4 * t), 0.2 * np.sin(2 * t)], axis=-1)


def _with_decoy(scene: Scene) -> Clip:
    """The same clip with a second, equal body that hangs still in every frame."""
    rng = np.random.default_rng(5)
    still = paint(rng, scene.rotation[0], DECOY)
    empty = paint(np.random.default_rng(5), None, DECOY)
    mask = np.abs(still.astype(int) - empty).max(axis=-1) > 25
    images = []
    for frame in scene.clip.frames:
        image = frame.copy()
        image[mask] = still[mask]
        images.append(image)
    return replace(scene.clip, frames=ArrayFrames(np.stack(images)))


@pytest.mark.parametrize("height", [480, 960])
def test_a_moving_body_changes_its_place_and_nothing_else(height: int) -> None:
    scene = make_scene(_path(20))
    camera, factor = CAMERA, height // 480
    images = [np.repeat(np.repeat(f, factor, axis=0), factor, axis=1) for f in scene.clip.frames]
    if factor == 2:
        K = CAMERA.K * np.array([[2.0, 1.0, 2.0], [1.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
        K[:2, 2] += 0.5
        camera = replace(CAMERA, K=K, width=1280, height=960)
    background = Background.of(FrameStore(ArrayFrames(np.stack(images)), camera.width, camera.height))
    assert background.shrink == factor
    place = scene.translation[3]
    assert background.moving(images[3], camera, place, RADIUS_M) > 0.2
    assert background.moving(images[3], camera, place + np.array([0.3, 0.1, 0.0]), RADIUS_M) == 0.0
    center, width = background.proposals(images[3])
    truth = bearings_to_pixels(camera, (POINTS.mean(axis=0) + place)[:2] / place[2])
    widest = int(np.argmax(width * (np.linalg.norm(center - truth, axis=1) < 12.0 * factor)))
    assert np.linalg.norm(center[widest] - truth) < 12.0 * factor
    assert 35.0 * factor < width[widest] < 70.0 * factor


def test_places_outside_the_frame_do_not_move() -> None:
    scene = make_scene(_path(4))
    frames = FrameStore(scene.clip.frames, 640, 480)
    background = Background.of(frames)
    for place in ([5.0, 0.0, 2.0], [0.0, 0.0, -1.0], [0.7, 0.0, 1.9]):
        assert background.moving(frames[0], CAMERA, np.array(place), RADIUS_M) == 0.0


def test_of_two_equal_bodies_the_moving_one_is_tracked() -> None:
    scene = make_scene(_path(14))
    result = track(_with_decoy(scene), CAMERA, PaintedModel(), RADIUS_M, calibration=CALIBRATION)
    assert result.tracked.all()
    assert np.linalg.norm(result.poses.translation - scene.translation, axis=-1).max() < 0.2


def test_a_still_thing_is_not_taken_for_an_object_that_left() -> None:
    present = np.ones(20, dtype=bool)
    present[9:14] = False
    scene = make_scene(_path(20), present)
    strict = replace(CALIBRATION, still_quality=1.1)
    result = track(_with_decoy(scene), CAMERA, PaintedModel(), RADIUS_M, calibration=strict)
    np.testing.assert_array_equal(result.tracked, present)


def test_a_camera_that_moves_has_no_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing counts as moving, so that a detection needs the quality that it needs where nothing moves."""
    scene = make_scene(_path(14))
    monkeypatch.setattr(Background, "of", lambda *_: pytest.fail("a background of a camera that moves"))
    camera = replace(CAMERA, camera_to_world=np.repeat(np.asarray(CAMERA.camera_to_world)[None], 14, axis=0))
    easy = replace(CALIBRATION, still_quality=0.3)
    result = track(scene.clip, camera, PaintedModel(), RADIUS_M, calibration=easy, tilt_std_rad=0.5)
    assert result.tracked.all()
    np.testing.assert_allclose(result.poses.translation, scene.translation, rtol=0.02, atol=0.02)
    with pytest.raises(InputError, match="found in none"):
        track(scene.clip, camera, PaintedModel(), RADIUS_M, calibration=replace(easy, still_quality=1.1))


def test_a_thing_that_stood_there_already_is_not_the_object_found_again() -> None:
    """However sure the network is of it: at most places a look-alike would pass for the object that left."""
    present = np.ones(20, dtype=bool)
    present[9:14] = False
    scene = make_scene(_path(20), present)
    clip, frames = _with_decoy(scene), FrameStore(_with_decoy(scene).frames, 640, 480)
    easy = replace(CALIBRATION, still_quality=0.3)
    watch = ObjectDetector(PaintedModel(), CAMERA, Background.of(frames), RADIUS_M, easy)
    alone = watch.search(frames[10])
    assert alone is not None
    assert np.linalg.norm(alone.translation - DECOY) < 0.2
    last = LastSeen(watch.background.at(frames[8]), scene.translation[8])
    assert watch.search(frames[10], last) is None
    result = track(clip, CAMERA, PaintedModel(), RADIUS_M, calibration=easy)
    np.testing.assert_array_equal(result.tracked, present)


def test_frames_that_do_not_fit_in_memory_are_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = make_scene(_path(30))
    monkeypatch.setattr("vid2phys.tracking.frame_store._IN_MEMORY_BYTES", 1e6)
    frames = FrameStore(scene.clip.frames, 640, 480)
    for index in (0, 29, 3, 25):
        np.testing.assert_array_equal(frames[index], next(scene.clip.frames.at([index])))

"""Tracking with a painted body: labels, branches, what is lost and found again."""

from __future__ import annotations

import numpy as np
import pytest

from tests.painted import CAMERA, POINTS, RADIUS_M, PaintedModel, Scene, make_scene
from vid2phys.engine import systems
from vid2phys.engine.pose_geometry import project_points
from vid2phys.engine.virtual_camera import in_frame
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.risp.renders.viewpoints import tilt_spread
from vid2phys.tracking.first_pass import smooth_path
from vid2phys.tracking.track import Track
from vid2phys.tracking.tracker import track
from vid2phys.types import Array

MODEL_ERRORS = Calibration(point_scale=0.3, point_floor_px=0.4, min_quality=0.2)


def _wander(count: int, start: tuple[float, float, float] = (-0.3, 0.1, 1.9), speed: float = 0.6) -> Array:
    t = np.arange(count) / 30.0
    motion = np.stack([speed * t, 0.15 * np.sin(4 * t), 0.3 * np.sin(2 * t)], axis=-1)
    return np.asarray(start) + motion


def _rotation_error(track: Track, scene: Scene) -> Array:
    trace = np.einsum("tij,tij->t", track.poses.rotation, scene.rotation)
    return np.degrees(np.arccos(np.clip(0.5 * (trace - 1.0), -1.0, 1.0)))


def _assert_labels_are_true(result: Track, scene: Scene) -> None:
    truth = project_points(Pose(scene.rotation, scene.translation), POINTS)
    error = np.linalg.norm(result.observation.bearings - truth, axis=-1) * CAMERA.K[0, 0]
    std = np.sqrt(np.linalg.det(result.observation.covariance)) ** 0.5 * CAMERA.K[0, 0]
    sure = result.observation.visible & (std < 3.0)  # px; not the discs that hide behind others
    assert sure.sum() > 0.75 * result.observation.visible.sum()
    assert np.median(error[sure]) < 0.3
    assert np.percentile(error[sure], 99) < 2.0


@pytest.mark.parametrize("locates", [True, False], ids=["coarse network", "motion alone"])
def test_every_frame_is_tracked_in_the_true_branch(locates: bool) -> None:
    scene = make_scene(_wander(20))
    result = track(scene.clip, CAMERA, PaintedModel(locates=locates), RADIUS_M, calibration=MODEL_ERRORS)
    assert result.tracked.all()
    error = _rotation_error(result, scene)
    assert np.median(error) < 2.0
    assert np.max(error) < 15.0
    assert np.sort(result.branch_log_likelihood)[-2] < result.branch_log_likelihood[0] - 5.0
    assert np.argmax(result.branch_log_likelihood) == 0
    assert set(result.element) == {0, 1, 2, 3}
    assert result.observation.visible.mean() > 0.95
    depth = np.linalg.norm(result.poses.translation, axis=-1) / np.linalg.norm(scene.translation, axis=-1)
    assert abs(np.median(depth) - 1.0) < 0.01
    _assert_labels_are_true(result, scene)


def test_a_lost_object_is_found_again_elsewhere() -> None:
    path = _wander(28)
    path[16:] += np.array([-0.3, -0.2, 0.1])
    present = np.ones(28, dtype=bool)
    present[10:16] = False
    scene = make_scene(path, present)
    result = track(scene.clip, CAMERA, PaintedModel(), RADIUS_M, calibration=MODEL_ERRORS)
    np.testing.assert_array_equal(result.tracked, present)
    np.testing.assert_array_equal(result.lost_frames, np.arange(10, 16))
    assert result.observation.frames_lost == 6
    assert not result.observation.visible[10:16].any()
    assert np.isnan(result.poses.rotation[10:16]).all()
    assert np.isfinite(result.observation.bearings).all()
    assert np.median(_rotation_error(result, scene)[present]) < 2.0
    _assert_labels_are_true(result, scene)


def test_frames_torn_between_labels_are_read_where_their_neighbours_say() -> None:
    scene = make_scene(_wander(20))
    model = PaintedModel(torn_rad=(-0.6, -0.35))
    torn = _torn_frames(scene, model.torn_rad)
    assert 3 <= torn.sum() <= 10, "the scene should pass through the angles"
    assert not torn[[0, -1]].any()
    result = track(scene.clip, CAMERA, model, RADIUS_M, calibration=MODEL_ERRORS)
    assert result.tracked.all()
    assert _rotation_error(result, scene)[torn].max() < 15.0
    _assert_labels_are_true(result, scene)


def _torn_frames(scene: Scene, torn_rad: tuple[float, float]) -> Array:
    """Frames in which point 0 lies between the angles in the view, which gravity keeps upright."""
    first = (scene.rotation @ POINTS[0])[:, :2]
    angle = np.arctan2(first[:, 1], first[:, 0])
    return (angle > torn_rad[0]) & (angle < torn_rad[1])


def test_an_object_that_appears_late_is_tracked_from_there() -> None:
    present = np.arange(16) >= 6
    scene = make_scene(_wander(16), present)
    result = track(scene.clip, CAMERA, PaintedModel(), RADIUS_M, calibration=MODEL_ERRORS)
    np.testing.assert_array_equal(result.tracked, present)


def test_points_outside_the_frame_are_invisible() -> None:
    scene = make_scene(_wander(16, start=(0.53, 0.0, 1.9)))
    result = track(scene.clip, CAMERA, PaintedModel(), RADIUS_M, calibration=MODEL_ERRORS)
    truth = in_frame(CAMERA, project_points(Pose(scene.rotation, scene.translation), POINTS))
    assert 0.05 < (~truth[:, :4]).mean() < 0.6, "the scene should cross the edge"
    assert result.tracked[truth.all(axis=1)].all()
    pixels = result.observation.bearings[result.observation.visible]
    assert in_frame(CAMERA, pixels).all()
    assert (result.observation.visible & ~truth).sum() <= 2


def test_shared_modes_and_covariance_follow_the_calibration() -> None:
    scene = make_scene(_wander(12))
    result = track(scene.clip, CAMERA, PaintedModel(), RADIUS_M, calibration=MODEL_ERRORS)
    observation = result.observation
    assert observation.shared_basis.shape == (12, 8, 2, 6)
    np.testing.assert_allclose(observation.correlation_time_s, MODEL_ERRORS.correlation_time_s)
    focal_view = 96 / 3 / (RADIUS_M / np.linalg.norm(scene.translation, axis=-1))
    sigma_px = np.sqrt(observation.covariance[..., 0, 0]) * focal_view[:, None]
    np.testing.assert_allclose(sigma_px, 0.5, rtol=0.15)  # sqrt(0.3^2 * 1 + 0.4^2)
    depth_mode = np.abs(observation.shared_basis[..., 5]).max()
    assert 0.0 < depth_mode < 0.02


def test_no_object_is_an_error_that_says_what_to_do() -> None:
    scene = make_scene(_wander(6), np.zeros(6, dtype=bool))
    with pytest.raises(InputError, match="found in none of the 6 frames"):
        track(scene.clip, CAMERA, PaintedModel(), RADIUS_M, calibration=MODEL_ERRORS)


def test_same_result_twice() -> None:
    scene = make_scene(_wander(8))
    first, second = (
        track(scene.clip, CAMERA, PaintedModel(), RADIUS_M, calibration=MODEL_ERRORS).observation for _ in range(2)
    )
    np.testing.assert_array_equal(first.bearings, second.bearings)


def test_smooth_path_fills_short_gaps_only() -> None:
    times = np.arange(40) / 30.0
    path = _wander(40)
    broken = path.copy()
    broken[10:13] = np.nan
    broken[20:38] = np.nan
    smooth = smooth_path(times, broken)
    assert np.linalg.norm(smooth[10:13] - path[10:13], axis=-1).max() < 0.02
    assert np.isnan(smooth[28:31]).all()


def test_tilt_spread_is_a_prior_only_for_upright_bodies() -> None:
    spread = tilt_spread(systems.get("quadrotor"))
    assert spread is not None
    assert np.radians(15.0) <= spread < np.radians(60.0)
    assert tilt_spread(systems.get("rigid_contact")) is None

"""The correction of a track to the times of its rows, beside closed forms of moving points and of stencils."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.moving_box import CAMERA, box_mesh
from vid2phys.engine.observe import project, to_bearings
from vid2phys.engine.pose_geometry import pose_modes, project_points
from vid2phys.engine.rolling_shutter import Twist, origin_delay, shown_points
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.measured import with_poses
from vid2phys.tracking.rolling_shutter import (
    _by_points,
    _moved,
    _rates,
    at_row_times,
    meshes_of_frames,
    row_times,
    twists,
)
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Observation

MESH = box_mesh()
ROLLING = replace(CAMERA, readout_s=0.02, readout_from="top")
LINEAR, ANGULAR = np.array([1.0, -1.5, 0.8]), np.array([2.0, -3.0, 1.0])


def flying(times_s: Array) -> Pose:
    """Poses camera_from_body of a body that moves and turns evenly."""
    rotation = matrix_from_rotvec(times_s[:, None] * ANGULAR) @ matrix_from_rotvec(np.array([0.4, -0.3, 0.2]))
    return Pose(rotation, np.array([0.05, 0.1, 1.4]) + times_s[:, None] * LINEAR)


def track_of(pose: Pose, times_s: Array, measured: bool = True) -> Track:
    """A track whose keypoints are those of its poses."""
    count, points = len(times_s), MESH.vertices
    basis = pose_modes(pose, points) * 0.01
    seen = Observation(
        times_s,
        project_points(pose, points),
        np.tile(1e-6 * np.eye(2), (count, len(points), 1, 1)),
        basis,
        np.full(6, 0.2),
        np.ones((count, len(points)), bool),
        points,
    )
    if measured:
        seen = with_poses(seen, np.arange(count), pose, np.tile(0.01 * np.eye(6), (count, 1, 1)), np.ones(6), "texture")
    track = Track.of_nothing(times_s, points, Calibration(), np.zeros(1))
    return replace(
        track, observation=seen, poses=replace(track.poses, pose=pose.copy()), tracked=np.ones(count, dtype=bool)
    )


def test_velocities_are_those_of_the_smoothest_parabola() -> None:
    """Exact for a parabola; beside a kink the parabola counts that lies on the frame's own side."""
    times = np.array([0.0, 0.1, 0.25, 0.3, 0.5, 0.6, 0.8])
    place = np.stack([3.0 * times, 1.0 - 2.0 * times + 4.0 * times**2, times**2], axis=1)
    exact = np.stack([3.0 + 0.0 * times, -2.0 + 8.0 * times, 2.0 * times], axis=1)
    np.testing.assert_allclose(_rates(np.diff(place, axis=0) / np.diff(times)[:, None], times), exact, atol=1e-12)
    kick = np.array([0.0, 30.0, 0.0])
    kinked = place + kick * np.maximum(times - 0.27, 0.0)[:, None]
    expected = exact + kick * (times > 0.27)[:, None]
    np.testing.assert_allclose(_rates(np.diff(kinked, axis=0) / np.diff(times)[:, None], times), expected, atol=1e-9)


def test_a_stencil_around_a_frame_may_be_twice_as_rough() -> None:
    times = np.arange(5.0)
    bend = np.array([1.0, 1.9, 4.0])  # of the three stencils of the middle frame, one before, around and after it
    between = np.cumsum(np.append(0.0, bend))[:, None] * [1.0, 0.0, 0.0]
    around = 0.5 * (between[1] + between[2])
    np.testing.assert_allclose(_rates(between, times)[2], around)
    rougher = np.cumsum([0.0, 1.0, 2.1, 4.0])[:, None] * [1.0, 0.0, 0.0]
    np.testing.assert_allclose(_rates(rougher, times)[2], rougher[1] + 1.0 * 0.5 * np.array([1.0, 0.0, 0.0]))


def test_twists_leave_out_lost_frames() -> None:
    times = np.arange(8) / 30.0
    pose = flying(times)
    pose.translation[3] = np.nan
    found = twists(pose, times)
    known = np.arange(8) != 3
    np.testing.assert_allclose(found.linear[known], np.tile(LINEAR, (7, 1)), atol=1e-9)
    np.testing.assert_allclose(found.angular[known], np.tile(ANGULAR, (7, 1)), atol=1e-6)
    assert not found.linear[3].any()


def test_a_moving_body_looks_as_the_tracked_one() -> None:
    """The pose whose points, each at the time of its row, lie where those of the tracked pose lie."""
    twist, truth = Twist(ANGULAR, LINEAR), flying(np.zeros(1))[0]
    target = to_bearings(shown_points(ROLLING, truth, twist, MESH.vertices))
    tracked = truth.copy()
    for _ in range(10):  # the static pose that looks like the moving body, by least squares
        points = tracked.apply(MESH.vertices)
        off = (target - to_bearings(points)).ravel()
        modes = pose_modes(tracked, MESH.vertices).reshape(-1, 6)
        tracked = tracked.retract(np.linalg.lstsq(modes, off, rcond=None)[0])
    before, found = (
        np.abs(truth.step_to(each)) for each in (tracked, _by_points(ROLLING, MESH, tracked, twist, tracked))
    )
    assert before[:3].max() > 5e-3
    assert found.max() < 0.02 * before.max()


def test_keypoints_and_poses_move_to_the_time_of_the_origins_row() -> None:
    times = np.arange(6) / 30.0
    pose = flying(times)
    pose.translation[4] = np.nan
    late = row_times(ROLLING, pose, times)
    np.testing.assert_allclose(late[:4] - times[:4], origin_delay(ROLLING, pose[:4]), atol=1e-12)
    assert late[4] == times[4]
    given = track_of(flying(times), times)
    found = _moved(ROLLING, given, pose, late)
    motion = twists(pose, late)
    np.testing.assert_array_equal(found.observation.times_s, late)
    for i in range(6):
        moved = given.observation.bearings[i].copy()
        if i != 4:
            still = project_points(pose[i], MESH.vertices)
            moved -= to_bearings(shown_points(ROLLING, pose[i], motion[i], MESH.vertices)) - still
        np.testing.assert_allclose(found.observation.bearings[i], moved, atol=1e-12)
    part = found.observation.configuration
    assert part is not None
    np.testing.assert_array_equal(part.pose.translation[:4], pose.translation[:4])
    np.testing.assert_array_equal(part.pose.translation[4], flying(times).translation[4])
    np.testing.assert_array_equal(found.poses.pose.translation, pose.translation)


@pytest.mark.parametrize("measured", [True, False])
def test_poses_of_textures_and_points_are_corrected_to_their_rows(measured: bool) -> None:
    """A body that a global shutter is taken to see, before a camera of another readout."""
    times = np.arange(9) / 30.0
    truth = flying(times)
    at_rows = row_times(ROLLING, truth, times)
    tracked = []
    for i in range(9):
        target = to_bearings(shown_points(ROLLING, truth[i], Twist(ANGULAR, LINEAR), MESH.vertices))
        pose = truth[i]
        for _ in range(10):
            modes = pose_modes(pose, MESH.vertices).reshape(-1, 6)
            off = (target - to_bearings(pose.apply(MESH.vertices))).ravel()
            pose = pose.retract(np.linalg.lstsq(modes, off, rcond=None)[0])
        tracked.append(pose)
    before = Pose.stack(tracked)
    found = at_row_times([], ROLLING, MESH, track_of(before, times, measured), times)
    wrong, left = (np.abs(truth.step_to(each)) for each in (before, found.poses.pose))
    assert wrong[:, :3].max() > 5e-3
    assert left.max() < 0.1 * wrong.max()
    np.testing.assert_allclose(found.observation.times_s, at_rows, atol=1e-4)


def test_meshes_are_those_that_frames_show() -> None:
    times = np.arange(5) / 30.0
    pose = flying(times)
    assert meshes_of_frames(replace(ROLLING, readout_s=0.0), MESH, pose, times)(2) is MESH
    shown = meshes_of_frames(ROLLING, MESH, pose, times)(2)
    expected = shown_points(ROLLING, pose[2], Twist(ANGULAR, LINEAR), MESH.vertices)
    np.testing.assert_allclose(pose[2].apply(shown.vertices), expected, atol=1e-9)
    assert np.abs(project(CAMERA, expected) - project(CAMERA, pose[2].apply(MESH.vertices))).max() > 0.3

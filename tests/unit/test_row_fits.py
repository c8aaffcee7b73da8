"""Fits of poses and readouts to rows beside closed forms: slopes, parabolas, marginal information, and rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.moving_box import CAMERA, box_mesh
from vid2phys.engine.observe import project
from vid2phys.engine.pose_geometry import pose_modes, project_points
from vid2phys.engine.rolling_shutter import Twist, origin_delay, shown_points
from vid2phys.error_clock import error_clock
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking import rolling_shutter as module
from vid2phys.tracking.measured import with_poses
from vid2phys.tracking.motion_blur import MotionBlur
from vid2phys.tracking.rolling_shutter import (
    MovingBody,
    _by_points,
    _moved,
    _rates,
    at_row_times,
    fit_readouts,
    meshes_of_frames,
    row_times,
    twists,
)
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera, Observation, Side

MESH = box_mesh()
ROLLING = replace(CAMERA, readout_s=0.02, readout_from="top")
WIDE = replace(ROLLING, K=np.array([[400.0, 0.0, 150.0], [0.0, 500.0, 130.0], [0.0, 0.0, 1.0]]))
POSE = Pose(matrix_from_rotvec(np.array([0.4, -0.3, 0.2])), np.array([0.1, 0.08, 1.4]))
TWIST = Twist(np.array([4.0, -6.0, 3.0]), np.array([1.2, 2.5, -0.4]))
STD = np.array([0.15, 0.15, 0.15, 0.02, 0.02, 0.06])  # of poses before edges are fitted again
MOST = 2.0 * np.array([0.06, 0.06, 0.06, 3e-3, 3e-3, 0.04])
TIMES_S = np.array([0.0, 0.03, 0.07, 0.1, 0.12, 0.17, 0.2])
IMAGES: Any = [f"frame {i}" for i in range(len(TIMES_S))]


def poses_at(times_s: Array, bend: float = 0.0) -> Pose:
    """Poses of a body that rotates evenly and moves with an acceleration along x."""
    rotation = matrix_from_rotvec(times_s[:, None] * np.array([2.0, -3.0, 1.0])) @ POSE.rotation
    way = times_s[:, None] * np.array([0.5, -0.6, 0.4]) + 0.5 * bend * times_s[:, None] ** 2 * np.array([1.0, 0.0, 0.0])
    return Pose(rotation, POSE.translation + way)


def track_of(pose: Pose, source: str = "silhouette", measured: NDArray[np.int64] | None = None) -> Track:
    """A track whose keypoints are those of its poses, with measured poses in some frames (default: all)."""
    count, points = len(TIMES_S), MESH.vertices
    seen = Observation(
        TIMES_S,
        project_points(pose, points),
        np.tile(1e-6 * np.eye(2), (count, len(points), 1, 1)),
        pose_modes(pose, points) * 0.01,
        np.full(6, 0.2),
        np.ones((count, len(points)), bool),
        points,
    )
    frames = np.arange(count) if measured is None else measured
    basis = np.tile(0.01 * np.eye(6), (len(frames), 1, 1))
    seen = with_poses(seen, frames, pose[frames], basis, np.ones(6), source)
    track = Track.of_nothing(TIMES_S, points, Calibration(), np.zeros(1))
    return replace(
        track, observation=seen, poses=replace(track.poses, pose=pose.copy()), tracked=np.ones(count, dtype=bool)
    )


@pytest.mark.parametrize(("side", "axis", "sign"), [("top", 1, 1.0), ("bottom", 1, -1.0), ("left", 0, 1.0)])
def test_slopes_by_the_readout_are_those_of_points_that_move_for_their_share_of_it(
    side: Side, axis: int, sign: float
) -> None:
    """A readout that is longer by h shows a point later by h times its distance from the origin's row, as a share."""
    camera = replace(WIDE, readout_from=side)
    body = MovingBody(MESH, camera, POSE, TWIST, True)
    points, normals = body.vertices(), np.random.default_rng(0).normal(size=(8, 2))
    np.testing.assert_array_equal(points, shown_points(camera, POSE, TWIST, MESH.vertices))
    focal = np.array([400.0, 500.0])
    found = body.slopes(points, normals * focal)[:, 6]
    size = (CAMERA.width, CAMERA.height)[axis]
    h = 1e-6
    for k, point in enumerate(points):
        rows = [float(project(camera, at)[axis]) for at in (point, POSE.translation)]
        later = sign * (rows[0] - rows[1]) / size
        speed = TWIST.linear + np.cross(TWIST.angular, point - POSE.translation)
        pixels = [project(camera, point + s * h * later * speed) for s in (1.0, -1.0)]
        assert found[k] == pytest.approx(normals[k] @ (pixels[0] - pixels[1]) / (2.0 * h), rel=1e-5, abs=1e-4)
    assert np.abs(found).max() > 10.0


def test_points_beyond_the_lens_do_not_depend_on_the_readout() -> None:
    lens = replace(ROLLING, distortion=np.array([-0.5, 0.0, 0.0, 0.0]))
    body = MovingBody(MESH, lens, POSE, TWIST, True)
    points = np.array([[0.1, 0.3, 1.5], [3.0, 0.3, 1.5]])
    assert np.isnan(project(lens, points)).any(axis=1).tolist() == [False, True]
    found = body.slopes(points, np.ones((2, 2)))[:, 6]
    assert found[0] != 0.0
    assert found[1] == 0.0


@pytest.mark.parametrize("fits_readout", [True, False])
def test_a_step_moves_the_pose_and_the_readout_where_it_is_fitted(fits_readout: bool) -> None:
    body = MovingBody(MESH, ROLLING, POSE, TWIST, fits_readout)
    step = np.array([0.02, -0.01, 0.03, 0.004, -0.003, 0.05, 0.004])[: 7 if fits_readout else 6]
    moved, taken = body.moved(step)
    np.testing.assert_array_equal(taken, step)
    expected = POSE.retract(step[:6])
    np.testing.assert_array_equal(moved.pose.rotation, expected.rotation)
    np.testing.assert_array_equal(moved.pose.translation, expected.translation)
    assert moved.camera.readout_s == pytest.approx(0.024 if fits_readout else 0.02)
    assert (moved.twist, moved.mesh, moved.fits_readout) == (TWIST, MESH, fits_readout)


def test_velocities_are_those_of_parabolas_through_three_places() -> None:
    """Of those before, around and after a frame the one that bends least; the one around may bend twice as much."""
    rng = np.random.default_rng(3)
    taken = list[int]()
    for count in (3, 4, 5, 60):
        times = np.cumsum(rng.uniform(0.5, 1.5, count))
        place = rng.normal(size=(count, 3)) * np.array([1.0, 2.0, 0.5])
        found = _rates(np.diff(place, axis=0) / np.diff(times)[:, None], times)
        for k in range(count):
            best, least = 0, np.inf
            for j in range(max(0, k - 2), min(k, count - 3) + 1):
                fit = np.polyfit(times[j : j + 3] - times[k], place[j : j + 3], 2)
                bend = float(np.linalg.norm(fit[0])) * (0.5 if j == k - 1 else 1.0)
                if bend < least:
                    best, least, velocity = j, bend, fit[1]
            taken.append(best - k)
            np.testing.assert_allclose(found[k], velocity, atol=1e-9)
    assert set(taken) == {-2, -1, 0}


def test_three_poses_give_a_motion_and_two_do_not() -> None:
    times = np.array([0.0, 0.1, 0.25, 0.3])
    pose = poses_at(times, bend=3.0)
    pose.translation[1] = np.nan
    found = twists(pose, times)
    exact = np.array([0.5, -0.6, 0.4]) + 3.0 * times[:, None] * np.array([1.0, 0.0, 0.0])
    np.testing.assert_allclose(found.linear[[0, 2, 3]], exact[[0, 2, 3]], atol=1e-9)
    np.testing.assert_allclose(found.angular[[0, 2, 3]], np.tile([2.0, -3.0, 1.0], (3, 1)), atol=1e-6)
    assert not found.linear[1].any()
    assert not found.angular[1].any()
    pose.translation[0] = np.nan
    none = twists(pose, times)
    assert none.linear.shape == none.angular.shape == (4, 3)
    assert not none.linear.any()
    assert not none.angular.any()


@pytest.mark.parametrize("readout_s", [0.02, -0.02])
def test_a_row_beside_the_image_is_exposed_as_the_last_one(readout_s: float) -> None:
    """The image ends 119 px below the middle of the camera's axis, and begins 121.5 px above."""
    camera = replace(ROLLING, readout_s=readout_s)
    rows = np.array([-30.0, -0.5, 59.5, 119.5, 200.0, 239.5, 300.0])
    places = np.stack([0.0 * rows, (rows - 121.0) / 420.0, 0.0 * rows + 1.0], axis=1)
    pose = Pose(np.tile(np.eye(3), (7, 1, 1)), 1.3 * places)
    shares = np.array([-0.5, -0.5, -0.25, 0.0, 80.5 / 240.0, 0.5, 0.5])
    np.testing.assert_allclose(row_times(camera, pose, TIMES_S), TIMES_S + readout_s * shares, atol=1e-12)


def test_meshes_are_those_of_twists_at_the_times_of_rows() -> None:
    pose = poses_at(TIMES_S, bend=5.0)
    shown = meshes_of_frames(ROLLING, MESH, pose, TIMES_S)
    for i in (0, 3, 6):
        linear = np.array([0.5 + 5.0 * TIMES_S[i], -0.6, 0.4])
        expected = shown_points(ROLLING, pose[i], Twist(np.array([2.0, -3.0, 1.0]), linear), MESH.vertices)
        np.testing.assert_allclose(pose[i].apply(shown(i).vertices), expected, atol=1e-8)


@dataclass
class StandIn:
    """Takes the place of `fit_edges`, and notes what it is asked."""

    answer: Callable[[int, MovingBody], Any]
    asked: list[tuple[int, MovingBody, Array, Array]] = field(default_factory=list)
    paths_px: set[tuple[float, float]] = field(default_factory=set)

    def __call__(
        self, frame: str, camera: Camera, solid: Any, body: MovingBody, prior: Array, most: Array, *, config: Any
    ) -> tuple[MovingBody, Array] | None:
        self.paths_px.add(config.path_px)
        assert camera is body.camera
        assert solid.mesh is MESH
        i = int(frame.split()[1])
        self.asked.append((i, replace(body, pose=body.pose.copy()), prior, most))
        found: tuple[MovingBody, Array] | None = self.answer(i, body)
        return found


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The stand-in of edges that are never found."""
    stand_in = StandIn(lambda i, body: None)
    monkeypatch.setattr(module, "fit_edges", stand_in)
    monkeypatch.setattr(module, "in_processes", map)
    return stand_in


def positive(seed: int) -> Array:
    """Information [7, 7] of edges about a pose and a readout."""
    root = np.random.default_rng(seed).normal(size=(9, 7)) * np.array([30.0, 30.0, 30.0, 90.0, 90.0, 60.0, 900.0])
    return np.asarray(root.T @ root)


STD_S = 3e-3


def test_the_readout_of_a_frame_is_that_without_its_prior(stand_in: StandIn) -> None:
    """The stand-in gives the most likely pose and readout beside the prior; without the readout's it is found again."""
    truth = np.array([0.01, -0.02, 0.01, 1e-3, -2e-3, 0.01, 2e-3])
    prior = np.diag(np.append(STD, STD_S) ** -2.0)
    free = np.diag(np.append(STD**-2.0, 0.0))

    def answer(i: int, body: MovingBody) -> tuple[MovingBody, Array]:
        edges = positive(i)
        step = np.linalg.solve(edges + prior, edges @ (truth * (i + 1.0)))
        return body.moved(np.asarray(step, dtype=np.float64))[0], 9.0 * edges

    stand_in.answer = answer
    found = fit_readouts(IMAGES, ROLLING, MESH, track_of(poses_at(TIMES_S)), STD_S)
    assert [asked[0] for asked in stand_in.asked] == list(range(7))
    for i in range(7):
        edges = positive(i)
        pulled, about_pose = edges @ (truth * (i + 1.0)), (edges + free)[:6, :6]
        assert found.change_s[i] == pytest.approx(np.linalg.solve(edges + free, pulled)[6], rel=1e-9)
        assert found.information[i] == pytest.approx(1.0 / np.linalg.inv(edges + free)[6, 6], rel=1e-9)
        now, longer = (np.linalg.solve(about_pose, pulled[:6] - by_s * edges[:6, 6]) for by_s in (0.0, 1.0))
        np.testing.assert_allclose(found.response[i], longer - now, rtol=1e-7)


def test_a_readout_is_fitted_from_the_tracked_pose_and_its_motion(stand_in: StandIn) -> None:
    pose = poses_at(TIMES_S, bend=4.0)
    fit_readouts(IMAGES, ROLLING, MESH, track_of(pose), STD_S)
    assert stand_in.paths_px == {(0.0, 0.0)}
    for i, body, prior, most in stand_in.asked:
        np.testing.assert_array_equal(body.pose.translation, pose.translation[i])
        np.testing.assert_allclose(body.twist.linear, [0.5 + 4.0 * TIMES_S[i], -0.6, 0.4], atol=1e-9)
        np.testing.assert_allclose(body.twist.angular, [2.0, -3.0, 1.0], atol=1e-6)
        assert body.fits_readout
        assert body.camera is ROLLING
        np.testing.assert_allclose(prior, np.diag([*(1.0 / STD**2), 1.0 / STD_S**2]))
        np.testing.assert_allclose(most, [*MOST, STD_S])


def test_edges_are_looked_for_along_the_path_of_a_blurred_body(stand_in: StandIn) -> None:
    blur = MotionBlur(np.arange(14.0).reshape(7, 2), 0.5)
    track = replace(track_of(poses_at(TIMES_S)), blur=blur)
    paths_px = {(2.0 * i, 2.0 * i + 1.0) for i in range(7)}
    fit_readouts(IMAGES, ROLLING, MESH, track, STD_S)
    assert stand_in.paths_px == paths_px
    stand_in.paths_px.clear()
    at_row_times(IMAGES, ROLLING, MESH, track, TIMES_S)
    assert stand_in.paths_px == paths_px


def test_the_fastest_frames_are_asked_in_their_order(stand_in: StandIn) -> None:
    """With an acceleration the last frames are the fastest; lost ones are not asked."""
    track = track_of(poses_at(TIMES_S, bend=40.0))
    fit_readouts(IMAGES, ROLLING, MESH, track, STD_S, most=3)
    assert [asked[0] for asked in stand_in.asked] == [4, 5, 6]
    stand_in.asked.clear()
    track.tracked[5] = False
    lost = replace(track, poses=replace(track.poses, pose=poses_at(TIMES_S, bend=40.0)))
    lost.poses.pose.translation[2] = np.nan
    found = fit_readouts(IMAGES, ROLLING, MESH, lost, STD_S)
    assert [asked[0] for asked in stand_in.asked] == [0, 1, 3, 4, 6]
    for values in (found.change_s, found.information, found.response):
        assert len(values) == 7
        assert not values.any(), "no edges were found"
    stand_in.asked.clear()
    still = track_of(Pose.stack([POSE] * 7))
    fit_readouts(IMAGES, ROLLING, MESH, still, STD_S)
    assert len(stand_in.asked) == 7, "frames without motion"


def test_edges_that_tell_nothing_of_the_readout_have_no_information(stand_in: StandIn) -> None:
    def answer(i: int, body: MovingBody) -> tuple[MovingBody, Array]:
        edges = positive(i)
        if i % 2:
            edges[6] = edges[:, 6] = 0.0
        return body.moved(np.full(7, 1e-3))[0], edges

    stand_in.answer = answer
    found = fit_readouts(IMAGES, ROLLING, MESH, track_of(poses_at(TIMES_S)), STD_S)
    assert (found.information > 0.0).tolist() == [True, False] * 3 + [True]
    assert not found.change_s[1::2].any()
    assert not found.response[1::2].any()
    assert (found.change_s[::2] > 1e-3).all()


def shifted(i: int, body: MovingBody) -> tuple[MovingBody, Array]:
    """A fit that moves a body by a step of its frame."""
    return body.moved(np.array([1e-3, 0.0, 0.0, 0.0, 1e-4, 0.0]) * (i + 1.0))[0], np.eye(6)


def test_edges_are_fitted_in_two_rounds_each_from_the_poses_before(stand_in: StandIn) -> None:
    """Frame 2 shows no edges; the motion of the second round is that of the poses and times after the first."""
    stand_in.answer = lambda i, body: None if i == 2 else shifted(i, body)
    start = poses_at(TIMES_S, bend=4.0)
    track, times = track_of(start), TIMES_S + 5.0
    found = at_row_times(IMAGES, ROLLING, MESH, track, times)
    assert [asked[0] for asked in stand_in.asked] == [*range(7), *range(7)]
    once, twice = start.copy(), start.copy()
    for i in (0, 1, 3, 4, 5, 6):
        step = np.array([1e-3, 0.0, 0.0, 0.0, 1e-4, 0.0]) * (i + 1.0)
        once[i] = start[i].retract(step)
        twice[i] = once[i].retract(step)
    for asked, pose in ((stand_in.asked[:7], start), (stand_in.asked[7:], once)):
        motion = twists(pose, times + origin_delay(ROLLING, pose))
        for i, body, prior, most in asked:
            np.testing.assert_array_equal(body.pose.translation, pose.translation[i])
            np.testing.assert_allclose(body.twist.linear, motion.linear[i], atol=1e-12)
            np.testing.assert_allclose(body.twist.angular, motion.angular[i], atol=1e-12)
            assert not body.fits_readout
            np.testing.assert_allclose(prior, np.diag(1.0 / STD**2))
            np.testing.assert_allclose(most, MOST)
    np.testing.assert_array_equal(found.poses.pose.translation, twice.translation)
    np.testing.assert_array_equal(found.poses.pose.rotation, twice.rotation)
    np.testing.assert_allclose(found.observation.times_s, times + origin_delay(ROLLING, twice))
    np.testing.assert_array_equal(track.poses.pose.translation, start.translation)


def test_poses_of_about_the_same_readout_save_a_round(stand_in: StandIn) -> None:
    stand_in.answer = shifted
    start, near = poses_at(TIMES_S), poses_at(TIMES_S, bend=0.3)
    found = at_row_times(IMAGES, ROLLING, MESH, track_of(start), TIMES_S, near)
    assert [asked[0] for asked in stand_in.asked] == list(range(7))
    for i, body, *_ in stand_in.asked:
        np.testing.assert_array_equal(body.pose.translation, near.translation[i])
        np.testing.assert_array_equal(found.poses.pose[i].translation, shifted(i, body)[0].pose.translation)
    np.testing.assert_array_equal(near.translation, poses_at(TIMES_S, bend=0.3).translation)


@pytest.mark.parametrize(("source", "asked"), [
    ("contour", [1, 2, 4, 5]),
    ("silhouette", [1, 2, 4, 5]),
    ("contour, silhouette", [1, 2, 4, 5]),
    ("texture", []),
    ("contour, texture", []),
])  # fmt: skip
def test_only_poses_that_edges_measured_are_fitted_to_them(source: str, asked: list[int], stand_in: StandIn) -> None:
    """Frame 6 is lost, and 0 and 3 have keypoints alone, which move with the twist of the second round."""
    stand_in.answer = lambda i, body: (replace(body, pose=poses_at(TIMES_S, bend=0.2)[i]), np.eye(6))
    start = poses_at(TIMES_S)
    track = track_of(start, source, np.array([1, 2, 4, 5]))
    track.observation.visible[6] = False
    found = at_row_times(IMAGES, ROLLING, MESH, track, TIMES_S)
    assert [each[0] for each in stand_in.asked] == [*asked, *asked]
    np.testing.assert_array_equal(found.poses.pose.translation[6], start.translation[6])
    by_edges = poses_at(TIMES_S, bend=0.2).translation
    for i in range(6):
        if i in asked:
            np.testing.assert_array_equal(found.poses.pose.translation[i], by_edges[i])
        else:
            looks = np.abs(found.poses.pose[i].step_to(start[i]))
            assert 1e-4 < looks.max() < 0.2, "moved to its row"


def test_poses_of_keypoints_are_corrected_twice_from_where_they_are(stand_in: StandIn) -> None:
    start = poses_at(TIMES_S)
    found = at_row_times(IMAGES, ROLLING, MESH, track_of(start, "texture"), TIMES_S)
    once = start.copy()
    motion = twists(start, row_times(ROLLING, start, TIMES_S))
    for i in range(7):
        once[i] = _by_points(ROLLING, MESH, start[i], motion[i], start[i])
    motion = twists(once, row_times(ROLLING, once, TIMES_S))
    for i in range(7):
        twice = _by_points(ROLLING, MESH, once[i], motion[i], start[i])
        np.testing.assert_allclose(found.poses.pose.translation[i], twice.translation, atol=1e-12)
        np.testing.assert_allclose(found.poses.pose.rotation[i], twice.rotation, atol=1e-12)
    assert not stand_in.asked


def test_a_body_at_rest_looks_as_it_is() -> None:
    rest = Twist(np.zeros(3), np.zeros(3))
    start = POSE.retract(np.array([0.02, -0.01, 0.03, 0.002, -0.003, 0.02]))
    found = _by_points(ROLLING, MESH, start, rest, POSE)
    np.testing.assert_allclose(found.translation, POSE.translation, atol=1e-9)
    np.testing.assert_allclose(found.rotation, POSE.rotation, atol=1e-9)


def test_a_fast_body_is_corrected_to_a_thousandth() -> None:
    """The pose that looks like the moving body, by least squares, leads back to the body's own one."""
    target = shown_points(ROLLING, POSE, TWIST, MESH.vertices)
    tracked = POSE
    for _ in range(10):
        off = target[:, :2] / target[:, 2:] - project_points(tracked, MESH.vertices)
        step = np.linalg.lstsq(pose_modes(tracked, MESH.vertices).reshape(-1, 6), off.ravel(), rcond=None)[0]
        tracked = tracked.retract(np.asarray(step, dtype=np.float64))
    before = np.abs(POSE.step_to(tracked)).max()
    assert before > 0.02
    assert np.abs(POSE.step_to(_by_points(ROLLING, MESH, tracked, TWIST, tracked))).max() < 1e-3 * before


def test_points_behind_the_camera_do_not_count() -> None:
    """The pose is that of the points before it."""
    behind = replace(MESH, vertices=np.concatenate([MESH.vertices, [[0.0, 0.0, -9.0]]]))
    start = POSE.retract(np.array([0.01, -0.01, 0.02, 0.002, -0.003, 0.01]))
    expected = _by_points(ROLLING, MESH, start, TWIST, POSE)
    assert (POSE.apply(behind.vertices)[:8, 2] > 0.0).all()
    assert POSE.apply(behind.vertices)[8, 2] < 0.0
    found = _by_points(ROLLING, behind, start, TWIST, POSE)
    np.testing.assert_allclose(found.translation, expected.translation, atol=1e-12)
    np.testing.assert_allclose(found.rotation, expected.rotation, atol=1e-12)


def test_a_corrected_track_has_its_own_clock_and_leaves_the_given_one_alone() -> None:
    """Frames 1 and 5 were not measured, and frame 2 is lost: only measured known ones have another pose."""
    before = poses_at(TIMES_S)
    track = track_of(before, "silhouette", np.array([0, 2, 3, 4, 6]))
    pose = poses_at(TIMES_S, bend=2.0)
    pose.rotation[:] = matrix_from_rotvec(np.array([0.01, 0.0, 0.0])) @ pose.rotation
    pose.translation[2] = np.nan
    late = row_times(ROLLING, pose, TIMES_S)
    bearings = track.observation.bearings.copy()
    found = _moved(ROLLING, track, pose, late)
    part, given = found.observation.configuration, track.observation.configuration
    assert part is not None
    assert given is not None
    for i in range(7):
        expected = pose if i in (0, 3, 4, 6) else given.pose
        np.testing.assert_array_equal(part.pose.translation[i], expected.translation[i])
        np.testing.assert_array_equal(part.pose.rotation[i], expected.rotation[i])
    np.testing.assert_array_equal(given.pose.translation[0], before.translation[0])
    np.testing.assert_array_equal(track.observation.bearings, bearings)
    motion = twists(pose, late)
    for i in (0, 1, 3, 4, 5, 6):
        shown = shown_points(ROLLING, pose[i], motion[i], MESH.vertices)
        moved = shown[:, :2] / shown[:, 2:] - project_points(pose[i], MESH.vertices)
        assert np.abs(moved).max() > 1e-5
        np.testing.assert_allclose(found.observation.bearings[i], bearings[i] - moved, atol=1e-12)
    np.testing.assert_array_equal(found.observation.bearings[2], bearings[2])
    np.testing.assert_allclose(found.observation.error_clock_s, error_clock(late, pose.rotation))
    no_part = replace(track, observation=replace(track.observation, configuration=None))
    assert _moved(ROLLING, no_part, pose, late).observation.configuration is None


def test_keypoints_behind_the_camera_stay_where_they_are() -> None:
    pose = poses_at(TIMES_S)
    track = track_of(pose)
    points = np.concatenate([MESH.vertices[:7], [[0.0, 0.0, -9.0]]])
    assert (pose.apply(points)[:, 7, 2] < 0.0).all()
    track = replace(track, observation=replace(track.observation, points_body=points))
    found = _moved(ROLLING, track, pose, TIMES_S).observation.bearings
    np.testing.assert_array_equal(found[:, 7], track.observation.bearings[:, 7])
    assert np.isfinite(found).all()
    assert np.abs(found - track.observation.bearings)[:, :7].max() > 1e-4

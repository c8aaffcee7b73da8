"""Rolling shutter: times of rows, bodies as frames show them, corrected tracks, camera files, fitted readouts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq

from benchmarks.rolling_shutter_clips import Throw, images, simulated
from tests.moving_box import CAMERA, box_mesh
from vid2phys.commands.film import states_at
from vid2phys.commands.identify import readout_fit
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.inputs import Filmed
from vid2phys.commands.identify.readout import with_readout, without_readout
from vid2phys.commands.identify.readout_fit import apparent_readout, fitted_readout, m_estimate
from vid2phys.engine.observe import project, to_bearings
from vid2phys.engine.pose_geometry import project_points
from vid2phys.engine.rolling_shutter import Twist, origin_delay, row_delay, shown_mesh, shown_points
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import Pose, invert_transform, look_at, make_transform, matrix_from_quat, matrix_from_rotvec
from vid2phys.io.array_clip import array_clip
from vid2phys.io.camera import load_camera, save_camera
from vid2phys.tracking.cues.contour import fit_contour
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.measured import with_poses
from vid2phys.tracking.rolling_shutter import MovingBody, at_row_times, row_times, twists
from vid2phys.tracking.track import Track
from vid2phys.types import Camera, Clip, Mesh

MESH = box_mesh()
POSE = Pose(matrix_from_rotvec(np.array([0.4, -0.3, 0.2])), np.array([0.05, 0.03, 1.4]))
TWIST = Twist(np.array([4.0, -6.0, 3.0]), np.array([1.2, 2.5, -0.4]))


def rolling(readout_s: float = 0.02, side: str = "top") -> Camera:
    return replace(CAMERA, readout_s=readout_s, readout_from=side)


def at(pose: Pose, twist: Twist, after_s: float) -> Pose:
    """Return a moving body's pose some time later."""
    return Pose(matrix_from_rotvec(twist.angular * after_s) @ pose.rotation, pose.translation + twist.linear * after_s)


@pytest.mark.parametrize(("side", "axis", "sign"), [("top", 1, 1), ("bottom", 1, -1), ("left", 0, 1), ("right", 0, -1)])
def test_the_first_side_is_exposed_half_a_readout_before_the_middle(side: str, axis: int, sign: int) -> None:
    size = np.array([CAMERA.width, CAMERA.height], dtype=float)
    first, last = 0.5 * size - 0.5, 0.5 * size - 0.5
    first[axis], last[axis] = -0.5, size[axis] - 0.5
    delay = row_delay(rolling(0.02, side), np.stack([first, last, 0.5 * size - 0.5]))
    np.testing.assert_allclose(delay, [-0.01 * sign, 0.01 * sign, 0.0], atol=1e-12)


@pytest.mark.parametrize("side", ["top", "left"])
def test_each_point_is_shown_at_the_time_of_its_own_row(side: str) -> None:
    """A root finder solves for the time at which a row passes over each point."""
    camera = rolling(0.02, side)
    shown = shown_points(camera, POSE, TWIST, MESH.vertices)
    start = float(origin_delay(camera, POSE))
    for vertex, found in zip(MESH.vertices, shown, strict=True):

        def late(after_s: float, vertex: NDArray[np.float64] = vertex) -> float:
            pixel = project(camera, at(POSE, TWIST, after_s).apply(vertex[None]))
            return float(row_delay(camera, pixel)[0]) - start - after_s

        after_s = brentq(late, -0.02, 0.02, xtol=1e-12)
        np.testing.assert_allclose(found, at(POSE, TWIST, after_s).apply(vertex[None])[0], atol=2e-5)


@pytest.mark.parametrize("side", ["top", "right"])
def test_slopes_by_the_readout_are_those_of_differences(side: str) -> None:
    """Of slow motion, since the time of a point's own row is taken as known."""
    slow, small = Twist(0.05 * TWIST.angular, 0.05 * TWIST.linear), 1e-4
    body = MovingBody(MESH, rolling(0.02, side), POSE, slow, True)
    points, rng = body.vertices(), np.random.default_rng(0)
    normals = rng.normal(size=(len(points), 2))
    found = body.slopes(points, CAMERA.K[0, 0] * normals)
    assert found.shape == (len(points), 7)
    shown = [body.moved(np.append(np.zeros(6), sign * small))[0].vertices() for sign in (1.0, -1.0)]
    pixels = [project(CAMERA, each) for each in shown]
    expected = ((pixels[0] - pixels[1]) * normals).sum(axis=1) / (2.0 * small)
    np.testing.assert_allclose(found[:, 6], expected, rtol=0.02, atol=0.02 * np.abs(expected).max())
    fixed = replace(body, fits_readout=False)
    np.testing.assert_array_equal(fixed.slopes(points, CAMERA.K[0, 0] * normals), found[:, :6])
    assert fixed.moved(np.full(6, 0.1))[0].camera.readout_s == 0.02


def test_a_global_shutter_shows_the_mesh_as_it_is() -> None:
    shown = shown_mesh(rolling(0.0), POSE, TWIST, MESH)
    np.testing.assert_allclose(shown.vertices, MESH.vertices, atol=1e-12)


def test_twists_are_those_of_the_motion_on_both_sides_of_an_impact() -> None:
    times = np.arange(12) / 60.0
    impact_s, before, after = (
        times[5] + 0.4 / 60.0,
        TWIST,
        Twist(np.array([-3.0, 1.0, 5.0]), np.array([0.4, -1.0, 0.1])),
    )
    hit = at(POSE, before, impact_s)
    poses = [at(POSE, before, t) if t < impact_s else at(hit, after, t - impact_s) for t in times]
    found = twists(Pose.stack(poses), times)
    expected = [before if t < impact_s else after for t in times]
    np.testing.assert_allclose(found.linear, [twist.linear for twist in expected], atol=1e-9)
    np.testing.assert_allclose(found.angular, [twist.angular for twist in expected], atol=1e-6)


def test_twists_need_three_poses() -> None:
    pose = Pose.stack([POSE] * 4)
    pose.translation[:2] = np.nan
    assert not twists(pose, np.arange(4.0)).linear.any()


def test_lost_frames_keep_their_times() -> None:
    pose = Pose.stack([POSE, POSE])
    pose.translation[0] = np.nan
    times = row_times(rolling(), pose, np.array([1.0, 2.0]))
    assert times[0] == 1.0
    assert times[1] == pytest.approx(2.0 + float(origin_delay(rolling(), POSE)))


def test_times_of_rows_increase_where_a_body_crosses_the_image_in_a_frame() -> None:
    far = POSE.translation[2] * CAMERA.height / CAMERA.K[1, 1]
    pose = Pose.stack([replace(POSE, translation=np.array([0.0, y, 1.4])) for y in (far, -far)])
    assert (np.diff(row_times(rolling(0.0166), pose, np.arange(2) / 60.0)) > 0.0).all()


def test_a_readout_is_the_minimum_of_parabolas() -> None:
    rng = np.random.default_rng(0)
    bend = rng.uniform(1.0, 5.0, 400) * 1e6
    slope = -bend * (2e-3 + rng.normal(size=400) / np.sqrt(bend))
    change, std = m_estimate(slope, bend)
    assert change == pytest.approx(2e-3, abs=4 * std)
    assert std == pytest.approx(bend.sum() ** -0.5, rel=0.3)
    assert m_estimate(np.zeros(3), np.zeros(3)) == (0.0, np.inf)


FILE = "fx: 600\nfy: 600\ncx: 320\ncy: 240\nwidth: 640\nheight: 480\n"


@pytest.mark.parametrize(
    ("lines", "readout_s", "side"),
    [
        ("", 0.0, "top"),
        ("readout_s: 0.0153\n", 0.0153, "top"),
        ("readout_s: 0.0153\nreadout_from: left\n", 0.0153, "left"),
        ("rolling_shutter: 1\nrolling_shutter_tr: 0.033\n", 0.033, "top"),
        ("line_delay: 2.5e-5\n", 0.012, "top"),
    ],
)
def test_camera_files_have_a_readout(tmp_path: Path, lines: str, readout_s: float, side: str) -> None:
    (tmp_path / "cam.yaml").write_text(FILE + lines)
    camera = load_camera(tmp_path / "cam.yaml")
    assert camera.readout_s == pytest.approx(readout_s)
    assert camera.readout_from == side
    save_camera(camera, tmp_path / "native.yaml")
    again = load_camera(tmp_path / "native.yaml")
    assert (again.readout_s, again.readout_from) == (camera.readout_s, camera.readout_from)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("readout_s: -0.01\n", "readout_s -0.01"),
        ("readout_s: fast\n", "readout_s"),
        ("readout_s: 0.01\nreadout_from: above\n", "one of top, bottom, left, right"),
        ("readout_s: 0.01\nline_delay: 1e-4\n", "contradict each other"),
    ],
)
def test_readouts_that_cannot_be_are_refused(tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "cam.yaml").write_text(FILE + lines)
    with pytest.raises(InputError, match=message):
        load_camera(tmp_path / "cam.yaml")


GRAVITY, READOUT_S, FRAMES, FPS = 9.81, 0.014, 14, 60.0


@pytest.fixture(scope="module")
def filmed() -> tuple[Clip, Camera, Track, Pose]:
    """Return a clip of a box that falls, seen by a rolling shutter, its track without rows, and true poses by rows."""
    mesh = replace(MESH, vertices=1.8 * MESH.vertices)
    camera = replace(CAMERA, readout_s=READOUT_S, camera_to_world=look_at(np.array([0.0, -1.5, 0.0]), np.zeros(3)))
    throw = Throw(
        start=(-0.1, 0.0, 0.33, 0.84, 0.25, 0.40, 0.26, 0.8, 0.1, -1.2, 2.0, -3.0, 1.5), seconds=FRAMES / FPS, fps=FPS
    )
    system, motion = simulated(throw, mesh)
    times = np.arange(FRAMES) / FPS
    clip = array_clip(np.stack(images(camera, mesh, system, motion, times, READOUT_S)), times, "fall")

    def true_poses(at_s: NDArray[np.float64]) -> Pose:
        states = states_at(system, motion, at_s)
        in_world = make_transform(matrix_from_quat(states[:, 3:7]), states[:, :3])
        placed = invert_transform(camera.camera_to_world) @ in_world
        return Pose(placed[:, :3, :3], placed[:, :3, 3])

    row_s = times
    for _ in range(5):
        row_s = row_times(camera, true_poses(row_s), times)
    true, solid = true_poses(row_s), Solid.of(mesh)
    fits = [fit_contour(frame, camera, solid, true[i]) for i, frame in enumerate(clip.frames)]
    poses = Pose.stack([fit.pose for fit in fits if fit is not None])
    assert len(poses) == FRAMES
    return clip, camera, _track(times, poses, mesh), true


def _track(times_s: NDArray[np.float64], poses: Pose, mesh: Mesh) -> Track:
    calibration = Calibration.from_dict(None)
    nothing = Track.of_nothing(times_s, mesh.vertices, calibration, np.zeros(1))
    count, std = len(times_s), np.tile([0.01, 0.01, 0.01, 5e-4, 5e-4, 4e-3], (len(times_s), 1))
    covariance = std[:, :, None] ** 2 * np.eye(6)
    seen = with_poses(
        nothing.observation,
        np.arange(count),
        poses,
        std[:, :, None] * np.eye(6),
        np.array(calibration.contour_correlation_s),
        "silhouette",
        covariance,
    )
    estimate = replace(nothing.poses, pose=poses, covariance=covariance)
    return replace(nothing, observation=seen, poses=estimate, tracked=np.ones(count, dtype=bool))


def _fall(times_s: NDArray[np.float64], poses: Pose) -> float:
    """Return the acceleration downwards, m/s^2, from poses before a level camera."""
    return 2.0 * float(np.polyfit(times_s, poses.translation[:, 1], 2)[0])


def test_a_fall_has_its_gravity_and_its_distance_by_rows(filmed: tuple[Clip, Camera, Track, Pose]) -> None:
    clip, camera, track, true = filmed
    mesh = replace(MESH, vertices=track.observation.points_body)
    frames = FrameStore.of(clip)
    found = at_row_times(frames, camera, mesh, track, clip.times_s)
    without, pose = track.poses.pose, found.poses.pose

    def depth_error(of: Pose) -> float:
        return float(np.sqrt(np.mean((of.translation - true.translation)[:, 2] ** 2)))

    assert _fall(clip.times_s, without) > 1.05 * GRAVITY
    assert _fall(found.observation.times_s, pose) == pytest.approx(GRAVITY, rel=0.015)
    assert depth_error(without) > 0.012
    assert depth_error(pose) < 0.3 * depth_error(without)
    np.testing.assert_array_equal(found.observation.configuration.pose.translation, pose.translation)  # type: ignore[union-attr]


def test_keypoints_are_moved_to_the_time_of_the_origins_row(filmed: tuple[Clip, Camera, Track, Pose]) -> None:
    """Detected corners are those of their rows; a track of true poses takes them to the poses of the origin's row."""
    clip, camera, track, true = filmed
    corners = track.observation.points_body
    motion = twists(true, row_times(camera, true, clip.times_s))
    seen = np.stack([to_bearings(shown_points(camera, true[i], motion[i], corners)) for i in range(FRAMES)])
    observation = replace(track.observation, bearings=seen, visible=np.ones(seen.shape[:2], bool), configuration=None)
    given = replace(track, observation=observation)
    frames = FrameStore.of(clip)
    found = at_row_times(frames, camera, replace(MESH, vertices=corners), given, clip.times_s)
    still = project_points(true, corners)
    assert np.abs(seen - still).max() > 0.004
    assert np.abs(found.observation.bearings - still).max() < 0.1 * np.abs(seen - still).max()


def test_the_readout_is_fitted_to_a_millisecond(filmed: tuple[Clip, Camera, Track, Pose]) -> None:
    clip, camera, track, _ = filmed
    mesh = replace(MESH, vertices=track.observation.points_body)
    found = fitted_readout(clip, replace(camera, readout_s=0.0), mesh, track)
    low, high = found.ci95
    assert found.readout_s == pytest.approx(READOUT_S, abs=1e-3)
    assert low < READOUT_S < high
    assert high - low < 6e-3


def test_a_clip_that_looks_like_one_is_seen(filmed: tuple[Clip, Camera, Track, Pose]) -> None:
    clip, camera, track, _ = filmed
    mesh = replace(MESH, vertices=track.observation.points_body)
    shown_s = apparent_readout(clip, replace(camera, readout_s=0.0), mesh, track)
    assert shown_s == pytest.approx(READOUT_S, rel=0.4)


@pytest.mark.parametrize(("share", "seen"), [(0.9, True), (-0.9, True), (1.9, False), (0.05, False)])
def test_no_readout_lasts_longer_than_a_frame(
    share: float, seen: bool, filmed: tuple[Clip, Camera, Track, Pose], monkeypatch: pytest.MonkeyPatch
) -> None:
    clip, camera, track, _ = filmed
    mesh, interval_s = replace(MESH, vertices=track.observation.points_body), float(np.median(np.diff(clip.times_s)))
    monkeypatch.setattr(readout_fit, "m_estimate", lambda *_: (share * interval_s, 1e-4))
    found = apparent_readout(clip, replace(camera, readout_s=0.0), mesh, track)
    assert found == (share * interval_s if seen else None)


def _filmed(camera: Camera) -> Filmed:
    clip = array_clip(np.zeros((9, camera.height, camera.width, 3), np.uint8), np.arange(9) / 60.0, "black")
    return Filmed(clip, camera, np.eye(4))


def _config(**options: Any) -> IdentifyConfig:
    return IdentifyConfig(clip=Path("clip.mp4"), camera=Path("cam.yaml"), mesh=Path("box.obj"), **options)


def test_the_option_replaces_the_readout_of_the_camera_file() -> None:
    camera = with_readout(_config(readout=0.008, readout_from="left"), _filmed(rolling(0.004))).camera
    assert (camera.readout_s, camera.readout_from) == (0.008, "left")
    assert with_readout(_config(), _filmed(rolling(0.004))).camera.readout_s == 0.004


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readout": 0.0167}, "16.7 ms; expected 0 to 16.67 ms"),
        ({"readout": -0.01}, "-10 ms; expected 0 to"),
        ({"readout": 0.01, "readout_from": "north"}, "one of top, bottom, left, right"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        with_readout(_config(**options), _filmed(CAMERA))


def test_the_readout_is_no_parameter_of_a_system() -> None:
    config, fits = without_readout(_config(fit=("mu", "readout")))
    assert (config.fit, fits) == (("mu",), True)
    assert without_readout(config) == (config, False)
    with pytest.raises(UsageError, match="one of them"):
        without_readout(_config(fit=("readout",), readout=0.01))
    with pytest.raises(UsageError, match="one clip"):
        without_readout(replace(_config(fit=("readout",)), clip=(Path("a.mp4"), Path("b.mp4"))))

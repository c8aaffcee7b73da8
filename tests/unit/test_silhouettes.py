"""Tracking a mesh by its silhouette, against drawn clips with known poses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from tests.moving_box import CAMERA, box_clip, box_mesh, box_poses, wall
from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.report.overlay import write_preview
from vid2phys.risp.networks.mesh_shape import shape_of
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.foreground_edges import edge_places
from vid2phys.tracking.cues.occluding_contour import occluding_contour
from vid2phys.tracking.cues.silhouette import Drawing, draw
from vid2phys.tracking.detectors.silhouette import Silhouettes, propose_poses, regions
from vid2phys.tracking.foreground import Foreground, color_density
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.mesh_track import track_mesh
from vid2phys.tracking.mesh_tracker import MeshTracker
from vid2phys.tracking.silhouette_fit import Fit, FrameForeground, detect
from vid2phys.types import Clip

MESH = box_mesh()
SHAPE = shape_of(MESH, "rigid_contact")
IN_WORLD = replace(CAMERA, camera_to_world=np.eye(4))  # a camera that faces up


@pytest.fixture(scope="module")
def filmed() -> tuple[Clip, Pose]:
    return box_clip(36)


def _mask(pose: Pose) -> np.ndarray:
    from vid2phys.engine.render.rasterizer import rasterize_camera

    return np.asarray(rasterize_camera(pose.apply(MESH.vertices), MESH.faces, CAMERA, 1).coverage > 0.5)


_TURNED = Rotation.from_rotvec([[0.0, 0.0, 1.0], [np.radians(30.0), 0.0, 0.0]]).as_matrix()


def _errors(found: Pose, true: Pose) -> tuple[float, float]:
    """Return distance in m and rotation in deg, up to the box's symmetry."""
    traces = np.einsum("ij,gij->g", found.rotation.T @ true.rotation, SHAPE.rotations)
    angle = np.degrees(np.arccos(np.clip((traces.max() - 1.0) / 2.0, -1.0, 1.0)))
    return float(np.linalg.norm(found.translation - true.translation)), float(angle)


def test_foreground_is_the_body_without_its_shadow(filmed: tuple[Clip, Pose]) -> None:
    clip, poses = filmed
    images = list(clip.frames)
    ratio = Foreground.of(images).log_ratio(images[18])
    body = _mask(poses[18])
    assert (ratio[body] > 0.0).mean() > 0.9
    assert (ratio[~body] > 0.0).mean() < 0.02


def test_what_is_learned_keeps_a_resting_body_in_the_foreground() -> None:
    """For two thirds of this clip the body rests, so that it is the median of all frames."""
    clip, poses = box_clip(12)
    images = [*list(clip.frames), *[list(clip.frames)[-1]] * 24]
    resting = _mask(poses[11])
    plain = Foreground.of(images, including=range(len(images)))
    assert (plain.log_ratio(images[-1])[resting] > 0.0).mean() < 0.2
    whole = slice(0, CAMERA.height), slice(0, CAMERA.width)
    taught = plain.learned({i: (*whole, _mask(poses[i])) for i in (2, 4, 6)})
    assert (taught.log_ratio(images[-1])[resting] > 0.0).mean() > 0.8


def test_a_static_thing_of_the_bodys_colours_stays_background(filmed: tuple[Clip, Pose]) -> None:
    clip, poses = filmed
    images = [image.copy() for image in clip.frames]
    red = images[18][_mask(poses[18])].mean(axis=0).astype(np.uint8)
    for image in images:
        image[200:230, 20:70] = red
    whole = slice(0, CAMERA.height), slice(0, CAMERA.width)
    taught = Foreground.of(images).learned({i: (*whole, _mask(poses[i])) for i in (6, 18, 30)})
    assert (taught.log_ratio(images[18])[202:228, 22:68] > 0.0).mean() < 0.02


def test_a_change_of_exposure_is_not_foreground(filmed: tuple[Clip, Pose]) -> None:
    clip, poses = filmed
    gains = np.linspace(1.0, 0.5, len(clip.frames))
    images = [np.rint(gain * image).astype(np.uint8) for gain, image in zip(gains, clip.frames, strict=True)]
    foreground = Foreground.of(images)
    for i in (2, 30):
        ratio, body = foreground.log_ratio(images[i]), _mask(poses[i])
        assert (ratio[body] > 0.0).mean() > 0.8
        assert (ratio[~body] > 0.0).mean() < 0.02


def test_coloured_shadows_are_learned_beside_the_body(filmed: tuple[Clip, Pose]) -> None:
    """A shadow of one of two coloured lights has another chromaticity than the ground in light."""
    clip, poses = filmed
    images, tint = [image.copy() for image in clip.frames], np.array([0.8, 0.5, 0.3])
    for k, image in enumerate(images):
        image[200:230, 5 + 6 * k : 45 + 6 * k] = tint * image[200:230, 5 + 6 * k : 45 + 6 * k]
    shadow = np.s_[203:227, 5 + 6 * 18 + 3 : 45 + 6 * 18 - 3]
    plain = Foreground.of(images)
    assert (plain.log_ratio(images[18])[shadow] > 0.0).mean() > 0.5
    whole = slice(0, CAMERA.height), slice(0, CAMERA.width)
    taught = plain.learned({i: (*whole, _mask(poses[i])) for i in plain.rows.tolist()[3:20:4]})
    assert (taught.log_ratio(images[18])[shadow] > 0.0).mean() < 0.1
    assert (taught.log_ratio(images[18])[_mask(poses[18])] > 0.0).mean() > 0.9


def test_color_density_integrates_to_one() -> None:
    colors = np.random.default_rng(0).integers(0, 256, (500, 3)).astype(np.uint8)
    assert np.exp(color_density(colors, 0.1)).sum() * 16.0**3 == pytest.approx(1.0)


def test_edges_lie_where_the_foreground_ends() -> None:
    ratio = np.full((60, 60), -3.0, np.float32)
    ratio[:, :31] = 3.0  # the edge lies between columns 30 and 31
    points, normals = np.array([[27.0, 30.0], [33.0, 20.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    mean, _ = edge_places(ratio, points, normals, 8.0, 32, 1.0)
    np.testing.assert_allclose(points[:, 0] + mean, 30.5, atol=0.3)


def test_the_region_of_most_evidence_comes_first_and_weak_ones_are_dropped() -> None:
    log_ratio = np.full((120, 160), -1.0, np.float32)
    log_ratio[10:50, 20:60] = 0.5  # 800 nats
    log_ratio[80:100, 100:120] = 4.0  # 1600 nats on a quarter of the area
    log_ratio[80:100, 20:40] = 0.01  # 4 nats
    (first, small), (second, large) = regions(log_ratio)
    np.testing.assert_allclose([first, second], [[109.5, 89.5], [39.5, 29.5]])
    assert (small, large) == (20.0, 40.0)


def test_a_silhouette_is_where_its_pose_puts_the_body() -> None:
    silhouettes = Silhouettes.of(MESH)
    for n in (3, 700, 2900):
        middle, side = np.array([210.0, 90.0]), 45.0
        mask = _mask(silhouettes.pose(n, CAMERA, middle, side))
        rows, columns = np.nonzero(mask)
        np.testing.assert_allclose([columns.mean(), rows.mean()], middle, atol=1.0)
        assert np.sqrt(mask.sum()) == pytest.approx(side, rel=0.04)


def test_a_drawing_lies_on_the_tangent_of_the_lens_at_its_middle() -> None:
    camera = replace(CAMERA, distortion=np.array([-0.3, 0.1, 0.01, -0.02]))
    drawing = Drawing(np.zeros((40, 60), np.float32), 300.0, np.array([50.0, 80.0]))
    to_frame, middle, step = drawing.to_frame(camera), np.array([30.0, 20.0]), 1e-3

    def seen(place: np.ndarray) -> np.ndarray:
        return bearings_to_pixels(camera, (place + drawing.corner) / drawing.focal)

    slope = np.column_stack([(seen(middle + way) - seen(middle - way)) / (2.0 * step) for way in step * np.eye(2)])
    np.testing.assert_allclose(to_frame[:, :2], slope, atol=1e-6)
    np.testing.assert_allclose(to_frame @ np.append(middle, 1.0), seen(middle), atol=1e-9)


def test_true_poses_are_proposed_and_fitted(filmed: tuple[Clip, Pose]) -> None:
    clip, poses = filmed
    images = list(clip.frames)
    foreground, silhouettes, solid = Foreground.of(images), Silhouettes.of(MESH), Solid.of(MESH)
    for i in (8, 18, 28):
        seen = FrameForeground(images[i], foreground.log_ratio(images[i]), CAMERA, solid)
        assert regions(seen.log_ratio)
        proposed = propose_poses(silhouettes, seen.log_ratio, CAMERA)
        assert min(_errors(pose, poses[i])[1] for pose in proposed[0]) < 20.0
        distance, angle = _errors(detect(silhouettes, seen)[0].pose, poses[i])
        assert distance < 0.03
        assert angle < 4.0


def test_a_contour_within_the_foreground_is_no_edge_of_it(filmed: tuple[Clip, Pose]) -> None:
    """Edges of the frame are the same with and without the foreground's own: the difference is that of its contour."""
    clip, poses = filmed
    images, true = list(clip.frames), poses[18]
    solid, nearer = Solid.of(MESH), replace(true, translation=1.4 * true.translation)
    ratio = np.where(_mask(true), 5.0, -5.0).astype(np.float32)
    inside, edged = (FrameForeground(images[18], ratio, CAMERA, solid, each) for each in (False, True))
    right, wrong = (edged.judged(pose, None).nats - inside.judged(pose, None).nats for pose in (true, nearer))
    edge = occluding_contour(draw(true.apply(MESH.vertices), MESH.faces), CAMERA)  # type: ignore[arg-type]
    assert edge is not None
    length_px = len(edge.pixels) * np.median(np.hypot(*np.diff(edge.pixels, axis=0).T))
    assert right == pytest.approx(0.5 * 3.0 * length_px / 5.0, rel=0.15)  # half of three nats a piece of five pixels
    assert wrong < 0.0


def test_a_thrown_box_is_tracked_with_nothing_trained(filmed: tuple[Clip, Pose]) -> None:
    clip, poses = filmed
    found = track_mesh(clip, CAMERA, MESH, SHAPE, Calibration())
    errors = np.array([_errors(found.poses.pose[i], poses[i]) for i in range(len(poses))])
    assert ((errors[:, 0] < 0.05) & (errors[:, 1] < 5.0)).mean() > 0.95
    assert np.median(errors[:, 1]) < 1.0
    assert found.tracked.all()
    assert not found.observation.visible.any()  # poses are measured, no keypoints
    assert found.observation.measured.all()


def test_the_first_frame_is_shown_before_all_are_tracked(filmed: tuple[Clip, Pose], tmp_path: Path) -> None:
    clip, poses = filmed
    shown, reports = list[tuple[int, Pose]](), list[float]()

    def first(i: int, pose: Pose) -> None:
        assert max(reports, default=0.0) < 0.5
        shown.append((i, pose))

    track_mesh(clip, CAMERA, MESH, SHAPE, Calibration(), reports.append, first=first)
    ((i, pose),) = shown
    distance, angle = _errors(pose, poses[i])
    assert distance < 0.03
    assert angle < 5.0
    write_preview(tmp_path / "preview.png", clip, IN_WORLD, MESH, i, pose)
    image = cv2.imread(str(tmp_path / "preview.png"))
    assert image is not None
    left, right = image[:, : CAMERA.width].astype(int), image[:, -CAMERA.width :].astype(int)
    drawn = cv2.dilate((np.abs(left - right).sum(axis=2) > 60).astype(np.uint8), np.ones((5, 5)))
    mask = _mask(poses[i]).astype(np.uint8)
    edge = (mask > 0) & (cv2.erode(mask, np.ones((3, 3))) == 0)
    assert drawn[edge].mean() > 0.8
    write_preview(tmp_path / "unposed.png", clip, replace(IN_WORLD, camera_to_world=None), MESH, i, pose)
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / "unposed.png")), image)


def test_upright_poses_are_preferred_where_the_system_is_upright() -> None:
    images = [(255.0 * wall()).astype(np.uint8)] * 5
    clip = Clip(ArrayFrames(np.stack(images)), np.arange(5) / 60.0, CAMERA.width, CAMERA.height, "wall")
    tracker = MeshTracker(FrameStore.of(clip), clip.times_s, IN_WORLD, MESH, SHAPE)
    upright, tilted = (Fit(Pose(turned, np.array([0.0, 0.0, 1.0])), 10.0, 0.5, None) for turned in _TURNED)
    assert tracker._nats(upright) == tracker._nats(tilted)
    tracker.tilt_std_rad = np.radians(20.0)
    assert tracker._nats(upright) - tracker._nats(tilted) == pytest.approx(0.5 * (30.0 / 20.0) ** 2)


def test_what_cannot_be_found_is_refused(filmed: tuple[Clip, Pose]) -> None:
    clip, poses = filmed
    still = np.stack([(255.0 * wall()).astype(np.uint8)] * 20)
    at_rest = Clip(ArrayFrames(still), np.arange(20) / 60.0, CAMERA.width, CAMERA.height, "wall")
    with pytest.raises(InputError, match=r"nothing moves in 'wall'.*film it in motion"):
        track_mesh(at_rest, CAMERA, MESH, SHAPE, Calibration())
    moving = replace(CAMERA, camera_to_world=np.tile(np.eye(4), (len(poses), 1, 1)))
    with pytest.raises(InputError, match="a camera that moves, and no trained model"):
        track_mesh(clip, moving, MESH, SHAPE, Calibration())


def test_a_frame_without_the_body_has_no_fit() -> None:
    pose = box_poses(1)[0]
    assert draw(Pose(pose.rotation, np.array([0.0, 0.0, -1.0])).apply(MESH.vertices), MESH.faces) is None
    empty = np.full((CAMERA.height, CAMERA.width), -4.0, np.float32)
    seen = FrameForeground((255.0 * wall()).astype(np.uint8), empty, CAMERA, Solid.of(MESH))
    assert detect(Silhouettes.of(MESH), seen) == []

"""Tracking from a hint, against drawn clips with known poses."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.moving_box import CAMERA, FPS, box_clip, box_mesh, box_poses, photograph, wall
from vid2phys.engine.observe import project
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.risp.networks.mesh_shape import shape_of
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.silhouette import draw
from vid2phys.tracking.detectors.silhouette import Silhouettes
from vid2phys.tracking.foreground import Foreground
from vid2phys.tracking.hint import Hint
from vid2phys.tracking.hinted_search import HintedFrame, steady, unchanged, within_reach
from vid2phys.tracking.mesh_track import track_mesh
from vid2phys.tracking.silhouette_fit import Fit
from vid2phys.types import Clip

MESH = box_mesh()
SHAPE = shape_of(MESH, "rigid_contact")
POSE = box_poses(20)[12]


def _clip(images: list[NDArray[np.uint8]], name: str = "made") -> Clip:
    return Clip(ArrayFrames(np.stack(images)), np.arange(len(images)) / FPS, CAMERA.width, CAMERA.height, name)


def _still(frames: int = 40) -> Clip:
    """Return a clip of a box that rests."""
    return _clip([photograph(MESH, POSE, wall(), seed) for seed in range(frames)], "still")


def _click(pose: Pose, frame: int) -> Hint:
    x, y = project(CAMERA, pose.translation[None])[0]
    return Hint.of_click(f"{frame}:{x:.1f},{y:.1f}")


def _box(pose: Pose, frame: int) -> Hint:
    corners = project(CAMERA, pose.apply(MESH.vertices))
    (x0, y0), (x1, y1) = corners.min(axis=0) - 2.0, corners.max(axis=0) + 2.0
    return Hint.of_box(f"{frame}:{x0:.1f},{y0:.1f},{x1:.1f},{y1:.1f}")


def _errors(found: Pose, true: Pose) -> tuple[float, float]:
    """Return distance in m and rotation in deg, up to the box's symmetry."""
    traces = np.einsum("ij,gij->g", found.rotation.T @ true.rotation, SHAPE.rotations)
    angle = np.degrees(np.arccos(np.clip((traces.max() - 1.0) / 2.0, -1.0, 1.0)))
    return float(np.linalg.norm(found.translation - true.translation)), float(angle)


@pytest.mark.parametrize("hint", [_click(POSE, 5), _box(POSE, 5)], ids=["click", "box"])
def test_a_body_that_rests_is_found(hint: Hint) -> None:
    clip = _still()
    found = track_mesh(clip, CAMERA, MESH, SHAPE, Calibration(), hint=hint)
    assert found.tracked.all()
    for i in range(len(clip.times_s)):
        distance, angle = _errors(found.poses.pose[i], POSE)
        assert distance < 0.03
        assert angle < 4.0


def test_a_click_beside_the_body_is_refused() -> None:
    for text in ("5:30,200", "5:290,40"):
        with pytest.raises(InputError, match=r"no object of the mesh's shape at the hint.*--hint-box"):
            track_mesh(_still(), CAMERA, MESH, SHAPE, Calibration(), hint=Hint.of_click(text))


@pytest.mark.slow
def test_the_hinted_one_of_two_alike_bodies_is_tracked() -> None:
    """Two boxes move; the larger of the two has more evidence, the smaller one is hinted."""
    _, poses = box_clip(24)
    nearer = Pose(poses.rotation, poses.translation * 0.8 + np.array([0.28, 0.12, 0.0]))
    behind = [photograph(MESH, nearer[i], wall(), i) / 255.0 for i in range(len(poses))]
    images = [photograph(MESH, poses[i], behind[i], i) for i in range(len(poses))]
    for true in (poses, nearer):
        found = track_mesh(_clip(images), CAMERA, MESH, SHAPE, Calibration(), hint=_click(true[8], 8))
        errors = np.array([_errors(found.poses.pose[i], true[i]) for i in range(len(true))])
        assert (errors[:, 0] < 0.05).mean() > 0.9


def test_a_moving_body_is_tracked_from_a_hint() -> None:
    clip, poses = box_clip(30)
    found = track_mesh(clip, CAMERA, MESH, SHAPE, Calibration(), hint=_click(poses[20], 20))
    errors = np.array([_errors(found.poses.pose[i], poses[i]) for i in range(len(poses))])
    assert ((errors[:, 0] < 0.05) & (errors[:, 1] < 5.0)).mean() > 0.95


def test_the_pose_at_a_hint_is_the_true_one() -> None:
    frame = photograph(MESH, POSE, wall(), 0)
    still = Foreground.of([frame] * 3)
    found = HintedFrame.of(frame, still, CAMERA, Solid.of(MESH), _box(POSE, 0)).search(Silhouettes.of(MESH))
    distance, angle = _errors(found[0].fit.pose, POSE)
    assert distance < 0.02
    assert angle < 3.0
    assert found[0].fit.overlap > 0.8


def test_a_silhouette_in_the_frame_is_that_of_the_true_corners() -> None:
    drawing = draw(POSE.apply(MESH.vertices), MESH.faces)
    assert drawing is not None
    place = drawing.in_frame(CAMERA)
    assert place is not None
    shown = np.zeros((CAMERA.height, CAMERA.width), np.uint8)
    shown[place[:2]] = place[2]
    hull = cv2.convexHull(project(CAMERA, POSE.apply(MESH.vertices)).astype(np.float32))
    true = cv2.fillConvexPoly(np.zeros_like(shown), np.round(hull).astype(np.int32), 1)
    assert (shown & true).sum() / (shown | true).sum() > 0.95


def test_frames_in_which_the_body_rests() -> None:
    clip, poses = box_clip(10)
    images = [*list(clip.frames), *[list(clip.frames)[-1]] * 10]
    drawing = draw(poses[9].apply(MESH.vertices), MESH.faces)
    assert drawing is not None
    resting = unchanged(images[-1], Foreground.of(images, including=range(len(images))), drawing.in_frame(CAMERA))
    assert set(resting) >= set(range(9, 20))
    assert not set(resting) & set(range(6))


def test_what_is_far_from_the_hinted_motion_is_not_reached() -> None:
    ratio = np.full((CAMERA.height, CAMERA.width), 2.0, np.float32)
    pose = Pose(np.eye(3), np.array([0.0, 0.0, 1.0]))  # at pixel 157, 121; the radius is 25 px
    assert (within_reach(ratio, CAMERA, {}, 3, 0.06) == ratio).all()
    now, later = (within_reach(ratio, CAMERA, {10: pose}, i, 0.06) > 0.0 for i in (10, 14))
    assert now[121, 157 + 60]
    assert not now[121, 157 + 90]
    assert later[121, 157 + 90]  # four frames later the body may be there


def test_a_path_is_steady_up_to_where_the_body_is_lost() -> None:
    good, bad = (Fit(POSE, nats, 0.9, None) for nats in (100.0, 10.0))
    path = [good, bad, bad, bad, good, good, None, good, bad, bad, bad, good]
    assert sorted(steady(path, 5, 50.0, 0.35)) == [4, 5, 7]

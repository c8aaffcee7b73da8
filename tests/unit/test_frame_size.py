"""Tracking in large frames: reduced while the body is searched and followed, whole at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest

from tests.moving_box import CAMERA, box_clip, box_mesh
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.risp.networks.mesh_shape import shape_of
from vid2phys.tracking import frame_size, mesh_tracker
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.light import smaller
from vid2phys.tracking.foreground import Foreground
from vid2phys.tracking.frame_size import at_own_size, is_large, reduction_of
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.hint import Hint
from vid2phys.tracking.hinted_search import HintedRow
from vid2phys.tracking.mesh_track import track_mesh
from vid2phys.tracking.mesh_tracker import MeshTracker
from vid2phys.tracking.silhouette_fit import Fit
from vid2phys.types import Array, Camera, Clip, Mesh

MESH = box_mesh()
SHAPE = shape_of(MESH, "rigid_contact")
ASIDE = np.array([0.03, -0.03, 0.03, 0.006, -0.006, 0.0])


def enlarged(camera: Camera) -> Camera:
    """Return a camera with four pixels for each of the given one's."""
    K = np.array(camera.K, dtype=float)
    K[:2] *= 2.0
    K[:2, 2] += 0.5
    return replace(camera, K=K, width=2 * camera.width, height=2 * camera.height)


LARGE = enlarged(CAMERA)


@pytest.fixture(scope="module")
def filmed() -> tuple[Clip, Pose]:
    clip, poses = box_clip(24)
    frames = np.stack([cv2.resize(image, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC) for image in clip.frames])
    return replace(clip, frames=ArrayFrames(frames), width=LARGE.width, height=LARGE.height), poses


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The widths of the frames of each run, with frames of the enlarged camera counting as large."""
    monkeypatch.setattr(frame_size, "_SIDE_PX", np.sqrt(LARGE.width * LARGE.height) / 2.0)
    widths, run = list[int](), MeshTracker.run

    def recorded(self: MeshTracker) -> list[Fit | None]:
        widths.append(self.camera.width)
        return run(self)

    monkeypatch.setattr(MeshTracker, "run", recorded)
    return widths


def errors_of(found: Pose, true: Pose) -> tuple[float, float]:
    """Return distance in m and rotation in deg, up to the box's symmetry."""
    traces = np.einsum("ij,gij->g", found.rotation.T @ true.rotation, SHAPE.rotations)
    angle = np.degrees(np.arccos(np.clip((traces.max() - 1.0) / 2.0, -1.0, 1.0)))
    return float(np.linalg.norm(found.translation - true.translation)), float(angle)


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [(320, 240, 1), (640, 480, 1), (1280, 720, 1), (1440, 1080, 2), (1920, 1080, 2), (1080, 1920, 2), (3840, 2160, 4)],
)
def test_frames_of_phones_are_reduced(width: int, height: int, expected: int) -> None:
    assert reduction_of(replace(CAMERA, width=width, height=height)) == expected


def test_a_smaller_camera_undoes_an_enlarged_one() -> None:
    back = smaller(LARGE, 2)
    np.testing.assert_allclose(back.K, CAMERA.K)
    assert (back.width, back.height) == (CAMERA.width, CAMERA.height)


def test_a_body_in_large_frames_is_tracked_in_reduced_ones(filmed: tuple[Clip, Pose], sizes: list[int]) -> None:
    clip, poses = filmed
    found = track_mesh(clip, LARGE, MESH, SHAPE, Calibration())
    assert sizes == [CAMERA.width]
    errors = np.array([errors_of(found.poses.pose[i], poses[i]) for i in range(len(poses))])
    assert np.median(errors[:, 0]) < 0.02
    assert np.median(errors[:, 1]) < 1.0
    assert found.tracked.all()


def test_a_body_that_is_small_in_reduced_frames_is_tracked_in_whole_ones(
    filmed: tuple[Clip, Pose], sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_size, "_LEAST_PX", 1e4)
    found = track_mesh(filmed[0], LARGE, MESH, SHAPE, Calibration())
    assert sizes == [CAMERA.width, LARGE.width]
    assert found.tracked.mean() > 0.9


def test_so_is_a_body_that_no_pose_explains_at_a_hint(
    filmed: tuple[Clip, Pose], sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = MeshTracker(FrameStore.of(filmed[0]), filmed[0].times_s, LARGE, MESH, SHAPE)
    runs = list[int]()

    def run(self: MeshTracker) -> list[Fit | None]:
        runs.append(self.camera.width)
        if self.camera.width < LARGE.width:
            raise InputError("nothing", "a body", "look")
        return [None]

    monkeypatch.setattr(MeshTracker, "run", run)
    assert tracker.track() == [None]
    assert runs == [CAMERA.width, LARGE.width]


def test_a_reduced_tracker_has_its_own_hint_and_memory() -> None:
    clip = Clip(ArrayFrames(np.zeros((2, LARGE.height, LARGE.width, 3), np.uint8)), np.arange(2.0), *LARGE.K[:2, 2] * 0)
    hint = Hint.of_box("frame 1:11,21,31,41")
    tracker = MeshTracker(FrameStore(clip.frames, LARGE.width, LARGE.height), clip.times_s, LARGE, MESH, SHAPE)
    tracker.hinted, tracker.tilt_std_rad = HintedRow(1, hint), 0.3
    small = tracker.reduced(2)
    assert small.hinted is not None
    assert (small.hinted.row, small.hinted.hint.corners) == (1, (5.25, 10.25, 15.25, 20.25))
    assert small.tilt_std_rad == 0.3
    assert small.frames[0].shape == (CAMERA.height, CAMERA.width, 3)
    small.known[0] = Pose(np.eye(3), np.ones(3))
    assert tracker.known == {}
    assert tracker.hinted.hint is hint


def test_rests_of_large_frames_are_found_in_reduced_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    clip = Clip(ArrayFrames(np.zeros((2, LARGE.height, LARGE.width, 3), np.uint8)), np.arange(2.0), *LARGE.K[:2, 2] * 0)
    seen = list[Any]()

    def still(frames: FrameStore, times_s: Array, camera: Camera, mesh: Mesh, fits: Any) -> frozenset[int]:
        seen.append((frames[0].shape[1], camera.width))
        return frozenset({1})

    monkeypatch.setattr(mesh_tracker, "still_frames", still)
    tracker = MeshTracker(FrameStore(clip.frames, LARGE.width, LARGE.height), clip.times_s, LARGE, MESH, SHAPE)
    assert tracker.still({}) == {1}
    tracker.small = tracker.reduced(2)
    assert tracker.still({}) == {1}
    assert seen == [(LARGE.width, LARGE.width), (CAMERA.width, CAMERA.width)]


def test_fits_are_refined_in_the_frames_themselves(filmed: tuple[Clip, Pose]) -> None:
    clip, poses = filmed
    frames, solid = FrameStore.of(clip), Solid.of(MESH)
    beside = [Fit(poses[i].retract(ASIDE), 7.0, 0.9, None) for i in range(len(poses))]
    found = at_own_size(frames, LARGE, solid, [None, *beside[1:]])
    assert found[0] is None
    fits = [fit for fit in found if fit is not None]
    angle = np.median([errors_of(fit.pose, poses[i + 1])[1] for i, fit in enumerate(fits)])
    assert angle < 1.0, "three degrees before"
    bearing = [
        pose.translation[:, :2] / pose.translation[:, 2:] for pose in (Pose.stack([f.pose for f in fits]), poses)
    ]
    assert np.abs(bearing[0] - bearing[1][1:]).mean() < 0.002, "0.006 before"
    assert all(fit.contour is not None and (fit.nats, fit.overlap) == (7.0, 0.9) for fit in fits)
    foreground = Foreground.of(frames).learned_from({i + 1: fit.pose for i, fit in enumerate(fits)}, MESH, LARGE)
    assert foreground.body is not None
    assert foreground.background.shape == (LARGE.height, LARGE.width, 3)


def test_a_body_is_large_by_its_median_diameter() -> None:
    camera = replace(CAMERA, K=np.array([[100.0, 0.0, 50.0], [0.0, 100.0, 50.0], [0.0, 0.0, 1.0]]))
    fit = lambda z: Fit(Pose(np.eye(3), np.array([0.0, 0.0, z])), 1.0, 1.0, None)  # noqa: E731
    near, far = fit(1.0), fit(3.0)  # about 100 and 30 pixels for a radius of 0.5 m
    assert is_large([near, None, near, far], camera, 0.5)
    assert not is_large([far, None, near, far], camera, 0.5)
    assert not is_large([None], camera, 0.5)

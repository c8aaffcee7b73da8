"""One image of a painted cube: its pose where the reading is some degrees off and has another label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.painted_mesh import painted_cube, plain_cube
from tests.unit.test_texture import BLOCKS, CAMERA, GROUP, PLACE, cast
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.tracking.cues.texture import SurfaceTexture
from vid2phys.tracking.first_pass import FrameStore
from vid2phys.tracking.single_image import TexturedBody, refine_single_images
from vid2phys.tracking.track import Track
from vid2phys.types import Array

PAINT = SurfaceTexture.of(painted_cube(BLOCKS), GROUP, np.zeros(3))
LONE = None if PAINT is None else TexturedBody.of(painted_cube(BLOCKS), PAINT, GROUP, np.zeros(3))
POINTS = np.array([[x, y, z] for x in (-0.05, 0.05) for y in (-0.05, 0.05) for z in (-0.05, 0.05)])
START = matrix_from_rotvec(np.array([0.6, 0.5, -0.4]))


def _off_deg(rotation: Array, true: Array) -> float:
    return float(np.degrees(np.arccos(np.clip(0.5 * (np.trace(rotation.T @ true) - 1.0), -1.0, 1.0))))


@pytest.mark.parametrize("label", [0, 5, 17])
@pytest.mark.parametrize("tilt", [0.0, 0.2, -0.3])
def test_shape_and_paint_find_pose_and_label(label: int, tilt: float) -> None:
    assert LONE is not None
    frame = cast(START, np.random.default_rng(label), False)
    read = Pose(START, PLACE).retract(np.array([tilt, -0.5 * tilt, 0.05, 0.004, 0.003, 0.03]))
    found = LONE.refine(frame, CAMERA, Pose(read.rotation @ GROUP[label], read.translation))
    assert found is not None
    assert _off_deg(found.pose.rotation, START) < 1.0
    assert np.linalg.norm(found.pose.translation - PLACE) < 0.004


def test_where_no_paint_is_seen_the_reading_stays() -> None:
    assert LONE is not None
    rng = np.random.default_rng(0)
    grey = np.full((CAMERA.height, CAMERA.width, 3), 120.0) + rng.normal(0.0, 4.0, (CAMERA.height, CAMERA.width, 3))
    assert LONE.refine(np.clip(grey, 0, 255).astype(np.uint8), CAMERA, Pose(START, PLACE)) is None
    assert SurfaceTexture.of(plain_cube(), GROUP, np.zeros(3)) is None


def test_frames_that_others_are_beside_stay() -> None:
    assert LONE is not None
    times = np.array([0.0, 0.1, 1.0])
    read = START @ GROUP[5]
    track = Track.of_nothing(times, POINTS, Calibration(), np.zeros(24))
    track.poses.rotation[:], track.poses.translation[:], track.tracked[:] = read, PLACE, True
    visible = np.ones((3, len(POINTS)), dtype=bool)
    track = replace(track, observation=replace(track.observation, visible=visible))
    image = cast(START, np.random.default_rng(1), False)
    frames = FrameStore(ArrayFrames(np.stack([image] * 3)), CAMERA.width, CAMERA.height)
    told = refine_single_images(frames, CAMERA, LONE, track, Calibration())
    np.testing.assert_array_equal(told.poses.rotation[:2], track.poses.rotation[:2])
    assert _off_deg(told.poses.rotation[2], START) < 1.0
    measured = told.observation.configuration
    assert measured is not None
    np.testing.assert_array_equal(measured.measured, [False, False, True])
    np.testing.assert_array_equal(measured.pose.rotation[2], told.poses.rotation[2])
    assert (np.diag(measured.shared_basis[2]) > 0.0).all()

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
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.single_image import PoseSearch, TexturedBody, refine_single_images
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


def test_a_body_whose_symmetry_is_about_another_point_gets_its_label() -> None:
    """The cube's middle is 40 mm from the body's origin, about which its label moves it."""
    aside = np.array([0.04, -0.03, 0.02])
    mesh = replace(painted_cube(BLOCKS), vertices=painted_cube(BLOCKS).vertices + aside)
    texture = SurfaceTexture.of(mesh, GROUP, aside)
    assert texture is not None
    body = TexturedBody.of(mesh, texture, GROUP, aside)
    frame = cast(START, np.random.default_rng(5), False)
    true = Pose(START, PLACE - START @ aside)
    read = true.retract(np.array([0.1, -0.05, 0.05, 0.004, 0.003, 0.02]))
    labelled = read.rotation @ GROUP[7]
    found = body.refine(frame, CAMERA, Pose(labelled, read.translation + (read.rotation - labelled) @ aside))
    assert found is not None
    assert _off_deg(found.pose.rotation, START) < 1.0
    assert np.linalg.norm(found.pose.translation - true.translation) < 0.005
    bearing, radius = body.place(PLACE)
    np.testing.assert_allclose(bearing, PLACE[:2] / PLACE[2])
    assert radius == pytest.approx(np.arcsin(mesh.radius_m / np.linalg.norm(PLACE)))


def test_evidence_of_the_shape_counts_a_fifteenth_beside_that_of_the_texture() -> None:
    assert LONE is not None
    frame, pose = cast(START, np.random.default_rng(6), False), Pose(START, PLACE)
    search = PoseSearch(LONE, frame, CAMERA, pose)
    shown = LONE.texture.shown(search._view, search._image, pose)
    share, nats = shown.explained(LONE.texture.colors[0])
    assert search.share == share > 0.6
    assert search.nats == pytest.approx(search._scorer.explained(pose) / 15.0 + nats)
    assert int(np.argmax(search.element_nats())) == 0
    assert search.fit is None


def test_a_better_pose_counts_if_it_explains_a_quarter_of_the_texture() -> None:
    assert LONE is not None
    frame, pose = cast(START, np.random.default_rng(7), False), Pose(START, PLACE)
    start = pose.retract(np.array([0.15, -0.1, 0.1, 0.006, -0.004, 0.03]))
    search = PoseSearch(LONE, frame, CAMERA, start)
    before = search.nats
    search._take(start, LONE.solid)
    assert search.fit is not None
    assert search.nats > before
    kept = search.pose
    search.nats = 1e9
    search._take(pose, LONE.solid)
    assert search.pose is kept, "no better one"
    mirrored = Pose(START @ GROUP[3], PLACE)
    wrong = PoseSearch(LONE, frame, CAMERA, mirrored)
    wrong.nats = -1e9
    wrong._take(mirrored, LONE.solid)
    assert wrong.fit is None, "the texture of another label explains too little"


def test_a_start_is_fitted_to_edges_and_texture_in_turn() -> None:
    assert LONE is not None
    frame, pose = cast(START, np.random.default_rng(8), False), Pose(START, PLACE)
    search = PoseSearch(LONE, frame, CAMERA, pose.retract(np.array([0.25, -0.2, 0.2, 0.01, -0.01, 0.05])))
    search.begin(pose.retract(np.array([0.12, -0.08, 0.1, 0.006, -0.004, 0.03])))
    assert search.fit is not None
    assert _off_deg(search.pose.rotation, START) < 1.0

"""A painted body through a clip: wrong readings are mended, lost frames found, what is not the body is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.painted_mesh import painted_cube
from tests.unit.test_texture import BLOCKS, CAMERA, PLACE, cast
from tests.unit.test_texture_fit import PAINT
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.texture_refinement import refine_texture
from vid2phys.tracking.track import Track
from vid2phys.tracking.tracker import TrackingInputs, corrected

POINTS = np.array([[x, y, z] for x in (-0.05, 0.05) for y in (-0.05, 0.05) for z in (-0.05, 0.05)])


def test_colours_mend_find_and_lose_frames() -> None:
    assert PAINT is not None
    rng = np.random.default_rng(3)
    start = matrix_from_rotvec(np.array([0.6, 0.5, -0.4]))
    true = np.stack([matrix_from_rotvec(np.array([0.0, 0.04 * k, 0.02 * k])) @ start for k in range(6)])
    images = [cast(rotation, rng, False) for rotation in true]
    images[5] = np.full_like(images[5], 120)  # the body is gone, and something was read all the same
    track = Track.of_nothing(np.arange(6) / 30.0, POINTS, Calibration(), np.zeros(24))
    for k in (0, 1, 2, 4, 5):
        off = np.array([0.08, -0.05, 0.04, 0.004, 0.003, 0.02])
        track.poses.pose[k], track.poses.covariance[k] = Pose(true[k], PLACE).retract(off), np.diag(off**2)
        track.tracked[k], track.quality[k] = True, 0.7
    observation = replace(
        track.observation,
        bearings=track.observation.bearings + 0.3,  # far from the poses
        covariance=np.broadcast_to(1e-5 * np.eye(2), (6, 8, 2, 2)).copy(),
        visible=np.broadcast_to(track.tracked[:, None], (6, 8)).copy(),
    )
    frames = FrameStore(ArrayFrames(np.stack(images)), CAMERA.width, CAMERA.height)
    read = replace(track, observation=observation)
    found, explained = refine_texture(frames, CAMERA, painted_cube(BLOCKS), PAINT, read, Calibration())
    np.testing.assert_array_equal(explained, [True] * 5 + [False])
    np.testing.assert_array_equal(found.poses.rotation[5], read.poses.rotation[5])
    unused: Any = None
    inputs = TrackingInputs(
        camera=CAMERA, model=unused, calibration=Calibration(), mesh=painted_cube(BLOCKS), texture=PAINT
    )
    gone = corrected(read, frames, inputs)
    np.testing.assert_array_equal(gone.tracked, explained)
    assert not gone.observation.seen[5]
    cosine = 0.5 * (np.einsum("tij,tij->t", found.poses.rotation[:5], true[:5]) - 1.0)
    assert np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0))).max() < 1.5
    assert found.observation.configuration is not None
    np.testing.assert_array_equal(found.observation.measured, explained)
    np.testing.assert_array_equal(found.observation.configuration.pose.rotation[:5], found.poses.rotation[:5])
    np.testing.assert_array_equal(found.observation.bearings, observation.bearings, "keypoints stay as detected")

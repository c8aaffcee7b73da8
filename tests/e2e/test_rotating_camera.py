"""The sample as a camera that rotates would have filmed it: identified with the poses of its frames."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from vid2phys.commands.identify import IdentifyConfig, identify
from vid2phys.commands.identify.default_system import with_system
from vid2phys.commands.identify.inputs import MOVES, read_all
from vid2phys.geometry import angle_between, matrix_from_rotvec
from vid2phys.io.camera import load_camera, save_camera
from vid2phys.io.camera_trajectory import tum
from vid2phys.io.mocap import load_mocap
from vid2phys.io.video import VideoWriter, read_clip
from vid2phys.report.alignment import Alignment, apply

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "quadrotor"


@pytest.fixture(scope="module")
def rotated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with clip, camera and poses of a camera that rotates about its centre by up to 8 degrees.

    Such a camera sees a homography of the static image, whatever is in it. The sample has no distortion.
    """
    folder = tmp_path_factory.mktemp("rotated")
    clip, camera = read_clip(SAMPLE / "clip.mp4"), load_camera(SAMPLE / "camera.yaml")
    assert camera.camera_to_world is not None
    assert not camera.distortion.any()
    t = clip.times_s
    degrees = np.stack([3.0 * np.sin(2.1 * t), 5.0 * np.sin(1.3 * t + 0.4), 6.0 * np.sin(1.7 * t)], axis=1)
    rotation = matrix_from_rotvec(np.deg2rad(degrees))
    poses = np.repeat(camera.camera_to_world[None], len(t), axis=0)
    poses[:, :3, :3] = poses[:, :3, :3] @ rotation
    with VideoWriter(folder / "clip.mp4", clip.width, clip.height, 30.0, crf=12) as video:
        for frame, turned, time_s in zip(clip.frames, rotation, t, strict=True):
            homography = camera.K @ turned.T @ np.linalg.inv(camera.K)
            image = cv2.warpPerspective(frame, homography, (clip.width, clip.height), borderMode=cv2.BORDER_REFLECT)
            video.write(np.asarray(image, dtype=np.uint8), time_s=time_s)
    tum.save(folder / "poses.txt", t, poses)
    save_camera(replace(camera, camera_to_world=None), folder / "camera.yaml")
    return folder


def test_a_rotating_camera_finds_the_mass_and_the_motion(rotated: Path, tmp_path: Path) -> None:
    result, _ = identify(
        *(rotated / "clip.mp4", SAMPLE / "quad.obj", rotated / "camera.yaml"),
        camera_pose=rotated / "poses.txt", actions=SAMPLE / "actions.csv", fit=("mass", "drag"), overlay=False,
        out=tmp_path / "run",
    )  # fmt: skip
    truth = json.loads((SAMPLE / "truth.json").read_text())
    assert result.status.key == "converged"
    assert result.observation.frames_lost == 0
    (mass,) = [estimate for estimate in result.parameters if estimate.name == "mass"]
    assert mass.ci95[0] < truth["parameters"]["mass"] < mass.ci95[1]
    assert abs(mass.value / truth["parameters"]["mass"] - 1.0) < 0.01
    log = load_mocap(SAMPLE / "mocap.csv")
    positions, quats, seen = apply(Alignment(truth["time_offset_s"]), log, result.trajectory.times_s)
    assert seen.all()
    states = result.trajectory.states
    assert np.sqrt(((states[:, :3] - positions) ** 2).sum(axis=1).mean()) < 0.02
    assert np.rad2deg(np.median(angle_between(states[:, 3:7], quats))) < 0.5


def test_of_several_clips_each_has_its_own_camera(rotated: Path) -> None:
    config = IdentifyConfig(
        clip=(rotated / "clip.mp4", SAMPLE / "clip.mp4"), mesh=SAMPLE / "quad.obj",
        camera=(rotated / "camera.yaml", SAMPLE / "camera.yaml"),
        camera_pose=(rotated / "poses.txt", SAMPLE / "camera.yaml"), actions=SAMPLE / "actions.csv", fit=("mass",),
    )  # fmt: skip
    moving, static = read_all(with_system(config).of_each_clip())
    assert (moving.camera_to_world.shape, static.camera_to_world.shape) == ((144, 4, 4), (4, 4))
    assert (MOVES in moving.notes, MOVES in static.notes) == (True, False)
    assert set(moving.notes) - {MOVES} == set(static.notes)

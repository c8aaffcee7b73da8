"""The box of `moving_box` filmed at 20 frames a second, with the shutter open for a part of each frame."""

from __future__ import annotations

import numpy as np

from tests.moving_box import CAMERA, box_mesh, photograph, wall
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.types import Array, Clip

FPS = 20.0
FRAMES = 13
_MOMENTS = 13  # images that are averaged for one exposure


def poses_at(times_s: Array) -> Pose:
    """Return poses camera_from_body [T] of the box: it is thrown, and rotates about a tilted axis."""
    places = np.array([-0.25, 0.08, 1.1]) + times_s[:, None] * np.array([0.75, -0.9, 0.1])
    places[:, 1] += 0.5 * 3.0 * times_s**2
    rotations = matrix_from_rotvec(times_s[:, None] * np.array([3.0, 2.0, -1.5]) + np.array([0.4, 0.5, 0.2]))
    return Pose(rotations, places)


def blurred_clip(shutter: float) -> tuple[Clip, Pose]:
    """Return a clip and its true poses in the middles of the exposures. shutter: exposure as a share of a frame."""
    mesh, behind, times_s = box_mesh(), wall(), np.arange(FRAMES) / FPS
    images = []
    for k, time_s in enumerate(times_s):
        moments = time_s + shutter / FPS * ((np.arange(_MOMENTS) + 0.5) / _MOMENTS - 0.5)
        seen = [photograph(mesh, pose, behind, 20 * k + n).astype(float) for n, pose in enumerate(_each(moments))]
        noise = np.random.default_rng(k).normal(0.0, 2.0, seen[0].shape)
        images.append(np.clip(np.round(np.mean(seen, axis=0) + noise), 0, 255).astype(np.uint8))
    clip = Clip(ArrayFrames(np.stack(images)), times_s, CAMERA.width, CAMERA.height, "blurred box")
    return clip, poses_at(times_s)


def paths_px(shutter: float) -> Array:
    """Return the path [T, 2] of the box's middle in the exposure of each frame, px."""
    times_s = np.arange(FRAMES) / FPS
    ends = [poses_at(times_s + way * 0.5 * shutter / FPS).translation @ CAMERA.K.T for way in (-1.0, 1.0)]
    before, after = (each[:, :2] / each[:, 2:] for each in ends)
    return np.asarray(after - before)


def _each(times_s: Array) -> list[Pose]:
    poses = poses_at(times_s)
    return [poses[k] for k in range(len(times_s))]

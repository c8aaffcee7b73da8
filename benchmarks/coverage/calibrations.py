"""Random falls before a camera whose file errs as it states: in its focal length, and in its direction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.coverage.cases import Case
from benchmarks.coverage.falls import fallen
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.types import Camera

_FOCAL_STD, _DIRECTION_DEG = (0.002, 0.02), (0.1, 1.0)  # what files state, from good to poor
_PITCH_DEG = (20.0, 80.0)  # by how much cameras look down: the more, the more of the fall is depth


def case(seed: int) -> Case:
    """Return the fit of a random fall of a cube: gravity."""
    rng = np.random.default_rng([seed, 80])
    pitch = np.radians(rng.uniform(*_PITCH_DEG))
    towards = np.array([0.0, -np.cos(pitch), np.sin(pitch)])
    return fallen(np.random.default_rng([seed, 79]), towards, lambda camera: file_of(rng, camera))


def file_of(rng: np.random.Generator, camera: Camera) -> Camera:
    """Return a camera as its file states it, with drawn errors and their standard deviations."""
    focal_std, std_rad = float(rng.uniform(*_FOCAL_STD)), float(np.radians(rng.uniform(*_DIRECTION_DEG)))
    K, pose = camera.K.copy(), np.array(camera.camera_to_world)
    K[:2, :2] *= np.exp(focal_std * rng.normal())
    pose[:3, :3] = matrix_from_rotvec(std_rad * rng.normal(size=3)) @ pose[:3, :3]
    return replace(camera, K=K, camera_to_world=pose, focal_std=focal_std, direction_std_rad=std_rad)

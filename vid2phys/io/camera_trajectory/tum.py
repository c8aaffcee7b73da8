"""Read and write TUM trajectories: `timestamp tx ty tz qx qy qz qw` a line, camera-to-world, OpenCV axes, z up, m."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vid2phys.geometry import quat_from_matrix
from vid2phys.io.camera._parse import Source
from vid2phys.io.camera_trajectory._trajectory import CameraTrajectory
from vid2phys.io.files import write_text
from vid2phys.io.mocap import tum
from vid2phys.io.mocap._poses import Asked
from vid2phys.types import Array


def matches(source: Source) -> bool:
    """Return whether the first line that is no comment has eight numbers between blanks."""
    return tum.matches(source)


def load(source: Source) -> CameraTrajectory:
    """Return the poses by time. Raises InputError for rows that are no poses."""
    return CameraTrajectory.of_log(tum.load(source, Asked()))


def save(path: str | Path, times_s: Array, poses: Array) -> None:
    """Write poses camera_to_world [T, 4, 4] at times [T] s."""
    quats = np.roll(quat_from_matrix(poses[:, :3, :3]), -1, axis=-1)
    rows = np.column_stack([times_s, poses[:, :3, 3], quats])
    lines = [" ".join(f"{value:.9g}" for value in row) for row in rows]
    write_text(path, "\n".join(["# timestamp tx ty tz qx qy qz qw, camera to world", *lines, ""]))

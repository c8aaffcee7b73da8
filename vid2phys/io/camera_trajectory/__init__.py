"""Read the poses of a camera that moves, and give each frame of a clip its pose.

A format is one file here with `matches(source) -> bool` and `load(source) -> CameraTrajectory`; it is found by its file
name. Poses belong to times, or to images by their names. Poses between those of the file are interpolated.

Limits: the camera's intrinsics stay the same; rows of a rolling shutter have the pose of their frame.
"""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path

from vid2phys import plugins
from vid2phys.io.camera import locate
from vid2phys.io.camera._parse import Source, read_source
from vid2phys.io.camera_trajectory._trajectory import CameraTrajectory, poses_of_clip
from vid2phys.types import Array, Clip

_COLMAP = ("cameras.bin", "cameras.txt", "images.bin", "images.txt")


def formats() -> tuple[str, ...]:
    """Return the names of the formats, by the files of this folder."""
    return plugins.names(__path__)


def load_camera_trajectory(path: str | Path, clip: Clip) -> Array | None:
    """Return camera_to_world of each frame of a clip, [T, 4, 4]; [4, 4] where the file has one pose.

    None where the file is in none of the formats: it may hold one pose under the key camera_to_world. Warnings say what
    was assumed.

    Args:
        path: a file, or the folder of a reconstruction.
        clip: its T frames, with their times and, for a folder of images, names.

    Raises:
        InputError: the file is not readable, or does not cover the clip.
    """
    source = _source(Path(path))
    for name in formats():
        module = importlib.import_module(f"{__name__}.{name}")
        if module.matches(source):
            trajectory: CameraTrajectory = module.load(source)
            for note in trajectory.notes:
                warnings.warn(note, stacklevel=2)
            return poses_of_clip(trajectory, clip, path)
    return None


def _source(path: Path) -> Source:
    """Return the file; COLMAP's images, which have many points, without their text."""
    path = locate(path) if path.is_dir() else path
    if path.name in _COLMAP:
        return Source(path.with_name(f"images{path.suffix}"), "")
    return read_source(path)

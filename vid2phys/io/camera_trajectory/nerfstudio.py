"""Read the poses of nerfstudio's transforms.json: camera-to-world in OpenGL axes, for each image.

Limits: unit and axes of the world are those of the file, which a note states.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vid2phys.io.camera._parse import Source, rigid
from vid2phys.io.camera_trajectory._trajectory import OPENGL_TO_OPENCV, RECONSTRUCTED, CameraTrajectory


def matches(source: Source) -> bool:
    """Return whether the file is a mapping with a list of frames, each with a file and a transform_matrix."""
    return source.text.lstrip().startswith("{") and bool(_frames(source))


def load(source: Source) -> CameraTrajectory:
    """Return the poses by image. Raises InputError for a matrix that is not a rigid transform."""
    frames = _frames(source)
    poses = np.stack([rigid(source.path, f"{name}/transform_matrix", matrix) for name, matrix in frames.items()])
    return CameraTrajectory(poses @ OPENGL_TO_OPENCV, names=tuple(frames), notes=(RECONSTRUCTED,))


def _frames(source: Source) -> dict[str, Any]:
    """Return the matrix of each image by its name; none for a file of another kind."""
    frames = source.data.get("frames") if isinstance(source.data, dict) else None
    if not isinstance(frames, list) or not all(isinstance(frame, dict) for frame in frames):
        return {}
    return {
        str(frame["file_path"]): frame["transform_matrix"]
        for frame in frames
        if "file_path" in frame and "transform_matrix" in frame
    }

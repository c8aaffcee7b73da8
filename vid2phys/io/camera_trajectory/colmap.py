"""Read the poses of COLMAP's images.txt or images.bin: world-to-camera in OpenCV axes, the quaternion's w first.

Limits: unit and axes are those of the reconstruction, which a note states; images that were not registered have no
pose.
"""

from __future__ import annotations

import numpy as np

from vid2phys.errors import InputError
from vid2phys.geometry import invert_transform
from vid2phys.io.camera._parse import Source
from vid2phys.io.camera.colmap import read_images
from vid2phys.io.camera_trajectory._trajectory import RECONSTRUCTED, CameraTrajectory
from vid2phys.io.files import require_file


def matches(source: Source) -> bool:
    """Return whether the file is called images.txt or images.bin."""
    return source.path.name in ("images.txt", "images.bin")


def load(source: Source) -> CameraTrajectory:
    """Return the poses by image. Raises InputError for a file without an image."""
    images = read_images(require_file(source.path, "COLMAP's poses of images"))
    if not images:
        raise InputError(f"'{source.path}' has no image", "COLMAP's poses of images", "export the model again")
    poses = invert_transform(np.stack([world_to_camera for _, world_to_camera in images.values()]))
    return CameraTrajectory(poses, names=tuple(images), notes=(RECONSTRUCTED,))

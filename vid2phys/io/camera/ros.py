"""Read ROS camera_info YAML, as camera_calibration writes it or `rostopic echo` prints it.

With the key `camera_to_world` it is the native form.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vid2phys.errors import InputError
from vid2phys.io.camera._lens import as_shown
from vid2phys.io.camera._lens_keys import read_lens
from vid2phys.io.camera._parse import Source, choose, first_of, is_matrix, make_camera, matrix_of, pose_of, size_of
from vid2phys.types import Array, Camera


def matches(source: Source) -> bool:
    """Return whether the file is a mapping with a camera matrix, and not one of OpenCV's own files."""
    if not isinstance(source.data, dict) or "opencv-matrix" in source.text or "<opencv_storage" in source.text:
        return False
    return is_matrix(first_of(source.data, "camera_matrix", "K"))


def load(source: Source, camera_name: str | None, poses: dict[str, Array]) -> Camera:
    """Return the camera. A missing or empty distortion model means plumb_bob, as in ROS."""
    path, data = source.path, source.data
    name = choose(path, [str(data.get("camera_name") or Path(path).stem)], camera_name)
    K = matrix_of(path, data, ("camera_matrix", "K"))
    assert K is not None  # matches
    _refuse_binning(path, data)
    K, lens = as_shown(path, data, K, read_lens(path, data))
    return make_camera(path, K, lens, size_of(path, data), poses.get(name, pose_of(path, data)), name)


def _refuse_binning(path: str | Path, data: dict[str, Any]) -> None:
    """Raise InputError for a binned or cropped message, which describes other pixels than its K."""
    roi = data.get("roi")
    cropped = isinstance(roi, dict) and any(roi.get(key) for key in ("x_offset", "y_offset"))
    if cropped or any(data.get(key) not in (None, 0, 1) for key in ("binning_x", "binning_y")):
        raise InputError(
            f"camera '{path}' has binning or a region of interest", "full images", "calibrate the images as recorded"
        )

"""Read nerfstudio `transforms.json` (also instant-ngp's and Blender's): camera-to-world for each image, OpenGL axes.

OpenGL cameras look along -z with y up, so y and z are negated. Pixels are counted from the image's corner, as in
COLMAP: half a pixel is taken off the principal point. Intrinsics are at the top or under each frame; `camera_angle_x`
without more, as Blender's scripts write it, means square pixels and the middle of the image. Limit: the pose is that of
a named image, or of the only one, in the axes and the unit of the file.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.camera._lens import as_shown
from vid2phys.io.camera._lens_keys import read_lens
from vid2phys.io.camera._parse import Source, choose, first_of, make_camera, matrix, pinhole, rigid
from vid2phys.types import Array, Camera

_OPENGL_TO_OPENCV = np.diag([1.0, -1.0, -1.0, 1.0])
_LIST, _IN_LIST = "distortion_params", ("k1", "k2", "k3", "k4", "p1", "p2")
_USED = ("frames", "fisheye_crop_radius", _LIST)  # the radius is of a mask


def matches(source: Source) -> bool:
    """Return whether the file is a mapping with a list of frames, or with nerfstudio's names of the focal lengths."""
    return isinstance(source.data, dict) and (
        isinstance(source.data.get("frames"), list) or "fl_x" in source.data or "camera_angle_x" in source.data
    )


def load(source: Source, camera_name: str | None, poses: dict[str, Array]) -> Camera:
    """Return the camera of an image. Raises InputError for models that are not supported, by name."""
    frames = source.data.get("frames") or []
    frames = {str(item["file_path"]): item for item in frames if isinstance(item, dict) and "file_path" in item}
    name, pose = source.path.stem, None
    data: dict[str, Any] = {**source.data, **next(iter(frames.values()), {})}
    if frames and (camera_name is not None or len(frames) == 1):
        name = choose(source.path, list(frames), camera_name)
        data = {**source.data, **frames[name]}
        matrix_of_pose = data.get("transform_matrix")
        if matrix_of_pose is not None:
            pose = rigid(source.path, f"{name}/transform_matrix", matrix_of_pose) @ _OPENGL_TO_OPENCV
    elif camera_name is not None:
        choose(source.path, [name], camera_name)
    size = (first_of(data, "w", "width"), first_of(data, "h", "height"))
    K = _intrinsics(source, data, size)
    K, lens = as_shown(source.path, data, K, read_lens(source.path, data | _listed(source, data), used=_USED))
    return make_camera(source.path, K, lens, size, poses.get(name, pose), name)


def _listed(source: Source, data: dict[str, Any]) -> dict[str, float]:
    """Return the coefficients of a list in the order of nerfstudio, by name."""
    values = matrix(source.path, _LIST, data.get(_LIST)).tolist()
    if len(values) not in (0, len(_IN_LIST)):
        got = f"'{_LIST}' in '{source.path}' has {len(values)} numbers"
        raise InputError(got, ", ".join(_IN_LIST), "give k1 ... under names of their own")
    return dict(zip(_IN_LIST, values, strict=False))


def _intrinsics(source: Source, data: dict[str, Any], size: tuple[Any, Any]) -> Array:
    focal_x, focal_y = data.get("fl_x"), data.get("fl_y")
    known = all(data.get(key) is not None for key in ("fl_x", "cx", "cy")) and data.get("camera_angle_y") is None
    try:
        width, height = (0.0, 0.0) if known and size == (None, None) else (float(size[0]), float(size[1]))
    except (TypeError, ValueError):
        keys = "the keys w and h (Blender's files leave them out)"
        raise InputError(f"'{source.path}' has no image size", keys, "add the images' size in pixels") from None
    if focal_x is None and data.get("camera_angle_x") is None:
        raise InputError(f"'{source.path}' has no focal length", "fl_x and fl_y, or camera_angle_x", "export it again")
    if focal_x is None:
        focal_x = 0.5 * width / np.tan(0.5 * matrix(source.path, "camera_angle_x", [data["camera_angle_x"]], (1,))[0])
    if focal_y is None and data.get("camera_angle_y") is not None:
        focal_y = 0.5 * height / np.tan(0.5 * matrix(source.path, "camera_angle_y", [data["camera_angle_y"]], (1,))[0])
    centre = [data.get("cx", 0.5 * width), data.get("cy", 0.5 * height)]
    values = matrix(
        source.path, "fl_x, fl_y, cx, cy", [focal_x, focal_x if focal_y is None else focal_y, *centre], (4,)
    )
    return pinhole(values[0], values[1], values[2] - 0.5, values[3] - 0.5)

"""Numbers under common names in YAML or JSON: what scripts dump after `cv2.calibrateCamera`, and ViSP's JSON.

A matrix (`K-matrix`, `mtx`, `intrinsic_matrix`, `intrinsics`) or its four numbers (`fx fy cx cy`, `px py u0 v0`), with
`distCoeff`, `dist`, `distortion` or none, and a size (`resolution`, `image_size`, `width` and `height`), at the top or
one level below it.
"""

from __future__ import annotations

from typing import Any

from vid2phys.errors import InputError
from vid2phys.io.camera._parse import Source, choose, first_of, make_camera, matrix, pinhole, pose_of
from vid2phys.types import Array, Camera

_MATRIX = ("K-matrix", "camera_matrix", "K", "mtx", "intrinsic_matrix", "camera_intrinsics", "intrinsics", "intrinsic")
_FOUR = (("fx", "fy", "cx", "cy"), ("px", "py", "u0", "v0"), ("fx", "fy", "ppx", "ppy"))
_DISTORTION = ("distortion_coefficients", "distCoeff", "distCoeffs", "dist_coeffs", "dist", "distortion", "D", "coeffs")
_KNOWN_ELSEWHERE = ("camera_matrix", "K")  # at the top: a ROS file's keys


def matches(source: Source) -> bool:
    """A mapping that has intrinsics under one of the names, and is not of another format."""
    if not isinstance(source.data, dict) or "opencv-matrix" in source.text or "model_type" in source.data:
        return False
    if first_of(source.data, *_KNOWN_ELSEWHERE) is not None or "frames" in source.data:
        return False
    return bool(_named(source.data)) and not _chain(source.data)


def load(source: Source, camera_name: str | None, poses: dict[str, Array]) -> Camera:
    """The camera; a missing distortion means none."""
    found = _named(source.data)
    name = choose(source.path, list(found), camera_name)
    data = {**source.data, **found[name]}  # the size may stand a level above
    value = first_of(found[name], *_MATRIX)
    K = matrix(source.path, "K", value, (3, 3)) if value is not None else pinhole(*_four(source, found[name]))
    coefficients = first_of(found[name], *_DISTORTION)
    distortion = matrix(source.path, "distortion", coefficients)
    model = str(first_of(data, "distortion_model", "camera_model") or "")
    if not model and len(distortion) == 8:
        model = "rational_polynomial"
    pose = poses.get(name, pose_of(source.path, data))
    return make_camera(source.path, K, distortion, model, _size(source, data), pose, name)


def _named(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Mappings with intrinsics by name: the file itself, or those in it."""
    if _has_intrinsics(data):
        return {str(data.get("name") or data.get("camera_name") or "camera"): data}
    return {str(key): item for key, item in data.items() if isinstance(item, dict) and _has_intrinsics(item)}


def _has_intrinsics(data: dict[str, Any]) -> bool:
    value = first_of(data, *_MATRIX)
    return value is not None or any(all(first_of(data, key) is not None for key in four) for four in _FOUR)


def _chain(data: dict[str, Any]) -> bool:
    """Kalibr's cameras have lists of four or five intrinsics."""
    lists = [item.get("intrinsics") for item in data.values() if isinstance(item, dict)]
    return any(isinstance(item, list) and len(item) in (4, 5) for item in lists)


def _four(source: Source, data: dict[str, Any]) -> Array:
    names = next(four for four in _FOUR if all(first_of(data, key) is not None for key in four))
    return matrix(source.path, ", ".join(names), [first_of(data, key) for key in names], (4,))


def _size(source: Source, data: dict[str, Any]) -> tuple[Any, Any]:
    pair = first_of(data, "resolution", "image_size", "img_size", "imsize", "size")
    if isinstance(pair, list):
        width, height = matrix(source.path, "resolution", pair, (2,))
        if width < height and first_of(data, "resolution") is None:
            raise InputError(
                f"camera '{source.path}' has an image size of {width:g}, {height:g}",
                "width and height under names of their own, since some write the height first",
                "add the keys width and height",
            )
        return width, height
    return first_of(data, "image_width", "width", "w"), first_of(data, "image_height", "height", "h")

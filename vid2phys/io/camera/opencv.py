"""OpenCV FileStorage (YAML, XML), read by OpenCV itself: its YAML dialect (`%YAML:1.0`, `!!opencv-matrix`) is not YAML.

Understands the keys of OpenCV's calibration samples and of the VINS family (`model_type`, `projection_parameters`).
The VINS extrinsics are camera-to-IMU and are left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.camera._parse import choose, first_of, make_camera, matrix, pinhole, pose_of, unsupported
from vid2phys.types import Array, Camera

_A_STORAGE = "an OpenCV FileStorage (YAML, XML or JSON)"
_COUNT_MODEL = {0: "plumb_bob", 4: "plumb_bob", 5: "plumb_bob", 8: "rational_polynomial"}
_KNOWN = {"PINHOLE": "plumb_bob", "KANNALA_BRANDT": "equidistant", "FISHEYE": "equidistant"}


def is_storage(text: str) -> bool:
    """Whether the text is in OpenCV's own dialect."""
    return "opencv-matrix" in text or "<opencv_storage" in text


def matches(text: str, data: Any) -> bool:
    """OpenCV's dialect, or a mapping with the VINS keys."""
    return is_storage(text) or (isinstance(data, dict) and "model_type" in data)


def load(path: str | Path, text: str, data: Any, camera_name: str | None, poses: dict[str, Array]) -> Camera:
    """The camera of the file."""
    tree = read_tree(path, text) if is_storage(text) else data
    name = choose(path, [str(tree.get("camera_name") or Path(path).stem)], camera_name)
    K, distortion, model = _intrinsics(path, tree)
    size = (first_of(tree, "image_width", "width"), first_of(tree, "image_height", "height"))
    return make_camera(path, K, distortion, model, size, poses.get(name, pose_of(path, tree)), name)


def read_tree(path: str | Path, text: str) -> dict[str, Any]:
    """The file as a mapping of numbers, texts, lists, mappings and arrays."""
    import cv2

    storage = None
    try:
        storage = cv2.FileStorage(text, cv2.FILE_STORAGE_READ | cv2.FILE_STORAGE_MEMORY)
        root = storage.root()
        return {key: _value(root.getNode(key)) for key in root.keys()}  # noqa: SIM118 (a FileNode)
    except (cv2.error, SystemError) as error:  # its parser raises either, by the place of the fault
        raise InputError(f"'{path}' cannot be read", _A_STORAGE, "write it again") from error
    finally:
        if storage is not None:
            storage.release()


def _value(node: Any) -> Any:
    if node.isMap():
        array = node.mat() if {"rows", "cols", "data"} <= set(node.keys()) else None
        return array if array is not None else {key: _value(node.getNode(key)) for key in node.keys()}  # noqa: SIM118
    if node.isSeq():
        return [_value(node.at(i)) for i in range(node.size())]
    if node.isString():
        return node.string()
    return node.real() if node.isReal() or node.isInt() else None


def _intrinsics(path: str | Path, tree: dict[str, Any]) -> tuple[Array, Array, str]:
    if tree.get("model_type") is not None:
        return _vins(path, tree)
    found = first_of(tree, "camera_matrix", "K", "M1", "intrinsic_matrix", "M")
    if found is None:
        remedy = "write the result of cv2.calibrateCamera into it"
        raise InputError(f"'{path}' has no camera matrix", "the key camera_matrix", remedy)
    K = matrix(path, "camera_matrix", found, (3, 3))
    coefficients = first_of(tree, "distortion_coefficients", "dist_coeffs", "distortion", "D", "D1")
    distortion = matrix(path, "distortion_coefficients", coefficients)
    if first_of(tree, "fisheye_model", "fisheye"):
        return K, distortion, "equidistant"
    model = first_of(tree, "distortion_model", "camera_model")
    if model is not None:
        return (
            K,
            distortion,
            {"radtan": "plumb_bob", "fisheye": "equidistant"}.get(str(model).lower(), str(model).lower()),
        )
    while len(distortion) > 8 and not distortion[8:].any():
        distortion = distortion[:8]
    if len(distortion) not in _COUNT_MODEL:
        raise unsupported(path, f"OpenCV with {len(distortion)} coefficients (thin prism, tilt)")
    return K, distortion, _COUNT_MODEL[len(distortion)]


def _vins(path: str | Path, tree: dict[str, Any]) -> tuple[Array, Array, str]:
    model = str(tree["model_type"]).upper()
    if model not in _KNOWN:
        raise unsupported(path, model)
    projection = tree.get("projection_parameters") or {}
    if _KNOWN[model] == "plumb_bob":
        K = pinhole(*_numbers(path, projection, "projection_parameters", ("fx", "fy", "cx", "cy")))
        distortion = _numbers(
            path, tree.get("distortion_parameters") or {}, "distortion_parameters", ("k1", "k2", "p1", "p2")
        )
        return K, distortion, "plumb_bob"
    K = pinhole(*_numbers(path, projection, "projection_parameters", ("mu", "mv", "u0", "v0")))
    return K, _numbers(path, projection, "projection_parameters", ("k2", "k3", "k4", "k5")), "equidistant"


def _numbers(path: str | Path, data: dict[str, Any], key: str, names: tuple[str, ...]) -> Array:
    missing = [name for name in names if data.get(name) is None]
    if missing:
        raise InputError(f"'{key}' in '{path}' has no {missing[0]}", ", ".join(names), "check the file")
    return np.array([float(data[name]) for name in names])

"""Parse what the camera formats share: tolerant YAML and JSON, matrices, poses, sizes, and checks of intrinsics."""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from vid2phys.errors import InputError
from vid2phys.geometry import invert_transform
from vid2phys.io import files
from vid2phys.io.camera._storage import is_storage, read_tree
from vid2phys.io.yaml_files import LARGEST_YAML
from vid2phys.types import Array, Camera

if TYPE_CHECKING:
    from vid2phys.io.camera._lens import Lens

A_CAMERA = (
    "a camera calibration (ROS camera_info, Kalibr camchain, OpenCV FileStorage, COLMAP, nerfstudio, ViSP, "
    "YAML or JSON with fx, fy, cx, cy, or a 3x3 matrix as text)"
)
_SAME_PX = 1e-4  # px, and relative, as files round
_RIGID_TOLERANCE = 1e-2  # files are written with 3 digits and more
_LARGEST_SIDE = 1 << 16  # px
_LARGEST_CAMERA_BYTES = 1 << 26  # bytes
_MOST_CAMERAS_LISTED = 8
_SIZE = re.compile(r"\s*(\d{1,9})\s*[xX*]\s*(\d{1,9})\s*")


class Source(files.Source):
    """A camera file, see `files.Source`."""

    @cached_property
    def data(self) -> Any:
        """Return the file's YAML or JSON, else None."""
        return parse(self.text)


def read_source(path: str | Path) -> Source:
    """Return the file. Raises InputError for a file that is missing, empty or far too large."""
    return Source.read(path, A_CAMERA, _LARGEST_CAMERA_BYTES, "check that this is the right file")


class _NoAliases(yaml.SafeLoader):
    """YAML without aliases, by which a small file could stand for a huge one."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias")
        return super().compose_node(parent, index)


def _sequence(loader: Any, node: Any) -> Any:
    return loader.construct_sequence(node, deep=True)


_NoAliases.add_constructor("tag:yaml.org,2002:python/tuple", _sequence)  # yaml.dump writes (640, 480) with this tag


def parse(text: str) -> Any:
    """Return the YAML or JSON in `text`; None where it is neither. The `%YAML:1.0` line, which YAML forbids, is
    dropped.
    """
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("%YAML"))
    if plain.lstrip().startswith("{"):
        try:
            return json.loads(plain)
        except (ValueError, RecursionError):
            pass  # YAML's own {a: 1} looks like JSON
    try:
        return _NoAliases(plain).get_single_data() if len(plain) <= LARGEST_YAML else None
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError):
        return None


def matrix(path: str | Path, key: str, value: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Return the numbers of nested lists, a flat list, or ROS's {rows, cols, data}; reshaped to `shape` when given.

    Raises InputError, naming the key, for values that are not finite numbers or of another count.
    """
    raw = value.get("data") if isinstance(value, dict) else value
    try:
        found = np.array([] if raw is None else raw, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"'{key}' in '{path}' is not numeric", "numbers", "check the file") from None
    if not np.isfinite(found).all():
        raise InputError(f"'{key}' in '{path}' is not finite", "numbers", "calibrate again")
    if shape is None:
        return found.ravel()
    if found.size != int(np.prod(shape)):
        raise InputError(f"'{key}' in '{path}' has {found.size} numbers", "x".join(map(str, shape)), "check the file")
    return found.reshape(shape)


def rigid(path: str | Path, key: str, value: Any) -> Array:
    """Return a 4x4 rigid transform (3x4 is completed), its rotation made exactly orthonormal.

    Raises InputError, naming the key, for anything else.
    """
    raw = matrix(path, key, value)
    if raw.size == 12:
        raw = np.concatenate([raw, [0.0, 0.0, 0.0, 1.0]])
    transform = matrix(path, key, raw, (4, 4))
    u, scales, vt = np.linalg.svd(transform[:3, :3])
    last_row = np.abs(transform[3] - [0.0, 0.0, 0.0, 1.0]).max()
    if np.abs(scales - 1.0).max() > _RIGID_TOLERANCE or last_row > 1e-6 or np.linalg.det(u @ vt) < 0:
        expected = "a rotation and a translation [R t; 0 0 0 1], det R = 1"
        raise InputError(f"'{key}' in '{path}' is not a rigid transform", expected, "check the order and the axes")
    transform[:3, :3] = u @ vt
    return transform


def pose_of(path: str | Path, data: dict[str, Any]) -> Array | None:
    """Return `camera_to_world`, or the inverse of `world_to_camera`; None when the mapping has neither."""
    if data.get("camera_to_world") is not None:
        return rigid(path, "camera_to_world", data["camera_to_world"])
    if data.get("world_to_camera") is not None:
        return invert_transform(rigid(path, "world_to_camera", data["world_to_camera"]))
    return None


def poses_in(text: str, path: str | Path) -> dict[str, Array]:
    """Return the poses of an extrinsics file by camera name; the name is empty for a pose outside of any camera."""
    data = read_tree(path, text) if is_storage(text) else parse(text)
    if not isinstance(data, dict):
        return {}
    single = pose_of(path, data)
    found = {} if single is None else {"": single}
    for name, item in data.items():
        pose = pose_of(path, item) if isinstance(item, dict) else None
        if pose is not None:
            found[str(name)] = pose
    return found


def make_camera(path: str | Path, K: Array, lens: Lens, size: tuple[Any, Any], pose: Array | None, name: str) -> Camera:
    """Return a checked Camera; a size of (None, None) becomes 0x0. Raises InputError naming the key that is wrong."""
    width, height = _checked_size(path, size)
    if K[0, 0] <= 0 or K[1, 1] <= 0:
        raise InputError(f"camera '{path}' is not calibrated", "focal lengths above zero", "calibrate the camera first")
    if K[2, :2].all() and not K[:2, 2].any():
        raise InputError(f"camera '{path}' has K column by column", "K = [fx 0 cx; 0 fy cy; 0 0 1]", "transpose it")
    if K[0, 1] != 0.0 or np.abs(K[2] - [0.0, 0.0, 1.0]).max() > 0 or K[1, 0] != 0.0:
        raise InputError(f"camera '{path}' has skew", "K = [fx 0 cx; 0 fy cy; 0 0 1]", "calibrate without skew")
    return Camera(K, width, height, lens.coefficients, lens.model, pose, name)


def is_matrix(value: Any) -> bool:
    """Return whether a value may be a matrix: an array, {rows, cols, data}, a text, or a list without mappings."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return False
    return isinstance(value, list | tuple | np.ndarray | str) or (isinstance(value, dict) and "data" in value)


def matrix_of(path: str | Path, data: dict[str, Any], names: tuple[str, ...]) -> Array | None:
    """Return K [3, 3] px under one of the names; None where there is none.

    A row of four numbers under `intrinsics` is fx, fy, cx and cy. Raises InputError where two names differ, or one
    differs from the keys fx, fy, cx and cy beside it.
    """
    found = {name: _matrix_or_four(path, name, value) for name in names if is_matrix(value := first_of(data, name))}
    if not found:
        return None
    four = [first_of(data, name) for name in ("fx", "fy", "cx", "cy")]
    if all(isinstance(value, int | float) for value in four):
        found["fx, fy, cx, cy"] = pinhole(*four)
    (first, K), *others = found.items()
    for name, other in others:
        if not np.allclose(other, K, rtol=_SAME_PX, atol=_SAME_PX):
            got = f"'{first}' and '{name}' in '{path}' contradict each other"
            raise InputError(got, "the same intrinsics", "keep the right one")
    return K


def _matrix_or_four(path: str | Path, name: str, value: Any) -> Array:
    if "intrinsic" in name and isinstance(value, list) and len(value) == 4:
        return pinhole(*matrix(path, name, value, (4,)))
    return matrix(path, name, value, (3, 3))


def size_of(path: str | Path, data: dict[str, Any]) -> tuple[Any, Any]:
    """Return width and height as the keys of a mapping give them, None where they are missing.

    Known are a pair, a text like 640x480, a mapping, and a key for each side. Raises InputError for a pair whose order
    is not clear.
    """
    pair = first_of(data, "resolution", "image_size", "img_size", "imsize", "size")
    if isinstance(pair, str) and (found := _SIZE.fullmatch(pair)):
        return int(found[1]), int(found[2])
    if isinstance(pair, dict) and "data" not in pair:
        return size_of(path, pair)
    if not isinstance(pair, list | dict | np.ndarray):
        width = first_of(data, "image_width", "img_width", "frame_width", "width", "w")
        return width, first_of(data, "image_height", "img_height", "frame_height", "height", "h")
    width, height = matrix(path, "resolution", pair, (2,))
    if width < height and first_of(data, "resolution") is None:
        got = f"camera '{path}' has an image size of {width:g}, {height:g}"
        expected = "width and height under names of their own, since some write the height first"
        raise InputError(got, expected, "add the keys width and height")
    return width, height


def _checked_size(path: str | Path, size: tuple[Any, Any]) -> tuple[int, int]:
    if all(side is None for side in size):
        return 0, 0
    try:
        width, height = (int(float(value)) for value in size)
    except (TypeError, ValueError, OverflowError):
        width = height = 0
    if max(width, height) > _LARGEST_SIDE:
        raise InputError(
            f"camera '{path}' is for {width}x{height}", f"up to {_LARGEST_SIDE} px a side", "check the file"
        )
    if width <= 0 or height <= 0:
        remedy = "correct the size of the calibration's images in pixels"
        raise InputError(f"camera '{path}' has no image size", "the keys image_width and image_height", remedy)
    return width, height


def four_of(path: str | Path, data: dict[str, Any], names: tuple[str, ...]) -> Array:
    """Return K [3, 3] px of four numbers under these names. Raises InputError naming those that are missing."""
    missing = [name for name in names if first_of(data, name) in (None, "")]
    if missing:
        listed = ", ".join(names)
        raise InputError(f"camera '{path}' has no {', '.join(missing)}", listed, "add what is missing, in pixels")
    return pinhole(*matrix(path, ", ".join(names), [first_of(data, name) for name in names], (4,)))


def pinhole(fx: float, fy: float, cx: float, cy: float) -> Array:
    """Return K, [3, 3] px."""
    return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])


def plain_key(key: str) -> str:
    """Return a key in small letters and digits only, as keys are compared."""
    return re.sub(r"[^a-z0-9]", "", key.lower())


def first_of(data: dict[str, Any], *keys: str) -> Any:
    """Return the value of the first key that is there, whatever its case, underscores and hyphens; None without any."""
    plain = {plain_key(str(key)): value for key, value in data.items()}
    for key in keys:
        value = plain.get(plain_key(key))
        if value is not None:
            return value
    return None


def own_keys(data: Any, name: str) -> dict[str, Any]:
    """Return the mapping of the camera called `name`, or that of the whole file; empty for a file without a mapping."""
    if not isinstance(data, dict):
        return {}
    own = data.get(name)
    return own if isinstance(own, dict) else data


def not_negative(path: str | Path, keys: dict[str, Any], name: str, unit: str, remedy: str) -> float:
    """Return the number under a key; 0 where there is none. Raises InputError for one below zero."""
    given = first_of(keys, name)
    value = 0.0 if given is None else float(matrix(path, name, [given], (1,))[0])
    if value < 0.0:
        raise InputError(f"{name} {value:g} in '{path}'", f"{unit}, 0 or more", remedy)
    return value


def choose(path: str | Path, names: list[str], wanted: str | None) -> str:
    """Return `wanted` (of file names, the last part is enough), or the first name.

    Raises InputError listing the names.
    """
    if wanted is None:
        return names[0]
    same = [name for name in names if wanted in (name, Path(name).name, Path(name).stem)]
    if wanted in names:
        return wanted
    if len(same) != 1:
        listed = ", ".join(names[:_MOST_CAMERAS_LISTED]) + (
            f" ... ({len(names)})" if len(names) > _MOST_CAMERAS_LISTED else ""
        )
        raise InputError(f"'{path}' has no camera '{wanted}'", f"one of {listed}", "name one of them")
    return same[0]

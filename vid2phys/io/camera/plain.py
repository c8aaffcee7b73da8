"""Read numbers under common names in YAML or JSON: what scripts write after `cv2.calibrateCamera`, and ViSP's JSON.

A matrix (`K-matrix`, `mtx`, `intrinsic_matrix`, `intrinsics`) or its four numbers (`fx fy cx cy`, `px py u0 v0`), a
lens (see `_lens_keys`) or none, and a size (`resolution`, `image_size`, `width` and `height`), at any depth. A file may
have several cameras, in mappings or lists; each is named by the keys that lead to it, or by its `name` in a list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vid2phys.io.camera._lens import as_shown
from vid2phys.io.camera._lens_keys import read_lens
from vid2phys.io.camera._parse import (
    Source,
    choose,
    first_of,
    four_of,
    is_matrix,
    make_camera,
    matrix_of,
    pose_of,
    size_of,
)
from vid2phys.types import Array, Camera

_MATRIX = (
    *("K-matrix", "camera_matrix", "K", "cam_K", "mtx", "intrinsic_matrix", "intrinsics_matrix"),
    *("camera_intrinsics", "intrinsics", "intrinsic"),
)
_FOUR = (("fx", "fy", "cx", "cy"), ("px", "py", "u0", "v0"), ("fx", "fy", "ppx", "ppy"))
_ENOUGH = 3  # of the four numbers: a mapping with these is a camera, and the missing one is named
_KNOWN_ELSEWHERE = ("camera_matrix", "K")  # at the top: a ROS file's keys
Mapping = dict[str, Any]


def matches(source: Source) -> bool:
    """Return whether the file has intrinsics under one of the names and is not of another format."""
    data = source.data
    if isinstance(data, dict):
        elsewhere = is_matrix(first_of(data, *_KNOWN_ELSEWHERE)) or "frames" in data or "model_type" in data
        if elsewhere or "opencv-matrix" in source.text:
            return False
    return bool(_cameras(data))


def load(source: Source, camera_name: str | None, poses: dict[str, Array]) -> Camera:
    """Return the camera; without distortion keys it has none."""
    found = _cameras(source.data)
    name = choose(source.path, list(found), camera_name)
    own, around = _parts(source.data, found[name], found.values())
    K = matrix_of(source.path, own, _MATRIX)
    K = four_of(source.path, own, max(_FOUR, key=lambda four: _count(own, four))) if K is None else K
    data = around | own  # size and pose may stand a mapping above
    K, lens = as_shown(source.path, data, K, read_lens(source.path, own, around))
    return make_camera(
        source.path, K, lens, size_of(source.path, data), poses.get(name, pose_of(source.path, data)), name
    )


def _cameras(data: Any) -> dict[str, tuple[str, ...]]:
    """Return the keys that lead to each mapping with intrinsics, by the name of the camera."""
    if isinstance(data, dict) and _has_intrinsics(data):
        return {str(data.get("name") or data.get("camera_name") or "camera"): ()}
    found: dict[str, tuple[str, ...]] = {}
    waiting: list[tuple[tuple[str, ...], Any]] = [((), data)]
    for at, mapping in waiting:  # it grows by what lies below
        for key, item in _items(mapping).items():
            if isinstance(item, dict) and _has_intrinsics(item):
                found["/".join((*at, key))] = (*at, key)
            else:
                waiting.append(((*at, key), item))
    return found


def _parts(data: Any, at: tuple[str, ...], cameras: Iterable[tuple[str, ...]]) -> tuple[Mapping, Mapping]:
    """Return the mapping of a camera, and the keys around it that belong to no other camera."""
    others = {camera[: depth + 1] for camera in cameras for depth in range(len(at))}
    around: Mapping = {}
    for depth, key in enumerate(at):
        items = _items(data)
        around |= {name: item for name, item in items.items() if (*at[:depth], name) not in others}
        data = items[key]
    return data, around


def _items(value: Any) -> Mapping:
    """Return what a mapping holds, or what a list of mappings holds by their names, else by their numbers."""
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        names = [str(item.get("name") or item.get("camera_name") or number) for number, item in enumerate(value)]
        return dict(zip(names if len(set(names)) == len(names) else map(str, range(len(value))), value, strict=True))
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def _has_intrinsics(data: Mapping) -> bool:
    return any(is_matrix(first_of(data, name)) for name in _MATRIX) or any(
        _count(data, four) >= _ENOUGH for four in _FOUR
    )


def _count(data: Mapping, names: tuple[str, ...]) -> int:
    """Return how many of the names are keys of a mapping."""
    return sum(first_of(data, name) is not None for name in names)

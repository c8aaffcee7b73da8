"""Numbers under common names in YAML or JSON: what scripts write after `cv2.calibrateCamera`, and ViSP's JSON.

A matrix (`K-matrix`, `mtx`, `intrinsic_matrix`, `intrinsics`) or its four numbers (`fx fy cx cy`, `px py u0 v0`), a
lens (see `_lens_keys`) or none, and a size (`resolution`, `image_size`, `width` and `height`), at any depth. A file may
have several cameras; each is named by the keys that lead to it.
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
    is_matrix,
    make_camera,
    matrix,
    matrix_of,
    pinhole,
    pose_of,
    size_of,
)
from vid2phys.types import Array, Camera

_MATRIX = ("K-matrix", "camera_matrix", "K", "mtx", "intrinsic_matrix", "camera_intrinsics", "intrinsics", "intrinsic")
_FOUR = (("fx", "fy", "cx", "cy"), ("px", "py", "u0", "v0"), ("fx", "fy", "ppx", "ppy"))
_KNOWN_ELSEWHERE = ("camera_matrix", "K")  # at the top: a ROS file's keys
Mapping = dict[str, Any]


def matches(source: Source) -> bool:
    """A mapping that has intrinsics under one of the names, and is not of another format."""
    if not isinstance(source.data, dict) or "opencv-matrix" in source.text or "model_type" in source.data:
        return False
    if is_matrix(first_of(source.data, *_KNOWN_ELSEWHERE)) or "frames" in source.data:
        return False
    return bool(_cameras(source.data))


def load(source: Source, camera_name: str | None, poses: dict[str, Array]) -> Camera:
    """The camera; a missing distortion means none."""
    found = _cameras(source.data)
    name = choose(source.path, list(found), camera_name)
    own, around = _parts(source.data, found[name], found.values())
    K = matrix_of(source.path, own, _MATRIX)
    K = pinhole(*_four(source, own)) if K is None else K
    data = around | own  # size and pose may stand a level above
    K, lens = as_shown(source.path, data, K, read_lens(source.path, own, around))
    return make_camera(
        source.path, K, lens, size_of(source.path, data), poses.get(name, pose_of(source.path, data)), name
    )


def _cameras(data: Mapping) -> dict[str, tuple[str, ...]]:
    """The keys that lead to each mapping with intrinsics, by the camera's name."""
    if _has_intrinsics(data):
        return {str(data.get("name") or data.get("camera_name") or "camera"): ()}
    found: dict[str, tuple[str, ...]] = {}
    levels: list[tuple[tuple[str, ...], Mapping]] = [((), data)]
    for at, level in levels:  # it grows by what lies below
        for key, item in level.items():
            if isinstance(item, dict) and isinstance(key, str):
                if _has_intrinsics(item):
                    found["/".join((*at, key))] = (*at, key)
                else:
                    levels.append(((*at, key), item))
    return found


def _parts(data: Mapping, at: tuple[str, ...], cameras: Iterable[tuple[str, ...]]) -> tuple[Mapping, Mapping]:
    """The mapping of a camera, and what stands around it on the way there and is of no other camera."""
    others = {camera[: depth + 1] for camera in cameras for depth in range(len(at))}
    around: Mapping = {}
    for depth, key in enumerate(at):
        around |= {name: item for name, item in data.items() if (*at[:depth], name) not in others}
        data = data[key]
    return data, around


def _has_intrinsics(data: Mapping) -> bool:
    return any(is_matrix(first_of(data, name)) for name in _MATRIX) or any(
        all(first_of(data, key) is not None for key in four) for four in _FOUR
    )


def _four(source: Source, data: Mapping) -> Array:
    names = next(four for four in _FOUR if all(first_of(data, key) is not None for key in four))
    return matrix(source.path, ", ".join(names), [first_of(data, key) for key in names], (4,))

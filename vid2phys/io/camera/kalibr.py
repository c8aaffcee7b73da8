"""Read Kalibr camchain YAML: cam0, cam1, ... each with intrinsics; `T_cn_cnm1` maps the previous camera to this one.

`T_cam_imu` (IMU to camera) and its inverse `T_imu_cam` connect a camera to an IMU, not to the world, so they are never
used as a pose. Two cameras that are connected to one IMU are connected to each other, which serves where `T_cn_cnm1` is
missing. A pose in the world comes from `camera_to_world` under one of the cameras, or from an extrinsics file; the
chain carries it to the others.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from vid2phys.errors import InputError
from vid2phys.geometry import invert_transform
from vid2phys.io.camera._lens import as_shown, unsupported
from vid2phys.io.camera._lens_keys import read_lens
from vid2phys.io.camera._parse import Source, choose, make_camera, matrix, pinhole, pose_of, rigid, size_of
from vid2phys.types import Array, Camera

_SAME_TRANSFORM = 1e-3


def matches(source: Source) -> bool:
    """Return whether the file is a mapping with cameras that have `intrinsics`."""
    return isinstance(source.data, dict) and bool(_names(source.data))


def load(source: Source, camera_name: str | None, poses: dict[str, Array]) -> Camera:
    """Return the chosen camera of the chain, with a pose where the chain reaches one."""
    path, data = source.path, source.data
    names = _names(data)
    name = choose(path, names, camera_name)
    item = data[name]
    projection = str(item.get("camera_model", "pinhole")).lower()
    if projection not in ("pinhole", "omni"):
        raise unsupported(path, projection)
    xi: dict[str, Any] = {}
    if projection == "omni":  # xi stands before the focal lengths
        first, *four = matrix(path, f"{name}/intrinsics", item["intrinsics"], (5,)).tolist()
        xi = {"xi": first}
    else:
        four = matrix(path, f"{name}/intrinsics", item["intrinsics"], (4,)).tolist()
    K, lens = as_shown(path, item, pinhole(*four), read_lens(path, item | xi))
    pose = _pose(path, data, names, name, poses)
    return make_camera(path, K, lens, size_of(path, item), pose, name)


def _names(data: dict[str, Any]) -> list[str]:
    found = [str(key) for key, item in data.items() if isinstance(item, dict) and _is_row(item.get("intrinsics"))]
    return sorted(found, key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)])


def _is_row(value: Any) -> bool:
    """Return whether a value is one row of numbers; matrices and mappings are intrinsics of other formats."""
    if isinstance(value, list):
        return not any(isinstance(item, list | dict) for item in value)
    return value is not None and not isinstance(value, dict)


def _pose(path: str | Path, data: dict[str, Any], names: list[str], name: str, poses: dict[str, Array]) -> Array | None:
    """Return the pose of `name`: its own, else that of the nearest camera along the chain that has one."""
    at = names.index(name)
    for other in sorted(range(len(names)), key=lambda i: abs(i - at)):
        pose = poses.get(names[other], pose_of(path, data[names[other]]))
        if pose is None:
            continue
        step = 1 if at > other else -1
        for index in range(other, at, step):
            link = _link(path, data, names[min(index, index + step)], names[max(index, index + step)])
            if link is None:
                break
            pose = pose @ (invert_transform(link) if step > 0 else link)
        else:
            return pose
    return None


def _link(path: str | Path, data: dict[str, Any], before: str, after: str) -> Array | None:
    """Return the transform from one camera to the next, [4, 4]; None where the file has none."""
    value = data[after].get("T_cn_cnm1")
    if value is not None:
        return rigid(path, f"{after}/T_cn_cnm1", value)
    one, other = _imu_to_camera(path, before, data[before]), _imu_to_camera(path, after, data[after])
    return None if one is None or other is None else other @ invert_transform(one)


def _imu_to_camera(path: str | Path, name: str, item: dict[str, Any]) -> Array | None:
    """Return `T_cam_imu`, or the inverse of `T_imu_cam`. Raises InputError when a file has both and they differ."""
    found = [
        convert(rigid(path, f"{name}/{key}", item[key]))
        for key, convert in (("T_cam_imu", np.asarray), ("T_imu_cam", invert_transform))
        if item.get(key) is not None
    ]
    if len(found) == 2 and np.abs(found[0] - found[1]).max() > _SAME_TRANSFORM:
        got = f"'{name}/T_cam_imu' and '{name}/T_imu_cam' in '{path}' contradict each other"
        raise InputError(got, "one the inverse of the other", "keep the right one")
    return found[0] if found else None

"""Kalibr camchain YAML: cam0, cam1, ... each with intrinsics; `T_cn_cnm1` maps the previous camera to this one.

`T_cam_imu` and `T_imu_cam` join a camera to an IMU, not to the world, and are left alone. A pose in the world comes
from `camera_to_world` under one of the cameras, or from an extrinsics file; the chain carries it to the others.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from vid2phys.io.camera._parse import choose, make_camera, matrix, pinhole, pose_of, rigid, unsupported
from vid2phys.rotations import invert_transform
from vid2phys.types import Array, Camera

_MODELS = {
    "radtan": "plumb_bob",
    "plumb_bob": "plumb_bob",
    "equidistant": "equidistant",
    "equi": "equidistant",
    "none": "plumb_bob",
}


def matches(text: str, data: Any) -> bool:
    """A mapping with cameras that have `intrinsics`."""
    return isinstance(data, dict) and bool(_names(data))


def load(path: str | Path, text: str, data: dict[str, Any], camera_name: str | None, poses: dict[str, Array]) -> Camera:
    """The chosen camera of the chain; with a pose where the chain reaches one."""
    names = _names(data)
    name = choose(path, names, camera_name)
    item = data[name]
    if str(item.get("camera_model", "pinhole")).lower() != "pinhole":
        raise unsupported(path, str(item["camera_model"]))
    model = str(item.get("distortion_model") or "none").lower()
    if model not in _MODELS:
        raise unsupported(path, model)
    K = pinhole(*matrix(path, f"{name}/intrinsics", item["intrinsics"], (4,)))
    distortion = matrix(path, f"{name}/distortion_coeffs", item.get("distortion_coeffs"))
    width, height = matrix(path, f"{name}/resolution", item.get("resolution"), (2,)).astype(int)
    return make_camera(
        path, K, distortion, _MODELS[model], (width, height), _pose(path, data, names, name, poses), name
    )


def _names(data: dict[str, Any]) -> list[str]:
    found = [str(key) for key, item in data.items() if isinstance(item, dict) and "intrinsics" in item]
    return sorted(found, key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)])


def _pose(path: str | Path, data: dict[str, Any], names: list[str], name: str, poses: dict[str, Array]) -> Array | None:
    """Pose of `name`: its own, else that of the nearest camera along the chain that has one."""
    at = names.index(name)
    for other in sorted(range(len(names)), key=lambda i: abs(i - at)):
        pose = poses.get(names[other], pose_of(path, data[names[other]]))
        if pose is None:
            continue
        step = 1 if at > other else -1
        for index in range(other, at, step):
            link = _link(path, data, names[max(index, index + step)])
            if link is None:
                break
            pose = pose @ (invert_transform(link) if step > 0 else link)
        else:
            return pose
    return None


def _link(path: str | Path, data: dict[str, Any], name: str) -> Array | None:
    value = data[name].get("T_cn_cnm1")
    return None if value is None else rigid(path, f"{name}/T_cn_cnm1", value)

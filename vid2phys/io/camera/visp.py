"""ViSP camera XML (vpXmlParserCamera): cameras by name, each with one or more projection models.

Distortion is radial with one coefficient, `kud` from undistorted to distorted: OpenCV's k1. The file is flat, and is
read by its tags, so that nothing an XML parser may be led to do can happen.
"""

from __future__ import annotations

import re

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.camera._parse import Source, choose, make_camera, matrix, pinhole, unsupported
from vid2phys.types import Array, Camera

_PLAIN, _DISTORTED = "perspectiveProjWithoutDistortion", "perspectiveProjWithDistortion"


def matches(source: Source) -> bool:
    """XML with cameras that have projection models."""
    return source.text.lstrip().startswith("<") and "<camera>" in source.text and "<model>" in source.text


def load(source: Source, camera_name: str | None, poses: dict[str, Array]) -> Camera:
    """The camera of that name, by its model with distortion where it has one. The file has no pose."""
    text = re.sub(r"<!--.*?-->", "", source.text, flags=re.DOTALL)
    cameras = {_tag(block, "name") or "camera": block for block in _blocks(text, "camera")}
    if not cameras:
        raise InputError(f"'{source.path}' has no whole camera", "<camera> ... </camera>", "the file may be cut short")
    name = choose(source.path, list(cameras), camera_name)
    models = {_tag(block, "type") or "": block for block in _blocks(cameras[name], "model")}
    kind = next((kind for kind in (_DISTORTED, _PLAIN) if kind in models), None)
    if kind is None:
        raise unsupported(source.path, ", ".join(models) or "none")
    numbers = matrix(source.path, "px, py, u0, v0", [_tag(models[kind], key) for key in ("px", "py", "u0", "v0")], (4,))
    radial = _tag(models[kind], "kud") if kind == _DISTORTED else None
    distortion = np.zeros(0) if radial is None else matrix(source.path, "kud", [radial, 0, 0, 0], (4,))
    size = (_tag(cameras[name], "image_width"), _tag(cameras[name], "image_height"))
    return make_camera(source.path, pinhole(*numbers), distortion, "plumb_bob", size, poses.get(name), name)


def _blocks(text: str, tag: str) -> list[str]:
    """What stands between `<tag>` and `</tag>`, in linear time whatever the file."""
    return [part.split(f"</{tag}>", 1)[0] for part in text.split(f"<{tag}>")[1:] if f"</{tag}>" in part]


def _tag(block: str, tag: str) -> str | None:
    found = _blocks(block, tag)
    return found[0].strip() if found else None

"""Read ViSP's XML: cameras of vpXmlParserCamera, each with one or more projection models, and a tracker's (mbt.xml).

Distortion is radial with one coefficient, `kud` from undistorted to distorted: OpenCV's k1. The files are flat and are
read by their tags, so an attack on XML parsers has no target. `plain` reads ViSP's JSON. Limit: the file has no pose.
"""

from __future__ import annotations

import re
from typing import Any

from vid2phys.errors import InputError
from vid2phys.io.camera._lens import unsupported
from vid2phys.io.camera._lens_keys import read_lens
from vid2phys.io.camera._parse import Source, choose, four_of, make_camera, size_of
from vid2phys.types import Array, Camera

_PLAIN, _DISTORTED = "perspectiveProjWithoutDistortion", "perspectiveProjWithDistortion"
_FOUR = ("px", "py", "u0", "v0")


def matches(source: Source) -> bool:
    """Return whether the file is XML with cameras that have projection models or the focal lengths of ViSP."""
    text = source.text
    return text.lstrip().startswith("<") and "<camera>" in text and ("<model>" in text or "<px>" in text)


def load(source: Source, camera_name: str | None, poses: dict[str, Array]) -> Camera:
    """Return the camera of that name, by its model with distortion where it has one."""
    path, text = source.path, re.sub(r"<!--.*?-->", "", source.text, flags=re.DOTALL)
    cameras = {str(_values(block).get("name") or "camera"): block for block in _blocks(text, "camera")}
    if not cameras:
        raise InputError(f"'{path}' has no whole camera", "<camera> ... </camera>", "the file may be cut short")
    name = choose(path, list(cameras), camera_name)
    models = {str(values.get("type") or ""): values for values in map(_values, _blocks(cameras[name], "model"))}
    kind = next((kind for kind in (_DISTORTED, _PLAIN) if kind in models), None)
    if models and kind is None:
        raise unsupported(path, ", ".join(models) or "none")
    data = _values(cameras[name]) if kind is None else models[kind]
    size = size_of(path, _values(cameras[name]))
    return make_camera(path, four_of(path, data, _FOUR), read_lens(path, data), size, poses.get(name), name)


def _blocks(text: str, tag: str) -> list[str]:
    """Return the texts between `<tag>` and `</tag>`, in linear time whatever the file."""
    return [part.split(f"</{tag}>", 1)[0] for part in text.split(f"<{tag}>")[1:] if f"</{tag}>" in part]


def _values(block: str) -> dict[str, Any]:
    """Return the texts and numbers of a block by their tags."""
    found: dict[str, Any] = {}
    for tag, text in re.findall(r"<(\w+)>\s*([^<>]*)</\1>", block):
        try:
            found.setdefault(tag, float(text))
        except ValueError:
            found.setdefault(tag, text.strip())
    return found

"""Read COLMAP: cameras.txt or cameras.bin, and the poses of images.txt or images.bin beside them.

COLMAP counts pixels from the image's corner (the middle of the first is 0.5, 0.5), so half a pixel is taken off the
principal point. Poses are world-to-camera with the quaternion's w first. A camera is named by an image (then it has its
pose, in the axes and the unit of the reconstruction) or by its number; by default the first. Limit: the first camera
has a pose only if there is a single image.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vid2phys.errors import InputError
from vid2phys.geometry import invert_transform, make_transform, matrix_from_quat
from vid2phys.io.camera._lens import Lens, make_lens, unsupported
from vid2phys.io.camera._parse import Source, choose, make_camera, matrix, pinhole
from vid2phys.types import Array, Camera

# In COLMAP's own order, which its binary files count by. What each parameter is; None: a model that is refused.
_MODELS: dict[str, str | None] = {
    "SIMPLE_PINHOLE": "f cx cy",
    "PINHOLE": "fx fy cx cy",
    "SIMPLE_RADIAL": "f cx cy k1",
    "RADIAL": "f cx cy k1 k2",
    "OPENCV": "fx fy cx cy k1 k2 p1 p2",
    "OPENCV_FISHEYE": "fx fy cx cy k1 k2 k3 k4",
    "FULL_OPENCV": "fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6",
    "FOV": None,
    "SIMPLE_RADIAL_FISHEYE": "f cx cy k1",
    "RADIAL_FISHEYE": "f cx cy k1 k2",
    "THIN_PRISM_FISHEYE": None,
}
_COUNTS = {"FOV": 5, "THIN_PRISM_FISHEYE": 12}
_POINT_BYTES = 24
_A_MODEL = "a COLMAP model (cameras.txt and images.txt, or both as .bin)"
_CUT_SHORT = "the file may be cut short; export the model again"
_LONGEST_LINE = 4096

Entry = tuple[str, str, int, int, Array]  # id, model, width, height, parameters


def matches(source: Source) -> bool:
    """Return whether the file has lines of `id MODEL width height ...`, or is binary and called cameras.bin."""
    if source.binary:
        return source.path.name == "cameras.bin"
    first = next((line.split() for line in _lines(source.text)), [])
    return len(first) > 4 and all(first[i].isdigit() for i in (0, 2, 3)) and first[1][0].isalpha()


def load(source: Source, camera_name: str | None, poses: dict[str, Array]) -> Camera:
    """Return the camera of an image, or of a number."""
    cameras = {entry[0]: entry for entry in (_binary(source) if source.binary else _text(source))}
    if not cameras:
        raise InputError(f"'{source.path}' has no camera", _A_MODEL, "export the model again")
    images = _images(source.path.parent)
    name, number, pose = next(iter(cameras)), next(iter(cameras)), None
    if camera_name is not None:
        name = choose(source.path, [*images, *cameras], camera_name)
    elif len(images) == 1:
        name = next(iter(images))
    number = name
    if name in images:
        number, world_to_camera = images[name]
        pose = invert_transform(world_to_camera)
    if number not in cameras:
        raise InputError(f"image '{name}' is of camera {number}", f"a camera of '{source.path}'", _CUT_SHORT)
    _, model, width, height, values = cameras[number]
    K, lens = _intrinsics(source.path, model, values)
    return make_camera(source.path, K, lens, (width, height), poses.get(name, pose), name)


def _intrinsics(path: Path, model: str, values: Array) -> tuple[Array, Lens]:
    names = _MODELS.get(model)
    if names is None:
        raise unsupported(path, model)
    if len(values) != len(names.split()) or not np.isfinite(values).all():
        raise InputError(f"camera of model {model} in '{path}' has {len(values)} parameters", names, _CUT_SHORT)
    values_by_name = dict(zip(names.split(), values.tolist(), strict=True))
    focal = (
        (values_by_name["f"], values_by_name["f"])
        if "f" in values_by_name
        else (values_by_name["fx"], values_by_name["fy"])
    )
    K = pinhole(*focal, values_by_name["cx"] - 0.5, values_by_name["cy"] - 0.5)
    order = ["k1", "k2", "k3", "k4"] if "FISHEYE" in model else ["k1", "k2", "p1", "p2"]
    order += ["k3", "k4", "k5", "k6"] if model == "FULL_OPENCV" else []
    kind = {"FULL_OPENCV": "rational_polynomial"}.get(model, "equidistant" if "FISHEYE" in model else "plumb_bob")
    distorted = any(key.startswith("k") for key in values_by_name) or kind == "equidistant"
    return K, make_lens(path, kind, np.array([values_by_name.get(key, 0.0) for key in order] if distorted else []))


def _lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def _text(source: Source) -> Iterator[Entry]:
    for line in _lines(source.text):
        words = line.split()
        if len(words) < 5 or not (words[2] + words[3]).isdigit():
            raise InputError(f"'{source.path}' has the line '{line[:60]}'", "id MODEL width height ...", _CUT_SHORT)
        yield words[0], words[1], int(words[2]), int(words[3]), matrix(source.path, f"camera {words[0]}", words[4:])


def _binary(source: Source) -> Iterator[Entry]:
    reader = _Reader(source.path, source.binary)
    for _ in range(reader.count("<Q", 24)):
        number, model, width, height = reader.take("<iiQQ")
        if not 0 <= model < len(_MODELS):
            raise unsupported(source.path, f"COLMAP's number {model}")
        name = list(_MODELS)[model]
        count = _COUNTS.get(name) or len((_MODELS[name] or "").split())
        yield str(number), name, width, height, np.array(reader.take(f"<{count}d"))


def _images(folder: Path) -> dict[str, tuple[str, Array]]:
    """Return `read_images` of a folder; empty where the folder has no poses."""
    files = (folder / name for name in ("images.bin", "images.txt"))
    return next((read_images(file) for file in files if file.is_file()), {})


def read_images(path: Path) -> dict[str, tuple[str, Array]]:
    """Return camera number and world-to-camera [4, 4] of each image of images.bin or images.txt, by name.

    Raises InputError for a file that is cut short, and for a pose without a unit quaternion.
    """
    read = _binary_images if path.suffix == ".bin" else _text_images
    return {image: (camera, _pose(path, image, numbers)) for image, camera, numbers in read(path)}


def _pose(path: Path, image: str, numbers: Array) -> Array:
    """Return world-to-camera, [4, 4], of qw qx qy qz tx ty tz."""
    if not np.isfinite(numbers).all() or not 0.9 < np.linalg.norm(numbers[:4]) < 1.1:
        raise InputError(f"'{image}' in '{path}' has no unit quaternion", "qw qx qy qz tx ty tz", _CUT_SHORT)
    return make_transform(matrix_from_quat(numbers[:4]), numbers[4:])


def _text_images(path: Path) -> Iterator[tuple[str, str, Array]]:
    """Yield name, camera and pose of every other line; the lines between hold points, are long, and may be empty."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        is_image = True
        while start := stream.readline(_LONGEST_LINE):
            rest = start
            while rest and not rest.endswith("\n"):
                rest = stream.readline(_LONGEST_LINE)
            if start.startswith("#"):
                continue
            words = start.split(maxsplit=9)
            if is_image and words:
                if len(words) < 10:
                    got = f"'{path}' has the line '{start[:60].strip()}'"
                    raise InputError(got, "id qw qx qy qz tx ty tz camera name", _CUT_SHORT)
                yield words[9].strip(), words[8], matrix(path, f"image {words[0]}", words[1:8], (7,))
            is_image = not is_image


def _binary_images(path: Path) -> Iterator[tuple[str, str, Array]]:
    reader = _Reader(path, path.read_bytes())
    for _ in range(reader.count("<Q", 64)):
        _, *numbers, camera = reader.take("<i7di")
        name = reader.text()
        reader.skip(_POINT_BYTES * reader.count("<Q", _POINT_BYTES))
        yield name, str(camera), np.array(numbers)


class _Reader:
    """Read binary numbers one after the other; an end too early is an error, and so is an impossible count."""

    def __init__(self, path: Path, data: bytes) -> None:
        self._path, self._data, self._at = path, data, 0

    def take(self, layout: str) -> tuple[Any, ...]:
        size = struct.calcsize(layout)
        if self._at + size > len(self._data):
            raise InputError(f"'{self._path}' ends at byte {len(self._data)}", f"{size} more bytes there", _CUT_SHORT)
        self._at += size
        return struct.unpack_from(layout, self._data, self._at - size)

    def count(self, layout: str, item_bytes: int) -> int:
        (count,) = self.take(layout)
        if count * item_bytes > len(self._data) - self._at:
            left = (len(self._data) - self._at) // item_bytes
            raise InputError(f"'{self._path}' announces {count} items", f"at most {left} in what follows", _CUT_SHORT)
        return int(count)

    def text(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise InputError(f"'{self._path}' has a name without an end", "a zero byte", _CUT_SHORT)
        text, self._at = self._data[self._at : end].decode("utf-8", "replace"), end + 1
        return text

    def skip(self, size: int) -> None:
        self._at += size

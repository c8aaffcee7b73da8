"""Read cameras of every format that a module of this folder supports, and write the native one.

A format is one file here with `matches(source) -> bool` and `load(source, camera_name, poses) -> Camera`; it is found
by its file name. A pose in the world is `camera_to_world` (or `world_to_camera`), or a pose of a reconstruction;
camera-to-IMU transforms are not used. A reconstruction (COLMAP, nerfstudio) has a pose for each image, in the axes and
the unit of the reconstruction. Limit: only an image that was named gives its pose.
"""

from __future__ import annotations

import importlib
import re
import warnings
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np

from vid2phys import plugins
from vid2phys.errors import InputError, UsageError
from vid2phys.io.camera._errors import with_errors
from vid2phys.io.camera._lens import COEFFICIENTS
from vid2phys.io.camera._native import camera_text
from vid2phys.io.camera._parse import A_CAMERA, Source, poses_in, read_source
from vid2phys.io.camera._readout import checked_side as checked_side
from vid2phys.io.camera._readout import with_readout
from vid2phys.io.files import read_text, write_text
from vid2phys.io.unsupported import refuse_known
from vid2phys.notes import warning
from vid2phys.types import Array, Camera, Clip

# What a folder may hold, in the order of preference, and where a reconstruction keeps them.
_IN_A_FOLDER = ("cameras.bin", "cameras.txt", "transforms.json")
_SUBFOLDERS = ("", "sparse/0", "sparse", "colmap/sparse/0")
_LARGEST_OFFSET = 0.1  # of the image size by which a principal point usually lies off the middle, at most
_BESIDE = ("images", "points3D", "frames", "rigs")  # files of a reconstruction that lie beside its cameras


def formats() -> tuple[str, ...]:
    """Return the names of the format families, by the files of this folder."""
    return plugins.names(__path__)


def load_camera(
    path: str | Path,
    extrinsics: str | Path | None = None,
    *,
    camera_name: str | None = None,
    size: tuple[int, int] | None = None,
) -> Camera:
    """Return a camera; of several cameras or images the one called `camera_name` (default: the first).

    Args:
        path: a file, or the folder of a reconstruction.
        extrinsics: a second file with `camera_to_world`, for the camera, or by camera name (a Kalibr chain carries it
            on to the others). Without any pose the camera has camera_to_world None.
        camera_name: of the camera or image.
        size: width and height of the images [px], for a file without them; a warning states that they are used.

    Raises:
        InputError: the file is not readable; or, by name, a camera model or key is not supported.
    """
    source = read_source(locate(path))
    poses: dict[str, Array] = {}
    if extrinsics is not None:
        what = "a YAML or JSON file with the key camera_to_world (4x4)"
        extra = read_text(extrinsics, what)
        poses = poses_in(extra, extrinsics)
        if not poses:
            raise InputError(f"'{extrinsics}' has no key camera_to_world", what, "add it: x_world = T x_camera, metres")
    camera: Camera = _format_of(source).load(source, camera_name, poses)
    if "" in poses:
        camera = replace(camera, camera_to_world=poses[""])
    camera = camera if camera.width else _with_size(camera, path, size)
    return with_errors(path, source.data, with_readout(path, source.data, camera))


def parse_size(text: str) -> tuple[int, int]:
    """Return width and height [px] of a text like 640x480. Raises UsageError for anything else."""
    found = re.fullmatch(r"\s*(\d{1,5})\s*[xX]\s*(\d{1,5})\s*", text)
    if found is None or not int(found[1]) * int(found[2]):
        raise UsageError(f"image size '{text}'", "WIDTHxHEIGHT in pixels", "for example 640x480")
    return int(found[1]), int(found[2])


def describe(camera: Camera) -> str:
    """Return in one line what a file holds: model, intrinsics, coefficients by name, image size."""
    K, names = camera.K, COEFFICIENTS[camera.model]
    numbers = dict(zip(("fx", "fy", "cx", "cy"), (K[0, 0], K[1, 1], K[0, 2], K[1, 2]), strict=True))
    lens = dict(zip(names, camera.distortion.tolist(), strict=False))
    seen = {name: value for name, value in lens.items() if value}
    parts = [camera.model, *(f"{name} {value:.6g}" for name, value in (numbers | seen).items())]
    if not seen:
        parts.append("no distortion" if camera.model in ("plumb_bob", "rational_polynomial") else "coefficients 0")
    if camera.readout_s:
        parts.append(f"readout {1e3 * camera.readout_s:.4g} ms from the {camera.readout_from}")
    if camera.focal_std:
        parts.append(f"focal length known to {100.0 * camera.focal_std:.2g} %")
    if camera.direction_std_rad:
        parts.append(f"direction known to {np.degrees(camera.direction_std_rad):.2g} deg")
    return ", ".join([*parts, f"{camera.width}x{camera.height}"])


def format_of(path: str | Path) -> str:
    """Return the name of the format of a file or folder. Raises InputError for what `load_camera` cannot read."""
    return _format_of(read_source(locate(path))).__name__.rsplit(".", 1)[-1]


def locate(path: str | Path) -> Path:
    """Return the file of the cameras, for a folder or for another file of a reconstruction beside it."""
    path = Path(path)
    folder = path.parent if path.stem in _BESIDE and path.suffix in (".txt", ".bin") else path
    if not folder.is_dir():
        return path
    found = [folder / sub / name for sub in _SUBFOLDERS for name in _IN_A_FOLDER]
    return next((file for file in found if file.is_file()), path)


def save_camera(camera: Camera, path: str | Path, notes: tuple[str, ...] = ()) -> None:
    """Write the native form: ROS camera_info YAML plus `camera_to_world`. notes: lines of comment."""
    write_text(path, camera_text(camera, notes))


def require_pose(camera: Camera, path: str | Path) -> Array:
    """Return the camera's pose, [4, 4]. Raises InputError naming the missing key when it has none."""
    if camera.camera_to_world is None:
        raise InputError(
            f"camera '{path}' says nothing about where the camera is: the key camera_to_world is missing",
            "4x4, x_world = camera_to_world @ x_camera, metres, OpenCV axes (a camera-to-IMU transform is not it)",
            "add the key, give a file that has it with --camera-pose, or find it with `vid2phys calibrate --from`",
        )
    return camera.camera_to_world


def require_resolution(camera: Camera, clip: Clip, path: str | Path) -> None:
    """Raise InputError when the camera was calibrated at another resolution than the clip has."""
    if (camera.width, camera.height) != (clip.width, clip.height):
        raise InputError(
            f"camera '{path}' is for {camera.width}x{camera.height}, clip '{clip.name}' is {clip.width}x{clip.height}",
            "the same size",
            "calibrate at the clip's resolution, or give the clip as it came from the camera",
        )


def _with_size(camera: Camera, path: str | Path, size: tuple[int, int] | None) -> Camera:
    """Return the camera with the size of the clip's images, with a note. Raises InputError where they do not fit."""
    if size is None:
        remedy = f"add them, or make a whole camera file: `vid2phys calibrate --from {path} --size 640x480`"
        raise InputError(f"camera '{path}' has no image size", "the keys image_width and image_height", remedy)
    taken = f"camera '{path}' has no image size: {size[0]}x{size[1]} is taken"
    off = np.abs(camera.K[:2, 2] - 0.5 * (np.array(size) - 1.0))
    if (off > 0.5 * np.array(size)).any():
        got = f"{taken}, but its principal point {camera.K[0, 2]:g}, {camera.K[1, 2]:g} is outside"
        raise InputError(got, "intrinsics of images of this size", "scale fx, fy, cx, cy, or calibrate again")
    if (off > _LARGEST_OFFSET * np.array(size)).any():
        taken += f"; the principal point is {off.max():.0f} px off the middle: was it calibrated at another size?"
        warnings.warn(warning(taken), stacklevel=3)
    else:
        warnings.warn(taken, stacklevel=3)
    return replace(camera, width=size[0], height=size[1])


def _format_of(source: Source) -> ModuleType:
    for name in formats():
        module = importlib.import_module(f"{__name__}.{name}")
        if module.matches(source):
            return module
    refuse_known("camera", source.path, A_CAMERA)
    remedy = "write fx, fy, cx, cy, width and height (and k1 ...) as YAML, or convert it to ROS camera_info"
    raise InputError(f"'{source.path}' is in none of the known camera formats", A_CAMERA, remedy)

"""OpenCV FileStorage (YAML, XML) with the keys of OpenCV's calibration samples or of the VINS family.

OpenCV's omnidirectional sample adds `xi`. VINS files have `model_type` and `projection_parameters`, with the models of
the library camodocal. Limit: VINS extrinsics are camera-to-IMU, so they are not used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.camera._lens import Lens, as_shown, make_lens, unsupported
from vid2phys.io.camera._lens_keys import read_lens
from vid2phys.io.camera._parse import (
    A_CAMERA,
    Source,
    choose,
    make_camera,
    matrix,
    matrix_of,
    pinhole,
    pose_of,
    size_of,
)
from vid2phys.io.camera._storage import is_storage, read_tree
from vid2phys.io.unsupported import refuse_known
from vid2phys.types import Array, Camera

_PLAIN, _GAMMA, _MU = ("fx", "fy", "cx", "cy"), ("gamma1", "gamma2", "u0", "v0"), ("mu", "mv", "u0", "v0")
_OF_VINS = (
    "model_type",
    "projection_parameters",
    "distortion_parameters",
    "mirror_parameters",
    "fisheye",
    "fisheye_mask",
)
_BROWN = ("k1", "k2", "p1", "p2")
# camodocal's models: ours, the names of K, and where the coefficients are: (key, names) in our order.
_CAMODOCAL: dict[str, tuple[str, tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]] = {
    "PINHOLE": ("plumb_bob", _PLAIN, (("distortion_parameters", _BROWN),)),
    "PINHOLE_FULL": (
        "rational_polynomial",
        _PLAIN,
        (("distortion_parameters", (*_BROWN, "k3", "k4", "k5", "k6")),),
    ),
    "KANNALA_BRANDT": ("equidistant", _MU, (("projection_parameters", ("k2", "k3", "k4", "k5")),)),
    "MEI": ("omni", _GAMMA, (("mirror_parameters", ("xi",)), ("distortion_parameters", _BROWN))),
}


def matches(source: Source) -> bool:
    """Return whether the file is in OpenCV's dialect, or a mapping with the VINS keys."""
    return is_storage(source.text) or (isinstance(source.data, dict) and "model_type" in source.data)


def load(source: Source, camera_name: str | None, poses: dict[str, Array]) -> Camera:
    """Return the camera of the file."""
    path = source.path
    tree = read_tree(path, source.text) if is_storage(source.text) else source.data
    name = choose(path, [str(tree.get("camera_name") or Path(path).stem)], camera_name)
    K, lens = _vins(path, tree) if tree.get("model_type") is not None else _intrinsics(path, tree)
    return make_camera(path, K, lens, size_of(path, tree), poses.get(name, pose_of(path, tree)), name)


def _intrinsics(path: str | Path, tree: dict[str, Any]) -> tuple[Array, Lens]:
    K = matrix_of(path, tree, ("camera_matrix", "K", "M1", "intrinsic_matrix", "M"))
    if K is None:
        refuse_known("camera", path, A_CAMERA)
        remedy = "write the result of cv2.calibrateCamera into it"
        raise InputError(f"'{path}' has no camera matrix", "the key camera_matrix", remedy)
    return as_shown(path, tree, K, read_lens(path, tree, used=("M2", "D2")))  # the second camera of a pair


def _vins(path: str | Path, tree: dict[str, Any]) -> tuple[Array, Lens]:
    name = str(tree["model_type"]).upper()
    if name not in _CAMODOCAL:
        raise unsupported(path, name)
    model, of_K, groups = _CAMODOCAL[name]
    K = pinhole(*_numbers(path, tree, "projection_parameters", of_K))
    if read_lens(path, tree, used=_OF_VINS).coefficients.any():
        got = f"'{path}' has distortion coefficients beside those of {name}"
        raise InputError(got, "distortion_parameters only", "keep the right ones")
    _refuse_more(path, tree, {of_K: "projection_parameters"} | {names: key for key, names in groups})
    return K, make_lens(path, model, np.concatenate([_numbers(path, tree, key, names) for key, names in groups]))


def _refuse_more(path: str | Path, tree: dict[str, Any], used: dict[tuple[str, ...], str]) -> None:
    """Raise InputError for a coefficient that the model does not have."""
    for key in ("distortion_parameters", "mirror_parameters"):
        data = tree.get(key)
        known = [name for names, at in used.items() if at == key for name in names]
        more = [n for n, value in data.items() if n not in known and value] if isinstance(data, dict) else []
        if more:
            got = f"'{key}' in '{path}' has {more[0]}, which {tree['model_type']} does not have"
            raise InputError(got, ", ".join(known) or "none", "check model_type")


def _numbers(path: str | Path, tree: dict[str, Any], key: str, names: tuple[str, ...]) -> Array:
    data = tree.get(key)
    data = data if isinstance(data, dict) else {}
    missing = [name for name in names if data.get(name) is None]
    if missing:
        raise InputError(f"'{key}' in '{path}' has no {missing[0]}", ", ".join(names), "check the file")
    return matrix(path, key, [data[name] for name in names], (len(names),))

"""Check the lens of a camera: models by all their names, coefficients, and images that were rectified."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.camera._parse import is_matrix, matrix, plain_key
from vid2phys.types import Array

COEFFICIENTS = {
    "plumb_bob": ("k1", "k2", "p1", "p2", "k3"),
    "rational_polynomial": ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"),
    "equidistant": ("k1", "k2", "k3", "k4"),
    "omni": ("xi", "k1", "k2", "p1", "p2"),
}
_COUNTS = {"plumb_bob": (0, 4, 5), "rational_polynomial": (8,), "equidistant": (4,), "omni": (5,)}

# Names that stand for more than one model, or for one of ours only where coefficients are zero.
OPEN = ""  # a projection by which the distortion stays open
NONE = "none"
OPENCV = "opencv"  # plumb_bob or rational_polynomial, by the number of coefficients
INVERSE = "inverse_brown_conrady"  # RealSense: from the distorted image to the undistorted one
MODIFIED = "modified_brown_conrady"  # RealSense: the tangential part is computed from radially distorted points
# What files call the models, without case, separators and a leading `distortion`.
_NAMES = {
    **dict.fromkeys(("", "pinhole", "simplepinhole", "perspective"), OPEN),
    **dict.fromkeys(("none", "undistorted"), NONE),
    **dict.fromkeys(("perspectivewithoutdistortion", "perspectiveprojwithoutdistortion"), NONE),  # ViSP
    **dict.fromkeys(("perspectivewithdistortion", "perspectiveprojwithdistortion"), "plumb_bob"),
    "opencv": OPENCV,
    **dict.fromkeys(("plumbbob", "radtan", "pinholeradtan", "radialtangential", "brownconrady"), "plumb_bob"),
    **dict.fromkeys(("radial", "simpleradial"), "plumb_bob"),
    **dict.fromkeys(("rationalpolynomial", "rational", "fullopencv"), "rational_polynomial"),
    **dict.fromkeys(("equidistant", "equi", "pinholeequi", "fisheye", "opencvfisheye"), "equidistant"),
    **dict.fromkeys(("kannalabrandt", "kannalabrandt4", "kannalabrandt8", "kb4"), "equidistant"),
    **dict.fromkeys(("omni", "omniradtan", "mei"), "omni"),
    "inversebrownconrady": INVERSE,
    "modifiedbrownconrady": MODIFIED,
}
RECTIFIED = ("rectified", "isrectified", "undistorted", "isundistorted")
_ROTATION, _PROJECTION = "rectification_matrix", "projection_matrix"
RECTIFICATION = (plain_key(_ROTATION), plain_key(_PROJECTION), *RECTIFIED)
_SAME = 1e-6  # relative, as files round


@dataclass(frozen=True)
class Lens:
    """A distortion model by our name and its coefficients, [D] in the order of COEFFICIENTS (empty: none)."""

    model: str = "plumb_bob"
    coefficients: Array = field(default_factory=lambda: np.zeros(0))


def model_named(name: str) -> str | None:
    """Return our name of a model, OPEN, NONE, OPENCV, INVERSE or MODIFIED; None for what is not known."""
    plain = plain_key(name).removeprefix("rs2")
    return _NAMES.get(plain.removeprefix("distortion"))


def unsupported(path: str | Path, model: str, key: str | None = None) -> InputError:
    """Return the error for an unsupported model. key: that holds its name, if the key may name something else."""
    expected = ", ".join(COEFFICIENTS) + " (radtan = plumb_bob, KANNALA_BRANDT = fisheye = equidistant, MEI = omni)"
    got = f"camera '{path}' uses the model '{model}'" + (f" (its key '{key}')" if key else "")
    other = f", or delete '{key}' if it names something else" if key else ""
    return InputError(got, expected, f"calibrate with one of these{other}")


def make_lens(path: str | Path, model: str, coefficients: Array) -> Lens:
    """Return a checked lens. Zeros beyond the model's own coefficients are left out.

    model: by any of its names. coefficients: [D]. Raises InputError for other models, and for a wrong number of
    coefficients. Where the name leaves the model open, the number decides.
    """
    known = model_named(model)
    if known in (NONE, INVERSE, MODIFIED):
        return _almost_none(path, model, coefficients)
    if known in (OPEN, OPENCV):
        coefficients = _without_zeros(coefficients, 8)
        if len(coefficients) > 8:
            raise unsupported(path, f"OpenCV with {len(coefficients)} coefficients (thin prism, tilt)")
        known = "rational_polynomial" if len(coefficients) == 8 else "plumb_bob"
    if known not in COEFFICIENTS:
        raise unsupported(path, model)
    coefficients = _without_zeros(coefficients, len(COEFFICIENTS[known]))
    if len(coefficients) not in _COUNTS[known]:
        counts = " or ".join(str(n) for n in _COUNTS[known])
        got = f"camera '{path}' has {len(coefficients)} distortion coefficients for {known}"
        raise InputError(got, counts, "check distortion_model")
    if known == "omni" and coefficients[0] < 0.0:
        raise InputError(f"camera '{path}' has xi = {coefficients[0]:g}", "0 or more", "check the order of its numbers")
    return Lens(known, coefficients)


def as_shown(path: str | Path, data: dict[str, Any], K: Array, lens: Lens) -> tuple[Array, Lens]:
    """Return K [3, 3] px and the lens of the images that the clip shows, as recorded or rectified.

    A ROS file describes both: camera_matrix and distortion belong to the images as recorded, projection_matrix to the
    rectified ones. The key `rectified` decides. Without it, the images are those as recorded; where the file also has a
    rotation to rectified ones, a warning says so. A camera without distortion may be of either, if its matrices differ:
    then InputError asks for the key.
    """
    keys = {plain_key(key): value for key, value in data.items()}
    flags = [read_flag(path, key, keys[key]) for key in RECTIFIED if keys.get(key) is not None]
    ros = is_matrix(keys.get("p"))  # a message; else R may be the rotation of a pose
    rotation = _matrix_under(path, keys, _ROTATION, "r" if ros else "", (3, 3))
    projection = _matrix_under(path, keys, _PROJECTION, "p", (3, 4))
    rotated = rotation is not None and not np.allclose(rotation, np.eye(3), atol=_SAME)
    other = projection is not None and not np.allclose(projection[:, :3], K, rtol=_SAME, atol=1e-3)
    if len(set(flags)) > 1:
        raise InputError(f"'{path}' has two keys for rectified images that differ", "one", "keep the right one")
    if not flags and rotated and lens.coefficients.any():
        warnings.warn(
            f"camera '{path}' has a rectification_matrix: camera_matrix and distortion of the images as recorded are "
            "used; add `rectified: true` if the clip shows rectified images",
            stacklevel=2,
        )
    elif not flags and (rotated or other) and not lens.coefficients.any():
        what = "a rectification_matrix" if rotated else "a projection_matrix that differs from its camera_matrix"
        what += " and no distortion"
        remedy = "add `rectified: false` if the clip shows the images as recorded, `rectified: true` if rectified"
        raise InputError(f"camera '{path}' has {what}", "the key rectified beside it", remedy)
    if not any(flags):
        return K, lens
    if projection is not None:
        return projection[:, :3], Lens()
    if rotated or lens.coefficients.any():
        got = f"camera '{path}' is marked as rectified, but it has a distortion or rotation and no projection_matrix"
        raise InputError(got, "the matrix of the rectified images", "add projection_matrix, or set rectified: false")
    return K, lens


def read_flag(path: str | Path, key: str, value: Any) -> bool:
    """Return a yes or no that a file may write as a word or a number. Raises InputError for anything else."""
    word = str(value).strip().lower()
    if word in ("true", "yes", "1", "1.0"):
        return True
    if word in ("false", "no", "0", "0.0", "none", ""):
        return False
    raise InputError(f"'{key}' in '{path}' is {value!r}", "true or false", "correct the file")


def _almost_none(path: str | Path, model: str, coefficients: Array) -> Lens:
    """Return a lens without distortion, or plumb_bob for MODIFIED without a tangential part, where both agree.

    Raises InputError for a model with other coefficients.
    """
    if not coefficients.any():
        return Lens()
    if model_named(model) == NONE:
        got = f"camera '{path}' has the model '{model}' and coefficients that are not zero"
        raise InputError(got, "one of them", "correct the model or the coefficients")
    if model_named(model) == MODIFIED and not coefficients[2:4].any():
        return make_lens(path, "plumb_bob", coefficients)
    raise unsupported(path, model)


def _without_zeros(coefficients: Array, most: int) -> Array:
    return coefficients[:most] if not coefficients[most:].any() else coefficients


def _matrix_under(
    path: str | Path, keys: dict[str, Any], name: str, short: str, shape: tuple[int, int]
) -> Array | None:
    """Return the matrix under either key; None where there is none, or only zeros (a camera that is not calibrated)."""
    value = next((keys[key] for key in (plain_key(name), short) if is_matrix(keys.get(key))), None)
    found = None if value is None else matrix(path, name, value, shape)
    return found if found is not None and found.any() else None

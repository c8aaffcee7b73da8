"""Read the lens of a camera from the keys of its mapping.

Every key that describes the lens is used, or refused by name.

All formats that name their numbers use `read_lens`. It walks through the mapping of one camera, nested parts included,
and collects what the keys state about model and coefficients. Keys that contradict each other are refused. So are
unknown keys that look like those of a lens, unless the value is zero or empty. Lists of coefficients have the order of
OpenCV.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vid2phys.errors import InputError
from vid2phys.io.camera._lens import (
    COEFFICIENTS,
    MODIFIED,
    NONE,
    OPEN,
    OPENCV,
    RECTIFICATION,
    Lens,
    make_lens,
    model_named,
    read_flag,
    unsupported,
)
from vid2phys.io.camera._parse import matrix, plain_key
from vid2phys.types import Array

_COEFFICIENTS = r"(coeff?s?|coefficients?|params?|parameters?|vector|values?)?"
_MODEL = re.compile(
    r"(cam|camera|calibration|intrinsics?|lens|projection|dist|distortion|fisheye)*(model|type)(name)?|lens|projection"
)
_LIST = re.compile(rf"kc|coeff?s?|coefficients?|d1?{_COEFFICIENTS}|(cam|camera|lens)*dist(ortions?)?{_COEFFICIENTS}")
_FISHEYE_FLAG = re.compile(r"(is|use|b)?fisheye(model|lens|camera)?")
_FISHEYE_LIST = re.compile(rf"fisheye(dist(ortion)?)?{_COEFFICIENTS}")
_RADIAL = re.compile(rf"(radial|tangential)(dist(ortion)?)?{_COEFFICIENTS}")
_NUMBER = re.compile(r"(?:cam|camera|lens|dist|distortion|radial|tangential|fisheye|coeff)*(k[1-6]|p[12]|xi|kud|kdu)")
_SKEW = re.compile(r"(axis)?skew\w*|alphac")
# A tracker's min_dist is no lens, nor is a distance.
_LIKE_A_LENS = re.compile(
    r"(?<!min)(?<!max)dist(?!anc|rib)|fisheye|lens|radial|tangential|skew|^kc|^[ks]\d$|^tau|^xi$|ftheta|rectif|conrady|"
    r"barrel|pincushion|poly(?!gon)|kappa"
)
# Coefficients of models that are not supported: double sphere, EUCM, field of view, division, Brown beyond p2.
_OTHER_MODEL = re.compile(r"alpha|beta|omega|division\w*|p[3-9]|b[12]|\w*coef\w*")
# Common words: they describe the lens in the mapping of the camera, beside it, or in a part named after a lens.
_NAMES = ("model", "type", "projection")
_COMMON = re.compile(r"d1?|kc|coeff?s?|coefficients?|p[12]|s[1-4]")
_SAME = 1e-6  # relative, as files round


def read_lens(
    path: str | Path, data: dict[str, Any], around: dict[str, Any] | None = None, used: Collection[str] = ()
) -> Lens:
    """Return the lens that the keys of a camera describe; without any, one without distortion.

    data: the mapping of the camera. around: what stands beside the camera in its file; common words in its parts
    (`model`, `d`) do not count. used: keys of the camera that its format reads itself. Raises InputError for keys that
    contradict each other or look like a lens's but are not known, and for models that are not supported.
    """
    statements = _Statements(str(path))
    for at, value in _leaves({key: value for key, value in data.items() if str(key) not in used}):
        statements.add(at, value, own=True)
    for at, value in _leaves(around or {}):
        statements.add(at, value, own=False)
    return statements.lens()


def _leaves(data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all values that are no mappings, with the keys that lead to them; {rows, cols, data} is a value."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), data)]
    while waiting:
        at, value = waiting.pop()
        if isinstance(value, dict) and not (at and isinstance(value.get("data"), list | tuple)):
            waiting += [((*at, str(key)), item) for key, item in reversed(value.items())]
        else:
            yield at, value


class _Statements:
    """What the keys of one camera state, by key."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._models: dict[str, str] = {}  # as the file calls them
        self._fisheye: dict[str, bool] = {}
        self._lists: dict[str, Array] = {}
        self._fisheye_lists: dict[str, Array] = {}
        self._numbers: dict[str, float] = {}  # by the coefficient's name
        self._unknown: list[str] = []  # keys that look like those of a lens

    def add(self, at: tuple[str, ...], value: Any, *, own: bool) -> None:
        """Take in one value. own: it stands in the camera's mapping. Raises InputError for skew and for bad values."""
        words = [plain_key(word) for word in at]
        key, leaf = "/".join(at), words[-1]
        in_lens = any(_LIKE_A_LENS.search(word) for word in words[:-1])
        if value is None or not leaf or (leaf in RECTIFICATION and len(at) == 1):  # see `as_shown`
            return
        if _NUMBER.fullmatch(leaf) and isinstance(value, list) and len(value) == 1:  # k1: [0.1]
            value = value[0]
        value = _as_number(value)
        if leaf in _NAMES and not in_lens and not (own and len(at) == 1):
            if isinstance(value, str) and model_named(value) is not None:
                self._models[key] = value
        elif _COMMON.fullmatch(leaf) and not (own or in_lens or len(at) == 1):
            return
        elif _SKEW.fullmatch(leaf) and not _says_nothing(value):
            raise InputError(f"camera '{self._path}' has skew ('{key}')", "none", "calibrate without skew")
        elif self._is_known(key, leaf, value, any("fisheye" in word for word in words), in_lens):
            return
        elif (in_lens or _is_like_a_lens(leaf, value, own=own and len(at) == 1)) and not _says_nothing(value):
            self._unknown.append(key)

    def _is_known(self, key: str, leaf: str, value: Any, fisheye: bool, in_lens: bool) -> bool:
        """Return whether the key is one of a lens, and keep its value if so."""
        names_model = _MODEL.fullmatch(leaf) or _LIST.fullmatch(leaf) or _FISHEYE_FLAG.fullmatch(leaf)
        word = isinstance(value, str) and value.strip().lower() not in ("true", "false")
        numeral = isinstance(value, int | float) and not isinstance(value, bool)
        if _FISHEYE_FLAG.fullmatch(leaf) and not word and np.isscalar(value):
            self._fisheye[key] = read_flag(self._path, key, value)
        elif word and (names_model or (in_lens and leaf == "name")):
            self._models[key] = value
        elif numeral and (found := _NUMBER.fullmatch(leaf)):
            self._add_number(key, found[1], float(value))
            if fisheye and value:
                self._fisheye[key] = True
        elif not isinstance(value, list | dict | np.ndarray):
            return False
        elif _RADIAL.fullmatch(leaf):
            names = ("k1", "k2", "k3") if leaf.startswith("radial") else ("p1", "p2")
            numbers = matrix(self._path, key, value)
            if len(numbers) > len(names):
                got = f"'{key}' in '{self._path}' has {len(numbers)} numbers"
                raise InputError(got, f"up to {len(names)}: {', '.join(names)}", "give each under its name")
            for name, number in zip(names, numbers, strict=False):
                self._add_number(key, name, float(number))
        elif _LIST.fullmatch(leaf) or _FISHEYE_LIST.fullmatch(leaf):
            numbers = matrix(self._path, key, value)
            if len(numbers):
                (self._fisheye_lists if fisheye else self._lists)[key] = numbers
        else:
            return False
        return True

    def _add_number(self, key: str, name: str, value: float) -> None:
        if not np.isfinite(value):
            raise InputError(f"'{key}' in '{self._path}' is not finite", "numbers", "calibrate again")
        if self._numbers.setdefault(name, value) != value:
            raise InputError(f"'{self._path}' has two values of {name} ('{key}')", "one", "keep the right one")

    def lens(self) -> Lens:
        """Return what all keys say together.

        Raises InputError where keys contradict each other, and for unknown keys that look like those of a lens.
        """
        model, xi = self._model(), self._numbers.pop("xi", None)
        if self._unknown:
            expected = "known keys of a lens: distortion_model, distortion_coefficients, k1, k2, p1, p2, k3 ..."
            remedy = "write the value under one of these, or delete the key if it does not describe the distortion"
            raise InputError(f"camera '{self._path}' has the unknown key '{self._unknown[0]}'", expected, remedy)
        if xi is not None:
            if model_named(model) not in (OPEN, NONE, OPENCV, "plumb_bob", "omni"):
                raise unsupported(self._path, f"omni with {model}")
            model = "omni"
        coefficients = self._coefficients(model)
        if xi is not None:
            coefficients = np.concatenate([[xi], coefficients if len(coefficients) else np.zeros(4)])
        return make_lens(self._path, model, coefficients)

    def _model(self) -> str:
        """Return the model that all keys allow, by the name in the file. Raises InputError where there is none."""
        named_models: dict[str, str] = {}  # the key by our name of the model
        for key, written in self._models.items():
            name = model_named(written)
            if name is None:
                raise unsupported(self._path, written, key)
            if name != OPEN:
                named_models[name] = key
        fisheye = [key for key, is_fisheye in self._fisheye.items() if is_fisheye]
        other = [key for key, is_fisheye in self._fisheye.items() if not is_fisheye]
        for key, numbers in list(self._fisheye_lists.items()):
            if numbers.any() or (not other and (fisheye or "equidistant" in named_models)):
                fisheye.append(key)
            elif other:
                del self._fisheye_lists[key]
            else:
                got = f"'{key}' in '{self._path}' is zero and nothing says whether the lens is a fisheye"
                raise InputError(got, "distortion_model", "add it: equidistant for a fisheye, else plumb_bob")
        if fisheye:
            named_models.setdefault("equidistant", fisheye[0])
        for general, special in (
            (OPENCV, ("plumb_bob", "rational_polynomial", NONE, MODIFIED)),
            ("plumb_bob", ("omni",)),  # Kalibr: the projection of one, the coefficients of the other
            (NONE, ("omni",)),
        ):
            if any(name in named_models for name in special):
                named_models.pop(general, None)
        if set(named_models) == {"omni", "equidistant"}:
            raise unsupported(self._path, "omni with equidistant")
        if len(named_models) > 1 or ("equidistant" in named_models and other):
            keys = [*named_models.values(), *(other if "equidistant" in named_models else ())]
            raise self._contradiction(keys, "one model")
        name, key = next(iter(named_models.items()), (OPEN, ""))
        return self._models.get(key, name)

    def _coefficients(self, model: str) -> Array:
        """Return the coefficients [D] on which lists and named numbers agree. Raises InputError where they differ."""
        self._take_visp()
        known, lists = model_named(model) or "", {**self._lists, **self._fisheye_lists}
        if not lists:
            return self._by_name(known)
        longest, shortest = max(lists.values(), key=len), min(lists.values(), key=len)
        for numbers in lists.values():
            if not _same(np.concatenate([numbers, np.zeros(len(longest) - len(numbers))]), longest):
                raise self._contradiction(list(lists), "the same coefficients")
        if known not in COEFFICIENTS:
            known = "rational_polynomial" if len(shortest) > 5 else "plumb_bob"
        listed = dict(zip(_order(known), shortest, strict=False))
        for name, number in self._numbers.items():
            if not _same(number, listed.get(name, 0.0)):
                raise self._contradiction([next(iter(lists)), name], "the same coefficients")
        return shortest

    def _take_visp(self) -> None:
        """Take ViSP's kud for k1. kdu, its inverse, adds nothing; without kud it is no supported model."""
        radial, inverse = self._numbers.pop("kud", None), self._numbers.pop("kdu", 0.0)
        if inverse and not radial:
            raise unsupported(self._path, "ViSP's kdu without kud")
        if radial is not None:
            self._add_number("kud", "k1", radial)

    def _by_name(self, model: str) -> Array:
        """Return the coefficients that have keys of their own, in the order of the model; empty without any."""
        numbers = self._numbers
        if not numbers:
            return np.zeros(0)
        if any(numbers.get(name) for name in ("k4", "k5", "k6")) and model in (OPEN, OPENCV):
            if not all(name in numbers for name in ("k4", "k5", "k6")):
                got = f"camera '{self._path}' has {', '.join(numbers)}, which leaves its model open"
                remedy = "add distortion_model: equidistant (a fisheye), or k4 to k6 of rational_polynomial"
                raise InputError(got, "distortion_model", remedy)
            model = "rational_polynomial"
        order = _order(model)
        beyond = [name for name, value in numbers.items() if name not in order and value]
        if beyond:
            got = f"camera '{self._path}' has {beyond[0]}, which {model or 'plumb_bob'} does not have"
            raise InputError(got, ", ".join(order), "check the model")
        return np.array([numbers.get(name, 0.0) for name in order])

    def _contradiction(self, keys: list[str], expected: str) -> InputError:
        named = " and ".join(f"'{key}'" for key in keys)
        return InputError(f"{named} in '{self._path}' contradict each other", expected, "keep the right one")


def _order(model: str) -> list[str]:
    """Return the names of a model's coefficients without xi; those of plumb_bob for a model that is open."""
    return [name for name in COEFFICIENTS.get(model, COEFFICIENTS["plumb_bob"]) if name != "xi"]


def _same(one: ArrayLike, other: ArrayLike) -> bool:
    return np.allclose(one, other, rtol=_SAME, atol=0.0)


def _is_like_a_lens(leaf: str, value: Any, *, own: bool) -> bool:
    """Return whether an unknown key looks like one of a lens. own: whether the key stands beside the focal lengths."""
    if isinstance(value, str) and _NUMBER.fullmatch(leaf):
        return True  # k1: "0,1"
    return bool(_LIKE_A_LENS.search(leaf) or (own and _OTHER_MODEL.fullmatch(leaf)))


def _as_number(value: Any) -> Any:
    """Return a text as a number where it is one, since YAML takes 1e-3 for a text; else the value itself."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _says_nothing(value: Any) -> bool:
    """Return whether a value is empty, no, or zero throughout, so that its key can be ignored."""
    if isinstance(value, dict):
        value = value["data"]
    if isinstance(value, str):
        return value.strip().lower() in ("", "none", "false", "no", "0")
    try:
        return not np.asarray(value, dtype=float).any()
    except (TypeError, ValueError, OverflowError):
        return False

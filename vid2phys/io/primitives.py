"""Make meshes of simple bodies from their dimensions: `ball:d=66mm`, `box:120x80x50mm`, `cylinder:d=40mm,h=100mm` ...

`load_body` and `load_surface` return the mesh of a file or of a primitive, so that a caller need not know which one a
user gave. A new primitive is one entry of `_PRIMITIVES`: a function of lengths in metres, and an example. The
function's parameters are the dimensions, in the order in which a user may give them without their names.

A mesh is centred at its centre of mass, and closed. The axis of a body of revolution is z.

Limits: curved surfaces are facets. Silhouettes are within 0.1 % of the radius.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vid2phys.errors import UsageError, unknown_name
from vid2phys.io.mesh import UNITS_M, load_mesh
from vid2phys.types import Mesh

if TYPE_CHECKING:
    import trimesh

SMALLEST_M, LARGEST_M = 1e-3, 20.0
_SUBDIVISIONS, _SIDES = 4, 96
_LENGTH = re.compile(r"([-+]?(?:[0-9.]+(?:e[-+]?[0-9]+)?|nan|inf(?:inity)?))\s*([a-z]*)")


def _ball(d: float) -> trimesh.Trimesh:
    """Return a ball of diameter d. Its volume is exact, so that its facets lie on both sides of the sphere."""
    from trimesh.creation import icosphere

    ball = icosphere(_SUBDIVISIONS, 0.5 * d)
    return ball.apply_scale((np.pi * d**3 / 6.0 / ball.volume) ** (1.0 / 3.0))


def _box(x: float, y: float, z: float) -> trimesh.Trimesh:
    """Return a box with edges x, y and z along the axes of these names."""
    from trimesh.creation import box

    return box((x, y, z))


def _cylinder(d: float, h: float) -> trimesh.Trimesh:
    """Return a cylinder of diameter d and height h."""
    from trimesh.creation import cylinder

    return cylinder(0.5 * d, h, sections=_SIDES)


def _capsule(d: float, h: float) -> trimesh.Trimesh:
    """Return a cylinder of diameter d with two half balls as ends, h long in all. Raises UsageError for h below d."""
    from trimesh.creation import revolve

    if h <= d:
        got = f"a capsule of h={1e3 * h:g}mm and d={1e3 * d:g}mm"
        raise UsageError(got, "h above d, since h is the whole length", "give the whole length, or take a ball")
    angle = np.linspace(-0.5 * np.pi, 0.0, _SIDES // 4 + 1)
    end = 0.5 * d * np.stack([np.cos(angle), np.sin(angle)], axis=1) - [0.0, 0.5 * (h - d)]
    end[0, 0] = 0.0  # on the axis
    return revolve(np.concatenate([end, end[::-1] * [1.0, -1.0]]), sections=_SIDES)


class _Kind(NamedTuple):
    """How to make a primitive. example: its dimensions, as a user gives them."""

    make: Callable[..., trimesh.Trimesh]
    example: str

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Return the names of the dimensions."""
        return tuple(inspect.signature(self.make).parameters)


_PRIMITIVES = {
    "ball": _Kind(_ball, "d=66mm"),
    "box": _Kind(_box, "120x80x50mm"),
    "cylinder": _Kind(_cylinder, "d=40mm,h=100mm"),
    "capsule": _Kind(_capsule, "d=40mm,h=100mm"),
}


@dataclass(frozen=True)
class Primitive:
    """A simple body. kind: its name in `_PRIMITIVES`. lengths_m: by dimension, m."""

    kind: str
    lengths_m: dict[str, float]

    @property
    def name(self) -> str:
        """Return a name such as `ball_66mm`, which is a file's name, too."""
        return f"{self.kind}_{'x'.join(f'{1e3 * length:.6g}' for length in self.lengths_m.values())}mm"

    def mesh(self) -> Mesh:
        """Return the mesh, m. Raises UsageError for dimensions that do not fit each other."""
        solid = _PRIMITIVES[self.kind].make(**self.lengths_m)
        faces = np.ascontiguousarray(solid.faces, dtype=np.int64)
        vertices = np.asarray(solid.vertices, dtype=float) - solid.center_mass
        return Mesh(vertices, faces, np.zeros(len(faces), dtype=np.int64), name=self.name)


def load_body(
    mesh: str | Path | None = None, body: str | Path | None = None, units: str = "m", move: str | None = None
) -> Mesh:
    """Return the mesh, in metres, of a file or of a primitive.

    Args:
        mesh: path of a mesh.
        body: the primitive that stands in its place, such as `ball:d=66mm`.
        units: of the mesh.
        move: of the mesh to the body's axes and origin (`io/move.py`).

    Raises:
        InputError: the mesh is not readable (`load_mesh`).
        UsageError: none or both are given; `body` is no primitive, or stands beside what is for meshes alone.
    """
    if body is None:
        if mesh is None:
            raise UsageError("no --mesh and no --body", "one of them", f"for example --body {_example('ball')}")
        return load_mesh(mesh, units, move=move)
    others = {"--mesh": mesh, "--mesh-units": units if units != "m" else None, "--mesh-move": move}
    for flag, given in others.items():
        if given is not None:
            expected = "one of them" if flag == "--mesh" else "no such option: a primitive has its own units and axes"
            raise UsageError(f"{flag} {given} beside --body {body}", expected, f"leave {flag} out")
    return parse_primitive(body).mesh()


def load_surface(source: str | Path, units: str = "m", *, units_flag: str) -> Mesh:
    """Return the mesh, in metres, of a file or of a primitive that `source` names.

    units: of a file. units_flag: the option that sets them, for errors. Raises InputError as `load_mesh`, and
    UsageError for a primitive that is none, or that is given units.
    """
    if not is_primitive(source):
        return load_mesh(source, units, units_flag=units_flag)
    if units != "m":
        expected = "no such option: a primitive has its own units"
        raise UsageError(f"{units_flag} {units} for {source}", expected, f"leave {units_flag} out")
    return parse_primitive(source).mesh()


def is_primitive(source: str | Path | None) -> bool:
    """Return whether a text names a primitive, known or not, rather than a file."""
    name, colon, _ = str(source or "").partition(":")
    return name.lower() in _PRIMITIVES or bool(colon and name.isalpha() and len(name) > 1)  # C:\file is a path


def parse_primitive(text: str | Path) -> Primitive:
    """Return the primitive that a text names. Raises UsageError for an unknown one, and for wrong dimensions."""
    text = str(text)
    kind, _, rest = text.strip().lower().replace("\u00d7", "x").partition(":")
    if kind not in _PRIMITIVES:
        got, expected = f"unknown primitive '{kind}'", f"one of {', '.join(_PRIMITIVES)}"
        raise UsageError(got, expected, f"for example {_example('ball')}; a file of a mesh is given by --mesh")
    words = _words(text, kind, rest)
    _require_units(text, kind, words)
    found = {name: _length(text, word) for name, word in words.items()}
    if "r" in found:
        found["d"] = 2.0 * found.pop("r")
    for name, length in found.items():
        _check_size(text, name, length)
    return Primitive(kind, {name: found[name] for name in _PRIMITIVES[kind].dimensions})


def _words(text: str, kind: str, rest: str) -> dict[str, str]:
    """Return number and unit, as text, by dimension. The unit after the last of several numbers serves all."""
    names = _PRIMITIVES[kind].dimensions
    expected, example = " and ".join(names), f"for example {_example(kind)}"
    if "=" not in rest:
        words = [word.strip() for word in rest.split("x")] if rest.strip() else []
        if len(words) != len(names):
            got = f"'{text}' has {len(words)} length{'s' * (len(words) != 1)}"
            raise UsageError(got, f"{len(names)} ({expected})", example)
        unit = _parts(text, words[-1])[1]
        if not any(_parts(text, word)[1] for word in words[:-1]):
            words = [word + unit for word in words[:-1]] + words[-1:]
        return dict(zip(names, words, strict=True))
    found: dict[str, str] = {}
    for group in rest.split(","):
        name, equals, word = (part.strip() for part in group.partition("="))
        if not equals or (name not in names and not (name == "r" and "d" in names)):
            raise UsageError(f"unknown dimension '{name}' in '{text}'", expected, example)
        if name in found or {name, *found} >= {"d", "r"}:
            raise UsageError(f"the dimension '{name}' of '{text}' is given twice", "once", example)
        found[name] = word
    missing = [name for name in names if name not in found and not (name == "d" and "r" in found)]
    if missing:
        raise UsageError(f"'{text}' lacks {' and '.join(missing)}", expected, example)
    return found


def _require_units(text: str, kind: str, words: dict[str, str]) -> None:
    """Raise UsageError, with a proposal, where a length has no unit."""
    parts = {name: _parts(text, word) for name, word in words.items()}
    if all(unit for _, unit in parts.values()):
        return
    guess = "m" if max(abs(float(number)) for number, _ in parts.values()) < 1.0 else "mm"
    unit = next((unit for _, unit in parts.values() if unit), guess)
    proposal = f"{kind}:{','.join(f'{name}={number}{own or unit}' for name, (number, own) in parts.items())}"
    if "=" not in text and not any(own for _, own in parts.values()):
        proposal = text + unit
    got = f"'{text}' has a length without a unit"
    raise UsageError(got, f"a unit after each number ({', '.join(UNITS_M)})", f"for example {proposal}")


def _parts(text: str, word: str) -> tuple[str, str]:
    """Return number and unit of a length. Raises UsageError for what is no number."""
    match = _LENGTH.fullmatch(word)
    try:
        float(match[1] if match else "")
    except ValueError:
        raise UsageError(f"'{word}' in '{text}'", "a number with a unit", "for example 66mm") from None
    assert match is not None
    return match[1], match[2]


def _length(text: str, word: str) -> float:
    """Return a length [m]. Raises UsageError for an unknown unit, and for what is no positive, finite number."""
    number, unit = _parts(text, word)
    if unit not in UNITS_M:
        raise unknown_name("unit", unit, tuple(UNITS_M))
    length = float(number) * UNITS_M[unit]
    if not 0.0 < length < float("inf"):
        raise UsageError(f"a length of {number} {unit} in '{text}'", "a positive, finite number", "for example 66mm")
    return length


def _check_size(text: str, name: str, length: float) -> None:
    """Raise UsageError for a length whose unit is most likely another."""
    if not SMALLEST_M <= length <= LARGEST_M:
        expected = f"{1e3 * SMALLEST_M:g} mm to {LARGEST_M:g} m"
        raise UsageError(f"{name} of '{text}' is {length:.4g} m", expected, "the unit is probably wrong: check it")


def _example(kind: str) -> str:
    return f"{kind}:{_PRIMITIVES[kind].example}"

"""Read the materials that an OBJ file names: an image, or a colour where there is none."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from vid2phys.errors import InputError
from vid2phys.io.files import read_text

# Options of `map_Kd` and how many words follow each (Wavefront's MTL specification); none of them is honoured.
_OPTIONS = {"-blendu": 1, "-blendv": 1, "-boost": 1, "-bm": 1, "-cc": 1, "-clamp": 1, "-imfchan": 1, "-mm": 2}
_OPTIONS |= {"-texres": 1, "-type": 1}
_UP_TO_THREE = ("-o", "-s", "-t")


@dataclass(frozen=True)
class Material:
    """A material of an MTL file.

    color: linear RGB (`Kd`), None when not given. image: file of `map_Kd` as the MTL file names it, or None.
    """

    color: tuple[float, float, float] | None = None
    image: str | None = None


def parse_mtl(path: Path) -> dict[str, Material]:
    """Return materials by name, written as `parse_obj` writes them. Raises InputError for an unreadable file.

    Unknown lines are skipped: they only cost a colour.
    """
    found: dict[str, Material] = {}
    name = ""
    for line in read_text(path, "an MTL file of materials").splitlines():
        words = line.split()
        if len(words) < 2:
            continue
        known = found.get(name, Material())
        if words[0] == "newmtl":
            name = "_".join(words[1:])
            found[name] = Material()
        elif words[0] == "Kd":
            found[name] = Material(_color(words[1:]) or known.color, known.image)
        elif words[0].lower() == "map_kd":
            found[name] = Material(known.color, _image(line.split(None, 1)[1]) or known.image)
    return found


def locate(folder: Path, name: str) -> Path:
    """Return the path of the file `name`: as written or, for paths of another machine, its last part in `folder`.

    Raises InputError when there is no such file.
    """
    plain = PureWindowsPath(name)  # understands both kinds of slashes
    for candidate in (folder / name, folder / plain.as_posix(), folder / plain.name):
        if os.path.isfile(candidate):
            return candidate
    raise InputError(f"'{name}' is not in '{folder}'")


def _color(words: list[str]) -> tuple[float, float, float] | None:
    try:
        values = [min(max(float(word), 0.0), 1.0) for word in words[:3]]
    except ValueError:
        return None
    return (values[0], values[1], values[2]) if len(values) == 3 else (values[0],) * 3


def _image(text: str) -> str:
    """Return the file name behind the options; it may contain spaces."""
    words = text.strip().split(" ")
    while words and words[0] in (*_OPTIONS, *_UP_TO_THREE):
        option = words.pop(0)
        for _ in range(_OPTIONS.get(option, 3)):
            if words and (option in _OPTIONS or _is_number(words[0])):
                words.pop(0)
    return " ".join(words).strip()


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True

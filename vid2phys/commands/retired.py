"""Options of earlier releases under their present names, with a notice; they go after one release."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from vid2phys.errors import UsageError

RENAMED: dict[str, dict[str, str]] = {"calibrate": {"pictures": "images"}}  # command -> old name -> new name
_WERE_UNDRAWN = ("shading", "texture")  # what `--without` of a loss of images named


class RetiredName(FutureWarning):
    """An option of an earlier release; the text states its new name."""


def renamed(command: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options under their present names. Warns of each old name.

    Raises UsageError for an option that is given under both.
    """
    found = dict(given)
    for old, new in RENAMED.get(command, {}).items():
        if old not in found:
            continue
        if found.get(new) is not None:
            raise UsageError(f"'{old}' beside '{new}' of {command}", f"'{new}' alone: '{old}' is its former name")
        found[new] = found.pop(old)
        _notify(f"'{old}' of {command} is now '{new}'")
    return found


def upgraded(command: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a call under their present names, and with their present meaning."""
    found = renamed(command, given)
    return _without_to_undrawn(found) if command == "identify" else found


def _without_to_undrawn(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of identify with what a loss of images leaves out under `undrawn`.

    `without` named it before `without` switched cues of tracking off.
    """
    names = given.get("without") or ()
    if given.get("undrawn") or given.get("loss") not in ("pixel", "perceptual", "risp_image") or isinstance(names, str):
        return given
    undrawn = tuple(name for name in names if name in _WERE_UNDRAWN)
    if not undrawn:
        return given
    _notify(f"what a loss of images does not draw is now --undrawn {','.join(undrawn)}; --without is for cues")
    return given | {"without": tuple(name for name in names if name not in undrawn), "undrawn": undrawn}


def _notify(text: str) -> None:
    warnings.warn(text, RetiredName, stacklevel=4)

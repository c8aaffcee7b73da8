"""Options of earlier releases under their present names, with a notice; they go after one release."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from vid2phys.errors import UsageError

RENAMED: dict[str, dict[str, str]] = {"calibrate": {"pictures": "images"}}  # command -> old name -> new name
_WERE_UNDRAWN = ("shading", "texture")  # what `--without` of a loss of images named
_LOSSES_OF_IMAGES = ("pixel", "perceptual", "risp_image")  # of that release; asking the losses would import torch


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
    """Return the options of a call or of a file, all that it names, with their present meaning."""
    found = dict(given)
    return _without_to_undrawn(found) if command == "identify" and "undrawn" not in found else found


def _without_to_undrawn(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of identify with what a loss of images leaves out under `undrawn`.

    `without` named it before `without` switched cues of tracking off. Files and calls of today name `undrawn`.
    """
    names = given.get("without") or ()
    if given.get("loss") not in _LOSSES_OF_IMAGES or isinstance(names, str):
        return given
    undrawn = tuple(name for name in names if name in _WERE_UNDRAWN)
    if not undrawn:
        return given
    _notify(f"what a loss of images does not draw is now --undrawn {','.join(undrawn)}; --without is for cues")
    return given | {"without": tuple(name for name in names if name not in undrawn), "undrawn": undrawn}


def _notify(text: str) -> None:
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("vid2phys"):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, RetiredName, stacklevel=level)

"""The systems: one file each, found by name. A file `x.py` holds one concrete `System` whose `name` is "x".

A function `from_file(path, units)` in that file makes the system from a file of the user.

The variable VID2PHYS_SYSTEMS names folders with the user's own systems; their files are Python that is run.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from vid2phys import plugins
from vid2phys.engine.system import System
from vid2phys.errors import UsageError, unknown_name

__path__ += [folder for folder in os.environ.get("VID2PHYS_SYSTEMS", "").split(os.pathsep) if folder]


def available() -> tuple[str, ...]:
    """Return the names of the registered systems, sorted."""
    return plugins.names(__path__)


def from_file(name: str, path: str | Path, units: str = "m") -> System:
    """Return the system called `name` of the body in a file whose lengths are in `units`.

    What files those are is up to the system: `from_file` in its module, if it has one, says it. Raises UsageError for
    a system that is made of no file, naming those that are, and InputError for a file that does not serve.
    """
    if name not in available():
        raise unknown_name("system", name, available())
    make = file_reader(name)
    if make is None:
        takers = ", ".join(each for each in available() if file_reader(each) is not None)
        raise UsageError(f"a file of the body for '{name}'", f"one of {takers}", "leave the file out for this system")
    return make(path, units)


def file_reader(name: str) -> Callable[[str | Path, str], System] | None:
    """Return the function from a file and its units to a system, None for a system without one."""
    return getattr(importlib.import_module(f"{__name__}.{name}"), "from_file", None)


def get(name: str, **options: Any) -> System:
    """Return the system called `name`, made with `options`. Raises UsageError listing the names when there is none."""
    return plugins.class_in(__name__, "system", name, available(), System)(**options)


def unknown_parameter(name: str, known: Collection[str]) -> UsageError:
    """Return the error for a parameter that a system does not have, naming the systems that have it.

    known: names of the parameters that it has.
    """
    having = [each for each in available() if name in get(each).parameters().names]
    remedy = f"--system {' or '.join(having)} has '{name}'" if having else ""
    return unknown_name("parameter", name, tuple(known), remedy)

"""Find plug-ins by file name: one file a system, format, head or loss; a leading underscore marks a shared part."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from typing import TypeVar

from vid2phys.errors import unknown_name

_Base = TypeVar("_Base")


def names(folder: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the modules in a package's `__path__`, sorted."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(folder) if not m.name.startswith("_")))


def class_in(package: str, kind: str, name: str, available: tuple[str, ...], base: type[_Base]) -> type[_Base]:
    """Return the concrete class derived from `base` that the module called `name` defines.

    Args:
        package: dotted name of the package.
        kind: what the package holds, for errors.
        name: of the module.
        available: the names to choose from.
        base: the class to derive from.

    Raises:
        UsageError: the name is not available.
        TypeError: the module defines no such class.
    """
    if name not in available:
        raise unknown_name(kind, name, available)
    found = importlib.import_module(f"{package}.{name}")
    for member in vars(found).values():
        if inspect.isclass(member) and issubclass(member, base) and member.__module__ == found.__name__:
            return member
    raise TypeError(f"{found.__name__} defines no {base.__name__}")

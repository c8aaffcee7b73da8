"""The systems: one file each, found by its name. A file `x.py` holds one concrete `System` whose `name` is "x"."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

from vid2phys.engine.system import System
from vid2phys.errors import unknown_name


def available() -> tuple[str, ...]:
    """Names of the registered systems, sorted."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


def get(name: str, **options: Any) -> System:
    """The system called `name`, made with `options`. Raises UsageError listing the names when there is none."""
    if name not in available():
        raise unknown_name("system", name, available())
    module = importlib.import_module(f"{__name__}.{name}")
    for member in vars(module).values():
        if inspect.isclass(member) and issubclass(member, System) and member.__module__ == module.__name__:
            system: System = member(**options)
            return system
    raise TypeError(f"{module.__name__} defines no System")

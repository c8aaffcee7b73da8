"""How far a motion is from what was seen: one file a loss, found by its file name; `x.py` holds one concrete `Loss`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from vid2phys.errors import unknown_name
from vid2phys.solvers.losses._loss import Evidence, Loss
from vid2phys.solvers.problem import Problem

__all__ = ["Evidence", "Loss", "available", "get", "kind"]


def available() -> tuple[str, ...]:
    """Names of the losses, sorted."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


def kind(name: str) -> type[Loss]:
    """The class of the loss called `name`. Raises UsageError listing the names when there is none."""
    if name not in available():
        raise unknown_name("loss", name, available())
    module = importlib.import_module(f"{__name__}.{name}")
    for member in vars(module).values():
        if inspect.isclass(member) and issubclass(member, Loss) and member.__module__ == module.__name__:
            return member
    raise TypeError(f"{module.__name__} defines no Loss")


def get(name: str, problem: Problem, evidence: Evidence | None = None) -> Loss:
    """The loss called `name` of a problem. Raises UsageError for an unknown name and for evidence that it lacks."""
    return kind(name)(problem, evidence or Evidence())

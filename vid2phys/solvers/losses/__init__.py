"""How far a motion is from what was seen: one file a loss, found by its file name; `x.py` holds one concrete `Loss`."""

from __future__ import annotations

from vid2phys import plugins
from vid2phys.solvers.losses._loss import Evidence, Loss
from vid2phys.solvers.problem import Problem

__all__ = ["Evidence", "Loss", "available", "get", "kind"]


def available() -> tuple[str, ...]:
    """Names of the losses, sorted."""
    return plugins.names(__path__)


def kind(name: str) -> type[Loss]:
    """The class of the loss called `name`. Raises UsageError listing the names when there is none."""
    return plugins.class_in(__name__, "loss", name, available(), Loss)


def get(name: str, problem: Problem, evidence: Evidence | None = None) -> Loss:
    """The loss called `name` of a problem. Raises UsageError for an unknown name and for evidence that it lacks."""
    return kind(name)(problem, evidence or Evidence())

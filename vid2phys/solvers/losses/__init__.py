"""Losses: how far a motion is from the evidence. One file each, found by its file name; `x.py` holds one concrete
`Loss`."""

from __future__ import annotations

from vid2phys import plugins
from vid2phys.solvers.losses._loss import Evidence, Loss
from vid2phys.solvers.problem import Problem

__all__ = ["Evidence", "Loss", "available", "get", "kind"]


def available() -> tuple[str, ...]:
    """Return the names of the losses, sorted."""
    return plugins.names(__path__)


def kind(name: str) -> type[Loss]:
    """Return the class of the loss called `name`. Raises UsageError listing the names when there is none."""
    return plugins.class_in(__name__, "loss", name, available(), Loss)


def get(name: str, problem: Problem, evidence: Evidence | None = None) -> Loss:
    """Return the loss called `name` of a problem. Raises UsageError for an unknown name or missing evidence."""
    return kind(name)(problem, evidence or Evidence())

"""First-order descents on any PyTorch graph: what gradSim's experiments move parameters, states and controllers by."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vid2phys.errors import SimulationError, unknown_name
from vid2phys.types import Array

_LAST = 1e-3  # of the first rate, at the end of a cosine


@dataclass(frozen=True)
class Descended:
    """values: [U] of the least loss. losses, path: of each iteration, [I] and [I, U]. seconds: of all. failure: why it
    stopped early, or None."""

    values: Array
    losses: Array
    path: Array
    seconds: float
    failure: str | None = None

    @property
    def loss(self) -> float:
        """The least."""
        return float(self.losses.min(initial=np.inf))


def descend(
    loss: Callable[[Tensor], Tensor],
    start: Array,
    *,
    rate: float,
    iterations: int,
    optimizer: str = "adam",
    momentum: float = 0.0,
    lower: Array | float = -np.inf,
    upper: Array | float = np.inf,
    enough: float = 0.0,
) -> Descended:
    """Minimises a loss of unknowns [U] float64 from `start`, steps shrinking to a thousandth along a cosine.

    optimizer: adam or sgd (with momentum). lower, upper: bounds of the unknowns, kept by projection. enough: a loss at
    which it stops. A motion that cannot be simulated ends it. Raises UsageError for an unknown optimizer.
    """
    at = torch.tensor(np.asarray(start, dtype=float), requires_grad=True)
    if optimizer not in ("adam", "sgd"):
        raise unknown_name("optimizer", optimizer, ("adam", "sgd"))
    steps: torch.optim.Optimizer = (
        torch.optim.Adam([at], lr=rate, betas=(0.8, 0.95))
        if optimizer == "adam"
        else torch.optim.SGD([at], lr=rate, momentum=momentum)
    )
    shrink = torch.optim.lr_scheduler.CosineAnnealingLR(steps, iterations, eta_min=_LAST * rate)
    low, high = (torch.from_numpy(np.broadcast_to(np.asarray(b, float), at.shape).copy()) for b in (lower, upper))
    best, losses, path, failure = at.detach().numpy().copy(), list[float](), list[Array](), None
    began = time.monotonic()
    for _ in range(iterations):
        steps.zero_grad()
        try:
            value = loss(at)
            value.backward()  # type: ignore[no-untyped-call]
            reached = float(value.detach())
        except SimulationError as error:
            failure = str(error)
            break
        here = at.detach().numpy().copy()
        if at.grad is None or not np.isfinite(reached) or not bool(torch.isfinite(at.grad).all()):
            failure = "the loss is not finite"
            break
        if reached < min(losses, default=np.inf):
            best = here
        losses.append(reached)
        path.append(here)
        if reached <= enough:
            break
        steps.step()
        shrink.step()
        with torch.no_grad():
            at.clamp_(low, high)
    return Descended(best, np.array(losses), np.array(path), time.monotonic() - began, failure)

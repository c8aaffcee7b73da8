"""First-order descents on any PyTorch graph: what gradSim's experiments move parameters, states and controllers by."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vid2phys.errors import SimulationError, UsageError, unknown_name
from vid2phys.types import Array

OPTIMIZERS = ("adam", "sgd", "lbfgs")
_LAST = 1e-3  # of the first rate, at the end of a cosine
_REMEMBERED = (20, 100)  # least and most steps that quasi-Newton looks back on; between them one for each unknown


@dataclass(frozen=True)
class Descended:
    """values: [U] of the least loss. losses, path: of each iteration, [I] and [I, U]. seconds: of all. failure: why it
    stopped early, or None. starts: how many were tried."""

    values: Array
    losses: Array
    path: Array
    seconds: float
    failure: str | None = None
    starts: int = 1

    @property
    def loss(self) -> float:
        """Return the least loss."""
        return float(self.losses.min(initial=np.inf))


def descend(
    loss: Callable[[Tensor], Tensor],
    start: Array,
    *,
    rate: float,
    iterations: int,
    optimizer: str = "adam",
    momentum: float = 0.0,
    bounds: tuple[Array | float, Array | float] = (-np.inf, np.inf),
    enough: float = 0.0,
) -> Descended:
    """Minimise a loss of unknowns [U] float64 from `start` by its gradient.

    optimizer: adam or sgd (with momentum), whose steps shrink from `rate` to a thousandth along a cosine; or lbfgs
    (quasi-Newton, Byrd et al., 1995), whose first step is `rate` long and whose iterations are evaluations.
    bounds: lower and upper, of the unknowns. enough: a loss at which the descent stops. A motion that cannot be
    simulated ends the descent. Raises UsageError for an unknown optimizer.
    """
    if optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", optimizer, OPTIMIZERS)
    begin = np.asarray(start, dtype=float)
    low, high = (np.broadcast_to(np.asarray(bound, float), begin.shape) for bound in bounds)
    kept = _Kept(loss, iterations, enough)
    failure, began = None, time.monotonic()
    try:
        if optimizer == "lbfgs":
            _quasi_newton(kept, begin, low, high, rate)
        else:
            _by_gradient(kept, begin, low, high, optimizer, rate, momentum)
    except _Enough:
        pass
    except (SimulationError, UsageError) as error:  # a step too long for such parameters is of the second kind
        failure = str(error)
    best = kept.path[int(np.argmin(kept.losses))] if kept.losses else begin
    return Descended(best, np.array(kept.losses), np.array(kept.path), time.monotonic() - began, failure)


class _Enough(Exception):  # noqa: N818  (no error)
    """It is as good as was asked for, or as many evaluations were made."""


class _Kept:
    """A loss that keeps what it was asked. Raises _Enough, SimulationError where it is not finite."""

    def __init__(self, loss: Callable[[Tensor], Tensor], most: int, enough: float) -> None:
        self.loss, self.most, self.enough = loss, most, enough
        self.losses: list[float] = []
        self.path: list[Array] = []

    def __call__(self, values: Array) -> tuple[float, Array]:
        """Return the loss and its gradient [U]."""
        if len(self.losses) >= self.most:
            raise _Enough
        at = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        value = self.loss(at)
        (slope,) = torch.autograd.grad(value, at)
        reached, gradient = float(value.detach()), slope.numpy()
        if not np.isfinite(reached) or not np.isfinite(gradient).all():
            raise SimulationError("the loss is not finite")
        self.losses.append(reached)
        self.path.append(np.array(values, dtype=float))
        if reached <= self.enough:
            raise _Enough
        return reached, gradient


def _by_gradient(
    kept: _Kept, start: Array, low: Array, high: Array, optimizer: str, rate: float, momentum: float
) -> None:
    at = torch.tensor(start)
    steps: torch.optim.Optimizer = (
        torch.optim.Adam([at], lr=rate, betas=(0.8, 0.95))
        if optimizer == "adam"
        else torch.optim.SGD([at], lr=rate, momentum=momentum)
    )
    shrink = torch.optim.lr_scheduler.CosineAnnealingLR(steps, kept.most, eta_min=_LAST * rate)
    ends = torch.from_numpy(low.copy()), torch.from_numpy(high.copy())
    while True:
        at.grad = torch.from_numpy(kept(at.numpy().copy())[1])
        steps.step()
        shrink.step()
        at.clamp_(*ends)


def _quasi_newton(kept: _Kept, start: Array, low: Array, high: Array, rate: float) -> None:
    from scipy.optimize import minimize

    first = max(kept(start)[0], 1e-300)

    def scaled(values: Array) -> tuple[float, Array]:  # in steps of `rate`, from a loss of 1
        value, slope = kept(values * rate)
        return value / first, slope * (rate / first)

    bounds = list(zip(low / rate, high / rate, strict=True))
    memory = int(np.clip(len(start), *_REMEMBERED))
    options = {"maxiter": kept.most, "maxfun": 2 * kept.most, "ftol": 0.0, "gtol": 0.0, "maxcor": memory}
    minimize(scaled, start / rate, jac=True, method="L-BFGS-B", bounds=bounds, options=options)

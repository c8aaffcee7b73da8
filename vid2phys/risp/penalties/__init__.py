"""Penalties that make a network invariant to rendering parameters psi (RISP: Ma, Du et al., ICLR 2022).

A file `x_y.py` defines the function `penalty` of the name "x-y". Each uses dI/dpsi, which the render dataset contains.
The second backward pass therefore passes the network only, never the renderer.

Limits: the invariance is local in psi, around each render.
"""

from __future__ import annotations

import importlib
from typing import Protocol

from torch import Generator, Tensor, nn

from vid2phys import plugins
from vid2phys.errors import unknown_name
from vid2phys.risp.heads import Head

Batch = dict[str, Tensor]


class Penalty(Protocol):
    """A penalty of the dependence on psi."""

    def __call__(self, network: nn.Module, head: Head, batch: Batch, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return the error and the penalty, both means over the batch.

        batch: with `image` [B, V, V, 3] in 0..255 and `tangents` [B, P, V, V, 3], its derivative per standard deviation
        of psi. generator: random numbers of the penalty.
        """
        ...


def available() -> tuple[str, ...]:
    """Return the names of the penalties, sorted."""
    return tuple(name.replace("_", "-") for name in plugins.names(__path__))


def get(name: str) -> Penalty:
    """Return the penalty called `name`. Raises UsageError for an unknown name."""
    if name not in available():
        raise unknown_name("loss", name, available())
    penalty: Penalty = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").penalty
    return penalty

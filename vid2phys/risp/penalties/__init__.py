"""What is added to the error so that a network does not depend on rendering parameters psi: one file a way.

A file `x_y.py` holds the function `penalty` of the way called "x-y". Each needs dI/dpsi, which was computed beforehand:
the second backward pass goes through the network only, never through the renderer.
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
    """One way of making a network blind to psi."""

    def __call__(self, network: nn.Module, head: Head, batch: Batch, generator: Generator) -> tuple[Tensor, Tensor]:
        """The error and the penalty, both means over the batch.

        batch: with `image` [B, V, V, 3] in 0..255 and `tangents` [B, P, V, V, 3], its derivative per standard deviation
        of psi. generator: for ways that draw at random.
        """
        ...


def available() -> tuple[str, ...]:
    """Names of the ways, sorted."""
    return tuple(name.replace("_", "-") for name in plugins.names(__path__))


def get(name: str) -> Penalty:
    """The way called `name`. Raises UsageError listing the names when there is none."""
    if name not in available():
        raise unknown_name("loss", name, available())
    penalty: Penalty = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").penalty
    return penalty

"""RISP's eq. 10 by random projections: two combinations v^T J per batch in place of all rows of the Jacobian.

The squared norm is unbiased over v (Hutchinson 1990), and its cost does not depend on the number of predictions.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from vid2phys.risp.heads import Head
from vid2phys.risp.networks.network import to_input
from vid2phys.risp.penalties.full_jacobian import jacobian_penalty

_PROJECTIONS = 2


def penalty(network: nn.Module, head: Head, batch: dict[str, Tensor], generator: Generator) -> tuple[Tensor, Tensor]:
    """See `Penalty`."""
    with torch.no_grad():
        size = head.prediction(network(to_input(batch["image"][:1]))).shape[1]
    shape = (_PROJECTIONS, len(batch["image"]), size)
    return jacobian_penalty(network, head, batch, torch.randn(shape, generator=generator))

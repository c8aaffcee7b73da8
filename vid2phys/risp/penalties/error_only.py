"""RISP (Ma, Du et al., ICLR 2022) eq. 8: the error without a penalty; only domain randomisation gives invariance."""

from __future__ import annotations

from torch import Generator, Tensor, nn

from vid2phys.risp.heads import Head
from vid2phys.risp.networks.network import to_input


def penalty(network: nn.Module, head: Head, batch: dict[str, Tensor], generator: Generator) -> tuple[Tensor, Tensor]:
    """See `Penalty`."""
    error = head.error(network(to_input(batch["image"])), batch).mean()
    return error, error.new_zeros(())

"""RISP (Ma, Du et al., ICLR 2022) eq. 12: the norm of the error's derivative by psi, one backward pass per batch."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from vid2phys.risp.heads import Head
from vid2phys.risp.networks.network import to_input
from vid2phys.risp.penalties._norm import along_psi, smooth_root


def penalty(network: nn.Module, head: Head, batch: dict[str, Tensor], generator: Generator) -> tuple[Tensor, Tensor]:
    """See `Penalty`: dL_error/dpsi is the product dL_error/dI . dI/dpsi."""
    images = batch["image"].to(batch["tangents"].dtype).requires_grad_(True)
    error = head.error(network(to_input(images)), batch)
    (slope,) = torch.autograd.grad(error.sum(), images, create_graph=True)
    return error.mean(), smooth_root(along_psi(slope, batch["tangents"]).square().sum(-1)).mean()

"""RISP (Ma, Du et al., ICLR 2022) eq. 10: the Frobenius norm of the prediction's Jacobian by psi.

By Theorem 1 the Jacobian is dN/dI . dI/dpsi, whose second factor is known. Each of the |s| predicted numbers costs one
backward pass through the network, and the weights another one: O(|s| |theta|), without derivatives of the renderer.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from vid2phys.risp.heads import Head
from vid2phys.risp.networks.network import to_input
from vid2phys.risp.penalties._norm import along_psi, smooth_root


def penalty(network: nn.Module, head: Head, batch: dict[str, Tensor], generator: Generator) -> tuple[Tensor, Tensor]:
    """See `Penalty`."""
    return jacobian_penalty(network, head, batch, None)


def jacobian_penalty(
    network: nn.Module, head: Head, batch: dict[str, Tensor], projections: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the error and the norm of the Jacobian J, both means over the batch.

    projections: [k, B, S] of unit variance, or None for all rows. They give k random combinations v^T J; the mean of
    |v^T J|^2 over v is the squared Frobenius norm.
    """
    images = batch["image"].to(batch["tangents"].dtype).requires_grad_(True)
    output = network(to_input(images))
    prediction = head.prediction(output)
    rows = torch.eye(prediction.shape[1], dtype=prediction.dtype, device=prediction.device)[:, None]
    weights, count = (rows, 1) if projections is None else (projections.to(prediction), len(projections))
    squares = prediction.new_zeros(len(prediction))
    for weight in weights:
        (slope,) = torch.autograd.grad((prediction * weight).sum(), images, create_graph=True)
        squares = squares + along_psi(slope, batch["tangents"]).square().sum(-1)
    return head.error(output, batch).mean(), smooth_root(squares / count).mean()

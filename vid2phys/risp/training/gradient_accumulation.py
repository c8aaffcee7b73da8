"""A batch that does not fit into the memory of the GPU goes through the network in pieces.

Gradients of the pieces are added up before the optimiser steps, and no layer looks across images, so that batch,
learning rate and schedule stay what they were: smaller pieces cost time alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from vid2phys.errors import Vid2PhysError

Batch = dict[str, Tensor]
StepLoss = Callable[[nn.Module, Batch, float], tuple[Tensor, dict[str, float]]]


class GpuMemoryError(Vid2PhysError):
    """Not even one image fits (exit 3)."""


@dataclass
class GradientAccumulator:
    """Backward passes of batches in pieces, which are halved when memory runs out and stay so.

    device: torch's name. note: told in one line. most: images of a piece, by kind of batch: those with derivatives
    need several times as much an image.
    """

    device: str
    note: Callable[[str], None]
    most: dict[bool, int] = field(default_factory=dict)

    def backward(self, network: nn.Module, step_loss: StepLoss, batch: Batch, fraction: float) -> dict[str, float]:
        """Puts the gradients of a batch's mean loss into `network`; the parts of the loss, means over the batch."""
        kind, count = "tangents" in batch, len(batch["image"])
        while True:
            try:
                return self._in_pieces(network, step_loss, batch, fraction, self.most.get(kind, count))
            except torch.cuda.OutOfMemoryError:
                pass  # what the error's traceback holds is free only here
            network.zero_grad(set_to_none=True)
            if self.device == "cuda":
                torch.cuda.empty_cache()
            tried = min(self.most.get(kind, count), count)
            if tried == 1:
                raise GpuMemoryError(
                    "the GPU has no memory for a single image",
                    "more that is free",
                    "end what uses it, or --device cpu",
                )
            self.most[kind] = tried // 2
            self.note(f"the GPU's memory is full: {tried // 2} images at once instead of {tried}, same batches")

    def _in_pieces(
        self, network: nn.Module, step_loss: StepLoss, batch: Batch, fraction: float, most: int
    ) -> dict[str, float]:
        count, sums = len(batch["image"]), dict[str, float]()
        network.zero_grad(set_to_none=True)
        for first in range(0, count, most):
            piece = {name: values[first : first + most].to(self.device) for name, values in batch.items()}
            share = len(piece["image"]) / count
            loss, parts = step_loss(network, piece, fraction)
            (share * loss).backward()
            for name, value in parts.items():
                sums[name] = sums.get(name, 0.0) + share * value
        return sums

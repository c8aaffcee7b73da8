"""Gradient accumulation: split a batch that does not fit into the memory of the GPU.

The gradients of the parts are summed before the optimiser's step. No layer mixes images, so that batch size, learning
rate and schedule stay as they are. Smaller parts only cost time.

Limits: a single image must fit.
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
    """The GPU has no memory for a single image (exit 3)."""


@dataclass
class GradientAccumulator:
    """Backward passes of batches in parts. Each lack of memory halves the parts for good.

    Attributes:
        device: torch's name of the device.
        note: Is called with messages.
        most: Number of images in a part, by kind of batch: with derivatives an image needs several times the memory.
    """

    device: str
    note: Callable[[str], None]
    most: dict[bool, int] = field(default_factory=dict)

    def backward(self, network: nn.Module, step_loss: StepLoss, batch: Batch, fraction: float) -> dict[str, float]:
        """Put the gradients of a batch's mean loss into `network`; return the terms of the loss, means over the batch.

        Raises GpuMemoryError.
        """
        kind, count = "tangents" in batch, len(batch["image"])
        while True:
            try:
                return self._in_pieces(network, step_loss, batch, fraction, self.most.get(kind, count))
            except torch.cuda.OutOfMemoryError:
                pass  # the error's traceback releases its memory only here
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

"""RISP's own network (Ma, Du et al., ICLR 2022, appendix): a ResNet-18 that regresses the state that a view shows.

It has instance norm without affine parameters, the Swish activation, a global mean and one linear layer.

Limits: it gives no uncertainty. Clips are tracked with keypoints (`network.KeypointNetwork`).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vid2phys.risp.networks.network import predict

WIDTH = 64  # channels of the first stage, as in He et al., CVPR 2016
_STAGES, _BLOCKS = 4, 2


def predict_numbers(network: nn.Module, images: NDArray[np.uint8]) -> Tensor:
    """Return the numbers [N, S] that a network predicts in uint8 images [N, V, V, 3], float64 on the CPU."""
    return predict(network, images, dtype=torch.float64)


class StateNetwork(nn.Module):
    """A network from images [B, 3, V, V], V at least 33, to numbers [B, outputs]."""

    def __init__(self, outputs: int, *, width: int = WIDTH) -> None:
        super().__init__()
        channels = [width * 2**stage for stage in range(_STAGES)]
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
            nn.InstanceNorm2d(width),
            nn.SiLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks = []
        for stage, wide in enumerate(channels):
            for block in range(_BLOCKS):
                first = block == 0
                narrow = channels[max(stage - 1, 0)] if first else wide
                blocks.append(_Block(narrow, wide, stride=2 if first and stage else 1))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels[-1], outputs)

    def forward(self, images: Tensor) -> Tensor:  # noqa: D102
        return self.head(self.blocks(self.stem(images)).mean(dim=(-1, -2)))


class _Block(nn.Module):
    """Two 3x3 convolutions and a skip (He et al., CVPR 2016, figure 2)."""

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.InstanceNorm2d(outputs),
            nn.SiLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.InstanceNorm2d(outputs),
        )
        self.skip: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            skip = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.skip = nn.Sequential(skip, nn.InstanceNorm2d(outputs))
        self.activation = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.body(x) + self.skip(x))

"""gradSim's network for masses (the text beside its table 1): EfficientNet-B0 on every frame, then four linear layers.

EfficientNet-B0 (Tan and Le, ICML 2019, table 1) as far as a stride of 16: frames of 64 x 64 become maps of 4 x 4, here
of 32 channels, as in the paper. Weights begin at random.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
"""Expansion, channels, blocks, stride of the first one, side of the depthwise convolution."""
_STEM = 32
_TO_4X4 = 5  # stages as far as a stride of 16


class EfficientNetOverFrames(nn.Module):
    """Clips [B, F, 3, 64, 64] of `frames` frames and ways [B, 3] to numbers [B], by four linear layers on all maps."""

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(*trunk(_TO_4X4), nn.Conv2d(STAGES[_TO_4X4 - 1][1], 32, 1))
        widths = (frames * 32 * 4 * 4 + 3, 256, 128, 64)
        layers = [nn.Sequential(nn.Linear(a, b), nn.SiLU()) for a, b in pairwise(widths)]
        self.head = nn.Sequential(*layers, nn.Linear(widths[-1], 1))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # two thirds of the time

    def forward(self, clips: Tensor, ways: Tensor) -> Tensor:  # noqa: D102
        maps = self.trunk(clips.flatten(0, 1).contiguous(memory_format=torch.channels_last))
        numbers: Tensor = self.head(torch.cat([maps.reshape(len(clips), -1), ways], dim=1))
        return numbers[:, 0]


def trunk(stages: int) -> list[nn.Module]:
    """Return EfficientNet-B0's stem and first `stages` stages: [B, 3, H, W] to maps of STAGES[stages - 1] channels."""
    layers: list[nn.Module] = [_convolved(3, _STEM, 3, stride=2)]
    inputs = _STEM
    for expansion, outputs, blocks, stride, side in STAGES[:stages]:
        for block in range(blocks):
            layers.append(_Block(inputs, outputs, expansion, stride if block == 0 else 1, side))
            inputs = outputs
    return layers


class _Block(nn.Module):
    """Inverted bottleneck (Sandler et al., CVPR 2018) with squeeze and excitation (Hu et al., CVPR 2018)."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int, side: int) -> None:
        super().__init__()
        inner = expansion * inputs
        self.widen = _convolved(inputs, inner, 1) if expansion > 1 else nn.Identity()
        self.depthwise = _convolved(inner, inner, side, stride=stride, groups=inner)
        squeezed = inputs // 4
        squeeze, excite = nn.Conv2d(inner, squeezed, 1), nn.Conv2d(squeezed, inner, 1)
        self.excitation = nn.Sequential(nn.AdaptiveAvgPool2d(1), squeeze, nn.SiLU(), excite, nn.Sigmoid())
        self.narrow = nn.Sequential(nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.widen(x))
        y = self.narrow(y * self.excitation(y))
        return x + y if self.adds else y


def _convolved(inputs: int, outputs: int, side: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, side, stride, side // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.SiLU())

"""The general network: it sees a crop of a frame and a drawing of the mesh at a hypothesis, for any mesh.

It returns the silhouette of the body in the crop, the step from the hypothesis to the true pose with its standard
deviation, and how well the hypothesis agrees with the image. Comparing an image with a drawing goes back to DeepIM (Li
et al., ECCV 2018) and MegaPose (Labbe et al., CoRL 2022); rendering gradients and their penalty are RISP's.

Limits: one hypothesis at a time; the step is that of the nearest symmetric pose only where the hypothesis is near.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from vid2phys.risp.networks.network import Block

CHANNELS = 8
"""Channels of the input: the crop's colours, and those of `samples.drawing_channels`."""
STEP_UNITS = (0.3, 0.3, 0.3, 0.1, 0.1, 0.1)
"""Units of the outputs: rotation [rad], sideways motion [body radii], change of the distance's logarithm."""
_WIDTHS = (16, 32, 64, 128)
_FEATURES = 32
_SPREADS = (-5.0, 2.0)  # least and largest logarithm of a standard deviation, in units


@dataclass(frozen=True)
class Output:
    """What the network says of B hypotheses.

    Attributes:
        mask: [B, S, S] logits of the body's silhouette.
        step: [B, 6] to the true pose, in `STEP_UNITS`.
        log_spread: [B, 6] logarithm of the step's mean absolute error, in the same units.
        agreement: [B] logits.
    """

    mask: Tensor
    step: Tensor
    log_spread: Tensor
    agreement: Tensor


class GeneralNetwork(nn.Module):
    """Compare images with drawings of a body at poses that may be wrong. Input [B, 8, S, S] from `to_input`."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        first, *others = _WIDTHS
        self.stem = nn.Conv2d(4 * CHANNELS, first, 3, padding=1)
        self.first = nn.Sequential(Block(first, first), Block(first, first))
        self.stages = nn.ModuleList(
            nn.Sequential(Block(a, b, halve=True), Block(b, b)) for a, b in zip(_WIDTHS, others, strict=False)
        )
        self.laterals = nn.ModuleList(nn.Conv2d(width, _FEATURES, 1) for width in others)
        self.last = Block(_FEATURES, _FEATURES)
        self.mask = nn.Conv2d(_FEATURES, 16, 1)
        cells = (size // 16) ** 2
        self.squeeze = nn.Conv2d(others[-1], 32, 1)
        self.head = nn.Sequential(nn.Linear(32 * cells + others[-1], 192), nn.ReLU(), nn.Linear(192, 13))

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, 13 + S * S]: step, log spread, agreement, and the mask's logits."""
        y = self.first(self.stem(functional.pixel_unshuffle(x, 2)))
        maps = []
        for stage in self.stages:
            y = stage(y)
            maps.append(y)
        deep = functional.relu(y)
        pooled = torch.cat([self.squeeze(deep).flatten(1), deep.mean(dim=(2, 3))], dim=1)
        top = self.laterals[-1](maps[-1])
        for lateral, level in zip(list(self.laterals)[-2::-1], maps[-2::-1], strict=True):
            top = lateral(level) + functional.interpolate(top, scale_factor=2.0, mode="bilinear", align_corners=False)
        mask = functional.pixel_shuffle(self.mask(functional.relu(self.last(top))), 4)
        return torch.cat([self.head(pooled), mask.flatten(1)], dim=1)


def split(raw: Tensor) -> Output:
    """Return the parts of what the network returns."""
    raw = raw.float()
    side = round((raw.shape[1] - 13) ** 0.5)
    spread = raw[:, 6:12].clamp(*_SPREADS)
    return Output(raw[:, 13:].reshape(-1, side, side), raw[:, :6], spread, raw[:, 12])


def to_input(image: Tensor, drawing: Tensor) -> Tensor:
    """Convert images [B, S, S, 3] (0..255) and drawings [B, S, S, 5] to network input [B, 8, S, S]."""
    colors = (image.permute(0, 3, 1, 2).to(torch.float32) - 118.0) / 62.0
    shown = (drawing.permute(0, 3, 1, 2).to(torch.float32) - 128.0) / 127.0
    return torch.cat([colors, shown], dim=1).contiguous(memory_format=torch.channels_last)

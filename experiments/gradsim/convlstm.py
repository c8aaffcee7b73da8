"""A convolutional LSTM (Shi et al., NeurIPS 2015) over the frames of a clip, that says one number of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_GROUP = 8  # channels a group of the group norm


class ConvLSTM(nn.Module):
    """Clips [B, F, 3, 64, 64] of `frames` frames and ways [B, 3] to numbers [B].

    Each frame goes through three strided convolutions to 8 x 8 cells of `width` channels, and through gates without
    peepholes. Where a channel of what is kept is high is one point a frame (spatial softmax: Finn et al., ICRA 2016);
    three linear layers read all of them, less those of the first frame, along the way and across.
    """

    def __init__(self, frames: int, width: int = 24) -> None:
        super().__init__()
        self.encoder = nn.Sequential(_halving(3, width // 2), _halving(width // 2, width), _halving(width, width))
        self.gates = nn.Conv2d(2 * width, 4 * width, 3, padding=1)
        self.sharpness = nn.Parameter(torch.full((width, 1, 1), 10.0))  # kept is within -1..1
        inputs = 2 * width * (frames - 1) + 3
        self.head = nn.Sequential(nn.Linear(inputs, 128), nn.SiLU(), nn.Linear(128, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, clips: Tensor, ways: Tensor) -> Tensor:  # noqa: D102
        seen = self.encoder(clips.flatten(0, 1)).unflatten(0, clips.shape[:2])
        hidden = cell = seen.new_zeros(seen[:, 0].shape)
        points = []
        for frame in seen.unbind(1):
            inward, forget, outward, new = self.gates(torch.cat([frame, hidden], dim=1)).chunk(4, dim=1)
            cell = forget.sigmoid() * cell + inward.sigmoid() * new.tanh()
            hidden = outward.sigmoid() * cell.tanh()
            points.append(_places(self.sharpness * hidden))
        moved = torch.stack(points[1:], dim=1) - points[0][:, None]  # [B, F - 1, width, 2]
        right, down = (ways[:, i, None, None] for i in (0, 1))
        along = moved[..., 0] * right + moved[..., 1] * down
        across = moved[..., 1] * right - moved[..., 0] * down
        numbers: Tensor = self.head(torch.cat([along.flatten(1), across.flatten(1), ways], dim=1))
        return numbers[:, 0]


def _places(maps: Tensor) -> Tensor:
    """Return the maps [B, C, H, W] to the mean column and row, -1..1, of each by its softmax over cells: [B, C, 2]."""
    height, width = maps.shape[-2:]
    shares = maps.flatten(2).softmax(2).unflatten(2, (height, width))
    columns, rows = (torch.linspace(-1.0, 1.0, n, dtype=maps.dtype, device=maps.device) for n in (width, height))
    return torch.stack([shares.sum(2) @ columns, shares.sum(3) @ rows], dim=-1)


def _halving(inputs: int, outputs: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
    return nn.Sequential(convolution, nn.GroupNorm(max(1, outputs // _GROUP), outputs), nn.SiLU())

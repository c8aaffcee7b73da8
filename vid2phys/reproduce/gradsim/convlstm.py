"""A convolutional LSTM (Shi et al., NeurIPS 2015) over the frames of a clip, that says one number of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_GROUP = 8  # channels a group of the group norm


class ConvLSTM(nn.Module):
    """Clips [B, F, 3, 64, 64] and ways [B, 3] to numbers [B]: what was kept of all frames, read by two linear layers.

    Each frame goes through three strided convolutions to 8 x 8 cells of `width` channels; gates without peepholes, that
    see the way in every cell. What is kept is pooled (mean and maximum over cells): speed is the same anywhere.
    """

    def __init__(self, frames: int, width: int = 24) -> None:
        """frames: of a clip; what is seen first is to be remembered for so long (Tallec and Ollivier, ICLR 2018)."""
        super().__init__()
        self.encoder = nn.Sequential(_halving(3, width // 2), _halving(width // 2, width), _halving(width, width))
        self.gates = nn.Conv2d(2 * width + 3, 4 * width, 3, padding=1)
        assert self.gates.bias is not None
        inward, forget = self.gates.bias.data.chunk(4)[:2]
        forget.uniform_(1.0, max(frames - 1.0, 1.0)).log_()
        inward.copy_(-forget)
        self.head = nn.Sequential(nn.Linear(2 * width + 3, 128), nn.SiLU(), nn.Linear(128, 1))

    def forward(self, clips: Tensor, ways: Tensor) -> Tensor:  # noqa: D102
        seen = self.encoder(clips.flatten(0, 1)).unflatten(0, clips.shape[:2])
        hidden = cell = seen.new_zeros(seen[:, 0].shape)
        everywhere = ways[:, :, None, None].expand(-1, -1, *seen.shape[-2:])
        for frame in seen.unbind(1):
            inward, forget, outward, new = self.gates(torch.cat([frame, hidden, everywhere], dim=1)).chunk(4, dim=1)
            cell = forget.sigmoid() * cell + inward.sigmoid() * new.tanh()
            hidden = outward.sigmoid() * cell.tanh()
        pooled = torch.cat([hidden.mean((2, 3)), hidden.amax((2, 3)), ways], dim=1)
        numbers: Tensor = self.head(pooled)
        return numbers[:, 0]


def _halving(inputs: int, outputs: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
    return nn.Sequential(convolution, nn.GroupNorm(max(1, outputs // _GROUP), outputs), nn.SiLU())

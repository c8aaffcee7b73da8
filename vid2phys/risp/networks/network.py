"""The two networks: keypoint heat maps of the virtual camera's image, and the coarse locator of a whole frame.

Both are small pre-activation residual networks (He et al., ECCV 2016) with group norm (Wu and He, ECCV 2018), joined
top-down to stride 4 as a feature pyramid (Lin et al., CVPR 2017). Every halving is a 2x2 mean, so cell i of a stride-4
map is centred on pixel 4 i + 1.5 (pixel centres at integers) without a half-pixel drift.

Limits: images must be multiples of 2 ** (depth + 1) pixels.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

STRIDE = 4
GROUP = 8  # channels a group of the group norm


def cell_to_pixel(cell: Tensor) -> Tensor:
    """Convert heat-map coordinates to image pixels: cell i covers pixels 4 i .. 4 i + 3."""
    return cell * STRIDE + (STRIDE - 1) / 2


def pixel_to_cell(pixel: Tensor) -> Tensor:
    """Convert image pixels to heat-map coordinates, the inverse of `cell_to_pixel`."""
    return (pixel - (STRIDE - 1) / 2) / STRIDE


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(max(1, channels // GROUP), channels)


class Block(nn.Module):
    """Two 3x3 convolutions and a skip; `halve` averages 2x2 pixels first."""

    def __init__(self, inputs: int, outputs: int, *, halve: bool = False) -> None:
        super().__init__()
        self.halve = halve
        self.norm1, self.conv1 = _norm(inputs), nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm2, self.conv2 = _norm(outputs), nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.skip = nn.Conv2d(inputs, outputs, 1, bias=False) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, outputs, H, W], half as large if `halve`."""
        if self.halve:
            x = functional.avg_pool2d(x, 2)
        y = self.conv1(functional.relu(self.norm1(x)))
        y = self.conv2(functional.relu(self.norm2(y)))
        return self.skip(x) + y


class _Pyramid(nn.Module):
    """Stem, `depth` halvings, and the top-down path back to stride 4: [B, 3, H, W] -> [B, features, H/4, W/4]."""

    def __init__(self, width: int, features: int, *, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(12, width, 3, padding=1)
        self.first = Block(width, width)
        channels = [width * 2**i for i in range(1, depth + 1)]
        self.stages = nn.ModuleList(nn.Sequential(Block(c // 2, c, halve=True), Block(c, c)) for c in channels)
        self.laterals = nn.ModuleList(nn.Conv2d(c, features, 1) for c in channels)
        self.last = Block(features, features)
        self.norm = _norm(features)

    def feature_maps(self, images: Tensor) -> list[Tensor]:
        """Return the outputs of the stages, from fine to coarse."""
        maps = [self.first(self.stem(functional.pixel_unshuffle(images, 2)))]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        return maps[1:]

    def forward(self, images: Tensor) -> Tensor:
        maps = [lateral(x) for lateral, x in zip(self.laterals, self.feature_maps(images), strict=True)]
        y = maps[-1]
        for level in reversed(maps[:-1]):
            y = level + functional.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=False)
        return functional.relu(self.norm(self.last(y)))


class KeypointNetwork(nn.Module):
    """Heat-map logits of `keypoints` body points and of the `front` point in a square image.

    Input [B, 3, V, V] from `to_input`; output [B, keypoints + 1, V/4, V/4]. The points are learnt up to the body's
    symmetry group. The last map is learnt with the true label, and tells the symmetry elements apart. Without `front`
    it is zero, which saves a tenth of the time for bodies that do not need it. V must be a multiple of 2 ** (depth +
    1).
    """

    def __init__(
        self, keypoints: int, *, width: int = 16, features: int = 48, depth: int = 3, front: bool = True
    ) -> None:
        super().__init__()
        self.pyramid = _Pyramid(width, features, depth=depth)
        self.head = nn.Conv2d(features, keypoints, 1)
        self.front = nn.Sequential(Block(features, features), nn.ReLU(), nn.Conv2d(features, 1, 1)) if front else None

    def forward(self, images: Tensor) -> Tensor:  # noqa: D102
        features = self.pyramid(images)
        maps = self.head(features)
        front = torch.zeros_like(maps[:, :1]) if self.front is None else self.front(features)
        return torch.cat([maps, front], dim=1)


class LocatorNetwork(nn.Module):
    """Candidate places of a body of 12 to 40 px in a frame of any size that is a multiple of 2 ** (depth + 1).

    Input [B, 3, H, W]; output [B, 2, H/4, W/4]: the logit that the cell contains the centre of the body's bounding
    sphere, and the logarithm of the sphere's diameter in pixels relative to `REFERENCE_PX`.
    """

    REFERENCE_PX = 22.0

    def __init__(self, *, width: int = 16, features: int = 32, depth: int = 3) -> None:
        super().__init__()
        self.pyramid = _Pyramid(width, features, depth=depth)
        self.head = nn.Conv2d(features, 2, 1)
        nn.init.zeros_(self.head.weight)
        # Lin et al. (ICCV 2017), section 4.1: start from a low prior of a detection
        self.head.bias = nn.Parameter(torch.tensor([-4.0, 0.0]))

    def forward(self, images: Tensor) -> Tensor:  # noqa: D102
        return self.head(self.pyramid(images))


def to_input(images: Tensor) -> Tensor:
    """Convert uint8 or float images [B, V, V, 3] in 0..255 to network input [B, 3, V, V] in about -2..2."""
    x = images.permute(0, 3, 1, 2)
    x = x if x.is_floating_point() else x.to(torch.float32)
    return ((x - 118.0) / 62.0).contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def predict(
    network: nn.Module, images: NDArray[np.uint8], batch: int = 64, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return a network's output for uint8 images [N, H, W, 3], on the CPU."""
    device = next(network.parameters()).device
    pieces = [
        network(to_input(torch.from_numpy(images[i : i + batch]).to(device))).to(dtype).cpu()
        for i in range(0, len(images), batch)
    ]
    return torch.cat(pieces)

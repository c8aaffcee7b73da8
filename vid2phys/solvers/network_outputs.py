"""What a trained network estimates of images, as numbers and as features, differentiable: N of RISP's eq. 6.

Purpose: losses compare the network's outputs on the clip's images and on rendered ones.

Limits: weights are frozen; images are square and of the network's size.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from vid2phys.error_model import Calibration
from vid2phys.risp.networks import heatmaps
from vid2phys.risp.networks.model import Model, excess_covariance
from vid2phys.risp.networks.network import to_input
from vid2phys.risp.networks.state_model import StateModel

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True)
class NetworkOutputs:
    """A network for V x V images, and what its output means.

    numbers: output of n images to [n, S] numbers. std: the same to [n, S] standard deviations of them. orders: [G, S]
    order of the numbers under each symmetry element of the body, the identity first. layers: inputs to feature maps [n,
    C, h, w], from fine to coarse.
    """

    network: nn.Module
    view_size: int
    numbers: Callable[[Tensor], Tensor]
    std: Callable[[Tensor], Tensor]
    orders: Tensor
    layers: Callable[[Tensor], list[Tensor]]

    def output(self, images: Tensor) -> Tensor:
        """Return the output for display values [n, V, V, 3] in 0..1."""
        result: Tensor = self.network(self.prepared(images))
        return result

    def features(self, images: Tensor) -> list[Tensor]:
        """Return the layers' feature maps of display values [n, V, V, 3] in 0..1."""
        return self.layers(self.prepared(images))

    def prepared(self, images: Tensor) -> Tensor:
        """Return the network's input in its own precision."""
        return to_input(255.0 * images).to(next(self.network.parameters()).dtype)


def of_model(model: Model, dtype: torch.dtype = torch.float32) -> NetworkOutputs:
    """Return the outputs of a model: its keypoints in view pixels, [n, 2 K], labelled up to the body's symmetry."""
    network = _in_precision(model.fine, dtype)
    order = torch.from_numpy(model.permutation)
    orders = (2 * order[..., None] + torch.arange(2)).flatten(1)

    calibration = Calibration.from_dict(model.calibration)

    def std(output: Tensor) -> Tensor:
        _, moment, mass = heatmaps.decode(output[:, :-1])
        raw = excess_covariance(moment.double(), mass.double()).diagonal(dim1=-2, dim2=-1)
        return (calibration.point_scale**2 * raw + calibration.point_floor_px**2).sqrt().flatten(1)

    return NetworkOutputs(
        network, model.view_size, lambda output: heatmaps.decode(output[:, :-1])[0].flatten(1).double(), std, orders,
        network.pyramid.feature_maps,
    )  # fmt: skip


def of_state_model(model: StateModel, dtype: torch.dtype = torch.float32) -> NetworkOutputs:
    """Return the outputs of RISP's own network. It knows of no symmetry, so that labels are taken as they are."""
    network = _in_precision(model.network, dtype)

    def layers(images: Tensor) -> list[Tensor]:
        maps = [network.stem(images)]  # type: ignore[operator]
        for block in network.blocks:  # type: ignore[union-attr]
            maps.append(block(maps[-1]))
        return maps

    def numbers(output: Tensor) -> Tensor:
        return output.double()

    size = int(network.head.out_features)  # type: ignore[union-attr,arg-type]
    return NetworkOutputs(network, model.view_size, numbers, torch.ones_like, torch.arange(size)[None], layers)


def _in_precision(network: Network, dtype: torch.dtype) -> Network:
    """Return a copy with frozen weights."""
    copied = copy.deepcopy(network).to(dtype).eval()
    return copied.requires_grad_(False)

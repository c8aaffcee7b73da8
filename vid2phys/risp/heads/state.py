"""RISP's own network (Ma, Du et al., ICLR 2022, appendix): a ResNet-18 that gives the state of a view as numbers.

Instance norm without affine parameters, Swish, global mean, one linear layer. For a rigid body the numbers are the
position and the sine and cosine of three angles (`view_state`), for others the paper's vector (`state_vector`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vid2phys.risp.heads._head import Batch, Head
from vid2phys.risp.networks.state_network import WIDTH, StateNetwork, predict_numbers
from vid2phys.risp.renders.stream import ImageStream
from vid2phys.risp.shape.pose_encoding import PoseEncoding
from vid2phys.risp.training.validate import Body, pose_errors, prepare_views
from vid2phys.types import Array

_SMOOTH = 0.01  # of the absolute error at zero


class StateHead(Head):
    """The state of a view as numbers (`view_state.PoseEncoding`), learnt by their mean absolute error (eq. 8).

    Where the body has a symmetry the error is that against the nearest of the equivalent states, as for keypoints:
    otherwise both would be compared on labels that no image shows.
    """

    name = "state"
    gradient_weight = 1.0

    def __init__(
        self, body: Body, *, radius_m: float, view_size: int, width: int | None = None, numbers: int | None = None
    ) -> None:
        self.codes = PoseEncoding(radius_m, view_size)
        self.body = body
        self.numbers = PoseEncoding.SIZE if numbers is None else numbers
        self.rigid = numbers is None
        self.size = {"width": width or WIDTH}
        self._turns = torch.from_numpy(body.symmetry_transforms)

    def network(self) -> StateNetwork:
        """See `Head.network`; its output is [B, 9] for a rigid body, else the paper's vector [B, S]."""
        return StateNetwork(self.numbers, **self.size)

    def loss(self, output: Tensor, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """See `Head.loss`."""
        error = self.error(output, batch)
        return error.mean(), {"error": float(error.detach().mean())}

    def error(self, output: Tensor, batch: Batch) -> Tensor:
        """See `Head.error`; images that show no point of the body do not count."""
        targets = self._targets(batch)
        distance = ((output[:, None] - targets).square() + _SMOOTH**2).sqrt() - _SMOOTH
        return distance.mean(-1).amin(-1) * batch["visible"].any(dim=1)

    def _targets(self, batch: Batch) -> Tensor:
        """The numbers of all equivalent states, [B, G, S]."""
        if not self.rigid:
            return batch["state"][:, None]
        pose = batch["view_from_body"]
        return self.codes.encode(pose[:, None] @ self._turns.to(pose), batch["K"][:, None])

    def prediction(self, output: Tensor) -> Tensor:
        """See `Head.prediction`: the numbers themselves."""
        return output

    def validation(self, stream: ImageStream, indices: NDArray[np.int64]) -> Callable[[nn.Module], dict[str, float]]:
        """See `Head.validation`."""
        views = prepare_views(stream, indices)
        states = stream.settings.states
        truth = None if states is None else torch.from_numpy(states[indices].astype(np.float64))
        return StateValidation(self, views.images, views.K, views.view_from_body, truth)


@dataclass
class StateValidation:
    """Held-out views with their cameras [N, 3, 3], true poses [N, 4, 4] and, if not rigid, states [N, S]."""

    head: StateHead
    images: NDArray[np.uint8]
    K: Array
    view_from_body: Array
    states: Tensor | None = None

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """Mean absolute error of the numbers, rotation up to symmetry, sideways, depth; units are in the names."""
        output = self._numbers(network)
        pose, camera = torch.from_numpy(self.view_from_body), torch.from_numpy(self.K)
        batch = {"view_from_body": pose, "K": camera, "visible": torch.ones(len(pose), 1, dtype=torch.bool)}
        if self.states is not None:
            return {"val_error": float(self.head.error(output, batch | {"state": self.states}).mean())}
        error = self.head.error(output, batch).mean()
        found = self.head.codes.decode(output, camera).numpy()
        return {
            "val_error": float(error),
            **pose_errors(found, self.view_from_body, self.head.body.symmetry_transforms),
        }

    def predict_poses(self, network: nn.Module) -> Array:
        """Poses of the views, [N, 4, 4] m."""
        return self.head.codes.decode(self._numbers(network), torch.from_numpy(self.K)).numpy()

    def _numbers(self, network: nn.Module) -> Tensor:
        return predict_numbers(network, self.images)

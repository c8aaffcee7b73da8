"""RISP's own head (Ma, Du et al., ICLR 2022, appendix): a network regresses the state as numbers.

The numbers of a rigid body are position, size and angles in the image (`pose_encoding`). Other bodies have the paper's
vector (`configuration_encoding`).

Limits: the head has no uncertainty; clips are tracked with keypoints.
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
from vid2phys.risp.networks.validate import Body, pose_errors, prepare_views
from vid2phys.risp.renders.stream import ImageStream
from vid2phys.risp.shape.pose_encoding import PoseEncoding
from vid2phys.types import Array

_SMOOTH = 0.01  # width of the smooth minimum of the absolute error


class StateHead(Head):
    """The state in an image as numbers, learnt by their mean absolute error (eq. 8).

    For a symmetric body the nearest of the equivalent states counts, as for keypoints, since no image shows the label.
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
        self._symmetry = torch.from_numpy(body.symmetry_transforms)

    def network(self) -> StateNetwork:
        """See `Head.network`; its output is [B, 9] for a rigid body, else the paper's vector [B, S]."""
        return StateNetwork(self.numbers, **self.size)

    def loss(self, output: Tensor, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """See `Head.loss`."""
        error = self.error(output, batch)
        return error.mean(), {"error": float(error.detach().mean())}

    def error(self, output: Tensor, batch: Batch) -> Tensor:
        """See `Head.error`; images without a visible point do not count."""
        targets = self._targets(batch)
        distance = ((output[:, None] - targets).square() + _SMOOTH**2).sqrt() - _SMOOTH
        return distance.mean(-1).amin(-1) * batch["visible"].any(dim=1)

    def _targets(self, batch: Batch) -> Tensor:
        """Return the numbers [B, G, S] of all equivalent states."""
        if not self.rigid:
            return batch["state"][:, None]
        pose = batch["view_from_body"]
        return self.codes.encode(pose[:, None] @ self._symmetry.to(pose), batch["K"][:, None])

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
    """Held-out images with their cameras [N, 3, 3], true poses [N, 4, 4] and, if not rigid, states [N, S]."""

    head: StateHead
    images: NDArray[np.uint8]
    K: Array
    view_from_body: Array
    states: Tensor | None = None

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """Return errors of the numbers, rotation up to symmetry, sideways and depth, with units in the names."""
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
        """Predict the poses [N, 4, 4] in the images, m."""
        return self.head.codes.decode(self._numbers(network), torch.from_numpy(self.K)).numpy()

    def _numbers(self, network: nn.Module) -> Tensor:
        return predict_numbers(network, self.images)

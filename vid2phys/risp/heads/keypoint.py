"""The default head: heat maps of the body's keypoints, with which clips are tracked.

Limits: points are predicted up to the body's symmetry, but for the front point.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vid2phys.risp.heads._head import Batch, Head
from vid2phys.risp.networks import heatmaps
from vid2phys.risp.networks.losses import Targets, best_targets, decoded_error_px, keypoint_loss
from vid2phys.risp.networks.network import KeypointNetwork
from vid2phys.risp.networks.validate import Body, KeypointValidation
from vid2phys.risp.renders.stream import ImageStream

SIZE = {"width": 16, "features": 32, "depth": 3}
_ERROR_WEIGHT = 0.1  # nats per pixel
_FRONT_WEIGHT = 1.0


class KeypointHead(Head):
    """Cross-entropy of heat maps and the error in pixels of the decoded points.

    RISP's error and prediction are those of the decoded points. The gradient of the cross-entropy by psi would mostly
    regularise the sharpness of peaks.
    """

    name = "keypoint"
    gradient_weight = _ERROR_WEIGHT

    def __init__(
        self, body: Body, *, radius_m: float, view_size: int, width: int | None = None, numbers: int | None = None
    ) -> None:
        self.body = body
        self.size = SIZE if width is None else {**SIZE, "width": width}
        self._permutation = torch.from_numpy(body.permutation)

    def network(self) -> KeypointNetwork:
        """See `Head.network`; its output is [B, K + 1, V/4, V/4]."""
        return KeypointNetwork(len(self.body.points), **self.size, front=self.body.front is not None)

    def loss(self, output: Tensor, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """See `Head.loss`."""
        parts = keypoint_loss(output, self._targets(batch))
        values = {"ce": float(parts.cross_entropy.detach()), "front": float(parts.front.detach())}
        return parts.total(front_weight=_FRONT_WEIGHT, error_weight=_ERROR_WEIGHT), values

    def error(self, output: Tensor, batch: Batch) -> Tensor:
        """See `Head.error`: px, from the points under the group element that explains each image best."""
        logits = output[:, :-1]
        with torch.no_grad():
            _, points, visible = best_targets(heatmaps.log_probabilities(logits), self._targets(batch))
        return decoded_error_px(logits, points, visible)

    def prediction(self, output: Tensor) -> Tensor:
        """See `Head.prediction`: the decoded points, [B, 2 K] px."""
        return heatmaps.decode(output[:, :-1])[0].flatten(1)

    def validation(self, stream: ImageStream, indices: NDArray[np.int64]) -> Callable[[nn.Module], dict[str, float]]:
        """See `Head.validation`."""
        return KeypointValidation.prepare(stream, indices, self.body)

    def _targets(self, batch: Batch) -> Targets:
        """Return the truth of a batch."""
        permutation = self._permutation.to(batch["points_px"].device)
        return Targets(batch["points_px"], batch["visible"], permutation, self.body.front)

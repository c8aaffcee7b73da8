"""The contract of a head: its network, its loss, and the state and error of RISP's equations.

Limits: a head sees one image at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from vid2phys.risp.networks.validate import Body
from vid2phys.risp.renders.stream import ImageStream

Batch = dict[str, Tensor]


class Head(ABC):
    """What a network predicts in an image. Only the head knows the shape [B, ...] of its network's output."""

    name: ClassVar[str]
    gradient_weight: ClassVar[float]  # weight of error + gamma * penalty in a batch with derivatives

    @abstractmethod
    def __init__(
        self, body: Body, *, radius_m: float, view_size: int, width: int | None = None, numbers: int | None = None
    ) -> None:
        """Set up the head. width: channels of the first stage, None for the default. Others: see `heads.get`."""

    @abstractmethod
    def network(self) -> nn.Module:
        """Return a new network of images [B, 3, V, V] from `to_input`."""

    @abstractmethod
    def loss(self, output: Tensor, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of images without derivatives, and its terms for the log."""

    @abstractmethod
    def error(self, output: Tensor, batch: Batch) -> Tensor:
        """Return RISP's L_error (Ma, Du et al. 2022, eq. 8) of each image, [B]; differentiable."""

    @abstractmethod
    def prediction(self, output: Tensor) -> Tensor:
        """Return the predicted numbers [B, S], whose derivatives by psi are eq. 10's Jacobian."""

    @abstractmethod
    def validation(self, stream: ImageStream, indices: NDArray[np.int64]) -> Callable[[nn.Module], dict[str, float]]:
        """Return a function that validates a network on held-out renders; `stream` must not jitter."""

"""The contract of a head: a network of a view, what is minimised, and what RISP's equations call state and error."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from vid2phys.risp.renders.stream import ImageStream
from vid2phys.risp.training.validate import Body

Batch = dict[str, Tensor]


class Head(ABC):
    """What a network learns of a view; its outputs are whatever the head's own network gives, [B, ...]."""

    name: ClassVar[str]
    gradient_weight: ClassVar[float]  # of error + gamma * penalty in the loss of a batch with rendering derivatives

    @abstractmethod
    def __init__(
        self, body: Body, *, radius_m: float, view_size: int, width: int | None = None, numbers: int | None = None
    ) -> None:
        """width: channels of the network's first stage (None: the head's own). numbers: see `heads.get`."""

    @abstractmethod
    def network(self) -> nn.Module:
        """A new network of images from `to_input`, [B, 3, V, V]."""

    @abstractmethod
    def loss(self, output: Tensor, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """What is minimised over images without rendering derivatives, and its parts for the log."""

    @abstractmethod
    def error(self, output: Tensor, batch: Batch) -> Tensor:
        """RISP's L_error (Ma, Du et al. 2022, eq. 8) of each image, [B]; differentiable."""

    @abstractmethod
    def prediction(self, output: Tensor) -> Tensor:
        """The numbers that the network predicts, whose derivatives along psi are eq. 10's Jacobian: [B, S]."""

    @abstractmethod
    def validation(self, stream: ImageStream, indices: NDArray[np.int64]) -> Callable[[nn.Module], dict[str, float]]:
        """Judges a network by renders never trained on; `stream` must not jitter."""

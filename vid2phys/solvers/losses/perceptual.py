"""Features of the two images in a network's layers: a perceptual loss.

The papers take those of a network trained on ImageNet. Its weights cannot be had here (nothing is downloaded), so the
layers are those of our own network, trained on the body at hand: closer to the task than the papers' baseline was.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vid2phys.solvers.losses._loss import Loss
from vid2phys.solvers.losses.risp_image import scene_and_reader
from vid2phys.types import Array

_LEAST = 1e-6


class PerceptualLoss(Loss):
    """Squared distances of features of unit length at each place, their mean, a layer (Zhang et al., CVPR 2018, eq. 1).

    Without weights of the channels, which Zhang et al. learn from people's judgements. No interval follows from it: a
    feature has no error model.
    """

    name = "perceptual"
    needs = ("scene", "reader")
    has_residuals = False

    def prepare(self) -> None:
        """See `Loss.prepare`. Raises InputError for views of another size than the network's."""
        self._scene, self._reader = scene_and_reader(self)
        with torch.no_grad():
            self._targets = self._features(torch.from_numpy(self._scene.views.images))

    def check(self, states: Tensor) -> None:
        """See `Loss.check`: there has to be something to see."""
        self._scene.require_overlap(states)

    def value(self, states: Tensor) -> Tensor:
        """See `Loss.value`."""
        found = self._features(self._scene.images(states))
        parts = [(a - b).square().sum(1).mean() for a, b in zip(found, self._targets, strict=True)]
        return torch.stack(parts).sum()

    def residuals(self, states: Tensor) -> Tensor:
        """See `Loss.residuals`: none."""
        return torch.zeros(0, dtype=torch.float64)

    def variance(self, residuals: Array) -> float:
        """See `Loss.variance`."""
        return 1.0

    def _features(self, images: Tensor) -> list[Tensor]:
        maps = [layer.double() for layer in self._reader.features(images)]
        return [layer / (layer.square().sum(1, keepdim=True) + _LEAST).sqrt() for layer in maps]

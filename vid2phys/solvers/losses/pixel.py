"""Pictures of the simulated body against the clip's, pixel by pixel: gradSim's (Jatavallabhula et al., ICLR 2021)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vid2phys.errors import InputError
from vid2phys.solvers.losses._loss import Loss
from vid2phys.types import Array

BLUR_PX = 1.5  # of both pictures: how far off a silhouette may be and still pull
_REACH = 3  # standard deviations
_NOISE = 0.004  # of a pixel, full scale 1: the least that is taken, as in `risp.pixels.align`
_CORRELATED_PX = 28.0  # neighbouring pixels err together: this many count as one


class PixelLoss(Loss):
    """Differences of display values, both pictures blurred, where what is behind the body is known.

    It takes the look of the simulated body for that of the real one: whatever its light, its colours and its background
    do not explain becomes an error of the motion. A body that does not overlap its picture is not pulled.
    """

    name = "pixel"
    needs = ("scene",)
    has_residuals = True

    def prepare(self) -> None:
        """See `Loss.prepare`."""
        assert self.evidence.scene is not None
        self._scene = self.evidence.scene
        views = self._scene.views
        known = torch.from_numpy(views.known[..., None].astype(float))
        self._known = known / (_NOISE * _CORRELATED_PX**0.5)
        self._target = blurred(torch.from_numpy(views.pictures))

    def check(self, states: Tensor) -> None:
        """See `Loss.check`: silhouettes have to overlap, and what is behind them has to be known somewhere."""
        self._scene.require_overlap(states)
        if not bool(((self._scene.coverage(states) > 0.0) & (self._known[..., 0] > 0.0)).any()):
            raise InputError(
                "what is behind the body is known nowhere",
                "a body that moves before a camera at rest",
                "use --loss risp_image or keypoint",
            )

    def value(self, states: Tensor) -> Tensor:
        """See `Loss.value`."""
        return 0.5 * self.residuals(states).square().sum()

    def residuals(self, states: Tensor) -> Tensor:
        """See `Loss.residuals`."""
        return ((blurred(self._scene.pictures(states)) - self._target) * self._known).flatten()

    def variance(self, residuals: Array) -> float:
        """See `Loss.variance`: the spread where there is any, fourth over second moment (three for a normal one).

        Most pixels show nothing but the background, whose differences say nothing about those of the body.
        """
        squares = np.square(residuals) * _CORRELATED_PX
        return max(1.0, float((squares**2).sum() / (3.0 * max(float(squares.sum()), 1e-30))))


def blurred(pictures: Tensor, sigma_px: float = BLUR_PX) -> Tensor:
    """Pictures [n, V, V, 3] under a Gaussian; beyond the border they go on as there."""
    reach = int(np.ceil(_REACH * sigma_px))
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, dtype=pictures.dtype) / sigma_px) ** 2)
    weights = weights / weights.sum()
    planes = pictures.permute(0, 3, 1, 2).flatten(0, 1)[:, None]
    planes = functional.pad(planes, (reach,) * 4, mode="replicate")
    planes = functional.conv2d(functional.conv2d(planes, weights[None, None, None]), weights[None, None, :, None])
    count, size = pictures.shape[0], pictures.shape[1:3]
    return planes.reshape(count, -1, *size).permute(0, 2, 3, 1)

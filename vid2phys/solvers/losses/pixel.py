"""The pixel loss: rendered images against the clip's, pixel by pixel (gradSim: Jatavallabhula et al., ICLR 2021).

Limits: whatever the rendered appearance does not explain becomes an error of the motion.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vid2phys.errors import InputError
from vid2phys.solvers.losses._loss import Loss
from vid2phys.types import Array

BLUR_PX = 1.5  # of both images: the largest distance at which a silhouette has a gradient
_REACH = 3  # standard deviations
_NOISE = 0.004  # least noise of a pixel, full scale 1
_SEEN, _NOISES = 0.02, 6.0  # full scale 1, and deviations of the noise: least contrast of a body with its backdrop
_SHARED = 0.01  # share of covered pixels that show the real body, below which the images do not overlap
_CORRELATED_PX = 28.0  # adjacent pixels err together: so many count as one


class PixelLoss(Loss):
    """Differences of display values, both images blurred, where what is behind the body is known.

    The rendered appearance counts as the real one: whatever light, colours and background do not explain becomes an
    error of the motion. A body that does not overlap its image is not pulled.
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
        self._target, behind = (blurred(torch.from_numpy(each)) for each in (views.images, views.backdrop))
        off = (self._target - behind).abs()
        noise = 1.4826 * off[torch.from_numpy(views.known)].median() if views.known.any() else off.new_zeros(())
        self._seen = (off > (_NOISES * noise).clamp(min=_SEEN)).any(-1)

    def check(self, states: Tensor) -> None:
        """See `Loss.check`: what is behind the body has to be known somewhere, and silhouettes to overlap there, as far
        as the blur reaches."""
        self._scene.require_overlap(states)
        reach = int(np.ceil(_REACH * BLUR_PX))
        covered = (self._scene.coverage(states.detach()) > 0.0).double()
        near = functional.max_pool2d(covered[:, None], 2 * reach + 1, stride=1, padding=reach)[:, 0] > 0.0
        compared = near & (self._known[..., 0] > 0.0)
        if not bool(compared.any()):
            raise InputError(
                "what is behind the body is known nowhere",
                "a body that moves before a camera at rest",
                "use --loss risp_image or keypoint",
            )
        if float((compared & self._seen).sum()) < _SHARED * float(compared.sum()):
            raise InputError(
                f"the simulated body overlaps what the clip shows in none of {len(near)} views: the error of pixels "
                "has no gradient there",
                "a start at which they overlap",
                "start nearer (--set), or use --loss keypoint, which pulls from everywhere",
            )

    def value(self, states: Tensor) -> Tensor:
        """See `Loss.value`."""
        return 0.5 * self.residuals(states).square().sum()

    def residuals(self, states: Tensor) -> Tensor:
        """See `Loss.residuals`."""
        return ((blurred(self._scene.images(states)) - self._target) * self._known).flatten()

    def variance(self, residuals: Array) -> float:
        """See `Loss.variance`: the spread where there is any, fourth over second moment (three for a normal one).

        Most pixels show nothing but the background, whose differences say nothing about those of the body.
        """
        squares = np.square(residuals) * _CORRELATED_PX
        return max(1.0, float((squares**2).sum() / (3.0 * max(float(squares.sum()), 1e-30))))


def blurred(images: Tensor, sigma_px: float = BLUR_PX) -> Tensor:
    """Return images [n, V, V, 3] under a Gaussian; beyond the border they go on as there."""
    reach = int(np.ceil(_REACH * sigma_px))
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, dtype=images.dtype) / sigma_px) ** 2)
    weights = weights / weights.sum()
    planes = images.permute(0, 3, 1, 2).flatten(0, 1)[:, None]
    planes = functional.pad(planes, (reach,) * 4, mode="replicate")
    planes = functional.conv2d(functional.conv2d(planes, weights[None, None, None]), weights[None, None, :, None])
    count, size = images.shape[0], images.shape[1:3]
    return planes.reshape(count, -1, *size).permute(0, 2, 3, 1)

"""The RISP loss: the network's output for rendered images against its output for the clip's (eq. 6)."""

from __future__ import annotations

import torch
from torch import Tensor

from vid2phys.errors import InputError
from vid2phys.solvers.losses._loss import Loss, misfit, robust
from vid2phys.solvers.network_outputs import NetworkOutputs
from vid2phys.solvers.rendering import Scene, Views
from vid2phys.types import Array


class RispImageLoss(Loss):
    """N(rendered simulation) - N(clip), differentiable through renderer and network (Ma, Du et al., ICLR 2022, eq. 6).

    A network that ignores a body's appearance errs the same way in both images. Outputs are compared up to the body's
    symmetry, frame by frame, under a Student-t cost. The paper has neither, nor units of the errors.
    """

    name = "risp_image"
    needs = ("scene", "reader")
    has_residuals = True

    def prepare(self) -> None:
        """See `Loss.prepare`. Raises InputError for views of another size than the network's."""
        self._scene, self._reader = scene_and_reader(self)
        with torch.no_grad():
            output = self._reader.output(torch.from_numpy(self._scene.views.images))
            self._numbers, self._std = self._reader.numbers(output), self._reader.std(output).double()

    def check(self, states: Tensor) -> None:
        """See `Loss.check`: the body has to be in the images."""
        self._scene.require_overlap(states)

    def value(self, states: Tensor) -> Tensor:
        """See `Loss.value`."""
        return 0.5 * self.residuals(states).square().sum()

    def residuals(self, states: Tensor) -> Tensor:
        """See `Loss.residuals`."""
        found = self._reader.numbers(self._reader.output(self._scene.images(states)))
        turned = self._numbers[:, self._reader.orders], self._std[:, self._reader.orders]  # [n, G, S]
        white = (found[:, None] - turned[0]) / turned[1]
        nearest = white.detach().square().sum(-1).argmin(-1)
        chosen = white[torch.arange(len(white)), nearest]
        return robust(chosen, torch.full((len(chosen),), float(chosen.shape[1]))).flatten()

    def variance(self, residuals: Array) -> float:
        """See `Loss.variance`."""
        return misfit(residuals)


def scene_and_reader(loss: Loss) -> tuple[Scene, NetworkOutputs]:
    """Return scene and network of a loss that needs both.

    Raises InputError for images of another size than the network's.
    """
    scene, reader = loss.evidence.scene, loss.evidence.reader
    assert scene is not None
    assert reader is not None
    require_size(scene.views, reader)
    return scene, reader


def require_size(views: Views, reader: NetworkOutputs) -> None:
    """Raises InputError for views of another size than the network's."""
    if views.size != reader.view_size:
        size = reader.view_size
        raise InputError(f"views of {views.size} x {views.size} px", f"{size} x {size}", "resample them for this model")

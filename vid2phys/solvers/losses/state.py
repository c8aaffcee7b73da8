"""The state loss: states known from a simulation, from motion capture or from a network, as in the papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vid2phys.engine.system import System
from vid2phys.errors import InputError
from vid2phys.solvers.losses._loss import Loss, misfit
from vid2phys.types import Array

_STEP = 1e-3  # of differences in the tangent space


class StateLoss(Loss):
    """Distance in the tangent space of the known states, in their deviations; what is not known is left out."""

    name = "state"
    needs = ("states", "std")
    has_residuals = True

    def prepare(self) -> None:
        """See `Loss.prepare`. Raises InputError for states of another number of frames, or when nothing is known."""
        states, std = self.evidence.states, self.evidence.std
        assert states is not None
        assert std is not None
        frames, size = len(self.problem.observation.times_s), len(self.problem.system.tangent_names)
        if len(states) != frames or std.shape != (frames, size):
            raise InputError(
                f"known states of shape {list(states.shape)} with deviations of {list(std.shape)}",
                f"[{frames}, {len(self.problem.system.state_names)}] and [{frames}, {size}]",
                "give a state for every frame",
            )
        known = np.isfinite(std) & np.isfinite(states).all(axis=1, keepdims=True)
        if not known.any():
            raise InputError("no known state", "at least one number of one frame", "give states or use --loss keypoint")
        self._known = torch.from_numpy(known)
        self._std = torch.from_numpy(np.where(known, std, 1.0))
        rest = self.problem.system.rest_state()
        self._states = np.where(known.any(axis=1, keepdims=True), states, rest)

    def check(self, states: Tensor) -> None:
        """See `Loss.check`: states pull from everywhere."""

    def value(self, states: Tensor) -> Tensor:
        """See `Loss.value`."""
        return 0.5 * self.residuals(states).square().sum()

    def residuals(self, states: Tensor) -> Tensor:
        """See `Loss.residuals`."""
        off: Tensor = _Local.apply(states, self.problem.system, self._states)
        return (off / self._std)[self._known]

    def variance(self, residuals: Array) -> float:
        """See `Loss.variance`."""
        return misfit(residuals)


class _Local(torch.autograd.Function):
    """The tangents [F, D] from known states to given ones [F, N]."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, system: System, known: Array) -> Tensor:
        values = states.detach().numpy()
        ctx.inputs = system, values, known
        return torch.from_numpy(system.local(known, values))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_tangent: Tensor) -> tuple[Tensor, None, None]:
        system, values, known = ctx.inputs
        given, along = by_tangent.numpy(), np.zeros(by_tangent.shape)
        for i in np.flatnonzero(given.any(axis=0)):  # central differences of fourth order: rotations are curved
            step = np.zeros(along.shape[1])
            step[i] = _STEP
            ends = [system.local(known, system.retract(values, times * step)) for times in (-2.0, -1.0, 1.0, 2.0)]
            slope = (ends[0] - 8.0 * ends[1] + 8.0 * ends[2] - ends[3]) / (12.0 * _STEP)
            along[:, i] = (given * slope).sum(axis=1)
        gradient = (along[:, None] @ system.cotangent_basis(values))[:, 0]
        return torch.from_numpy(np.ascontiguousarray(gradient)), None, None

"""The contract of a loss: how far a motion is from the evidence."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from vid2phys.errors import UsageError
from vid2phys.solvers.least_squares import STUDENT_DOF
from vid2phys.solvers.network_outputs import NetworkOutputs
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.rendering import Scene
from vid2phys.solvers.rollout_fit import MotionLoss
from vid2phys.types import Array


@dataclass(frozen=True)
class Evidence:
    """What a loss may compare a motion with beside the problem's observation; each loss states what it needs.

    states: [F, N] of the frames, and their standard deviations [F, D], infinite for what is not known. scene: the
    clip's images and how the body is drawn into them. reader: a trained network.
    """

    states: Array | None = None
    std: Array | None = None
    scene: Scene | None = None
    reader: NetworkOutputs | None = None


class Loss(MotionLoss):
    """A loss of the states at all frames of a clip, [F, N] float64, in PyTorch.

    Where a loss has residuals in units of their errors, a fit has intervals (`residuals`, `variance`).
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()  # fields of Evidence
    has_residuals: ClassVar[bool]  # else no intervals follow from it

    def __init__(self, problem: Problem, evidence: Evidence) -> None:
        """Raises UsageError when the evidence lacks what the loss needs."""
        missing = [need for need in self.needs if getattr(evidence, need) is None]
        if missing:
            raise UsageError(f"the loss '{self.name}' without {', '.join(missing)}", f"all of {', '.join(self.needs)}")
        self.problem, self.evidence = problem, evidence
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Compute whatever stays the same through a fit. Raises Vid2PhysError for what cannot be compared."""

    @abstractmethod
    def check(self, states: Tensor) -> None:
        """Raises InputError for states [F, N] to start from at which the loss has nothing to go by."""

    @abstractmethod
    def residuals(self, states: Tensor) -> Tensor:
        """Return the residuals [R] of a Gauss-Newton step; empty for a loss that has none."""

    @abstractmethod
    def variance(self, residuals: Array) -> float:
        """Return the variance of an independent residual, from the residuals at the end of a fit."""


def misfit(residuals: Array) -> float:
    """Return the mean square of residuals that should have unit variance, at least 1.

    A bad fit widens intervals; a good one does not narrow them.
    """
    return max(1.0, float(np.mean(np.square(residuals))) if residuals.size else 1.0)


def robust(white: Tensor, count: Tensor) -> Tensor:
    """Return residuals [..., F, R] scaled so that half their squares are a Student-t cost of each frame.

    white: [..., F, R], of unit variance. count: [F], how many of them there are. As in shooting, an outlier counts
    little.
    """
    count = count.clamp(min=1.0)
    share = white.square().sum(-1) / (count * STUDENT_DOF)
    small = share < 1e-8
    safe = torch.where(small, torch.ones_like(share), share)
    weight = torch.where(small, 1.0 - 0.5 * share, torch.log1p(safe) / safe) * (STUDENT_DOF + 1.0) / STUDENT_DOF
    return white * weight.sqrt()[..., None]

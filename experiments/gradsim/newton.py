"""Ours on gradSim's experiments: the same images by Levenberg and Marquardt's descent, with intervals.

Pixels are taken to err by `SIGMA` each, independent of each other: intervals say what images that noisy tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from experiments.gradsim.pixels import Target
from vid2phys.solvers import arrow, rollout_fit
from vid2phys.solvers.intervals import estimates, identifiability
from vid2phys.types import Array, Estimate, Parameters

VERSION = 2  # raise when ours goes another way: its outcomes in all tables are made again
SIGMA = 0.01  # of a pixel's linear light, full scale 1


@dataclass(frozen=True)
class ImageJudge(rollout_fit.MotionLoss):
    """How far images are from a target, in deviations of its noise.

    differences: of states [F, N] to what is left of their images, linear light [R].
    """

    differences: Callable[[Tensor], Tensor]

    def value(self, states: Tensor) -> Tensor:
        """Return half the sum of squares."""
        return 0.5 * self.residuals(states).square().sum()

    def residuals(self, states: Tensor) -> Tensor:
        """Return the residuals [R]."""
        return self.differences(states) / SIGMA


@dataclass(frozen=True)
class Fit:
    """What was found. estimates: of the free parameters, with 95 % intervals. said: what the images do not tell.
    misfit: root mean square of what is left, in deviations of the noise: 1 where the model is right."""

    estimates: tuple[Estimate, ...]
    reported: tuple[str, ...]
    iterations: int
    loss: float
    misfit: float

    def __getitem__(self, name: str) -> Estimate:
        return next(each for each in self.estimates if each.name == name)

    @property
    def values(self) -> Array:
        """Return the values in SI, [U]."""
        return np.array([each.value for each in self.estimates])


def fit(roll: rollout_fit.Motions, judge: rollout_fit.MotionLoss, parameters: Parameters, starts: Array) -> Fit:
    """Fit the free ones of `parameters` from starts [B, U] in solver coordinates; units as in `gradient.solve`."""
    units = parameters.free_units
    found = rollout_fit.solve(roll, judge, starts, units, limits=parameters.free_bounds)
    fitted, names = parameters.fitted_at(found.values), parameters.free_names
    null = arrow.parameter_covariance(found.information, reference=np.diagonal(found.information))
    with torch.no_grad():
        degrees = float(judge.residuals(torch.from_numpy(found.states.copy())).numel() - len(units))
    misfit = float(np.sqrt(2.0 * found.loss / max(degrees, 1.0)))
    covariance = max(1.0, misfit) ** 2 * null.covariance  # as in `losses.misfit`: a good fit does not narrow them
    all_of = estimates(fitted, names, covariance, null.directions, degrees)
    asked = tuple(each for each in all_of if each.name in names)
    reported = identifiability(names, null.directions, asked, fitted)
    return Fit(asked, tuple(reported), found.iterations, found.loss, misfit)


def noisy(target: Target, rng: np.random.Generator) -> Target:
    """Return the target with the noise that intervals are made for."""
    noise = SIGMA * rng.normal(size=tuple(target.images.shape))
    return Target(target.images + torch.from_numpy(noise), target.mask)

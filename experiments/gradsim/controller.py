"""gradSim's controller (Jatavallabhula, Macklin et al., ICLR 2021, section 4.3): one layer and a tanh, fed by sines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vid2phys.errors import UsageError
from vid2phys.types import Array

SINES = 8  # signals, whose phases are equal parts of a turn apart


@dataclass(frozen=True)
class SineNetwork:
    """Activations limit tanh(W s(t) + b) of `count` muscles, s_k(t) = sin(2 pi (frequency t + k / 8)).

    Its weights are one vector: W [count, 8] row by row, then b [count]. Activations never leave -limit..limit; a muscle
    of activation 1 would want no size at all, so `limit` has to be less. Raises UsageError for one that is not.

    Limits: it sees the time alone, nothing of the body. Eight phases of one frequency span two signals, a sine and a
    cosine: more of them change what a step of descent does, not what motions there are.
    """

    count: int
    limit: float
    frequency_hz: float

    def __post_init__(self) -> None:
        if not 0.0 < self.limit < 1.0:
            raise UsageError(f"activations up to {self.limit:g}", "more than 0 and less than 1", "choose another limit")

    @property
    def size(self) -> int:
        """Return the number of weights."""
        return self.count * (SINES + 1)

    def activations(self, weights: Tensor, times_s: Array) -> Tensor:
        """Return the activations of weights [B, size] at times [S] s, [B, S, count]; differentiable."""
        phases = self.frequency_hz * np.asarray(times_s, dtype=float)[:, None] + np.arange(SINES) / SINES
        sines = torch.from_numpy(np.sin(2.0 * np.pi * phases))
        matrix, bias = weights.split([self.count * SINES, self.count], dim=1)
        return self.limit * torch.tanh(sines @ matrix.reshape(-1, self.count, SINES).mT + bias[:, None])

    def drawn(self, rng: np.random.Generator, spread: float) -> Array:
        """Return random weights [size]: W normal with a standard deviation of `spread`, b zero."""
        return np.concatenate([rng.normal(0.0, spread, self.count * SINES), np.zeros(self.count)])

"""Several clips of one body in one fit: what they share, and what each has alone.

Method: all clips share the parameters; each has its own states and nuisances. These are eliminated clip by clip (Schur
complements), and what is left of all is added up: blocks of an arrow once more.

Limits: what differs between clips has to be a state or a nuisance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import UsageError
from vid2phys.solvers.hyperparameters import OtherClips
from vid2phys.solvers.least_squares import NormalEquations
from vid2phys.types import Array


@dataclass(frozen=True)
class Join:
    """Where the parameters of each clip, P_g of them, are among the P of all.

    names: [P], those shared, then the nuisances of each clip. columns: [P_g] of each clip.
    """

    names: tuple[str, ...]
    columns: tuple[NDArray[np.int64], ...]

    @staticmethod
    def of(clips: Sequence[tuple[str, ...]], shared: tuple[str, ...]) -> Join:
        """Return the join of clips by the names of their parameters, which begin with those `shared`."""
        names, columns = list(shared), []
        for own in clips:
            if own[: len(shared)] != shared:
                raise UsageError(f"clips with the parameters {', '.join(own)}", ", ".join(shared), "fit the same ones")
            added = len(own) - len(shared)
            columns.append(np.array([*range(len(shared)), *range(len(names), len(names) + added)], dtype=np.int64))
            names += own[len(shared) :]
        return Join(tuple(names), tuple(columns))

    def vector(self, parts: Sequence[Array]) -> Array:
        """Return the sum of the clips' vectors, [P]."""
        total = np.zeros(len(self.names))
        for columns, part in zip(self.columns, parts, strict=True):
            total[columns] += part
        return total

    def matrix(self, parts: Sequence[Array]) -> Array:
        """Return the sum of the clips' matrices, [P, P]."""
        total = np.zeros((len(self.names), len(self.names)))
        for columns, part in zip(self.columns, parts, strict=True):
            total[np.ix_(columns, columns)] += part
        return total

    def other_clips(self, clip: int, informations: Sequence[Array], gradients: Sequence[Array]) -> OtherClips | None:
        """Return what the other clips tell of a clip's parameters, their own nuisances eliminated; None for one
        clip."""
        if len(self.columns) == 1:
            return None
        others = [g for g in range(len(self.columns)) if g != clip]
        information, gradient = np.zeros((len(self.names),) * 2), np.zeros(len(self.names))
        for g in others:
            information[np.ix_(self.columns[g], self.columns[g])] += informations[g]
            gradient[self.columns[g]] += gradients[g]
        here = self.columns[clip]
        rest = np.setdiff1d(np.arange(len(self.names)), here)
        gain = np.linalg.solve(information[np.ix_(rest, rest)], information[np.ix_(rest, here)])
        return OtherClips(
            information[np.ix_(here, here)] - information[np.ix_(here, rest)] @ gain,
            gradient[here] - gain.T @ gradient[rest],
        )


@dataclass(frozen=True)
class Dense:
    """Normal equations of clips that are each a rollout from an unknown start: all starts, then what is shared.

    gradient [U]; information [U, U]; starts: how many of the unknowns are of starts.
    """

    gradient: Array
    information: Array
    starts: int

    @property
    def normal(self) -> NormalEquations:
        """Return the equations without their structure."""
        return NormalEquations(self.gradient, self.information)

    @staticmethod
    def of(gradients: Sequence[Array], informations: Sequence[Array], shared: int) -> Dense:
        """Return the equations of clips whose unknowns are those of their start, then the `shared` ones."""
        sizes = [len(each) - shared for each in gradients]
        starts, before = sum(sizes), np.cumsum([0, *sizes])
        gradient, information = np.zeros(starts + shared), np.zeros((starts + shared,) * 2)
        for size, first, slope, block in zip(sizes, before, gradients, informations, strict=False):
            places = np.array([*range(first, first + size), *range(starts, starts + shared)], dtype=np.int64)
            gradient[places] += slope
            information[np.ix_(places, places)] += block
        return Dense(gradient, information, starts)

    def block(self, clip: int, size: int, matrix: Array) -> Array:
        """Return rows and columns of one clip's start (`size` unknowns) and of what is shared, of a matrix [U, U]."""
        places = np.array([*range(clip * size, (clip + 1) * size), *range(self.starts, len(self.gradient))])
        return matrix[np.ix_(places, places)]

"""Other motions: values of the parameters far from a fit, and other starts, judged by the images.

Purpose: a fit to frames that were wrong all along stays near them. A finger that is taken for one that hangs still
comes out stiff.

Method: the motions of a system under other parameters are few. Each parameter is scanned over three decades, and the
log-likelihood of the images selects among the motions.

Limits: one parameter at a time, from starts that are the fitted ones or at rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.solvers.configuration_shooting import states_at_frames
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array

SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 1.7, 3.0, 7.0, 20.0)  # tried values, over the one that a fit began with
_ROUNDS = 2
_MOVED = 1e-3  # spreads of the configuration: least motion of a coordinate that depends on a parameter
_STEP = 0.1  # change of a parameter, over its value, that shows what it moves

Judge = Callable[[int, Array], float]
"""How well the configurations [F, D] of a clip, given by its index, explain what is seen, nats."""


@dataclass(frozen=True)
class Motion:
    """starts: configuration and rates at the first frame of each clip, [G, 2 D]. theta: [P] in solver coordinates.
    nats: of all clips.
    """

    starts: Array
    theta: Array
    nats: float


def other_motion(
    problems: Sequence[Problem], body: ArticulatedBody, starts: Array, theta: Array, judge: Judge, least: float
) -> Motion | None:
    """Return a motion that explains the images by `least` nats more than the given one, or None.

    starts: [G, 2 D]. theta: [P]. Each parameter is tried at `SHARES` of the problem's value. What it moves starts as
    fitted, or at rest.
    """
    scan = _Scan(problems, body, judge)
    first = best = Motion(starts, theta, scan.total(starts, theta))
    for _ in range(_ROUNDS):
        found = scan.improved(best, least)
        if found is None or found.nats <= best.nats:
            break
        best = found
    return best if best.nats > first.nats + least else None


@dataclass(frozen=True)
class _Scan:
    problems: Sequence[Problem]
    body: ArticulatedBody
    judge: Judge

    def total(self, starts: Array, theta: Array) -> float:
        """Return the nats of all clips."""
        return sum(float(self._nats(clip, start, theta[None])[0]) for clip, start in enumerate(starts))

    def improved(self, motion: Motion, least: float) -> Motion | None:
        """Return the motion with the best value of every parameter that gains `least` nats, or None.

        What the parameter moves starts at rest where that is better.
        """
        starts, theta = motion.starts.copy(), motion.theta.copy()
        for j, values in enumerate(self._values()):
            tried = np.repeat(motion.theta[None], len(values), axis=0)
            tried[:, j] = values
            moved = self._moved(motion, j)
            both = np.array(
                [
                    [self._nats(clip, start, tried), self._nats(clip, self._at_rest(start, moved), tried)]
                    for clip, start in enumerate(motion.starts)
                ]
            )  # [G, 2, values]
            of_values = both.max(axis=1).sum(axis=0)
            best = int(np.argmax(of_values))
            if of_values[best] > motion.nats + least:
                theta[j] = values[best]
                for clip in np.flatnonzero(both[:, 1, best] > both[:, 0, best]):
                    starts[clip] = self._at_rest(starts[clip], moved)
        if np.array_equal(theta, motion.theta):
            return None
        return Motion(starts, theta, self.total(starts, theta))

    def _values(self) -> list[Array]:
        """Return the values of each free parameter that are tried, in solver coordinates."""
        items = [parameter for parameter in self.problems[0].parameters if parameter.free]
        limits = [np.clip(np.array(SHARES) * item.value, item.lower, item.upper) for item in items]
        return [np.unique([item.to_free(float(v)) for v in some]) for item, some in zip(items, limits, strict=True)]

    def _moved(self, motion: Motion, j: int) -> NDArray[np.bool_]:
        """Return which coordinates of the configuration [D] a parameter moves."""
        parameters = self.problems[0].parameters.fitted_at(motion.theta)
        item = [parameter for parameter in parameters if parameter.free][j]
        both = np.stack([motion.theta, motion.theta])
        both[1, j] = item.to_free(float(np.clip((1.0 + _STEP) * item.value, item.lower, item.upper)))
        apart = [np.ptp(self._configurations(clip, start, both), axis=0) for clip, start in enumerate(motion.starts)]
        return np.asarray(np.nan_to_num(np.array(apart)).max(axis=(0, 1)) > _MOVED * self.body.prior_std)

    def _at_rest(self, start: Array, moved: NDArray[np.bool_]) -> Array:
        rest = np.concatenate([self.body.rest, np.zeros_like(self.body.rest)])
        return np.where(np.concatenate([moved, moved]), rest, start)

    def _nats(self, clip: int, start: Array, thetas: Array) -> Array:
        """Return the nats [B] of a clip's motions from a start by thetas [B, P], minus infinity without a motion."""
        configurations = self._configurations(clip, start, thetas)
        return np.array([self.judge(clip, each) if np.isfinite(each).all() else -np.inf for each in configurations])

    def _configurations(self, clip: int, start: Array, thetas: Array) -> Array:
        """Return the configurations [B, F, D] of a clip's motions from a start by thetas [B, P]."""
        unknowns = np.concatenate([np.repeat(start[None], len(thetas), axis=0), thetas], axis=1)
        return self.body.configurations(states_at_frames(self.problems[clip], self.body, unknowns))

"""A filmed motion of which something is unknown, and what each method of gradSim's tables makes of it.

All methods look for the same unknowns from the same start, in solver coordinates (logarithms where they have one).
`diffphysics` is given the true places of all vertices in space, `pixel` the images, `ours` the same images.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.gradsim.descent import Descended, descend
from experiments.gradsim.newton import Fit, ImageJudge, fit, noisy
from experiments.gradsim.pixels import Shot, Target
from vid2phys.engine.rollout import simulate
from vid2phys.solvers.rollout_fit import Motions
from vid2phys.types import Array, Parameters

_EXACT = 1e-14  # of the first loss: a descent that ends at the truth leaves rounding

Inputs = tuple[Tensor, Tensor, Tensor]
"""Initial state [N], controls [S, M] and parameters [P] of a motion."""


@dataclass(frozen=True)
class Filmed:
    """unknown: what is sought, all free, with its values at the start and its bounds. truth: [U] in SI. inputs: what a
    motion follows from, by the unknowns [U] in SI; differentiable. groups: indices of unknowns that are judged
    together (numbers of the particles of a body), by name; none: each is judged by itself. smoothing: [U, U] that steps
    of descents, in solver coordinates, are smoothed by (None: as they are). seen: the images of it, where they are of
    something else than this model (None: what the true motion looks like)."""

    shot: Shot
    unknown: Parameters
    truth: Array
    inputs: Callable[[Tensor], Inputs]
    groups: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    smoothing: Array | None = None
    seen: Target | None = None

    @property
    def start(self) -> Array:
        """Return the start in solver coordinates [U]."""
        return self.unknown.free_vector()

    @cached_property
    def true_free(self) -> Array:
        """Return the truth in solver coordinates [U]."""
        return np.array([p.to_free(value) for p, value in zip(self.unknown, self.truth, strict=True)])

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """Return the bounds of the unknowns in solver coordinates, [U] each."""
        return self.unknown.free_bounds

    def values(self, free: Tensor) -> Tensor:
        """Return the solver coordinates [U] in SI."""
        logs = torch.tensor([p.transform == "log" for p in self.unknown])
        return torch.where(logs, free.exp(), free)

    def states(self, free: Tensor) -> Tensor:
        """Return the states at the frames [F, N]; differentiable."""
        return self.shot.filmed(self.shot.states(*self.inputs(self.values(free))))

    def images(self, free: Tensor) -> Tensor:
        """Return linear light [F, H, W, 3]; differentiable."""
        return self.shot.stage.images(self.states(free))

    @cached_property
    def target(self) -> Target:
        """Return the target images."""
        if self.seen is not None:
            return self.seen
        with torch.no_grad():
            return Target(self.images(torch.from_numpy(self.true_free)))

    def roll(self, values: Array) -> Array:
        """Return states at the frames [B, F, N] of unknowns in solver coordinates [B, U]: a `rollout_fit.Motions`."""
        rows = [self.inputs(self.values(torch.from_numpy(np.clip(row, *self.bounds)))) for row in values]
        initial, controls, parameters = (torch.stack(each).numpy() for each in zip(*rows, strict=True))
        shot = self.shot
        states = simulate(
            *(shot.system, initial, controls, parameters, shot.step_s), integrator=shot.integrator,
            substeps=shot.substeps, precision=shot.precision,
        )  # fmt: skip
        return np.asarray(states[:, :: shot.every])

    def shortened(self, frames: int) -> Filmed:
        """Return the motion's first frames alone."""
        steps = (frames - 1) * self.shot.every

        def inputs(values: Tensor) -> Inputs:
            initial, controls, parameters = self.inputs(values)
            return initial, controls[:steps], parameters

        return replace(self, shot=replace(self.shot, steps=steps), inputs=inputs, seen=self.target.first(frames))

    @property
    def judged(self) -> dict[str, NDArray[np.int64]]:
        """Return the groups of unknowns that are judged together, by name."""
        return self.groups or {name: np.array([i]) for i, name in enumerate(self.unknown.names)}

    def errors(self, values: Array) -> dict[str, float]:
        """Return how far unknowns [U] in SI are from the truth, relative to it: root mean squares of what belongs
        together.
        """
        off, true = np.square(values - self.truth), np.square(self.truth)
        return {name: float(np.sqrt(off[i].sum() / true[i].sum())) for name, i in self.judged.items()}


def by_pixels(filmed: Filmed, **how: Any) -> Descended:
    """Descend as gradSim does, along the error of the images; how: as `_descend` takes it. Raises InputError where they
    overlap the target's nowhere.
    """
    with torch.no_grad():
        filmed.target.require_overlap(filmed.shot.stage, filmed.states(torch.from_numpy(filmed.start)))
    return _descend(filmed, lambda free: filmed.target.error(filmed.images(free)), **how)


def by_states(filmed: Filmed, **how: Any) -> Descended:
    """Descend as `diffphysics` does, along the mean squared distance of vertices in space from the true ones [m^2]."""
    actors = filmed.shot.stage.actors

    def places(free: Tensor) -> Tensor:
        states = filmed.states(free)
        return torch.cat([actor.placed(states) for actor in actors], dim=1)

    with torch.no_grad():
        truth = places(torch.from_numpy(filmed.true_free))
    return _descend(filmed, lambda free: (places(free) - truth).square().sum(-1).mean(), **how)


def _descend(
    filmed: Filmed,
    loss: Callable[[Tensor], Tensor],
    *,
    rate: float,
    iterations: int,
    optimizer: str = "adam",
    moves: Array | None = None,
) -> Descended:
    """Descend from the given start, and again while more than `_EXACT` of the first loss is left: the descent was
    caught.

    It begins from the best point so far, moved by the next of `moves` [A, U], and from the given start when half of
    them have not helped. The best of all, with the time of all.
    """
    how: dict[str, Any] = {"rate": rate, "iterations": iterations, "optimizer": optimizer}
    if filmed.smoothing is not None:
        return _descend_smoothly(filmed, loss, how)
    low, high = filmed.bounds
    tries: list[Descended] = []

    def go(start: Array) -> Descended:
        tries.append(descend(loss, np.clip(start, low, high), bounds=(low, high), **how))
        return tries[-1]

    best = go(filmed.start)
    shifts = [] if moves is None else list(moves)
    for number, move in enumerate(shifts):
        if best.loss <= _EXACT * tries[0].losses[:1].sum():
            break
        origin = best.values if number < len(shifts) // 2 else filmed.start
        best = min(best, go(origin + move), key=lambda found: found.loss)
    return replace(best, seconds=sum(found.seconds for found in tries), starts=len(tries))


def _descend_smoothly(filmed: Filmed, loss: Callable[[Tensor], Tensor], how: dict[str, Any]) -> Descended:
    (low, high), start = filmed.bounds, filmed.start
    smooth, begin, ends = (torch.from_numpy(each) for each in (filmed.smoothing, start, np.stack([low, high])))

    def free(unknowns: Tensor) -> Tensor:
        return (begin + smooth @ unknowns).clamp(ends[0], ends[1])

    found = descend(lambda unknowns: loss(free(unknowns)), np.zeros_like(start), **how)
    path = np.array([free(torch.from_numpy(each)).numpy() for each in found.path])
    return replace(found, values=free(torch.from_numpy(found.values)).numpy(), path=path)


def by_newton(filmed: Filmed, starts: Array) -> Fit:
    """Fit by Levenberg and Marquardt's descent on images, from the best of starts [B, U] and the given one."""
    stage, aim = filmed.shot.stage, filmed.target
    judge = ImageJudge(lambda states: aim.differences(stage.images(states)))
    roll: Motions = filmed.roll
    return fit(roll, judge, filmed.unknown, np.vstack([filmed.start, starts]))


def in_parts(
    descent: Callable[..., Descended], filmed: Filmed, parts: Sequence[tuple[int, int]], **how: Any
) -> Descended:
    """Run a descent (`by_pixels`, `by_states`) of the first frames, then of more, at last of all, each from where the
    last one ended.

    parts: first frames, and evaluations that they get. A contact that is still to come catches descents that begin far
    from the truth: early frames, which know little of it, lead them near.
    """
    at, seconds = filmed, 0.0
    for frames, evaluations in parts:
        found = descent(at.shortened(frames), **how | {"iterations": evaluations})
        at, seconds = replace(at, unknown=filmed.unknown.fitted_at(found.values)), seconds + found.seconds
    found = descent(at, **how)
    return replace(found, seconds=seconds + found.seconds)


def outcome_of(
    filmed: Filmed,
    method: str,
    rng: np.random.Generator,
    starts: Array,
    *,
    parts: Sequence[tuple[int, int]] = (),
    **how: Any,
) -> dict[str, Any]:
    """Return what a table keeps of one object: `start_error_NAME` and `error_NAME` of each unknown, `seconds`; of ours
    also from noisy images, with what their 95 % intervals hold. starts: of ours, [B, U]; none (B = 0): where the
    pixels' descent ends. parts: of descents (`in_parts`).
    """
    if method in ("diffphysics", "pixel"):
        descent = by_states if method == "diffphysics" else by_pixels
        return outcome_of_descent(filmed, in_parts(descent, filmed, parts, **how))
    began = time.monotonic()
    clean = _ours(filmed, starts, parts, how)
    seconds = time.monotonic() - began
    real = _ours(replace(filmed, seen=noisy(filmed.target, rng)), starts, parts, how)
    return _found(filmed, clean.values) | {"seconds": seconds} | _of_intervals(filmed, real)


def _ours(filmed: Filmed, starts: Array, parts: Sequence[tuple[int, int]], how: dict[str, Any]) -> Fit:
    if len(starts):
        return by_newton(filmed, starts)
    descended = in_parts(by_pixels, filmed, parts, **how)
    return by_newton(replace(filmed, unknown=filmed.unknown.fitted_at(descended.values)), starts)


def outcome_of_descent(filmed: Filmed, descended: Descended) -> dict[str, Any]:
    """Return the outcome of any descent, see `outcome_of`."""
    found = filmed.values(torch.from_numpy(descended.values)).numpy()
    kept = {"seconds": descended.seconds, "starts": descended.starts, "failure": descended.failure}
    return _found(filmed, found) | kept


def _found(filmed: Filmed, values: Array) -> dict[str, Any]:
    start = np.array([p.value for p in filmed.unknown])
    errors = {f"start_error_{name}": error for name, error in filmed.errors(start).items()}
    errors |= {f"error_{name}": error for name, error in filmed.errors(values).items()}
    return errors | {"truth": filmed.truth.tolist(), "found": values.tolist()}


def _of_intervals(filmed: Filmed, real: Fit) -> dict[str, Any]:
    kept: dict[str, Any] = {f"noisy_error_{name}": error for name, error in filmed.errors(real.values).items()}
    low, high = np.array([each.ci95 for each in real.estimates]).T
    for name, i in filmed.judged.items():
        widths = (high - low)[i] / np.sqrt(np.mean(np.square(filmed.truth[i])))
        kept[f"holds_{name}"] = float(np.mean((low <= filmed.truth)[i] & (filmed.truth <= high)[i]))
        kept[f"width_{name}"] = float(np.mean(widths)) if np.isfinite(widths).all() else None
    return kept | {"said": list(real.reported), "misfit": real.misfit}

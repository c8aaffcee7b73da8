"""Control towards a goal: gradSim's visuomotor experiments (Jatavallabhula, Macklin et al., ICLR 2021, section 4.3).

A motion of a fixed length is driven by unknowns: a controller's weights, or the velocities it begins with. `pixel`
sees one image of the goal, and compares it with the last image of the motion. `diffphysics` is told where the
goal's middle is, in space, and pulls the body's there. `random` draws unknowns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from scipy.optimize import LbfgsInvHessProduct
from torch import Tensor

from experiments.gradsim.pixels import Shot, Target
from vid2phys.engine.rollout import rollout, simulate
from vid2phys.errors import SimulationError
from vid2phys.types import Array

METHODS = ("random", "diffphysics", "pixel")
LENGTHS = 8  # of steps that are tried along a gradient
TRIES = 8  # random unknowns that a start is the best of
_SHRUNK = 3  # times that all of them may be too long
REACHED = 0.05  # of the body's size: the middle this near to the goal's

Loss = Callable[[Tensor], Tensor]  # of the states [S + 1, N] of one motion


@runtime_checkable
class VertexBody(Protocol):
    """What control experiments ask of a system whose state is positions, then velocities, of vertices.

    rest_m: [V, 3] m, the vertices at rest.
    """

    rest_m: Array

    def masses(self, parameters: Array) -> Array:
        """Return the masses of the vertices, [V] kg."""
        ...


class Motion(Protocol):
    """A motion that unknowns drive towards a goal."""

    def states(self, unknowns: Tensor) -> Tensor:
        """Return the states of the motions by unknowns [B, U], [B, S + 1, N]; differentiable where they are. Raises as
        `rollout`.
        """
        ...

    def loss(self, method: str) -> Loss:
        """Return what a method minimises."""
        ...

    def measured(self, states: Tensor) -> dict[str, float]:
        """Return what a motion has come to, with its `image_error`."""
        ...

    def drawn(self, rng: np.random.Generator) -> Array:
        """Return random unknowns [U]."""
        ...


@dataclass(frozen=True)
class Task:
    """A body that is to look like an image when the motion is over.

    initial: [N], and parameters: [P], of the motion. drive: unknowns [B, U] to first states [B, N] and controls
    [B, S, M], differentiable. draw: random unknowns [U]. goal: state [N], of which `pixel` sees the image.
    dense: whether `diffphysics` pulls at every step of the motion, or at its last state alone.
    """

    shot: Shot
    parameters: Array
    inputs: Callable[[Tensor], tuple[Tensor, Tensor]]
    draw: Callable[[np.random.Generator], Array]
    goal: Array
    dense: bool = True

    @property
    def body(self) -> VertexBody:
        """Return the body that moves."""
        assert isinstance(self.shot.system, VertexBody)
        return self.shot.system

    def states(self, unknowns: Tensor) -> Tensor:
        """See `Motion.states`."""
        shot, (initial, controls) = self.shot, self.inputs(unknowns)
        how: dict[str, Any] = {
            "integrator": shot.integrator,
            "substeps": shot.substeps,
            "precision": shot.precision,
        }
        if unknowns.requires_grad:
            return rollout(shot.system, initial, controls, torch.from_numpy(self.parameters), shot.step_s, **how)
        states = simulate(shot.system, initial.numpy(), controls.numpy(), self.parameters, shot.step_s, **how)
        return torch.from_numpy(states)

    def drawn(self, rng: np.random.Generator) -> Array:
        """See `Motion.drawn`."""
        return self.draw(rng)

    def loss(self, method: str) -> Loss:
        """See `Motion.loss`."""
        return self.seen_error if method == "pixel" else self.middle_error

    def begin(self, rng: np.random.Generator, count: int = 1) -> Array:
        """Return what descents begin with, [count, U]: one in eight of random unknowns, those that end nearest to the
        goal's image.
        """
        drawn = np.stack([self.drawn(rng) for _ in range(TRIES * count)])
        with torch.no_grad():
            errors = [float(self.seen_error(each)) for each in self.states(torch.from_numpy(drawn))]
        return np.asarray(drawn[np.argsort(errors)[:count]])

    @cached_property
    def target(self) -> Target:
        """Return the image of the goal."""
        return Target(self._goal_drawn[0])

    @cached_property
    def _goal_drawn(self) -> tuple[Tensor, Tensor]:
        """Return the image and coverage of the goal (`Stage.drawn`)."""
        return self.shot.stage.drawn(torch.from_numpy(self.goal)[None])

    def seen_error(self, states: Tensor) -> Tensor:
        """Return the mean squared difference between the last image and the goal's, infinite for a body that ends off
        it.

        A body outside the image leaves one of two silhouettes that err: nearer by the numbers, and lost.
        """
        image, covered = self.shot.stage.drawn(states[-1:])
        error, asked = self.target.error(image), self._goal_drawn[1]
        return error if bool(((covered > 0.0) & (asked > 0.0)).any()) else torch.full_like(error, torch.inf)

    def middle_error(self, states: Tensor) -> Tensor:
        """Return the mean squared distance of the body's middle from the goal's [m^2]."""
        states = states if self.dense else states[-1:]
        return (self._middles(states) - self._middles(torch.from_numpy(self.goal))).square().sum(-1).mean()

    def measured(self, states: Tensor) -> dict[str, float]:
        """See `Motion.measured`: image error, overlap with the goal's silhouette (0 to 1), distances [m]."""
        goal, last = torch.from_numpy(self.goal)[None], states[-1:].detach()
        (image, covered), asked = self.shot.stage.drawn(last), self._goal_drawn[1]
        overlap = torch.minimum(covered, asked).sum() / torch.maximum(covered, asked).sum()
        off = self._positions(last) - self._positions(goal)
        return {
            "image_error": float(self.target.error(image)),
            "overlap": float(overlap),
            "middle_m": float((self._middles(last) - self._middles(goal)).norm()),
            "vertices_m": float(off.square().sum(-1).mean().sqrt()),
        }

    def _positions(self, states: Tensor) -> Tensor:
        return states[..., : self.body.rest_m.size].reshape(*states.shape[:-1], -1, 3)

    def _middles(self, states: Tensor) -> Tensor:
        """Centre of mass [..., 3] m."""
        return torch.from_numpy(self._shares) @ self._positions(states)

    @cached_property
    def _shares(self) -> Array:
        """Return the share of each vertex in the mass [V]."""
        masses = self.body.masses(self.parameters)
        return masses / masses.sum()


@dataclass(frozen=True)
class Reached:
    """unknowns: [U] at the end. curve: what was measured at the start and after each step, with the number of rollouts
    until then. seconds: of all. ended: why it stopped before its steps were used up, or None."""

    unknowns: Array
    curve: list[dict[str, float]]
    seconds: float
    ended: str | None = None


def reach(
    task: Task, method: str, starts: Array, steps: int, rng: np.random.Generator, *, lengths: int = LENGTHS
) -> Reached:
    """Return what a method reaches in so many steps from unknowns [B, U], trying so many lengths a step.

    Descents go on from all starts; it is the one that comes to the least loss, with the time of all. Raises InputError
    where the motion that `pixel` starts from first ends off the goal's image: nothing pulls it there.
    """
    if method == "random":
        return drawn_best(task, starts[0], steps, rng, (lengths + 1) * len(starts))
    if method == "pixel":
        states = task.states(torch.from_numpy(starts))
        task.target.require_overlap(task.shot.stage, states[0, -1:])
        starts = starts[[bool(task.seen_error(each).isfinite()) for each in states]]
    found = [descended(task, method, start, steps, lengths) for start in starts]
    best = min(found, key=lambda each: each.curve[-1]["loss"])
    return replace(best, seconds=sum(each.seconds for each in found))


def descended(task: Motion, method: str, start: Array, steps: int, lengths: int = LENGTHS) -> Reached:
    """Take quasi-Newton steps (`_downhill`) without a search for each length.

    A step is as long as the best of a few that are rolled out together: the longest is that of a parabola which ends at
    zero along the way, the second that of a straight line, and so on by halves. The loss is never raised; where all
    are too long they are shortened further, a few times.
    """
    began, at, curve, ended, rollouts = time.monotonic(), start, list[dict[str, float]](), None, 0
    loss, before, learnt = task.loss(method), None, list[tuple[Array, Array]]()
    for step in range(steps + 1):
        unknowns = torch.from_numpy(at[None].copy()).requires_grad_(step < steps)
        states = task.states(unknowns)[0]
        value = loss(states)
        rollouts += 1
        curve.append({**task.measured(states), "loss": float(value.detach()), "rollouts": rollouts})
        if step == steps:
            break
        slope = torch.autograd.grad(value, unknowns)[0][0].numpy()
        if not slope.any() or not np.isfinite(slope).all():
            ended = "the loss has no gradient" if np.isfinite(slope).all() else "the gradient is not finite"
            break
        if before is not None:
            move, bend = at - before[0], slope - before[1]
            if move @ bend > 0.0:
                learnt.append((move, bend))
        before, moved, way = (at, slope), None, _downhill(slope, learnt)
        longest = -2.0 * float(value.detach() / (slope @ way))
        for shrunk in range(_SHRUNK):
            tried = longest * 0.5 ** (lengths * shrunk + np.arange(lengths))
            rollouts += lengths
            moved = _best(task, loss, at + tried[:, None] * way, float(value.detach()))
            if moved is not None:
                break
        if moved is None:
            ended = "no shorter step lowers the loss"
            break
        at = moved
    return Reached(at, curve, time.monotonic() - began, ended)


def _downhill(slope: Array, learnt: Sequence[tuple[Array, Array]]) -> Array:
    """Return the direction of L-BFGS (Nocedal and Wright, Numerical Optimization, algorithm 7.4), which remembers all
    steps.

    slope: [U]. learnt: moves [U] and what the gradient [U] changed by along each.
    """
    if not learnt:
        return -slope
    moves, bends = (np.array(each) for each in zip(*learnt, strict=True))
    scale = float(moves[-1] @ bends[-1] / (bends[-1] @ bends[-1]))  # of the inverse where nothing was learnt
    return np.asarray(-scale * LbfgsInvHessProduct(moves / scale, bends).matvec(slope))


def _best(task: Motion, loss: Loss, candidates: Array, below: float) -> Array | None:
    """Return the candidate [U] of candidates [B, U], longest step first, with the least loss, if that is less than
    `below`.
    """
    while len(candidates):
        try:
            states = task.states(torch.from_numpy(candidates))
        except SimulationError:
            candidates = candidates[1:]  # too far
            continue
        with torch.no_grad():
            values = [float(loss(each)) for each in states]
        best = int(np.argmin(values))
        return candidates[best] if values[best] < below else None
    return None


def drawn_best(task: Motion, start: Array, steps: int, rng: np.random.Generator, draws: int = LENGTHS + 1) -> Reached:
    """Try the start, then for each step so many random unknowns; the best so far."""
    began, best = time.monotonic(), start
    measured = task.measured(task.states(torch.from_numpy(start[None]))[0])
    curve = [{**measured, "loss": measured["image_error"], "rollouts": 1}]
    for step in range(steps):
        candidates = np.stack([task.drawn(rng) for _ in range(draws)])
        found = [task.measured(states) for states in task.states(torch.from_numpy(candidates))]
        first = int(np.argmin([each["image_error"] for each in found]))
        if found[first]["image_error"] < measured["image_error"]:
            best, measured = candidates[first], found[first]
        curve.append({**measured, "loss": measured["image_error"], "rollouts": 1 + (step + 1) * draws})
    return Reached(best, curve, time.monotonic() - began)


def steps_to_goal(curve: list[dict[str, float]], size_m: float) -> int | None:
    """Return first step after which the body's middle is near the goal's, beside its size; None if there is none."""
    near = (k for k, each in enumerate(curve) if each["middle_m"] <= REACHED * size_m)
    return next(near, None)

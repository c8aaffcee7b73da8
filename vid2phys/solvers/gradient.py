"""The papers' optimisers on a deterministic rollout from the first state, through the engine's adjoint.

Method: first derivatives of any loss (`losses`). RMSProp is as in RISP (Ma, Du et al., ICLR 2022: rate 3e-3, momentum
0.5, 100 iterations); Adam is offered beside it. Parameters move in solver coordinates (logarithms, where they have one)
within their bounds, states on their manifold. Several starts are reported, and the best is kept. Intervals are those of
a Gauss-Newton Hessian at the end, for losses with residuals.

Limits: a step has a fixed length, so that the result wanders by about `rate` about the optimum. A start far away may
end in another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch

from vid2phys.engine.points import manifold_gradient
from vid2phys.engine.rollout import rollout, simulate
from vid2phys.errors import SimulationError, UsageError, unknown_name
from vid2phys.solvers import arrow
from vid2phys.solvers.losses import Loss
from vid2phys.solvers.multi_clip import Dense
from vid2phys.solvers.problem import Knots, Problem, rollout_controls, stable_substeps
from vid2phys.solvers.shooting import FINE_STEP_S, solved
from vid2phys.solvers.solution import Solution, innovations
from vid2phys.types import Array, Parameters

ITERATIONS = 100
RATES = {"adam": 1e-2, "rmsprop": 3e-3}
MOMENTUM = 0.5  # of RMSProp
_STEP = 1e-3  # of differences, in units of the unknowns
_TINY = 1e-5
_CONVERGED = 0.01  # share of the loss that the last tenth of the iterations may still gain

Point = TypeVar("Point")


@dataclass(frozen=True)
class Start:
    """A first state [N] and all parameters, where a descent begins or ends."""

    state: Array
    parameters: Parameters


@dataclass(frozen=True)
class Attempt:
    """One descent. end: its best point. losses: of each iteration, in order. failure: why it stopped early, if so."""

    start: Start
    end: Start
    losses: Array
    failure: str | None = None

    @property
    def loss(self) -> float:
        """Return the least loss; infinite if there is none."""
        return float(self.losses.min(initial=np.inf))

    @property
    def converged(self) -> bool:
        """Return whether the last tenth of the iterations brought little."""
        before = self.losses[: max(1, int(0.9 * len(self.losses)))].min(initial=np.inf)
        return self.failure is None and bool(before - self.loss <= _CONVERGED * before)


@dataclass(frozen=True)
class Descent:
    """The result: the best attempt's solution, and all attempts in the order of their starts.

    has_intervals: whether covariances follow from the loss; else they are infinite and mean nothing.
    """

    solution: Solution
    attempts: tuple[Attempt, ...]
    best: int
    has_intervals: bool


@dataclass(frozen=True)
class _Setup:
    problem: Problem
    loss: Loss
    knots: Knots
    controls: Array  # [T - 1, M]
    substeps: int
    units: Array  # [U] of the unknowns: tangent of the first state, then parameters in solver coordinates
    moving: int  # how many of the unknowns are of the first state: D or none


def solve(
    problem: Problem,
    loss: Loss,
    starts: Sequence[Start],
    *,
    optimizer: str = "rmsprop",
    iterations: int | None = None,
    rate: float | None = None,
    known_state: bool = False,
    units: Array | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Descent:
    """Minimise the loss over the first state and the free parameters from each of the starts.

    iterations: ITERATIONS if not given. rate: of the optimiser, in units of the unknowns: 1 for a logarithm, the value
    at the start for a parameter without one, and for the first state what moves the body by its own size. known_state:
    the first states of the starts are the truth, as in the papers. progress: called with iterations done and in all.
    Raises UsageError for an unknown optimiser, no starts, and a system whose actions are not recorded; InputError when
    a start leaves the loss without evidence; SimulationError when every start diverges.
    """
    iterations = ITERATIONS if iterations is None else iterations
    if optimizer not in RATES:
        raise unknown_name("optimizer", optimizer, tuple(RATES))
    if not starts or iterations < 1:
        raise UsageError(f"{len(starts)} starts and {iterations} iterations", "at least one of both", "raise --starts")
    setup = _setup(problem, loss, starts[0], known_state, units)
    _check(setup, starts)
    attempts: list[Attempt] = []
    for start in starts:

        def report(step: int, before: int = len(attempts) * iterations) -> None:
            progress(before + step, len(starts) * iterations)

        attempts.append(_descend(setup, start, optimizer, iterations, rate or RATES[optimizer], report))
    best = int(np.argmin([attempt.loss for attempt in attempts]))
    if not np.isfinite(attempts[best].loss):
        raise SimulationError(
            f"none of {len(starts)} starts could be simulated ({attempts[best].failure})", "a motion that stays finite",
            "start nearer with --set",
        )  # fmt: skip
    count = sum(len(attempt.losses) for attempt in attempts)
    solution = _solution(setup, attempts[best], count)
    return Descent(solution, tuple(attempts), best, loss.has_residuals)


def random_starts(start: Start, count: int, rng: np.random.Generator, *, factor: float = 2.0) -> list[Start]:
    """Return the start, and others whose free parameters are drawn up to a factor either way, within their bounds.

    A parameter without a logarithm is drawn evenly; one that is zero from within a hundredth of its bounds.
    """
    starts = [start]
    for _ in range(count - 1):
        values = {}
        for p in start.parameters:
            if not p.free:
                continue
            if p.value != 0.0:
                drawn = p.value * float(np.exp(rng.uniform(-1.0, 1.0) * np.log(factor)))
            else:
                drawn = float(rng.uniform(0.01 * max(p.lower, -1e3), 0.01 * min(p.upper, 1e3)))
            values[p.name] = float(np.clip(drawn, p.lower, p.upper))
        starts.append(Start(start.state, start.parameters.with_values(values)))
    return starts


def _setup(problem: Problem, loss: Loss, start: Start, known_state: bool, given: Array | None = None) -> _Setup:
    knots = Knots.of(problem.observation.times_s, min(problem.max_step_s, FINE_STEP_S))
    moving = 0 if known_state else len(problem.system.tangent_names)
    units = start.parameters.free_units if given is None else given
    if not moving + len(start.parameters.free_names):
        raise UsageError("nothing to fit", "a parameter or the first state", "name a parameter with --fit")
    controls, substeps = rollout_controls(problem, knots), stable_substeps(problem, knots)
    setup = _Setup(problem, loss, knots, controls, substeps, np.array([*np.ones(moving), *units]), moving)
    return setup if not moving else replace(setup, units=np.array([*_motion_units(setup, start), *units]))


def _motion_units(setup: _Setup, start: Start) -> Array:
    """Return how much of each tangent of the first state [D] moves the body's points by its own size, over all frames.

    A step has the same length along all unknowns: in SI a position would swing by centimetres while a velocity creeps.
    """
    system, points = setup.problem.system, setup.problem.observation.points_body
    steps = _TINY * np.eye(setup.moving)
    try:
        states = _states(setup, [start, *(replace(start, state=system.retract(start.state, row)) for row in steps)])
    except (SimulationError, UsageError):
        return np.ones(setup.moving)
    placed = system.keypoints(states, points)  # [1 + D, F, K, 3]
    size = float(np.sqrt(np.square(points - points.mean(axis=0)).sum(axis=-1).mean()))
    moves = np.sqrt(np.square(placed[1:] - placed[:1]).sum(axis=-1).mean(axis=(1, 2))) / _TINY
    return np.where(moves > 1e-6 * size, size / np.maximum(moves, 1e-6 * size), 1.0)


def _check(setup: _Setup, starts: Sequence[Start]) -> None:
    """Raises what the loss raises when it has nothing to go by at any of the starts that can be simulated."""
    failures: list[Exception] = []
    for start in starts:
        try:
            setup.loss.check(torch.from_numpy(_states(setup, [start])[0]))
            return
        except SimulationError:
            continue
        except Exception as error:  # the next start may be better
            failures.append(error)
    if failures:
        raise failures[0]


def _descend(
    setup: _Setup, start: Start, optimizer: str, iterations: int, rate: float, progress: Callable[[int], None]
) -> Attempt:
    def slope(point: Start) -> tuple[float, Array]:
        value, gradient = _slope(setup, point)
        return value, setup.units * gradient

    def moved(point: Start, step: Array) -> Start:
        return _moved(setup, point, step)

    step = stepper(optimizer, len(setup.units), rate)
    return Attempt(start, *follow(slope, moved, start, step, iterations, progress))


def follow(
    slope: Callable[[Point], tuple[float, Array]],
    moved: Callable[[Point, Array], Point],
    start: Point,
    step: Callable[[Array], Array],
    iterations: int,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[Point, Array, str | None]:
    """Return the best point of a descent, the losses of its iterations, and why it stopped early, if it did.

    slope: a point to its loss and gradient, in units of the unknowns. moved: a point and a step in these units to the
    next point. step: see `stepper`.
    """
    point, best, losses = start, start, list[float]()
    for iteration in range(iterations):
        progress(iteration)
        try:
            value, gradient = slope(point)
        except (SimulationError, UsageError) as error:  # beyond what the engine can compute
            return best, np.array(losses), str(error)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return best, np.array(losses), "the loss is not finite"
        if value < min(losses, default=np.inf):
            best = point
        losses.append(value)
        point = moved(point, step(gradient))
    return best, np.array(losses), None


def stepper(optimizer: str, size: int, rate: float) -> Callable[[Array], Array]:
    """Return a function from a gradient to the step of PyTorch's optimiser, independent of where the unknowns are."""
    at = torch.zeros(size, dtype=torch.float64)
    optimiser: Any = (
        torch.optim.RMSprop([at], lr=rate, momentum=MOMENTUM)
        if optimizer == "rmsprop"
        else torch.optim.Adam([at], lr=rate)
    )

    def step(slope: Array) -> Array:
        at.zero_()
        at.grad = torch.from_numpy(slope)
        optimiser.step()
        return at.numpy().copy()

    return step


def _slope(setup: _Setup, point: Start) -> tuple[float, Array]:
    """Return the loss with its priors, and its gradient by the unknowns [U], not in units."""
    system, names = setup.problem.system, [p.name for p in point.parameters if p.free]
    initial = torch.from_numpy(point.state[None].copy()).requires_grad_()
    parameters = torch.from_numpy(point.parameters.vector).requires_grad_()
    controls = torch.from_numpy(setup.controls[None])
    states = rollout(system, initial, controls, parameters, setup.knots.step_s, substeps=setup.substeps)[0]
    value = setup.loss.value(states[torch.from_numpy(setup.knots.frame_knot)])
    by_state, by_parameter = torch.autograd.grad(value, (initial, parameters))
    free = list(point.parameters.free_indices)
    off, precision = setup.problem.prior(names, point.parameters.free_vector())
    slope = (by_parameter.numpy() * point.parameters.slopes)[free] + off * np.sqrt(precision)
    if setup.moving:
        slope = np.concatenate([manifold_gradient(system, point.state, by_state.numpy()[0]), slope])
    return float(value.detach()) + 0.5 * float(off @ off), slope


def _moved(setup: _Setup, point: Start, step: Array) -> Start:
    """Return the point after a step in units of the unknowns, parameters within their bounds."""
    tangent, free = (setup.units * step)[: setup.moving], (setup.units * step)[setup.moving :]
    state = setup.problem.system.retract(point.state, tangent) if setup.moving else point.state
    return Start(state, point.parameters.fitted_at(point.parameters.free_vector() + free))


def _states(setup: _Setup, points: Sequence[Start], *, all_knots: bool = False) -> Array:
    """Return states at the frames [B, F, N] (or all knots, [B, T, N]) of rollouts from several points."""
    controls = np.broadcast_to(setup.controls, (len(points), *setup.controls.shape))
    initial, parameters = np.stack([p.state for p in points]), np.stack([p.parameters.vector for p in points])
    states = simulate(setup.problem.system, initial, controls, parameters, setup.knots.step_s, substeps=setup.substeps)
    return states if all_knots else states[:, setup.knots.frame_knot]


def _solution(setup: _Setup, attempt: Attempt, iterations: int) -> Solution:
    problem, point, size = setup.problem, attempt.end, setup.moving
    fitted = point.parameters.with_values({p.name: p.value for p in point.parameters if p.free}, source="fitted")
    names = [p.name for p in fitted if p.free]
    states = _states(setup, [point], all_knots=True)[0]
    at_frames = states[setup.knots.frame_knot]
    frames, tangents = len(at_frames), len(problem.system.tangent_names)
    covariance = np.full((frames, tangents, tangents), np.nan)
    null = arrow.Null(np.diag(np.full(len(names), np.inf)), np.zeros((0, len(names))))
    if setup.loss.has_residuals:
        information, sensitivity = _linearized(setup, point, at_frames)
        _, precision = problem.prior(names, fitted.free_vector())
        information[size:, size:] += np.diag(precision)
        null, full = solved(Dense(np.zeros(len(information)), information, size), precision)
        covariance = sensitivity @ full @ np.swapaxes(sensitivity, 1, 2)
    return Solution(
        states=at_frames,
        covariance=covariance,
        controls=setup.knots.frame_means(setup.controls),
        action_std=None,
        parameters=fitted,
        theta_names=tuple(names),
        theta_covariance=null.covariance,
        null_directions=null.directions,
        iterations=iterations,
        converged=attempt.converged,
        loss=attempt.loss,
        extra={},
        weights=np.ones(problem.observation.visible.shape),
        residuals=innovations(problem, at_frames),
        knot_states=states,
    )


def _linearized(setup: _Setup, point: Start, at_frames: Array) -> tuple[Array, Array]:
    """Return the information of the unknowns [U, U], and their effect on the states [F, D, U], by central
    differences."""
    system, count = setup.problem.system, len(setup.units)
    ends = [_moved(setup, point, sign * _STEP * row) for row in np.eye(count) for sign in (1.0, -1.0)]
    spans = [2.0 * _STEP * setup.units[i] for i in range(count)]
    for i in range(setup.moving, count):  # bounds may have shortened a step
        a, b = (end.parameters.free_vector()[i - setup.moving] for end in ends[2 * i : 2 * i + 2])
        spans[i] = max(float(a - b), 1e-12)
    states = _states(setup, ends)
    with torch.no_grad():
        middle = setup.loss.residuals(torch.from_numpy(at_frames)).numpy()
        off = [setup.loss.residuals(torch.from_numpy(moved.copy())).numpy() for moved in states]
    jacobian = np.stack([(off[2 * i] - off[2 * i + 1]) / spans[i] for i in range(count)], axis=1)
    moves = system.local(at_frames, states)
    sensitivity = np.stack([(moves[2 * i] - moves[2 * i + 1]) / spans[i] for i in range(count)], axis=-1)
    return jacobian.T @ jacobian / setup.loss.variance(middle), sensitivity
